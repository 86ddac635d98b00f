"""Columns that are stored less an offset, because float32 cannot hold them where they lie.

A number x is kept to about |x| 2^-24. Of a column whose mean is more than FAR_FROM_ZERO standard deviations from 0
fewer than ten bits of the variation are left, and whole numbers above 2^24 become even ones. Stored as x - o, taken in
float64 with o in their center, such columns are as good as any. The first rows decide (``collect_first_rows``), so that
rows can be written as they are read; what later rows lose nevertheless is counted. The offsets are recorded in the store
and in its models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array, JsonMapping
from streamsvm.errors import StreamSVMError
from streamsvm.rows import CSR, Dense, Float64, Int64, Rows, row_count, row_slice, row_stack, with_entries


class Offsets(NamedTuple):
    """What is subtracted from some columns before they are rounded to float32."""

    columns: Int64
    """The numbers of the columns, ascending, (k,)."""
    values: Float64
    """What is subtracted from each, (k,)."""

    def to_json(self) -> list[tuple[int, float]]:
        """Return pairs (column, offset) as plain JSON."""
        return [(int(j), float(o)) for j, o in zip(self.columns, self.values, strict=True)]

    def difference_from(self, other: Offsets) -> Offsets:
        """Return what to subtract from rows stored at the offsets ``other`` to have them at these."""
        columns = np.union1d(self.columns, other.columns).astype(np.int64)
        changes = self.at(columns) - other.at(columns)
        return Offsets(columns[changes != 0.0], changes[changes != 0.0])

    def at(self, columns: Int64) -> Float64:
        """Return the offset of each of some columns (ascending), which include all of these."""
        found = np.zeros(len(columns))
        found[np.searchsorted(columns, self.columns)] = self.values
        return found

    def subtract_from(self, X: Rows) -> Rows:
        """Return rows in float64, each column less its offset; CSR rows get an entry in each of these columns."""
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
        """Return the rows less these offsets as float32; the same rows where there are no offsets."""
        return round_rows(self.subtract_from(X)) if len(self.columns) else X


def offsets_from(encoding: JsonMapping | None) -> Offsets:
    """Return the offsets in a recorded encoding; none where it has none."""
    recorded = (encoding or {}).get("offsets") or ()
    columns, values = [int(j) for j, _ in recorded], [float(o) for _, o in recorded]
    return Offsets(np.array(columns, np.int64), np.array(values, np.float64))


def offsets_of_store(facts: JsonMapping) -> Offsets:
    """Return the offsets of the columns of a store with these facts.

    The columns of an embedding are kernel features, which have none: the offsets in its encoding are those of the rows
    that it was made from.
    """
    return offsets_from(None if facts.get("map") is not None else facts.get("encoding"))


def name_of(names: Sequence[str] | None, column: int) -> str:
    """Return what messages call a column: its name, or else its number."""
    return f"'{names[column]}'" if names else f"column {column}"


def list_first(shown: Sequence[str], most: int) -> str:
    """Return the first of some texts, and how many more there are."""
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


def round_rows(X: Rows) -> Rows:
    """Return rows in float32."""
    if isinstance(X, Dense):
        return X._replace(values=np.ascontiguousarray(X.values, np.float32))
    return X._replace(data=X.data.astype(np.float32))


FAR_FROM_ZERO = 1e4
"""Standard deviations between a column's mean and 0 beyond which float32 keeps too little of its variation."""

LARGEST_EXACT = 2.0**24
"""float32 holds every whole number up to this one."""

LARGEST_MOVED = 1e30
"""Columns with larger numbers get no offset: a difference might overflow float32."""

SAMPLE_ROWS, SAMPLE_NUMBERS = 5000, 1 << 18
"""The most rows that decide, and the most numbers in them."""


def find_offsets(first: Callable[[bool], Rows | None], *, missing_is_zero: bool = False) -> Offsets | None:
    """Return the offsets that the first rows need: of no column where digits are lost and no offset helps, None where
    float32 loses nothing.

    ``first`` reads these rows in float32, or in float64 where its argument is true, which is asked only where float32
    may have lost something. ``missing_is_zero``: a missing value becomes 0.
    """
    for exact in (False, True):
        X = first(exact)
        if X is None:
            return None
        columns, values = _full_columns(X)
        seen = _column_ranges(np.nan_to_num(values, nan=0.0) if missing_is_zero else values)
        loses = _loses(seen) if exact else _may_lose(seen)
        if not loses.any():
            return None
    helped = np.flatnonzero(loses & (seen.nearest >= seen.high - seen.low) & (seen.largest < LARGEST_MOVED))
    return Offsets(columns[helped], seen.center[helped])


def sample_rows(columns: int, *, sparse: bool = False) -> int:
    """Return how many rows of so many columns suffice to decide."""
    return SAMPLE_ROWS if sparse else min(SAMPLE_ROWS, max(2, SAMPLE_NUMBERS // max(1, columns)))


def collect_first_rows(batches: Iterable[Rows]) -> Rows | None:
    """Return the first rows, which decide the offsets: the same ones however rows are cut into batches. None without rows.

    An error while reading ends the sample; it is raised again when the rows are read to be stored.
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
    """Return those of the first rows that decide: at most SAMPLE_ROWS, with at most SAMPLE_NUMBERS numbers, but two or more."""
    if isinstance(X, Dense):
        most = sample_rows(X.values.shape[1])
    else:
        most = max(2, int(np.searchsorted(X.indptr, SAMPLE_NUMBERS, side="right")) - 1)
    return row_slice(X, 0, min(row_count(X), SAMPLE_ROWS, most))


def _full_columns(X: Rows) -> tuple[Int64, Float64]:
    """The columns that every row has an entry in, and their values (n, k) in float64."""
    if isinstance(X, Dense):
        return np.arange(X.values.shape[1]), X.values.astype(np.float64)
    columns = np.flatnonzero(np.bincount(X.indices) == row_count(X))
    entries = X.data[np.isin(X.indices, columns)]
    return columns, entries.astype(np.float64).reshape(row_count(X), len(columns))


class _ColumnRange(NamedTuple):
    """The range of some rows in each of k columns; missing values do not count."""

    low: Float64
    high: Float64
    center: Float64
    """The mean; a whole number where all numbers are whole, which float64 subtracts without rounding."""
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
        return np.abs(self.center) > deviations * self.deviation


def _column_ranges(values: Float64) -> _ColumnRange:
    with np.errstate(over="ignore", invalid="ignore"):
        absent = np.isnan(values)
        count = np.maximum(len(values) - absent.sum(axis=0), 1)
        mean = np.nansum(values, axis=0) / count
        deviation = np.sqrt(np.nansum(np.square(values - mean), axis=0) / count)
        whole = (absent | (values == np.floor(values))).all(axis=0)
        low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    return _ColumnRange(low, high, np.where(whole, np.round(mean), mean), deviation, whole)


def _may_lose(seen: _ColumnRange) -> NDArray[np.bool_]:
    """Whether columns, seen in float32, are far from 0 or can have whole numbers that were rounded."""
    large = seen.whole & (seen.largest >= LARGEST_EXACT)
    return large | ((seen.nearest > 1.0) & seen.further_than(0.1 * FAR_FROM_ZERO))


def _loses(seen: _ColumnRange) -> NDArray[np.bool_]:
    """Whether float32 loses the variation of columns, or whole numbers."""
    return (seen.whole & (seen.largest > LARGEST_EXACT)) | (seen.further_than(FAR_FROM_ZERO) & (seen.low < seen.high))


def count_rounded(X: Rows, offsets: Offsets, names: Sequence[str] | None, notices: dict[str, int]) -> None:
    """Count in ``notices`` the numbers of rows in float64, less their offset, that float32 rounds: large whole ones, and
    those that are nearer to 0 than to the offset.
    """
    columns, values = _entries_of(X)
    large = np.abs(values) > LARGEST_EXACT
    if not large.any():
        return
    columns, values = columns[large], values[large]
    offset = np.zeros(int(columns.max()) + 1)
    known = offsets.columns < len(offset)
    offset[offsets.columns[known]] = offsets.values[known]
    for j in np.unique(columns).tolist():
        mine = values[columns == j]
        name, o = names[j] if names else f"column {j}", float(offset[j])
        nearer = int(np.count_nonzero(np.abs(mine) > 2.0 * np.abs(mine + o))) if o != 0.0 else 0
        if nearer:
            what = f"numbers of {name} are nearer 0 than {o:.15g}, the offset it is stored with, and lose digits"
            notices[what] = notices.get(what, 0) + nearer
        if lossy := int(np.count_nonzero(mine == np.floor(mine))):
            where = f"further than 2^24 from {o:.15g} (the offset it is stored with)" if o else "beyond 2^24"
            what = f"whole numbers of {name} are {where} and are rounded"
            notices[what] = notices.get(what, 0) + lossy


def _entries_of(X: Rows) -> tuple[Array, Array]:
    """The column and the value of every number."""
    if isinstance(X, CSR):
        return X.indices, X.data
    columns: NDArray[np.int64] = np.broadcast_to(np.arange(X.values.shape[1]), X.values.shape)
    return columns, X.values
