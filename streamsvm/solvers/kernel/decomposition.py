"""Kernel SVM with a free bias, by decomposition on several levels in few passes over the data.

    min_x  1/2 x'Kx + sum_i conjugate(|x_i|) - sum_i y_i x_i    subject to  sum x = 0,    x_i = y_i a_i

for every loss with a quadratic conjugate. The per-row state is a_i and f_i = sum_j x_j k_ij. A visit to a block first
loads a and f as of the last pass. It then writes a and f of the rows that were in the pool since, and adds to f of all
other rows the effect of the changes of x in the pool. The block's worst violators are offered to the next pool, which
is optimized in memory after the pass (``smo.py``). All sums of the pass are those of the current a: at its end

    P = 1/2 x'Kx + min_b C sum_i s_i l(y_i (f_i + b)),     D = sum_i (a_i - conjugate(a_i)) - 1/2 x'Kx

are P and D of the current a. P with any b is an upper bound; a grid of b around the last estimate is tried.

*Regression.* Rows with targets t_i have x_i = a_i of either sign, and the conjugate has a kink at 0. In a pool each row
keeps its sign. A row that ends at 0 changes its sign in the next pass if the gradient points there
(``compute.passes.kernel_rows``). The problem of a pool is therefore the same for all losses, with t'x instead of y'x.

*One-class* problems with a free offset rho = -b (``solvers.one_class``) are the same with y_i = 1, a kink at 0 and
sum x = nu sum s_i, which adds nu sum s_i b to P. x starts at its bounds for randomly drawn rows, as in LIBSVM.

*The pool* contains the worst violators, if there are not many. If there are many more than it can hold, most of its
rows are violators drawn at random, because the worst alone are a biased sample (``smo.SAMPLED_FROM``).

*Rounding.* f accumulates the rounding errors of all updates, which ``drift`` bounds. If the bound is too large for the
tolerance, another pass recomputes f from the support in float64, at the rows that matter to P or D (``rounding.py``).
If the gap is then too large, f is recomputed at all rows, and optimization continues in float64.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import bytes_per_row, take_rows
from streamsvm.compute.blocks.sums import dual_sum
from streamsvm.compute.kernel_values.arithmetic import ENOUGH
from streamsvm.compute.kernel_values.kernel_products import expand, scratch_bytes
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.kernel_rows import bounds_across_kink, can_have_loss, coordinates, sum_shifted_losses
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
    choose_form,
    error_of_values,
    extend_reach,
    form_for_certificates,
    needs_certified_form,
    negligible_error,
    select_same_form,
    use_whole_numbers,
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
    solve_step,
    subset_size,
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
"""Number of rows of the first pool if not all rows fit in a pool. Each further pool may have twice as many. Solving a
large pool from x = 0 would waste work, since x changes much in the passes that follow."""
CARRIED_SHARE = 0.25
"""Maximum fraction of a pool that is taken from the previous pool: rows whose x is strictly between the bounds."""
POOL_SHARE = 0.1
"""A pool is solved until its violation is this fraction of the violation over all rows in the pass."""
ALL_ROWS_SHARE = 0.01
"""A pool of all rows is solved further, down to this fraction of the violation, if the gap requires it: another pass
would update the gradient of all rows again."""
ONE_SET_STALL_PASSES = 5
"""Number of passes without progress after which the solver stops, with all rows in one working set."""
LEVELS_STALL_PASSES = 12
"""The same number with all rows in a pool of several levels."""
POOLS_STALL_PASSES = 40
"""The same number with some of the rows in a pool."""
INTERCEPTS = 64
"""Number of intercepts that are tried on either side of the last estimate."""
COPIED_ROWS = 8192
"""Number of rows of a block that are copied at a time."""
FLOAT64_COST = 4.0
"""The cost of a float64 kernel value, relative to that of one in the in-memory steps."""
GRACE_SECONDS = 2.0
"""Maximum time for recomputing f after the time limit."""
TINY = float(np.finfo(np.float64).tiny)


@saved_as("decomposition.work")
@dataclass(slots=True)
class LevelWork:
    """A pool that is being optimized."""

    levels: list[Level]
    """The pool, followed by nested subsets of it, the last of which is being optimized."""
    start_x: Float64
    """(pool,) x of the pool at its start."""

    @property
    def pool(self) -> Pool:
        """The pool itself."""
        return self.levels[0].pool


@saved_as("decomposition.state")
@dataclass(slots=True)
class DecompositionState:
    """The state of ``Decomposition``: the pool, the support, and the sums of the current pass."""

    problem: Problem
    form: Form
    """The kernel matrix of the problem and the arithmetic of its values, which a later pass may change to float64."""
    capacity: int
    """Maximum number of rows of the next pool."""
    pool: Pool | None = None
    """The rows in memory with x and v after the last optimization; None before the first pool and after the last."""
    changed_rows: Pool | None = None
    """The rows of the pool whose x has changed, with the change as their x and with sign 1. f of the rows outside the
    pool is not yet updated for them. None if ``pool`` is None."""
    shared_values: Own[Float64 | None] = None
    """The update of f due to ``changed_rows`` for the rows visited next, if it was evaluated for several problems at
    once."""
    support: Pool | None = None
    """The rows with a_i not 0, as of the last pass that collected them; a random sample of these if ``max_support`` is
    set."""
    collected_parts: Total[list[Pool]] = field(default_factory=list)
    """The rows with a_i not 0 that were collected in this pass."""
    visited_support: Total[int] = 0
    """Number of rows with a_i not 0 visited in this pass."""
    support_size: int = 0
    """Number of rows with a_i not 0 in all data, as of the last pass."""
    candidates: Total[list[Pool]] = field(default_factory=list)
    """The rows offered to the next pool in this pass, one part for each block until there are too many."""
    rate: float = 1.0
    """The fraction of violators that is offered."""
    violators: Total[int] = 0
    """Number of violators visited in this pass."""
    intercept: float = 0.0
    """b: the intercept with the least P in the last pass, or the threshold of the pool optimized since."""
    half_width: float = 1.0
    """The half-width of the grid of intercepts."""
    collects_support: bool = False
    """Whether this pass collects the support rows for the model and offers no rows to a pool."""
    deadline: float = math.inf
    """The time of ``time.perf_counter`` at which work in memory must stop."""
    reduced: Pool | None = None
    """The reduced set, from the pass that evaluates it on."""
    reduced_square: Total[float] = 0.0
    """The squared norm of the reduced set, summed over the rows visited."""
    dual: Total[float] = 0.0
    """sum a_i - conjugate(a_i) over the rows visited in this pass. D is this sum minus 1/2 x'Kx."""
    square: Total[float] = 0.0
    """x'Kx, summed over the rows visited in this pass."""
    losses: Total[Float64] = field(default_factory=lambda: np.zeros(2 * INTERCEPTS + 1))
    """(129,) sum C s_i l(y_i (f_i + b)) over the rows visited, for each intercept b of ``shifts``."""
    top: Largest[float] = -np.inf
    """The largest v of the visited rows whose x may grow."""
    bottom: Smallest[float] = np.inf
    """The smallest v of the visited rows whose x may shrink. x is optimal if ``top`` <= ``bottom``."""
    row_reach: Seen[Reach | None] = None
    """The reach of the rows visited so far."""
    drift: float = 0.0
    """A bound of the rounding error of f at any row, due to all changes of x so far."""
    weight: Total[float] = 0.0
    """sum |x_i|."""
    absolute: Total[float] = 0.0
    """sum |x_i f_i|; for regression sum |x_i t_i| more."""
    upper_losses: Total[Float64] = field(default_factory=lambda: np.zeros(2 * INTERCEPTS + 1))
    """The losses at margins that are reduced by their possible error, an upper bound of ``losses`` without rounding."""
    negligible_value_error: float = ENOUGH
    """The error of a kernel value that is negligible in the certificate of this x, as of the last pass."""
    recompute_support: Pool | None = None
    """The support, if the next pass recomputes f from it in the arithmetic of certificates."""
    recompute_all_rows: bool = False
    """Whether f is recomputed at all rows, and not only at those that matter to P and D."""
    is_last_pass: bool = False
    """Whether this is the last pass of the run, whatever its result."""
    pace: float = 0.0
    """Measured seconds per kernel value in in-memory steps; used if there is a deadline."""
    gaps: list[float] = field(default_factory=list)
    """The relative gap after each pass, with D replaced by 0 if it is negative."""
    stalled: bool = False
    """Whether the solver has stalled, so that the next exact certificate is the last one."""
    work: LevelWork | None = None
    """The work in memory before the next pass; None: nothing is left to do."""
    total: Total[float] = 0.0
    """sum s_i over the rows visited in this pass."""

    @property
    def is_first_one_class_pass(self) -> bool:
        """Whether this is the first pass of a one-class problem with a free offset, in which no row is a violator
        yet.
        """
        return not self.problem.regularizer.has_scale and self.pool is None and not self.gaps

    @property
    def mass(self) -> float:
        """The required sum of x, after all rows are visited: nu sum s_i for one-class problems with a free offset, else
        0.
        """
        return self.problem.regularizer.sum_of_dual(self.total) or 0.0

    @property
    def violation(self) -> float:
        """The violation of the optimality conditions by the rows visited in this pass."""
        return max(self.top - self.bottom, 0.0)

    def shifts(self) -> Float64:
        """Return the grid of intercepts that are tried."""
        return self.intercept + np.linspace(-self.half_width, self.half_width, 2 * INTERCEPTS + 1)

    def estimate_seconds_to_finish_pool(self) -> float:
        """Return the estimated seconds to leave all levels of the pool and to update f of the rows outside the pool."""
        if self.work is None or math.isinf(self.deadline):
            return 0.0
        levels, rows = self.work.levels, self.problem.rows
        pairs = sum(level.pool.size * len(level.progress.recent) for level in levels[:-1])
        if self.work.pool.size < rows:
            pairs += rows * len(levels[0].progress.recent)
        return self.pace * pairs

    def estimate_seconds_to_recompute(self, support: Pool) -> float:
        """Return an upper estimate of the seconds to recompute f from a support in float64."""
        return FLOAT64_COST * self.pace * self.problem.rows * support.size

    def form_for_certificates(self) -> Form:
        """Return the form in the arithmetic of certificates."""
        return form_for_certificates(self.form, self.row_reach, self.negligible_value_error)

    def value_error(self) -> float:
        """Return a bound of the rounding error of the decision values in the sums of this pass."""
        points = self.reduced or self.recompute_support
        if points is None:
            return self.drift
        form = self.form_for_certificates() if self.reduced is None else self.form
        return error_of_values(form, self.row_reach, points.size, float(np.abs(points.x).sum()))

    def rounding(self, best: int) -> float:
        """Return a bound of the rounding error of P and D, for the intercept with the index ``best``."""
        error = max(self.value_error(), self.drift if self.reduced is not None else 0.0)
        losses = float(self.losses[best]), float(self.upper_losses[best])
        return bound_rounding(self.problem, error, self.weight, self.absolute, losses)


@dataclass(frozen=True, slots=True)
class Decomposition(Solver[DecompositionState]):
    """The decomposition method for kernel SVMs with a free bias."""

    working: Annotated[
        int, Option("Size of the working set: coordinates optimized together.", bounds=Bounds(least=2))
    ] = 2048
    pool: Annotated[
        int, Option("Number of rows held in memory; by default all rows if memory allows.", bounds=Bounds(least=1))
    ] = 32768
    max_support: MaxSupport = 0
    row_state: ClassVar[tuple[RowState, ...]] = (RowState(DUAL, "float64"), RowState("f", "float64"))
    """The dual variable a_i of every row, and its decision value f_i without the intercept."""
    free_bias: ClassVar[bool] = True
    """True: the intercept is not regularized, hence sum x = 0."""
    shuffled: ClassVar[bool] = False
    """False: no step is made while rows are read, so their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True)
    """The conjugate must be quadratic or linear, so that the problem of a pool is a quadratic program with a box."""
    exact_kernel: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the pool while the next one is made, of a Gram matrix and the support, and of a and f for
        each row.
        """
        row = bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + ROW_BYTES
        rows = min(problem.rows, layout.rows)  # in one-vs-one a problem only has the rows of its two classes
        pool = min(self.pool, rows) * row
        gram = matrix_bytes(min(self.working, rows))
        if self.max_support:
            support = 2 * min(2 * SAMPLE_PER_POINT * self.max_support, rows) * row
            fixed = 3 * pool + gram + support + reduced_set_bytes(min(self.max_support, rows))
        else:  # the support is collected after the last working set
            fixed = max(3 * pool + gram, 2 * pool + 2 * rows * row)
        return Cost(fixed=fixed + scratch_bytes(layout.columns), per_row=16, per_block_row=2 * ROW_BYTES + 8)

    def adapt_to_data(self, rows: int, problems: Sequence[Problem], user_set: Collection[str]) -> Decomposition:
        """Return the solver with a pool of all rows, unless the user set its size (``user_set``)."""
        return self if "pool" in user_set else replace(self, pool=max(self.pool, rows))

    def shrink_memory(self, problem: Problem, user_set: Collection[str]) -> Decomposition | None:
        """Return the solver with half the pool; None if the pool would become too small to be useful."""
        return None if self.pool < 2 * MIN_POOL else replace(self, pool=self.pool // 2)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the rows of the pool."""
        return {"pool": self.pool}

    def start(self, problem: Problem) -> DecompositionState:
        """Return the state at a = 0 with no pool."""
        capacity = self.pool if problem.rows <= self.pool else min(self.pool, FIRST_POOL)
        rate = 1.0 if problem.rows <= SAMPLED_FROM * capacity else capacity / problem.rows
        return DecompositionState(problem, choose_form(problem), capacity, rate=rate)

    def prepare_shared(self, states: list[DecompositionState], X: Rows) -> None:
        """Evaluate the kernel once for all problems that have to update f of rows outside their pool."""
        with_changes = [
            (s, s.changed_rows)
            for s in select_same_form(states)
            if s.changed_rows is not None and s.pool and s.pool.size < s.problem.rows
        ]
        moved = [rows for _, rows in with_changes]
        if len(with_changes) > 1 and is_sharing_worthwhile(moved, X):
            for (state, _), values in zip(with_changes, evaluate_shared(moved, states[0].form, X), strict=True):
                state.shared_values = values

    def visit(self, state: DecompositionState, block: Block) -> None:
        """Update a and f of the block to the current x, add the block to the sums for P and D, and offer its
        violators.
        """
        update_rows(state, block)
        state.row_reach = extend_reach(state.row_reach, block.X)
        if state.recompute_support is not None:
            recompute_values(state, state.recompute_support, block)
        rows = rows_of(state, block)
        add_to_bounds(state, block, rows)
        if state.reduced is not None:
            return
        if self.max_support or state.collects_support:
            self._collect_support(state, rows)
        if not state.collects_support and (state.recompute_support is None or state.recompute_all_rows):
            offer_violators(state, rows, block.seed)

    def set_deadline(self, state: DecompositionState, moment: float) -> None:
        """Leave the pool after the first working set that ends later than ``moment``."""
        state.deadline = moment

    def finish(self, state: DecompositionState) -> Certificate:
        """Return P and D, which are exact for the current x, and prepare the next step.

        The next step is a pool to optimize, or a pass that collects the support, recomputes f in float64 or evaluates
        the reduced set.
        """
        if state.reduced is None:
            state.support_size = state.visited_support
            if state.collects_support or self.max_support:
                state.support = sort_rows(self._draw_support(state))
        violation, certificate = state.violation, bounds_of_pass(state)
        stalled = self._is_stalled(state, certificate)
        certificate = replace(certificate, final=state.reduced is not None or stalled)
        if state.recompute_support is not None:
            more = self._after_recomputation(state, certificate, violation)
        else:
            more, certificate = self._after_pass(state, certificate, violation)
        state.negligible_value_error = negligible_error(state.problem, certificate.primal, state.weight)
        clear_totals(state)
        state.collects_support = more and state.reduced is None and state.recompute_support is None
        return replace(certificate, exact=False) if more else certificate

    def has_pending_steps(self, state: DecompositionState) -> bool:
        """Return whether a pool is being optimized."""
        return state.work is not None

    def make_step(self, state: DecompositionState) -> None:
        """Optimize a working set, or change to another level of the pool. After the last step, record the changes of
        x.
        """
        work = state.work
        assert work is not None  # a step is pending
        began, last = time.perf_counter(), work.levels[-1]
        moment = state.deadline - state.estimate_seconds_to_finish_pool()
        more = solve_step(work.levels, state.form, working_size(self.working, state.form), moment)
        if work.levels[-1] is last:  # a working set was optimized
            state.pace = (time.perf_counter() - began) / (last.pool.size * max(len(last.progress.recent), 1))
        if more:
            return
        if is_late(moment):
            state.gaps = []  # a pool that was left because of the time limit must not count as a stall
        pool, moves = work.pool, work.levels[0].progress.moves
        state.drift += error_of_values(state.form, state.row_reach, pool.size, moves.travel)
        threshold = estimate_threshold(pool)
        state.intercept = threshold if np.isfinite(threshold) else state.intercept
        places = np.flatnonzero(pool.x != work.start_x)
        state.pool, state.changed_rows, state.work = pool, select_rows(pool, places), None
        state.changed_rows.sign[:], state.changed_rows.x = 1.0, (pool.x - work.start_x)[places]

    def certify(self, state: DecompositionState) -> None:
        """Make the next pass the last one: it recomputes f if the support is known, and collects the support otherwise.

        If the time limit is reached and recomputing f would take long, f is not recomputed; its error bound is known.
        """
        has_all_rows, state.is_last_pass = state.pool is not None and state.pool.size == state.problem.rows, True
        if state.pool is not None and has_all_rows and self.max_support == 0:
            state.recompute_support = state.support = select_rows(state.pool, np.flatnonzero(state.pool.x))
        if (
            state.recompute_support is not None
            and is_late(state.deadline)
            and state.estimate_seconds_to_recompute(state.recompute_support) > GRACE_SECONDS
        ):
            state.recompute_support = None
        state.collects_support, state.recompute_all_rows = state.recompute_support is None, False
        self._reduce_support(state)

    def merge(self, states: list[DecompositionState]) -> DecompositionState:
        """Add up the sums of parts, which have visited disjoint rows with the same x."""
        first, *others = states
        for other in others:
            merge_states([first, other])
            limit_candidates(first)
            self._limit_collected(first)
        return first

    def solution(self, state: DecompositionState) -> SupportSolution:
        """Return the support rows or the reduced set, with the intercept of least P. Raises UsageError if there are no
        support rows.
        """
        support = state.reduced or state.support
        if support is None:
            raise no_support_error()
        if support.size == 0 and state.is_last_pass:
            raise UsageError(
                "the fit was stopped before any row had a coefficient",
                hint="allow more passes (--max-passes) or more time",
            )
        return SupportSolution(support.X, support.index, support.x, state.intercept + state.problem.kind.center)

    # After a pass

    def _is_stalled(self, state: DecompositionState, certificate: Certificate) -> bool:
        """Record the gap of this pass, and return whether the gap has stopped falling in this or an earlier pass."""
        has_all_rows = state.pool is not None and state.pool.size == state.problem.rows
        one_set = state.problem.rows <= working_size(self.working, state.form)
        passes = (ONE_SET_STALL_PASSES if one_set else LEVELS_STALL_PASSES) if has_all_rows else POOLS_STALL_PASSES
        least = 0.0 if state.problem.regularizer.has_scale else certificate.dual
        gap = (certificate.primal - max(certificate.dual, least)) / max(abs(certificate.primal), TINY)
        state.gaps.append(gap)
        state.stalled = state.stalled or has_stalled(state.gaps, passes)
        return state.stalled

    def _after_pass(
        self, state: DecompositionState, certificate: Certificate, violation: float
    ) -> tuple[bool, Certificate]:
        """Choose the next step after a pass that has updated f by the changes of x.

        Return whether the model needs another pass before its certificate is exact, and the certificate of this pass.
        """
        tolerance, reduced = state.problem.tolerance, state.reduced
        is_inaccurate = needs_certified_form(state.problem, certificate.primal, certificate.rounding)
        is_solved = (
            certificate.primal - certificate.dual <= tolerance * abs(certificate.primal)
            if is_inaccurate
            else certificate.gap <= tolerance
        )
        is_done = state.collects_support or state.stalled or is_solved
        complete = bool(state.collects_support or self.max_support)
        more = self._continue_or_collect(state, violation, complete=complete, is_done=is_done)
        if is_done and not more and reduced is None and not state.is_last_pass:
            more = self._recompute_or_reduce(state) if is_inaccurate else self._reduce_support(state)
        if is_inaccurate and not is_done and reduced is None:
            certificate = replace(certificate, exact=False, rounding=0.0)
        return more, certificate

    def _continue_or_collect(
        self, state: DecompositionState, violation: float, *, complete: bool, is_done: bool
    ) -> bool:
        """Make the next pool, or release the last one. Return whether a pass is needed to collect the support.

        ``complete``: this pass has collected the support. ``is_done``: no further pool is needed.
        """
        if state.reduced is not None:
            return False
        if not is_done:
            self._make_pool(state, violation)
            return False
        pool, state.pool, state.changed_rows = state.pool, None, None
        if pool is not None and pool.size == state.problem.rows:
            state.support = select_rows(pool, np.flatnonzero(pool.x))
            return False
        return not complete

    def _recompute_or_reduce(self, state: DecompositionState) -> bool:
        """Make the next pass recompute f if the whole support is in memory; otherwise make the reduced set. Return
        whether another pass is needed.
        """
        if state.support is None or state.support.size < state.support_size:
            return self._reduce_support(state)
        state.recompute_support = state.support
        return True

    def _after_recomputation(self, state: DecompositionState, certificate: Certificate, violation: float) -> bool:
        """Choose the next step after a pass that recomputed f. Return whether the model needs another pass."""
        all_rows, state.recompute_all_rows = state.recompute_all_rows, False
        support, state.recompute_support = state.recompute_support, None
        state.form = state.form_for_certificates()
        error = error_of_values(state.form, state.row_reach, state.support_size, state.weight)
        if certificate.gap <= state.problem.tolerance or certificate.final:
            state.drift = error  # at the rows with x not 0, which are the only ones that matter from here on
            return self._reduce_support(state)
        if all_rows:
            state.drift = error
            self._make_pool(state, violation)
        else:
            state.recompute_support, state.recompute_all_rows = support, True
        return False

    # The pool

    def _make_pool(self, state: DecompositionState, violation: float) -> None:
        """Make the next pool, which is then optimized in steps."""
        if not self.max_support:
            state.form = use_whole_numbers(state.problem, state.form, state.row_reach)
        pool = sort_rows(next_pool(state))
        before = pool.x.copy()
        if not state.problem.regularizer.has_scale and state.weight == 0.0:
            violation = start_at_bounds(state, pool)
        state.capacity = min(2 * state.capacity, self.pool)
        state.rate = 1.0 if state.violators <= SAMPLED_FROM * state.capacity else state.capacity / state.violators
        working = working_size(self.working, state.form)
        subset = subset_size(pool.size, working)
        has_all_rows, gap = pool.size == state.problem.rows, state.gaps[-1]
        progress = Progress(ROUNDS if has_all_rows and subset > working else max_rounds(pool.size, subset))
        if pool.size < state.problem.rows or gap <= 0.0:
            share = POOL_SHARE
        else:
            share = min(POOL_SHARE, max(ALL_ROWS_SHARE, 0.5 * state.problem.tolerance / gap))
        state.work = LevelWork([Level(pool, share * violation, progress)], before)
        state.pool = state.changed_rows = None

    # The support, and the reduced set

    def _collect_support(self, state: DecompositionState, rows: Pool) -> None:
        """Store copies of the support rows of a block."""
        state.collected_parts.append(select_rows(rows, np.flatnonzero(rows.x)))
        self._limit_collected(state)

    def _limit_collected(self, state: DecompositionState) -> None:
        """Reduce the collected support rows to a random sample if there are more than twice as many as the fit of a
        reduced set uses.
        """
        most = self.max_support
        if most and sum(part.size for part in state.collected_parts) > 2 * SAMPLE_PER_POINT * most:
            state.collected_parts = [self._draw_support(state)]

    def _draw_support(self, state: DecompositionState) -> Pool:
        """Return the collected support rows, or the random sample of them that the fit of a reduced set uses."""
        rows = join_pools(state.collected_parts)
        if not self.max_support:
            return rows
        return select_rows(rows, draw_by_weight(rows.index, rows.x, SAMPLE_PER_POINT * self.max_support))

    def _reduce_support(self, state: DecompositionState) -> bool:
        """Fit the reduced set if the support has more than ``max_support`` rows. Return whether it was fitted."""
        support = state.support
        if support is None or not 0 < self.max_support < state.support_size:
            return False
        values = support.p - support.v - support.ridge * support.x
        importance = state.problem.C * state.support_size / support.size
        state.reduced = fit_reduced_set(support, values, state.form, self.max_support, importance)
        state.half_width = 1.0
        return True


# A visit: the block at the current x


def update_rows(state: DecompositionState, block: Block) -> None:
    """Update a and f of the block, its per-row state, to the current x: copy them for the rows of the pool, and add the
    changes in the pool to f of all other rows.
    """
    if state.pool is None or state.changed_rows is None:
        return
    pool, f, n = state.pool, block.rows["f"], len(block.y)
    pool_places, own = block.members(pool.index)
    block.rows[DUAL][own] = pool.x[pool_places] if state.problem.loss.numeric() else np.abs(pool.x[pool_places])
    f[own] = (pool.p - pool.v - pool.ridge * pool.x)[pool_places]
    others = np.ones(n, bool)
    others[own] = False
    if state.shared_values is not None:
        f[others] += state.shared_values[others]
        state.shared_values = None
    elif others.any():
        places = np.flatnonzero(others)
        f[places] += evaluate_at(block, places, state.changed_rows, state.form)


def recompute_values(state: DecompositionState, support: Pool, block: Block) -> None:
    """Recompute f from the support in the arithmetic of certificates, at all rows or only at the rows that matter to P
    or D.

    The rows that matter have a coefficient, or may have a positive loss, given the possible errors of f and b.
    """
    f, form = block.rows["f"], state.form_for_certificates()
    slack = state.drift + state.half_width
    matters = block.rows[DUAL] != 0.0
    matters |= can_have_loss(f + state.intercept, block.y, state.problem.loss, slack) & (block.s > 0.0)
    chosen = np.arange(len(f)) if state.recompute_all_rows else np.flatnonzero(matters)
    f[chosen] = evaluate_at(block, chosen, support, form)


def evaluate_at(block: Block, places: Int64, points: Pool, form: Form) -> Float64:
    """Return sum_j x_j k(., z_j) over the points, at the given rows of a block (k,). Rows are copied in small
    batches.
    """
    values = np.zeros(len(places))
    if len(places) == len(block.y):
        expand(block.X, points.X, points.x, form.kernel, form.columns, values, form.arithmetic)
        return values
    for start in range(0, len(places), COPIED_ROWS):
        batch = take_rows(block.X, places[start : start + COPIED_ROWS])
        part = values[start : start + COPIED_ROWS]
        expand(batch, points.X, points.x, form.kernel, form.columns, part, form.arithmetic)
    return values


def rows_of(state: DecompositionState, block: Block) -> Pool:
    """Return the block's rows as a pool, without copying features. Include rows at a kink at 0 in the violation."""
    n, p = len(block.y), state.problem
    cost = RowLoss(p.C, p.loss, p.loss)
    rows = coordinates(block.y, block.s, block.rows[DUAL], block.rows["f"], cost, state.intercept)
    _widen_violation(state, bounds_across_kink(rows, p.loss))
    return Pool(block.X, block.numbers, np.ones(n), rows.ridge, rows.low, rows.high, rows.p, rows.x, rows.v)


def add_to_bounds(state: DecompositionState, block: Block, rows: Pool) -> None:
    """Add the block's rows to the sums of the pass for P, D, the violation and the size of the support."""
    p, f = state.problem, block.rows["f"]
    _widen_violation(state, extremes(rows))
    state.visited_support += int(np.count_nonzero(rows.x))
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


def _widen_violation(state: DecompositionState, extreme_v: tuple[float, float]) -> None:
    """Include the largest v of rows whose x may grow, and the least v of rows whose x may shrink."""
    state.top, state.bottom = max(state.top, extreme_v[0]), min(state.bottom, extreme_v[1])


# The bounds of a pass


def bounds_of_pass(state: DecompositionState) -> Certificate:
    """Return the certificate: P with the best intercept of the grid, D, and their rounding error. Center the next grid
    at that intercept.
    """
    values = state.losses + state.mass * state.shifts()
    best, violation, reduced = int(np.argmin(values)), state.violation, state.reduced
    square = state.square if reduced is None else state.reduced_square
    primal, dual = 0.5 * square + float(values[best]), state.dual - 0.5 * state.square
    if not state.problem.regularizer.has_scale and state.weight == 0.0:
        # a has no value yet: ||sum a_i phi_i|| <= nu S max ||phi||
        assert state.problem.kernel is not None  # problems of a kernel solver have a kernel
        largest = 0.0 if state.row_reach is None else state.problem.kernel.largest(state.row_reach)
        dual = -0.5 * state.mass**2 * largest
    rounding = state.rounding(best)
    if reduced is None:
        _check_bounded(state, dual, rounding)
    is_at_edge = best in {0, 2 * INTERCEPTS}  # the best intercept is probably outside the grid
    wider = 4.0 * state.half_width if is_at_edge else 0.0
    state.intercept, state.half_width = float(state.shifts()[best]), max(violation, wider, 1e-6)
    facts = {"violation": violation, "support": state.support_size, "points": reduced.size if reduced else None}
    return Certificate(primal, dual, facts=facts, rounding=rounding)


def _check_bounded(state: DecompositionState, dual: float, rounding: float) -> None:
    """Raise UsageError if D is unbounded along the ray t x, t > 0, because the kernel is not positive semidefinite.

    Without upper bounds on the variables the ray is feasible, and D(t x) = t sum a_i (1 - conjugate'(0)) - t^2 Q. Q,
    which ridges increase, is positive unless D exceeds its first term.
    """
    p = state.problem
    assert p.kernel is not None  # problems of a kernel solver have a kernel
    if p.kernel.positive_semidefinite() or has_box(p.loss) or p.loss.numeric():
        return
    if not dual > state.weight * (1.0 - p.loss.conjugate_slope(0.0, p.C)) + rounding:
        return
    raise UsageError(
        f"the fit with C = {p.C:g} has no optimum: the kernel {p.kernel} is not positive semidefinite on these rows, "
        f"and the loss {p.loss} does not bound the coefficients",
        hint="choose another kernel (rbf, laplacian), the hinge, whose coefficients are bounded, or a smaller C",
    )


# Which rows make the next pool


def offer_violators(state: DecompositionState, rows: Pool, seed: int) -> None:
    """Offer the block's violators to the next pool: all of them, or a random sample and a few of the worst."""
    if state.problem.rows <= state.capacity:
        state.candidates.append(select_rows(rows, np.arange(rows.size)))
        return
    if state.is_first_one_class_pass:
        state.candidates.append(select_rows(rows, np.sort(smallest_keys(draw_lots(rows.index, 0), state.capacity))))
        limit_candidates(state)
        return
    violating = row_violations(rows, state.intercept) > NEGLIGIBLE_SHARE * state.half_width
    state.violators += int(violating.sum())
    if state.rate < 1.0:
        draws = np.random.default_rng((seed, int(rows.index[0]))).random(rows.size)
        chosen = np.union1d(np.flatnonzero(violating & (draws < state.rate)), worst_rows(rows, WORST_ROWS))
    else:
        chosen = worst_rows(rows, state.capacity)
    state.candidates.append(select_rows(rows, chosen))
    limit_candidates(state)


def limit_candidates(state: DecompositionState) -> None:
    """Reduce the offered rows to the capacity of the pool, if there are more than twice as many."""
    if sum(o.size for o in state.candidates) > 2 * state.capacity:
        state.candidates = [choose_offered(state, join_pools(state.candidates), state.capacity)]


def choose_offered(state: DecompositionState, rows: Pool, count: int) -> Pool:
    """Return ``count`` of the offered rows: the worst violators, or a random sample and a few of the worst. If there
    are fewer, return all.
    """
    if rows.size <= count:
        return rows
    if state.is_first_one_class_pass:
        return select_rows(rows, np.sort(smallest_keys(draw_lots(rows.index, 0), count)))
    if state.rate >= 1.0:
        return select_rows(rows, worst_rows(rows, count))
    drawn = np.random.default_rng(rows.size).permutation(rows.size)[: count - WORST_ROWS]
    return select_rows(rows, np.union1d(drawn, worst_rows(rows, WORST_ROWS)))


def next_pool(state: DecompositionState) -> Pool:
    """Return the rows of the next pool: the offered rows, and of the last pool rows strictly between their bounds, at
    most CARRIED_SHARE of the capacity.
    """
    offered, last = join_pools(state.candidates), state.pool
    if last is None or state.problem.rows <= state.capacity:
        return choose_offered(state, offered, state.capacity)
    free = np.flatnonzero((last.x > last.low) & (last.x < last.high))
    drawn = np.random.default_rng(len(free)).permutation(free)[: int(CARRIED_SHARE * state.capacity)]
    carried = select_rows(last, np.sort(drawn))
    new = select_rows(offered, np.flatnonzero(~np.isin(offered.index, carried.index)))
    return join_pools([carried, choose_offered(state, new, state.capacity - carried.size)])


def start_at_bounds(state: DecompositionState, pool: Pool) -> float:
    """Set x of the first pool of a one-class problem to the upper bounds for randomly drawn rows, such that the sum of
    x is right. Return the violation.
    """
    weight, mass = float(pool.high.sum()), state.mass
    if weight < mass:
        raise UsageError(
            f"the {pool.size} rows of a pool have a weight of {weight:g} in all, but nu times the weight of all rows "
            f"is {mass:g}",
            hint="choose a smaller nu, a larger --set solver.pool, or --landmarks, which needs no pool",
        )
    order = np.argsort(draw_lots(pool.index, 0), kind="stable")
    filled = np.cumsum(pool.high[order])
    pool.x[order] = np.clip(mass - (filled - pool.high[order]), 0.0, pool.high[order])
    recompute_gradient(pool, state.form)
    state.drift += error_of_values(state.form, state.row_reach, pool.size, mass)
    violation = violation_of(pool)
    state.half_width = max(state.half_width, violation)
    return violation
