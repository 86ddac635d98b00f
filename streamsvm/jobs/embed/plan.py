"""Plan the kernel features of a job: the request, its memory, and whether the features are stored.

The *map* computes the features of a stored row: the row is scaled, its kernel values with all landmarks are computed,
and the vector of these values is multiplied by the projection W. The kernel, gamma, the number of landmarks and their
sampling are resolved in a request before any row is read. Features are stored on disk or computed on the fly in every
pass; the choice uses speeds measured on this machine, which the plan reports.
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

from streamsvm.config.options import build_from_settings
from streamsvm.config.units import mib
from streamsvm.engine.executor import RESULTS_AHEAD_PER_THREAD
from streamsvm.errors import DataError, MissingError, UsageError
from streamsvm.features.scaling import Raw, Standardized, center
from streamsvm.input_files import is_file
from streamsvm.jobs.common_options import EmbedJob, KernelOptions
from streamsvm.kernels import KERNELS
from streamsvm.rows import Dense
from streamsvm.schedule import budget
from streamsvm.store.sources.offsets import offsets_of_store
from streamsvm.type_aliases import Array, JsonObject, RowRecord
from streamsvm.types import Kernel, Layout, Store, Term
from streamsvm.types.data import BYTES_OF_TYPE

if TYPE_CHECKING:
    from streamsvm.compute.kernel_values.kernel_matrix import Points
    from streamsvm.features.nystrom import Projection
    from streamsvm.jobs.fit.options import FitJob


DISK, ON_THE_FLY, AUTO = "disk", "fly", "auto"
PROBE_ROWS = 512
"""The number of rows on which the cost of the map is measured."""
FREE_DISK_FACTOR = 2
"""An embedding is written to disk by ``auto`` only if the free space is at least this multiple of its size."""
DEFAULT_PASSES = 30
"""The number of passes that is assumed for a solver without an estimate."""
FEW_PRODUCTS = 1e9
"""If all passes together take fewer multiplications than this (about a second), features are computed on the fly without
a measurement, so that the model is the same every time and on every machine."""
CHUNK_BYTES = 4 << 20
"""The size in bytes of the chunks of an embedding that a fit writes."""
MAX_LEVERAGE_ROWS = 1024
"""Maximum number of rows from which leverages are estimated."""
AUTO_SAMPLING, UNIFORM = "auto", "uniform"
GREEDY = "greedy"
"""The sampling that uses labels."""
CANDIDATES_PER_LANDMARK = 8
"""Number of candidates per landmark in kmeans++ sampling."""
MAX_CANDIDATES = 20_000
"""Maximum number of candidates in kmeans++ sampling. With more landmarks than this, there are as many candidates as
landmarks."""
MIN_SIZE_RATIO_TO_RECOMPUTE = 8
"""A solver keeps stored rows, and computes their kernel values again, if a stored row is smaller than its kernel values
by at least this factor. Then the d columns are at most an eighth of the m landmarks, and the d m multiplications are few
compared with the m^2 for the features of the row. Otherwise the kernel values of all candidates for a sample are copied,
though most of them do not stay in the sample. With 18 columns, the copies took longer than all the arithmetic of the
pass.
"""


def wants_landmarks(job: FitJob | EmbedJob) -> bool:
    """Return whether a job asks for landmarks."""
    return job.landmarks is not None or job.landmark_file is not None


@dataclass(frozen=True, slots=True)
class NystromRequest:
    """The kernel features of a job, with gamma resolved before any row is read."""

    kernel_name: str
    """The name of the kernel."""
    kernel: Kernel
    """The kernel with its settings, a class of the module ``kernels``."""
    landmarks: int
    """The number of landmarks."""
    scaling: Raw | Standardized
    """The scaling that is applied to stored rows before the kernel is evaluated."""
    bias: float = 1.0
    """The value of the constant feature."""
    sampling: str = UNIFORM
    """The sampling of landmarks; never ``auto``."""
    why_sampling: str | None = None
    """The reason for the sampling, in words, if the job's sampling is ``auto``; else None."""
    file: str | None = None
    """A .npy file of landmarks, in the form of stored rows; None: landmarks are sampled."""
    seed: int = 0
    """The seed of the sampling."""
    cutoff: float = KernelOptions.cutoff
    """Eigenvectors are left out if their eigenvalue is below this fraction of the largest eigenvalue."""
    factored: bool = False
    """Whether the solver gets blocks as low-rank factors."""
    on_disk: bool = False
    """Whether the features are written to a store and read from it."""
    exact: bool = False
    """Whether features are computed in float64, from the same kernel values that certificates use."""
    stored_bytes: int = 0
    """The mean size in bytes of a stored row; 0: unknown."""
    held_out: tuple[int, ...] = ()
    """Chunks whose rows greedy sampling does not use, neither as landmarks nor for their labels."""

    @property
    def kept_bytes(self) -> int:
        """The size in bytes of a stored row if the solver keeps it until its features are computed; else 0."""
        values = (8 if self.exact else 4) * self.landmarks
        return self.stored_bytes if self.factored and MIN_SIZE_RATIO_TO_RECOMPUTE * self.stored_bytes <= values else 0

    def layout_of_features(self, layout: Layout) -> Layout:
        """Return the layout of the features of stored rows. ``layout``: the layout of the stored rows."""
        return layout_of_features(layout, self.landmarks, exact=self.exact, kept_bytes=self.kept_bytes)

    def projection(self, points: Points) -> Projection:
        """Return the projection of the landmarks ``points``. Raises the errors of ``nystrom.make_projection``."""
        from streamsvm.features.nystrom import make_projection

        return make_projection(points, self.kernel, self.scaling, self.cutoff)

    def describe(self) -> JsonObject:
        """Return the request as plain JSON."""
        landmarks = {"landmarks": self.landmarks, "sampling": self.file or self.sampling, "seed": self.seed}
        return {"kernel": self.kernel_name, **parameters_of(self.kernel), **landmarks, "cutoff": self.cutoff}


def request_features(
    job: FitJob | EmbedJob, store: Store, scaling: Raw | Standardized, bias: float = 0.0
) -> NystromRequest | None:
    """Return the checked request of a fit or embed job; None for a job without landmarks. Raises UsageError."""
    if not wants_landmarks(job):
        return None
    if job.sampling == GREEDY and not isinstance(job, EmbedJob) and job.one_class:
        raise UsageError(
            "sampling 'greedy' needs labels to choose landmarks, but one-class training has none",
            hint="--sampling uniform, leverage or kmeans++",
        )
    from streamsvm.compute.blocks.selection import bytes_per_row

    count = landmark_count(job)
    kernel = build_kernel(job.kernel, job.kernel_options, str(job.gamma), store, scaling)
    count = min(count, store.layout.rows) if job.landmark_file is None else count
    scaling = scale_for_kernel(kernel, scaling, store)
    sampling, why_sampling = choose_sampling(job)
    return NystromRequest(
        job.kernel,
        kernel,
        count,
        scaling,
        bias,
        sampling,
        why_sampling,
        job.landmark_file,
        job.seed,
        job.cutoff,
        stored_bytes=bytes_per_row(store.layout.columns, store.layout.rows, store.layout.nonzeros),
    )


def landmark_count(job: FitJob | EmbedJob) -> int:
    """Return the number of landmarks that a job asks for by a number or a file. Raises UsageError, MissingError,
    DataError.
    """
    if job.landmarks is not None and job.landmark_file is not None:
        raise UsageError("both a number of landmarks and a file of them are given", hint="leave one out")
    if job.landmark_file is not None:
        return len(open_landmarks(Path(job.landmark_file)))
    assert job.landmarks is not None, "the caller has checked ``wants_landmarks``"
    return job.landmarks


def choose_sampling(job: FitJob | EmbedJob) -> tuple[str, str | None]:
    """Return the sampling of landmarks, and the reason for it if the job has ``auto``.

    A fit samples greedily the landmarks that explain the labels best. Labels are not used in three cases: the fit learns
    probabilities from the same rows; it learns one class; or the job makes an embedding, which later fits may use with
    held-out rows.
    """
    if job.sampling != AUTO_SAMPLING:
        return job.sampling, None
    if job.landmark_file is not None:
        return UNIFORM, None
    if isinstance(job, EmbedJob):
        return UNIFORM, "an embedding is made without labels"
    if job.needs_scores:
        option = "--threshold" if job.calibrate is None else "--calibrate"
        return UNIFORM, f"{option} needs rows whose labels were not used to choose landmarks"
    if job.one_class:
        return UNIFORM, "one class is learned without labels"
    return GREEDY, "labels may be used to choose landmarks"


def check_no_label_leakage(store: Store, request: NystromRequest | None, option: str) -> None:
    """Raise UsageError if landmarks were chosen by the labels of rows that shall be held out.

    ``option``: the words for the option that holds rows out, with which the message begins. The landmarks are those of
    ``request``, or of ``store`` if it is an embedding.
    """
    embedding = store.facts.get("embedding") or {}
    description = request.describe() if request is not None else embedding
    if description.get("sampling") != GREEDY or description["landmarks"] >= store.layout.rows:
        return
    where = (
        "--sampling greedy"
        if request is not None
        else f"{store.name}, an embedding that was made with --sampling greedy"
    )
    raise UsageError(
        f"{option} cannot be combined with {where}: landmarks were chosen by the labels of the rows held out",
        hint="choose landmarks without labels: --sampling uniform, leverage or kmeans++",
    )


@dataclass(frozen=True, slots=True)
class StorageChoice:
    """The decision whether features are stored, with the estimates of time behind it, in seconds."""

    where: str
    """'disk' or 'fly'."""
    why: str
    """The reason, in words."""
    dtype: str
    """The dtype of features on disk."""
    map_seconds: float = 0.0
    """Time per pass for computing, on the fly, what the solver needs of the features."""
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


def choose_embedding(
    job: FitJob, store: Store, request: NystromRequest, expected: tuple[int, int] | None
) -> StorageChoice:
    """Choose whether a fit stores its features on disk or computes them on the fly.

    ``expected``: the expected number of passes, and the number of rows whose features are computed, summed over these
    passes; None for a solver that needs the features of all rows in dozens of passes. On the fly, a pass computes the
    kernel values of all rows, and the features that the solver needs; on disk, all features are computed once. Nothing
    is measured if all passes together take few multiplications (``FEW_PRODUCTS``).
    """
    from streamsvm.schedule.machine import disk_speed

    if job.embedding != AUTO:
        return StorageChoice(job.embedding, "asked for", job.embedding_dtype)
    layout, m = store.layout, request.landmarks
    if probe_bytes(layout.columns, m) > budget.memory_limit(job.memory) - budget.anonymous_bytes():
        return StorageChoice(DISK, "not measured: the map alone exceeds the memory limit", job.embedding_dtype)
    rows, passes = layout.rows, DEFAULT_PASSES if expected is None else expected[0]
    if passes * rows * m * (layout.columns + m) <= FEW_PRODUCTS:
        why = f"{passes} passes on the fly take less than about a second"
        return StorageChoice(ON_THE_FLY, why, job.embedding_dtype, passes=passes)
    cost = measure_map(layout.columns, request)
    if expected is None:
        fly_seconds = passes * rows * (cost.features + cost.gradient)
    else:
        fly_seconds = passes * rows * cost.factored_gradient + expected[1] * cost.features
    disk = disk_speed(Path(job.model).parent)
    nbytes = rows * m * BYTES_OF_TYPE[job.embedding_dtype]
    cached = nbytes <= budget.page_cache_bytes(budget.memory_limit(job.memory))
    write_seconds = nbytes / disk["write"]
    read_seconds = max(nbytes / (disk["read"] * (4 if cached else 1)), rows * cost.gradient)
    disk_seconds = max(rows * cost.features, write_seconds) + passes * read_seconds
    has_free_space = shutil.disk_usage(Path(job.model).parent).free > FREE_DISK_FACTOR * nbytes
    where = DISK if disk_seconds < fly_seconds and has_free_space else ON_THE_FLY
    why = f"{passes} passes take an estimated {fly_seconds:.3g} s on the fly, {disk_seconds:.3g} s from disk" + (
        "" if has_free_space else "; there is not enough free disk space"
    )
    return StorageChoice(where, why, job.embedding_dtype, fly_seconds / passes, read_seconds, write_seconds, passes)


class MapCost(NamedTuple):
    """The cost of the map, in seconds per row."""

    factored_gradient: float
    """Time for the kernel values of a row, and for its margin and gradient from the low-rank factors of its features."""
    features: float
    """Time for the features of a row."""
    gradient: float
    """Time for margin and gradient of a row whose features exist."""


def probe_bytes(columns: int, landmarks: int) -> int:
    """Return the memory of ``measure_map`` in bytes: two copies of the landmarks, a projection, and PROBE_ROWS rows with
    their kernel values and features.
    """
    return 4 * (2 * landmarks * columns + landmarks**2 + PROBE_ROWS * (columns + 2 * landmarks))


def measure_map(columns: int, request: NystromRequest) -> MapCost:
    """Measure the cost of the map, and of margins and gradients, on random rows with ``columns`` columns."""
    from streamsvm.compute.blocks.operators import Factored, adjoint, margins
    from streamsvm.compute.kernel_values.kernel_matrix import kernel_block, points_of
    from streamsvm.features.nystrom import part_rows

    m, random = request.landmarks, np.random.default_rng(0)
    X = Dense(random.random((PROBE_ROWS, columns), np.float32))
    points, W = points_of(random.random((m, columns), np.float32)), random.random((m, m), np.float32)
    values, features = (np.empty((PROBE_ROWS, m), np.float32) for _ in range(2))
    w = np.zeros(m + 1)

    def compute_gradient(block: RowRecord) -> None:
        adjoint(block, margins(block, w) + 1.0, m)

    def compute_factored_gradient() -> None:
        kernel_block(X, points, request.kernel, values)
        compute_gradient(Factored(values, W))

    def compute_features() -> None:
        kernel_block(X, points, request.kernel, values)
        np.matmul(values, W, out=features)

    with threadpool_limits(1):
        factored_seconds = _measure_seconds(compute_factored_gradient)
        # W w and W'(sum a k) are computed once per part, whatever its number of rows
        seconds_per_part = _measure_seconds(lambda: compute_gradient(Factored(values[:1], W)))
        feature_seconds = _measure_seconds(compute_features)
        gradient_seconds = _measure_seconds(lambda: compute_gradient(Dense(features)))
    row_seconds = max(gradient_seconds, factored_seconds - seconds_per_part) / PROBE_ROWS
    factored_gradient = row_seconds + seconds_per_part / part_rows(m)
    return MapCost(factored_gradient, feature_seconds / PROBE_ROWS, gradient_seconds / PROBE_ROWS)


def _measure_seconds(action: Callable[[], object]) -> float:
    """Return the CPU seconds of this thread for an action: the minimum of three runs, after a first run that may
    compile the code.
    """
    action()
    times = []
    for _ in range(3):
        began = time.thread_time()
        action()
        times.append(time.thread_time() - began)
    return min(times)


def build_kernel(name: str, options: dict[str, float], gamma: str, store: Store, scaling: Raw | Standardized) -> Kernel:
    """Return the kernel with gamma resolved from the store's column statistics. Raises UsageError."""
    kernel_class = KERNELS[name]
    kernel: Kernel = build_from_settings(kernel_class, options, f"kernel '{name}'")
    degree = options.get("degree", 1.0)
    if degree != int(degree):
        raise UsageError(f"a degree of {degree} is not a whole number", hint="for example degree=3")
    if kernel.gamma is None or "gamma" in options:
        return kernel
    kernel_scaling = scale_for_kernel(kernel, scaling, store)
    return kernel.with_gamma(resolve_gamma(gamma, store, kernel_scaling, city_block=kernel.city_block()))


def scale_for_kernel(kernel: Kernel, scaling: Raw | Standardized, store: Store) -> Raw | Standardized:
    """Return the scaling of rows for a kernel: with centering if the kernel is translation-invariant, else with the
    offsets of columns restored.
    """
    return center(scaling, store) if kernel.translation_invariant() else undo_column_offsets(scaling, store)


def undo_column_offsets(scaling: Raw | Standardized, store: Store) -> Raw | Standardized:
    """Return the scaling with the subtracted offsets of columns added again, for functions that depend on where 0 is.

    The stored value x - o gets the offset o of its column back in float32; the result is rounded to float32 at the size
    of x. Columns that are centered stay centered.
    """
    offsets = offsets_of_store(store.facts)
    if not len(offsets.columns):
        return scaling
    shift, scale = np.zeros(store.layout.columns, np.float32), np.ones(store.layout.columns, np.float32)
    if isinstance(scaling, Standardized):
        shift, scale = scaling.shift.copy(), scaling.scale
    uncentered = offsets.columns[shift[offsets.columns] == 0.0]
    shift[uncentered] = -offsets.at(np.arange(store.layout.columns))[uncentered]
    return Standardized(shift, scale, scaling.bias)


def parameters_of(kernel: Kernel) -> dict[str, float]:
    """Return the settings of a kernel by name."""
    named_tuple: Any = kernel  # each kernel is a NamedTuple of floats, which a protocol cannot say
    return {name: float(value) for name, value in named_tuple._asdict().items()}


def resolve_gamma(rule: str, store: Store, scaling: Raw | Standardized, *, city_block: bool) -> float:
    """Return gamma as a number. Column statistics are read only if the rule needs them."""
    from streamsvm.features.scaling import moments_seen_by_kernel
    from streamsvm.kernels import choose_gamma

    try:
        return choose_gamma(float(rule), np.zeros(1), np.zeros(1))
    except ValueError:
        pass
    is_scaled = isinstance(scaling, Standardized)
    shift, scale = (scaling.shift, scaling.scale) if is_scaled else (None, None)  # type: ignore[union-attr]
    mean, variance = moments_seen_by_kernel(store.statistics(), store.layout.rows, shift, scale)
    return choose_gamma(rule, mean, variance, city_block=city_block)


def layout_of_features(layout: Layout, landmarks: int, *, exact: bool = False, kept_bytes: int = 0) -> Layout:
    """Return the layout of the features: dense, with at most as many columns as landmarks, and chunks cut into parts.

    ``exact``: the features are float64, and parts have half as many rows. ``kept_bytes``: as in ``NystromRequest``.
    """
    from streamsvm.features.nystrom import part_rows

    part = part_rows(landmarks) // (2 if exact else 1)
    chunks = tuple(min(part, rows - start) for rows in layout.chunks for start in range(0, rows, part))
    entry = 8 if exact else 4
    return replace(layout, columns=landmarks, chunks=chunks, nonzeros=None, entry_bytes=entry, kept_bytes=kept_bytes)


def embedding_terms(request: NystromRequest, layout: Layout, bytes_after_map: int = 0, threads: int = 1) -> list[Term]:
    """Return the memory of the map: landmarks, projection, buffers of each thread, and the factorization.

    ``bytes_after_map``: bytes that are allocated only after the map is built. Only the part of the factorization that
    exceeds these bytes and the buffers is counted.
    """
    from streamsvm.features.landmarks import greedy_bytes, kmeanspp_bytes, sampler_bytes
    from streamsvm.features.nystrom import map_bytes, part_rows

    m = request.landmarks
    points, precision = 4 * m * (layout.columns + 1), "float32 and float64" if request.exact else "float32"
    buffers = threads * map_bytes(m, m, factored=request.factored)
    factorization = 36 * m * m + 3 * points
    if request.sampling == "leverage":
        factorization = max(factorization, sampler_bytes(min(m, MAX_LEVERAGE_ROWS)) + points)
    if request.sampling == "kmeans++":
        candidates = count_kmeanspp_candidates(m, layout.rows)
        factorization = max(factorization, kmeanspp_bytes(candidates, layout.columns, m) + points)
    if request.sampling == GREEDY:
        factorization = max(factorization, greedy_bytes(m, layout) + points)
    disk = [
        Term("embedding in flight", 8 * CHUNK_BYTES, f"8 x {mib(CHUNK_BYTES)}: read, unpacked, being written"),
        feature_blocks_term(CHUNK_BYTES, layout, m, threads),
    ]
    return [
        *(disk if request.on_disk else []),
        Term("landmarks", 3 * points, f"{m} x {layout.columns} float32, and float64 for certificates"),
        Term("projection", (12 if request.exact else 4) * m * m, f"{m} x {m} {precision} at most"),
        Term("feature buffers", buffers, f"{threads} x {part_rows(m)} rows at a time"),
        Term(
            "factorization",
            max(0, factorization - buffers - bytes_after_map),
            "the landmarks' kernel matrix in float64, before training",
        ),
    ]


def feature_blocks_term(chunk_bytes: int, layout: Layout, landmarks: int, threads: int) -> Term:
    """Return the memory for blocks of rows whose features are being computed by ``threads`` threads, or wait to be
    written. A written chunk has ``chunk_bytes`` bytes.
    """
    rows = max(1, chunk_bytes // (4 * landmarks))
    stored_bytes = min(rows, layout.largest_chunk) * layout.bytes_in_memory // layout.rows
    count = (1 + RESULTS_AHEAD_PER_THREAD) * threads if threads > 1 else 1
    nbytes = count * chunk_bytes + threads * stored_bytes
    return Term("pieces being embedded", nbytes, f"{count} x {mib(chunk_bytes)} of features")


def count_kmeanspp_candidates(landmarks: int, rows: int) -> int:
    """Return the number of candidates from which kmeans++ sampling chooses."""
    return min(rows, max(landmarks, min(CANDIDATES_PER_LANDMARK * landmarks, MAX_CANDIDATES)))


def open_landmarks(path: Path) -> Array:
    """Open the array of a .npy file without reading its rows. Raises MissingError, DataError."""
    if not is_file(path):
        raise MissingError(f"there is no file of landmarks at {path}", hint="a .npy array, one landmark a row")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise DataError(f"{path} is not a .npy array of numbers", hint="np.save(path, rows)") from error
