"""How often models are wrong, counted while rows stream by."""

from __future__ import annotations

import numpy as np

from streamsvm.aliases import Array
from streamsvm.model import outcomes_of
from streamsvm.rows import Float64


class ErrorCounts:
    """How often each of several models is wrong: counts, which may be added up in any order. Of numbers how far they are off.

    The one thing that decides what a wrong answer is, for held-out rows and for folds; a ``MetricAccumulator`` says more
    of one model and costs more. ``voting``: so many classes, whose pairs vote.
    """

    def __init__(self, models: int, voting: int = 0) -> None:
        self._voting = voting
        self.wrong, self.rows = np.zeros(models, np.int64), np.zeros(models, np.int64)
        self.squares = np.zeros(models)

    def add(self, model: int, decision: Float64, truth: Array) -> None:
        """Count rows with decision values (n, k) by one model; ``truth`` (n,) are their outcomes (``outcomes_of``), or float64 numbers."""
        if truth.dtype.kind == "f":
            error = decision[:, 0] - truth
            self.squares[model] += float(error @ error)
        else:
            self.wrong[model] += np.count_nonzero(outcomes_of(decision, self._voting) != truth)
        self.rows[model] += len(truth)

    def __add__(self, other: ErrorCounts) -> ErrorCounts:
        """The counts of both, in a new object."""
        both = ErrorCounts(len(self.wrong), self._voting)
        both.wrong, both.rows = self.wrong + other.wrong, self.rows + other.rows
        both.squares = self.squares + other.squares
        return both

    @property
    def shares(self) -> list[float]:
        """The share of its rows each model is wrong about, of numbers the root of the mean squared error; 0 where there are none."""
        rows = np.maximum(self.rows, 1)
        shares: list[float] = (self.wrong / rows + np.sqrt(self.squares / rows)).tolist()
        return shares
