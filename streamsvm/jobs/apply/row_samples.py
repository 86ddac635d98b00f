"""What is kept of the rows of an evaluation for the page of a run: a sample, those with the worst errors, and means of columns.

All of it has a bounded size, and none depends on the order in which parts of the rows are counted but for the last digits
of means: the sample is of the rows with the smallest hashes, the worst rows are ordered by error, then by number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.compute.random import STEP, mix_bits
from streamsvm.model import Model
from streamsvm.model.model import count_votes
from streamsvm.rows import CSR, Dense, Float64, Int64, Rows, row_count, row_slice, row_where

SAMPLED = 5_000
"""Rows of the sample."""
WORST = 12
"""Rows with the worst errors."""
ENTRIES = 64
"""Numbers kept of such a row: those that move f most."""
ROWS_FOR_MEANS = 2048
"""At most so many rows of a batch are counted for the means of columns."""
MAX_COLUMNS = 20_000
"""Of wider rows there are no means."""
UInt64 = NDArray[np.uint64]


class WorstRow(NamedTuple):
    """A row with a large error."""

    error: float
    """How far the true class is below the predicted one, or the absolute error of a number."""
    row: int
    """Its number."""
    truth: float
    """Its class, as an index into the outcomes of the evaluation, or its number."""
    decision: Float64
    """(k,)"""
    columns: Int64
    """Columns that move f most, (m,)."""
    values: Float64
    """The row's numbers in them, (m,)."""
    id: object = None
    """Its id; None for a row without."""

    @property
    def order(self) -> tuple[float, int]:
        """The order of rows: the worst first, of equal ones the first."""
        return (-self.error, self.row)


@dataclass(slots=True)
class RowSamples:
    """Keeps some of the rows that it is shown."""

    hashes: UInt64 = field(default_factory=lambda: np.empty(0, np.uint64))
    """Of the sampled rows, rising (s,)."""
    points: Float64 = field(default_factory=lambda: np.empty((0, 2)))
    """Of these the target and the prediction, or the class and the margin (s, 2)."""
    worst: list[WorstRow] = field(default_factory=list)
    sums: Float64 = field(default_factory=lambda: np.empty(0))
    """Of the columns, over ``rows`` rows; empty for rows that are too wide."""
    rows: int = 0
    first: int = 0
    """The number of the first row it was shown."""
    seen: int = 0
    """How many rows it was shown."""

    def add(  # noqa: PLR0917
        self, model: Model, X: Rows, decision: Float64, truth: Array, first: int, ids: Array | None = None
    ) -> None:
        """Look at the rows of a batch with decision values (n, k) of a model, outcomes or numbers (n,), and ids (n,); ``first`` is the
        number of the first one.
        """
        if not len(truth):
            return
        self.first = self.first if self.seen else first
        self.seen += len(truth)
        if model.columns <= MAX_COLUMNS:
            some = _take_evenly(X)
            self._add_sums(sum_columns(some, model.columns), row_count(some))
        if model.numeric:
            error, points = np.abs(decision[:, 0] - truth), np.column_stack([truth, decision[:, 0]])
        else:
            known = truth < len(model.classes)
            if known.all():
                margins = measure_margins(model, decision, truth)
            else:
                margins = np.zeros(len(truth))
                margins[known] = measure_margins(model, decision[known], truth[known])
            error, points = -margins, np.column_stack([truth, margins])[known]
        if model.numeric or len(model.weights) > 1:  # of two classes the ranking knows more
            self._keep(hash_rows(points), points)
        wrong = np.flatnonzero(error > (self.worst[-1].error if len(self.worst) == WORST else 0.0))
        for i in wrong[np.argsort(-error[wrong], kind="stable")][:WORST].tolist():
            columns, values = _copy_row(model, row_slice(X, i, i + 1))
            name = None if ids is None else ids[i]
            one = WorstRow(float(error[i]), first + i, float(truth[i]), decision[i].copy(), columns, values, name)
            self.worst.append(one)
        self._sort_worst()

    def count_in(self, other: RowSamples) -> None:
        """Add what another one has kept of the rows that follow; one that counts from 0, as of a file, is numbered on."""
        shift = self.seen if other.first == 0 else 0
        self.first, self.seen = self.first if self.seen else other.first, self.seen + other.seen
        self._keep(other.hashes, other.points)
        self.worst += [one._replace(row=one.row + shift) for one in other.worst]
        self._sort_worst()
        self._add_sums(other.sums, other.rows)

    @property
    def means(self) -> Float64 | None:
        """The means of the columns over some of the rows, (d,); None where there are none."""
        return self.sums / self.rows if self.rows else None

    def _add_sums(self, sums: Float64, rows: int) -> None:
        if rows:
            self.sums = self.sums + sums if self.rows else sums
            self.rows += rows

    def _keep(self, hashes: UInt64, points: Float64) -> None:
        if len(self.hashes) == SAMPLED:
            some = hashes < self.hashes[-1]
            hashes, points = hashes[some], points[some]
        both = np.concatenate([self.hashes, hashes])
        order = np.argsort(both, kind="stable")[:SAMPLED]
        self.hashes, self.points = both[order], np.concatenate([self.points, points])[order]

    def _sort_worst(self) -> None:
        self.worst = sorted(self.worst, key=lambda one: one.order)[:WORST]


def _take_evenly(X: Rows) -> Rows:
    """Return at most ``ROWS_FOR_MEANS`` rows that lie evenly among the rows, of dense ones without a copy."""
    step = -(-row_count(X) // ROWS_FOR_MEANS)
    return Dense(X.values[::step]) if isinstance(X, Dense) else row_where(X, np.arange(row_count(X)) % step == 0)


def sum_columns(X: Rows, columns: int) -> Float64:
    """Return the sum of each column, (columns,)."""
    if isinstance(X, CSR):
        return np.bincount(X.indices, weights=X.data, minlength=columns).astype(np.float64)
    sums: Float64 = X.values.sum(axis=0, dtype=np.float64)
    return sums


def hash_rows(points: Float64) -> UInt64:
    """Return numbers that are as good as random, (n,), from the numbers (n, 2) of rows and their places."""
    bits = np.ascontiguousarray(points).view(np.uint64)
    x = bits[:, 0] * STEP ^ bits[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F)
    return mix_bits(x + np.arange(len(x), dtype=np.uint64) * np.uint64(0x165667B19E3779F9))


def measure_margins(model: Model, decision: Float64, truth: Array) -> Float64:
    """Return how far the decision value of the true class is above all others, (n,), or its votes where pairs vote; of two
    classes y f(x). Below 0 the answer is wrong.

    ``truth`` (n,): indices of the model's classes.
    """
    if decision.shape[1] == 1:
        beyond: Float64 = decision[:, 0] - model.threshold
        return np.where(truth == 1, beyond, -beyond)
    if model.pairs:
        decision = count_votes(decision, len(model.classes)).astype(np.float64)
    rows = np.arange(len(decision))
    own = decision[rows, truth].copy()
    decision[rows, truth] = -np.inf
    margins: Float64 = own - decision.max(axis=1)
    decision[rows, truth] = own
    return margins


def _copy_row(model: Model, X: Rows) -> tuple[Int64, Float64]:
    """Return the columns of a row that move f most, and its numbers there."""
    if isinstance(X, CSR):
        columns, values = X.indices.astype(np.int64), X.data.astype(np.float64)
    else:
        columns = np.flatnonzero(X.values[0])
        values = X.values[0][columns].astype(np.float64)
    moves = np.abs(values)
    if model.expansion is None:
        moves = np.abs(model.weights[:, columns] * values).max(axis=0, initial=0.0)
    chosen = np.argsort(-moves, kind="stable")[:ENTRIES]
    return columns[chosen], values[chosen]
