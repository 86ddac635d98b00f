"""Second-order steps out of core with high accuracy: an interior-point method on the rows near the kink of the loss,
and Newton's method with the Hessian of all rows for smooth losses.

A pass evaluates P, D and the gradient at several points of the segment from the best point to a candidate
(``solvers.line_search``), and keeps the best of these points. The same pass collects the data of the next candidate:

    hinge         the rows nearest to the kink (``NearestRows``), up to ``kept``. The terms of all other rows are linear
                  in w as long as these rows stay on their side of the kink. The problem of the near rows is solved in
                  memory (``ReducedProblem``). Its dual point is one of all rows, and D is computed without a pass.
    smooth losses X' diag(C_i l'') X, (p, p), and one step of Newton's method: piecewise, P is nearly quadratic.
    regression    with a kink: as for the hinge, with two sides of each row (``RegressionProblem``); without a kink:
                  one step of Newton's method.
    one-class     with a free offset (``solvers.one_class``): as for the hinge; the problem in memory is
                  ``OffsetProblem``.

If no row outside memory changes sides, the candidate is the optimum, whatever lambda is, and the next pass confirms it
up to rounding. The first candidate is the optimum of a sample.

For multinomial problems see ``solvers.interior_point_multinomial``; for two classes with C given by nu, ``solvers.nu``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, NamedTuple, Protocol

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.compute.passes.newton import squares
from streamsvm.compute.passes.priority_sampling import leverages
from streamsvm.config.options import Bounds, Option
from streamsvm.losses import Hinge, threshold
from streamsvm.rows import Float64, Int64, row_stack
from streamsvm.solvers.cholesky import factorize_despite_rounding
from streamsvm.solvers.evaluation import DualPoint, add_to_sum, block_hessian, slopes_at
from streamsvm.solvers.gathered_rows import CANDIDATE_FACTOR, NearestRows, NearRows
from streamsvm.solvers.line_search import STEPS, BestPoint, SegmentSolver, SegmentState, SegmentSums
from streamsvm.solvers.newton.in_memory import AllRows
from streamsvm.solvers.newton.preconditioner import block_bytes, block_size, matrix_bytes
from streamsvm.solvers.newton.priority_sampling import Sample
from streamsvm.solvers.newton.row_products import OuterTerms, norm_terms
from streamsvm.solvers.one_class import OFFSET, FreeOffset, OffsetObjective, RowSums
from streamsvm.types import SQUARED_NORM, Block, Certificate, Cost, Layout, LossRequirement, Problem, Regularizer
from streamsvm.types.state import FirstPassTotal, Total, clear_totals

MAX_ADVANCES = 20
"""Maximum number of calls of ``AllRows.advance``, each of which ends after a fixed amount of work."""
START_TOLERANCE = 1e-3
"""The gap to which the first sample is solved. A smaller gap would not bring w nearer to the optimum of all rows."""
TOLERANCE_SHARE, LEAST_SHARE = 0.05, 1e-14
"""The problem in memory is solved to the first fraction of the allowed gap, but not below the second fraction of P,
which is the precision of float64."""
DECREASE_SHARE = 0.05
"""It is solved to this fraction of the decrease of P achieved in memory, if that is larger."""
OFFSET_CURVATURE = 1e-3
"""One-class: the curvature added along rho, in units of the curvature of P if all rows had the same direction."""
FIRST_SHARE = 1e-3
"""One-class: the first gap in memory, as a fraction of the objective if all rows had the same direction. It is reduced
until it is small relative to P."""
GAP_FACTOR = 0.01
"""One-class: the factor by which the gap in memory is reduced at a time."""
OFFSET_TOLERANCE_SHARE = 0.05
"""One-class: the gap in memory is reduced to this fraction of the allowed gap."""
OFFSET_LEAST_SHARE = 1e-13
"""One-class: the least gap in memory because of rounding, as a fraction of the objective if all rows had the same
direction."""
ROWS, ROWS_PER_COMPONENT = 50_000, 50
"""Number of rows in memory: the first number, or the second times the components (columns + 1), whichever is larger."""
MIN_ROWS, MIN_ROWS_PER_COMPONENT = 2_000, 5
"""Least useful number of rows in memory: the first number, or the second times the components, whichever is larger."""
SOLVE_BYTES_PER_ROW = 260
"""Bytes per row besides its entries: sign, weight, key, margins, number, and the float64 arrays of the interior-point
method."""
P_SIZED_ARRAYS = 60
"""Number of (p,) arrays in memory: the sums at every point of the segment, and those of the iteration in memory."""
SHORT_STEP, LONG_STEP = 0.1, 0.6
"""Fractions of the segment: if the best point is at the first one or below, the damping grows; if it is at the second
one or above, the damping falls."""
START_DAMPING, LEAST_DAMPING, DAMPING_FACTOR, DAMPING_DIVISOR = 0.1, 1e-3, 10.0, 4.0
"""The first damping, the least damping above 0, the factor by which it grows, and the divisor by which it falls."""


class BestPointOfPass(NamedTuple):
    """The result of a pass at its best point."""

    w: Float64
    """(p,) the best point."""
    v: Float64
    """(p,) sum a_i y_i x_i of the slopes at w, over all rows."""
    gain: float
    """sum a_i - conjugate(a_i) of these slopes."""
    step: float
    """The fraction of the segment at which w is: the decision values of rows are f + step df."""
    primal: float
    """P at w."""
    dual: float
    """The largest D so far."""
    damping: float
    """The damping of the next step."""
    total: float
    """sum s_i of all rows."""


class ReducedSolution(NamedTuple):
    """The solution of a problem in memory."""

    w: Float64
    """(p,) the next candidate."""
    dual: float
    """D of the dual point of all rows, or the largest D so far if there is no new dual point."""
    iterations: int
    """Number of interior-point iterations."""
    alpha: Float64 | None
    """(n,) the dual variables of the rows ``near``; None: there is no new dual point."""


class ProblemInMemory(Protocol):
    """A problem that is solved in memory between two passes. The rows in memory are free, and all others stay on their
    side of the kink.
    """

    @property
    def objective(self) -> Regularizer:
        """Return the terms of P and D that are not sums over rows."""
        ...

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        """Return the optimum (p,) of a sample of the rows, each counted ``factor`` times."""
        ...

    def solve(self, near: NearRows, best: BestPointOfPass, deadline: float) -> ReducedSolution:
        """Return the minimizer for which only the rows ``near`` are free, and its dual point."""
        ...


def sample_of(near: NearRows) -> Sample:
    """Return the rows as a sample for ``AllRows``."""
    return Sample(near.X, near.y, near.s, np.ones(len(near.y)), near.f, near.row, complete=False)


@dataclass(frozen=True, slots=True)
class ReducedProblem:
    """A hinge problem in which the rows near the kink are free and all others stay on their side of it.

        min_w  1/2 ||w||^2 - u.w + sum_near C_i l(m_i),        u = sum_others a_i y_i x_i,   a_i = -C_i l'(m_i),

    where a_i is 0 or C_i, equals P up to a constant as long as the other rows stay on their side. Its dual point,
    together with the a_i of the others, is a dual point of P: with g = sum_others (a_i - conjugate(a_i))

        D = g + sum_near (a_i - conjugate(a_i)) - 1/2 ||u + sum_near a_i y_i x_i||^2.

    This is constraint reduction for interior-point methods (Jung, O'Leary and Tits, ETNA 31, 2008): rows whose dual
    variables are at a bound add nothing to X' D X. If other rows have crossed the kink,
    damping / 2 (w - w_0)' M (w - w_0) is added in the next step, with M = diag(C sum_i s_i x_ij^2), which estimates the
    curvature that rows in the kink give to P. The problem is solved like one with all rows in memory
    (``solvers.newton.interior_point_in_memory``; Ferris and Munson, SIAM J. Optimization 2003).
    """

    problem: Problem
    """The problem of all rows."""
    objective: ClassVar[Regularizer] = SQUARED_NORM

    def solve(self, near: NearRows, best: BestPointOfPass, deadline: float) -> ReducedSolution:
        problem = self.problem
        y, s, loss = near.y.astype(np.float64), near.s.astype(np.float64), problem.loss
        m = y * (near.f + best.step * near.df)
        a = np.where(m < threshold(loss), problem.C * s, 0.0)  # the slopes of the hinge
        gain_of_near = float(sum(b - loss.conjugate(b, problem.C * c) for b, c in zip(a, s, strict=True) if c > 0.0))
        u = best.v - operators.adjoint(near.X, a * y, problem.columns)
        target_gap = max(TOLERANCE_SHARE * problem.tolerance, LEAST_SHARE) * best.primal
        damping = squares(near.X, s, problem.columns) * (best.damping * problem.C * best.total / float(s.sum()))
        outer = OuterTerms(1.0 + damping, -(u + damping * best.w))
        rows = AllRows(
            problem, sample_of(near), best.w, best.w, outer=outer, target_gap=target_gap, decrease_share=DECREASE_SHARE
        )
        rows.advance_until_solved(deadline, MAX_ADVANCES)
        if rows.interior_point is not None:
            a = rows.interior_point.a
            gain_of_near -= float(
                sum(b - loss.conjugate(b, problem.C * c) for b, c in zip(a, s, strict=True) if c > 0.0)
            )
            u = u + operators.adjoint(near.X, a * y, problem.columns)
            return ReducedSolution(rows.best, best.gain - gain_of_near - 0.5 * float(u @ u), rows.steps, a)
        return ReducedSolution(rows.best, best.dual, rows.steps, None)

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        problem = self.problem
        coarse = replace(problem, C=factor * problem.C, tolerance=max(START_TOLERANCE, problem.tolerance))
        start = problem.first_weights()
        rows = AllRows(coarse, sample_of(near), start, start)
        rows.advance_until_solved(deadline, MAX_ADVANCES)
        return rows.best


@dataclass(frozen=True, slots=True)
class RegressionProblem:
    """A regression problem with a kink: the near rows are free and all others stay on their side, as in
    ``ReducedProblem``.

        C_i l(m_i) = C_i max(0, q+ (-m_i - epsilon)) + C_i max(0, q- (m_i - epsilon)),      m_i = w.x_i - t_i

    is the sum of two hinges with the kink at -epsilon, of rows (x_i, +1) and (x_i, -1) with decision values w.x_i - t_i
    (``Sample.offset``) and bounds q+ C_i = upper and q- C_i = -lower. So an interior-point method with variables a >= 0
    solves it, and a_i = a+_i - a-_i. D has the additional term sum_i a_i t_i.

    Everything is scaled such that residuals are about 1: w, t, epsilon and C are divided by sigma
    (``_residual_unit``), hence P by sigma^2.
    """

    problem: Problem
    """The problem of all rows, with a loss that has a kink."""
    objective: ClassVar[Regularizer] = SQUARED_NORM

    def solve(self, near: NearRows, best: BestPointOfPass, deadline: float) -> ReducedSolution:
        problem, s = self.problem, near.s.astype(np.float64)
        m = near.f + best.step * near.df - near.y
        a = np.array([-problem.C * c * problem.loss.slope(r) for c, r in zip(s, m.tolist(), strict=True)])
        gain, u = self._gain(a, near, s), best.v - operators.adjoint(near.X, a, problem.columns)
        unit = _residual_unit(m, s)
        factor = best.damping * problem.C / unit * best.total / float(s.sum())
        damping = squares(near.X, s, problem.columns) * factor
        target_gap = max(TOLERANCE_SHARE * problem.tolerance, LEAST_SHARE) * best.primal / unit**2
        outer, w = OuterTerms(1.0 + damping, -(u + damping * best.w) / unit), best.w / unit
        side_problem = self._build_side_problem(unit)
        rows = AllRows(
            side_problem,
            self._sample(near, unit),
            w,
            w,
            outer=outer,
            target_gap=target_gap,
            decrease_share=DECREASE_SHARE,
        )
        rows.advance_until_solved(deadline, MAX_ADVANCES)
        if rows.interior_point is None:
            return ReducedSolution(unit * rows.best, best.dual, rows.steps, None)
        upper_side, lower_side = np.split(unit * rows.interior_point.a, 2)
        a = upper_side - lower_side
        u = u + operators.adjoint(near.X, a, problem.columns)
        value = best.gain - gain + self._gain(a, near, s) - 0.5 * float(u @ u)
        return ReducedSolution(unit * rows.best, value, rows.steps, a)

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        problem, start = self.problem, self.problem.first_weights()
        unit = _residual_unit(near.y.astype(np.float64), near.s.astype(np.float64))
        side_problem = self._build_side_problem(unit)
        coarse = replace(side_problem, C=factor * side_problem.C, tolerance=max(START_TOLERANCE, problem.tolerance))
        outer = norm_terms(len(start))
        rows = AllRows(coarse, self._sample(near, unit), start / unit, start / unit, outer=outer)
        rows.advance_until_solved(deadline, MAX_ADVANCES)
        return unit * rows.best

    def _build_side_problem(self, unit: float) -> Problem:
        """Return the hinge problem of the two sides of each row."""
        loss = self.problem.loss
        hinge = Hinge(margin=(1.0 - loss.conjugate_slope(0.0, 1.0)) / unit)
        return replace(self.problem, loss=hinge, C=self.problem.C / unit)

    def _sample(self, near: NearRows, unit: float) -> Sample:
        """Return the two sides of each row, those with sign +1 first."""
        loss, ones, twice = self.problem.loss, np.ones(len(near.y), np.float32), (near.row, near.row)
        s = near.s.astype(np.float64)
        return Sample(
            row_stack([near.X, near.X]),
            np.append(ones, -ones),
            np.append(loss.upper(1.0) * s, loss.slope(np.inf) * s),
            np.ones(2 * len(s)),
            np.append(near.f, near.f),
            np.concatenate(twice),
            complete=False,
            offset=np.tile(-near.y / unit, 2),
        )

    def _gain(self, a: Float64, near: NearRows, s: Float64) -> float:
        """Return sum a_i t_i + a_i - conjugate(a_i)."""
        loss, C = self.problem.loss, self.problem.C
        gains = (b - loss.conjugate(b, C * c) for b, c in zip(a.tolist(), s.tolist(), strict=True) if c > 0.0)
        return float(a @ near.y) + float(sum(gains))


def _residual_unit(m: Float64, s: Float64) -> float:
    """Return the weighted mean of |m| (n,); 1 if all are 0."""
    return float(s @ np.abs(m)) / float(s.sum()) or 1.0


@dataclass(frozen=True, slots=True)
class OffsetProblem:
    """A one-class problem with a free offset rho: the rows near the kink are free and all others stay on their side.

        min_{w, rho}  1/2 ||w||^2 - nu S rho - u.w~ + sum_near c_i max(0, -m_i),     m_i = w.x_i - rho,

    as in ``ReducedProblem``, with w~ = (w, rho), x~ = (x, -1), and u = sum s_i x~_i over the other rows with m_i < 0.
    rho is not regularized; a small curvature along it (``OFFSET_CURVATURE``) makes the matrix positive definite.
    Therefore sum a_i differs slightly from nu S at the end. The variables of the near rows are then changed such that
    it does not (``_make_feasible``), and D is that of the feasible point.

    Everything is scaled such that margins are about 1: with a_i <= c s_i, c = 1 / (nu S mean ||x||^2), w and rho are
    multiplied by c, hence P by c^2. If an offset o is subtracted from rows, there is another linear term, -nu S o.w.
    """

    problem: Problem
    """The problem of all rows."""
    objective: OffsetObjective

    def solve(self, near: NearRows, best: BestPointOfPass, deadline: float) -> ReducedSolution:
        problem, objective = self.problem, self.objective
        s = near.s.astype(np.float64)
        a = np.where(near.f + best.step * near.df < 0.0, s, 0.0)  # the slopes of the hinge
        u = best.v - operators.adjoint(near.X, a, problem.columns)
        damping = squares(near.X, s, problem.columns) * (best.damping * best.total / float(s.sum()))
        c = _offset_unit(objective)
        outer = _outer_terms(objective, c * u, c * damping, c * best.w)
        scaled = replace(problem, C=c)
        rows = _iterate(AllRows(scaled, sample_of(near), c * best.w, c * best.w, outer=outer), objective, deadline)
        if rows.interior_point is None:
            return ReducedSolution(rows.best / c, best.dual, rows.steps, None)
        a = _make_feasible(rows.interior_point.a / c, s, objective.mass + float(OFFSET * -u[-1]))
        v = u + operators.adjoint(near.X, a, problem.columns)
        return ReducedSolution(rows.best / c, objective.dual(0.0, v), rows.steps, None)

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        problem, objective = self.problem, self.objective
        c, zeros = _offset_unit(objective), np.zeros(problem.columns + 1)
        outer = _outer_terms(objective, zeros, zeros, zeros)
        coarse = replace(problem, C=factor * c, tolerance=max(START_TOLERANCE, problem.tolerance))
        rows = AllRows(coarse, sample_of(near), zeros, zeros, outer=outer)
        return _iterate(rows, objective, deadline).best / c


def _offset_unit(objective: OffsetObjective) -> float:
    """Return c of ``OffsetProblem``. If an offset o is subtracted from rows, margins are about nu S ||x|| ||x - o||."""
    if objective.origin is None:
        return 1.0 / (objective.mass * objective.rows.mean_square)
    return 1.0 / (objective.mass * math.sqrt(objective.mean_square * objective.rows.mean_square))


def _outer_terms(objective: OffsetObjective, u: Float64, damping: Float64, w: Float64) -> OuterTerms:
    """Return 1/2 w'Gw + q.w in units of margins: the norm, the rows that stay on their side, and the damping about
    w.
    """
    scale = objective.rows.mean_square if objective.origin is None else 1.0 / (_offset_unit(objective) * objective.mass)
    diagonal, linear = 1.0 + damping, -(u + damping * w)
    diagonal[-1] = OFFSET_CURVATURE / scale + damping[-1]
    linear[-1] -= 1.0 / scale + OFFSET_CURVATURE / scale * w[-1]
    if objective.origin is not None:
        linear[:-1] -= objective.origin / scale
    return OuterTerms(diagonal, linear)


def _iterate(rows: AllRows, objective: OffsetObjective, deadline: float) -> AllRows:
    """Iterate until the gap is small relative to P, whose size is not known before. Changes ``rows`` and returns it."""
    unit = 0.5 / objective.rows.mean_square
    rows.target_gap = FIRST_SHARE * unit
    for _ in range(MAX_ADVANCES):
        rows.advance(deadline)
        least = max(OFFSET_TOLERANCE_SHARE * rows.problem.tolerance * abs(rows.primal), OFFSET_LEAST_SHARE * unit)
        if rows.solved and rows.target_gap <= least:
            break
        if rows.solved:  # otherwise ``advance`` has reached its work limit
            rows.target_gap = max(GAP_FACTOR * rows.target_gap, least)
    return rows


def _make_feasible(a: Float64, s: Float64, mass: float) -> Float64:
    """Return a (n,) with the sum ``mass``, or with the nearest sum that the bounds 0 and s allow."""
    total, largest = float(a.sum()), float(s.sum())
    if total > mass:
        return a * (max(mass, 0.0) / total)
    return a + min((mass - total) / (largest - total), 1.0) * (s - a) if largest > total else a


@saved_as("interior_point.proven")
class ProvenPoint(NamedTuple):
    """A dual point of all rows: the slopes at ``w``, except for the rows whose dual variables were computed in
    memory.
    """

    w: Float64
    """(p,) the weights."""
    rows: Int64
    """(k,) the global numbers of the exceptional rows, rising."""
    alpha: Float64
    """(k,) the dual variables of these rows."""


@saved_as("interior_point.state")
@dataclass(slots=True)
class InteriorPointState(SegmentState):
    """The state of ``InteriorPoint``. A pass evaluates points ``point + t direction``. Arrays are float64; p = columns
    + 1.
    """

    problem: Problem
    point: Float64
    """(p,) the best point of all passes so far. It is the solution."""
    direction: Float64
    """(p,) the direction from ``point`` to the candidate; 0: there is no candidate, and ``point`` is evaluated."""
    sums: Total[SegmentSums]
    """The sums of the pass along the segment."""
    near: Total[NearestRows]
    """The rows nearest to the kink: in every pass for losses with a kink, else in a first pass that takes a sample."""
    squares: FirstPassTotal[Float64]
    """(p,) sum s_i x_ij^2, summed in the first pass."""
    weight: Total[float] = 0.0
    """sum s_i over the rows visited in this pass."""
    gram: Total[Float64 | None] = None
    """(p, p) X' diag(C_i l'') X at the candidate, for smooth losses; None before the first block and for the hinge."""
    primal: float = np.inf
    """P of ``point``; inf before the first pass."""
    dual: float = -np.inf
    """The largest D so far; -inf before the first pass."""
    passes: int = 0
    """Number of completed passes."""
    iterations: int = 0
    """Number of interior-point iterations in memory."""
    damping: float = 0.0
    """The damping of the next step."""
    deadline: float = np.inf
    """The time of ``time.perf_counter`` at which work in memory must stop."""
    facts: dict[str, float] = field(default_factory=dict)
    """The facts that are reported of the last pass."""
    rows: FirstPassTotal[RowSums | None] = None
    """Sums over all rows for one-class problems with a free offset, summed in the first pass."""
    proven: ProvenPoint | None = None
    """The dual point with the value ``dual``; None: a = 0, or a one-class problem with a free offset."""

    @property
    def in_memory(self) -> ProblemInMemory:
        """The problem to solve in memory. For one-class problems with a free offset it is right after the first
        pass.
        """
        if self.problem.loss.numeric() and not self.problem.loss.smooth():
            return RegressionProblem(self.problem)
        regularizer = self.problem.regularizer
        if self.rows is None or not isinstance(regularizer, FreeOffset):
            return ReducedProblem(self.problem)
        return OffsetProblem(self.problem, OffsetObjective(regularizer.nu, self.rows, regularizer.origin))


@dataclass(frozen=True, slots=True)
class InteriorPoint(SegmentSolver):
    """A second-order method out of core: an interior-point method on the rows near the kink of the loss."""

    kept: Annotated[
        int | None,
        Option(
            "Number of rows kept in memory: those nearest to the kink of the loss.",
            bounds=Bounds(least=1),
            default=f"{ROWS}, or {ROWS_PER_COMPONENT} a column where that is more",
        ),
    ] = None
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any loss: those with a kink by the rows near it, smooth ones by the Hessian of all rows."""
    halved: ClassVar[str] = "kept"
    has_dual_witness: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    def count_kept(self, problem: Problem) -> int:
        """Return the number of rows kept in memory."""
        return min(problem.rows, self.kept or max(ROWS, ROWS_PER_COMPONENT * (problem.columns + 1)))

    def min_kept(self, problem: Problem) -> int:
        """Return the least useful number of rows in memory."""
        return max(MIN_ROWS, MIN_ROWS_PER_COMPONENT * (problem.columns + 1))

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the rows in memory while they are concatenated, of a (p, p) matrix, and of vectors."""
        p, kept = problem.columns + 1, self.count_kept(problem)
        entry, sides = layout.entry_bytes, 2 if problem.loss.numeric() and not problem.loss.smooth() else 0
        row = bytes_per_row(problem.columns, layout.rows, layout.nonzeros, entry) + SOLVE_BYTES_PER_ROW
        nonzeros = problem.nonzeros or problem.rows * p
        matrix = block_bytes(block_size(problem.columns, nonzeros, dense=layout.dense), entry)
        if problem.loss.smooth():
            matrix = max(matrix, matrix_bytes(p, entry))
        return Cost(
            fixed=int((CANDIDATE_FACTOR + 1 + sides) * kept * row) + matrix + P_SIZED_ARRAYS * 8 * p, per_block_row=48
        )

    def start(self, problem: Problem) -> InteriorPointState:
        """Return the state at w = 0, or at the warm-start weights. The first pass evaluates this point alone."""
        p, point = problem.columns + 1, problem.first_weights()
        near, rows = NearestRows(self.count_kept(problem)), problem.regularizer.row_sums(p)
        return InteriorPointState(problem, point, np.zeros(p), SegmentSums(p), near, np.zeros(p), rows=rows)

    def visit(self, state: InteriorPointState, block: Block) -> None:
        """Add the block to the sums along the segment, and keep its rows near the kink or add the block to the
        Hessian.
        """
        problem = state.problem
        f, df = state.sums.add(problem, block, state.point, state.direction)
        state.weight += float(block.s.sum(dtype=np.float64))
        smooth, sampling = problem.loss.smooth(), state.passes == 0 and _takes_sample(problem)
        if sampling or not smooth:
            if state.passes == 0:
                column_squares = squares(block.X, block.s.astype(np.float64), problem.columns)
                state.squares += column_squares
                if state.rows is not None:
                    state.rows.add(problem, block, column_squares)
            state.near.add(block, _kink_distances(state, block, f, df), f, df)
        if smooth and not sampling:
            state.gram = add_to_sum(state.gram, block_hessian(problem, block, f + df))

    def set_deadline(self, state: InteriorPointState, moment: float) -> None:
        """Stop iterations in memory at ``moment``."""
        state.deadline = moment

    def finish(self, state: InteriorPointState) -> Certificate:
        """Move to the best point of the segment, and compute the next candidate. P and D are exact."""
        objective = state.in_memory.objective
        segment_best = state.sums.close(state.point, state.direction, objective)
        state.point, state.primal, state.direction = segment_best.w, segment_best.primal, np.zeros_like(segment_best.w)
        if segment_best.dual > state.dual:
            state.dual, state.proven = segment_best.dual, _point_of_slopes(segment_best)
        if not self._is_done(state):
            state.direction = self._next_candidate(state, segment_best) - state.point
        state.passes += 1
        state.facts = {"step": segment_best.step, "iterations": state.iterations, "damping": state.damping}
        if state.rows is not None:
            state.facts |= state.rows.facts()
        clear_totals(state)
        return Certificate(state.primal, state.dual, final=objective.is_degenerate(state.dual), facts=dict(state.facts))

    def _is_done(self, state: InteriorPointState) -> bool:
        return state.primal - state.dual <= state.problem.tolerance * abs(state.primal)

    def _next_candidate(self, state: InteriorPointState, segment_best: BestPoint) -> Float64:
        """Return the next candidate (p,)."""
        problem = state.problem
        if problem.loss.smooth() and state.gram is not None:
            state.gram[np.diag_indices_from(state.gram)] += 1.0
            gradient = segment_best.w - segment_best.v
            return segment_best.w - factorize_despite_rounding(state.gram)(gradient)
        near, in_memory = state.near.take(), state.in_memory
        if near is None:
            return segment_best.w
        if state.passes == 0 and _takes_sample(problem) and (problem.loss.smooth() or len(near.y) < problem.rows):
            factor = state.weight / float(near.s.sum(dtype=np.float64))
            return in_memory.first_point(near, factor, state.deadline)
        state.damping = _next_damping(state, segment_best.step)
        best = BestPointOfPass(
            segment_best.w,
            segment_best.v,
            segment_best.gain,
            segment_best.step,
            segment_best.primal,
            state.dual,
            state.damping,
            state.weight,
        )
        solved = in_memory.solve(near, best, state.deadline)
        state.iterations += solved.iterations
        if solved.dual > state.dual:
            state.dual = solved.dual
            state.proven = None if solved.alpha is None else ProvenPoint(segment_best.w, near.row, solved.alpha)
        return solved.w

    def keep_dual_point(self) -> InteriorPoint:
        """Return the solver itself, since the dual variables that attain its bound are always available."""
        return self

    def dual_values(self, state: InteriorPointState, block: Block) -> Float64 | None:
        """Return the dual variables (n,) that attain the largest D: the slopes at ``proven.w``, and for rows near the
        kink the variables computed in memory.

        None for one-class problems with a free offset, whose bound is that of slopes made feasible by sums over all
        rows.
        """
        proven = state.proven
        if not state.problem.regularizer.has_scale:
            return None
        if proven is None:
            return np.zeros(len(block.y))
        alpha = slopes_at(state.problem, DualPoint(proven.w, 0.0, 1.0), block)
        proven_places, places = block.members(proven.rows)
        alpha[places] = proven.alpha[proven_places]
        return alpha


def _point_of_slopes(segment_best: BestPoint) -> ProvenPoint | None:
    """Return the best dual point of the slopes along a segment; None if a = 0 is better."""
    return (
        None
        if segment_best.best_dual_point is None
        else ProvenPoint(segment_best.best_dual_point, np.empty(0, np.int64), np.empty(0))
    )


def _takes_sample(problem: Problem) -> bool:
    """Return whether the first pass takes a sample: not after a warm start, nor for losses whose Hessian at w = 0 is as
    good as a sample.
    """
    return problem.warm is None and problem.loss.quadratic()


def _next_damping(state: InteriorPointState, step: float) -> float:
    """Return the next damping, if the best point was at the fraction ``step`` of the segment; 0 if all rows are in
    memory.
    """
    damping = state.damping
    if state.near.threshold == np.inf:
        return 0.0
    if state.passes < 2:
        return START_DAMPING
    if step >= LONG_STEP:
        return damping / DAMPING_DIVISOR if damping > LEAST_DAMPING else 0.0
    return max(LEAST_DAMPING, DAMPING_FACTOR * damping) if step <= SHORT_STEP else damping


def _kink_distances(state: InteriorPointState, block: Block, f: Float64, df: Float64) -> Float64:
    """Return the least distance (n,) of each row to the kink, over the evaluated points of the segment.

    The distance is relative to how far the margin of the row may move: a row with most of a rare column moves with the
    weight of that column, which no other row restricts.
    """
    problem, values = state.problem, f + np.array(STEPS)[:, None] * df
    if problem.loss.numeric():
        distance = np.abs(values - block.y) - abs(1.0 - problem.loss.conjugate_slope(0.0, 1.0))
    else:
        distance = block.y * values - threshold(problem.loss)
    nearest: Float64 = np.abs(distance).min(axis=0)
    if state.passes == 0:
        return nearest
    return nearest / np.sqrt(leverages(block.X, 1.0 / (state.squares + 1.0 / problem.C), 1.0 / problem.rows))
