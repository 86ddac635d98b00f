"""export: a model as what other programs read; LIBLINEAR and LIBSVM are in ``model.liblinear_libsvm``.

job    its options, and the choice of the format
onnx   ONNX graphs
sql    queries over the raw table
table  the raw columns that a model takes, for formats that take rows of the raw table
"""
