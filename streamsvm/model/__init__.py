"""Models as pure data in one sealed file, and the formats that other programs read."""

from streamsvm.model.files import load
from streamsvm.model.model import Model, find_model, hash_model, predict_codes

__all__ = ["Model", "find_model", "hash_model", "load", "predict_codes"]
