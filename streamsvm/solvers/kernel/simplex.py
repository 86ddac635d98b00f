"""The L2-SVM on the simplex: passes and pools of all methods for it, which make their steps in memory.

    min_a  f(a) = 1/2 a'Ka   subject to  sum a = 1,  a >= 0,      K_ij = y_i y_j (k_ij + bias^2) + [i = j] / (2 C s_i)

It is the dual of P(w) = 1/2 ||w||^2 + C sum_i s_i max(0, k - m_i)^2, where k is the margin of the loss (1 by default)
and the bias is a regularized constant feature. The dual value at t a, sum a = 1, is D = k t - t^2 f(a). The best t is
k / (2 f), for which D = k^2 / (4 f): minimizing f maximizes D, whatever k is. With w = t sum_i a_i y_i phi_i the
margins are m_i = t (g_i - a_i / (2 C s_i)), g = Ka, hence m_i + t a_i / (2 C s_i) >= t min g = k - t gap, where gap = 2
f - min g is the Frank-Wolfe gap. Scaled by k / (k - t gap) this point is feasible for P:

    D <= P* <= D / (1 - gap / (2 f))^2,     so that the relative gap is at most about gap / f.

Every pass computes two gaps: the simplex gap, which bounds f - f* (``epsilon``, the criterion of the Frank-Wolfe
papers; as f is of the order 1 / n, 1e-4 is a loose one), and (P - D) / P with P summed over all rows. The K of the
papers contains [i = j] / C, which is P with C / 2 (the loss 1/2 xi^2). Their C is twice ours.

*A pass* recomputes g of every row from the support, so that certificates contain no rounding errors of recursions, and
offers rows with a small g. *Between two passes* a method (``blended.py``, ``frank_wolfe.py``) works on a pool, which
consists of the support and the offered rows. A pool of all rows is solved to the tolerance. A smaller one is solved to
a fraction of the gap over all rows, and the next pool has other rows. The rows with weight at the end are the support,
of which at most ``keep`` rows stay.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.compute.kernel_values.kernel_products import expand, scratch_bytes
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.kernel_rows import ridges, sum_shifted_losses
from streamsvm.compute.random import draw_lots, smallest_keys
from streamsvm.config.options import Bounds, Option
from streamsvm.errors import DataError
from streamsvm.losses import threshold
from streamsvm.rows import Float64, Int64, Reach, Rows
from streamsvm.solvers.kernel.cache import evaluate_shared, is_sharing_worthwhile
from streamsvm.solvers.kernel.pool import (
    MIN_POOL,
    ROW_BYTES,
    Form,
    Pool,
    join_pools,
    no_support_error,
    select_rows,
    sort_rows,
)
from streamsvm.solvers.kernel.reduced_set import (
    MaxSupport,
    evaluate_reduced_set,
    fit_reduced_set,
    reduced_set_bytes,
)
from streamsvm.solvers.kernel.rounding import (
    SHARE,
    bound_rounding,
    choose_form,
    error_of_values,
    extend_reach,
    form_for_certificates,
    needs_certified_form,
    select_same_form,
)
from streamsvm.solvers.kernel.smo import is_late, recompute_gradient
from streamsvm.solvers.stalling import has_stalled
from streamsvm.type_aliases import JsonObject
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
from streamsvm.types.state import Largest, Own, Seen, Smallest, Total, begin_part, clear_totals, merge_states

POOL_SHARE = 0.1
"""A pool that does not hold all rows is optimized to this fraction of the gap over all rows."""
STALL_POOLS = 12
"""Number of pools of all rows without progress after which the solver stops."""
STALLED_PRUNING_RATIO = 0.99
"""The solver stops if rows of the support were dropped and f is not below this multiple of f before."""
TRAJECTORY_RATIO = 1.1
"""Growth factor of the number of iterations between two entries of the trajectory."""

Choose = Callable[[Int64, Float64, int], Int64]
"""Returns the positions of a given number of rows, chosen by their global numbers and v."""


@saved_as("kernel.candidates")
@dataclass(slots=True)
class Candidates:
    """The rows offered for the next pool, with their v = -g."""

    capacity: int
    """Number of rows that are taken. Each pass may double it, up to the size of the pool."""
    parts: Total[list[Pool]] = field(default_factory=list)
    """The offered rows, one part for each block until there are too many."""

    @property
    def size(self) -> int:
        """Number of rows offered so far."""
        return sum(part.size for part in self.parts)

    def add(self, rows: Pool, places: Int64, choose: Choose) -> None:
        """Offer the rows of a block at ``places``, or a choice of them if they are more than ``capacity``."""
        if len(places) > self.capacity:
            places = np.sort(places[choose(rows.index[places], rows.v[places], self.capacity)])
        self.parts.append(select_rows(rows, places))
        self.shorten(choose)

    def shorten(self, choose: Choose) -> None:
        """Drop the rows that would not be taken, if more than twice the ``capacity`` were offered."""
        if self.size > 2 * self.capacity:
            self.take(choose)

    def take(self, choose: Choose) -> Pool:
        """Choose at most ``capacity`` of the offered rows, drop the others, and return the chosen ones."""
        rows = join_pools(self.parts)
        if rows.size > self.capacity:
            rows = select_rows(rows, np.sort(choose(rows.index, rows.v, self.capacity)))
        self.parts = [rows]
        return rows


@saved_as("simplex.reached")
class ReachedGap(NamedTuple):
    """The gap and f at which a method in memory stopped, over the rows in memory or a sample of them."""

    gap: float
    """2 f - min g over those rows."""
    f: float
    """1/2 a'Ka."""


@saved_as("simplex.target")
class Target(NamedTuple):
    """The gap at which a method in memory may stop: the largest of ``epsilon``, ``relative`` times f, and the smaller
    of ``pool_gap`` and ``pool_gap_ratio`` times f.
    """

    epsilon: float
    """A sufficient absolute gap; 0: none."""
    relative: float
    """A sufficient gap, as a fraction of f."""
    pool_gap: float = 0.0
    """A gap that is sufficient in a pool of some of the rows, if it is at most ``pool_gap_ratio`` times f."""
    pool_gap_ratio: float = 0.0
    """The fraction of f that limits ``pool_gap``."""

    def allowed_gap(self, f: float) -> float:
        """Return the sufficient gap at f."""
        return max(self.epsilon, self.relative * f, min(self.pool_gap, self.pool_gap_ratio * f))


@saved_as("simplex.work")
@dataclass(slots=True)
class PoolWork:
    """A pool on which a method works between two passes."""

    pool: Pool
    """The rows of the support and the added rows, in order."""
    target: Target
    start_f: float
    """f at the start of the pool."""
    iterations_left: int
    """Number of iterations, or working sets, that are left."""
    pruned: bool = False
    """Whether support rows were dropped because of ``keep``, and the method works on the others."""
    method: Any = None
    """The state of the method, a dataclass; None before its first step."""


@saved_as("simplex.state")
@dataclass(slots=True)
class SimplexState:
    """The state of solvers on the simplex: the support, the sums of the pass, the work before the next pass, and the
    trajectory.
    """

    problem: Problem
    form: Form
    """The kernel matrix of the problem and the arithmetic of its values, which a later pass may change to float64."""
    candidates: Total[Candidates]
    """Rows outside the support that are offered for the next pool."""
    support: Pool | None = None
    """The rows with a_i > 0 by number; x = a, and v = -g as of the last pass. None before the first pool."""
    square: Total[float] = 0.0
    """a'(K - ridge)a = ||sum a_i y_i phi_i||^2, summed over the rows visited in this pass."""
    ridge: Total[float] = 0.0
    """sum ridge_i a_i^2 over the rows visited in this pass; ``square + ridge`` is 2 f."""
    f: float = 0.0
    """1/2 a'Ka, from the last pass or from the work in memory since."""
    lowest: Smallest[float] = np.inf
    """The smallest g of the rows visited in this pass that may have weight."""
    losses: Total[Float64] = field(default_factory=lambda: np.zeros(1))
    """(1,) sum C s_i l(m_i) of the model t a, or of the reduced set, over the rows visited in this pass."""
    gap: float = np.inf
    """2 f - min g over all rows, as of the last pass; inf before the first."""
    reached_gap: float = np.inf
    """The gap over the rows in memory at which the method stopped."""
    shared_values: Own[Float64 | None] = None
    """Decision values of the rows visited next, without the constant, if they were evaluated for several problems at
    once."""
    certifying: bool = False
    """Whether the pass only evaluates and offers no rows."""
    deadline: float = math.inf
    """The time of ``time.perf_counter`` at which work in memory must stop."""
    passes: int = 0
    """Number of completed passes."""
    iterations: int = 0
    """Number of iterations of the method in memory, over the whole fit."""
    reduced: Pool | None = None
    """The reduced set, with its coefficients as x, from the pass that evaluates it on."""
    reduced_square: Total[float] = 0.0
    """The squared norm of the reduced set, summed over the rows visited in this pass."""
    stopped: bool = False
    """Whether the method in memory has met its stopping criterion, so that the next pass certifies the result."""
    start_time: float = field(default_factory=time.perf_counter)
    """The time at which the clock of the trajectory started."""
    trajectory: list[list[float]] = field(default_factory=list)
    """For each entry: iterations, gap over the rows in memory, f, support, seconds, passes."""
    next_entry: float = 0.0
    """Number of iterations after which the next entry of the trajectory is added."""
    reach: Seen[Reach | None] = None
    """The reach of the rows visited so far."""
    absolute: Total[float] = 0.0
    """sum |a_i f_i| over the rows visited in this pass."""
    upper_losses: Total[Float64] = field(default_factory=lambda: np.zeros(1))
    """The losses at margins that are reduced by their possible error."""
    error: Largest[float] = 0.0
    """A bound of the error of the model's decision values (t f)."""
    scale: float | None = None
    """The t of the last certificate, which is that of the model; None before the first."""
    pace: Own[float] = 0.0
    """Measured seconds per kernel value in a pass; used if there is a deadline."""
    gaps: list[float] = field(default_factory=list)
    """The gap at which the method stopped in each pool of all rows, relative to f."""
    work: PoolWork | None = None
    """The work in memory before the next pass; None: nothing is left to do."""

    def is_time_up(self, a: Float64) -> bool:
        """Return whether the certifying pass has to start now to meet the deadline. It evaluates the kernel between all
        rows and the support.

        The rows with weight are only counted if there is a deadline, since counting takes a quarter of a step's time.
        """
        if self.deadline == math.inf:
            return False
        return is_late(self.deadline - self.pace * self.problem.rows * int(np.count_nonzero(a)))

    def record_gap(self, pool: Pool) -> None:
        """Record the gap reached in a pool of all rows, unless time is up. Stop the method if gaps have stalled."""
        if pool.size < self.problem.rows or self.is_time_up(pool.x):
            return
        self.gaps.append(self.reached_gap / self.f if self.f > 0.0 else 0.0)
        self.stopped = self.stopped or has_stalled(self.gaps, STALL_POOLS)

    def add_due_entry(self, iterations: int, gap: float, f: float, support: int) -> None:
        """Add an entry to the trajectory, and set the number of iterations after which the next one is added."""
        self.iterations, self.next_entry = iterations, max(iterations * TRAJECTORY_RATIO, iterations + 1)
        self.add_entry(gap, f, support)

    def add_entry(self, gap: float, f: float, support: int) -> None:
        """Add an entry to the trajectory: the gap over the rows in memory, f, the number of rows with weight."""
        self.trajectory.append([self.iterations, gap, f, support, time.perf_counter() - self.start_time, self.passes])

    def dual_scale(self) -> float:
        """Return the t = k / (2 f) at which the dual value of t a is largest; 0 if there is no a yet."""
        return 0.5 * threshold(self.problem.loss) / self.f if self.f > 0.0 else 0.0

    def value_error(self) -> float:
        """Return a bound of the error of the model's decision values, in the arithmetic of the pass."""
        points = self.reduced or self.support
        if points is None:
            return 0.0
        weight = float(np.abs(points.x).sum()) * (1.0 if self.reduced else self.dual_scale())
        return error_of_values(self.form, self.reach, points.size, weight)


@dataclass(frozen=True)
class SimplexSolver(Solver[SimplexState]):
    """The base class of methods on the simplex: passes and pools. A subclass implements ``improve``, the steps in
    memory.
    """

    epsilon: Annotated[
        float,
        Option(
            "Also stop at this absolute gap on the simplex. 0: only the relative gap counts.", bounds=Bounds(least=0)
        ),
    ] = 0.0
    pool: Annotated[
        int, Option("Number of rows offered to the method in memory, besides the support.", bounds=Bounds(least=1))
    ] = 65536
    keep: Annotated[
        int,
        Option(
            "Maximum number of support rows; those with the least weight are dropped. 0: no limit.",
            bounds=Bounds(least=0),
        ),
    ] = 0
    max_support: MaxSupport = 0
    pool_share: ClassVar[float] = 1.0
    """The fraction of all rows that the pool holds by default."""
    first_pool_rows: ClassVar[float] = np.inf
    """Number of rows of the first pool. Each further pool may have twice as many, up to ``pool``."""
    fair_gap_ratio: ClassVar[float] = np.inf
    """A pool that does not hold all rows is optimized to a gap of at most this fraction of f, even if POOL_SHARE allows
    a larger one."""
    free_bias: ClassVar[bool] = False
    """False: the bias is a constant feature, regularized like any other, and its square is part of K."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty: g is recomputed in every pass, and a_i is 0 for rows outside the support."""
    losses: ClassVar[LossRequirement] = LossRequirement(smooth=True, box=False, quadratic=True, numeric=False)
    """The squared hinge, with any margin: its conjugate is the ridge on the diagonal of K, and a has no upper bound."""
    exact_kernel: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    # What a method does in memory

    @abstractmethod
    def rounds(self, pool: Pool) -> int:
        """Return the maximum number of iterations, or working sets, between two passes."""

    @abstractmethod
    def improve(self, state: SimplexState, work: PoolWork) -> ReachedGap | None:
        """Make some steps that reduce f over the rows of the pool. Return the gap and f when the method has stopped,
        None before.

        Changes ``work``. x and v of the pool are only up to date after the method has stopped.
        """

    @abstractmethod
    def method_bytes(self, rows: int) -> int:
        """Return the bytes ``improve`` needs for a pool of this many rows."""

    def choose(self, state: SimplexState, index: Int64, v: Float64, count: int) -> Int64:
        """Return the positions of the rows to offer: those with the smallest g, or random ones in the first pass, which
        has no g.
        """
        return smallest_keys(draw_lots(index, 0) if state.support is None else -v, count)

    def begin(self, state: SimplexState, pool: Pool) -> None:
        """Set the first a: one row drawn at random has all the weight."""
        self.spread_weight(state, pool, np.random.default_rng(pool.size).integers(0, pool.size, 1))

    def spread_weight(self, state: SimplexState, pool: Pool, chosen: Int64) -> None:
        """Put equal weight on the chosen rows, and compute v."""
        pool.x[:] = 0.0
        pool.x[chosen] = 1.0 / len(chosen)
        recompute_gradient(pool, state.form)

    # Memory

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the pool and the support while they are concatenated, of the method's scratch arrays and
        of a reduced set.
        """
        row = bytes_per_row(layout.columns, layout.rows, layout.nonzeros) + ROW_BYTES
        rows = min(problem.rows, layout.rows)  # in one-vs-one a problem only has the rows of its two classes
        in_memory = min(self.pool + (self.keep or rows), rows)
        reduced = reduced_set_bytes(min(self.max_support, rows))
        return Cost(
            fixed=3 * in_memory * row + self.method_bytes(in_memory) + scratch_bytes(layout.columns) + reduced,
            per_block_row=ROW_BYTES + 8,
        )

    def adapt_to_data(self, rows: int, problems: Sequence[Problem], user_set: Collection[str]) -> Self:
        """Return the solver with a pool of the fraction ``pool_share`` of all rows, unless the user set its size
        (``user_set``).
        """
        return self if "pool" in user_set else replace(self, pool=max(self.pool, int(self.pool_share * rows)))

    def shrink_memory(self, problem: Problem, user_set: Collection[str]) -> Self | None:
        """Return the solver with half the pool, and with a support of at most twice the size of that pool; None if the
        pool would become too small to be useful.
        """
        if self.pool < 2 * MIN_POOL:
            return None
        return replace(self, pool=self.pool // 2, keep=min(self.keep or self.pool, 2 * (self.pool // 2)))

    def memory_settings(self) -> dict[str, int | None]:
        """Return the maximum number of rows of the pool and of the support (0: no limit)."""
        return {"pool": self.pool, "keep": self.keep}

    # A pass

    def start(self, problem: Problem) -> SimplexState:
        """Return the state with an empty support. The first pass draws the rows of the first pool."""
        capacity = int(min(self.pool, self.first_pool_rows))
        return SimplexState(problem, choose_form(problem, problem.bias**2), Candidates(capacity))

    def prepare_shared(self, states: list[SimplexState], X: Rows) -> None:
        """Evaluate the kernel once for all problems that visit the same rows next."""
        known = [(state, state.support) for state in select_same_form(states) if state.support is not None]
        supports = [support for _, support in known]
        if len(known) > 1 and is_sharing_worthwhile(supports, X):
            values = evaluate_shared(supports, states[0].form, X)
            for (state, _), own in zip(known, values, strict=True):
                state.shared_values = own

    def visit(self, state: SimplexState, block: Block) -> None:
        """Compute g of the block's rows from the support, add the block to the sums for P and D, and offer rows with a
        small g.
        """
        rows, f = evaluate_rows(state, block)
        add_to_bounds(state, block, rows, f)
        if not state.certifying and state.reduced is None:
            without_weight = np.flatnonzero((rows.x == 0.0) & (rows.high > 0.0))
            state.candidates.add(rows, without_weight, partial(self.choose, state))

    def set_deadline(self, state: SimplexState, moment: float) -> None:
        """Stop the method in memory at the first step after ``moment``."""
        state.deadline = moment

    def finish(self, state: SimplexState) -> Certificate:
        """Return the certificate, which is exact for the current weights, and make the next pool unless the fit is
        done.
        """
        state.passes += 1
        certificate = self._certify_pass(state)
        if state.support is None and certificate.primal == 0.0:
            raise DataError("every row has weight 0", hint="give some rows a weight, or leave the weights out")
        close = certificate.primal - certificate.dual <= state.problem.tolerance * abs(certificate.primal)
        last = certificate.final or close or state.certifying
        full = form_for_certificates(state.form, state.reach)
        if not last:
            self._make_pool(state)
        elif full != state.form and needs_certified_form(state.problem, certificate.primal, certificate.rounding):
            state.form, state.trajectory = full, certificate.facts["trajectory"]
            certificate = replace(certificate, exact=False, final=False)
        elif certificate.gap > state.problem.tolerance and not (certificate.final or state.certifying):
            self._make_pool(state)
        elif state.reduced is None and self._reduce_support(state):
            certificate = replace(certificate, exact=False)
        state.certifying = False
        clear_totals(state)
        return certificate

    def _certify_pass(self, state: SimplexState) -> Certificate:
        """Return the certificate of the model from the sums of the pass, and store f and the gap of a in the state."""
        f, reduced = 0.5 * (state.square + state.ridge), state.reduced
        if state.support is None:
            return Certificate(float(state.losses[0]), 0.0)
        t, gap = state.dual_scale(), 2.0 * f - state.lowest
        is_inaccurate = abs(f - state.f) > SHARE * state.problem.tolerance * f
        if is_inaccurate and state.passes > 1:  # the method in memory has computed another f for the same a
            state.form = form_for_certificates(state.form, state.reach)
        state.gap, state.f, state.scale = gap, f, t
        facts: JsonObject = {
            "simplex_gap": gap,
            "seen_gap": state.reached_gap,
            "f": f,
            "support": state.support.size,
            "iterations": state.iterations,
            "points": None if reduced is None else reduced.size,
            "trajectory": state.trajectory,
        }
        state.trajectory = []
        half = 0.5 * (t * t * state.square if reduced is None else state.reduced_square)
        is_final = bool(gap <= self.epsilon or state.stopped or reduced is not None)
        dual = threshold(state.problem.loss) * t - t * t * f
        losses = float(state.losses[0]), float(state.upper_losses[0])
        rounding = bound_rounding(state.problem, state.error, t, t * t * state.absolute, losses)
        return Certificate(half + float(state.losses[0]), dual, final=is_final, facts=facts, rounding=rounding)

    def _reduce_support(self, state: SimplexState) -> bool:
        """Fit the reduced set if the support has more than ``max_support`` rows. Return whether it was fitted."""
        support = state.support
        if support is None or not 0 < self.max_support < support.size:
            return False
        values = -state.dual_scale() * support.sign * (support.v + support.ridge * support.x)
        state.reduced = fit_reduced_set(support, values, state.form, self.max_support, state.problem.C)
        return True

    def certify(self, state: SimplexState) -> None:
        """Make the next pass only evaluate: the model, or the reduced set if ``max_support`` requires one."""
        state.certifying, state.form = True, form_for_certificates(state.form, state.reach)
        self._reduce_support(state)

    def part(self, state: SimplexState) -> SimplexState:
        """Return the state without sums and without g of the support rows. The weights, which visits only read, are
        shared.
        """
        part = begin_part(state)
        if state.support is not None:
            part.support = replace(state.support, v=np.full(state.support.size, -np.inf))
        return part

    def merge(self, states: list[SimplexState]) -> SimplexState:
        """Add up the sums, and collect the g of the support rows. Parts have visited disjoint rows with the same a."""
        first, *others = states
        for other in others:
            merge_states([first, other])
            if first.support is not None and other.support is not None:
                first.support.v[:] = np.maximum(first.support.v, other.support.v)
            first.candidates.shorten(partial(self.choose, first))
        return first

    def solution(self, state: SimplexState) -> SupportSolution:
        """Return the support rows with their weights, scaled by t, or the reduced set. Raises UsageError if there are
        no support rows.
        """
        support = state.reduced or state.support
        if support is None:
            raise no_support_error()
        scale = state.dual_scale() if state.scale is None else state.scale
        weights = support.x if support is state.reduced else scale * support.sign * support.x
        return SupportSolution(support.X, support.index, weights, state.form.constant * float(weights.sum()))

    # The pool between two passes

    def _make_pool(self, state: SimplexState) -> None:
        """Make the pool of the support and the offered rows, with the gap to which it is optimized."""
        offered = state.candidates.take(partial(self.choose, state))
        pool = sort_rows(offered if state.support is None else join_pools([state.support, offered]))
        if state.support is None:
            self.begin(state, pool)
        relative = 0.0 if self.epsilon > 0.0 else 0.5 * state.problem.tolerance
        target = Target(self.epsilon, relative)
        if pool.size < state.problem.rows:
            target = Target(self.epsilon, relative, POOL_SHARE * min(state.gap, 1.0), self.fair_gap_ratio)
        state.work = PoolWork(pool, target, state.f, self.rounds(pool))

    def has_pending_steps(self, state: SimplexState) -> bool:
        """Return whether the method is working on a pool."""
        return state.work is not None

    def make_step(self, state: SimplexState) -> None:
        """Make some steps of the method. After it has stopped, make the rows with weight the support."""
        work = state.work
        assert work is not None  # a step is pending
        reached = self.improve(state, work)
        if reached is None:
            return
        (state.reached_gap, state.f), pool = reached, work.pool
        if not work.pruned and 0 < self.keep < np.count_nonzero(pool.x):
            pool = select_rows(pool, np.sort(smallest_keys(-pool.x, self.keep)))  # those with the most weight
            pool.x /= pool.x.sum()
            recompute_gradient(pool, state.form)
            state.work = PoolWork(pool, work.target, work.start_f, self.rounds(pool), pruned=True)
            return
        if work.pruned:
            state.stopped = 0.0 < STALLED_PRUNING_RATIO * work.start_f <= state.f
        state.support, state.work = select_rows(pool, np.flatnonzero(pool.x > 0.0)), None
        state.candidates.capacity = min(2 * state.candidates.capacity, self.pool)
        state.record_gap(pool)
        state.add_entry(state.reached_gap, state.f, state.support.size)


# A visit


def evaluate_rows(state: SimplexState, block: Block) -> tuple[Pool, Float64]:
    """Return the block's rows with a and v = -g, and their decision values (n,) at a. Store v of the support rows."""
    n, p, support = len(block.y), state.problem, state.support
    f, a = np.zeros(n), np.zeros(n)
    if support is not None:
        weights = support.sign * support.x
        f += state.form.constant * weights.sum()
        if state.shared_values is None:
            form, began = state.form, time.perf_counter()
            expand(block.X, support.X, weights, form.kernel, form.columns, f, form.arithmetic)
            state.pace = (time.perf_counter() - began) / max(n * support.size, 1)
        else:
            f += state.shared_values
            state.shared_values = None
        support_places, places = block.members(support.index)
        a[places] = support.x[support_places]
    ridge, sign = ridges(block.s, p.C, p.loss), block.y.astype(np.float64)
    v = -(sign * f + ridge * a)
    if support is not None:
        support.v[support_places] = v[places]
    high = (block.s > 0).astype(np.float64)  # rows with weight 0 cannot enter the support
    return Pool(block.X, block.numbers, sign, ridge, np.zeros(n), high, np.zeros(n), a, v), f


def add_to_bounds(state: SimplexState, block: Block, rows: Pool, f: Float64) -> None:
    """Add the block's rows to the sums of the pass for f(a), the smallest g and the losses of the model."""
    p = state.problem
    state.reach = extend_reach(state.reach, block.X)
    state.square += float((rows.sign * rows.x) @ f)
    state.absolute += float(rows.x @ np.abs(f))
    state.ridge += float(rows.ridge @ np.square(rows.x))
    state.lowest = min(state.lowest, float(np.min(-rows.v, where=rows.high > 0, initial=np.inf)))
    values = f * state.dual_scale()
    if state.reduced is not None:
        values, part = evaluate_reduced_set(state.reduced, state.form, block)
        state.reduced_square += part
    cost = RowLoss(p.C, p.loss, p.loss)
    sum_shifted_losses(values, block.y, block.s, cost, 0.0, np.zeros(1), state.losses)
    state.error = max(state.error, state.value_error())
    sum_shifted_losses(values, block.y, block.s, cost, state.error, np.zeros(1), state.upper_losses)
