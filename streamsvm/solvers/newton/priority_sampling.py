"""Priority sampling: a sample of the rows of a pass, in which rows that matter more to the objective are likelier.

Priority sampling (Duffield, Lund, Thorup, J. ACM 2007) keeps the ``limit`` rows with the smallest keys u_i / score_i,
where u_i is uniform in (0, 1). With the threshold t, the next larger key, a sampled row counts 1 / min(1, t score_i)
times. Sums over the sample are then unbiased, and rows with a large score are certain to be in it. The u_i are hashes
of row numbers, so the sample is a function of the rows, and the samples of two workers merge into the sample that one
worker would have drawn. The threshold of a subset of the rows is never below that of all rows: a worker that knows the
threshold of one group of rows can discard rows of the next group whose keys are larger.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.curves import Curved
from streamsvm.compute.blocks.operators import arrays_of, form_rows
from streamsvm.compute.passes.priority_sampling import keys_pass
from streamsvm.rows import CSR, Dense, Float32, Float64, Int64, Targets
from streamsvm.solvers.newton.preconditioner import max_explicit_components
from streamsvm.type_aliases import RowRecord
from streamsvm.types import Block, Problem
from streamsvm.types.state import Smallest, Total, merge_states

ROWS, ROWS_PER_COMPONENT = 50_000, 100
"""Rows of a sample: the first number, or the second times the components (columns + 1), whichever is larger."""
MAX_BYTES, MIN_ROWS = 64 << 20, 20_000
"""Maximum bytes of a sample, and the number of rows that it has even if they take more bytes."""
MIN_USEFUL_ROWS, MIN_USEFUL_ROWS_PER_COMPONENT = 2_000, 20
"""Rows, and rows for each component, below which a sample is useless. Samples shrink to this size if memory is
short."""
MIN_SHARE, MAX_SHARE = 0.01, 0.25
"""Bounds of the sampled fraction of rows, if there are too many columns for an explicit Hessian
(``solvers.newton.sampled_steps``)."""
ALL_ROWS_FACTOR, ALL_ROWS_MAX_BYTES = 3, 1 << 30
"""All rows are used if there are at most this many times as many as in a sample, and dense rows take at most this many
bytes."""
SAMPLE_COPIES, ALL_ROWS_COPIES, ALL_ROWS_BYTES_PER_ROW = 4, 2, 40
"""Copies of its sample that a problem holds during a pass, with the candidates for the next one (measured: up to 5.9);
copies of all rows while they are put together; bytes of each row and problem besides its entries: sign, weight,
margin, row number and dual variable. On 494,021 rows x 118 columns of 23 classes all rows take 1.5 GiB and 103 CPU
seconds, samples 3.5 GiB and 201."""
WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT = 2_000, 40
"""Methods that start far from the optimum start with a subsample, every k-th row, of at least this many rows."""
CANDIDATE_FACTOR, CANDIDATE_FACTOR_WIDE = 2.0, 1.25
"""Multiples of ``limit`` up to which candidates are kept before they are reduced to ``limit``; the second one for
samples that are to fill the memory."""
STORED_BYTES_PER_ROW, JOINING_BYTES_PER_ROW, SOLVING_BYTES_PER_ROW = 56, 100, 220
"""Bytes per row besides its entries: sign, weight, key, score, margin and row number; copies while parts are
concatenated; float64 arrays of the interior-point method and of a model."""


def is_wide(problem: Problem) -> bool:
    """Return whether there are too many columns for an explicit Hessian."""
    return problem.columns + 1 > max_explicit_components(dense=problem.nonzeros is None)


def min_useful_rows(problem: Problem) -> int:
    """Return the least number of rows for which a sample is useful."""
    if is_wide(problem):
        return min(problem.rows, max(MIN_USEFUL_ROWS, int(MIN_SHARE * problem.rows)))
    by_columns = MIN_USEFUL_ROWS_PER_COMPONENT * (problem.columns + 1)
    return max(MIN_USEFUL_ROWS, min(by_columns, MAX_BYTES // row_bytes(problem)))


def sample_rows(asked: int | None, problem: Problem) -> int:
    """Return the number of rows of the first model: ``asked`` by the user, else all rows if they are not many more than
    in a sample of the default size.

    In sparse data with rare columns every row matters to some column, and the default number of rows for each component
    is more than there are rows.
    """
    rows, p = asked or default_rows(problem), problem.columns + 1
    if problem.nonzeros is None:
        uses_all = problem.rows <= ALL_ROWS_FACTOR * rows and problem.rows * row_bytes(problem) <= ALL_ROWS_MAX_BYTES
    else:
        uses_all = problem.rows <= ALL_ROWS_FACTOR * max(ROWS, ROWS_PER_COMPONENT * p)
    return problem.rows if uses_all and not asked else min(problem.rows, rows)


def is_cheaper_than_samples(problem: Problem, same_rows: int) -> bool:
    """Return whether one copy of all dense rows, which ``same_rows`` problems share, takes less memory than a sample
    for each of them.
    """
    if problem.nonzeros is not None or problem.kind.selects_rows or problem.kind.classes or is_wide(problem):
        return False
    if not problem.loss.quadratic() or sample_rows(None, problem) == problem.rows:
        return False
    row = row_bytes(problem)
    samples = same_rows * SAMPLE_COPIES * sample_rows(None, problem) * row
    whole = problem.rows * (ALL_ROWS_COPIES * row + same_rows * ALL_ROWS_BYTES_PER_ROW)
    return problem.rows * row <= ALL_ROWS_MAX_BYTES and whole < samples


def default_rows(problem: Problem) -> int:
    """Return the default number of rows of a sample."""
    p = problem.columns + 1
    return max(MIN_ROWS, min(max(ROWS, ROWS_PER_COMPONENT * p), MAX_BYTES // row_bytes(problem)))


def sample_bytes(problem: Problem) -> int:
    """Return the peak bytes per sampled row of a wide problem, while rows are gathered, concatenated and solved for."""
    stored = row_bytes(problem) + STORED_BYTES_PER_ROW
    return max(int(CANDIDATE_FACTOR_WIDE * stored) + JOINING_BYTES_PER_ROW, stored + SOLVING_BYTES_PER_ROW)


def row_bytes(problem: Problem) -> int:
    """Return the average bytes of the entries of a row in memory, as float32 (CSR: with int32 indices)."""
    if problem.nonzeros is None:
        return 4 * (problem.columns + 1)
    return 8 * (1 + -(-problem.nonzeros // max(1, problem.rows)))


@saved_as("newton.sample")
class Sample(NamedTuple):
    """Sampled rows, in the order of their global row numbers."""

    X: Any
    """The rows, dense, CSR or of curves. Kernel features of low-rank blocks are formed for them after the pass."""
    y: Targets
    """(n,) +1 or -1, or numbers."""
    s: Float32 | Float64
    """(n,) row weight times class weight, above 0."""
    probability: Float64
    """(n,) in (0, 1], the probability that the row is sampled. The row stands for 1 / probability rows."""
    f: Float64
    """(n,) x_i.w at the point of the pass, as computed in the pass."""
    row: Int64
    """(n,) global row numbers, rising."""
    complete: bool
    """Whether the sample contains all rows with a positive weight."""
    offset: Float64 | None = None
    """(n,) what is added to x_i.w in the decision values; None: nothing."""

    def with_margins(self, margins: list[tuple[int, Float64]]) -> Sample:
        """Return the same rows with the ``f`` of another pass, given by block as (number of its first row, f (k,))."""
        f = np.empty_like(self.f)
        for start, block_f in margins:
            low, high = np.searchsorted(self.row, (start, start + len(block_f)))
            f[low:high] = block_f[self.row[low:high] - start]
        return self._replace(f=f)

    def take_every(self, step: int) -> Sample:
        """Return every ``step``-th row."""
        chosen = np.zeros(len(self.y), np.bool_)
        chosen[::step] = True
        return self.select(chosen)

    def select(self, chosen: NDArray[np.bool_]) -> Sample:
        """Return the chosen rows, without their offset."""
        y, s, probability = self.y[chosen], self.s[chosen], self.probability[chosen]
        return Sample(
            operators.where(self.X, chosen), y, s, probability, self.f[chosen], self.row[chosen], complete=False
        )


@saved_as("newton.sample_part")
class _Part(NamedTuple):
    X: Any
    y: Targets
    s: Float32 | Float64
    keys: Float64
    scores: Float64
    f: Float64
    row: Int64
    """Global numbers."""

    def select(self, chosen: NDArray[np.bool_]) -> _Part:
        return self if chosen.all() else self.copy_rows(chosen)

    def copy_rows(self, chosen: NDArray[np.bool_], copies: dict[bytes, RowRecord] | None = None) -> _Part:
        """Return a copy of the chosen rows. ``copies`` caches the copies made from this block, by the mask that chose
        them.
        """
        copies = {} if copies is None else copies
        index = np.flatnonzero(chosen)  # computed once, because with few chosen rows this takes most of the time
        per_row: list[Any] = [values.take(index) for values in self[1:]]
        key = chosen.tobytes()
        if key not in copies:
            copies[key] = operators.keep_rows(self.X, chosen)
        return _Part(copies[key], *per_row)


@saved_as("newton.sampler")
@dataclass(slots=True)
class PrioritySampler:
    """A priority sampler: keeps the rows with the ``limit`` smallest keys of a pass."""

    limit: int
    """Maximum number of sampled rows."""
    salt: int = 0
    """The number of the pass. It is hashed with the row number to draw u_i."""
    threshold: Smallest[float] = np.inf
    """Rows with this key or a larger one are not in the sample; inf as long as there are at most ``limit`` rows."""
    held: Total[int] = 0
    """The number of rows in ``parts``."""
    parts: Total[list[_Part]] = field(default_factory=list)
    """The candidates kept so far in this pass, one part for each block. Their keys are below the ``threshold`` at the
    time of the visit."""
    candidate_factor: float = CANDIDATE_FACTOR
    """Candidates are reduced to ``limit`` when there are more than this many times ``limit``."""

    def bound(self) -> float:
        """Return a key such that no row of this pass with that key or a larger one can be in the sample."""
        if self.held > self.limit:
            self._discard()
        return self.threshold

    def add(self, block: Block, f: Float64, scores: Float64) -> None:
        """Add the rows of a block, with decision values f (n,) and sampling scores (n,), to the candidates."""
        keys = np.empty(len(scores))
        keys_pass(scores, block.start, self.salt, keys)
        chosen = keys < self.threshold
        count = int(np.count_nonzero(chosen))
        if not count:
            return
        row = block.numbers
        self.parts.append(_Part(block.X, block.y, block.s, keys, scores, f, row).copy_rows(chosen, block.copies))
        self.held += count
        if self.held > self.candidate_factor * self.limit:
            self._discard()

    def merge(self, other: PrioritySampler) -> None:
        """Add the candidates of another part of the pass, and keep the smallest keys of both."""
        merge_states([self, other])
        self._discard()

    def _discard(self) -> None:
        keys = np.concatenate([part.keys for part in self.parts] or [np.empty(0)])
        if len(keys) > self.limit:
            self.threshold = min(self.threshold, float(np.partition(keys, self.limit)[self.limit]))
        for k, part in enumerate(self.parts):  # one part at a time, so that there are never two copies of all rows
            self.parts[k] = part.select(part.keys < self.threshold)
        self.held = sum(len(part.keys) for part in self.parts)

    def sample(self) -> Sample | None:
        """Return the sample in the order of row numbers, and release the candidates; None if there is no row."""
        if not self.sort():
            return None
        if len(self.parts) > 1 or not isinstance(self.parts[0].X, Dense | CSR | Curved):
            _join([self])
        X, y, s, _, scores, f, row = self.parts.pop()
        complete = bool(self.threshold == np.inf)
        probability = np.ones(len(scores)) if complete else np.minimum(1.0, scores * self.threshold)
        return Sample(X, y, s, probability, f, row, complete)

    def sort(self) -> tuple[int, ...]:
        """Discard all rows that are not in the sample, sort the parts by row number, and return the identities of their
        arrays.
        """
        self._discard()
        # Each part is a range of rows. Sorted parts need no sorting of rows afterwards, which would take another copy.
        self.parts = sorted((part for part in self.parts if len(part.row)), key=lambda part: part.row[0])
        return tuple(id(array) for part in self.parts for array in arrays_of(part.X))


def share_equal_rows(samplers: list[PrioritySampler]) -> None:
    """Concatenate the parts of samplers that hold the same rows, and let these samplers share one copy of them."""
    alike: dict[tuple[int, ...], list[PrioritySampler]] = {}
    for sampler in samplers:
        alike.setdefault(sampler.sort(), []).append(sampler)
    for key, several in alike.items():
        if key and len(several) > 1:
            _join(several)


def _join(samplers: list[PrioritySampler]) -> None:
    blocks, order = [part.X for part in samplers[0].parts], np.empty(0, np.int64)
    joined = []
    for sampler in samplers:
        values = [np.concatenate([part[k] for part in sampler.parts]) for k in range(1, len(_Part._fields))]
        order = np.argsort(values[-1], kind="stable")  # the same for all samplers, as they hold the same rows
        joined.append([array[order] for array in values])
        sampler.parts = []  # ``blocks`` has the only references now, so that each part is freed once it is concatenated
    X = form_rows(blocks, order)
    for sampler, values in zip(samplers, joined, strict=True):
        sampler.parts = [_Part(X, *values)]
