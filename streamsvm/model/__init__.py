"""Models as pure data in one sealed file, and the formats that other programs read.

model             what a model is: decision values, classes, probabilities
files             model files, read and checked
explain           weights by column, and contributions
measures          measures of quality on held-out rows, counted chunk by chunk
liblinear_libsvm  the text formats of LIBLINEAR and LIBSVM
"""

from streamsvm.model.files import load
from streamsvm.model.model import Model, find_model, hash_model, predict_codes

__all__ = ["Model", "find_model", "hash_model", "load", "predict_codes"]
