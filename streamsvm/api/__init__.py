"""The Python face: the commands as functions, with the options, defaults and errors of the command line.

Everything public is a name of ``streamsvm`` itself, which looks it up here when it is first asked for.

    commands  functions, signatures and docstrings made of the options
    rows      arrays, frames and models in place of files
    running   how jobs of a program report and end
    wording   messages in terms of parameters instead of options
    trackers  MLflow and TensorBoard
"""
