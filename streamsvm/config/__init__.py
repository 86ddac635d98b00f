"""Options, commands and job files.

options        declarations, parsing and checks of options
command_table  the commands that are jobs; a job made of values, and written as a command line
job_files      steps of a TOML file, --set, and what takes precedence
units          sizes, durations and counts as text
"""
