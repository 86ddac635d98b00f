"""Plan the kernel features of a job: the request, its memory, and where the features are stored.

A request has the kernel, gamma, the number of landmarks and their sampling resolved before any row is read. Features are
stored on disk or computed on the fly in every pass; the choice uses speeds measured on this machine, which the plan
reports.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm.aliases import Array, JsonObject, RowRecord
from streamsvm.config.options import build_from_settings
from streamsvm.config.units import mib
from streamsvm.engine.executor import AHEAD
from streamsvm.errors import DataError, MissingError, UsageError
from streamsvm.features.scaling import Raw, Standardized, center
from streamsvm.input_files import is_file
from streamsvm.jobs.common_options import EmbedJob, KernelOptions
from streamsvm.kernels import KERNELS
from streamsvm.rows import Dense
from streamsvm.schedule import budget
from streamsvm.store.sources.offsets import offsets_of_store
from streamsvm.types import Kernel, Layout, Store, Term

if TYPE_CHECKING:
    from streamsvm.compute.kernel_values.kernel_matrix import Points
    from streamsvm.features.nystrom import Projection
    from streamsvm.jobs.fit.options import FitJob


DISK, FLY, AUTO = "disk", "fly", "auto"
DTYPES = {"float32": 4, "float16": 2, "int8": 1}
PROBE_ROWS = 512
"""The number of rows on which the cost of the map is measured."""
FREE_DISK_FACTOR = 2
"""An embedding is written to disk by ``auto`` only if the free space is at least this multiple of its size."""
PASSES_UNLESS_STATED = 30
"""The number of passes assumed for a solver without an estimate of its own."""
FEW_PRODUCTS = 1e9
"""Features that take fewer multiplications in all passes, about a second, are computed on the fly without a measurement,
so that the model is the same every time and on every machine."""
CHUNK_BYTES = 4 << 20
"""The size in bytes of the chunks of an embedding that a fit writes."""
FIRST_SAMPLE = 1024
"""Maximum number of rows from which leverages are estimated."""
AUTO_SAMPLING, UNIFORM = "auto", "uniform"
GREEDY = "greedy"
"""The sampling that uses labels."""
CANDIDATES_PER_LANDMARK, MOST_CANDIDATES = 8, 20_000
"""Candidates per landmark of kmeans++ sampling, and their maximum number unless there are more landmarks."""
REMADE_SHARE = 8
"""A solver keeps stored rows, and computes their kernel values again, if a stored row is smaller than its kernel values
by at least this factor. Then the d columns are at most an eighth of the m landmarks, and the d m multiplications are few
compared with the m^2 for the features of the row. This avoids copying the kernel values of many more rows than a sample
has in the end; with 18 columns these copies took more of a pass than all its arithmetic.
"""


def wants_landmarks(job: FitJob | EmbedJob) -> bool:
    """Return whether a job asks for landmarks."""
    return job.landmarks is not None or job.landmark_file is not None


@dataclass(frozen=True, slots=True)
class NystromRequest:
    """The kernel features of a job, with gamma resolved before any row is read."""

    kernel: str
    """The name of the kernel."""
    record: Kernel
    """The kernel with its settings, a record of ``kernels``."""
    landmarks: int
    """The number of landmarks."""
    inner: Raw | Standardized
    """The scaling of stored rows on which the kernel is evaluated."""
    bias: float = 1.0
    """The value of the constant feature."""
    sampling: str = UNIFORM
    """The sampling of landmarks; never ``auto``."""
    why_sampling: str | None = None
    """The reason for the sampling, in words, if the job has ``auto``."""
    file: str | None = None
    """A .npy file of landmarks, in the form of stored rows; None: landmarks are sampled."""
    seed: int = 0
    """The seed of the sampling."""
    cutoff: float = KernelOptions.cutoff
    """Eigenvectors are left out if their eigenvalue is below this fraction of the largest one."""
    factored: bool = False
    """Whether the solver gets blocks as low-rank factors."""
    on_disk: bool = False
    """Whether the features are written to a store and read from it."""
    exact: bool = False
    """Whether features are float64, sums of the kernel values that certificates use."""
    stored_bytes: int = 0
    """The mean size in bytes of a stored row; 0: unknown."""
    held_out: tuple[int, ...] = ()
    """Chunks whose rows greedy sampling does not use, neither as landmarks nor for their labels."""

    @property
    def kept_bytes(self) -> int:
        """The size in bytes of a stored row if the solver keeps it until its features are computed; else 0."""
        values = (8 if self.exact else 4) * self.landmarks
        return self.stored_bytes if self.factored and REMADE_SHARE * self.stored_bytes <= values else 0

    def layout_through_map(self, layout: Layout) -> Layout:
        """Return the layout of the features of the stored rows."""
        return layout_through_map(layout, self.landmarks, exact=self.exact, kept_bytes=self.kept_bytes)

    def projection(self, points: Points) -> Projection:
        """Return the projection of the landmarks ``points``. Raises the errors of ``nystrom.make_projection``."""
        from streamsvm.features.nystrom import make_projection

        return make_projection(points, self.record, self.inner, self.cutoff)

    def describe(self) -> JsonObject:
        """Return the request as plain JSON."""
        drawn = {"landmarks": self.landmarks, "sampling": self.file or self.sampling, "seed": self.seed}
        return {"kernel": self.kernel, **parameters_of(self.record), **drawn, "cutoff": self.cutoff}


def request_features(
    job: FitJob | EmbedJob, store: Store, inner: Raw | Standardized, bias: float = 0.0
) -> NystromRequest | None:
    """Return the checked request of a fit or embed job; None for a job without landmarks. Raises UsageError."""
    if not wants_landmarks(job):
        return None
    if job.sampling == GREEDY and not isinstance(job, EmbedJob) and job.one_class:
        raise UsageError(
            "sampling 'greedy' chooses landmarks by labels, and one class is learned without",
            hint="--sampling uniform, leverage or kmeans++",
        )
    from streamsvm.compute.blocks.selection import bytes_per_row

    count = landmark_count(job)
    record = build_kernel(job.kernel, job.kernel_options, str(job.gamma), store, inner)
    count = min(count, store.layout.rows) if job.landmark_file is None else count
    inner = scale_for_kernel(record, inner, store)
    drawn = (*choose_sampling(job), job.landmark_file, job.seed, job.cutoff)
    stored = bytes_per_row(store.layout.columns, store.layout.rows, store.layout.nonzeros)
    return NystromRequest(job.kernel, record, count, inner, bias, *drawn, stored_bytes=stored)


def landmark_count(job: FitJob | EmbedJob) -> int:
    """Return the number of landmarks of a job, given as a number or by a file. Raises UsageError, MissingError,
    DataError.
    """
    if job.landmarks is not None and job.landmark_file is not None:
        raise UsageError("both a number of landmarks and a file of them are given", hint="leave one out")
    if job.landmark_file is not None:
        return len(landmark_file(Path(job.landmark_file)))
    assert job.landmarks is not None, "``wants_landmarks`` comes first"
    return job.landmarks


def choose_sampling(job: FitJob | EmbedJob) -> tuple[str, str | None]:
    """Return the sampling of landmarks, and the reason for it if the job has ``auto``.

    A fit samples greedily the landmarks that explain the labels best. Labels are not used if the fit learns
    probabilities from the same rows, for one class, and in an embedding, which may serve fits with held-out rows.
    """
    if job.sampling != AUTO_SAMPLING:
        return job.sampling, None
    if job.landmark_file is not None:
        return UNIFORM, None
    if isinstance(job, EmbedJob):
        return UNIFORM, "an embedding is made without labels"
    if job.needs_scores:
        option = "--threshold" if job.calibrate is None else "--calibrate"
        return UNIFORM, f"{option} learns from rows whose labels may not choose landmarks"
    if job.one_class:
        return UNIFORM, "one class is learned without labels"
    return GREEDY, "labels may choose them"


def check_no_label_leakage(store: Store, request: NystromRequest | None, held_out: str) -> None:
    """Raise UsageError if landmarks were chosen by the labels of rows that shall be held out.

    ``held_out``: the option that holds rows out, as the subject of a sentence. The landmarks are those of ``request``, or
    of ``store`` if it is an embedding.
    """
    embedding = store.facts.get("embedding") or {}
    drawn = request.describe() if request is not None else embedding
    if drawn.get("sampling") != GREEDY or drawn["landmarks"] >= store.layout.rows:
        return
    where = (
        "--sampling greedy"
        if request is not None
        else f"{store.name}, an embedding that was made with --sampling greedy"
    )
    raise UsageError(
        f"{held_out} cannot be combined with {where}: the labels of the rows held out have chosen the landmarks",
        hint="choose landmarks without labels: --sampling uniform, leverage or kmeans++",
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """Where features are stored, and the estimates by which that was chosen, in seconds."""

    where: str
    """'disk' or 'fly'."""
    why: str
    """The reason, in words."""
    dtype: str
    """The dtype of features on disk."""
    map_seconds: float = 0.0
    """Time per pass for computing the features that the solver needs."""
    read_seconds: float = 0.0
    """Time per pass for reading the features from disk or for computing with them, whichever is longer."""
    write_seconds: float = 0.0
    """Time for writing the features once."""
    passes: int = 0
    """The expected number of passes."""

    def facts(self) -> JsonObject:
        """Return the choice as plain JSON."""
        seconds = {"map": self.map_seconds, "read": self.read_seconds, "write": self.write_seconds}
        return {"where": self.where, "why": self.why, "dtype": self.dtype, "passes": self.passes, "seconds": seconds}


def choose_embedding(job: FitJob, store: Store, request: NystromRequest, expected: tuple[int, int] | None) -> Choice:
    """Choose where a fit stores its features: on disk or on the fly.

    ``expected``: the expected number of passes, and of rows whose features are computed in all of them; None for a solver
    that needs the features of all rows in dozens of passes. On the fly, a pass computes the kernel values of all rows,
    and the features that the solver needs; on disk, all features are computed once. Nothing is measured if all of this
    takes few multiplications.
    """
    from streamsvm.jobs.inspect import disk_speed

    if job.embedding != AUTO:
        return Choice(job.embedding, "asked for", job.embedding_dtype)
    layout, m = store.layout, request.landmarks
    if probe_bytes(layout.columns, m) > budget.memory_limit(job.memory) - budget.anonymous_bytes():
        return Choice(DISK, "not measured: the map alone exceeds the memory limit", job.embedding_dtype)
    rows, passes = layout.rows, PASSES_UNLESS_STATED if expected is None else expected[0]
    if passes * rows * m * (layout.columns + m) <= FEW_PRODUCTS:
        return Choice(
            FLY, f"in {passes} passes less than about a second on the fly", job.embedding_dtype, passes=passes
        )
    cost = measure_map(layout.columns, request)
    if expected is None:
        fly = passes * rows * (cost.features + cost.look)
    else:
        fly = passes * rows * cost.through_pair + expected[1] * cost.features
    disk = disk_speed(Path(job.model).parent)
    nbytes = rows * m * DTYPES[job.embedding_dtype]
    cached = nbytes <= budget.page_cache_bytes(budget.memory_limit(job.memory))
    write, read = nbytes / disk["write"], max(nbytes / (disk["read"] * (4 if cached else 1)), rows * cost.look)
    from_disk = max(rows * cost.features, write) + passes * read
    room = shutil.disk_usage(Path(job.model).parent).free > FREE_DISK_FACTOR * nbytes
    where = DISK if from_disk < fly and room else FLY
    why = f"in {passes} passes an estimated {fly:.3g} s on the fly, {from_disk:.3g} s on disk" + (
        "" if room else ": no room"
    )
    return Choice(where, why, job.embedding_dtype, fly / passes, read, write, passes)


class MapCost(NamedTuple):
    """The cost of the map, in seconds per row."""

    through_pair: float
    """Computing the kernel values of a row, and its margin and gradient through the low-rank factors."""
    features: float
    """Computing the features of a row."""
    look: float
    """Computing margin and gradient from existing features."""


def probe_bytes(columns: int, landmarks: int) -> int:
    """Return the memory of ``measure_map`` in bytes: landmarks twice, a projection, kernel values and features of
    PROBE_ROWS rows.
    """
    return 4 * (2 * landmarks * columns + landmarks**2 + PROBE_ROWS * (columns + 2 * landmarks))


def measure_map(columns: int, request: NystromRequest) -> MapCost:
    """Measure the cost of computing features and of computing with them, on random rows with ``columns`` columns."""
    from streamsvm.compute.blocks.operators import Factored, adjoint, margins
    from streamsvm.compute.kernel_values.kernel_matrix import kernel_block, points_of
    from streamsvm.features.nystrom import part_rows

    m, random = request.landmarks, np.random.default_rng(0)
    X = Dense(random.random((PROBE_ROWS, columns), np.float32))
    points, W = points_of(random.random((m, columns), np.float32)), random.random((m, m), np.float32)
    values, features = (np.empty((PROBE_ROWS, m), np.float32) for _ in range(2))
    w = np.zeros(m + 1)

    def look(block: RowRecord) -> None:
        adjoint(block, margins(block, w) + 1.0, m)

    def through_pair() -> None:
        kernel_block(X, points, request.record, values)
        look(Factored(values, W))

    def in_full() -> None:
        kernel_block(X, points, request.record, values)
        np.matmul(values, W, out=features)

    runs = (through_pair, lambda: look(Factored(values[:1], W)), in_full, lambda: look(Dense(features)))
    with threadpool_limits(1):
        pair, lifting, full, there = (_seconds(run) for run in runs)
    # W w and W'(sum a k) are computed once per part, whatever its number of rows
    through_pair_each = max(there, pair - lifting) / PROBE_ROWS + lifting / part_rows(m)
    return MapCost(through_pair_each, full / PROBE_ROWS, there / PROBE_ROWS)


def _seconds(action: Callable[[], object]) -> float:
    """Return the CPU seconds of this thread for an action: the minimum of three runs, after one that may compile."""
    action()
    times = []
    for _ in range(3):
        began = time.thread_time()
        action()
        times.append(time.thread_time() - began)
    return min(times)


def build_kernel(name: str, options: dict[str, float], gamma: str, store: Store, inner: Raw | Standardized) -> Kernel:
    """Return the kernel with its width resolved from the store's statistics. Raises UsageError."""
    kind = KERNELS[name]
    kernel: Kernel = build_from_settings(kind, options, f"kernel '{name}'")
    degree = options.get("degree", 1.0)
    if degree != int(degree):
        raise UsageError(f"a degree of {degree} is not a whole number", hint="for example degree=3")
    if kernel.gamma is None or "gamma" in options:
        return kernel
    seen = scale_for_kernel(kernel, inner, store)
    return kernel.with_gamma(resolve_gamma(gamma, store, seen, city_block=kernel.city_block()))


def scale_for_kernel(kernel: Kernel, inner: Raw | Standardized, store: Store) -> Raw | Standardized:
    """Return the scaling of rows for a kernel: centered if the kernel is translation-invariant, else with the offsets of
    columns restored.
    """
    return center(inner, store) if kernel.translation_invariant() else undo_column_offsets(inner, store)


def undo_column_offsets(inner: Raw | Standardized, store: Store) -> Raw | Standardized:
    """Return the scaling with the subtracted offsets of columns added again, for functions that depend on where 0 is.

    A column becomes x = (x - o) + o in float32, with the precision of float32 at x. Columns that are centered stay
    centered.
    """
    offsets = offsets_of_store(store.facts)
    if not len(offsets.columns):
        return inner
    shift, scale = np.zeros(store.layout.columns, np.float32), np.ones(store.layout.columns, np.float32)
    if isinstance(inner, Standardized):
        shift, scale = inner.shift.copy(), inner.scale
    uncentered = offsets.columns[shift[offsets.columns] == 0.0]
    shift[uncentered] = -offsets.at(np.arange(store.layout.columns))[uncentered]
    return Standardized(shift, scale, inner.bias)


def parameters_of(kernel: Kernel) -> dict[str, float]:
    """Return the settings of a kernel by name."""
    record: Any = kernel  # each kernel is a NamedTuple of floats, which a protocol cannot say
    return {name: float(value) for name, value in record._asdict().items()}


def resolve_gamma(rule: str, store: Store, inner: Raw | Standardized, *, city_block: bool) -> float:
    """Return gamma as a number. Column statistics are read only if the rule needs them."""
    from streamsvm.features.scaling import choose_gamma, moments_seen_by_kernel

    try:
        return choose_gamma(float(rule), np.zeros(1), np.zeros(1))
    except ValueError:
        pass
    scaled = isinstance(inner, Standardized)
    shift, scale = (inner.shift, inner.scale) if scaled else (None, None)  # type: ignore[union-attr]
    mean, variance = moments_seen_by_kernel(store.statistics(), store.layout.rows, shift, scale)
    return choose_gamma(rule, mean, variance, city_block=city_block)


def layout_through_map(layout: Layout, landmarks: int, *, exact: bool = False, kept_bytes: int = 0) -> Layout:
    """Return the layout of the features: dense, with at most as many columns as landmarks, and chunks cut into parts.

    ``exact``: the features are float64, and parts have half as many rows. ``kept_bytes``: as in ``NystromRequest``.
    """
    from streamsvm.features.nystrom import part_rows

    part = part_rows(landmarks) // (2 if exact else 1)
    chunks = tuple(min(part, rows - start) for rows in layout.chunks for start in range(0, rows, part))
    entry = 8 if exact else 4
    return replace(layout, columns=landmarks, chunks=chunks, nonzeros=None, entry_bytes=entry, kept_bytes=kept_bytes)


def embedding_terms(request: NystromRequest, layout: Layout, later: int = 0, threads: int = 1) -> list[Term]:
    """Return the memory of the map: landmarks, projection, buffers of each thread, and the factorization.

    ``later``: bytes allocated only after the map is built. The factorization is counted as far as it exceeds these and
    the buffers.
    """
    from streamsvm.features.landmarks import greedy_bytes, sampler_bytes, spread_bytes
    from streamsvm.features.nystrom import map_bytes, part_rows

    m = request.landmarks
    points, precision = 4 * m * (layout.columns + 1), "float32 and float64" if request.exact else "float32"
    buffers = threads * map_bytes(m, m, factored=request.factored)
    making = 36 * m * m + 3 * points
    if request.sampling == "leverage":
        making = max(making, sampler_bytes(min(m, FIRST_SAMPLE)) + points)
    if request.sampling == "kmeans++":
        making = max(making, spread_bytes(spread_candidates(m, layout.rows), layout.columns, m) + points)
    if request.sampling == GREEDY:
        making = max(making, greedy_bytes(m, layout) + points)
    disk = [
        Term("embedding in flight", 8 * CHUNK_BYTES, f"8 x {mib(CHUNK_BYTES)}: read, unpacked, being written"),
        pieces_term(CHUNK_BYTES, layout, m, threads),
    ]
    return [
        *(disk if request.on_disk else []),
        Term("landmarks", 3 * points, f"{m} x {layout.columns} float32, and float64 for certificates"),
        Term("projection", (12 if request.exact else 4) * m * m, f"{m} x {m} {precision} at most"),
        Term("feature buffers", buffers, f"{threads} x {part_rows(m)} rows at a time"),
        Term(
            "factorization",
            max(0, making - buffers - later),
            "the landmarks' kernel matrix in float64, before training",
        ),
    ]


def pieces_term(chunk: int, layout: Layout, landmarks: int, threads: int) -> Term:
    """Return the memory of the pieces that ``threads`` threads map, and that wait to be written in chunks of ``chunk``
    bytes.
    """
    rows = max(1, chunk // (4 * landmarks))
    piece = min(rows, layout.largest_chunk) * layout.bytes_in_memory // layout.rows
    count = (1 + AHEAD) * threads if threads > 1 else 1
    return Term("pieces being embedded", count * chunk + threads * piece, f"{count} x {mib(chunk)} of features")


def spread_candidates(landmarks: int, rows: int) -> int:
    """Return the number of candidates from which kmeans++ sampling chooses."""
    return min(rows, max(landmarks, min(CANDIDATES_PER_LANDMARK * landmarks, MOST_CANDIDATES)))


def landmark_file(path: Path) -> Array:
    """Open the array of a .npy file without reading its rows. Raises MissingError, DataError."""
    if not is_file(path):
        raise MissingError(f"there is no file of landmarks at {path}", hint="a .npy array, one landmark a row")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise DataError(f"{path} is not a .npy array of numbers", hint="np.save(path, rows)") from error
