"""What a fit leaves in an estimator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from streamsvm.jobs.fit.run import FitResult
from streamsvm.jobs.fit_in_memory import MemoryFitResult
from streamsvm.model import Model
from streamsvm.model.model import LINEAR
from streamsvm.sklearn.fitting.callbacks import SUPPORTED
from streamsvm.sklearn.parameters import Fitted

FROM_THE_CALLER = 5 + SUPPORTED
"""Calls between the one of ``fit`` and ``take``, a decorator among them, so that a warning shows the line of the first."""


def take(estimator: Fitted, results: Sequence[MemoryFitResult | FitResult], models: Sequence[Model], rows: int) -> None:
    """Keep what the fits of an estimator have found on ``rows`` rows; the certificate is that of the worst of them.

    ``models``: those of the results, under the names of the estimator's classes. Warns (ConvergenceWarning).
    """
    keep(estimator, models, rows)
    worst = max((model.certificate for model in models), key=lambda found: found.gap)
    estimator.gap_, estimator.primal_, estimator.dual_ = worst.gap, worst.primal, worst.dual
    estimator.n_passes_ = max(result.training.passes for result in results)
    estimator.peak_memory_ = max(result.training.peak for result in results)
    for warning in {warning for result in results for warning in result.warnings}:
        warnings.warn(warning, ConvergenceWarning, stacklevel=FROM_THE_CALLER)


def keep(estimator: Fitted, models: Sequence[Model], rows: int) -> None:
    """Keep models as attributes, and nothing of the last fit that these do not have."""
    for name in ("model_", "coef_", "intercept_"):
        vars(estimator).pop(name, None)
    estimator.models_, estimator.rows_seen_ = list(models), rows
    if len(models) == 1:
        estimator.model_ = models[0]
    if all(model.kind == LINEAR for model in models):
        estimator.coef_ = np.concatenate([model.coef for model in models])
        estimator.intercept_ = np.concatenate([model.intercept for model in models])
