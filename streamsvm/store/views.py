"""Stores that are not files of ours: in memory, read into memory, some chunks or rows of another, open arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array, Handle, JsonMapping, JsonObject
from streamsvm.errors import DataError
from streamsvm.rows import CSR, Dense, Float32, Float64, Int32, Rows, copy_rows, row_count, row_where
from streamsvm.store.format.arrays import entry_of, values_of
from streamsvm.store.format.labels import TARGET, Numbers, class_counts
from streamsvm.store.format.manifest import content_digest
from streamsvm.store.format.statistics import Moments
from streamsvm.store.sources.array_rows import rows_of
from streamsvm.store.sources.offsets import cut_first_rows, find_offsets, offsets_from, sample_rows
from streamsvm.store.write.chunking import Chunker, join_chunks, new_chunker
from streamsvm.types import Chunk, Layout, Statistics, Store


class NoBuffer:
    """The buffer of a store that needs none, because it returns copies of its own arrays."""

    nbytes = 0
    """No bytes."""


@dataclass(slots=True)
class MemoryStore:
    """Chunks as arrays in memory; ``append`` and ``commit`` are like a writer's.

    What is read is a copy, because a visit may change it.
    """

    chunk_bytes: int = 4 << 20
    name: str = "memory"
    layout: Layout = field(default_factory=lambda: Layout(0, (), None, (), ()))
    """Columns, chunks and classes, once committed."""
    digest: str = ""
    """The sha256 of the content, once committed: that of the same chunks on disk."""
    facts: JsonObject = field(default_factory=dict)
    """What is recorded of where the data came from."""
    copies: bool = False
    """Whether a row of weight k counts as k rows in the statistics, too."""
    chunks: list[Chunk] = field(default_factory=list)
    _chunker: Chunker | None = None

    def append(self, X: Rows, codes: Array, weight: Float32 | None = None) -> None:
        """Add rows with class codes (n,) int32, or numbers (n,) float64, and perhaps weights (n,)."""
        if self._chunker is None:
            self._chunker = new_chunker(X, self.chunk_bytes)
        self.chunks += self._chunker.push(Chunk(X, codes, weight))

    def end_chunk(self) -> None:
        """Begin a new chunk with the next row."""
        if self._chunker is not None:
            self.chunks += self._chunker.rest()

    def commit(self, classes: tuple[str, ...], columns: int) -> MemoryStore:
        """Make the store readable and return it. Raises DataError E-EMPTY when nothing was appended."""
        if self._chunker is None:
            raise DataError("there are no rows to store", code="E-EMPTY")
        self.chunks += self._chunker.rest()
        sparse = isinstance(self.chunks[0].X, CSR)
        rows = tuple(row_count(c.X) for c in self.chunks)
        nonzeros = tuple(len(c.X.data) for c in self.chunks if isinstance(c.X, CSR)) if sparse else None
        counts = class_counts(np.concatenate([c.codes for c in self.chunks]), len(classes))
        weighted = self.chunks[0].weight is not None
        self.layout = Layout(columns, rows, nonzeros, classes, tuple(counts), weighted)
        self.digest = self._hash()
        if self.layout.numeric:
            numbers = Numbers()
            for chunk in self.chunks:
                numbers.codes(chunk.codes)
            self.facts = {TARGET: numbers.facts(), **self.facts}
        return self

    @property
    def selection(self) -> None:
        """None: all chunks, as they are."""

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows, or over their ``copies``."""
        moments = Moments()
        for chunk in self.chunks:
            moments.add(chunk.X)
        found = moments.result(self.layout.columns, not self.layout.dense)
        return self._of_copies(found) if self.copies and self.layout.weighted else found

    def _of_copies(self, found: Statistics) -> Statistics:
        """The statistics of rows that count as often as their weight says, scaled to the number of rows."""
        nowhere = np.zeros(self.layout.columns)
        parts = [(chunk.X, np.asarray(chunk.weight, np.float64)) for chunk in self.chunks]
        weight = sum(float(s.sum()) for _, s in parts)
        mean = sum((_sum_weighted(X, s, nowhere, 1) for X, s in parts), nowhere) / weight
        squares = sum((_sum_weighted(X, s, mean, 2) for X, s in parts), nowhere)
        return found._replace(mean=mean, M2=squares * (self.layout.rows / weight))

    def buffers(self) -> NoBuffer:
        """Return new memory for one chunk."""
        return NoBuffer()

    def fetch(self, chunk: int, into: NoBuffer) -> None:
        """Do nothing: the rows are in memory."""

    def check(self, chunk: int, into: NoBuffer) -> Chunk:
        """Verify what was fetched and return it as rows."""
        return _copy_chunk(self.chunks[chunk])

    def expect(self, chunk: int) -> None:
        """Do nothing: there is nothing to read."""

    def forget(self, chunk: int) -> None:
        """Do nothing: there are no pages to drop."""

    def _hash(self) -> str:
        """The digest of the same chunks on disk."""
        layout = self.layout
        kind = "dense" if layout.dense else "csr"
        entries = [entry_of(chunk, values_of(chunk)) for chunk in self.chunks]
        return content_digest(kind, layout.columns, list(layout.classes), entries)


def _sum_weighted(X: Rows, s: Float64, mean: Float64, power: int) -> Float64:
    """sum_i s_i (x_ij - mean_j)^power of every column (d,); entries that CSR rows lack are 0."""
    if isinstance(X, Dense):
        return np.asarray(s @ (X.values - mean) ** power)
    columns, each = len(mean), np.repeat(s, np.diff(X.indptr))
    there = np.bincount(X.indices, each, minlength=columns)
    stored = np.bincount(X.indices, each * (X.data - mean[X.indices]) ** power, minlength=columns)
    return stored + (s.sum() - there) * (-mean) ** power


class _InMemory:
    """A store in memory that was read from another."""

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store, self.layout = store, layout
        self.name, self.digest = store.name, store.digest

    @property
    def facts(self) -> JsonMapping:
        """What is recorded of the store that is wrapped."""
        return self._store.facts

    @property
    def selection(self) -> tuple[int, ...] | None:
        """Where the rows come from, although here they are one chunk."""
        return self._store.selection

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows."""
        return self._store.statistics()

    def buffers(self) -> Handle:
        """Return new memory for one chunk."""
        return None


class CachedChunks(_InMemory):
    """A store whose chunks stay in memory once they are read; ``prepare`` is applied once to the rows of each."""

    def __init__(self, store: Store, prepare: Callable[[Rows], Rows]) -> None:
        super().__init__(store, store.layout)
        self._prepare = prepare
        self._chunks: list[Chunk | None] = [None] * len(store.layout.chunks)
        self._spare: list[Handle] = []
        """Buffers that no thread is reading into."""

    def fetch(self, chunk: int, into: Handle) -> None:
        """Read a chunk, the first time. Threads may read different chunks at once."""
        if self._chunks[chunk] is not None:
            return
        try:
            buffers = self._spare.pop()
        except IndexError:
            buffers = self._store.buffers()
        self._store.fetch(chunk, buffers)
        self._chunks[chunk] = _copy_chunk(self._store.check(chunk, buffers), self._prepare)
        if None in self._chunks:
            self._spare.append(buffers)
        else:
            self._spare.clear()

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Return a chunk that was fetched."""
        found = self._chunks[chunk]
        assert found is not None
        return found

    def expect(self, chunk: int) -> None:
        """Hint that ``chunk`` is read next."""
        if chunk < len(self._chunks) and self._chunks[chunk] is None:
            self._store.expect(chunk)

    def forget(self, chunk: int) -> None:
        """Hint that the file of ``chunk`` is not needed soon."""
        self._store.forget(chunk)


class Resident(_InMemory):
    """A store that is read into memory as one chunk; ``prepare`` is applied once to the rows of each chunk.

    Its rows are visited in random order over all of the data, which solvers that move while they read profit from: one
    that goes through one chunk after another lets each pull w its own way - the bias above all - and needs many more
    passes than one that meets rows of all of them in turn.
    """

    def __init__(self, store: Store, prepare: Callable[[Rows], Rows]) -> None:
        nonzeros = None if store.layout.nonzeros is None else (sum(store.layout.nonzeros),)
        super().__init__(store, replace(store.layout, chunks=(store.layout.rows,), nonzeros=nonzeros))
        self._prepare = prepare
        self._kept: Chunk | None = None
        self._reading = Lock()

    def fetch(self, chunk: int, into: Handle) -> None:
        """Read all rows, the first time. Of two threads that ask at once one reads, the other waits."""
        with self._reading:
            if self._kept is None:
                self._kept = self._read_all()

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Verify what was fetched and return it as rows."""
        assert self._kept is not None
        return self._kept

    def expect(self, chunk: int) -> None:
        """Do nothing: all rows are read at once."""

    def forget(self, chunk: int) -> None:
        """Hint that ``chunk`` is not needed soon."""
        for number in range(len(self._store.layout.chunks)):
            self._store.forget(number)

    def _read_all(self) -> Chunk:
        buffers, parts = self._store.buffers(), []
        for number in range(len(self._store.layout.chunks)):
            self._store.expect(number + 1)
            self._store.fetch(number, buffers)
            parts.append(_copy_chunk(self._store.check(number, buffers), self._prepare))
        return join_chunks(parts)


def _copy_chunk(chunk: Chunk, prepare: Callable[[Rows], Rows] = lambda X: X) -> Chunk:
    """Return a copy of a chunk, its rows prepared."""
    weight = None if chunk.weight is None else chunk.weight.copy()
    return Chunk(prepare(copy_rows(chunk.X)), chunk.codes.copy(), weight)


class _SomeChunks:
    """Some chunks of a store: chunk k is chunk ``chunks[k]`` of it."""

    def __init__(self, store: Store, chunks: Sequence[int]) -> None:
        self._store, self._chunks = store, tuple(chunks)
        self.name = store.name

    @property
    def facts(self) -> JsonMapping:
        """What is recorded of the whole store."""
        return self._store.facts

    def buffers(self) -> Handle:
        """Return new memory for one chunk."""
        return self._store.buffers()

    def fetch(self, chunk: int, into: Handle) -> None:
        """Read the bytes of ``chunk`` into ``into``."""
        self._store.fetch(self._chunks[chunk], into)

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Verify what was fetched and return it as rows."""
        return self._store.check(self._chunks[chunk], into)

    def expect(self, chunk: int) -> None:
        """Hint that ``chunk`` is read next."""
        if chunk < len(self._chunks):
            self._store.expect(self._chunks[chunk])

    def forget(self, chunk: int) -> None:
        """Hint that ``chunk`` is not needed soon."""
        self._store.forget(self._chunks[chunk])


class Section(_SomeChunks):
    """Some chunks of a store as a store of their own: its chunk k is chunk ``chunks[k]`` of the other one.

    ``counts``: rows of each class in these chunks, where that matters.
    """

    def __init__(self, store: Store, chunks: Sequence[int], counts: tuple[int, ...] | None = None) -> None:
        super().__init__(store, chunks)
        self.digest = store.digest
        layout = store.layout if counts is None else replace(store.layout, counts=counts)
        nonzeros = None if layout.nonzeros is None else tuple(layout.nonzeros[c] for c in chunks)
        self.layout = replace(layout, chunks=tuple(layout.chunks[c] for c in chunks), nonzeros=nonzeros)

    @property
    def selection(self) -> tuple[int, ...]:
        """The numbers of the chunks in the store that both are named after, also of a section of a section."""
        inner = self._store.selection
        return self._chunks if inner is None else tuple(inner[chunk] for chunk in self._chunks)

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows of the whole store."""
        return self._store.statistics()


class SelectedRows(_SomeChunks):
    """The rows of a store where ``chosen`` (n,) is true, in its order; chunks without such rows are never read.

    ``codes`` (n,): the class code of every row of the store. Of a chunk that is read in part, ``layout.nonzeros``
    counts all entries: more than there are. Raises DataError E-EMPTY where nothing is chosen.
    """

    selection = None
    """None: the chunks are not as they are in the store."""

    def __init__(self, store: Store, chosen: NDArray[np.bool_], codes: Int32) -> None:
        layout = store.layout
        parts = np.split(chosen, np.cumsum(layout.chunks)[:-1])
        super().__init__(store, [k for k, part in enumerate(parts) if part.any()])
        self._parts = [parts[k] for k in self._chunks]
        if not self._chunks:
            raise DataError("no rows are chosen", code="E-EMPTY", hint="choose some")
        self.layout = replace(
            layout,
            chunks=tuple(int(part.sum()) for part in self._parts),
            nonzeros=None if layout.nonzeros is None else tuple(layout.nonzeros[k] for k in self._chunks),
            counts=tuple(class_counts(codes[chosen], len(layout.classes))),
        )
        self.digest = hashlib.sha256(store.digest.encode() + np.packbits(chosen).tobytes()).hexdigest()

    def statistics(self) -> Statistics:
        """Return the column statistics over the chosen rows, which are read for it. Raises DataError, StorageError."""
        moments, buffers = Moments(), self.buffers()
        for chunk in range(len(self._chunks)):
            self.fetch(chunk, buffers)
            moments.add(self.check(chunk, buffers).X)
        return moments.result(self.layout.columns, not self.layout.dense)

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Verify what was fetched and return the chosen rows of it, copied where they are not all."""
        found, chosen = self._store.check(self._chunks[chunk], into), self._parts[chunk]
        if chosen.all():
            return found
        weight = None if found.weight is None else found.weight[chosen]
        return Chunk(row_where(found.X, chosen), found.codes[chosen], weight)


CHUNK_BYTES = 4 << 20
"""The size of a slice."""


class SlicedStore:
    """Rows ``X[start:stop]`` with their class codes (n,): of a memory map, of h5py or Zarr, of scipy.sparse.

    Nothing is copied but the slice that is looked at. Columns that float32 cannot hold are less an offset, as an ingest
    has them. Raises DataError.
    """

    name = "X"
    """What messages call it."""
    selection = None
    """None: all chunks, as they are."""

    def __init__(self, X: Any, codes: Int32, classes: tuple[str, ...]) -> None:
        self._X, self._codes, self._digest = X, codes, ""
        rows, columns = (int(size) for size in X.shape)
        first = rows_of(X[: max(1, min(rows, sample_rows(columns)))], self.name)
        width = -(-2 * len(first.data) // len(first.indptr)) if isinstance(first, CSR) else columns
        head = X[: sample_rows(columns, sparse=isinstance(first, CSR))]
        offsets = find_offsets(lambda exact: cut_first_rows(rows_of(head, self.name, exact=exact)))
        self.facts: JsonObject = {} if offsets is None else {"encoding": {"offsets": offsets.to_json()}}
        self._offsets = offsets_from(self.facts.get("encoding"))
        step = max(1, CHUNK_BYTES // (4 * max(1, width)))
        self._starts = list(range(0, rows, step))
        sizes = tuple(min(step, rows - start) for start in self._starts)
        nonzeros = tuple(self._entries(k, sizes) for k in range(len(sizes))) if isinstance(first, CSR) else None
        counts = np.bincount(codes, minlength=len(classes))
        self.layout = Layout(columns, sizes, nonzeros, classes, tuple(counts.tolist()))

    @property
    def digest(self) -> str:
        """The sha256 of all numbers and codes, found by reading them once."""
        if not self._digest:
            found = hashlib.sha256(np.ascontiguousarray(self._codes).tobytes())
            for chunk in range(len(self._starts)):
                for array in _arrays(self._rows(chunk)):
                    found.update(np.ascontiguousarray(array).tobytes())
            self._digest = found.hexdigest()
        return self._digest

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows."""
        moments = Moments()
        for chunk in range(len(self._starts)):
            moments.add(self._rows(chunk))
        return moments.result(self.layout.columns, not self.layout.dense)

    def buffers(self) -> NoBuffer:
        """Return new memory for one chunk."""
        return NoBuffer()

    def fetch(self, chunk: int, into: NoBuffer) -> None:
        """Do nothing: slices are taken when they are looked at."""

    def check(self, chunk: int, into: NoBuffer) -> Chunk:
        """Return a slice as rows, copied. Raises DataError for what float32 cannot hold."""
        start = self._starts[chunk]
        return Chunk(self._rows(chunk), self._codes[start : start + self.layout.chunks[chunk]].copy(), None)

    def expect(self, chunk: int) -> None:
        """Do nothing: the array does its own reading."""

    def forget(self, chunk: int) -> None:
        """Do nothing: its pages are not ours."""

    def _entries(self, chunk: int, sizes: tuple[int, ...]) -> int:
        """The stored entries of a slice of sparse rows."""
        start = self._starts[chunk]
        return int(self._X[start : start + sizes[chunk]].nnz) + len(self._offsets.columns) * sizes[chunk]

    def _rows(self, chunk: int) -> Rows:
        """A copy of a slice, because a visit may change it."""
        start, count = self._starts[chunk], self.layout.chunks[chunk]
        part = self._X[start : start + count]
        if len(self._offsets.columns):
            return self._offsets.apply(rows_of(part, self.name, start, exact=True))
        X = rows_of(part, self.name, start)
        if isinstance(X, CSR):
            return CSR(X.data.copy(), X.indices.copy(), X.indptr.copy())
        return X._replace(values=np.array(X.values, np.float32))


def _arrays(X: Rows) -> tuple[Array, ...]:
    """The arrays of rows."""
    return (X.data, X.indices, X.indptr) if isinstance(X, CSR) else (X.values,)
