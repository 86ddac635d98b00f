"""Models as pure data in one sealed file, and the formats that other programs read.

model             what a model is: decision values, classes, probabilities, weights by column, its file
measures          measures of quality on held-out rows, counted chunk by chunk
liblinear_libsvm  the text formats of LIBLINEAR and LIBSVM
"""

from streamsvm.model.model import Model, find_model, hash_model, load, predict_codes

__all__ = ["Model", "find_model", "hash_model", "load", "predict_codes"]
