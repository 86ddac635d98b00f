"""Cut rows into the chunks of a store, and the arrays of the chunks into its units.

The cuts depend on the rows alone, not on the batches in which they arrive. A chunk of dense rows has a fixed number of
rows; a chunk of CSR rows has as many rows as fit a fixed number of entries. A unit has a fixed number of items of one
array. In a dense store each chunk is one unit of each array, and is not copied. The arrays of CSR rows are cut wherever
a unit is full: a unit may end inside a chunk or span several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from streamsvm.rows import CSR, Dense, Rows, row_count, row_slice, row_stack
from streamsvm.store.format.arrays import INDPTR, ArraySpec
from streamsvm.type_aliases import Array
from streamsvm.types import Chunk

Emit = Callable[[ArraySpec, int, Array, int], None]
"""Writes a full unit, given its array, its number, its values, and the number of items of the array up to the end of
the unit, without padding.
"""


class Chunker:
    """Collects rows into chunks of ``rows`` rows; chunks of CSR rows have at most ``nonzeros`` entries, too.

    ``before_joining`` is called before the parts of a chunk are copied into one, so that the previous chunk can be
    freed.
    """

    def __init__(self, rows: int, nonzeros: int | None, before_joining: Callable[[], None] | None = None) -> None:
        self.rows = rows
        self._nonzeros = nonzeros
        self._before_joining = before_joining
        self._parts: list[Chunk] = []
        self._pending_rows = self._pending_nonzeros = 0

    def push(self, more: Chunk) -> Iterator[Chunk]:
        """Add rows and yield the chunks they complete."""
        while row_count(more.X):
            count = self._count_fitting(more.X)
            if count:
                self._add_part(_cut(more, 0, count))
                more = _cut(more, count, row_count(more.X))
            if self._pending_rows == self.rows or row_count(more.X):
                yield self._join()

    def rest(self) -> Iterator[Chunk]:
        """Yield the last chunk, if any rows are left."""
        if self._pending_rows:
            yield self._join()

    def _count_fitting(self, X: Rows) -> int:
        """Return the number of rows that fit into the current chunk; a row with too many entries gets its own chunk."""
        by_rows = min(self.rows - self._pending_rows, row_count(X))
        if self._nonzeros is None or isinstance(X, Dense):
            return by_rows
        by_entries = int(np.searchsorted(X.indptr[1:], self._nonzeros - self._pending_nonzeros, side="right"))
        return min(by_rows, max(by_entries, 1 if self._pending_rows == 0 else 0))

    def _add_part(self, part: Chunk) -> None:
        self._parts.append(part)
        self._pending_rows += row_count(part.X)
        if isinstance(part.X, CSR):
            self._pending_nonzeros += len(part.X.data)

    def _join(self) -> Chunk:
        parts, self._parts = self._parts, []
        self._pending_rows = self._pending_nonzeros = 0
        if len(parts) > 1 and self._before_joining is not None:
            self._before_joining()
        return join_chunks(parts)


def new_chunker(X: Rows, chunk_bytes: int, before_joining: Callable[[], None] | None = None) -> Chunker:
    """Return a chunker for rows like ``X``: chunks of about ``chunk_bytes``, at 4 bytes per number of dense rows and 8
    bytes per entry of CSR rows.
    """
    if isinstance(X, Dense):
        return Chunker(max(1, chunk_bytes // (4 * X.values.shape[1])), None, before_joining)
    entries = max(1, chunk_bytes // 8)
    return Chunker(entries, entries, before_joining)


def join_chunks(parts: list[Chunk]) -> Chunk:
    """Return the rows of several chunks as one; a single chunk is returned without a copy."""
    if len(parts) == 1:
        return parts[0]
    weights = [part.weight for part in parts if part.weight is not None]
    codes = np.concatenate([part.codes for part in parts])
    return Chunk(row_stack([part.X for part in parts]), codes, np.concatenate(weights) if weights else None)


def _cut(chunk: Chunk, start: int, stop: int) -> Chunk:
    """Return rows [start, stop) as a view."""
    weight = None if chunk.weight is None else chunk.weight[start:stop]
    return Chunk(row_slice(chunk.X, start, stop), chunk.codes[start:stop], weight)


class UnitCutter:
    """Cuts the arrays of chunks into units; one cutter cuts all arrays of a Zarr store, or of a part file of HDF5."""

    def __init__(self, specs: dict[str, ArraySpec], emit: Emit) -> None:
        self.specs, self._emit = specs, emit
        self.items = dict.fromkeys(specs, 0)
        """Items of each array so far; the unfinished unit holds ``items % unit`` of them."""
        self._unfinished: dict[str, Array] = {}
        """The memory of the unfinished unit, by array."""
        self._entries = 0
        """CSR entries so far, the offset of the indptr of the next chunk."""

    def append(self, values: dict[str, Array]) -> None:
        """Add the arrays of a chunk, of the types of ``specs``; its indptr begins at 0."""
        for name, spec in self.specs.items():
            rest = values[name]
            if name == INDPTR:  # the indptr of the store has one leading 0; those of later chunks are dropped
                rest = rest[min(self.items[name], 1) :] + self._entries
            while len(rest):
                filled = self.items[name] % spec.unit
                count = min(spec.unit - filled, len(rest))
                unit = rest[:count]
                if count < spec.unit:
                    if name not in self._unfinished:
                        self._unfinished[name] = np.zeros(spec.shape, spec.dtype)
                    unit = self._unfinished[name]
                    unit[filled : filled + count] = rest[:count]
                self.items[name] += count
                rest = rest[count:]
                if filled + count == spec.unit:
                    number = self.items[name] // spec.unit - 1
                    self._emit(spec, number, np.ascontiguousarray(unit), self.items[name])
        if INDPTR in values:
            self._entries += int(values[INDPTR][-1])

    def finish(self) -> None:
        """Emit the unfinished units, padded with zeros."""
        for name, spec in self.specs.items():
            number, filled = divmod(self.items[name], spec.unit)
            unit = self._unfinished.pop(name, None)
            if filled and unit is not None:
                unit[filled:] = 0
                self._emit(spec, number, unit, self.items[name])

    def skip(self, rows: int) -> None:
        """Continue after ``rows`` rows of a dense store that an earlier run has written in whole units."""
        self.items = dict.fromkeys(self.specs, rows)

    def bytes_after_adding(self, values: dict[str, Array]) -> int:
        """Return the bytes of all units, padding included, after ``values`` would be added."""
        units = {name: -(-(self.items[name] + len(values[name])) // spec.unit) for name, spec in self.specs.items()}
        return sum(units[name] * spec.unit_bytes for name, spec in self.specs.items())
