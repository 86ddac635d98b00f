"""Kernel C-SVC with a free bias, by decomposition in few readings (the lecture's method, on several levels).

    min_x  1/2 x'Kx + sum_i conjugate(|x_i|) - sum_i y_i x_i    subject to  sum x = 0,    x_i = y_i a_i

for any of our losses. Every row carries a_i and f_i = sum_j x_j k_ij. A pass brings f of each block up to date with the
rows that moved since the last one and offers the block's worst violators to the pool, which is then optimized in memory
(``multilevel.py``). Two pairs of (a, f) must not be mixed up: what a visit finds is of the pass before; the pool knows the
moves made since; a visit first writes its own rows' a and f as the pool left them, then adds to f of all other rows what
the moves are worth. From there on the block belongs to the present a, and so do all sums of the pass: at its end

    P = 1/2 x'Kx + min_b C sum_i s_i l(y_i (f_i + b)),     D = sum_i (a_i - conjugate(a_i)) - 1/2 x'Kx

are those of the a that the moves led to. Any b bounds the optimum; a grid around the last estimate is tried.

Numbers t_i have x_i = a_i, of either sign, with a corner at 0: in a pool each row stays on the side of 0 that it is shown on, and where it ends
at 0 the next pass shows it on the other one if that is where it would go (``compute.passes.coordinates``). A pool's problem is therefore
the same for all. t'x takes the place of y'x.

One class with a free offset rho = -b (``solvers.one_class``) is the same with y_i = 1, a corner at 0 and sum x = nu sum s_i, which adds
nu sum s_i b to P: x begins at its bounds for a draw of rows, as in LIBSVM.

f has added up the rounding of every kernel value that a move was worth: ``drift`` bounds it. Where that is too much for
the certificate that was asked for, f is computed anew from the support in another pass, in float64, for the rows that
have a say (``solvers.kernel.rounding``). If P and D then prove to be apart, f is set right at all rows, and the work goes
on in float64.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.compute.blocks.row_selection import bytes_per_row
from streamsvm.compute.kernel_values.expansion import scratch_bytes
from streamsvm.config.fields import Bounds, Option
from streamsvm.errors import UsageError
from streamsvm.rows import Rows
from streamsvm.solvers.kernel.decomposition.block_update import catch_up, evaluate_anew, measure, rows_of
from streamsvm.solvers.kernel.decomposition.candidates import offer, shorten_offer
from streamsvm.solvers.kernel.decomposition.closing import close_pass
from streamsvm.solvers.kernel.decomposition.model_rows import (
    collect,
    reduce_support,
    shorten_collected,
)
from streamsvm.solvers.kernel.decomposition.multilevel import (
    SAMPLED_FROM,
)
from streamsvm.solvers.kernel.decomposition.pool_work import optimize
from streamsvm.solvers.kernel.decomposition.state import DecompositionState
from streamsvm.solvers.kernel.kernel_cache import values_of, worthwhile
from streamsvm.solvers.kernel.pool import LEAST_POOL, ROW_BYTES, select
from streamsvm.solvers.kernel.reduced_set import (
    SAMPLE_PER_POINT,
    MaxSupport,
    bytes_for,
)
from streamsvm.solvers.kernel.rounding import (
    extended,
    form_of,
    same_arithmetic,
)
from streamsvm.solvers.kernel.working_set import late, matrix_bytes
from streamsvm.types import (
    Block,
    Certificate,
    Cost,
    Layout,
    LossRequirement,
    Problem,
    RowState,
    Solver,
    SupportSolution,
)

FIRST_POOL = 32768
"""Rows of the first pool where not all rows fit one; each next may have twice as many. A large one solved from nothing
is work for an x that is soon another."""
GRACE = 2.0
"""Seconds after the time limit in which f may be computed anew."""


@dataclass(frozen=True, slots=True)
class Decomposition(Solver[DecompositionState]):
    """Settings of the decomposition method."""

    working: Annotated[int, Option("Coordinates optimized together, on their Gram matrix.", bounds=Bounds(least=2))] = (
        2048
    )
    pool: Annotated[
        int, Option("Rows held in memory; more where all rows are few enough to serve.", bounds=Bounds(least=1))
    ] = 32768
    max_support: MaxSupport = 0
    row_state: ClassVar[tuple[RowState, ...]] = (RowState("alpha", "float64"), RowState("f", "float64"))
    """The dual variable a_i of every row and its decision value f_i without the intercept."""
    free_bias: ClassVar[bool] = True
    """True: the intercept is no constant feature and costs nothing, hence sum x = 0."""
    free_offset: ClassVar[bool] = True
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True)
    """The conjugate must be a parabola or a line, so that a pool's problem is a quadratic one in a box."""
    exact_kernel: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of the pool while the next one is made, of a Gram matrix and the support, of a and f a row."""
        row = bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + ROW_BYTES
        rows = min(problem.rows, layout.rows)  # a pair of classes has rows of its own
        pool = min(self.pool, rows) * row
        gram = matrix_bytes(min(self.working, rows))
        if self.max_support:
            support = 2 * min(2 * SAMPLE_PER_POINT * self.max_support, rows) * row
            held = 3 * pool + gram + support + bytes_for(min(self.max_support, rows))
        else:  # the support is collected when no working set is solved any more
            held = max(3 * pool + gram, 2 * pool + 2 * rows * row)
        return Cost(fixed=held + scratch_bytes(layout.columns), per_row=16, per_block_row=2 * ROW_BYTES + 8)

    def sized(self, rows: int, asked: Collection[str]) -> Decomposition:
        """With a pool of all rows, unless its size was ``asked`` for."""
        return self if "pool" in asked else replace(self, pool=max(self.pool, rows))

    def smaller(self, problem: Problem, asked: Collection[str]) -> Decomposition | None:
        """With half the pool; None where it would have fewer rows than are of use."""
        return None if self.pool < 2 * LEAST_POOL else replace(self, pool=self.pool // 2)

    def memory_settings(self) -> dict[str, int | None]:
        """Rows of the pool."""
        return {"pool": self.pool}

    def start(self, problem: Problem) -> DecompositionState:
        """Begin at a = 0 with nothing in memory."""
        room = self.pool if problem.rows <= self.pool else min(self.pool, FIRST_POOL)
        rate = 1.0 if problem.rows <= SAMPLED_FROM * room else room / problem.rows
        return DecompositionState(problem, form_of(problem), room, rate=rate)

    def prepare_shared(self, states: list[DecompositionState], X: Rows) -> None:
        """Evaluate the kernel once for all problems in which rows moved that are not all there are."""
        known = [
            (s, s.moved)
            for s in same_arithmetic(states)
            if s.moved is not None and s.pool and s.pool.size < s.problem.rows
        ]
        moved = [rows for _, rows in known]
        if len(known) > 1 and worthwhile(moved, X):
            for (state, _), values in zip(known, values_of(moved, states[0].form, X), strict=True):
                state.shared_values = values

    def visit(self, state: DecompositionState, block: Block) -> None:
        """Bring a and f of the block to the present x, add up both bounds, and offer the rows that violate most."""
        catch_up(state, block)
        state.largest = extended(state.largest, block.X)
        if state.anew is not None:
            evaluate_anew(state, state.anew, block)
        rows = rows_of(state, block)
        measure(state, block, rows)
        if state.reduced is not None:
            return
        if self.max_support or state.collecting:
            collect(state, rows, self.max_support)
        if not state.collecting and (state.anew is None or state.everywhere):
            offer(state, rows, block.seed)

    def set_deadline(self, state: DecompositionState, moment: float) -> None:
        """The pool is left when a working set ends after that moment."""
        state.deadline = moment

    def finish(self, state: DecompositionState) -> Certificate:
        """Close the pass: both bounds are exact for the present x; the next pool is made, to be solved in steps."""
        return close_pass(self, state)

    def pending(self, state: DecompositionState) -> bool:
        """Whether a pool is being solved."""
        return state.work is not None

    def proceed(self, state: DecompositionState) -> None:
        """Optimize a working set, or go to another level of the pool."""
        optimize(self, state)

    def certify(self, state: DecompositionState) -> None:
        """Let the next pass collect the support rows and offer none, or compute f anew where they are known.

        Where time is over f is not computed anew if that takes long. What it may be off by is known.
        """
        whole, state.ending = state.pool is not None and state.pool.size == state.problem.rows, True
        if state.pool is not None and whole and self.max_support == 0:
            state.anew = state.support = select(state.pool, np.flatnonzero(state.pool.x))
        if state.anew is not None and late(state.deadline) and state.seconds_anew(state.anew) > GRACE:
            state.anew = None
        state.collecting, state.everywhere = state.anew is None, False
        reduce_support(state, self.max_support)

    def part(self, state: DecompositionState) -> DecompositionState:
        """The rows in memory, which visits only read, with sums of nothing."""
        part = replace(state, losses=np.zeros_like(state.losses), upper_losses=np.zeros_like(state.losses))
        part.clear_sums()
        return part

    def merge(self, states: list[DecompositionState]) -> DecompositionState:
        """Add up what each worker found; their rows are disjoint and their x is the same."""
        first, *others = states
        for other in others:
            first.join(other)
            shorten_offer(first)
            shorten_collected(first, self.max_support)
        return first

    def solution(self, state: DecompositionState) -> SupportSolution:
        """The support rows, or the reduced set, with the best intercept that was tried."""
        support = state.reduced or state.support
        if support is None:
            raise UsageError("no pass was left to find support rows in", hint="allow at least two: --max-passes 2")
        if support.size == 0 and state.ending:
            raise UsageError(
                "the last pass came before any row had a coefficient",
                hint="allow more passes, --max-passes, or more time",
            )
        return SupportSolution(support.X, support.index, support.x, state.intercept + state.problem.center)
