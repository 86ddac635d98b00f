"""An array that a program has open, on disk perhaps, as a store: its chunks are slices, read when they are asked for."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.rows import CSR, Int32, Rows
from streamsvm.store.format.statistics import Moments
from streamsvm.store.sources.arrays import rows_of
from streamsvm.store.sources.offsets import offsets_from, offsets_needed, rows_to_see
from streamsvm.store.views.memory import NoBuffer
from streamsvm.types import Chunk, Layout, Statistics

CHUNK_BYTES = 4 << 20
"""The size of a slice."""


class SlicedStore:
    """Rows ``X[start:stop]`` with their class codes (n,): of a memory map, of h5py or Zarr, of scipy.sparse.

    Nothing is copied but the slice that is looked at. Columns that float32 cannot hold are less an offset, as an ingest has
    them. Raises DataError.
    """

    name = "X"
    """What messages call it."""
    selection = None
    """None: all chunks, as they are."""

    def __init__(self, X: Any, codes: Int32, classes: tuple[str, ...]) -> None:
        self._X, self._codes, self._digest = X, codes, ""
        rows, columns = (int(size) for size in X.shape)
        first = rows_of(X[: max(1, min(rows, rows_to_see(columns)))], self.name)
        width = -(-2 * len(first.data) // len(first.indptr)) if isinstance(first, CSR) else columns
        offsets = offsets_needed(lambda exact: rows_of(X[: rows_to_see(width)], self.name, exact=exact))
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
        """Return the column statistics over all rows; see ``types.Store.statistics``."""
        moments = Moments()
        for chunk in range(len(self._starts)):
            moments.add(self._rows(chunk))
        return moments.result(self.layout.columns, not self.layout.dense)

    def buffers(self) -> NoBuffer:
        """Return new memory for one chunk; see ``types.Store.buffers``."""
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
        """A copy of a slice: what looks at it may change it."""
        start, count = self._starts[chunk], self.layout.chunks[chunk]
        part = self._X[start : start + count]
        if len(self._offsets.columns):
            return self._offsets.applied(rows_of(part, self.name, start, exact=True))
        X = rows_of(part, self.name, start)
        if isinstance(X, CSR):
            return CSR(X.data.copy(), X.indices.copy(), X.indptr.copy())
        return X._replace(values=np.array(X.values, np.float32))


def _arrays(X: Rows) -> tuple[Array, ...]:
    """What rows are made of."""
    return (X.data, X.indices, X.indptr) if isinstance(X, CSR) else (X.values,)
