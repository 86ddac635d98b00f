"""Which kernel features a job asks for, what they hold in memory, and where they are kept.

A request has everything resolved - kernel, gamma, landmarks, how these are drawn - before anything is read. Features
are kept on disk or made on the fly in every pass, by an estimate from rates measured here and now, which the plan
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
from streamsvm.config.options import build
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
"""Rows on which the cost of the map is measured."""
FREE_DISK_FACTOR = 2
"""How many times the embedding must fit on the disk before it is written without being asked for."""
PASSES_UNLESS_STATED = 30
"""Passes that are assumed for a solver that does not say how many it expects."""
FEW_PRODUCTS = 1e9
"""Features that take fewer products in all passes, about a second, are made on the fly, measured or not: a model is then the same
every time and on every machine."""
CHUNK_BYTES = 4 << 20
"""Bytes of a chunk of an embedding that a fit makes for itself."""
FIRST_SAMPLE = 1024
"""The most rows from which leverages are estimated."""
AUTO_SAMPLING, UNIFORM = "auto", "uniform"
GREEDY = "greedy"
"""The sampling that looks at labels."""
CANDIDATES_PER_LANDMARK, MOST_CANDIDATES = 8, 20_000
"""Rows for each landmark that is to be far from the others, and rows in all unless there are more landmarks."""
REMADE_SHARE = 8
"""Rows are kept as they are stored, and their kernel values made again, where a stored row takes so many times less
than these. d columns then are at most an eighth of m landmarks, and d m products little beside the m^2 that
features of the row cost anyway. What it saves is copies of many more rows than a sample has in the end, which took
more of a pass than all its arithmetic with 18 columns.
"""


def wants_landmarks(job: FitJob | EmbedJob) -> bool:
    """Return whether a job asks for landmarks."""
    return job.landmarks is not None or job.landmark_file is not None


@dataclass(frozen=True, slots=True)
class NystromRequest:
    """Which kernel features are asked for; gamma is resolved, so that it is known before anything is read."""

    kernel: str
    """The name of the kernel."""
    record: Kernel
    """The kernel with its settings, a record of ``kernels``."""
    landmarks: int
    """The number of landmarks."""
    inner: Raw | Standardized
    """Maps stored rows to what the kernel sees."""
    bias: float = 1.0
    """The value of the constant feature."""
    sampling: str = UNIFORM
    """How landmarks are drawn; never ``auto``."""
    why_sampling: str | None = None
    """Why they are drawn so, in words, where ``auto`` was asked for."""
    file: str | None = None
    """A .npy file of landmarks, rows as they are stored; None draws them."""
    seed: int = 0
    """What landmarks are drawn from."""
    cutoff: float = KernelOptions.cutoff
    """The share of the largest eigenvalue below which directions are left out."""
    factored: bool = False
    """Whether the solver takes a block as a factored pair."""
    on_disk: bool = False
    """Whether the features are written to a store and read from it."""
    exact: bool = False
    """Whether features are float64: kernel values as certificates have them, and sums of them."""
    stored_bytes: int = 0
    """Bytes of a row as it is stored, on average; 0: not known."""
    held_out: tuple[int, ...] = ()
    """Chunks whose rows are no landmarks and have no say in which rows are, where labels choose them (greedy)."""

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept of a row until its features are formed, where that is the row as it is stored; else 0."""
        values = (8 if self.exact else 4) * self.landmarks
        return self.stored_bytes if self.factored and REMADE_SHARE * self.stored_bytes <= values else 0

    def layout_through_map(self, layout: Layout) -> Layout:
        """Return the layout of the stored rows as a solver sees them through the map."""
        return layout_through_map(layout, self.landmarks, exact=self.exact, kept_bytes=self.kept_bytes)

    def projection(self, points: Points) -> Projection:
        """Return the map of landmarks ``points`` with this kernel and cutoff. Raises what ``make_projection`` raises."""
        from streamsvm.features.nystrom import make_projection

        return make_projection(points, self.record, self.inner, self.cutoff)

    def describe(self) -> JsonObject:
        """Return the request as plain JSON."""
        drawn = {"landmarks": self.landmarks, "sampling": self.file or self.sampling, "seed": self.seed}
        return {"kernel": self.kernel, **parameters_of(self.record), **drawn, "cutoff": self.cutoff}


def request_features(
    job: FitJob | EmbedJob, store: Store, inner: Raw | Standardized, bias: float = 0.0
) -> NystromRequest | None:
    """Return what a fit or embed job asks for, checked; None when it asks for no landmarks. Raises UsageError."""
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
    """Return how many landmarks a job asks for, by number or by a file of them. Raises UsageError, MissingError,
    DataError.
    """
    if job.landmarks is not None and job.landmark_file is not None:
        raise UsageError("both a number of landmarks and a file of them are given", hint="leave one out")
    if job.landmark_file is not None:
        return len(landmark_file(Path(job.landmark_file)))
    assert job.landmarks is not None, "``wants_landmarks`` comes first"
    return job.landmarks


def choose_sampling(job: FitJob | EmbedJob) -> tuple[str, str | None]:
    """Return how the landmarks of a job are drawn, and why where the job leaves that to us (``auto``).

    A fit draws those that explain the labels best. Labels have no say where the fit learns probabilities from the same
    rows, or one class, nor in an embedding, which serves fits that hold rows out.
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
    """Raise UsageError where the labels of rows that are to be held out have chosen the landmarks.

    ``held_out``: what holds rows out, as the beginning of a sentence. The landmarks are those of ``request``, or of
    ``store`` where it is an embedding.
    """
    made = store.facts.get("embedding") or {}
    drawn = request.describe() if request is not None else made
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
    """Where the features live, and the figures that decided it; all times in seconds."""

    where: str
    """'disk' or 'fly'."""
    why: str
    """The reason, in words."""
    dtype: str
    """The type of the features on disk."""
    map_seconds: float = 0.0
    """One pass of making the features, as far as the solver needs them."""
    read_seconds: float = 0.0
    """One pass of reading the features instead, or of computing with them, whichever takes longer."""
    write_seconds: float = 0.0
    """Writing the features once."""
    passes: int = 0
    """The number of passes the choice was made for."""

    def facts(self) -> JsonObject:
        """Return the choice as plain JSON."""
        seconds = {"map": self.map_seconds, "read": self.read_seconds, "write": self.write_seconds}
        return {"where": self.where, "why": self.why, "dtype": self.dtype, "passes": self.passes, "seconds": seconds}


def choose_embedding(job: FitJob, store: Store, request: NystromRequest, expected: tuple[int, int] | None) -> Choice:
    """Choose disk or fly for a fit that expects so many passes, and features of so many rows in all of them.

    On the fly a pass makes kernel values of all rows, and the features asked for; on disk all features are made once.
    ``expected`` is None for a solver that takes all rows as features, in passes by the dozen. Nothing is measured where all that
    takes few products.
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
    """What the map costs, in seconds for each row."""

    through_pair: float
    """Making kernel values, and computing with the row through them."""
    features: float
    """Making the row's features."""
    look: float
    """Computing with features that are there."""


def probe_bytes(columns: int, landmarks: int) -> int:
    """Return bytes that ``measure_map`` takes: landmarks twice, a projection, kernel values and features of a few
    rows.
    """
    return 4 * (2 * landmarks * columns + landmarks**2 + PROBE_ROWS * (columns + 2 * landmarks))


def measure_map(columns: int, request: NystromRequest) -> MapCost:
    """Measure what making features and computing with them cost here and now, on random rows of that size."""
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
    # W w and W'(sum a k) are paid once a part, whatever its rows
    through_pair_each = max(there, pair - lifting) / PROBE_ROWS + lifting / part_rows(m)
    return MapCost(through_pair_each, full / PROBE_ROWS, there / PROBE_ROWS)


def _seconds(action: Callable[[], object]) -> float:
    """Return the best of three runs, after one that may compile; of this thread, so that a busy machine changes
    little.
    """
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
    kernel: Kernel = build(kind, options, f"kernel '{name}'")
    degree = options.get("degree", 1.0)
    if degree != int(degree):
        raise UsageError(f"a degree of {degree} is not a whole number", hint="for example degree=3")
    if kernel.gamma is None or "gamma" in options:
        return kernel
    seen = scale_for_kernel(kernel, inner, store)
    return kernel.with_gamma(resolve_gamma(gamma, store, seen, city_block=kernel.city_block()))


def scale_for_kernel(kernel: Kernel, inner: Raw | Standardized, store: Store) -> Raw | Standardized:
    """Return the map from stored rows to what a kernel is evaluated on: near 0 where that changes nothing, else where
    they lie.
    """
    return center(inner, store) if kernel.translation_invariant() else undo_column_offsets(inner, store)


def undo_column_offsets(inner: Raw | Standardized, store: Store) -> Raw | Standardized:
    """Return the same map of rows whose columns are not less an offset, for functions that are others about another
    zero.

    A column comes to x = (x - o) + o in float32: what float32 keeps of it there. Columns that are centered stay so.
    """
    offsets = offsets_of_store(store.facts)
    if not len(offsets.columns):
        return inner
    shift, scale = np.zeros(store.layout.columns, np.float32), np.ones(store.layout.columns, np.float32)
    if isinstance(inner, Standardized):
        shift, scale = inner.shift.copy(), inner.scale
    apart = offsets.columns[shift[offsets.columns] == 0.0]
    shift[apart] = -offsets.at(np.arange(store.layout.columns))[apart]
    return Standardized(shift, scale, inner.bias)


def parameters_of(kernel: Kernel) -> dict[str, float]:
    """Return the settings of a kernel by name."""
    record: Any = kernel  # each kernel is a NamedTuple of floats, which a protocol cannot say
    return {name: float(value) for name, value in record._asdict().items()}


def resolve_gamma(rule: str, store: Store, inner: Raw | Standardized, *, city_block: bool) -> float:
    """Return the width as a number; the statistics are read only if the rule needs them."""
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
    """Return the layout as a solver sees it through the map: dense, as many columns as landmarks at most, in parts.

    ``exact``: the features are float64, half as many rows at a time. ``kept_bytes``: see ``NystromRequest``.
    """
    from streamsvm.features.nystrom import part_rows

    part = part_rows(landmarks) // (2 if exact else 1)
    chunks = tuple(min(part, rows - start) for rows in layout.chunks for start in range(0, rows, part))
    entry = 8 if exact else 4
    return replace(layout, columns=landmarks, chunks=chunks, nonzeros=None, entry_bytes=entry, kept_bytes=kept_bytes)


def embedding_terms(request: NystromRequest, layout: Layout, later: int = 0, threads: int = 1) -> list[Term]:
    """Return the bytes of the map: landmarks, projection, buffers of each thread, and while it is made, what that takes
    beyond the buffers and beyond ``later``, which is taken only when the map is made.
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
    """Return the bytes of pieces that are mapped by so many threads, and wait to be written in chunks of ``chunk``
    bytes.
    """
    rows = max(1, chunk // (4 * landmarks))
    piece = min(rows, layout.largest_chunk) * layout.bytes_per_pass // layout.rows
    count = (1 + AHEAD) * threads if threads > 1 else 1
    return Term("pieces being embedded", count * chunk + threads * piece, f"{count} x {mib(chunk)} of features")


def spread_candidates(landmarks: int, rows: int) -> int:
    """Return how many rows landmarks far from each other are chosen from."""
    return min(rows, max(landmarks, min(CANDIDATES_PER_LANDMARK * landmarks, MOST_CANDIDATES)))


def landmark_file(path: Path) -> Array:
    """Open the array of a .npy file without reading its rows. Raises MissingError, DataError."""
    if not is_file(path):
        raise MissingError(f"there is no file of landmarks at {path}", hint="a .npy array, one landmark a row")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise DataError(f"{path} is not a .npy array of numbers", hint="np.save(path, rows)") from error
