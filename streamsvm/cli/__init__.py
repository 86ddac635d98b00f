"""The command line.

main      the entry point: names of the commands, errors as messages and exit codes
commands  options and functions of each command
help      texts and layout of --help, examples, lists of settings
show      results as text and JSON
"""
