"""The active-set method for linear problems whose rows fit in memory: it solves them to the precision of float64.

The first pass gathers the rows and evaluates the start weights. After it the problem is solved in memory. The second
pass writes the dual variables to their rows and computes P and D exactly, so that the certificate is that of a pass
over the data, as for all other solvers.

In memory (``solve_exactly``) a second-order method (``newton``) approaches the optimum. Then

- **smooth losses with fewer columns than rows** are solved on the primal,

      P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),     grad = w - sum_i a_i y_i x_i,     H = I + sum_i C_i l''(m_i) x_i x_i'

  As long as the set of rows on curved pieces of the loss stays the same, P is quadratic: once a step finds the set of
  the optimum, the next step reaches the optimum exactly. With exact line searches that takes finitely many steps
  (Keerthi and DeCoste, JMLR 2005, section 3). Rounding in H may cost another step, but no accuracy, since the gradient
  is summed in float64.
- **all other problems** are solved on the dual by exchanging rows (``active_set_qp``). The remaining gap is rounding
  error, whatever the start was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.compute.blocks.sums import dual_sum
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.interior_point import Interior
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.compute.passes.rows_in_memory import line_pass
from streamsvm.rows import Float64, Int64
from streamsvm.solvers.active_set_qp import (
    ActiveSetMethod,
    DualTerms,
    RowSpace,
    dual_terms_of_sides,
    join_sides,
    space_of_sides,
    split_sides,
)
from streamsvm.solvers.cholesky import factorize_despite_rounding
from streamsvm.solvers.evaluation import PointSums
from streamsvm.solvers.gathered_rows import ARRAY_BYTES, COPIES_WHILE_JOINED, GatheredRows, Gatherer
from streamsvm.solvers.line_search import find_step_length
from streamsvm.solvers.newton.in_memory import AllRows
from streamsvm.solvers.newton.preconditioner import block_bytes, block_size, matrix_bytes
from streamsvm.solvers.newton.priority_sampling import Sample
from streamsvm.types import (
    DUAL,
    Block,
    Certificate,
    Cost,
    Layout,
    LinearSolution,
    LossRequirement,
    Problem,
    RowState,
    Solver,
)
from streamsvm.types.state import Total, clear_totals

FACTOR_BYTES = 40
"""Bytes per entry of the free block. Its factor has room for up to four times as many entries, and is copied when it
grows."""
P_SIZED_ARRAYS = 40
"""Number of (p,) arrays of the start, the steps and the sums."""
START_GAP = 1e-7
"""The relative gap to which the second-order method solves first. Most rows are then known to be at a bound or free."""
MAX_START_ADVANCES = 40
"""Maximum number of calls of the second-order method, each of which ends after a fixed amount of work."""
SNAP_SHARE = 1e-6
"""Start variables nearer to a bound than this fraction of C are set to the bound."""
MAX_STEPS = 200
"""Maximum number of Newton steps on the primal; about ten are usual."""
FLAT = 4e-16
"""P counts as minimal when it falls by no more than this fraction of itself."""
LAST_STEPS = 3
"""Number of steps after P is minimal. They reduce the gradient to the precision of float64."""


@saved_as("active_set.state")
@dataclass(slots=True)
class ActiveSetState:
    """The state of ``ActiveSet``: the rows until the problem is solved, its solution, and the sums of the pass."""

    problem: Problem
    point: Float64
    """(columns + 1,) the weights that the pass evaluates: the start weights until the problem is solved."""
    evaluation: Total[PointSums]
    """The sums of the pass at ``point``."""
    v: Total[Float64]
    """(columns + 1,) sum a_i y_i x_i of the dual variables, over the rows visited in this pass."""
    best: Float64
    """(columns + 1,) the evaluated point with the least P so far. It is the solution."""
    primal: float = np.inf
    """P of ``best``; inf before the first pass."""
    dual: float = -np.inf
    """The largest D of dual variables that were written to rows; -inf before the first pass."""
    gatherer: Total[Gatherer] = field(default_factory=Gatherer)
    """The rows, until the problem is solved."""
    row: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    """(n,) the global numbers of the rows with dual variables, rising."""
    a: Float64 = field(default_factory=lambda: np.empty(0))
    """(n,) the dual variables of these rows."""
    gain: Total[float] = 0.0
    """sum a_i - conjugate(a_i) over the rows visited in this pass."""
    solved: bool = False
    """Whether ``point`` is the optimum up to rounding."""
    exchanges: int = 0
    """Number of rows that became free while the problem was solved."""
    deadline: float = np.inf
    """The time of ``time.perf_counter`` at which work in memory must stop."""


@dataclass(frozen=True, slots=True)
class ActiveSet(Solver[ActiveSetState]):
    """The active-set method."""

    row_state: ClassVar[tuple[RowState, ...]] = (RowState(DUAL, "float64"),)
    """The dual variable of every row, after the problem is solved."""
    shuffled: ClassVar[bool] = False
    """False: no step is made while rows are read, so their order does not matter."""
    losses: ClassVar[LossRequirement] = LossRequirement(quadratic=True)
    """The conjugate must be quadratic or linear: given the set of free rows, the optimum solves a linear system."""
    stops_early: ClassVar[bool] = True
    warm_start: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of all rows, twice while they are concatenated, of the free block or a (p, p) matrix, and of
        vectors.
        """
        p, rows = problem.columns + 1, problem.rows
        variables_per_row = 2 if problem.loss.numeric() else 1
        row = (
            bytes_per_row(layout.columns, layout.rows, layout.nonzeros, layout.entry_bytes)
            + variables_per_row * ARRAY_BYTES
        )
        nonzeros = problem.nonzeros or rows * p
        start = block_bytes(block_size(problem.columns, nonzeros, dense=layout.dense), layout.entry_bytes)
        free, matrix = FACTOR_BYTES * min(p, rows) ** 2, matrix_bytes(min(p, rows), layout.entry_bytes)
        fixed = COPIES_WHILE_JOINED * rows * row + max(start, free, matrix)
        return Cost(fixed=fixed + P_SIZED_ARRAYS * 8 * p, per_row=8, per_block_row=24)

    def start(self, problem: Problem) -> ActiveSetState:
        """Return the state at w = 0, or at the warm-start weights."""
        p, point = problem.columns + 1, problem.first_weights()
        return ActiveSetState(problem, point, PointSums(p), np.zeros(p), point)

    def visit(self, state: ActiveSetState, block: Block) -> None:
        """Add the block to the sums for P and D, and gather its rows or write their dual variables."""
        state.evaluation.add(state.problem, state.problem.loss, block, state.point)
        if not state.solved:
            state.gatherer.add(block)
        part, places = block.members(state.row)
        alpha = np.zeros(len(block.y))
        alpha[places] = state.a[part]
        entries = alpha * state.problem.kind.signs(block.y)
        state.v += operators.adjoint(block.X, entries, state.problem.columns)
        state.gain += dual_sum(alpha, block.y, block.s, state.problem.C, state.problem.loss)
        if DUAL in block.rows:
            block.rows[DUAL][:] = alpha

    def set_deadline(self, state: ActiveSetState, moment: float) -> None:
        """Stop exchanging rows at ``moment``. The dual variables are feasible at any time."""
        state.deadline = moment

    def finish(self, state: ActiveSetState) -> Certificate:
        """Return P and D, which are exact for the evaluated point. If the problem is not solved yet, solve it in
        memory.

        D of the loss slopes may be larger than D of the variables that were written to the rows. It is not used if it
        would end the fit, since the final bound must be that of the written variables.
        """
        evaluation = state.evaluation.close(state.problem, state.point)
        if evaluation.primal < state.primal:
            state.primal, state.best = evaluation.primal, state.point
        state.dual = max(state.dual, state.gain - 0.5 * float(state.v @ state.v))
        allowed_gap = state.problem.tolerance * abs(state.primal)
        dual = max(state.dual, evaluation.dual) if state.primal - evaluation.dual > allowed_gap else state.dual
        certificate = Certificate(state.primal, dual, final=state.solved, facts={"exchanges": state.exchanges})
        if not state.solved and state.primal - state.dual > allowed_gap:
            rows = state.gatherer.join()
            start_a = state.a if np.array_equal(rows.row, state.row) else None
            optimum = solve_exactly(state.problem, rows, state.deadline, start_a)
            state.point, state.a, state.row = optimum.w, optimum.a, rows.row
            state.solved, state.exchanges = optimum.finished, state.exchanges + optimum.exchanges
        clear_totals(state)
        return certificate

    def certify(self, state: ActiveSetState) -> None:
        """Do nothing: every pass is an exact evaluation."""

    def solution(self, state: ActiveSetState) -> LinearSolution:
        """Return the evaluated weights with the least P."""
        return LinearSolution(state.best.copy(), state.problem.bias)


# In memory


class ExactOptimum(NamedTuple):
    """The optimum over rows in memory."""

    w: Float64
    """(columns + 1,) the weights."""
    a: Float64
    """(n,) the dual variables."""
    finished: bool
    """Whether it is the optimum up to rounding; False: the deadline came first."""
    exchanges: int
    """Number of rows that became free; 0 if the problem was solved on the primal."""


def solve_exactly(
    problem: Problem, rows: GatheredRows, deadline: float = np.inf, a: Float64 | None = None
) -> ExactOptimum:
    """Return the optimum over the rows.

    ``a`` (n,): feasible dual variables to start from; None: start from ``problem.warm`` if it is set, else from w = 0.
    """
    on_primal = problem.loss.smooth() and problem.columns < len(rows.y)
    if on_primal or a is None:
        approximate = _approach_optimum(problem, rows, deadline)
        if on_primal:
            w, finished = minimize_primal(problem, rows, approximate.best, deadline)
            return ExactOptimum(w, _dual_variables_at(problem, rows, w), finished, 0)
        a = _start_variables(problem, rows, approximate)
    loss, space = problem.loss, RowSpace(rows.X, problem.columns)
    sides = split_sides(loss, a)
    method = ActiveSetMethod(_terms(problem, rows), space_of_sides(loss, space), sides, free_bias=False)
    finished = method.run(deadline)
    a = join_sides(loss, sides)
    support = np.flatnonzero(a)
    entries = (problem.kind.signs(rows.y) * a)[support]
    return ExactOptimum(space.weights(support, entries), a, finished, method.exchanges)


def _terms(problem: Problem, rows: GatheredRows) -> DualTerms:
    return dual_terms_of_sides(problem.loss, rows.y, problem.C * rows.s.astype(np.float64))


def _approach_optimum(problem: Problem, rows: GatheredRows, deadline: float) -> AllRows:
    """Solve the problem to START_GAP by a second-order method."""
    n, w = len(rows.y), problem.first_weights()
    sample = Sample(rows.X, rows.y, rows.s, np.ones(n), operators.margins(rows.X, w), rows.row, complete=True)
    approximate = AllRows(replace(problem, tolerance=START_GAP), sample, w, w)
    approximate.advance_until_solved(deadline, MAX_START_ADVANCES)
    return approximate


def _start_variables(problem: Problem, rows: GatheredRows, approximate: AllRows) -> Float64:
    """Return feasible dual variables (n,) to start from, given the approximate optimum."""
    if approximate.interior_point is not None:
        return _snap_interior(approximate.interior_point, _terms(problem, rows))
    if problem.loss.numeric() and approximate.slopes is not None:
        return _snap_to_bounds(problem, rows, approximate.slopes)
    return _dual_variables_at(problem, rows, approximate.best)


def _dual_variables_at(problem: Problem, rows: GatheredRows, w: Float64) -> Float64:
    """Return a_i = -C_i l'(m_i) (n,) at the weights w."""
    slopes, h = np.empty(len(rows.y)), np.empty(len(rows.y))
    cost = RowLoss(problem.C, problem.loss, problem.loss)
    slopes_pass(rows.y, rows.s.astype(np.float64), operators.margins(rows.X, w), cost, slopes, h)
    alpha: Float64 = slopes * problem.kind.signs(rows.y)
    return alpha


def _snap_to_bounds(problem: Problem, rows: GatheredRows, a: Float64) -> Float64:
    """Return dual variables (n,) for regression, in which those close to 0 or to a bound are set to it."""
    loss, C = problem.loss, problem.C * rows.s.astype(np.float64)
    high, low = np.array([loss.upper(c) for c in C]), -C * loss.slope(np.inf)
    distance = SNAP_SHARE * np.minimum(C, np.minimum(high, -low))
    a = np.clip(a, low, high)
    a = np.where(np.abs(a) <= distance, 0.0, a)
    return np.where(high - a <= distance, high, np.where(a - low <= distance, low, a))


def _snap_interior(at: Interior, terms: DualTerms) -> Float64:
    """Return dual variables (n,), set to a bound where the distance to it, divided by its upper limit or curvature, is smaller
    than the multiplier of the bound, divided by its scale.
    """
    with np.errstate(invalid="ignore"):
        share = at.a / terms.upper if np.isfinite(terms.upper).all() else at.a * terms.curvature
        room = (terms.upper - at.a) / terms.upper
    a = np.where(share < at.below / terms.z, 0.0, at.a)
    return np.where(np.isfinite(terms.upper) & (room < at.above / terms.z), terms.upper, a)


# On the primal


def minimize_primal(problem: Problem, rows: GatheredRows, w: Float64, deadline: float) -> tuple[Float64, bool]:
    """Return the minimizer (columns + 1,) of P over the rows, starting at w, and whether it was reached before the
    ``deadline``.
    """
    y, s, loss = rows.y, rows.s.astype(np.float64), problem.loss
    slopes, h, cost = np.empty(len(y)), np.empty(len(y)), RowLoss(problem.C, loss, loss)
    f, best, least, least_square, flat = operators.margins(rows.X, w), w, np.inf, np.inf, 0
    for _ in range(MAX_STEPS):
        losses, *_ = slopes_pass(y, s, f, cost, slopes, h)
        gradient = w - operators.adjoint(rows.X, slopes, problem.columns)
        value, square = 0.5 * float(w @ w) + losses, float(gradient @ gradient)
        flat = flat + 1 if value >= least * (1.0 - FLAT) else 0
        least = min(least, value)
        if square < least_square:
            least_square, best = square, w
        if flat > LAST_STEPS or square == 0.0:
            return best, True
        if time.perf_counter() > deadline:
            break
        step = _newton_step(operators.gram(rows.X, h, problem.columns), gradient)
        df = operators.margins(rows.X, step)
        row_slopes = partial(line_pass, y, s, f, df, problem.C, loss)
        length = 1.0 if flat else find_step_length(row_slopes, (float(w @ step), float(step @ step)))
        w = w + length * step
        f = operators.margins(rows.X, w)
    return best, False


def _newton_step(gram: Float64, gradient: Float64) -> Float64:
    """Return -(I + gram)^-1 gradient. Changes gram."""
    gram[np.diag_indices_from(gram)] += 1.0
    return factorize_despite_rounding(gram)(-gradient)
