"""A source some columns of which are stored less an offset, as they are seen from another zero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array, JsonObject
from streamsvm.errors import StreamSVMError
from streamsvm.rows import CSR, Dense, Float64, Rows, row_count, row_slice
from streamsvm.store.sources.centering.needed import EXACT, offsets_needed, rows_to_see
from streamsvm.store.sources.centering.offsets import Offsets, offsets_from, rounded
from streamsvm.store.sources.source import Source
from streamsvm.store.sources.source_options import SourceOptions
from streamsvm.types import Batch


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
