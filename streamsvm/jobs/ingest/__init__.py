"""Ingest files, or rows given in Python, into a store.

options            the options of an ingest
run                the whole ingest: from sources to the store and the test store, in order or shuffled
hold_out           choice of the rows of the test store
distributed        one file per task on a cluster
frames_and_arrays  data frames and arrays given in Python
describe           --describe: a table of the columns
schema_file        schema files: --write-schema, --schema
notices            label drift, lost precision, options without effect
"""
