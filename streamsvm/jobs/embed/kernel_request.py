"""What kernel features are asked for, checked before anything is read: kernel and width, landmarks, memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.config.options import build
from streamsvm.config.units import mib
from streamsvm.engine.executor import AHEAD
from streamsvm.errors import DataError, MissingError, UsageError
from streamsvm.features.scaling import Raw, Standardized, center
from streamsvm.jobs.options import KernelOptions
from streamsvm.kernels import KERNELS
from streamsvm.regular import is_file
from streamsvm.store.sources.offsets import offsets_of_store
from streamsvm.types import Kernel, Layout, Store, Term

if TYPE_CHECKING:
    from streamsvm.compute.kernel_values.gram import Points
    from streamsvm.features.nystrom import Projection

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
"""Rows are kept as they are stored, and their kernel values made again, where a stored row takes so many times less than these. d columns
then are at most an eighth of m landmarks, and d m products little beside the m^2 that features of the row cost anyway. What it saves
is copies of many more rows than a sample has in the end, which took more of a pass than all its arithmetic with 18 columns."""


class LandmarkJob(Protocol):
    """A job that can ask for kernel features, a fit or an embedding; its options say more of each."""

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        ...

    @property
    def kernel_options(self) -> dict[str, float]:
        """The kernel's settings by name."""
        ...

    @property
    def gamma(self) -> float | str:
        """The width, or the rule that gives it."""
        ...

    @property
    def landmarks(self) -> int | None:
        """The number of landmarks; None where there are none, or a file of them."""
        ...

    @property
    def landmark_file(self) -> str | None:
        """A .npy file of landmarks; None draws them."""
        ...

    @property
    def sampling(self) -> str:
        """How landmarks are drawn, or ``auto``."""
        ...

    @property
    def seed(self) -> int:
        """What landmarks are drawn from."""
        ...

    @property
    def cutoff(self) -> float:
        """The share of the largest eigenvalue below which directions are left out."""
        ...


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

    def seen(self, layout: Layout) -> Layout:
        """Return the layout of the stored rows as a solver sees them through the map."""
        return seen_layout(layout, self.landmarks, exact=self.exact, kept_bytes=self.kept_bytes)

    def projection(self, points: Points) -> Projection:
        """Return the map of landmarks ``points`` with this kernel and cutoff. Raises what ``make_projection`` raises."""
        from streamsvm.features.nystrom import make_projection

        return make_projection(points, self.record, self.inner, self.cutoff)

    def describe(self) -> JsonObject:
        """Return the request as plain JSON."""
        drawn = {"landmarks": self.landmarks, "sampling": self.file or self.sampling, "seed": self.seed}
        return {"kernel": self.kernel, **parameters_of(self.record), **drawn, "cutoff": self.cutoff}


def wanted(job: LandmarkJob) -> bool:
    """Return whether a job asks for landmarks."""
    return job.landmarks is not None or job.landmark_file is not None


def check_labels_unseen(store: Store, request: NystromRequest | None, held_out: str) -> None:
    """Raise UsageError where the labels of rows that are to be held out have chosen the landmarks.

    ``held_out``: what holds rows out, as the beginning of a sentence. The landmarks are those of ``request``, or of ``store`` where it is an embedding.
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


def landmark_count(job: LandmarkJob) -> int:
    """Return how many landmarks a job asks for, by number or by a file of them. Raises UsageError, MissingError, DataError."""
    if job.landmarks is not None and job.landmark_file is not None:
        raise UsageError("both a number of landmarks and a file of them are given", hint="leave one out")
    if job.landmark_file is not None:
        return len(landmark_file(Path(job.landmark_file)))
    assert job.landmarks is not None, "``wanted`` comes first"
    return job.landmarks


def choose_sampling(job: LandmarkJob) -> tuple[str, str | None]:
    """Return how the landmarks of a job are drawn, and why where the job leaves that to us (``auto``).

    A fit draws those that explain the labels best. Labels have no say where the fit learns probabilities from the same rows, or
    one class, nor in an embedding, which serves fits that hold rows out.
    """
    if job.sampling != AUTO_SAMPLING:
        return job.sampling, None
    if job.landmark_file is not None:
        return UNIFORM, None
    if not hasattr(job, "calibrate"):
        return UNIFORM, "an embedding is made without labels"
    if job.calibrate is not None:
        return UNIFORM, "--calibrate learns from rows whose labels may not choose landmarks"
    if getattr(job, "one_class", False):
        return UNIFORM, "one class is learned without labels"
    return GREEDY, "labels may choose them"


def request_of(job: LandmarkJob, store: Store, inner: Raw | Standardized, bias: float = 0.0) -> NystromRequest | None:
    """Return what a fit or embed job asks for, checked; None when it asks for no landmarks. Raises UsageError."""
    if not wanted(job):
        return None
    if job.sampling == GREEDY and getattr(job, "one_class", False):
        raise UsageError(
            "sampling 'greedy' chooses landmarks by labels, and one class is learned without",
            hint="--sampling uniform, leverage or kmeans++",
        )
    from streamsvm.compute.blocks.selection import bytes_per_row

    count = landmark_count(job)
    record = kernel_record(job.kernel, job.kernel_options, str(job.gamma), store, inner)
    count = min(count, store.layout.rows) if job.landmark_file is None else count
    inner = seen_by(record, inner, store)
    drawn = (*choose_sampling(job), job.landmark_file, job.seed, job.cutoff)
    stored = bytes_per_row(store.layout.columns, store.layout.rows, store.layout.nonzeros)
    return NystromRequest(job.kernel, record, count, inner, bias, *drawn, stored_bytes=stored)


def kernel_record(name: str, options: dict[str, float], gamma: str, store: Store, inner: Raw | Standardized) -> Kernel:
    """Return the kernel with its width resolved from the store's statistics. Raises UsageError."""
    kind = KERNELS[name]
    kernel: Kernel = build(kind, options, f"kernel '{name}'")
    degree = options.get("degree", 1.0)
    if degree != int(degree):
        raise UsageError(f"a degree of {degree} is not a whole number", hint="for example degree=3")
    if kernel.gamma is None or "gamma" in options:
        return kernel
    seen = seen_by(kernel, inner, store)
    return kernel.with_gamma(resolved_gamma(gamma, store, seen, city_block=kernel.city_block()))


def seen_by(kernel: Kernel, inner: Raw | Standardized, store: Store) -> Raw | Standardized:
    """Return the map from stored rows to what a kernel is evaluated on: near 0 where that changes nothing, else where they lie."""
    return center(inner, store) if kernel.translation_invariant() else where_they_lie(inner, store)


def where_they_lie(inner: Raw | Standardized, store: Store) -> Raw | Standardized:
    """Return the same map of rows whose columns are not less an offset, for functions that are others about another zero.

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


def resolved_gamma(rule: str, store: Store, inner: Raw | Standardized, *, city_block: bool) -> float:
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


def seen_layout(layout: Layout, landmarks: int, *, exact: bool = False, kept_bytes: int = 0) -> Layout:
    """Return the layout as a solver sees it through the map: dense, as many columns as landmarks at most, in parts.

    ``exact``: the features are float64, half as many rows at a time. ``kept_bytes``: see ``NystromRequest``.
    """
    from streamsvm.features.nystrom import part_rows

    part = part_rows(landmarks) // (2 if exact else 1)
    chunks = tuple(min(part, rows - start) for rows in layout.chunks for start in range(0, rows, part))
    entry = 8 if exact else 4
    return replace(layout, columns=landmarks, chunks=chunks, nonzeros=None, entry_bytes=entry, kept_bytes=kept_bytes)


def memory_terms(request: NystromRequest, layout: Layout, later: int = 0, threads: int = 1) -> list[Term]:
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
    """Return the bytes of pieces that are mapped by so many threads, and wait to be written in chunks of ``chunk`` bytes."""
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
