"""Some rows of a store as a store of their own: chunks less the rows that were not chosen, which are read and dropped."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Handle, JsonMapping
from streamsvm.errors import DataError
from streamsvm.rows import Int32, row_where
from streamsvm.store.format.labels import class_counts
from streamsvm.store.format.statistics import Moments
from streamsvm.types import Chunk, Statistics, Store


class SelectedRows:
    """The rows of a store where ``chosen`` (n,) is true, in its order; chunks without such rows are never read.

    ``codes`` (n,): the class code of every row of the store. Of a chunk that is read in part, ``layout.nonzeros`` counts all
    entries: more than there are. Raises DataError E-EMPTY where nothing is chosen.
    """

    selection = None
    """None: the chunks are not as they are in the store."""

    def __init__(self, store: Store, chosen: NDArray[np.bool_], codes: Int32) -> None:
        layout = store.layout
        parts = np.split(chosen, np.cumsum(layout.chunks)[:-1])
        self._store, self._chunks = store, [k for k, part in enumerate(parts) if part.any()]
        self._parts = [parts[k] for k in self._chunks]
        if not self._chunks:
            raise DataError("no rows are chosen", code="E-EMPTY", hint="choose some")
        self.name = store.name
        self.layout = replace(
            layout,
            chunks=tuple(int(part.sum()) for part in self._parts),
            nonzeros=None if layout.nonzeros is None else tuple(layout.nonzeros[k] for k in self._chunks),
            counts=tuple(class_counts(codes[chosen], len(layout.classes))),
        )
        self.digest = hashlib.sha256(store.digest.encode() + np.packbits(chosen).tobytes()).hexdigest()

    @property
    def facts(self) -> JsonMapping:
        """What is recorded of the whole store."""
        return self._store.facts

    def statistics(self) -> Statistics:
        """Return the column statistics over the chosen rows, which are read for it. Raises DataError, StorageError."""
        moments, buffers = Moments(), self.buffers()
        for chunk in range(len(self._chunks)):
            self.fetch(chunk, buffers)
            moments.add(self.check(chunk, buffers).X)
        return moments.result(self.layout.columns, not self.layout.dense)

    def buffers(self) -> Handle:
        """Return new memory for one chunk; see ``types.Store.buffers``."""
        return self._store.buffers()

    def fetch(self, chunk: int, into: Handle) -> None:
        """Read the bytes of ``chunk`` into ``into``; see ``types.Store.fetch``."""
        self._store.fetch(self._chunks[chunk], into)

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Verify what was fetched and return the chosen rows of it, copied where they are not all."""
        found, chosen = self._store.check(self._chunks[chunk], into), self._parts[chunk]
        if chosen.all():
            return found
        weight = None if found.weight is None else found.weight[chosen]
        return Chunk(row_where(found.X, chosen), found.codes[chosen], weight)

    def expect(self, chunk: int) -> None:
        """Hint that ``chunk`` is read next; see ``types.Store.expect``."""
        if chunk < len(self._chunks):
            self._store.expect(self._chunks[chunk])

    def forget(self, chunk: int) -> None:
        """Hint that ``chunk`` is not needed soon; see ``types.Store.forget``."""
        self._store.forget(self._chunks[chunk])
