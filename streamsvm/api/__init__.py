"""The Python face: the commands as functions, with the options, defaults and errors of the command line.

Everything public is a name of ``streamsvm`` itself, which looks it up here when it is first asked for.
"""
