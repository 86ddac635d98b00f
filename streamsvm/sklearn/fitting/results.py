"""What a fit leaves in an estimator."""

from __future__ import annotations

import warnings

from sklearn.exceptions import ConvergenceWarning

from streamsvm.jobs.fit.driver import FitResult, MemoryFitResult
from streamsvm.model import Model
from streamsvm.model.model import LINEAR
from streamsvm.sklearn.fitting.callbacks import SUPPORTED
from streamsvm.sklearn.parameters import Fitted

FROM_THE_CALLER = 5 + SUPPORTED
"""Calls between the one of ``fit`` and ``take``, a decorator among them, so that a warning shows the line of the first."""


def take(estimator: Fitted, result: MemoryFitResult | FitResult, model: Model, rows: int) -> None:
    """Keep what the fit of an estimator has found on ``rows`` rows; the certificate is that of its worst problem.

    ``model``: that of the result, under the names of the estimator's classes. Warns (ConvergenceWarning).
    """
    keep(estimator, model, rows)
    worst = model.certificate
    estimator.gap_, estimator.primal_, estimator.dual_ = worst.gap, worst.primal, worst.dual
    estimator.n_passes_, estimator.peak_memory_ = result.training.passes, result.training.peak
    for warning in result.warnings:
        warnings.warn(warning, ConvergenceWarning, stacklevel=FROM_THE_CALLER)


def keep(estimator: Fitted, model: Model, rows: int) -> None:
    """Keep a model as attributes, and nothing of the last fit that it does not have."""
    for name in ("coef_", "intercept_"):
        vars(estimator).pop(name, None)
    estimator.model_, estimator.rows_seen_ = model, rows
    if model.kind == LINEAR:
        estimator.coef_, estimator.intercept_ = model.coef.copy(), model.intercept
