"""From a request for kernel features to the map: resolve gamma, draw landmarks, factorise, all within the plan.

Uniform landmarks cost one reading of the chunks they lie in, and so do landmarks far from each other, which are chosen
from a uniform sample some times as large. Landmarks by leverage cost a first uniform sample and one full pass more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.compute.gram import Points, dense_rows, points_of
from streamsvm.errors import DataError, MissingError, UsageError
from streamsvm.features.gamma import gamma_of, moments_seen
from streamsvm.features.landmarks import leverage_sampler, sampler_bytes, spread_bytes, spread_rows, uniform_rows
from streamsvm.features.nystrom import Nystrom, Projection, part_rows, projection_of, working_bytes
from streamsvm.features.scaling import Raw, Standardised
from streamsvm.kernels import KERNELS
from streamsvm.rows import Dense, Float32, Int64, Rows
from streamsvm.schedule.budget import mib
from streamsvm.schedule.plan import epoch_visits
from streamsvm.schedule.stream import Loaded, Stream
from streamsvm.types import Layout, Report, Store, Term, Visit

SAMPLINGS = ("uniform", "leverage", "kmeans++")
THROUGH_OPERATORS = ("newton",)
"""Solvers that see a block through margins, adjoint and gram only, and so take it as a factored pair."""
MOST_FOR_NEWTON = 4000
CHUNK_BYTES = 4 << 20
"""Of an embedding that a fit makes for itself."""
FIRST_SAMPLE = 1024
"""Rows the leverages are estimated from, at most."""
CANDIDATES, MOST_CANDIDATES = 8, 20_000
"""Rows for each landmark that is to be far from the others, and rows in all unless there are more landmarks."""


@dataclass(frozen=True, slots=True)
class NystromRequest:
    """Which features are asked for; gamma is resolved, so that it is known before anything is read."""

    kernel: str
    record: Any
    landmarks: int
    inner: Raw | Standardised
    """From stored rows to what the kernel sees."""
    bias: float = 1.0
    sampling: str = "uniform"
    file: str | None = None
    """A .npy file of landmarks, rows as they are stored."""
    seed: int = 0
    factored: bool = False
    """Whether the solver takes a block as a factored pair."""
    on_disk: bool = False
    """Whether the features are written to a store and read from it."""

    def describe(self) -> dict[str, Any]:
        """The request as plain JSON."""
        parameters = {name: float(value) for name, value in self.record._asdict().items()}
        drawn = self.file or self.sampling
        return {"kernel": self.kernel, **parameters, "landmarks": self.landmarks, "sampling": drawn, "seed": self.seed}


def wanted(job: Any) -> bool:
    """Whether a job asks for landmarks."""
    return job.landmarks is not None or job.landmark_file is not None


def request_of(job: Any, store: Store, inner: Raw | Standardised) -> NystromRequest | None:
    """What a fit or embed job asks for, checked; None when it asks for no landmarks. Raises UsageError."""
    if not wanted(job):
        return None
    if job.landmarks is not None and job.landmark_file is not None:
        raise UsageError("both a number of landmarks and a file of them are given", hint="leave one out")
    if job.sampling not in SAMPLINGS:
        raise UsageError(f"there is no sampling '{job.sampling}'", hint=f"choose from {', '.join(SAMPLINGS)}")
    if job.landmarks is not None and job.landmarks < 1:
        raise UsageError(f"{job.landmarks} landmarks: at least one is needed")
    record = kernel_record(job.kernel, job.kernel_options, str(job.gamma), store, inner)
    count = job.landmarks if job.landmark_file is None else len(_opened(Path(job.landmark_file)))
    count = min(count, store.layout.rows) if job.landmark_file is None else count
    bias = float(getattr(job, "bias", 0.0))
    return NystromRequest(job.kernel, record, count, inner, bias, job.sampling, job.landmark_file, job.seed)


def solver_for(job: Any) -> tuple[str, str]:
    """The solver for kernel features, and why: second order while its matrix is small beside the data."""
    if job.landmarks is None or job.landmarks <= MOST_FOR_NEWTON:
        return "newton", "kernel features: few passes, second order"
    return "dcd", f"kernel features, more than {MOST_FOR_NEWTON}: coordinate descent"


def kernel_record(name: str, options: dict[str, float], gamma: str, store: Store, inner: Raw | Standardised) -> Any:
    """The kernel with its width resolved from the store's statistics. Raises UsageError."""
    kind = KERNELS[name]
    unknown = [option for option in options if option not in kind._fields]
    if unknown:
        raise UsageError(f"kernel '{name}' has no setting '{unknown[0]}'", hint=f"it has: {', '.join(kind._fields)}")
    settings = {option: float(value) for option, value in options.items()}
    if "gamma" in kind._fields and "gamma" not in settings:
        city_block = kind(**settings).city_block()
        settings["gamma"] = resolved_gamma(gamma, store, inner, city_block=city_block)
    degree = settings.get("degree", 1.0)
    if degree < 1.0 or degree != int(degree):
        raise UsageError(f"a degree of {degree} is not a whole number from 1 on", hint="for example degree=3")
    return kind(**settings)


def resolved_gamma(rule: str, store: Store, inner: Raw | Standardised, *, city_block: bool) -> float:
    """The width as a number; the statistics are read only if the rule needs them."""
    try:
        return gamma_of(float(rule), np.zeros(1), np.zeros(1))
    except ValueError:
        pass
    scaled = isinstance(inner, Standardised)
    shift, scale = (inner.shift, inner.scale) if scaled else (None, None)  # type: ignore[union-attr]
    mean, variance = moments_seen(store.statistics(), store.layout.rows, shift, scale)
    return gamma_of(rule, mean, variance, city_block=city_block)


def seen_layout(layout: Layout, landmarks: int) -> Layout:
    """The data as a solver sees it through the map: dense, as many columns as landmarks at most, in parts."""
    part = part_rows(landmarks)
    chunks = tuple(min(part, rows - start) for rows in layout.chunks for start in range(0, rows, part))
    return replace(layout, columns=landmarks, chunks=chunks, nonzeros=None)


def memory_terms(request: NystromRequest, layout: Layout) -> list[Term]:
    """What the map holds: landmarks, projection, buffers; and while it is made, what that takes beyond the buffers."""
    m = request.landmarks
    points = 4 * m * (layout.columns + 1)
    buffers = working_bytes(m, m, factored=request.factored)
    making = 36 * m * m + points
    if request.sampling == "leverage":
        making = max(making, sampler_bytes(min(m, FIRST_SAMPLE)) + points)
    if request.sampling == "kmeans++":
        making = max(making, spread_bytes(_candidates(m, layout.rows), layout.columns, m) + points)
    disk = [Term("embedding in flight", 8 * CHUNK_BYTES, f"8 x {mib(CHUNK_BYTES)}: read, unpacked, being written")]
    return [
        *(disk if request.on_disk else []),
        Term("landmarks", points, f"{m} x {layout.columns} float32"),
        Term("projection", 4 * m * m, f"{m} x {m} float32 at most"),
        Term("feature buffers", buffers, f"{part_rows(m)} rows at a time"),
        Term("factorisation", max(0, making - buffers), "the landmarks' kernel matrix in float64, before training"),
    ]


def make_map(request: NystromRequest, store: Store, report: Report, depth: int = 1) -> Nystrom:
    """Draw the landmarks and factorise. Raises DataError, StorageError."""
    projection = make_projection(request, store, report, depth)
    return Nystrom(projection, request.bias, request.factored)


def make_projection(request: NystromRequest, store: Store, report: Report, depth: int = 1) -> Projection:
    """The landmarks and W."""
    points = draw_landmarks(request, store, depth)
    projection = projection_of(points, request.record, request.inner)
    report({"event": "landmarks", **request.describe(), "drawn": points.size, "rank": projection.rank})
    return projection


def draw_landmarks(request: NystromRequest, store: Store, depth: int = 1) -> Points:
    """The landmarks, as the kernel sees them. Raises DataError, StorageError."""
    if request.file is not None:
        return points_of(_from_file(Path(request.file), store.layout.columns, request.inner))
    return points_of(gather(store, _draw(request, store, depth), request.inner, depth))


def _draw(request: NystromRequest, store: Store, depth: int) -> Int64:
    """The row numbers of the landmarks, rising."""
    rows, count = store.layout.rows, request.landmarks
    if request.sampling == "uniform" or count >= rows:
        return uniform_rows(rows, count, request.seed)
    if request.sampling == "kmeans++":
        first = uniform_rows(rows, _candidates(count, rows), request.seed)
        return first[spread_rows(gather(store, first, request.inner, depth), request.record, count, request.seed + 1)]
    first = uniform_rows(rows, min(count, FIRST_SAMPLE), request.seed)
    points: Points = points_of(gather(store, first, request.inner, depth))
    sampler = leverage_sampler(points, request.record, count, request.seed)
    for start, loaded in _read(store, range(len(store.layout.chunks)), depth):
        sampler.offer(request.inner.apply(loaded.chunk.X), start)
    return sampler.rows()


def _candidates(landmarks: int, rows: int) -> int:
    return min(rows, max(landmarks, min(CANDIDATES * landmarks, MOST_CANDIDATES)))


def gather(store: Store, rows: Int64, inner: Raw | Standardised, depth: int = 1) -> Float32:
    """Rows by number, rising, as the kernel sees them, (k, columns)."""
    out = np.empty((len(rows), store.layout.columns), np.float32)
    for X, here, place in chosen(store, rows, inner, depth):
        out[place] = dense_rows(X, here, store.layout.columns)
    return out


def chosen(store: Store, rows: Int64, inner: Raw | Standardised, depth: int = 1) -> Iterator[tuple[Rows, Int64, slice]]:
    """The chunks that hold rows of these rising numbers, as the kernel sees them: which of theirs, and which of ``rows``.

    A chunk is valid until the next is asked for.
    """
    ends = np.cumsum(store.layout.chunks)
    chunks = np.unique(np.searchsorted(ends, rows, side="right")).tolist()
    for start, loaded in _read(store, chunks, depth):
        low, high = np.searchsorted(rows, [start, start + len(loaded.chunk.codes)]).tolist()
        yield inner.apply(loaded.chunk.X), rows[low:high] - start, slice(low, high)


def _read(store: Store, chunks: Any, depth: int) -> Iterator[tuple[int, Loaded]]:
    """Chunks in rising order, each with the number of its first row."""
    starts = np.concatenate([[0], np.cumsum(store.layout.chunks)]).tolist()
    wanted = set(chunks)
    visits: Iterator[Visit] = (v for v in epoch_visits(store.layout, 0, 0, shuffled=False) if v.chunk in wanted)
    with Stream(store, visits, depth=depth) as stream:
        for loaded in stream:
            yield starts[loaded.visit.chunk], loaded


def _from_file(path: Path, columns: int, inner: Raw | Standardised) -> Float32:
    """Landmarks somebody chose. Raises MissingError, DataError."""
    values = _opened(path)
    if values.ndim != 2 or values.shape[1] != columns or not len(values) or not np.isfinite(values).all():
        raise DataError(f"{path} holds an array {values.shape}; finite numbers (m, {columns}) are needed")
    rows = inner.apply(Dense(np.array(values, np.float32, order="C")))
    assert isinstance(rows, Dense)
    return rows.values


def _opened(path: Path) -> Any:
    if not path.is_file():
        raise MissingError(f"there is no file of landmarks at {path}", hint="a .npy array, one landmark a row")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise DataError(f"{path} is not a .npy array of numbers", hint="np.save(path, rows)") from error
