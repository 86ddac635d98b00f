"""Draw landmarks from a store and build the map to kernel features.

Uniform sampling reads the chunks that hold the landmarks once. kmeans++ reads a uniform sample several times as large, and
chooses landmarks far from each other in it. Greedy sampling also reads a second sample, and chooses the landmarks that
best explain its labels. Sampling by leverage needs one more full pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.kernel_matrix import Points, dense_rows, points_of
from streamsvm.errors import DataError
from streamsvm.features.landmarks import (
    GREEDY_SAMPLE_ROWS,
    PIECE_ROWS,
    GreedySelection,
    count_candidates,
    draw_kmeanspp_rows,
    draw_uniform_rows,
    draw_uniform_rows_of,
    make_leverage_sampler,
    make_targets,
)
from streamsvm.features.nystrom import Nystrom, Projection
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.jobs.embed.plan import (
    GREEDY,
    MAX_LEVERAGE_ROWS,
    NystromRequest,
    count_kmeanspp_candidates,
    open_landmarks,
)
from streamsvm.rows import Dense, Float32, Int64
from streamsvm.schedule.stream import LoadedChunk, Stream, epoch_visits
from streamsvm.store.write.chunking import join_chunks
from streamsvm.types import Chunk, Report, Store, Visit


def make_map(request: NystromRequest, store: Store, report: Report, depth: int = 1) -> Nystrom:
    """Draw the landmarks, factorize their kernel matrix and return the map. Raises DataError, StorageError."""
    return map_from_projection(request, make_projection(request, store, report, depth))


def map_from_projection(request: NystromRequest, projection: Projection) -> Nystrom:
    """Return the map of a projection, with the bias, the dtype and the form of blocks of the request."""
    projection = projection.to_float64() if request.exact else projection
    return Nystrom(projection, request.bias, request.factored, request.exact, remade=request.kept_bytes > 0)


def make_projection(request: NystromRequest, store: Store, report: Report, depth: int = 1) -> Projection:
    """Return the projection: the landmarks and W. Raises DataError, StorageError."""
    points = draw_landmarks(request, store, depth)
    projection = request.projection(points)
    report({"event": "landmarks", **request.describe(), "drawn": points.size, "rank": projection.rank})
    return projection


def draw_landmarks(request: NystromRequest, store: Store, depth: int = 1) -> Points:
    """Return the landmarks as the kernel sees them, (m, columns) float32. Raises DataError, StorageError."""
    if request.file is not None:
        return points_of(_read_landmarks(Path(request.file), store.layout.columns, request.scaling))
    return points_of(gather_rows(store, _draw_rows(request, store, depth), request.scaling, depth))


def _draw_rows(request: NystromRequest, store: Store, depth: int) -> Int64:
    """Return the row numbers of the landmarks in ascending order."""
    rows, count = store.layout.rows, request.landmarks
    if request.sampling == GREEDY:
        return _draw_by_labels(request, store, depth)
    if request.sampling == "uniform" or count >= rows:
        return draw_uniform_rows(rows, count, request.seed)
    return {"kmeans++": _draw_by_kmeanspp, "leverage": _draw_by_leverage}[request.sampling](request, store, depth)


def _draw_by_kmeanspp(request: NystromRequest, store: Store, depth: int) -> Int64:
    """Return the numbers of rows far from each other, chosen from a uniform sample (kmeans++)."""
    count = count_kmeanspp_candidates(request.landmarks, store.layout.rows)
    candidates = draw_uniform_rows(store.layout.rows, count, request.seed)
    sample = gather_rows(store, candidates, request.scaling, depth)
    return candidates[draw_kmeanspp_rows(sample, request.kernel, request.landmarks, request.seed + 1)]


def _draw_by_labels(request: NystromRequest, store: Store, depth: int) -> Int64:
    """Return the numbers of rows from a uniform sample that best explain the labels of a second sample.

    Held-out rows are in neither sample.
    """
    layout, scaling = store.layout, request.scaling
    ends = np.cumsum(layout.chunks).tolist()
    spans = list(zip([0, *ends], ends, strict=False))
    training_spans = [span for chunk, span in enumerate(spans) if chunk not in set(request.held_out)]
    rows = sum(end - start for start, end in training_spans)
    candidates = draw_uniform_rows_of(training_spans, count_candidates(request.landmarks, rows), request.seed)
    if request.landmarks >= rows:
        return candidates
    sample = draw_uniform_rows_of(training_spans, GREEDY_SAMPLE_ROWS, request.seed + 1)
    points, classes = points_of(gather_rows(store, candidates, scaling, depth)), len(layout.classes)
    chooser = GreedySelection(points, request.kernel, classes if classes > 2 else 1)
    for piece in iterate_pieces(store, sample, scaling, depth):
        chooser.add(piece.X, make_targets(piece.codes, classes), piece.weight)
    return candidates[chooser.choose(request.landmarks)]


def _draw_by_leverage(request: NystromRequest, store: Store, depth: int) -> Int64:
    """Return row numbers drawn by leverage in one full pass; the leverages are estimated from a uniform sample."""
    first = draw_uniform_rows(store.layout.rows, min(request.landmarks, MAX_LEVERAGE_ROWS), request.seed)
    points: Points = points_of(gather_rows(store, first, request.scaling, depth))
    sampler = make_leverage_sampler(points, request.kernel, request.landmarks, request.seed)
    for start, loaded in _read(store, range(len(store.layout.chunks)), depth):
        sampler.offer(request.scaling.apply(loaded.chunk.X), start)
    return sampler.rows()


def gather_rows(store: Store, rows: Int64, scaling: Raw | Standardized, depth: int = 1) -> Float32:
    """Return the rows with these ascending numbers, scaled for the kernel, (k, columns) float32."""
    out = np.empty((len(rows), store.layout.columns), np.float32)
    for chunk, indices, places in iterate_chunks_of_rows(store, rows, scaling, depth):
        out[places] = dense_rows(chunk.X, indices, store.layout.columns)
    return out


def iterate_pieces(store: Store, rows: Int64, scaling: Raw | Standardized, depth: int = 1) -> Iterator[Chunk]:
    """Yield copies of the rows with these ascending numbers, scaled for the kernel, PIECE_ROWS at a time. The pieces do
    not depend on the chunks of the store.
    """
    waiting: list[Chunk] = []
    for chunk, indices, _ in iterate_chunks_of_rows(store, rows, scaling, depth):
        start = 0
        while start < len(indices):
            room = PIECE_ROWS - sum(len(part.codes) for part in waiting)
            part_indices = indices[start : start + room]
            start += len(part_indices)
            weight = None if chunk.weight is None else chunk.weight[part_indices]
            rows_of_part = take_rows(chunk.X._replace(bias=0.0), part_indices)
            waiting.append(Chunk(rows_of_part, chunk.codes[part_indices], weight))
            if len(part_indices) == room:
                yield join_chunks(waiting)
                waiting = []
    if waiting:
        yield join_chunks(waiting)


def iterate_chunks_of_rows(
    store: Store, rows: Int64, scaling: Raw | Standardized, depth: int = 1
) -> Iterator[tuple[Chunk, Int64, slice]]:
    """Yield the chunks that hold the rows with these ascending numbers, scaled for the kernel. With each chunk come the
    indices of these rows in it, and the slice of ``rows`` to which they belong.

    A chunk is valid until the next one is requested.
    """
    ends = np.cumsum(store.layout.chunks)
    chunks = np.unique(np.searchsorted(ends, rows, side="right")).tolist()
    for start, loaded in _read(store, chunks, depth):
        low, high = np.searchsorted(rows, [start, start + len(loaded.chunk.codes)]).tolist()
        yield loaded.chunk._replace(X=scaling.apply(loaded.chunk.X)), rows[low:high] - start, slice(low, high)


def _read(store: Store, chunks: Iterable[int], depth: int) -> Iterator[tuple[int, LoadedChunk]]:
    """Yield chunks in ascending order, each with the number of its first row."""
    starts = store.layout.starts
    chunk_set = set(chunks)
    visits: Iterator[Visit] = (v for v in epoch_visits(store.layout, 0, 0, shuffled=False) if v.chunk in chunk_set)
    with Stream(store, visits, depth=depth) as stream:
        for loaded in stream:
            yield starts[loaded.visit.chunk], loaded


def _read_landmarks(path: Path, columns: int, scaling: Raw | Standardized) -> Float32:
    """Return the landmarks in a file, scaled for the kernel, (m, columns) float32. Raises MissingError, DataError."""
    values = open_landmarks(path)
    if values.ndim != 2 or values.shape[1] != columns or not len(values) or not np.isfinite(values).all():
        raise DataError(
            f"{path} holds an array of shape {values.shape}; finite numbers of shape (m, {columns}) are needed"
        )
    rows = scaling.apply(Dense(np.array(values, np.float32, order="C")))
    assert isinstance(rows, Dense)
    return rows.values
