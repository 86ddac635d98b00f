"""How far predicted numbers are off, summed while they stream by; see ``class_metrics`` for classes.

    MAE = mean |e|,   RMSE = sqrt(mean e^2),   R2 = 1 - sum e^2 / sum (t - mean t)^2,   e = f - t

Means and squares of two parts are joined as Chan, Golub and LeVeque do, so that no square of a large mean is ever taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.errors import UsageError
from streamsvm.rows import Float64


class RegressionEvaluation(NamedTuple):
    """How far a model is off on some rows, each row counted once whatever its weight; all in the units of the target but R2."""

    rows: int
    """The number of rows."""
    R2: float | None
    """The share of the targets' variance that is explained; None where all targets are equal. May be below 0."""
    MAE: float
    """The mean absolute error."""
    RMSE: float
    """The root of the mean squared error."""
    largest_error: float
    """The largest absolute error."""
    target_mean: float
    """The mean of the targets."""
    target_spread: float
    """The standard deviation of the targets."""


class NumberAccumulator:
    """Sums the errors of a model's predictions, and the moments of the targets."""

    def __init__(self) -> None:
        self.rows = 0
        self._absolute = self._squares = self._largest = self._mean = self._M2 = 0.0

    def add(self, truth: Float64, decision: Float64) -> None:
        """Count rows: targets (n,), predictions (n, 1)."""
        if not len(truth):
            return
        error, mean = decision[:, 0] - truth, float(truth.mean())
        away = truth - mean
        self._join(len(truth), mean, float(away @ away))
        self._absolute += float(np.abs(error).sum())
        self._squares += float(error @ error)
        self._largest = max(self._largest, float(np.abs(error).max()))

    def joined(self, other: NumberAccumulator) -> NumberAccumulator:
        """Return an accumulator of the rows of both; neither changes."""
        both = NumberAccumulator()
        both.count_in(self)
        both.count_in(other)
        return both

    def count_in(self, other: NumberAccumulator) -> None:
        """Count the rows of another accumulator of the same model."""
        self._join(other.rows, other._mean, other._M2)
        self._absolute += other._absolute
        self._squares += other._squares
        self._largest = max(self._largest, other._largest)

    def at_thresholds(self, measure: str | None, costs: tuple[float, float]) -> tuple[None, None]:
        """Return nothing. Raises UsageError where a threshold is asked for: there are no classes."""
        if measure is not None:
            raise UsageError("a threshold is for two classes", hint="leave out --threshold and --best-threshold")
        return None, None

    def result(self) -> RegressionEvaluation:
        """Return the figures of all rows counted."""
        rows = max(self.rows, 1)
        R2 = 1.0 - self._squares / self._M2 if self._M2 > 0.0 else None
        MAE, RMSE = self._absolute / rows, float(np.sqrt(self._squares / rows))
        spread = float(np.sqrt(self._M2 / rows))
        return RegressionEvaluation(self.rows, R2, MAE, RMSE, self._largest, self._mean, spread)

    def _join(self, rows: int, mean: float, M2: float) -> None:
        if not rows:
            return
        total, delta = self.rows + rows, mean - self._mean
        self._M2 += M2 + delta * delta * self.rows * rows / total
        self._mean += delta * rows / total
        self.rows = total
