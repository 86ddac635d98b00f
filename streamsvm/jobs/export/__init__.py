"""export: a model in the format of another program.

job    its options and its formats
table  the columns of a raw table, and what becomes of each
onnx   a graph of ONNX
sql    a query for DuckDB and PostgreSQL
"""
