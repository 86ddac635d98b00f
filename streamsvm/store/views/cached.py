"""A store read once into memory: as one chunk, whose rows are visited in random order over all of the data, or chunk by chunk.

The random order is worth having for solvers that move while they read. A solver that goes through one chunk after another lets each pull w its own way - the bias
above all - and needs many more passes than one that meets rows of all of them in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Lock

import numpy as np

from streamsvm.aliases import Handle, JsonMapping
from streamsvm.rows import Dense, Rows, row_stack
from streamsvm.types import Chunk, Layout, Statistics, Store


class _InMemory:
    """What a store in memory takes from the one it was read from."""

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store, self.layout = store, layout
        self.name, self.digest = store.name, store.digest

    @property
    def facts(self) -> JsonMapping:
        """What is recorded of the store that is wrapped."""
        return self._store.facts

    @property
    def selection(self) -> tuple[int, ...] | None:
        """Where the rows come from, although here they are one chunk; see ``types.Store.selection``."""
        return self._store.selection

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows; see ``types.Store.statistics``."""
        return self._store.statistics()

    def buffers(self) -> Handle:
        """Return new memory for one chunk; see ``types.Store.buffers``."""
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
        """Read a chunk, the first time; see ``types.Store.fetch``. Threads may read different chunks at once."""
        if self._chunks[chunk] is not None:
            return
        try:
            buffers = self._spare.pop()
        except IndexError:
            buffers = self._store.buffers()
        self._store.fetch(chunk, buffers)
        self._chunks[chunk] = _prepared(self._store.check(chunk, buffers), self._prepare)
        if None in self._chunks:
            self._spare.append(buffers)
        else:
            self._spare.clear()

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Return a chunk that was fetched; see ``types.Store.check``."""
        found = self._chunks[chunk]
        assert found is not None
        return found

    def expect(self, chunk: int) -> None:
        """Hint that ``chunk`` is read next; see ``types.Store.expect``."""
        if chunk < len(self._chunks) and self._chunks[chunk] is None:
            self._store.expect(chunk)

    def forget(self, chunk: int) -> None:
        """Hint that the file of ``chunk`` is not needed soon; see ``types.Store.forget``."""
        self._store.forget(chunk)


class Resident(_InMemory):
    """A store that is read once into memory, where it is one chunk; ``prepare`` is applied once to the rows of each
    chunk.
    """

    def __init__(self, store: Store, prepare: Callable[[Rows], Rows]) -> None:
        nonzeros = None if store.layout.nonzeros is None else (sum(store.layout.nonzeros),)
        super().__init__(store, replace(store.layout, chunks=(store.layout.rows,), nonzeros=nonzeros))
        self._prepare = prepare
        self._kept: Chunk | None = None
        self._reading = Lock()

    def fetch(self, chunk: int, into: Handle) -> None:
        """Read all rows, the first time; see ``types.Store.fetch``. Of two threads that ask at once one reads, the other waits."""
        with self._reading:
            if self._kept is None:
                self._kept = self._read_all()

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Verify what was fetched and return it as rows; see ``types.Store.check``."""
        assert self._kept is not None
        return self._kept

    def expect(self, chunk: int) -> None:
        """Do nothing: all rows are read at once."""

    def forget(self, chunk: int) -> None:
        """Hint that ``chunk`` is not needed soon; see ``types.Store.forget``."""
        for number in range(len(self._store.layout.chunks)):
            self._store.forget(number)

    def _read_all(self) -> Chunk:
        buffers, parts = self._store.buffers(), []
        for number in range(len(self._store.layout.chunks)):
            self._store.expect(number + 1)
            self._store.fetch(number, buffers)
            parts.append(_prepared(self._store.check(number, buffers), self._prepare))
        return _joined(parts)


def _prepared(found: Chunk, prepare: Callable[[Rows], Rows]) -> Chunk:
    """A copy of a chunk, its rows prepared."""
    weight = None if found.weight is None else found.weight.copy()
    return Chunk(prepare(_copied(found.X)), found.codes.copy(), weight)


def _copied(X: Rows) -> Rows:
    if isinstance(X, Dense):
        return X._replace(values=X.values.copy())
    return X._replace(data=X.data.copy(), indices=X.indices.copy(), indptr=X.indptr.copy())


def _joined(parts: list[Chunk]) -> Chunk:
    if len(parts) == 1:
        return parts[0]
    weights = [part.weight for part in parts if part.weight is not None]
    codes = np.concatenate([part.codes for part in parts])
    return Chunk(row_stack([part.X for part in parts]), codes, np.concatenate(weights) if weights else None)
