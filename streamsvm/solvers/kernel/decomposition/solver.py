"""Kernel C-SVC with a free bias, by decomposition in few readings (the lecture's method, on several levels).

    min_x  1/2 x'Kx + sum_i conjugate(|x_i|) - sum_i y_i x_i    subject to  sum x = 0,    x_i = y_i a_i

for any of our losses. Every row carries a_i and f_i = sum_j x_j k_ij. A pass brings f of each block up to date with the
rows that moved since the last one and offers the block's worst violators to the pool, which is then optimized in memory
(``multilevel.py``). Two pairs of (a, f) must not be mixed up: what a visit finds is of the pass before; the pool knows the
moves made since; a visit first writes its own rows' a and f as the pool left them, then adds to f of all other rows what
the moves are worth. From there on the block belongs to the present a, and so do all sums of the pass: at its end

    P = 1/2 x'Kx + min_b C sum_i s_i l(y_i (f_i + b)),     D = sum_i (a_i - conjugate(a_i)) - 1/2 x'Kx

are those of the a that the moves led to. Any b bounds the optimum; a grid around the last estimate is tried.

f has added up the rounding of every kernel value that a move was worth: ``drift`` bounds it. Where that is too much for
the certificate that was asked for, f is computed anew from the support in another pass, in float64, for the rows that
have a say (``solvers.kernel.rounding``). If P and D then prove to be apart, f is set right at all rows, and the work goes
on in float64.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.compute.blocks.row_selection import bytes_per_row
from streamsvm.compute.kernel_values.expansion import scratch_bytes
from streamsvm.config.fields import Bounds, Option
from streamsvm.errors import DataError, UsageError
from streamsvm.rows import Rows
from streamsvm.solvers.kernel.decomposition.block_update import catch_up, evaluate_anew, measure, rows_of
from streamsvm.solvers.kernel.decomposition.candidates import next_pool, offer, shorten_offer
from streamsvm.solvers.kernel.decomposition.model_rows import (
    collect,
    collected,
    reduce_support,
    shorten_collected,
)
from streamsvm.solvers.kernel.decomposition.multilevel import (
    SAMPLED_FROM,
    Level,
    size_below,
    solve_step,
    threshold,
)
from streamsvm.solvers.kernel.decomposition.state import INTERCEPTS, DecompositionState, LevelWork
from streamsvm.solvers.kernel.kernel_cache import values_of, worthwhile
from streamsvm.solvers.kernel.reduced_set import (
    SAMPLE_PER_POINT,
    MaxSupport,
    bytes_for,
)
from streamsvm.solvers.kernel.rounding import (
    error_of_values,
    extended,
    form_of,
    in_full,
    needed,
    same_arithmetic,
)
from streamsvm.solvers.kernel.working_set import (
    LEAST_POOL,
    ROUNDS,
    ROW_BYTES,
    Improvement,
    coordinates,
    in_order,
    late,
    rounds_for,
    select,
)
from streamsvm.types import Block, Certificate, Cost, Layout, LossRequirement, Problem, RowState, SupportSolution

FIRST_POOL = 32768
"""Rows of the first pool where not all rows fit one; each next may have twice as many. A large one solved from nothing
is work for an x that is soon another."""
STALLED = 0.9
STALLED_SETS, STALLED_LEVELS, STALLED_POOLS = 5, 12, 40
"""It leads nowhere where the gap is still this share of what it was so many passes ago: with all rows in one working set, on
the levels of a pool, or with some of them in a pool."""
GRACE = 2.0
"""Seconds after the time limit in which f may be computed anew."""
TINY = float(np.finfo(np.float64).tiny)
POOL_SHARE = 0.1
"""The pool is solved until its violation is this part of what the pass found over all rows."""


@dataclass(frozen=True, slots=True)
class Decomposition:
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
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True)
    """The conjugate must be a parabola or a line, so that a pool's problem is a quadratic one in a box."""

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of the pool while the next one is made, of a Gram matrix and the support, of a and f a row."""
        row = bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + ROW_BYTES
        pool = min(self.pool, layout.rows) * row
        gram = 4 * min(self.working, layout.rows) ** 2
        if self.max_support:
            support = 2 * min(2 * SAMPLE_PER_POINT * self.max_support, layout.rows) * row
            held = 3 * pool + gram + support + bytes_for(min(self.max_support, layout.rows))
        else:  # the support is collected when no working set is solved any more
            held = max(3 * pool + gram, 2 * pool + 2 * layout.rows * row)
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
        """See ``types.Deadline``: the pool is left when a working set ends after that moment."""
        state.deadline = moment

    def finish(self, state: DecompositionState) -> Certificate:
        """Close the pass: both bounds are exact for the present x; the next pool is made, to be solved in steps."""
        best, violation = int(np.argmin(state.losses)), max(state.top - state.bottom, 0.0)
        reduced, complete = state.reduced, state.collecting or self.max_support > 0
        if reduced is None:
            state.support_size = state.support_met
            if complete:
                state.support = collected(state, self.max_support)
        square = state.square if reduced is None else state.reduced_square
        primal, dual = 0.5 * square + float(state.losses[best]), state.dual - 0.5 * state.square
        rounding = state.rounding(best)
        facts = {"violation": violation, "support": state.support_size, "points": reduced.size if reduced else None}
        at_the_edge = best in {0, 2 * INTERCEPTS}  # it lies further out
        wide = 4.0 * state.reach if at_the_edge else 0.0
        if reduced is None:
            _check_bounded(state, dual, rounding)
        state.intercept, state.reach = float(state.shifts()[best]), max(violation, wide, 1e-6)
        stalled = _stalled(state, primal, dual, one_set=state.problem.rows <= self._coordinates(state))
        found = Certificate(primal, dual, final=reduced is not None or stalled, facts=facts, rounding=rounding)
        if state.anew is not None:
            more = self._after_anew(state, found, violation)
        else:
            doubtful = needed(state.problem, primal, rounding)
            close = primal - dual <= state.problem.tolerance * abs(primal)
            last = state.collecting or stalled or (close if doubtful else found.gap <= state.problem.tolerance)
            more = self._next(state, violation, collected=complete, last=last)
            if last and not more and state.reduced is None and not state.ending:
                more = self._doubted(state) if doubtful else reduce_support(state, self.max_support)
            if doubtful and not last and reduced is None:
                found = replace(found, exact=False, rounding=0.0)
        state.close()
        state.collecting = more and state.reduced is None and state.anew is None
        return replace(found, exact=False) if more else found

    def _doubted(self, state: DecompositionState) -> bool:
        """Have f computed anew, if the whole support is known; whether it will be."""
        if state.support is None or state.support.size < state.support_size:
            return reduce_support(state, self.max_support)
        state.anew = state.support
        return True

    def _after_anew(self, state: DecompositionState, found: Certificate, violation: float) -> bool:
        """The pass was one in which f was computed anew; whether another one is to look again."""
        everywhere, state.everywhere = state.everywhere, False
        support, state.anew, state.collecting = state.anew, None, False
        state.form = in_full(state.form, state.largest)
        error = error_of_values(state.form, state.largest, state.support_size, state.weight)
        if found.gap <= state.problem.tolerance or found.final:
            state.drift = error  # where x is not 0, which is all that still counts
            return reduce_support(state, self.max_support)
        if everywhere:
            state.drift = error
            self._begin_work(state, violation)
        else:
            state.anew, state.everywhere = support, True
        return False

    def _next(self, state: DecompositionState, violation: float, *, collected: bool, last: bool) -> bool:
        """Improve x, or see to the model; whether the certificate of this pass is not yet that of the model."""
        if state.reduced is not None:
            return False
        if not last:
            self._begin_work(state, violation)
            return False
        pool, state.pool, state.moved = state.pool, None, None
        if pool is not None and pool.size == state.problem.rows:
            state.support = select(pool, np.flatnonzero(pool.x))
            return False
        return not collected

    def _begin_work(self, state: DecompositionState, violation: float) -> None:
        """Make the pool of the candidates and of rows held before, which is to be solved."""
        pool = in_order(next_pool(state))
        state.capacity = min(2 * state.capacity, self.pool)
        state.rate = 1.0 if state.violators <= SAMPLED_FROM * state.capacity else state.capacity / state.violators
        working = self._coordinates(state)
        below = size_below(pool.size, working)
        on_levels = pool.size == state.problem.rows and below > working
        known = Improvement(ROUNDS if on_levels else rounds_for(pool.size, below))
        state.work = LevelWork([Level(pool, POOL_SHARE * violation, known)], pool.x.copy())
        state.pool = state.moved = None

    def pending(self, state: DecompositionState) -> bool:
        """See ``types.StepsBetweenPasses``: whether a pool is being solved."""
        return state.work is not None

    def proceed(self, state: DecompositionState) -> None:
        """Optimize a working set, or go from a level of the pool to another; note what has moved after the last step."""
        work = state.work
        assert work is not None  # a step is pending
        began, last, working = time.perf_counter(), work.levels[-1], self._coordinates(state)
        moment = state.deadline - state.owed()
        more = solve_step(work.levels, state.form, working, moment)
        if work.levels[-1] is last:  # a working set was optimized
            state.pace = (time.perf_counter() - began) / (last.pool.size * max(len(last.known.recent), 1))
        if more:
            return
        if late(moment):
            state.gaps = []  # of pools that were left for want of time nothing follows
        pool, moves = work.pool, work.levels[0].known.moves
        state.drift += error_of_values(state.form, state.largest, pool.size, moves.travel)
        level = threshold(pool)
        state.intercept = level if np.isfinite(level) else state.intercept
        places = np.flatnonzero(pool.x != work.before)
        state.pool, state.moved, state.work = pool, select(pool, places), None
        state.moved.sign[:], state.moved.x = 1.0, (pool.x - work.before)[places]

    def _coordinates(self, state: DecompositionState) -> int:
        """How many are optimized together, in the arithmetic the state has come to."""
        return coordinates(self.working, state.form)

    def certify(self, state: DecompositionState) -> None:
        """Let the next pass collect the support rows and offer none, or compute f anew where they are known.

        Where time is over f is not computed anew if that takes long. What it may be off by is known.
        """
        whole, state.ending = state.pool is not None and state.pool.size == state.problem.rows, True
        if state.pool is not None and whole and self.max_support == 0:
            state.anew = state.support = select(state.pool, np.flatnonzero(state.pool.x))
        if late(state.deadline) and state.seconds_anew() > GRACE:
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
        if support.size == 0:
            raise DataError(
                "the best function is the same for every row: no row has a coefficient",
                hint="a class may have no weight at all, or C be too small for float64: check the weights, raise C",
            )
        return SupportSolution(support.X, support.index, support.x, state.intercept)


def _check_bounded(state: DecompositionState, dual: float, rounding: float) -> None:
    """Raise UsageError where D grows for ever along the ray t x, t > 0, because of a kernel that is not positive semidefinite.

    Without bounds above, the ray keeps to all constraints, and D(t x) = t sum a_i (1 - conjugate'(0)) - t^2 Q. Q, which ridges
    make larger, is above 0 unless D is beyond its first term.
    """
    p = state.problem
    assert p.kernel is not None  # a kernel solver is given problems of one
    if p.kernel.positive_semidefinite() or np.isfinite(p.loss.upper(p.C)):
        return
    if not dual > state.weight * (1.0 - p.loss.conjugate_slope(0.0, p.C)) + rounding:
        return
    raise UsageError(
        f"the fit with C = {p.C:g} has no optimum: the kernel {p.kernel} is not positive semidefinite on these rows, and "
        f"nothing bounds the coefficients of {p.loss}, which grow for ever",
        hint="choose another kernel (rbf, laplacian), the hinge, whose coefficients are bounded, or a smaller C",
    )


def _stalled(state: DecompositionState, primal: float, dual: float, *, one_set: bool) -> bool:
    """Whether pools lead nowhere, a pass of these bounds included; once that is so it stays so."""
    whole = state.pool is not None and state.pool.size == state.problem.rows
    passes = (STALLED_SETS if one_set else STALLED_LEVELS) if whole else STALLED_POOLS
    gap = (primal - max(dual, 0.0)) / max(primal, TINY)
    state.gaps.append(gap)
    state.stalled = state.stalled or (len(state.gaps) > passes and gap > STALLED * state.gaps[-1 - passes])
    return state.stalled
