"""Offsets, which are subtracted from columns far from 0 before they are rounded to float32.

float32 rounds a number x by up to about |x| 2^-24. If the mean of a column is more than FAR_FROM_ZERO standard
deviations from 0, fewer than ten bits of its variation remain, and integers above 2^24 are rounded to even ones. Such a
column is stored as x - o, computed in float64, with o near its center; then it loses no more than other columns. The
offsets are computed from the first rows (``collect_first_rows``), so that rows can be written while they are read;
numbers of later rows that are rounded nevertheless are counted. The offsets are recorded in the store and in its
models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.errors import StreamSVMError
from streamsvm.rows import CSR, Dense, Float64, Int64, Rows, row_count, row_slice, row_stack, with_entries
from streamsvm.type_aliases import Array, JsonMapping


class Offsets(NamedTuple):
    """The offsets that are subtracted from some columns before they are rounded to float32."""

    columns: Int64
    """The numbers of the columns, ascending, (k,)."""
    values: Float64
    """The offset of each of these columns, (k,)."""

    def to_json(self) -> list[tuple[int, float]]:
        """Return pairs (column, offset) as plain JSON."""
        return [(int(j), float(o)) for j, o in zip(self.columns, self.values, strict=True)]

    def difference_from(self, other: Offsets) -> Offsets:
        """Return the offsets to subtract from rows stored with the offsets ``other`` to give them these offsets."""
        columns = np.union1d(self.columns, other.columns).astype(np.int64)
        changes = self.at(columns) - other.at(columns)
        return Offsets(columns[changes != 0.0], changes[changes != 0.0])

    def at(self, columns: Int64) -> Float64:
        """Return the offset of each of ``columns``, ascending and including ``self.columns``; 0 for the others."""
        offsets = np.zeros(len(columns))
        offsets[np.searchsorted(columns, self.columns)] = self.values
        return offsets

    def subtract_from(self, X: Rows) -> Rows:
        """Return the rows in float64 with the offsets subtracted; CSR rows get an entry in each of ``columns``."""
        if isinstance(X, Dense):
            values: Array = X.values.astype(np.float64)
            values[:, self.columns] -= self.values
            return Dense(values, X.bias)
        if not len(self.columns):
            return X._replace(data=X.data.astype(np.float64))
        full = with_entries(X, self.columns)
        data: Array = full.data.astype(np.float64)
        place = np.minimum(np.searchsorted(self.columns, full.indices), len(self.columns) - 1)
        data -= np.where(self.columns[place] == full.indices, self.values[place], 0.0)
        return full._replace(data=data)

    def apply(self, X: Rows) -> Rows:
        """Return the rows with the offsets subtracted as float32; without offsets, the rows unchanged."""
        return round_rows(self.subtract_from(X)) if len(self.columns) else X


def offsets_from(encoding: JsonMapping | None) -> Offsets:
    """Return the offsets in a recorded encoding; empty ones if it has none."""
    recorded = (encoding or {}).get("offsets") or ()
    columns, values = [int(j) for j, _ in recorded], [float(o) for _, o in recorded]
    return Offsets(np.array(columns, np.int64), np.array(values, np.float64))


def offsets_of_store(facts: JsonMapping) -> Offsets:
    """Return the offsets of the columns of a store with these facts.

    A store of kernel features has no offsets: those in its encoding belong to the rows that the features were computed
    from.
    """
    return offsets_from(None if facts.get("map") is not None else facts.get("encoding"))


def name_of(names: Sequence[str] | None, column: int) -> str:
    """Return the name of a column in messages: its quoted name, or its number if the columns have no names."""
    return f"'{names[column]}'" if names else f"column {column}"


def list_first(texts: Sequence[str], most: int) -> str:
    """Return the first ``most`` texts as a list, and the number of the others."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def round_rows(X: Rows) -> Rows:
    """Return the rows rounded to float32."""
    if isinstance(X, Dense):
        return X._replace(values=np.ascontiguousarray(X.values, np.float32))
    return X._replace(data=X.data.astype(np.float32))


FAR_FROM_ZERO = 1e4
"""The distance of a column's mean from 0, in standard deviations, beyond which float32 keeps too little of the
variation.
"""

LARGEST_EXACT = 2.0**24
"""float32 represents every integer up to this one exactly."""

LARGEST_MOVED = 1e30
"""Columns with larger numbers get no offset, because a difference might overflow float32."""

SAMPLE_ROWS, SAMPLE_NUMBERS = 5000, 1 << 18
"""The most rows, and the most numbers in them, from which the offsets are computed."""


def find_offsets(read_first_rows: Callable[[bool], Rows | None], *, missing_is_zero: bool = False) -> Offsets | None:
    """Return the offsets that the first rows need.

    The result is None if float32 rounds nothing that matters, and empty offsets if it does and no offset helps.
    ``read_first_rows`` returns the rows as float32, or as float64 if its argument is true; float64 is requested only if
    float32 may have rounded something. ``missing_is_zero``: missing values count as 0.
    """
    for exact in (False, True):
        X = read_first_rows(exact)
        if X is None:
            return None
        columns, values = _full_columns(X)
        values = np.nan_to_num(values, nan=0.0) if missing_is_zero else values
        if not exact and _is_near_zero(values):
            return None
        ranges = _column_ranges(values)
        is_rounded = _loses_digits(ranges) if exact else _may_lose_digits(ranges)
        if not is_rounded.any():
            return None
    shifted = np.flatnonzero(
        is_rounded & (ranges.nearest >= ranges.high - ranges.low) & (ranges.largest < LARGEST_MOVED)
    )
    return Offsets(columns[shifted], ranges.center[shifted])


def sample_rows(columns: int, *, sparse: bool = False) -> int:
    """Return the number of rows with ``columns`` columns from which offsets are computed."""
    return SAMPLE_ROWS if sparse else min(SAMPLE_ROWS, max(2, SAMPLE_NUMBERS // max(1, columns)))


def collect_first_rows(batches: Iterable[Rows]) -> Rows | None:
    """Return the first rows, from which the offsets are computed; None if there are no rows.

    The result does not depend on the size of the batches. An error while reading ends the sample; it is raised again
    when the rows are read to be stored.
    """
    parts, rows, numbers = [], 0, 0
    with suppress(StreamSVMError):
        for X in batches:
            parts.append(X)
            rows += row_count(X)
            numbers += X.values.size if isinstance(X, Dense) else len(X.data)
            if rows >= SAMPLE_ROWS or (rows >= 2 and numbers > SAMPLE_NUMBERS):
                break
    return cut_first_rows(parts[0] if len(parts) == 1 else row_stack(parts)) if rows else None


def cut_first_rows(X: Rows) -> Rows:
    """Return the rows from which offsets are computed: at least 2, at most SAMPLE_ROWS, with SAMPLE_NUMBERS numbers."""
    if isinstance(X, Dense):
        most = sample_rows(X.values.shape[1])
    else:
        most = max(2, int(np.searchsorted(X.indptr, SAMPLE_NUMBERS, side="right")) - 1)
    return row_slice(X, 0, min(row_count(X), SAMPLE_ROWS, most))


def _full_columns(X: Rows) -> tuple[Int64, Float64]:
    """Return the columns in which every row has an entry (k,), and their values in float64 (n, k)."""
    if isinstance(X, Dense):
        return np.arange(X.values.shape[1]), X.values.astype(np.float64)
    columns = np.flatnonzero(np.bincount(X.indices) == row_count(X))
    entries = X.data[np.isin(X.indices, columns)]
    return columns, entries.astype(np.float64).reshape(row_count(X), len(columns))


class _ColumnRange(NamedTuple):
    """Statistics of each of k columns over some rows, without missing values."""

    low: Float64
    high: Float64
    center: Float64
    """The mean, rounded to an integer if all numbers are integers, so that float64 subtracts it without rounding."""
    deviation: Float64
    """The standard deviation."""
    whole: NDArray[np.bool_]
    """Whether all numbers of a column are integers."""

    @property
    def nearest(self) -> Float64:
        """The least absolute value of a column; 0 if it has numbers of both signs."""
        return np.where(self.low * self.high > 0.0, np.minimum(np.abs(self.low), np.abs(self.high)), 0.0)

    @property
    def largest(self) -> Float64:
        """The largest absolute value of a column."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def is_far_from_zero(self, deviations: float) -> NDArray[np.bool_]:
        """Return whether the mean of each column is more than ``deviations`` standard deviations from 0."""
        return np.abs(self.center) > deviations * self.deviation


def _is_near_zero(values: Float64) -> bool:
    """Return whether no column, as read in float32, may have lost digits: each has a number between -1 and 1, or numbers
    of both signs, and none of LARGEST_EXACT or more. This is quicker to decide than ``_may_lose_digits``.
    """
    low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    return bool(((low <= 1.0) & (high >= -1.0) & (low > -LARGEST_EXACT) & (high < LARGEST_EXACT)).all())


def _column_ranges(values: Float64) -> _ColumnRange:
    with np.errstate(over="ignore", invalid="ignore"):
        is_missing = np.isnan(values)
        count = np.maximum(len(values) - is_missing.sum(axis=0), 1)
        mean = np.nansum(values, axis=0) / count
        deviation = np.sqrt(np.nansum(np.square(values - mean), axis=0) / count)
        whole = (is_missing | (values == np.floor(values))).all(axis=0)
        low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    return _ColumnRange(low, high, np.where(whole, np.round(mean), mean), deviation, whole)


def _may_lose_digits(ranges: _ColumnRange) -> NDArray[np.bool_]:
    """Return whether each column, as read in float32, is far from 0 or may have integers that were rounded."""
    large = ranges.whole & (ranges.largest >= LARGEST_EXACT)
    return large | ((ranges.nearest > 1.0) & ranges.is_far_from_zero(0.1 * FAR_FROM_ZERO))


def _loses_digits(ranges: _ColumnRange) -> NDArray[np.bool_]:
    """Return whether float32 would round the integers of each column, or most of its variation away."""
    large = ranges.whole & (ranges.largest > LARGEST_EXACT)
    return large | (ranges.is_far_from_zero(FAR_FROM_ZERO) & (ranges.low < ranges.high))


def count_rounded(X: Rows, offsets: Offsets, names: Sequence[str] | None, notices: dict[str, int]) -> None:
    """Count in ``notices`` the numbers that float32 rounds: large integers, and numbers nearer to 0 than to the offset.

    ``X``: rows in float64 with the offsets subtracted.
    """
    columns, values = _entries_of(X)
    large = np.abs(values) > LARGEST_EXACT
    if not large.any():
        return
    columns, values = columns[large], values[large]
    offset = np.zeros(int(columns.max()) + 1)
    in_range = offsets.columns < len(offset)
    offset[offsets.columns[in_range]] = offsets.values[in_range]
    for j in np.unique(columns).tolist():
        column_values = values[columns == j]
        name, o = names[j] if names else f"column {j}", float(offset[j])
        nearer = int(np.count_nonzero(np.abs(column_values) > 2.0 * np.abs(column_values + o))) if o != 0.0 else 0
        if nearer:
            notice = f"numbers of {name} are nearer 0 than {o:.15g}, the offset it is stored with, and lose digits"
            notices[notice] = notices.get(notice, 0) + nearer
        if lossy := int(np.count_nonzero(column_values == np.floor(column_values))):
            where = f"further than 2^24 from {o:.15g} (the offset it is stored with)" if o else "beyond 2^24"
            notice = f"whole numbers of {name} are {where} and are rounded"
            notices[notice] = notices.get(notice, 0) + lossy


def _entries_of(X: Rows) -> tuple[Array, Array]:
    """Return the column and the value of every number."""
    if isinstance(X, CSR):
        return X.indices, X.data
    columns: NDArray[np.int64] = np.broadcast_to(np.arange(X.values.shape[1]), X.values.shape)
    return columns, X.values
