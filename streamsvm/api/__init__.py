"""The functions of Python: the commands with the options, defaults and errors of the command line.

Every public name is a name of ``streamsvm`` itself, which imports it from here when it is first used.

functions          the commands as functions; signatures and docstrings made of their options
inputs             rows and models in memory as arguments
stores_and_models  open_store, load_model
run_job            running a job: interruption, warnings, failures
wording            messages in terms of parameters instead of options
callbacks          of events and passes; MLflow and TensorBoard
"""
