"""How often models are wrong, counted while rows stream by."""

from __future__ import annotations

import numpy as np

from streamsvm.aliases import Array
from streamsvm.errors import DataError
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


class BalancedCounts:
    """How often each of several models of one class is wrong, rows of the class and all others counting the same, whatever there are of each.

    A model that takes all rows for those of the class, or none, has an error of 1/2.
    """

    def __init__(self, models: int) -> None:
        self._sides = tuple(ErrorCounts(models) for _ in range(2))

    def add(self, model: int, decision: Float64, truth: Array) -> None:
        """Count rows with decision values (n, 1) by one model; ``truth`` (n,) is 1 for rows of the class, else 0."""
        for outcome, counts in enumerate(self._sides):
            mine = truth == outcome
            counts.add(model, decision[mine], truth[mine])

    @property
    def shares(self) -> list[float]:
        """The mean of both shares of wrong answers, for each model. Raises DataError where one of them is of no rows."""
        if any(counts.rows.min(initial=1) == 0 for counts in self._sides):
            raise DataError(
                "rows that are held out together are all of the class, or none of them is: there is no error to take",
                code="E-LABEL",
                hint="fewer folds, or ingest the rows in random order: --shuffle",
            )
        return [0.5 * (one + other) for one, other in zip(*(counts.shares for counts in self._sides), strict=True)]
