"""HOLDS: what a fit found, as pure data in one sealed file, and the forms that other tools read."""

from streamsvm.model.loading import load
from streamsvm.model.model import Model, model_of, seal
from streamsvm.model.outcomes import outcomes_of

__all__ = ["Model", "load", "model_of", "outcomes_of", "seal"]
