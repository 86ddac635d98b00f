"""Stores without files of their own: rows in memory, stores cached in memory, selections of another store's chunks or
rows, and array objects that are read slice by slice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.errors import DataError
from streamsvm.rows import CSR, Dense, Float32, Float64, Int32, Rows, copy_rows, row_count, row_where
from streamsvm.store.format.arrays import manifest_entry, split_chunk
from streamsvm.store.format.labels import TARGET, NumberCoder, class_counts
from streamsvm.store.format.manifest import content_digest
from streamsvm.store.format.statistics import Moments
from streamsvm.store.sources.array_rows import rows_of
from streamsvm.store.sources.offsets import cut_first_rows, find_offsets, offsets_from, sample_rows
from streamsvm.store.write.chunking import Chunker, join_chunks, new_chunker
from streamsvm.type_aliases import Array, Handle, JsonMapping, JsonObject
from streamsvm.types import Chunk, Layout, Statistics, Store

REMOTE_READERS = 3
"""Threads that read a store in an object store into memory."""


class NoBuffer:
    """The buffer of a store that needs none, because it returns copies of arrays."""

    nbytes = 0


@dataclass(slots=True)
class MemoryStore:
    """Chunks as arrays in memory; ``append`` and ``commit`` are those of a writer.

    ``check`` returns copies, because solvers may change the rows they visit.
    """

    chunk_bytes: int = 4 << 20
    name: str = "memory"
    layout: Layout = field(default_factory=lambda: Layout(0, (), None, (), ()))
    """Columns, chunks and classes; set by ``commit``."""
    digest: str = ""
    """The sha256 of the content, equal to that of the same chunks on disk; set by ``commit``."""
    facts: JsonObject = field(default_factory=dict)
    """The recorded facts about the sources of the data."""
    copies: bool = False
    """Whether a row of weight k counts as k rows in the statistics."""
    chunks: list[Chunk] = field(default_factory=list)
    _chunker: Chunker | None = None
    _statistics: Statistics | None = None

    def append(self, X: Rows, codes: Array, weight: Float32 | None = None) -> None:
        """Add rows with class codes (n,) int32, or targets (n,) float64, and optional weights (n,)."""
        if self._chunker is None:
            self._chunker = new_chunker(X, self.chunk_bytes)
        self.chunks += self._chunker.push(Chunk(X, codes, weight))
        self._statistics = None

    def end_chunk(self) -> None:
        """End the current chunk; the next row begins a new one."""
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
            numbers = NumberCoder()
            for chunk in self.chunks:
                numbers.codes(chunk.codes)
            self.facts = {TARGET: numbers.facts(), **self.facts}
        return self

    @property
    def selection(self) -> None:
        """None: the store is not a selection of another store's chunks."""

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows, each counted as often as its weight says if ``copies`` is set."""
        if self._statistics is None:  # a plan asks several times
            moments = Moments()
            for chunk in self.chunks:
                moments.add(chunk.X)
            statistics = moments.result(self.layout.columns, not self.layout.dense)
            self._statistics = self._weigh(statistics) if self.copies and self.layout.weighted else statistics
        return self._statistics

    def _weigh(self, statistics: Statistics) -> Statistics:
        """Return the statistics with weighted mean and M2, scaled from the sum of weights to the number of rows."""
        zeros = np.zeros(self.layout.columns)
        parts = [(chunk.X, np.asarray(chunk.weight, np.float64)) for chunk in self.chunks]
        weight = sum(float(s.sum()) for _, s in parts)
        mean = sum((_sum_weighted(X, s, zeros, 1) for X, s in parts), zeros) / weight
        squares = sum((_sum_weighted(X, s, mean, 2) for X, s in parts), zeros)
        return statistics._replace(mean=mean, M2=squares * (self.layout.rows / weight))

    def all_rows(self) -> Chunk:
        """Return all rows as one chunk, which is not a copy if there is only one."""
        return self.chunks[0] if len(self.chunks) == 1 else join_chunks(self.chunks)

    def buffers(self) -> NoBuffer:
        """Return new memory for one chunk."""
        return NoBuffer()

    def fetch(self, chunk: int, into: NoBuffer) -> None:
        """Do nothing: the rows are in memory."""

    def check(self, chunk: int, into: NoBuffer) -> Chunk:
        """Return a copy of the chunk."""
        return _copy_chunk(self.chunks[chunk])

    def expect(self, chunk: int) -> None:
        """Do nothing: there is nothing to read."""

    def forget(self, chunk: int) -> None:
        """Do nothing: there are no pages to drop."""

    def _hash(self) -> str:
        """Return the digest that the same chunks have on disk."""
        layout = self.layout
        kind = "dense" if layout.dense else "csr"
        entries = [manifest_entry(chunk, split_chunk(chunk)) for chunk in self.chunks]
        return content_digest(kind, layout.columns, list(layout.classes), entries)


def _sum_weighted(X: Rows, s: Float64, mean: Float64, power: int) -> Float64:
    """Return sum_i s_i (x_ij - mean_j)^power for every column j (d,); s_i are weights, absent CSR entries are 0."""
    if isinstance(X, Dense):
        return np.asarray(s @ (X.values - mean) ** power)
    columns, entry_weights = len(mean), np.repeat(s, np.diff(X.indptr))
    stored_weight = np.bincount(X.indices, entry_weights, minlength=columns)
    stored = np.bincount(X.indices, entry_weights * (X.data - mean[X.indices]) ** power, minlength=columns)
    return stored + (s.sum() - stored_weight) * (-mean) ** power


class _CachedStore:
    """Base class of stores that keep the rows of another store in memory."""

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store, self.layout = store, layout
        self.name, self.digest = store.name, store.digest

    @property
    def facts(self) -> JsonMapping:
        """The recorded facts about the sources of the other store."""
        return self._store.facts

    @property
    def selection(self) -> tuple[int, ...] | None:
        """The selection of the other store; it names the rows, even if they are one chunk here."""
        return self._store.selection

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows."""
        return self._store.statistics()

    def buffers(self) -> Handle:
        """Return new memory for one chunk."""
        return None


class CachedChunks(_CachedStore):
    """A store whose chunks stay in memory once they are read; ``prepare`` is applied once to the rows of each chunk."""

    def __init__(self, store: Store, prepare: Callable[[Rows], Rows]) -> None:
        super().__init__(store, store.layout)
        self._prepare = prepare
        self._chunks: list[Chunk | None] = [None] * len(store.layout.chunks)
        self._spare: list[Handle] = []
        """Buffers that no thread uses."""

    def fetch(self, chunk: int, into: Handle) -> None:
        """Read a chunk unless it is in memory. Threads may read different chunks at once."""
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
        """Return a chunk that was fetched; it is not copied."""
        cached = self._chunks[chunk]
        assert cached is not None
        return cached

    def expect(self, chunk: int) -> None:
        """Hint that ``chunk`` is read next."""
        if chunk < len(self._chunks) and self._chunks[chunk] is None:
            self._store.expect(chunk)

    def forget(self, chunk: int) -> None:
        """Hint that the file of ``chunk`` is not needed soon."""
        self._store.forget(chunk)


class Resident(_CachedStore):
    """A store that is read into memory as one chunk; ``prepare`` is applied once to the rows of each chunk.

    Its rows are visited in an order that is random over all of the data. Online solvers, which update w row by row,
    profit from it: if they visit chunk after chunk, each chunk pulls w, and above all the bias, toward its own optimum,
    and they need many more passes.
    """

    def __init__(self, store: Store, prepare: Callable[[Rows], Rows]) -> None:
        nonzeros = None if store.layout.nonzeros is None else (sum(store.layout.nonzeros),)
        super().__init__(store, replace(store.layout, chunks=(store.layout.rows,), nonzeros=nonzeros))
        self._prepare = prepare
        self._rows: Chunk | None = None
        self._lock = Lock()

    def fetch(self, chunk: int, into: Handle) -> None:
        """Read all rows unless they are in memory. If two threads call it at once, one reads and the other waits."""
        with self._lock:
            if self._rows is None:
                self._rows = self._read_all()

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Return all rows; they are not copied."""
        assert self._rows is not None
        return self._rows

    def expect(self, chunk: int) -> None:
        """Do nothing: all rows are read at once."""

    def forget(self, chunk: int) -> None:
        """Hint that the files of the other store are not needed soon."""
        for number in range(len(self._store.layout.chunks)):
            self._store.forget(number)

    def _read_all(self) -> Chunk:
        if self._store.layout.remote:
            return self._read_all_at_once()
        buffers, parts = self._store.buffers(), []
        for number in range(len(self._store.layout.chunks)):
            self._store.expect(number + 1)
            self._store.fetch(number, buffers)
            parts.append(_copy_chunk(self._store.check(number, buffers), self._prepare))
        return join_chunks(parts)

    def _read_all_at_once(self) -> Chunk:
        """Read with several threads, in whose blocks the plan counts those that are read ahead."""
        unused = [self._store.buffers() for _ in range(REMOTE_READERS)]

        def read(number: int) -> Chunk:
            buffers = unused.pop()
            try:
                self._store.fetch(number, buffers)
                return _copy_chunk(self._store.check(number, buffers), self._prepare)
            finally:
                unused.append(buffers)

        with ThreadPoolExecutor(REMOTE_READERS, "streamsvm-reader") as threads:
            return join_chunks(list(threads.map(read, range(len(self._store.layout.chunks)))))


def _copy_chunk(chunk: Chunk, prepare: Callable[[Rows], Rows] = lambda X: X) -> Chunk:
    """Return a copy of a chunk, with ``prepare`` applied to its rows."""
    weight = None if chunk.weight is None else chunk.weight.copy()
    return Chunk(prepare(copy_rows(chunk.X)), chunk.codes.copy(), weight)


class _ChunkSelection:
    """Base class of selections of chunks: chunk k is chunk ``chunks[k]`` of the other store."""

    def __init__(self, store: Store, chunks: Sequence[int]) -> None:
        self._store, self._chunks = store, tuple(chunks)
        self.name = store.name

    @property
    def facts(self) -> JsonMapping:
        """The recorded facts about the sources of the whole store."""
        return self._store.facts

    def buffers(self) -> Handle:
        """Return new memory for one chunk."""
        return self._store.buffers()

    def fetch(self, chunk: int, into: Handle) -> None:
        """Read the bytes of ``chunk`` into ``into``."""
        self._store.fetch(self._chunks[chunk], into)

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Verify the fetched bytes and return them as rows."""
        return self._store.check(self._chunks[chunk], into)

    def expect(self, chunk: int) -> None:
        """Hint that ``chunk`` is read next."""
        if chunk < len(self._chunks):
            self._store.expect(self._chunks[chunk])

    def forget(self, chunk: int) -> None:
        """Hint that ``chunk`` is not needed soon."""
        self._store.forget(self._chunks[chunk])


class Section(_ChunkSelection):
    """Some chunks of another store as a store: chunk k is chunk ``chunks[k]`` of the other store.

    ``counts``: the rows of each class in these chunks; None keeps the counts of the whole store.
    """

    def __init__(self, store: Store, chunks: Sequence[int], counts: tuple[int, ...] | None = None) -> None:
        super().__init__(store, chunks)
        self.digest = store.digest
        layout = store.layout if counts is None else replace(store.layout, counts=counts)
        nonzeros = None if layout.nonzeros is None else tuple(layout.nonzeros[c] for c in chunks)
        rows = tuple(layout.chunks[c] for c in chunks)
        share = layout.share * sum(rows) / layout.rows
        self.layout = replace(layout, chunks=rows, nonzeros=nonzeros, share=share)

    @property
    def selection(self) -> tuple[int, ...]:
        """The numbers of the chunks in the store on disk, even if this is a section of a section."""
        inner = self._store.selection
        return self._chunks if inner is None else tuple(inner[chunk] for chunk in self._chunks)

    def statistics(self) -> Statistics:
        """Return the mean, variance and range of the columns over all rows of the whole store."""
        whole = self._store.statistics()
        return whole._replace(M2=whole.M2 * (self.layout.rows / self._store.layout.rows))


class SelectedRows(_ChunkSelection):
    """The rows of another store where ``chosen`` (n,) is true, in its order; chunks without such rows are never read.

    ``codes`` (n,): the class code of every row of the other store. ``layout.nonzeros`` counts all entries of a chunk,
    even if only some of its rows are chosen, and so is an upper bound. Raises DataError E-EMPTY if no row is chosen.
    """

    selection = None
    """None: the chunks differ from those of the other store."""

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
            share=1.0,
        )
        self.digest = hashlib.sha256(store.digest.encode() + np.packbits(chosen).tobytes()).hexdigest()

    def statistics(self) -> Statistics:
        """Read the chosen rows and return their column statistics. Raises DataError, StorageError."""
        moments, buffers = Moments(), self.buffers()
        for chunk in range(len(self._chunks)):
            self.fetch(chunk, buffers)
            moments.add(self.check(chunk, buffers).X)
        return moments.result(self.layout.columns, not self.layout.dense)

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Verify the chunk and return its chosen rows; they are a copy unless all rows are chosen."""
        whole, chosen = self._store.check(self._chunks[chunk], into), self._parts[chunk]
        if chosen.all():
            return whole
        weight = None if whole.weight is None else whole.weight[chosen]
        return Chunk(row_where(whole.X, chosen), whole.codes[chosen], weight)


CHUNK_BYTES = 4 << 20
"""Bytes of a slice as float32."""


class SlicedStore:
    """An array object as a store, whose chunks are slices ``X[start:stop]``; ``codes``: the class code of each row
    (n,).

    The array may be a memory map, of h5py, of Zarr or of scipy.sparse. Only one slice at a time is copied. An offset is
    subtracted from columns that float32 cannot represent, as ingest does. Raises DataError.
    """

    name = "X"
    """The name of the array in messages."""
    selection = None
    """None: the store is not a selection of another store's chunks."""

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
        """The sha256 of all numbers and codes; the first use reads all rows."""
        if not self._digest:
            sha256 = hashlib.sha256(np.ascontiguousarray(self._codes).tobytes())
            for chunk in range(len(self._starts)):
                for array in _arrays(self._rows(chunk)):
                    sha256.update(np.ascontiguousarray(array).tobytes())
            self._digest = sha256.hexdigest()
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
        """Do nothing: ``check`` reads the slice."""

    def check(self, chunk: int, into: NoBuffer) -> Chunk:
        """Return a copy of a slice as rows. Raises DataError for numbers that float32 cannot represent."""
        start = self._starts[chunk]
        return Chunk(self._rows(chunk), self._codes[start : start + self.layout.chunks[chunk]].copy(), None)

    def expect(self, chunk: int) -> None:
        """Do nothing: it is unknown where the array is stored."""

    def forget(self, chunk: int) -> None:
        """Do nothing: it is unknown where the array is stored."""

    def _entries(self, chunk: int, sizes: tuple[int, ...]) -> int:
        """Return the number of stored entries of a slice of sparse rows."""
        start = self._starts[chunk]
        return int(self._X[start : start + sizes[chunk]].nnz) + len(self._offsets.columns) * sizes[chunk]

    def _rows(self, chunk: int) -> Rows:
        """Return a copy of a slice, because solvers may change the rows they visit."""
        start, count = self._starts[chunk], self.layout.chunks[chunk]
        part = self._X[start : start + count]
        if len(self._offsets.columns):
            return self._offsets.apply(rows_of(part, self.name, start, exact=True))
        X = rows_of(part, self.name, start)
        if isinstance(X, CSR):
            return CSR(X.data.copy(), X.indices.copy(), X.indptr.copy())
        return X._replace(values=np.array(X.values, np.float32))


def _arrays(X: Rows) -> tuple[Array, ...]:
    """Return the arrays that hold the rows."""
    return (X.data, X.indices, X.indptr) if isinstance(X, CSR) else (X.values,)
