"""What is taken from the numbers of some columns, which are stored as x - o: recorded beside the store and its models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array, JsonMapping, JsonObject
from streamsvm.errors import StreamSVMError
from streamsvm.rows import CSR, Dense, Float64, Int64, Rows, row_count, row_slice, with_entries
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.source import Source
from streamsvm.types import Batch


class Offsets(NamedTuple):
    """What is taken from the numbers of some columns before they are rounded to float32."""

    columns: Int64
    """The numbers of the columns, ascending, (k,)."""
    values: Float64
    """What is taken from each, (k,)."""

    def to_json(self) -> list[tuple[int, float]]:
        """Return pairs (column, offset) as plain JSON."""
        return [(int(j), float(o)) for j, o in zip(self.columns, self.values, strict=True)]

    def less(self, other: Offsets) -> Offsets:
        """Return what is to be taken from rows stored at the offsets ``other`` to have them at these."""
        columns = np.union1d(self.columns, other.columns).astype(np.int64)
        changes = self.at(columns) - other.at(columns)
        return Offsets(columns[changes != 0.0], changes[changes != 0.0])

    def at(self, columns: Int64) -> Float64:
        """Return the offset of each of some columns (ascending), among which all of these are."""
        found = np.zeros(len(columns))
        found[np.searchsorted(columns, self.columns)] = self.values
        return found

    def taken_from(self, X: Rows) -> Rows:
        """Return rows float64, each column less its offset; CSR rows get an entry in each of these columns."""
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

    def applied(self, X: Rows) -> Rows:
        """Return the rows at these offsets as float32; the same rows where there are none."""
        return rounded(self.taken_from(X)) if len(self.columns) else X


def offsets_from(encoding: JsonMapping | None) -> Offsets:
    """Return the offsets that were recorded with how files were read; none for what was recorded before there were any."""
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
    """What people call a column: by its name, else by its number."""
    return f"'{names[column]}'" if names else f"column {column}"


def rounded(X: Rows) -> Rows:
    """Return rows in float32."""
    if isinstance(X, Dense):
        return X._replace(values=np.ascontiguousarray(X.values, np.float32))
    return X._replace(data=X.data.astype(np.float32))


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


class Centered:
    """A source some columns of which are stored less an offset; see ``Source``."""

    exact = False

    def __init__(self, source: Source, offsets: Offsets) -> None:
        source.exact = True
        self.source, self.offsets = source, offsets
        self.sparse, self.notices, self.sources = source.sparse, source.notices, source.sources
        self.columns, self.names = source.columns, source.names
        self.proposals, self.id_column = source.proposals, source.id_column

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; see ``Source.batches``."""
        for batch in self.source.batches():
            exact = self.offsets.taken_from(batch.X)
            self._note(_entries_of(exact))
            yield batch._replace(X=rounded(exact))
        self.columns = self.source.columns

    def encoding(self) -> JsonObject:
        """Return what other files must be read by to give the same columns, as plain JSON; see ``Source.encoding``."""
        known = self.source.encoding()
        return known | {"offsets": self.offsets.to_json()} if len(self.offsets.columns) else known

    def _note(self, entries: tuple[Array, Array]) -> None:
        """Count what float32 loses of numbers less their offset: whole ones above 2^24, and those that lie nearer 0."""
        columns, values = entries
        large = np.abs(values) > EXACT
        if not large.any():
            return
        columns, values = columns[large], values[large]
        offset = np.zeros(int(columns.max()) + 1)
        known = self.offsets.columns < len(offset)
        offset[self.offsets.columns[known]] = self.offsets.values[known]
        for j in np.unique(columns).tolist():
            mine = values[columns == j]
            name, o = self.names[j] if self.names else f"column {j}", float(offset[j])
            nearer = o != 0.0 and int(np.count_nonzero(np.abs(mine) > 2.0 * np.abs(mine + o)))
            self._count(
                f"numbers of {name} are nearer 0 than {o:.15g}, less which it is stored, and lose digits", nearer
            )
            lossy = int(np.count_nonzero(mine == np.floor(mine)))
            where = f"further than 2^24 from {o:.15g}, less which it is stored," if o else "beyond 2^24"
            self._count(f"whole numbers of {name} are {where} and are rounded", lossy)

    def _count(self, what: str, count: int) -> None:
        if count:
            self.notices[what] = self.notices.get(what, 0) + count


def centered(source: Source, options: SourceOptions) -> Source:
    """Return the source with columns that float32 cannot hold less an offset, as recorded or else as its first rows ask
    for, and with what float32 loses of later rows counted.
    """
    if options.encoding is None and options.offsets is None:
        zero_is_met = options.missing in ("zero", "indicator")
        needed = offsets_needed(lambda exact: _first(source, exact=exact), zero_is_met=zero_is_met)
        return source if needed is None else Centered(source, needed)
    stated = {"offsets": options.offsets} if options.encoding is None else options.encoding
    offsets = offsets_from(stated)
    return Centered(source, offsets) if len(offsets.columns) else source


def at_same_offsets(first: Source, other: Source) -> Source:
    """Return the source ``other``, which reads the same rows, centered as ``first`` is."""
    return Centered(other, first.offsets) if isinstance(first, Centered) else other


def zeros_of(source: Source, columns: int) -> Float64:
    """Return what 0 is stored as in each column (columns,)."""
    return -source.offsets.at(np.arange(columns)) if isinstance(source, Centered) else np.zeros(columns)


def _first(source: Source, *, exact: bool) -> Rows | None:
    """The first rows of a source, which is as if nothing had been read of it; None where it cannot be read."""
    noted, source.exact = dict(source.notices), exact
    try:
        batch = next(source.batches(), None)
    except StreamSVMError:  # it is raised again when the source is read
        batch = None
    source.exact = False
    source.sources.clear()
    source.notices.clear()
    source.notices.update(noted)
    return None if batch is None else deciding_rows(batch.X)


def deciding_rows(X: Rows) -> Rows | None:
    """Return those of the first rows of a source by which offsets are decided; None where there are none."""
    rows = row_count(X)
    if not rows:
        return None
    width = X.values.shape[1] if isinstance(X, Dense) else -(-len(X.data) // rows)
    return row_slice(X, 0, min(rows, rows_to_see(width)))


def _entries_of(X: Rows) -> tuple[Array, Array]:
    """The column and the value of every number."""
    if isinstance(X, CSR):
        return X.indices, X.data
    columns: NDArray[np.int64] = np.broadcast_to(np.arange(X.values.shape[1]), X.values.shape)
    return columns, X.values
