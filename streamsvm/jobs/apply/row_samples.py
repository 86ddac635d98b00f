"""Keep a sample of the rows of an evaluation, the rows with the worst errors, and means of columns, for the page of a run.

The size of these is bounded. Except for the last digits of means, they do not depend on the order in which parts of the
rows are counted: the sample consists of the rows with the smallest hashes, and the worst rows are ordered by error, then
by number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.random import STEP, mix_bits
from streamsvm.model import Model
from streamsvm.model.model import count_votes
from streamsvm.rows import CSR, Dense, Float64, Int64, Rows, row_count, row_slice, row_where
from streamsvm.type_aliases import Array

SAMPLE_ROWS = 5_000
"""The number of rows in the sample."""
WORST_ROWS = 12
"""The number of rows with the worst errors that are kept."""
MAX_ENTRIES = 64
"""The number of entries kept of such a row: those with the largest contribution to f."""
MAX_MEAN_ROWS = 2048
"""Maximum number of rows per batch that are added to the means of columns."""
MAX_MEAN_COLUMNS = 20_000
"""Maximum number of columns for which means are computed."""
UInt64 = NDArray[np.uint64]


class WorstRow(NamedTuple):
    """A row with a large error."""

    error: float
    """The decision value of the predicted class less that of the true class; in regression the absolute error."""
    row: int
    """The number of the row."""
    truth: float
    """The true class, as an index into the outcomes of the evaluation, or the target in regression."""
    decision: Float64
    """The decision values, (k,)."""
    columns: Int64
    """The columns with the largest contributions to f, (m,)."""
    values: Float64
    """The entries of the row in these columns, (m,)."""
    id: object = None
    """The id of the row; None if it has none."""

    @property
    def order(self) -> tuple[float, int]:
        """The sort key: rows with larger errors come first, then rows with smaller numbers."""
        return (-self.error, self.row)


@dataclass(slots=True)
class RowSamples:
    """A sample of rows, the worst rows, and sums of columns."""

    hashes: UInt64 = field(default_factory=lambda: np.empty(0, np.uint64))
    """The hashes of the sampled rows in ascending order, (s,)."""
    points: Float64 = field(default_factory=lambda: np.empty((0, 2)))
    """Target and prediction of the sampled rows, or class and margin, (s, 2)."""
    worst: list[WorstRow] = field(default_factory=list)
    sums: Float64 = field(default_factory=lambda: np.empty(0))
    """The sums of the columns over ``rows`` rows; empty for rows with too many columns."""
    rows: int = 0
    first: int = 0
    """The number of the first row added."""
    seen: int = 0
    """The number of rows added."""

    def add(  # noqa: PLR0917
        self, model: Model, X: Rows, decision: Float64, truth: Array, first: int, ids: Array | None = None
    ) -> None:
        """Add the rows of a batch with their decision values (n, k), true outcomes or targets (n,), and ids (n,).

        ``first`` is the number of the first row.
        """
        if not len(truth):
            return
        self.first = self.first if self.seen else first
        self.seen += len(truth)
        if model.columns <= MAX_MEAN_COLUMNS:
            selected = _take_evenly(X)
            self._add_sums(sum_columns(selected, model.columns), row_count(selected))
        if model.numeric:
            error, points = np.abs(decision[:, 0] - truth), np.column_stack([truth, decision[:, 0]])
        else:
            in_classes = truth < len(model.classes)
            if in_classes.all():
                margins = measure_margins(model, decision, truth)
            else:
                margins = np.zeros(len(truth))
                margins[in_classes] = measure_margins(model, decision[in_classes], truth[in_classes])
            error, points = -margins, np.column_stack([truth, margins])[in_classes]
        if model.numeric or len(model.weights) > 1:  # for two classes the page uses the ranking of all rows
            self._keep(hash_rows(points), points)
        wrong = np.flatnonzero(error > (self.worst[-1].error if len(self.worst) == WORST_ROWS else 0.0))
        for i in wrong[np.argsort(-error[wrong], kind="stable")][:WORST_ROWS].tolist():
            columns, values = _copy_row(model, row_slice(X, i, i + 1))
            row_id = None if ids is None else ids[i]
            self.worst.append(
                WorstRow(float(error[i]), first + i, float(truth[i]), decision[i].copy(), columns, values, row_id)
            )
        self._sort_worst()

    def count_in(self, other: RowSamples) -> None:
        """Add the samples of the rows that follow. If their numbers start at 0, as those of a file, they are shifted."""
        shift = self.seen if other.first == 0 else 0
        self.first, self.seen = self.first if self.seen else other.first, self.seen + other.seen
        self._keep(other.hashes, other.points)
        self.worst += [row._replace(row=row.row + shift) for row in other.worst]
        self._sort_worst()
        self._add_sums(other.sums, other.rows)

    @property
    def means(self) -> Float64 | None:
        """The means of the columns over a part of the rows, (d,); None if no sums were kept."""
        return self.sums / self.rows if self.rows else None

    def _add_sums(self, sums: Float64, rows: int) -> None:
        if rows:
            self.sums = self.sums + sums if self.rows else sums
            self.rows += rows

    def _keep(self, hashes: UInt64, points: Float64) -> None:
        if len(self.hashes) == SAMPLE_ROWS:
            is_smaller = hashes < self.hashes[-1]
            hashes, points = hashes[is_smaller], points[is_smaller]
        all_hashes = np.concatenate([self.hashes, hashes])
        order = np.argsort(all_hashes, kind="stable")[:SAMPLE_ROWS]
        self.hashes, self.points = all_hashes[order], np.concatenate([self.points, points])[order]

    def _sort_worst(self) -> None:
        self.worst = sorted(self.worst, key=lambda row: row.order)[:WORST_ROWS]


def _take_evenly(X: Rows) -> Rows:
    """Return at most ``MAX_MEAN_ROWS`` evenly spaced rows; dense rows are not copied."""
    step = -(-row_count(X) // MAX_MEAN_ROWS)
    return Dense(X.values[::step]) if isinstance(X, Dense) else row_where(X, np.arange(row_count(X)) % step == 0)


def sum_columns(X: Rows, columns: int) -> Float64:
    """Return the sum of each column, (columns,)."""
    if isinstance(X, CSR):
        return np.bincount(X.indices, weights=X.data, minlength=columns).astype(np.float64)
    sums: Float64 = X.values.sum(axis=0, dtype=np.float64)
    return sums


def hash_rows(points: Float64) -> UInt64:
    """Return pseudorandom hashes, (n,), of the points (n, 2) and their positions."""
    bits = np.ascontiguousarray(points).view(np.uint64)
    x = bits[:, 0] * STEP ^ bits[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F)
    return mix_bits(x + np.arange(len(x), dtype=np.uint64) * np.uint64(0x165667B19E3779F9))


def measure_margins(model: Model, decision: Float64, truth: Array) -> Float64:
    """Return the margins (n,): the decision value of the true class less the largest of the others, or votes in place
    of decision values for one-vs-one; for two classes y f(x). A row with a margin below 0 is misclassified.

    ``truth`` (n,): indices of the model's classes.
    """
    if decision.shape[1] == 1:
        above_threshold: Float64 = decision[:, 0] - model.threshold
        return np.where(truth == 1, above_threshold, -above_threshold)
    if model.pairs:
        decision = count_votes(decision, len(model.classes)).astype(np.float64)
    rows = np.arange(len(decision))
    of_truth = decision[rows, truth].copy()
    decision[rows, truth] = -np.inf
    margins: Float64 = of_truth - decision.max(axis=1)
    decision[rows, truth] = of_truth
    return margins


def _copy_row(model: Model, X: Rows) -> tuple[Int64, Float64]:
    """Return the columns of a row with the largest contributions to f, and its entries in these columns."""
    if isinstance(X, CSR):
        columns, values = X.indices.astype(np.int64), X.data.astype(np.float64)
    else:
        columns = np.flatnonzero(X.values[0])
        values = X.values[0][columns].astype(np.float64)
    contributions = np.abs(values)
    if model.expansion is None:
        contributions = np.abs(model.weights[:, columns] * values).max(axis=0, initial=0.0)
    chosen = np.argsort(-contributions, kind="stable")[:MAX_ENTRIES]
    return columns[chosen], values[chosen]
