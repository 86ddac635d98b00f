"""Rows cut into the chunks of a store, and the arrays of chunks into its units; the cuts depend on the rows alone, not on how they come.

A chunk is a number of rows or, of CSR rows, as many as have a number of entries. A unit is a number of items of one
array. Of dense rows each chunk is one unit of each array, and passes through without a copy. The entries of CSR rows
are cut wherever a unit is full, inside of a chunk or across several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from streamsvm.aliases import Array
from streamsvm.rows import CSR, Dense, Rows, row_count, row_slice, row_stack
from streamsvm.store.format.arrays import INDPTR, ArraySpec
from streamsvm.types import Chunk

Emit = Callable[[ArraySpec, int, Array, int], None]
"""Takes a full unit: its array and number, its values, and the items of the array up to its end without padding."""


class Chunker:
    """Collects rows into chunks of ``rows`` rows or, of CSR rows, of at most ``nonzeros`` entries.

    ``before_joining`` is called before the parts of a chunk are copied into one, so that the chunk before can be freed.
    """

    def __init__(self, rows: int, nonzeros: int | None, before_joining: Callable[[], None] | None = None) -> None:
        self.rows = rows
        self._nonzeros = nonzeros
        self._before_joining = before_joining
        self._parts: list[Chunk] = []
        self._rows_held = self._nonzeros_held = 0

    def push(self, more: Chunk) -> Iterator[Chunk]:
        """Add rows and yield the chunks they complete."""
        while row_count(more.X):
            taken = self._count_fitting(more.X)
            if taken:
                self._hold(_cut(more, 0, taken))
                more = _cut(more, taken, row_count(more.X))
            if self._rows_held == self.rows or row_count(more.X):
                yield self._join()

    def rest(self) -> Iterator[Chunk]:
        """Yield the last chunk, if any rows are left."""
        if self._rows_held:
            yield self._join()

    def _count_fitting(self, X: Rows) -> int:
        """Return how many of the rows still belong to the current chunk; a row too large for any chunk gets its own."""
        taken = min(self.rows - self._rows_held, row_count(X))
        if self._nonzeros is None or isinstance(X, Dense):
            return taken
        fits = int(np.searchsorted(X.indptr[1:], self._nonzeros - self._nonzeros_held, side="right"))
        return min(taken, max(fits, 1 if self._rows_held == 0 else 0))

    def _hold(self, part: Chunk) -> None:
        self._parts.append(part)
        self._rows_held += row_count(part.X)
        if isinstance(part.X, CSR):
            self._nonzeros_held += len(part.X.data)

    def _join(self) -> Chunk:
        parts, self._parts = self._parts, []
        self._rows_held = self._nonzeros_held = 0
        if len(parts) > 1 and self._before_joining is not None:
            self._before_joining()
        return join_chunks(parts)


def new_chunker(X: Rows, chunk_bytes: int, before_joining: Callable[[], None] | None = None) -> Chunker:
    """Return a chunker for rows like these: chunks of about ``chunk_bytes``, 4 a number of dense rows and 8 an entry of CSR rows."""
    if isinstance(X, Dense):
        return Chunker(max(1, chunk_bytes // (4 * X.values.shape[1])), None, before_joining)
    entries = max(1, chunk_bytes // 8)
    return Chunker(entries, entries, before_joining)


def join_chunks(parts: list[Chunk]) -> Chunk:
    """Return the rows of several chunks as one; of a single chunk nothing is copied."""
    if len(parts) == 1:
        return parts[0]
    weights = [part.weight for part in parts if part.weight is not None]
    codes = np.concatenate([part.codes for part in parts])
    return Chunk(row_stack([part.X for part in parts]), codes, np.concatenate(weights) if weights else None)


def _cut(chunk: Chunk, start: int, stop: int) -> Chunk:
    """Return rows [start, stop); the numbers are not copied."""
    weight = None if chunk.weight is None else chunk.weight[start:stop]
    return Chunk(row_slice(chunk.X, start, stop), chunk.codes[start:stop], weight)


class UnitCutter:
    """Cuts what chunks have of each array into units; a store, or one of its files, has one cutter for all arrays."""

    def __init__(self, specs: dict[str, ArraySpec], emit: Emit) -> None:
        self.specs, self._emit = specs, emit
        self.items = dict.fromkeys(specs, 0)
        """Items of each array so far; the last unit has the remainder by its size."""
        self._unfinished: dict[str, Array] = {}
        """By array, the memory of a unit that is filled piece by piece."""
        self._entries = 0
        if INDPTR in specs:
            self._append(specs[INDPTR], np.zeros(1, np.int64))

    def append(self, values: dict[str, Array]) -> None:
        """Add what a chunk has of each array, in the array's own type; its indptr begins at 0."""
        for name, spec in self.specs.items():
            self._append(spec, values[name][1:] + self._entries if name == INDPTR else values[name])
        if INDPTR in values:
            self._entries += int(values[INDPTR][-1])

    def finish(self) -> None:
        """Emit the units that are not full, padded with zeros."""
        for name, spec in self.specs.items():
            number, filled = divmod(self.items[name], spec.unit)
            unit = self._unfinished.pop(name, None)
            if filled and unit is not None:
                unit[filled:] = 0
                self._emit(spec, number, unit, self.items[name])

    def skip(self, rows: int) -> None:
        """Continue after rows of a dense store that were written before and fill whole units."""
        self.items = dict.fromkeys(self.specs, rows)

    def bytes_with(self, values: dict[str, Array]) -> int:
        """Return the bytes of all units, padding included, once ``values`` are added."""
        units = {name: -(-(self.items[name] + len(values[name])) // spec.unit) for name, spec in self.specs.items()}
        return sum(units[name] * spec.unit_bytes for name, spec in self.specs.items())

    def _append(self, spec: ArraySpec, values: Array) -> None:
        while len(values):
            filled = self.items[spec.name] % spec.unit
            taken = min(spec.unit - filled, len(values))
            unit = values[:taken]
            if taken < spec.unit:
                unit = self._unfinished_unit(spec)
                unit[filled : filled + taken] = values[:taken]
            self.items[spec.name] += taken
            values = values[taken:]
            if filled + taken == spec.unit:
                items = self.items[spec.name]
                self._emit(spec, items // spec.unit - 1, np.ascontiguousarray(unit), items)

    def _unfinished_unit(self, spec: ArraySpec) -> Array:
        if spec.name not in self._unfinished:
            self._unfinished[spec.name] = np.zeros(spec.shape, spec.dtype)
        return self._unfinished[spec.name]
