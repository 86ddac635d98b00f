"""Options and job files.

options   declarations, parsing and checks of options
job_file  jobs from tables in TOML and from --set
units     sizes, durations and counts as text
"""
