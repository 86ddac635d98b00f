"""Ingest files, or rows given in Python, into a store.

options            the options of an ingest
run                the whole ingest
hold_out           the rows of a test store, and shuffling
distributed        one file per task on a cluster
frames_and_arrays  data frames and arrays given in Python
describe           --describe, and schema files
notices            label drift, lost precision, options without effect
"""
