"""A store read once into memory, where it is one chunk: rows are then visited in random order over all of the data.

That order is worth having. A solver that goes through one chunk after another lets each pull w its own way - the bias
above all - and needs many more passes than one that meets rows of all of them in turn (tools/bench/order.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from streamsvm.aliases import Handle, JsonMapping
from streamsvm.rows import Dense, Rows, row_stack
from streamsvm.types import Chunk, Statistics, Store


class Resident:
    """A store that is read once into memory, where it is one chunk; ``prepare`` is applied once to the rows of each
    chunk.
    """

    def __init__(self, store: Store, prepare: Callable[[Rows], Rows]) -> None:
        self._store, self._prepare = store, prepare
        self._kept: Chunk | None = None
        self.name, self.digest = store.name, store.digest
        layout = store.layout
        nonzeros = None if layout.nonzeros is None else (sum(layout.nonzeros),)
        self.layout = replace(layout, chunks=(layout.rows,), nonzeros=nonzeros)

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

    def fetch(self, chunk: int, into: Handle) -> None:
        """Read the bytes of ``chunk`` into ``into``; see ``types.Store.fetch``."""
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
            found = self._store.check(number, buffers)
            weight = None if found.weight is None else found.weight.copy()
            parts.append(Chunk(self._prepare(_copied(found.X)), found.codes.copy(), weight))
        return _joined(parts)


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
