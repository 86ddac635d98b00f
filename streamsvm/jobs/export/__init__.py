"""Export a model in the format of another program.

job    the command, its options and its formats
table  the columns of a raw table, and how each is encoded
onnx   a graph of ONNX; ``onnx_text`` has the hashes of text in it, ``graph_builder`` collects its nodes
sql    a query for DuckDB and PostgreSQL
"""
