"""Kernel C-SVC with a free bias, by decomposition in few readings (the lecture's method, on several levels).

    min_x  1/2 x'Kx + sum_i conjugate(|x_i|) - sum_i y_i x_i    subject to  sum x = 0,    x_i = y_i a_i

for any of our losses. Every row carries a_i and f_i = sum_j x_j k_ij. A pass updates f of each block for the rows that
moved since the last pass, and offers the block's worst violators to the pool, which is then optimized in memory
(``smo.py``). A visit loads a and f as the last pass left them, while the pool has moved since: it first writes a and f
of the pool's rows, then adds the effect of the moves to f of all other rows. All sums of the pass are therefore those of
the present a: at its end

    P = 1/2 x'Kx + min_b C sum_i s_i l(y_i (f_i + b)),     D = sum_i (a_i - conjugate(a_i)) - 1/2 x'Kx

are P and D of the present a. P with any b is an upper bound; a grid of b around the last estimate is tried.

*Regression.* Rows with targets t_i have x_i = a_i, of either sign, and the conjugate has a corner at 0. In a pool each
row keeps the sign it comes with; a row that ends at 0 has the other sign in the next pass if the gradient points there
(``compute.passes.kernel_rows``). A pool's problem is therefore the same for all losses. t'x takes the place of y'x.

*One class* with a free offset rho = -b (``solvers.one_class``) is the same with y_i = 1, a corner at 0 and sum x = nu
sum s_i, which adds nu sum s_i b to P: x begins at its bounds for a draw of rows, as in LIBSVM.

*The pool* has the worst violators where they are few. Where there are many more than a pool holds, most of its rows are
violators drawn at random, because the worst alone are a biased sample (``smo.SAMPLED_FROM``).

*Rounding.* f accumulates the rounding of all updates; ``drift`` bounds it. Where the bound is too large for the
tolerance, another pass recomputes f from the support, in float64, at the rows that matter to P or D
(``rounding.py``). If the gap then turns out to be too large, f is recomputed at all rows, and optimization continues in
float64.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import bytes_per_row, take_rows
from streamsvm.compute.blocks.sums import dual_sum
from streamsvm.compute.kernel_values.expansion import expand, scratch_bytes
from streamsvm.compute.kernel_values.rounding import ENOUGH
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.kernel_rows import beyond_corner, coordinates, in_reach_of_loss, sum_shifted_losses
from streamsvm.compute.random import draw_lots, smallest_keys
from streamsvm.config.options import Bounds, Option
from streamsvm.errors import UsageError
from streamsvm.rows import Float64, Int64, Reach, Rows
from streamsvm.solvers.kernel.cache import evaluate_shared, is_sharing_worthwhile
from streamsvm.solvers.kernel.pool import (
    MIN_POOL,
    ROW_BYTES,
    Form,
    Pool,
    extremes,
    join_pools,
    no_support_error,
    row_violations,
    select_rows,
    sort_rows,
    worst_rows,
)
from streamsvm.solvers.kernel.pool import violation as violation_of
from streamsvm.solvers.kernel.reduced_set import (
    SAMPLE_PER_POINT,
    MaxSupport,
    draw_by_weight,
    evaluate_reduced_set,
    fit_reduced_set,
    reduced_set_bytes,
)
from streamsvm.solvers.kernel.rounding import (
    bound_rounding,
    certified_form,
    choose_form,
    error_of_values,
    extend_reach,
    needs_certified_form,
    negligible_error,
    select_same_form,
)
from streamsvm.solvers.kernel.smo import (
    NEGLIGIBLE_SHARE,
    ROUNDS,
    SAMPLED_FROM,
    WORST_ROWS,
    Level,
    Progress,
    estimate_threshold,
    is_late,
    matrix_bytes,
    max_rounds,
    recompute_gradient,
    size_below,
    solve_step,
    working_size,
)
from streamsvm.solvers.stalling import has_stalled
from streamsvm.types import (
    DUAL,
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
from streamsvm.types.problem import has_box
from streamsvm.types.state import Largest, Own, Seen, Smallest, Total, clear_totals, merge_states

FIRST_POOL = 32768
"""Rows of the first pool where not all rows fit one; each next pool may have twice as many. A large pool solved from
x = 0 would be wasted work: x changes much in the passes that follow."""
CARRIED_SHARE = 0.25
"""At most this share of a new pool is taken from the last one: rows still between their bounds."""
POOL_SHARE, WHOLE_SHARE = 0.1, 0.01
"""A pool is solved until its violation is POOL_SHARE of what the pass found over all rows. A pool of all rows is solved
further, down to WHOLE_SHARE, until the gap is about the tolerance: stopping earlier costs another pass and another
update of the gradient of all rows."""
ONE_SET_STALL_PASSES, LEVELS_STALL_PASSES, POOLS_STALL_PASSES = 5, 12, 40
"""The run ends where it has stalled over this many passes: with all rows in one working set, with all rows in a pool on
levels, or with some of the rows in a pool."""
INTERCEPTS = 64
"""Intercepts tried on either side of the last estimate."""
COPIED_ROWS = 8192
"""Rows of a block that are copied at a time."""
FLOAT64_COST = 4.0
"""The cost of a float64 kernel value, in units of those that the steps in memory take."""
GRACE_SECONDS = 2.0
"""After the time limit f may be recomputed for this long."""
TINY = float(np.finfo(np.float64).tiny)


@saved_as("decomposition.work")
@dataclass(slots=True)
class LevelWork:
    """A pool that is being solved."""

    levels: list[Level]
    """The pool, and below it the subset that is being solved, and so on."""
    before: Float64
    """x of the pool when it was made, (pool,)."""

    @property
    def pool(self) -> Pool:
        """The pool itself."""
        return self.levels[0].pool


@saved_as("decomposition.state")
@dataclass(slots=True)
class DecompositionState:
    """The pool and what moved in it, what is known of the support, and the sums of the pass under way."""

    problem: Problem
    form: Form
    """The matrix of the problem and the arithmetic of kernel values, which a later pass may make float64."""
    capacity: int
    """Rows the next pool may have."""
    pool: Pool | None = None
    """The rows in memory with x and v as last solved; None before the first pool and after the last."""
    moved: Pool | None = None
    """Rows of the pool whose x changed, with the change as their x and sign 1: f of the other rows is not updated for
    them yet. None where ``pool`` is None."""
    shared_values: Own[Float64 | None] = None
    """The update of f, from ``moved``, of the rows visited next, if it was evaluated for several problems at once."""
    support: Pool | None = None
    """The rows with a_i not 0, as of the last pass that kept them; where fewer are allowed, a draw of those."""
    collected_parts: Total[list[Pool]] = field(default_factory=list)
    """Rows with a_i not 0 met in the pass under way."""
    support_met: Total[int] = 0
    """Rows with a_i not 0 that were met in the pass under way."""
    support_size: int = 0
    """Rows with a_i not 0 of all the data, as of the last pass, whether they were kept or not."""
    candidates: Total[list[Pool]] = field(default_factory=list)
    """Rows offered to the next pool in the pass under way; a part for each block until there are too many."""
    rate: float = 1.0
    """The share of violators that is offered."""
    violators: Total[int] = 0
    """Violators met in this pass."""
    intercept: float = 0.0
    """b: where the primal was least in the last pass, or the threshold of the pool solved since."""
    reach: float = 1.0
    """Half the width of the grid of intercepts."""
    collecting: bool = False
    """Whether the pass is for the model: its rows are kept, none are offered."""
    deadline: float = math.inf
    """The moment of ``time.perf_counter`` at which the work in memory ends."""
    reduced: Pool | None = None
    """The reduced set, from the pass that sums its primal on."""
    reduced_square: Total[float] = 0.0
    """The squared norm of the reduced set, summed over the rows met."""
    dual: Total[float] = 0.0
    """sum a_i - conjugate(a_i) over the rows met in the pass; D is this less 1/2 x'Kx."""
    square: Total[float] = 0.0
    """x'Kx."""
    losses: Total[Float64] = field(default_factory=lambda: np.zeros(2 * INTERCEPTS + 1))
    """(129,) sum C s_i l(y_i (f_i + b)) over the rows met, for each intercept b of ``shifts``."""
    top: Largest[float] = -np.inf
    """The largest v of a row met whose x may grow."""
    bottom: Smallest[float] = np.inf
    """The smallest v of a row met whose x may shrink; x is optimal once ``top`` is not larger."""
    largest: Seen[Reach | None] = None
    """The reach of the rows met so far."""
    drift: float = 0.0
    """A bound of the error of f at any row, from the moves made so far."""
    weight: Total[float] = 0.0
    """sum |x_i|."""
    absolute: Total[float] = 0.0
    """sum |x_i f_i|; for regression sum |x_i t_i| more."""
    upper_losses: Total[Float64] = field(default_factory=lambda: np.zeros(2 * INTERCEPTS + 1))
    """The losses at margins that are less by their possible error."""
    enough: float = ENOUGH
    """The error of a kernel value that is negligible in the certificate of this x, as of the last pass."""
    recompute_support: Pool | None = None
    """The support, if the next pass recomputes f from it in the arithmetic of certificates."""
    recompute_all_rows: bool = False
    """Whether f is recomputed at all rows, and not only at those that matter to P and D."""
    ending: bool = False
    """Whether the pass is the last of the run, whatever it shows."""
    pace: float = 0.0
    """Seconds per kernel value with its share of a step, as steps were timed; used where there is a deadline."""
    gaps: list[float] = field(default_factory=list)
    """The gap after each pass, with D not below 0."""
    stalled: bool = False
    """Whether the run has stalled: the next exact certificate is the last."""
    work: LevelWork | None = None
    """The work in memory before the next pass; None: none is left."""
    total: Total[float] = 0.0
    """sum s_i over the rows met in the pass."""

    @property
    def beginning(self) -> bool:
        """Whether this is the first pass for one class with a free offset: no row violates anything yet, and any will
        do.
        """
        return not self.problem.regularizer.has_scale and self.pool is None and not self.gaps

    @property
    def mass(self) -> float:
        """The sum of x once all rows are met: nu sum s_i for one class with a free offset, 0 otherwise."""
        return self.problem.regularizer.sum_of_dual(self.total) or 0.0

    @property
    def violation(self) -> float:
        """By how much rows met in the pass violate the optimality conditions."""
        return max(self.top - self.bottom, 0.0)

    def shifts(self) -> Float64:
        """Return the intercepts that are tried."""
        return self.intercept + np.linspace(-self.reach, self.reach, 2 * INTERCEPTS + 1)

    def estimate_seconds_to_finish_pool(self) -> float:
        """Return the seconds to leave all levels of the pool and update f of the rows outside it, at
        the pace of steps.
        """
        if self.work is None or math.isinf(self.deadline):
            return 0.0
        levels, rows = self.work.levels, self.problem.rows
        pairs = sum(level.pool.size * len(level.known.recent) for level in levels[:-1])
        if self.work.pool.size < rows:
            pairs += rows * len(levels[0].known.recent)
        return self.pace * pairs

    def estimate_seconds_to_recompute(self, support: Pool) -> float:
        """Return the seconds it takes at most to recompute f from a support, in float64."""
        return FLOAT64_COST * self.pace * self.problem.rows * support.size

    def certified_form(self) -> Form:
        """Return the form in the arithmetic of certificates."""
        return certified_form(self.form, self.largest, self.enough)

    def value_error(self) -> float:
        """Return a bound of the error of the decision values that the pass sums up."""
        points = self.reduced or self.recompute_support
        if points is None:
            return self.drift
        form = self.certified_form() if self.reduced is None else self.form
        return error_of_values(form, self.largest, points.size, float(np.abs(points.x).sum()))

    def rounding(self, best: int) -> float:
        """Return a bound of the rounding of P and D, with the intercept number ``best``."""
        error = max(self.value_error(), self.drift if self.reduced is not None else 0.0)
        losses = float(self.losses[best]), float(self.upper_losses[best])
        return bound_rounding(self.problem, error, self.weight, self.absolute, losses)


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
    row_state: ClassVar[tuple[RowState, ...]] = (RowState(DUAL, "float64"), RowState("f", "float64"))
    """The dual variable a_i of every row and its decision value f_i without the intercept."""
    free_bias: ClassVar[bool] = True
    """True: the intercept is no constant feature and costs nothing, hence sum x = 0."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read, so that their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True)
    """The conjugate must be a parabola or a line, so that a pool's problem is a quadratic one in a box."""
    exact_kernel: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the pool while the next one is made, of a Gram matrix and the support, of
        a and f a row.
        """
        row = bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + ROW_BYTES
        rows = min(problem.rows, layout.rows)  # a pair of classes has rows of its own
        pool = min(self.pool, rows) * row
        gram = matrix_bytes(min(self.working, rows))
        if self.max_support:
            support = 2 * min(2 * SAMPLE_PER_POINT * self.max_support, rows) * row
            held = 3 * pool + gram + support + reduced_set_bytes(min(self.max_support, rows))
        else:  # the support is collected when no working set is solved any more
            held = max(3 * pool + gram, 2 * pool + 2 * rows * row)
        return Cost(fixed=held + scratch_bytes(layout.columns), per_row=16, per_block_row=2 * ROW_BYTES + 8)

    def adapt_to_row_count(self, rows: int, asked: Collection[str]) -> Decomposition:
        """Return the solver with a pool of all rows, unless its size was ``asked`` for."""
        return self if "pool" in asked else replace(self, pool=max(self.pool, rows))

    def shrink_memory(self, problem: Problem, asked: Collection[str]) -> Decomposition | None:
        """Return the solver with half the pool; None where it would have fewer rows than are of use."""
        return None if self.pool < 2 * MIN_POOL else replace(self, pool=self.pool // 2)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the rows of the pool."""
        return {"pool": self.pool}

    def start(self, problem: Problem) -> DecompositionState:
        """Begin at a = 0 with nothing in memory."""
        room = self.pool if problem.rows <= self.pool else min(self.pool, FIRST_POOL)
        rate = 1.0 if problem.rows <= SAMPLED_FROM * room else room / problem.rows
        return DecompositionState(problem, choose_form(problem), room, rate=rate)

    def prepare_shared(self, states: list[DecompositionState], X: Rows) -> None:
        """Evaluate the kernel once for all problems in which some rows moved that are not all rows."""
        known = [
            (s, s.moved)
            for s in select_same_form(states)
            if s.moved is not None and s.pool and s.pool.size < s.problem.rows
        ]
        moved = [rows for _, rows in known]
        if len(known) > 1 and is_sharing_worthwhile(moved, X):
            for (state, _), values in zip(known, evaluate_shared(moved, states[0].form, X), strict=True):
                state.shared_values = values

    def visit(self, state: DecompositionState, block: Block) -> None:
        """Bring a and f of the block to the present x, add up both bounds, and offer the rows that violate most."""
        catch_up(state, block)
        state.largest = extend_reach(state.largest, block.X)
        if state.recompute_support is not None:
            recompute_values(state, state.recompute_support, block)
        rows = rows_of(state, block)
        add_to_bounds(state, block, rows)
        if state.reduced is not None:
            return
        if self.max_support or state.collecting:
            self._collect_support(state, rows)
        if not state.collecting and (state.recompute_support is None or state.recompute_all_rows):
            offer_violators(state, rows, block.seed)

    def set_deadline(self, state: DecompositionState, moment: float) -> None:
        """Leave the pool when a working set ends after that moment."""
        state.deadline = moment

    def finish(self, state: DecompositionState) -> Certificate:
        """Close the pass: both bounds are exact for the present x. Then prepare what the certificate asked for still
        needs.

        That is a pool to be solved in steps, or a pass that collects the support, or one that recomputes f in float64,
        or one that evaluates the reduced set.
        """
        if state.reduced is None:
            state.support_size = state.support_met
            if state.collecting or self.max_support:
                state.support = sort_rows(self._draw_support(state))
        violation, found = state.violation, bounds_of_pass(state)
        stalled = self._is_stalled(state, found)
        found = replace(found, final=state.reduced is not None or stalled)
        if state.recompute_support is not None:
            more = self._after_recomputation(state, found, violation)
        else:
            more, found = self._after_pass(state, found, violation)
        state.enough = negligible_error(state.problem, found.primal, state.weight)
        clear_totals(state)
        state.collecting = more and state.reduced is None and state.recompute_support is None
        return replace(found, exact=False) if more else found

    def has_pending_steps(self, state: DecompositionState) -> bool:
        """Return whether a pool is being solved."""
        return state.work is not None

    def make_step(self, state: DecompositionState) -> None:
        """Optimize a working set, or go to another level of the pool; after the last step note what has moved."""
        work = state.work
        assert work is not None  # a step is pending
        began, last = time.perf_counter(), work.levels[-1]
        moment = state.deadline - state.estimate_seconds_to_finish_pool()
        more = solve_step(work.levels, state.form, working_size(self.working, state.form), moment)
        if work.levels[-1] is last:  # a working set was optimized
            state.pace = (time.perf_counter() - began) / (last.pool.size * max(len(last.known.recent), 1))
        if more:
            return
        if is_late(moment):
            state.gaps = []  # a pool that was left for want of time says nothing about a stall
        pool, moves = work.pool, work.levels[0].known.moves
        state.drift += error_of_values(state.form, state.largest, pool.size, moves.travel)
        threshold = estimate_threshold(pool)
        state.intercept = threshold if np.isfinite(threshold) else state.intercept
        places = np.flatnonzero(pool.x != work.before)
        state.pool, state.moved, state.work = pool, select_rows(pool, places), None
        state.moved.sign[:], state.moved.x = 1.0, (pool.x - work.before)[places]

    def certify(self, state: DecompositionState) -> None:
        """Let the next pass collect the support rows and offer none, or recompute f where the support is known.

        Where time is over and recomputing f takes long, it is left as it is: its error is known.
        """
        whole, state.ending = state.pool is not None and state.pool.size == state.problem.rows, True
        if state.pool is not None and whole and self.max_support == 0:
            state.recompute_support = state.support = select_rows(state.pool, np.flatnonzero(state.pool.x))
        if (
            state.recompute_support is not None
            and is_late(state.deadline)
            and state.estimate_seconds_to_recompute(state.recompute_support) > GRACE_SECONDS
        ):
            state.recompute_support = None
        state.collecting, state.recompute_all_rows = state.recompute_support is None, False
        self._reduce_support(state)

    def merge(self, states: list[DecompositionState]) -> DecompositionState:
        """Add up the sums; the rows of parts are disjoint and their x is the same."""
        first, *others = states
        for other in others:
            merge_states([first, other])
            shorten_offer(first)
            self._shorten_support(first)
        return first

    def solution(self, state: DecompositionState) -> SupportSolution:
        """Return the support rows, or the reduced set, with the best intercept that was tried."""
        support = state.reduced or state.support
        if support is None:
            raise no_support_error()
        if support.size == 0 and state.ending:
            raise UsageError(
                "the last pass came before any row had a coefficient",
                hint="allow more passes, --max-passes, or more time",
            )
        return SupportSolution(support.X, support.index, support.x, state.intercept + state.problem.kind.center)

    # After a pass

    def _is_stalled(self, state: DecompositionState, found: Certificate) -> bool:
        """Return whether the gap has stopped falling, a pass of these bounds included; once it has it stays so."""
        whole = state.pool is not None and state.pool.size == state.problem.rows
        one_set = state.problem.rows <= working_size(self.working, state.form)
        passes = (ONE_SET_STALL_PASSES if one_set else LEVELS_STALL_PASSES) if whole else POOLS_STALL_PASSES
        least = 0.0 if state.problem.regularizer.has_scale else found.dual
        gap = (found.primal - max(found.dual, least)) / max(abs(found.primal), TINY)
        state.gaps.append(gap)
        state.stalled = state.stalled or has_stalled(state.gaps, passes)
        return state.stalled

    def _after_pass(self, state: DecompositionState, found: Certificate, violation: float) -> tuple[bool, Certificate]:
        """Decide what follows a pass over the f that moves have added up.

        Returned: whether the model needs another pass before its certificate is exact, and the certificate of this one.
        """
        tolerance, reduced = state.problem.tolerance, state.reduced
        doubtful = needs_certified_form(state.problem, found.primal, found.rounding)
        close = found.primal - found.dual <= tolerance * abs(found.primal) if doubtful else found.gap <= tolerance
        last = state.collecting or state.stalled or close
        complete = bool(state.collecting or self.max_support)
        more = self._continue_or_collect(state, violation, complete=complete, last=last)
        if last and not more and reduced is None and not state.ending:
            more = self._recompute_or_reduce(state) if doubtful else self._reduce_support(state)
        if doubtful and not last and reduced is None:
            found = replace(found, exact=False, rounding=0.0)
        return more, found

    def _continue_or_collect(self, state: DecompositionState, violation: float, *, complete: bool, last: bool) -> bool:
        """Make the next pool, or let go of the last one; return whether a pass is needed to collect the support."""
        if state.reduced is not None:
            return False
        if not last:
            self._make_pool(state, violation)
            return False
        pool, state.pool, state.moved = state.pool, None, None
        if pool is not None and pool.size == state.problem.rows:
            state.support = select_rows(pool, np.flatnonzero(pool.x))
            return False
        return not complete

    def _recompute_or_reduce(self, state: DecompositionState) -> bool:
        """Have f recomputed if the whole support is known, else make the reduced set; return whether a pass is needed
        for it.
        """
        if state.support is None or state.support.size < state.support_size:
            return self._reduce_support(state)
        state.recompute_support = state.support
        return True

    def _after_recomputation(self, state: DecompositionState, found: Certificate, violation: float) -> bool:
        """Decide what follows a pass that recomputed f; return whether the model needs another pass."""
        all_rows, state.recompute_all_rows = state.recompute_all_rows, False
        support, state.recompute_support = state.recompute_support, None
        state.form = state.certified_form()
        error = error_of_values(state.form, state.largest, state.support_size, state.weight)
        if found.gap <= state.problem.tolerance or found.final:
            state.drift = error  # where x is not 0, which is all that still counts
            return self._reduce_support(state)
        if all_rows:
            state.drift = error
            self._make_pool(state, violation)
        else:
            state.recompute_support, state.recompute_all_rows = support, True
        return False

    # The pool

    def _make_pool(self, state: DecompositionState, violation: float) -> None:
        """Make the next pool, which is then solved in steps."""
        pool = sort_rows(next_pool(state))
        before = pool.x.copy()
        if not state.problem.regularizer.has_scale and state.weight == 0.0:
            violation = start_at_bounds(state, pool)
        state.capacity = min(2 * state.capacity, self.pool)
        state.rate = 1.0 if state.violators <= SAMPLED_FROM * state.capacity else state.capacity / state.violators
        working = working_size(self.working, state.form)
        below = size_below(pool.size, working)
        whole, gap = pool.size == state.problem.rows, state.gaps[-1]
        known = Progress(ROUNDS if whole and below > working else max_rounds(pool.size, below))
        if pool.size < state.problem.rows or gap <= 0.0:
            share = POOL_SHARE
        else:
            share = min(POOL_SHARE, max(WHOLE_SHARE, 0.5 * state.problem.tolerance / gap))
        state.work = LevelWork([Level(pool, share * violation, known)], before)
        state.pool = state.moved = None

    # The support, and the reduced set

    def _collect_support(self, state: DecompositionState, rows: Pool) -> None:
        """Keep the support rows of a block, copied."""
        state.collected_parts.append(select_rows(rows, np.flatnonzero(rows.x)))
        self._shorten_support(state)

    def _shorten_support(self, state: DecompositionState) -> None:
        """Draw from the support rows that were collected, where they are twice as many as a reduced set
        is fitted to.
        """
        most = self.max_support
        if most and sum(part.size for part in state.collected_parts) > 2 * SAMPLE_PER_POINT * most:
            state.collected_parts = [self._draw_support(state)]

    def _draw_support(self, state: DecompositionState) -> Pool:
        """Return the support that was collected, or the draw of it that a reduced set is fitted to."""
        rows = join_pools(state.collected_parts)
        if not self.max_support:
            return rows
        return select_rows(rows, draw_by_weight(rows.index, rows.x, SAMPLE_PER_POINT * self.max_support))

    def _reduce_support(self, state: DecompositionState) -> bool:
        """Make the reduced set, if one is asked for and the support has more rows than it may have; return whether it
        was made.
        """
        support = state.support
        if support is None or not 0 < self.max_support < state.support_size:
            return False
        values = support.p - support.v - support.ridge * support.x
        importance = state.problem.C * state.support_size / support.size
        state.reduced = fit_reduced_set(support, values, state.form, self.max_support, importance)
        state.reach = 1.0
        return True


# A visit: the block at the present x


def catch_up(state: DecompositionState, block: Block) -> None:
    """Bring a and f of the block, its per-row state, to the present x: own rows from the pool, others by what moved
    there.
    """
    if state.pool is None or state.moved is None:
        return
    pool, f, n = state.pool, block.rows["f"], len(block.y)
    mine, own = block.members(pool.index)
    block.rows[DUAL][own] = pool.x[mine] if state.problem.loss.numeric() else np.abs(pool.x[mine])
    f[own] = (pool.p - pool.v - pool.ridge * pool.x)[mine]
    others = np.ones(n, bool)
    others[own] = False
    if state.shared_values is not None:
        f[others] += state.shared_values[others]
        state.shared_values = None
    elif others.any():
        places = np.flatnonzero(others)
        f[places] += evaluate_at(block, places, state.moved, state.form)


def recompute_values(state: DecompositionState, support: Pool, block: Block) -> None:
    """Recompute f from the support, in the arithmetic of certificates, at the rows that matter to P or D, or at all
    rows.

    Those that matter have a coefficient, or may cost something as far as f may be off and b elsewhere.
    """
    f, form = block.rows["f"], state.certified_form()
    slack = state.drift + state.reach
    near = block.rows[DUAL] != 0.0
    near |= in_reach_of_loss(f + state.intercept, block.y, state.problem.loss, slack) & (block.s > 0.0)
    chosen = np.arange(len(f)) if state.recompute_all_rows else np.flatnonzero(near)
    f[chosen] = evaluate_at(block, chosen, support, form)


def evaluate_at(block: Block, places: Int64, points: Pool, form: Form) -> Float64:
    """Return sum_j x_j k(., z_j) over the points at some rows of a block (k,), which are copied a few at a time."""
    values = np.zeros(len(places))
    if len(places) == len(block.y):
        expand(block.X, points.X, points.x, form.kernel, form.columns, values, form.arithmetic)
        return values
    for start in range(0, len(places), COPIED_ROWS):
        some = take_rows(block.X, places[start : start + COPIED_ROWS])
        part = values[start : start + COPIED_ROWS]
        expand(some, points.X, points.x, form.kernel, form.columns, part, form.arithmetic)
    return values


def rows_of(state: DecompositionState, block: Block) -> Pool:
    """Return the block's rows as those of a pool, the features not copied; widen the violation by corners at 0."""
    n, p = len(block.y), state.problem
    cost = RowLoss(p.C, p.loss, p.loss)
    found = coordinates(block.y, block.s, block.rows[DUAL], block.rows["f"], cost, state.intercept)
    _widen_violation(state, beyond_corner(found, p.loss))
    return Pool(block.X, block.numbers, np.ones(n), found.ridge, found.low, found.high, found.p, found.x, found.v)


def add_to_bounds(state: DecompositionState, block: Block, rows: Pool) -> None:
    """Add the block's rows to the sums of the pass: both bounds, the violation, the size of the support."""
    p, f = state.problem, block.rows["f"]
    _widen_violation(state, extremes(rows))
    state.support_met += int(np.count_nonzero(rows.x))
    state.square += float(rows.x @ f)
    state.weight += float(np.abs(rows.x).sum())
    state.absolute += float(np.abs(rows.x) @ np.abs(f))
    if p.loss.numeric():
        state.absolute += float(np.abs(rows.x) @ np.abs(block.y))
    state.total += float(block.s.sum(dtype=np.float64))
    state.dual += dual_sum(block.rows[DUAL], block.y, block.s, p.C, p.loss)
    if state.reduced is not None:
        f, part = evaluate_reduced_set(state.reduced, state.form, block)
        state.reduced_square += part
    cost = RowLoss(p.C, p.loss, p.loss)
    sum_shifted_losses(f, block.y, block.s, cost, 0.0, state.shifts(), state.losses)
    sum_shifted_losses(f, block.y, block.s, cost, state.value_error(), state.shifts(), state.upper_losses)


def _widen_violation(state: DecompositionState, found: tuple[float, float]) -> None:
    """Count the largest v that may grow and the least that may shrink of some rows."""
    state.top, state.bottom = max(state.top, found[0]), min(state.bottom, found[1])


# The bounds of a pass


def bounds_of_pass(state: DecompositionState) -> Certificate:
    """Return P with the best intercept that was tried, D, and their rounding; set the next grid about
    that intercept.
    """
    values = state.losses + state.mass * state.shifts()
    best, violation, reduced = int(np.argmin(values)), state.violation, state.reduced
    square = state.square if reduced is None else state.reduced_square
    primal, dual = 0.5 * square + float(values[best]), state.dual - 0.5 * state.square
    if not state.problem.regularizer.has_scale and state.weight == 0.0:
        # nothing is summed up yet: ||sum a_i phi_i|| <= nu S max ||phi||
        assert state.problem.kernel is not None  # a kernel solver is given problems of one
        largest = 0.0 if state.largest is None else state.problem.kernel.largest(state.largest)
        dual = -0.5 * state.mass**2 * largest
    rounding = state.rounding(best)
    if reduced is None:
        _check_bounded(state, dual, rounding)
    at_the_edge = best in {0, 2 * INTERCEPTS}  # it lies further out
    wide = 4.0 * state.reach if at_the_edge else 0.0
    state.intercept, state.reach = float(state.shifts()[best]), max(violation, wide, 1e-6)
    facts = {"violation": violation, "support": state.support_size, "points": reduced.size if reduced else None}
    return Certificate(primal, dual, facts=facts, rounding=rounding)


def _check_bounded(state: DecompositionState, dual: float, rounding: float) -> None:
    """Raise UsageError where D grows for ever along the ray t x, t > 0, because of a kernel that is not positive
    semidefinite.

    Without bounds above, the ray keeps to all constraints, and D(t x) = t sum a_i (1 - conjugate'(0)) - t^2 Q. Q, which
    ridges make larger, is above 0 unless D is beyond its first term.
    """
    p = state.problem
    assert p.kernel is not None  # a kernel solver is given problems of one
    if p.kernel.positive_semidefinite() or has_box(p.loss) or p.loss.numeric():
        return
    if not dual > state.weight * (1.0 - p.loss.conjugate_slope(0.0, p.C)) + rounding:
        return
    raise UsageError(
        f"the fit with C = {p.C:g} has no optimum: the kernel {p.kernel} is not positive semidefinite on these rows, and "
        f"nothing bounds the coefficients of {p.loss}, which grow for ever",
        hint="choose another kernel (rbf, laplacian), the hinge, whose coefficients are bounded, or a smaller C",
    )


# Which rows make the next pool


def offer_violators(state: DecompositionState, rows: Pool, seed: int) -> None:
    """Offer the block's violators to the pool: all, or a share of them drawn at random and a few of the worst."""
    if state.problem.rows <= state.capacity:
        state.candidates.append(select_rows(rows, np.arange(rows.size)))
        return
    if state.beginning:
        state.candidates.append(select_rows(rows, np.sort(smallest_keys(draw_lots(rows.index, 0), state.capacity))))
        shorten_offer(state)
        return
    violating = row_violations(rows, state.intercept) > NEGLIGIBLE_SHARE * state.reach
    state.violators += int(violating.sum())
    if state.rate < 1.0:
        draws = np.random.default_rng((seed, int(rows.index[0]))).random(rows.size)
        chosen = np.union1d(np.flatnonzero(violating & (draws < state.rate)), worst_rows(rows, WORST_ROWS))
    else:
        chosen = worst_rows(rows, state.capacity)
    state.candidates.append(select_rows(rows, chosen))
    shorten_offer(state)


def shorten_offer(state: DecompositionState) -> None:
    """Leave of the rows that were offered as many as the pool may have, where they are more than twice as many."""
    if sum(o.size for o in state.candidates) > 2 * state.capacity:
        state.candidates = [choose_offered(state, join_pools(state.candidates), state.capacity)]


def choose_offered(state: DecompositionState, rows: Pool, count: int) -> Pool:
    """Return ``count`` of the rows that were offered, or all: the worst, or a draw with a few of the worst."""
    if rows.size <= count:
        return rows
    if state.beginning:
        return select_rows(rows, np.sort(smallest_keys(draw_lots(rows.index, 0), count)))
    if state.rate >= 1.0:
        return select_rows(rows, worst_rows(rows, count))
    drawn = np.random.default_rng(rows.size).permutation(rows.size)[: count - WORST_ROWS]
    return select_rows(rows, np.union1d(drawn, worst_rows(rows, WORST_ROWS)))


def next_pool(state: DecompositionState) -> Pool:
    """Return the rows offered, and of the last pool a quarter at most that are still between their bounds."""
    offered, last = join_pools(state.candidates), state.pool
    if last is None or state.problem.rows <= state.capacity:
        return choose_offered(state, offered, state.capacity)
    free = np.flatnonzero((last.x > last.low) & (last.x < last.high))
    drawn = np.random.default_rng(len(free)).permutation(free)[: int(CARRIED_SHARE * state.capacity)]
    kept = select_rows(last, np.sort(drawn))
    fresh = select_rows(offered, np.flatnonzero(~np.isin(offered.index, kept.index)))
    return join_pools([kept, choose_offered(state, fresh, state.capacity - kept.size)])


def start_at_bounds(state: DecompositionState, pool: Pool) -> float:
    """Set x of the first pool for one class to its bounds for a draw of rows, so that it has its sum; return the
    violation.
    """
    room, mass = float(pool.high.sum()), state.mass
    if room < mass:
        raise UsageError(
            f"the rows of a pool, {pool.size}, have a weight of {room:g}, and nu of all rows is {mass:g}",
            hint="a smaller nu, a larger --set solver.pool, or --landmarks, which has no pool",
        )
    order = np.argsort(draw_lots(pool.index, 0), kind="stable")
    filled = np.cumsum(pool.high[order])
    pool.x[order] = np.clip(mass - (filled - pool.high[order]), 0.0, pool.high[order])
    recompute_gradient(pool, state.form)
    state.drift += error_of_values(state.form, state.largest, pool.size, mass)
    violation = violation_of(pool)
    state.reach = max(state.reach, violation)
    return violation
