"""Features made by the threads of this process: pieces of blocks are shared out, what comes of them is in order.

A piece is cut where the chunks of the store and those of the embedding begin: cuts decide the last bits of a product, and
so they depend on neither the threads nor where an earlier run was stopped.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks.selection import take_rows
from streamsvm.engine.executor import Task, local_executor
from streamsvm.features.nystrom import Nystrom
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.rows import Dense, row_count
from streamsvm.schedule import budget
from streamsvm.schedule.stream import Stream, epoch_visits
from streamsvm.types import Chunk, Store


class RowPieces(NamedTuple):
    """Which rows are embedded, and how they are read."""

    store: Store
    """The rows."""
    inner: Raw | Standardized
    """What is done to them before the kernel sees them."""
    rows: int
    """Rows of a chunk of the embedding."""
    depth: int
    """Blocks read ahead."""
    first: int = 0
    """The row to begin with."""

    def pieces(self) -> Generator[Chunk]:
        """Yield copies of the rows as the kernel sees them, with codes and weights, piece by piece."""
        layout = self.store.layout
        starts = np.concatenate([[0], np.cumsum(layout.chunks)]).tolist()
        visits = (v for v in epoch_visits(layout, 0, 0, shuffled=False) if starts[v.chunk + 1] > self.first)
        retain = layout.bytes_per_pass <= budget.page_cache_bytes(0)
        with Stream(self.store, visits, depth=self.depth, retain=retain) as stream:
            for loaded in stream:
                X, base = self.inner.apply(loaded.chunk.X), starts[loaded.visit.chunk]
                at = max(0, self.first - base)
                while at < row_count(X):
                    stop = min(at + self.rows - (base + at) % self.rows, row_count(X))
                    weight = None if loaded.chunk.weight is None else loaded.chunk.weight[at:stop].copy()
                    yield Chunk(take_rows(X, np.arange(at, stop)), loaded.chunk.codes[at:stop].copy(), weight)
                    at = stop


def features_in_order(rows: RowPieces, features: Nystrom, threads: int) -> Generator[Chunk]:
    """Yield the features of all rows from the first on, dense float32, with codes and weights; the arrays belong to the caller.

    Raises what reading the rows raises.
    """
    task = Task("embed", map_piece, each=_mapped)
    with closing(rows.pieces()) as pieces, closing(local_executor(threads).map(task, pieces, (features,))) as made:
        yield from made


def map_piece(piece: Chunk, features: Nystrom) -> Chunk:
    """Return the features of one piece, through buffers of its own."""
    with closing(_mapped(iter([piece]), features)) as made:
        return next(made)


def _mapped(pieces: Iterator[Chunk], features: Nystrom) -> Generator[Chunk]:
    mine = copy.copy(features)
    for piece in pieces:
        out = np.empty((row_count(piece.X), features.columns), np.float32)
        mine.write_features(piece.X, out)
        yield piece._replace(X=Dense(out))
