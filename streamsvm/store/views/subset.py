"""Some chunks of a store as a store of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamsvm.aliases import Handle, JsonMapping
from streamsvm.types import Chunk, Statistics, Store


class Section:
    """Some chunks of a store as a store of their own: its chunk k is chunk ``chunks[k]`` of the other one.

    ``counts``: rows of each class in these chunks, where that matters.
    """

    def __init__(self, store: Store, chunks: Sequence[int], counts: tuple[int, ...] | None = None) -> None:
        self._store, self._chunks = store, tuple(chunks)
        self.name, self.digest = store.name, store.digest
        layout = store.layout if counts is None else replace(store.layout, counts=counts)
        nonzeros = None if layout.nonzeros is None else tuple(layout.nonzeros[c] for c in chunks)
        self.layout = replace(layout, chunks=tuple(layout.chunks[c] for c in chunks), nonzeros=nonzeros)

    @property
    def selection(self) -> tuple[int, ...]:
        """The numbers of the chunks in the store that both are named after, also of a section of a section."""
        inner = self._store.selection
        return self._chunks if inner is None else tuple(inner[chunk] for chunk in self._chunks)

    @property
    def facts(self) -> JsonMapping:
        """What is recorded of the whole store."""
        return self._store.facts

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows; see ``types.Store.statistics``."""
        return self._store.statistics()

    def buffers(self) -> Handle:
        """Return new memory for one chunk; see ``types.Store.buffers``."""
        return self._store.buffers()

    def fetch(self, chunk: int, into: Handle) -> None:
        """Read the bytes of ``chunk`` into ``into``; see ``types.Store.fetch``."""
        self._store.fetch(self._chunks[chunk], into)

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Verify what was fetched and return it as rows; see ``types.Store.check``."""
        return self._store.check(self._chunks[chunk], into)

    def expect(self, chunk: int) -> None:
        """Hint that ``chunk`` is read next; see ``types.Store.expect``."""
        if chunk < len(self._chunks):
            self._store.expect(self._chunks[chunk])

    def forget(self, chunk: int) -> None:
        """Hint that ``chunk`` is not needed soon; see ``types.Store.forget``."""
        self._store.forget(self._chunks[chunk])
