"""Jumps of curves: values of a column of numbers that have an effect of their own.

    f(x) = b + sum_j c_j(x_j) + sum_j J_j[x_j] + ...,

J_j[x] is a weight if x is one of the chosen values of column j, and 0 otherwise: a loan over exactly 84 months, an amount of
25,000, a 0 that stands for something else. A smooth curve cannot say so. The weights are penalized like those of categories, so
that a row sees an indicator of the value.

**Which values.** Given the values of a column with their numbers of rows n and means r of the target, the mean of a frequent value is
compared with that of the rows around it: those values within 1/WINDOWS of the rows on either side, without itself. Frequent
values among them count as MIN_SHARE of the rows each, so that one of them does not stand for its whole neighbourhood. A value jumps if the
statistic z^2 exceeds MIN_SQUARED_Z + 2 ln(number of targets), which happens by chance for less than one value in a thousand:

- classes, with k of n rows and S of W rows around of a class: the likelihood ratio of two fractions against one,

      z^2 = 2 (L(k, n) + L(S, W) - L(k + S, n + W)),    L(k, n) = k ln(k / n) + (n - k) ln(1 - k / n),

  which is nearer to a squared normal variable for rare classes than the difference of fractions over its standard deviation;
- numbers: the squared difference of the means over the sum of their estimated variances, s^2 / n (Welch 1947), in which a rare large
  target raises the variance with the mean.

Of several classes, each is tried against the rest, and the largest z^2 counts. Columns whose values are all knots are left out: their curves can take any
values. Only the rows of the training are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.blocks.column_pairs import NO_LEVEL, Cells, find_cells
from streamsvm.errors import DataError
from streamsvm.rows import CSR, Float32, Float64, Int32, Int64, Rows

MIN_ROWS, MIN_SHARE = 30, 0.0005
"""A value is tested if it has at least so many rows, and at least this share of the rows."""
WINDOWS = 64
"""The rows around a value on either side are 1/WINDOWS of all."""
MIN_SQUARED_Z = 12.0
"""The least z^2 of a jump for a single target."""
MAX_JUMPS = 256
"""Maximum number of jumps of a column: those with the largest z^2."""


@dataclass(frozen=True, slots=True)
class Jumps:
    """The values with effects of their own."""

    columns: Int32
    """(c,) The numbers of the columns with jumps, ascending."""
    values: Float32
    """The values of all these columns, rising within each."""
    starts: Int64
    """(c + 1,) The place of the first value of each column."""
    rows: Float64
    """The fraction of the training rows with each value."""
    _cells: Cells = field(init=False, repr=False, compare=False)
    """Cells of which every second one, with an odd number, has the single value of a jump."""

    def __post_init__(self) -> None:
        edges = np.column_stack([self.values, np.nextafter(self.values, np.float32(np.inf))]).ravel()
        c = len(self.columns)
        numbers, levels = np.arange(c, dtype=np.int32), np.full(c, NO_LEVEL, np.int32)
        object.__setattr__(self, "_cells", Cells(self.columns, numbers, levels, edges, 2 * self.starts))

    def find(self, X: Rows) -> Int64:
        """Return for each row and column with jumps the place of the jump, or -1 (n, c)."""
        codes = find_cells(X, self._cells)
        return np.where(codes % 2 == 1, self.starts[:-1] + codes // 2, -1)

    def fill(self, X: Rows, rows: CSR, first: int, tail: int) -> None:
        """Write one entry for each column with jumps, from the last ``tail`` entries of each of ``rows`` on, for stored rows ``X``: 1 in
        the component of the jump, or 0. ``first``: the component of the first jump.
        """
        places = self.find(X)
        at = rows.indptr[1:, None] - tail + np.arange(len(self.columns))
        rows.data[at] = places >= 0
        rows.indices[at] = first + np.where(places >= 0, places, self.starts[:-1])

    def effects(self, X: Rows, weights: Float64) -> Float64:
        """Return what the jumps of each column add to the decision values of stored rows, (n, c)."""
        places = self.find(X)
        return np.where(places >= 0, weights[places], 0.0)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        named: dict[str, NDArray[Any]] = {"jumps.columns": self.columns, "jumps.values": self.values}
        return named | {"jumps.starts": self.starts, "jumps.rows": self.rows}


def decode_jumps(tensors: dict[str, NDArray[Any]], curved: Int32) -> Jumps | None:
    """Return the jumps in ``tensors`` of a model with curves of the columns ``curved``; None if there are none. Raises DataError,
    KeyError.
    """
    if "jumps.values" not in tensors:
        return None
    columns, values, starts, rows = (tensors[f"jumps.{name}"] for name in ("columns", "values", "starts", "rows"))
    types = (np.int32, np.float32, np.int64, np.float64)
    arrays = (columns, values, starts, rows)
    valid = all(a.ndim == 1 and a.dtype == kind for a, kind in zip(arrays, types, strict=True))
    valid = valid and len(starts) == len(columns) + 1 and starts[0] == 0 and starts[-1] == len(values) == len(rows)
    valid = valid and bool((np.diff(starts) > 0).all()) and bool((np.diff(columns) > 0).all())
    valid = (
        valid and bool(np.isin(columns, curved).all()) and bool(np.isfinite(values).all() and np.isfinite(rows).all())
    )
    if not valid:
        raise DataError("the jumps of the curves are inconsistent")
    rising = np.nextafter(values[:-1], np.float32(np.inf)) < values[1:]
    rising[starts[1:-1] - 1] = True  # from one column to the next
    if not rising.all():
        raise DataError("the jumps of a curve are not increasing")
    return Jumps(columns, values, starts, rows)


# -- the test


def find_jumps(is_candidate: NDArray[np.bool_], sums: Float64, rows: int, *, numeric: bool) -> Int64:
    """Return the places of the values of a column that jump, ascending.

    ``is_candidate`` (values,), in the order of the values: whether all rows with sums at a place have the same value; ``sums``
    (values, m): the numbers of rows, the sums of the targets, and for numbers those of their squares; ``rows``: the number of all rows.
    """
    count = sums[:, 0]
    heavy = is_candidate & (count >= max(MIN_ROWS, MIN_SHARE * rows))
    share = np.ones(len(count))
    share[heavy] = np.minimum(1.0, MIN_SHARE * rows / count[heavy])
    limited = sums * share[:, None]
    total = np.concatenate([np.zeros((1, sums.shape[1])), np.cumsum(limited, axis=0)])
    weight = total[:, 0]
    half, place = weight[-1] / WINDOWS, np.flatnonzero(heavy)
    low = np.searchsorted(weight, weight[place] - half, side="left")
    high = np.searchsorted(weight, weight[place + 1] + half, side="right") - 1
    around = total[np.clip(high, place + 1, len(count))] - total[np.minimum(low, place)] - limited[place]
    tested = around[:, 0] >= 1.0
    place, around = place[tested], around[tested]
    own, targets = sums[place], 1 if numeric else sums.shape[1] - 1
    if numeric:
        square = _compare_means(own, around)
    else:
        of_classes = [
            _compare_fractions(own[:, 0], own[:, k], around[:, 0], around[:, k]) for k in range(1, targets + 1)
        ]
        square = np.max(of_classes, axis=0)
    passing = np.flatnonzero(square > MIN_SQUARED_Z + 2.0 * np.log(targets))
    best = passing[np.argsort(-square[passing], kind="stable")[:MAX_JUMPS]]
    return np.sort(place[best])


def _compare_fractions(n: Float64, k: Float64, W: Float64, S: Float64) -> Float64:
    """Return z^2 of k of n rows against S of W rows."""
    return 2.0 * (_log_likelihood(k, n) + _log_likelihood(S, W) - _log_likelihood(k + S, n + W))


def _log_likelihood(k: Float64, n: Float64) -> Float64:
    share = np.clip(k / n, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.where(p > 0.0, p * np.log(p), 0.0) for p in (share, 1.0 - share)]
    likelihood: Float64 = n * (parts[0] + parts[1])
    return likelihood


def _compare_means(own: Float64, around: Float64) -> Float64:
    """Return z^2 of the means of two groups of rows, given their numbers, sums and sums of squares."""
    means, variances = [], []
    for group in (own, around):
        n, mean = group[:, 0], group[:, 1] / group[:, 0]
        means.append(mean)
        variances.append(np.maximum(group[:, 2] / n - mean**2, 0.0) / np.maximum(n - 1.0, 1.0))
    total = variances[0] + variances[1]
    return np.divide((means[0] - means[1]) ** 2, total, out=np.zeros_like(total), where=total > 0.0)
