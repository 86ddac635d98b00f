"""Rows that an estimator is given in portions: which classes there are, and where a fit goes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.model import Model
from streamsvm.model.model import LINEAR
from streamsvm.sklearn.fitting.classes import of_codes
from streamsvm.sklearn.parameters import Fitted


def classes_of_portion(last: Array | None, classes: Any, y: Array) -> Array:
    """Return all classes there are: given with the first portion, the same with every other. Raises ValueError.

    ``last``: those of the portions before; None: this is the first.
    """
    if classes is None and last is None:
        raise ValueError("classes must be passed on the first call to partial_fit")
    known: Array = np.asarray(last if classes is None else np.unique(classes))
    if last is not None and not np.array_equal(known, last):
        raise ValueError(f"`classes={classes!r}` is not the same as on last call to partial_fit, was: {last!r}")
    strange = np.setdiff1d(y, known)
    if len(strange) or len(known) < 2:
        raise ValueError(f"y has the labels {strange}, which are no classes, or there are fewer than two: {known}")
    return known


def resumable(fitted: Fitted, kernel: str, classes: Array) -> Model | None:
    """Return the model an estimator has as one of class codes, if it is a linear one of these columns and classes, each against the rest."""
    if not fitted.__sklearn_is_fitted__() or fitted.model_.pairs or kernel != "linear":
        return None
    last = fitted.model_
    if last.kind != LINEAR or last.columns != fitted.n_features_in_ or not np.array_equal(classes, fitted.classes_):
        return None
    return of_codes(last)
