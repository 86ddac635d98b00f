"""ingest: files, or rows of a program, to a store.

job                its options
run                the whole way
hold_out           the rows that go to a test store, and shuffling
distributed        one file a task on a cluster
frames_and_arrays  data frames and arrays of a program
describe           --describe, and schema files
notices            label drift, lost precision, options without effect
"""
