"""An embedding over many workers: each makes the features of some rows, the driver puts them in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.engine.executor import Executor, Task
from streamsvm.engine.stores import StoreReference, build_part, chunks_of, part_path
from streamsvm.features.mapfile import read_map
from streamsvm.features.nystrom import Nystrom, Projection
from streamsvm.rows import Dense, row_count, row_slice
from streamsvm.schedule.stream import Stream, visit_seed
from streamsvm.store.views import Section
from streamsvm.store.write.writer import StoreWriter
from streamsvm.types import Chunk, Store, Visit

PART_BYTES = 64 << 20
"""Bytes of features, about, that one task makes."""


class Span(NamedTuple):
    """Rows [first, stop) of a store, which one task embeds."""

    number: int
    """The place of the span among all spans."""
    first: int
    """The first row."""
    stop: int
    """The end of the rows."""


@dataclass(frozen=True, slots=True)
class EmbedWork:
    """What is embedded, through which map, and where the parts go."""

    store: StoreReference
    """The rows that are embedded."""
    directory: Path
    """The folder of the parts."""
    map: Path
    """The file that holds the map."""
    seal: str
    """The sha256 the file must have."""
    key: str
    """The key of the embedding."""
    rows: int
    """Rows of a chunk of the embedding."""


def features_of(work: EmbedWork, total: int, projection: Projection, executor: Executor) -> Iterator[Chunk]:
    """Yield the features of all ``total`` rows in order, with their codes and weights. Raises what a task raises,
    ClusterError.
    """
    rank, task = projection.rank, Task("embed", embed_span, projection.nbytes)
    shared = (executor.share(work),)
    step = max(1, PART_BYTES // (4 * rank * work.rows)) * work.rows
    spans = [Span(k, first, min(first + step, total)) for k, first in enumerate(range(0, total, step))]
    for span in executor.map(task, spans, shared):
        yield from chunks_of(part_path(work.directory, span.number), _key(work, span))


def embed_span(span: Span, work: EmbedWork) -> Span:
    """Write the features of some rows as a part; this is the task of a worker. Raises DataError, StorageError."""

    def fill(writer: StoreWriter) -> tuple[tuple[str, ...], int, JsonObject]:
        projection = read_map(work.map, work.seal)
        store = work.store.open()
        for X, chunk, rows in _pieces(store, projection, span, work.rows):
            weight = None if chunk.weight is None else chunk.weight[rows].copy()
            writer.append(X, chunk.codes[rows].copy(), weight)
        return store.layout.classes, projection.rank, {}

    build_part(work.directory, span.number, _key(work, span), sparse=False, fill=fill)
    return span


def _pieces(store: Store, projection: Projection, span: Span, rows: int) -> Iterator[tuple[Dense, Chunk, slice]]:
    """Features piece by piece, cut where the chunks of store and embedding begin: cuts decide the last bits."""
    features = Nystrom(projection, 0.0, factored=True)
    starts = np.concatenate([[0], np.cumsum(store.layout.chunks)]).tolist()
    chunks = [c for c in range(len(starts) - 1) if starts[c + 1] > span.first and starts[c] < span.stop]
    visits = (Visit(0, k, visit_seed(0, 0, c), False, c == chunks[-1]) for k, c in enumerate(chunks))
    with Stream(Section(store, chunks), visits, depth=1) as stream:
        for loaded in stream:
            X, base = projection.inner.apply(loaded.chunk.X), starts[chunks[loaded.visit.chunk]]
            at, end = max(span.first - base, 0), min(span.stop - base, row_count(X))
            while at < end:
                stop = min(at + rows - (base + at) % rows, end)
                out = np.empty((stop - at, projection.rank), np.float32)
                features.write_features(row_slice(X, at, stop), out)
                yield Dense(out), loaded.chunk, slice(at, stop)
                at = stop


def _key(work: EmbedWork, span: Span) -> str:
    return f"{work.key} {span.first}-{span.stop}"
