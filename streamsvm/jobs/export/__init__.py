"""Export a model in the format of another program.

job    the command, its options and its formats
table  the columns of a raw table, and how each is encoded
onnx   a graph of ONNX
sql    a query for DuckDB and PostgreSQL
"""
