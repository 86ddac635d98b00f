"""A store in memory: for arrays a caller already holds, and for tests."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.errors import DataError
from streamsvm.rows import CSR, Dense, Float32, Float64, Rows, row_count
from streamsvm.store.format.arrays import entry_of, values_of
from streamsvm.store.format.labels import class_counts
from streamsvm.store.format.manifest import content_digest
from streamsvm.store.format.numbers import TARGET, Numbers
from streamsvm.store.format.statistics import Moments
from streamsvm.store.write.chunker import Chunker, Piece
from streamsvm.types import Chunk, Layout, Statistics


class NoBuffer:
    """Stands for buffers that are not needed: a store in memory hands out copies of its own arrays."""

    nbytes = 0
    """No bytes."""


@dataclass(slots=True)
class MemoryStore:
    """Chunks as arrays in memory; ``append`` and ``commit`` are like a writer's.

    What is read is a copy, because a visit may change it.
    """

    chunk_bytes: int = 4 << 20
    """The size of a chunk."""
    name: str = "memory"
    """What messages call the store."""
    layout: Layout = field(default_factory=lambda: Layout(0, (), None, (), ()))
    """Columns, chunks and classes, once committed."""
    digest: str = ""
    """The sha256 of the content, once committed: that of the same chunks on disk."""
    facts: JsonObject = field(default_factory=dict)
    """What is recorded of where the data came from."""
    copies: bool = False
    """Whether a row of weight k counts as k rows in the statistics, too."""
    _chunks: list[Piece] = field(default_factory=list)
    _chunker: Chunker | None = None

    def append(self, X: Rows, codes: Array, weight: Float32 | None = None) -> None:
        """Add rows with their class codes (n,) int32, or numbers (n,) float64, and, where there are any, weights (n,)."""
        if self._chunker is None:
            sparse = isinstance(X, CSR)
            size = self.chunk_bytes // 8 if isinstance(X, CSR) else self.chunk_bytes // (4 * X.values.shape[1])
            self._chunker = Chunker(max(1, size), nonzeros=size if sparse else None)
        self._chunks += self._chunker.push(Piece(X, codes, weight))

    def end_chunk(self) -> None:
        """Begin a new chunk with the next row."""
        if self._chunker is not None:
            self._chunks += self._chunker.rest()

    def commit(self, classes: tuple[str, ...], columns: int) -> MemoryStore:
        """Make the store readable and return it. Raises DataError E-EMPTY when nothing was appended."""
        if self._chunker is None:
            raise DataError("there are no rows to store", code="E-EMPTY")
        self._chunks += self._chunker.rest()
        sparse = isinstance(self._chunks[0].X, CSR)
        rows = tuple(row_count(c.X) for c in self._chunks)
        nonzeros = tuple(len(c.X.data) for c in self._chunks if isinstance(c.X, CSR)) if sparse else None
        counts = class_counts(np.concatenate([c.codes for c in self._chunks]), len(classes))
        weighted = self._chunks[0].weight is not None
        self.layout = Layout(columns, rows, nonzeros, classes, tuple(counts), weighted)
        self.digest = self._hash()
        if self.layout.numeric:
            numbers = Numbers()
            for piece in self._chunks:
                numbers.codes(piece.codes)
            self.facts = {TARGET: numbers.facts(), **self.facts}
        return self

    @property
    def selection(self) -> None:
        """None: all chunks, as they are."""

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows, or over their ``copies``; see ``types.Store.statistics``."""
        moments = Moments()
        for piece in self._chunks:
            moments.add(piece.X)
        found = moments.result(self.layout.columns, not self.layout.dense)
        return self._of_copies(found) if self.copies and self.layout.weighted else found

    def _of_copies(self, found: Statistics) -> Statistics:
        """The statistics of rows that count by their weights, which together are taken for the number of rows."""
        nowhere = np.zeros(self.layout.columns)
        parts = [(piece.X, np.asarray(piece.weight, np.float64)) for piece in self._chunks]
        weight = sum(float(s.sum()) for _, s in parts)
        mean = sum((_weighted_sums(X, s, nowhere, 1) for X, s in parts), nowhere) / weight
        squares = sum((_weighted_sums(X, s, mean, 2) for X, s in parts), nowhere)
        return found._replace(mean=mean, M2=squares * (self.layout.rows / weight))

    def buffers(self) -> NoBuffer:
        """Return new memory for one chunk; see ``types.Store.buffers``."""
        return NoBuffer()

    def fetch(self, chunk: int, into: NoBuffer) -> None:
        """Do nothing: the rows are in memory."""

    def check(self, chunk: int, into: NoBuffer) -> Chunk:
        """Verify what was fetched and return it as rows; see ``types.Store.check``."""
        piece = self._chunks[chunk]
        X = piece.X
        copy = Dense(X.values.copy()) if isinstance(X, Dense) else CSR(X.data.copy(), X.indices.copy(), X.indptr.copy())
        return Chunk(copy, piece.codes.copy(), None if piece.weight is None else piece.weight.copy())

    def expect(self, chunk: int) -> None:
        """Do nothing: there is nothing to read."""

    def forget(self, chunk: int) -> None:
        """Do nothing: there are no pages to drop."""

    def _hash(self) -> str:
        """As of the same chunks on disk."""
        layout = self.layout
        kind = "dense" if layout.dense else "csr"
        entries = [entry_of(piece, values_of(piece)) for piece in self._chunks]
        return content_digest(kind, layout.columns, list(layout.classes), entries)


def _weighted_sums(X: Rows, s: Float64, mean: Float64, power: int) -> Float64:
    """sum_i s_i (x_ij - mean_j)^power of every column (d,); entries that CSR rows lack are 0."""
    if isinstance(X, Dense):
        return np.asarray(s @ (X.values - mean) ** power)
    columns, each = len(mean), np.repeat(s, np.diff(X.indptr))
    there = np.bincount(X.indices, each, minlength=columns)
    stored = np.bincount(X.indices, each * (X.data - mean[X.indices]) ** power, minlength=columns)
    return stored + (s.sum() - there) * (-mean) ** power
