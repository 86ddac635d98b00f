"""A sample of the rows of a pass, each found with a probability that grows with what it means to the objective.

Priority sampling (Duffield, Lund, Thorup, J. ACM 2007): the rows of the ``limit`` smallest keys u_i / score_i stay. A
row counts 1 / min(1, t score_i) times, t the next key after those: sums over the sample are unbiased, and a row of
large score is certain to be there. The sample is a function of the rows alone, so two workers' samples join into what
one worker would have found. The t of some of the rows is never below that of all: a worker that knows it from one group
of rows need not keep, of the next, what lies beyond.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import RowRecord
from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.operators import arrays_of, form_rows
from streamsvm.compute.passes.priority_sampling import keys_pass
from streamsvm.rows import CSR, Dense, Float32, Float64, Int64, Targets, row_where
from streamsvm.solvers.newton.preconditioner import most_explicit
from streamsvm.types import Block, Problem
from streamsvm.types.state import Smallest, Total, merge_states

ROWS, PER_COMPONENT = 50_000, 100
"""Rows of a sample: the larger of this number and this number for each component."""
LARGEST, FEWEST = 64 << 20, 20_000
"""Bytes of a sample at most, and rows that it has even if these take more."""
LEAST, LEAST_PER_COMPONENT = 2_000, 20
"""Rows, and rows for each component, below which a sample is of no use where memory is short."""
LEAST_SHARE, LARGEST_SHARE = 0.01, 0.25
"""Shares of all rows between which a sample is where columns are too many for a matrix
(``solvers.newton.sampled_steps``)."""
WHOLE, LARGEST_WHOLE = 3, 1 << 30
"""All rows are taken where there are at most this many times as many, of dense rows in at most this many bytes."""
WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT = 2_000, 40
"""A method that begins far from the optimum begins with every k-th row, at least this many in all."""
SPARE, SPARE_WIDE = 2.0, 1.25
"""Multiples of ``limit`` that may be held before rows are thrown out: usually, and where the sample is to fill the
memory."""
STORED_ARRAYS, JOINED_ARRAYS, SOLVED_ARRAYS = 56, 100, 220
"""Bytes a row, beside its entries: sign, weight, key, score, margin and number; copies while parts are joined; float64
arrays of an interior point and of a model."""


def is_wide(problem: Problem) -> bool:
    """Return whether columns are too many for the Hessian to be a matrix."""
    return problem.columns + 1 > most_explicit(dense=problem.nonzeros is None)


def least_rows(problem: Problem) -> int:
    """Return the least number of rows of a sample that is of use."""
    if is_wide(problem):
        return min(problem.rows, max(LEAST, int(LEAST_SHARE * problem.rows)))
    return max(LEAST, min(LEAST_PER_COMPONENT * (problem.columns + 1), LARGEST // row_bytes(problem)))


def sample_rows(asked: int | None, problem: Problem) -> int:
    """Return the number of rows a model is made of at first: all, where they are not much more than are usual.

    Where columns are rare every row matters to some of them: so many rows for each component are more than there are.
    """
    rows, p = asked or usual_rows(problem), problem.columns + 1
    if problem.nonzeros is None:
        few = problem.rows <= WHOLE * rows and problem.rows * row_bytes(problem) <= LARGEST_WHOLE
    else:
        few = problem.rows <= WHOLE * max(ROWS, PER_COMPONENT * p)
    return problem.rows if few and not asked else min(problem.rows, rows)


def usual_rows(problem: Problem) -> int:
    """Return the number of rows of a sample, where rows are many."""
    p = problem.columns + 1
    return max(FEWEST, min(max(ROWS, PER_COMPONENT * p), LARGEST // row_bytes(problem)))


def sample_bytes(problem: Problem) -> int:
    """Return the bytes of a row of a sample where columns are many: gathered, then joined and solved for."""
    stored = row_bytes(problem) + STORED_ARRAYS
    return max(int(SPARE_WIDE * stored) + JOINED_ARRAYS, stored + SOLVED_ARRAYS)


def row_bytes(problem: Problem) -> int:
    """Return the bytes of a row in memory, on average."""
    if problem.nonzeros is None:
        return 4 * (problem.columns + 1)
    return 8 * (1 + -(-problem.nonzeros // max(1, problem.rows)))


@saved_as("newton.sample")
class Sample(NamedTuple):
    """Rows in the order of their global numbers ``row``; each was to be found with ``probability``."""

    X: Any
    """The rows, dense or CSR; kernel features of a factored block are formed for them when the pass is over."""
    y: Targets
    """(n,) +1 or -1, or numbers."""
    s: Float32 | Float64
    """(n,) row weight times class weight, above 0 for a row to be here."""
    probability: Float64
    """(n,) in (0, 1]: what a row stands for is one over it."""
    f: Float64
    """x_i.w at the point of the pass, as the pass found it."""
    row: Int64
    """(n,) global row numbers, rising."""
    complete: bool
    """Whether these are all rows that count."""
    offset: Float64 | None = None
    """(n,) what decision values are beside x_i.w; None: nothing."""

    def with_margins(self, margins: list[tuple[int, Float64]]) -> Sample:
        """Return the same rows after another pass, which found f (k,) of the rows from the given numbers on."""
        f = np.empty_like(self.f)
        for start, found in margins:
            low, high = np.searchsorted(self.row, (start, start + len(found)))
            f[low:high] = found[self.row[low:high] - start]
        return self._replace(f=f)

    def every(self, step: int) -> Sample:
        """Return every ``step``-th row."""
        chosen = np.zeros(len(self.y), np.bool_)
        chosen[::step] = True
        return self.where(chosen)

    def where(self, chosen: NDArray[np.bool_]) -> Sample:
        """Return the chosen rows, without their offset."""
        y, s, probability = self.y[chosen], self.s[chosen], self.probability[chosen]
        return Sample(row_where(self.X, chosen), y, s, probability, self.f[chosen], self.row[chosen], complete=False)


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

    def where(self, chosen: NDArray[np.bool_]) -> _Part:
        return self if chosen.all() else self.copy_rows(chosen)

    def copy_rows(self, chosen: NDArray[np.bool_], known: dict[bytes, RowRecord] | None = None) -> _Part:
        """Copy the chosen rows; ``known`` holds the copies there are of rows of this block, by what chose them."""
        known = {} if known is None else known
        index = np.flatnonzero(chosen)  # found once: of few rows, looking for them is what takes the time
        per_row: list[Any] = [values.take(index) for values in self[1:]]
        key = chosen.tobytes()
        if key not in known:
            known[key] = operators.keep_rows(self.X, chosen)
        return _Part(known[key], *per_row)


@saved_as("newton.sampler")
@dataclass(slots=True)
class PrioritySampler:
    """The rows of the smallest keys; keys from ``threshold`` on are out, and count for the probabilities only."""

    limit: int
    """Rows the sample may have."""
    salt: int = 0
    """The number of the pass: with a row's number it makes the row's draw."""
    threshold: Smallest[float] = np.inf
    """Rows of this key or a larger one are out; inf as long as none is known to be."""
    held: Total[int] = 0
    """Rows in ``parts``."""
    parts: Total[list[_Part]] = field(default_factory=list)
    """The rows kept so far in this pass, a part for each block, with keys below ``threshold`` as it was then."""
    spare: float = SPARE
    """Rows are thrown out when there are this many times ``limit``."""

    def bound(self) -> float:
        """Return the key from which on no row of this pass can be in the sample, whatever the other rows are."""
        if self.held > self.limit:
            self._throw_out()
        return self.threshold

    def add(self, block: Block, f: Float64, scores: Float64) -> None:
        """Offer the rows of a block, where x_i.w is f."""
        keys = np.empty(len(scores))
        keys_pass(scores, block.start, self.salt, keys)
        chosen = keys < self.threshold
        count = int(np.count_nonzero(chosen))
        if not count:
            return
        row = block.numbers
        self.parts.append(_Part(block.X, block.y, block.s, keys, scores, f, row).copy_rows(chosen, block.copies))
        self.held += count
        if self.held > self.spare * self.limit:
            self._throw_out()

    def merge(self, other: PrioritySampler) -> None:
        """Join the rows that were kept of other rows: the smallest keys of both stay."""
        merge_states([self, other])
        self._throw_out()

    def _throw_out(self) -> None:
        keys = np.concatenate([part.keys for part in self.parts] or [np.empty(0)])
        if len(keys) > self.limit:
            self.threshold = min(self.threshold, float(np.partition(keys, self.limit)[self.limit]))
        for k, part in enumerate(self.parts):  # one by one: never two copies of all
            self.parts[k] = part.where(part.keys < self.threshold)
        self.held = sum(len(part.keys) for part in self.parts)

    def sample(self) -> Sample | None:
        """Return the rows by number, and keep nothing; None if no row counts."""
        if not self.sort():
            return None
        if len(self.parts) > 1 or not isinstance(self.parts[0].X, Dense | CSR):
            _join([self])
        X, y, s, _, scores, f, row = self.parts.pop()
        complete = bool(self.threshold == np.inf)
        probability = np.ones(len(scores)) if complete else np.minimum(1.0, scores * self.threshold)
        return Sample(X, y, s, probability, f, row, complete)

    def sort(self) -> tuple[int, ...]:
        """Keep the rows of the sample alone, parts in the order of their rows, and return the identities of their
        arrays.
        """
        self._throw_out()
        # parts of ranges of rows, and in sequence: what is joined need not be sorted, which would take another copy
        self.parts = sorted((part for part in self.parts if len(part.row)), key=lambda part: part.row[0])
        return tuple(id(array) for part in self.parts for array in arrays_of(part.X))


def join_alike(samplers: list[PrioritySampler]) -> None:
    """Make one part of all parts of those samplers that keep the same rows, with one copy of the rows for all of
    them.
    """
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
        order = np.argsort(values[-1], kind="stable")  # of the same rows the same
        joined.append([array[order] for array in values])
        sampler.parts = []  # nobody else holds the rows from here on: they are given up while they are joined
    X = form_rows(blocks, order)
    for sampler, values in zip(samplers, joined, strict=True):
        sampler.parts = [_Part(X, *values)]
