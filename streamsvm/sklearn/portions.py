"""Rows that an estimator is given in portions, and what is known after each."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.jobs.partial_fit import partial_fit
from streamsvm.rows import Int32
from streamsvm.sklearn.fitting import class_weights, job_of, named, resumable
from streamsvm.sklearn.rows import as_value_errors, row_weights, store_of


def fit_portion(estimator: Any, X: Any, y: Array, classes: Any, sample_weight: Any) -> None:
    """Go on with a portion of rows in memory that scikit-learn has looked at. Raises ValueError, BudgetError.

    Nothing is proved of rows that are gone: ``gap_`` is infinite, ``primal_`` and ``dual_`` are no numbers.
    """
    known = classes_of_portion(estimator, classes, y)
    codes = np.searchsorted(known, y).astype(np.int32)
    weights = row_weights(sample_weight, len(codes))
    factors = class_weights(estimator, known, _each_once(len(known)), None)
    rows: int = getattr(estimator, "rows_seen_", 0)
    with as_value_errors():
        store = store_of(X, codes, weights, len(known), least=1)
        model = partial_fit(job_of(estimator, factors), store, resumable(estimator, known) if rows else None, rows)
    vars(estimator).pop("models_", None)
    estimator.classes_, estimator.rows_seen_ = known, rows + store.layout.rows
    estimator.model_ = named(estimator, model, known)
    estimator.gap_, estimator.primal_, estimator.dual_ = float("inf"), float("nan"), float("nan")
    estimator.coef_, estimator.intercept_ = estimator.model_.coef, estimator.model_.intercept


def classes_of_portion(estimator: Any, classes: Any, y: Array) -> Array:
    """Return all classes there are: given with the first portion, the same with every other. Raises ValueError."""
    last = getattr(estimator, "classes_", None)
    if classes is None and last is None:
        raise ValueError("classes must be passed on the first call to partial_fit")
    known: Array = np.asarray(last if classes is None else np.unique(classes))
    if last is not None and not np.array_equal(known, last):
        raise ValueError(f"`classes={classes!r}` is not the same as on last call to partial_fit, was: {last!r}")
    strange = np.setdiff1d(y, known)
    if len(strange) or len(known) < 2:
        raise ValueError(f"y has the labels {strange}, which are no classes, or there are fewer than two: {known}")
    return known


def _each_once(classes: int) -> Int32:
    """Codes that no class prevails in: 'balanced' wants all rows, and these are not there."""
    return np.arange(classes, dtype=np.int32)
