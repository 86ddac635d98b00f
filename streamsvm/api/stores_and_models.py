"""``sv.open_store`` and ``sv.load_model``: stores and models on disk, opened from Python.

A module of its own, because importing it is fast: ``functions`` builds the signatures of all commands.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from streamsvm import model as models
from streamsvm import store as stores
from streamsvm.api.wording import python_words
from streamsvm.model import Model
from streamsvm.types import StoredFiles


def open_store(
    path: str | PathLike[str], *, features_key: str = "X", labels_key: str = "y", allow_fill: bool = False
) -> StoredFiles:
    """Open a store, or HDF5 or Zarr arrays of another program. Only the description is read, no rows.

    ``features_key`` and ``labels_key``: names of the arrays of another program. ``allow_fill``: accept chunks that were
    never written; they hold the fill value. Raises MissingError, DataError, SecurityError.

    Examples
    --------
    >>> sv.open_store("train.zarr").layout.rows
    """
    with python_words("fit"):
        return stores.open_store(Path(path), features_key=features_key, labels_key=labels_key, allow_fill=allow_fill)


def load_model(path: str | PathLike[str]) -> Model:
    """Read and verify a model file; nothing in it is executed. Raises MissingError, DataError (E-MODEL, E-VERSION).

    Text models of LIBLINEAR, and two-class models of LIBSVM, can be loaded as well.

    Examples
    --------
    >>> sv.load_model("model.ssvm").classes
    """
    with python_words("fit"):
        return models.load(Path(path))
