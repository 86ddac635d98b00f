"""Which columns float32 cannot hold where they lie, and what is taken from them: decided by the first rows.

A number x is kept to about |x| 2^-24. Of a column whose mean is more than FAR_FROM_ZERO standard deviations from 0 fewer
than ten bits of the variation are left, and whole numbers above 2^24 become even ones. Taken to x - o in float64, with o in
their midst, such columns are as good as any. The first rows of the first file decide, so that rows can be written as
they are read; what later rows lose nevertheless is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.rows import Dense, Float64, Int64, Rows, row_count
from streamsvm.store.sources.centering.offsets import Offsets

FAR_FROM_ZERO = 1e4
"""Standard deviations of a column's mean from 0 beyond which float32 keeps too little of it."""

EXACT = 2.0**24
"""The largest whole number up to which float32 has all of them."""

LARGEST = 1e30
"""Columns with numbers beyond are left where they are: no difference may overflow float32."""

SAMPLE_ROWS, SAMPLE_NUMBERS = 5000, 1 << 20
"""Rows by which it is decided, at most, and numbers of them."""


def offsets_needed(first: Callable[[bool], Rows | None], *, zero_is_met: bool = False) -> Offsets | None:
    """Return the offsets the first rows ask for, none where they lose digits and no offset helps; None: they lose nothing.

    ``first`` reads them, exactly where it is asked to: in float64 only where float32 looks as if it lost something.
    ``zero_is_met``: a missing value becomes 0.
    """
    for exact in (False, True):
        X = first(exact)
        if X is None:
            return None
        columns, values = _stored_in_all(X)
        seen = _seen_in(np.nan_to_num(values, nan=0.0) if zero_is_met else values)
        loses = _loses(seen) if exact else _may_lose(seen)
        if not loses.any():
            return None
    helped = np.flatnonzero(loses & (seen.nearest >= seen.high - seen.low) & (seen.largest < LARGEST))
    return Offsets(columns[helped], seen.midst[helped])


def rows_to_see(width: int) -> int:
    """Return how many rows of so many numbers it is decided by, at most."""
    return min(SAMPLE_ROWS, max(2, SAMPLE_NUMBERS // max(1, width)))


def _stored_in_all(X: Rows) -> tuple[Int64, Float64]:
    """The columns that every row has an entry in, and their values (n, k) in float64."""
    if isinstance(X, Dense):
        return np.arange(X.values.shape[1]), X.values.astype(np.float64)
    columns = np.flatnonzero(np.bincount(X.indices) == row_count(X))
    entries = X.data[np.isin(X.indices, columns)]
    return columns, entries.astype(np.float64).reshape(row_count(X), len(columns))


class _Seen(NamedTuple):
    """What some rows have in each of k columns; missing values do not count."""

    low: Float64
    high: Float64
    midst: Float64
    """The mean; a whole number where all are, which float64 takes from them without rounding."""
    deviation: Float64
    whole: NDArray[np.bool_]
    """Whether all numbers are whole."""

    @property
    def nearest(self) -> Float64:
        """The least distance of a number from 0; 0 where there are numbers on both sides."""
        return np.where(self.low * self.high > 0.0, np.minimum(np.abs(self.low), np.abs(self.high)), 0.0)

    @property
    def largest(self) -> Float64:
        """The largest distance of a number from 0."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def further_than(self, deviations: float) -> NDArray[np.bool_]:
        """Whether the mean is more than so many standard deviations from 0."""
        return np.abs(self.midst) > deviations * self.deviation


def _seen_in(values: Float64) -> _Seen:
    with np.errstate(over="ignore", invalid="ignore"):
        absent = np.isnan(values)
        count = np.maximum(len(values) - absent.sum(axis=0), 1)
        mean = np.nansum(values, axis=0) / count
        deviation = np.sqrt(np.nansum(np.square(values - mean), axis=0) / count)
        whole = (absent | (values == np.floor(values))).all(axis=0)
        low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    return _Seen(low, high, np.where(whole, np.round(mean), mean), deviation, whole)


def _may_lose(seen: _Seen) -> NDArray[np.bool_]:
    """Whether columns, seen in float32, are far from 0 or can have whole numbers that were rounded."""
    large = seen.whole & (seen.largest >= EXACT)
    return large | ((seen.nearest > 1.0) & seen.further_than(0.1 * FAR_FROM_ZERO))


def _loses(seen: _Seen) -> NDArray[np.bool_]:
    """Whether float32 loses the variation of columns, or whole numbers."""
    return (seen.whole & (seen.largest > EXACT)) | (seen.further_than(FAR_FROM_ZERO) & (seen.low < seen.high))
