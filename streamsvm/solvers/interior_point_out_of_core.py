"""Second-order steps out of core, to the last digits: an interior point on the rows near the corner of the loss; for
smooth losses Newton's matrix of all rows.

A pass looks along the segment from the best point to a candidate (``solvers.line_search``): P, D and the gradient at
several lengths of the step, so that every reading ends with the best of them. The same pass collects what the next
candidate is made of:

    hinge         the rows nearest to the corner (``NearestRows``), up to ``kept``; all others add to P only what is
                  linear in w as long as they stay on their side. The problem of the near rows is solved in memory
                  (``ReducedProblem``); it has a dual point of all rows, whose value needs no reading.
    smooth losses X' diag(C_i l'') X, (p, p), and one step of Newton's method: between corners P is a parabola.
    regression    as for the hinge where the loss has corners, of rows with two sides (``NumberProblem``); else one
                  step of Newton's method.
    one class     with a free offset (``solvers.one_class``): as for the hinge; the problem in memory is
                  ``OffsetProblem``.

If no row that was not kept changes sides, the step leads to the optimum, whatever lambda is, and the next reading
confirms it up to rounding. The first candidate is the optimum of a sample.

Of all classes in one problem: ``solvers.interior_point_multinomial``; of two classes whose C is found by nu:
``solvers.nu``.
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
from streamsvm.solvers.cholesky import factorize_after_rounding
from streamsvm.solvers.evaluation import DualPoint, add_to_sum, block_hessian, slopes_at
from streamsvm.solvers.line_search import STEPS, BestPoint, SegmentSolver, SegmentState, SegmentSums
from streamsvm.solvers.nearest_rows import SPARE, NearestRows, NearRows
from streamsvm.solvers.newton.in_memory import AllRows
from streamsvm.solvers.newton.preconditioner import block_bytes, block_size, matrix_bytes
from streamsvm.solvers.newton.priority_sampling import Sample
from streamsvm.solvers.newton.row_products import OuterTerms, norm_terms
from streamsvm.solvers.one_class import OFFSET, FreeOffset, OffsetObjective, RowSums
from streamsvm.types import SQUARED_NORM, Block, Certificate, Cost, Layout, LossRequirement, Problem, Regularizer
from streamsvm.types.state import FirstPassTotal, Total, clear_totals

ROUNDS = 20
"""Most calls of ``AllRows.advance``, each of which ends after a fixed amount of work."""
START_TOLERANCE = 1e-3
"""The gap to which the first sample is solved; a smaller one would come no nearer to the optimum of all rows."""
TOLERANCE_SHARE, LEAST_SHARE = 0.05, 1e-14
"""The problem in memory is solved to the first share of the gap asked for, but no further than the second share of P,
which is what float64 can tell."""
DECREASE_SHARE = 0.05
"""Or to this share of the decrease of P achieved in memory, where that is more."""
HELD = 1e-3
"""One class: curvature added along rho, in units of the curvature of P if all rows pointed in one direction."""
FIRST_SHARE = 1e-3
"""One class: first gap in memory, as a share of the objective if all rows pointed in one direction; it is lowered until
it is small beside P."""
SMALLER, OFFSET_TOLERANCE_SHARE, OFFSET_LEAST_SHARE = 0.01, 0.05, 1e-13
"""Each time that gap is multiplied by the first number, down to the second share of the gap asked for; rounding allows
no less than the third share of the objective if all rows pointed in one direction."""
ROWS, PER_COMPONENT = 50_000, 50
"""Rows that are kept: the larger of the first number and the second for each component."""
LEAST_ROWS, LEAST_ROWS_PER_COMPONENT = 2_000, 5
"""Fewer rows are of no use: the larger of the first number and the second for each component."""
ROW_ARRAYS = 260
"""Bytes a row beside its entries: sign, weight, key, margins, number, and the float64 arrays of an interior point."""
VECTORS = 60
"""Vectors of length p in memory: the sums at every step, and those of the iteration in memory."""
SHORT, LONG = 0.1, 0.6
"""If the best point lies at the first share of the segment or less, the next step is damped more; at the second share
or more, less."""
START_DAMPING, LEAST_DAMPING, DAMPED, EASED = 0.1, 1e-3, 10.0, 4.0
"""The damping at first, the least above 0, the factor it grows by, and the divisor by which it falls."""


class Known(NamedTuple):
    """What the reading has found at its best point."""

    w: Float64
    """(p,) that point."""
    v: Float64
    """(p,) sum a_i y_i x_i of the slopes there, all rows."""
    gain: float
    """sum a_i - conjugate(a_i) of them."""
    step: float
    """The share of the segment at which the point is: margins of rows are f + step df."""
    primal: float
    """P there."""
    dual: float
    """The largest D known."""
    damping: float
    """How much the step is held back."""
    total: float
    """sum s_i of all rows."""


class ReducedSolution(NamedTuple):
    """The solution of a problem in memory."""

    w: Float64
    """(p,) where the next reading is to look."""
    dual: float
    """D of the dual point, over all rows."""
    iterations: int
    """Of the interior point."""
    alpha: Float64 | None
    """(n,) the dual variables of the rows ``near`` at that point; None: there is no new one."""


class ProblemInMemory(Protocol):
    """What is solved in memory between two readings: the rows that were kept are free, all others stay on their
    side.
    """

    @property
    def objective(self) -> Regularizer:
        """Return the terms of P and D that are no sums over rows."""
        ...

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        """Return the optimum (p,) of a sample of the rows, each of which counts ``factor`` times."""
        ...

    def solve(self, near: NearRows, known: Known, deadline: float) -> ReducedSolution:
        """Return the minimum where only the rows ``near`` are free."""
        ...


def sample_of(near: NearRows) -> Sample:
    """Return the rows as the sample that ``AllRows`` takes."""
    return Sample(near.X, near.y, near.s, np.ones(len(near.y)), near.f, near.row, complete=False)


@dataclass(frozen=True, slots=True)
class ReducedProblem:
    """A hinge problem in which the rows near the corner are free and all others stay on their side of it.

        min_w  1/2 ||w||^2 - u.w + sum_near C_i l(m_i),        u = sum_others a_i y_i x_i,   a_i = -C_i l'(m_i), 0 or C_i

    is P but for a constant as long as the others stay. Its dual point, with the a_i of the others, is one of P: with
    g = sum_others (a_i - conjugate(a_i))

        D = g + sum_near (a_i - conjugate(a_i)) - 1/2 ||u + sum_near a_i y_i x_i||^2.

    This is the constraint reduction of interior points for support vector machines (Jung, O'Leary and Tits, ETNA 31,
    2008): rows whose dual variables are at a bound add nothing to X' D X. Where others have crossed the corner on the
    way, damping / 2 (w - w_0)' M (w - w_0) is added for the next step, M = diag(C sum_i s_i x_ij^2), a measure of the
    curvature that rows at the corner give to
    P. The iteration itself is that of rows in memory (``solvers.newton.interior_point_in_memory``; Ferris
    and Munson, SIAM J. Optimization 2003).
    """

    problem: Problem
    """Of all rows."""
    objective: ClassVar[Regularizer] = SQUARED_NORM

    def solve(self, near: NearRows, known: Known, deadline: float) -> ReducedSolution:
        problem = self.problem
        y, s, loss = near.y.astype(np.float64), near.s.astype(np.float64), problem.loss
        m = y * (near.f + known.step * near.df)
        a = np.where(m < threshold(loss), problem.C * s, 0.0)  # the slopes of the hinge
        gain_of_near = float(sum(b - loss.conjugate(b, problem.C * c) for b, c in zip(a, s, strict=True) if c > 0.0))
        u = known.v - operators.adjoint(near.X, a * y, problem.columns)
        wanted = max(TOLERANCE_SHARE * problem.tolerance, LEAST_SHARE) * known.primal
        bend = squares(near.X, s, problem.columns) * (known.damping * problem.C * known.total / float(s.sum()))
        outer = OuterTerms(1.0 + bend, -(u + bend * known.w))
        rows = AllRows(
            problem, sample_of(near), known.w, known.w, outer=outer, target_gap=wanted, decrease_share=DECREASE_SHARE
        )
        rows.advance_until_solved(deadline, ROUNDS)
        if rows.interior_point is not None:
            a = rows.interior_point.a
            gain_of_near -= float(
                sum(b - loss.conjugate(b, problem.C * c) for b, c in zip(a, s, strict=True) if c > 0.0)
            )
            u = u + operators.adjoint(near.X, a * y, problem.columns)
            return ReducedSolution(rows.best, known.gain - gain_of_near - 0.5 * float(u @ u), rows.steps, a)
        return ReducedSolution(rows.best, known.dual, rows.steps, None)

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        problem = self.problem
        coarse = replace(problem, C=factor * problem.C, tolerance=max(START_TOLERANCE, problem.tolerance))
        start = problem.first_weights()
        rows = AllRows(coarse, sample_of(near), start, start)
        rows.advance_until_solved(deadline, ROUNDS)
        return rows.best


@dataclass(frozen=True, slots=True)
class NumberProblem:
    """A regression loss with corners: some rows are free and all others stay on their side, as in ``ReducedProblem``.

        C_i l(m_i) = C_i max(0, q+ (-m_i - epsilon)) + C_i max(0, q- (m_i - epsilon)),      m_i = w.x_i - t_i

    is the hinge with its corner at -epsilon of two rows (x_i, +1) and (x_i, -1) with decision values w.x_i - t_i
    (``Sample.offset``) and bounds q+ C_i = upper and q- C_i = -lower. So an interior point with variables a >= 0 solves
    it, and a_i = a+_i - a-_i. D has the additional term sum_i a_i t_i.

    All is scaled so that residuals are about 1: w, t, epsilon and C are divided by sigma (``_unit``), P thereby by
    sigma^2.
    """

    problem: Problem
    """Of all rows; its loss has corners."""
    objective: ClassVar[Regularizer] = SQUARED_NORM

    def solve(self, near: NearRows, known: Known, deadline: float) -> ReducedSolution:
        problem, s = self.problem, near.s.astype(np.float64)
        m = near.f + known.step * near.df - near.y
        a = np.array([-problem.C * c * problem.loss.slope(r) for c, r in zip(s, m.tolist(), strict=True)])
        own, u = self._gain(a, near, s), known.v - operators.adjoint(near.X, a, problem.columns)
        unit = _residual_unit(m, s)
        bend = squares(near.X, s, problem.columns) * (known.damping * problem.C / unit * known.total / float(s.sum()))
        wanted = max(TOLERANCE_SHARE * problem.tolerance, LEAST_SHARE) * known.primal / unit**2
        outer, w = OuterTerms(1.0 + bend, -(u + bend * known.w) / unit), known.w / unit
        sided = self._build_side_problem(unit)
        rows = AllRows(
            sided, self._sample(near, unit), w, w, outer=outer, target_gap=wanted, decrease_share=DECREASE_SHARE
        )
        rows.advance_until_solved(deadline, ROUNDS)
        if rows.interior_point is None:
            return ReducedSolution(unit * rows.best, known.dual, rows.steps, None)
        above, below = np.split(unit * rows.interior_point.a, 2)
        a = above - below
        u = u + operators.adjoint(near.X, a, problem.columns)
        value = known.gain - own + self._gain(a, near, s) - 0.5 * float(u @ u)
        return ReducedSolution(unit * rows.best, value, rows.steps, a)

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        problem, start = self.problem, self.problem.first_weights()
        unit = _residual_unit(near.y.astype(np.float64), near.s.astype(np.float64))
        sided = self._build_side_problem(unit)
        coarse = replace(sided, C=factor * sided.C, tolerance=max(START_TOLERANCE, problem.tolerance))
        outer = norm_terms(len(start))
        rows = AllRows(coarse, self._sample(near, unit), start / unit, start / unit, outer=outer)
        rows.advance_until_solved(deadline, ROUNDS)
        return unit * rows.best

    def _build_side_problem(self, unit: float) -> Problem:
        """Return the hinge problem of the two sides of each row."""
        loss = self.problem.loss
        corner = Hinge(margin=(1.0 - loss.conjugate_slope(0.0, 1.0)) / unit)
        return replace(self.problem, loss=corner, C=self.problem.C / unit)

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
    """Return the weighted mean of |m| (n,); 1 where all are 0."""
    return float(s @ np.abs(m)) / float(s.sum()) or 1.0


@dataclass(frozen=True, slots=True)
class OffsetProblem:
    """One class with a free offset rho: the rows near the corner are free and all others stay on their side of it.

        min_{w, rho}  1/2 ||w||^2 - nu S rho - u.w~ + sum_near c_i max(0, -m_i),     m_i = w.x_i - rho,   u = sum_below s_i x~_i

    as in ``ReducedProblem``, with w~ = (w, rho) and x~ = (x, -1). rho is not regularized; a small curvature along it
    (``HELD``) makes the matrix positive definite. At the end sum a_i therefore differs slightly from nu S; the
    variables of the near rows are changed until it does not (``_make_feasible``), and D is that of the feasible point.

    All is scaled so that margins are about 1: with a_i <= c s_i, c = 1 / (nu S mean ||x||^2), w and rho are multiplied
    by c, P by c^2. Where rows are read less an offset o, there is one more linear term, -nu S o.w.
    """

    problem: Problem
    """Of all rows."""
    objective: OffsetObjective

    def solve(self, near: NearRows, known: Known, deadline: float) -> ReducedSolution:
        problem, objective = self.problem, self.objective
        s = near.s.astype(np.float64)
        a = np.where(near.f + known.step * near.df < 0.0, s, 0.0)  # the slopes of the hinge
        u = known.v - operators.adjoint(near.X, a, problem.columns)
        bend = squares(near.X, s, problem.columns) * (known.damping * known.total / float(s.sum()))
        c = _offset_unit(objective)
        outer = _outer_terms(objective, c * u, c * bend, c * known.w)
        scaled = replace(problem, C=c)
        rows = _iterate(AllRows(scaled, sample_of(near), c * known.w, c * known.w, outer=outer), objective, deadline)
        if rows.interior_point is None:
            return ReducedSolution(rows.best / c, known.dual, rows.steps, None)
        a = _make_feasible(rows.interior_point.a / c, s, objective.mass + float(OFFSET * -u[-1]))
        v = u + operators.adjoint(near.X, a, problem.columns)
        return ReducedSolution(rows.best / c, objective.dual(0.0, v), rows.steps, None)

    def first_point(self, near: NearRows, factor: float, deadline: float) -> Float64:
        problem, objective = self.problem, self.objective
        c, nothing = _offset_unit(objective), np.zeros(problem.columns + 1)
        outer = _outer_terms(objective, nothing, nothing, nothing)
        coarse = replace(problem, C=factor * c, tolerance=max(START_TOLERANCE, problem.tolerance))
        rows = AllRows(coarse, sample_of(near), nothing, nothing, outer=outer)
        return _iterate(rows, objective, deadline).best / c


def _offset_unit(objective: OffsetObjective) -> float:
    """Return c of ``OffsetProblem``; where rows are read less an offset o margins are about nu S ||x|| ||x - o||."""
    if objective.origin is None:
        return 1.0 / (objective.mass * objective.rows.usual)
    return 1.0 / (objective.mass * math.sqrt(objective.usual * objective.rows.usual))


def _outer_terms(objective: OffsetObjective, u: Float64, bend: Float64, w: Float64) -> OuterTerms:
    """Return 1/2 w'Gw + q.w in units of margins: the norm, rows that stay on their side, and the damping about w."""
    usual = objective.rows.usual if objective.origin is None else 1.0 / (_offset_unit(objective) * objective.mass)
    diagonal, linear = 1.0 + bend, -(u + bend * w)
    diagonal[-1] = HELD / usual + bend[-1]
    linear[-1] -= 1.0 / usual + HELD / usual * w[-1]
    if objective.origin is not None:
        linear[:-1] -= objective.origin / usual
    return OuterTerms(diagonal, linear)


def _iterate(rows: AllRows, objective: OffsetObjective, deadline: float) -> AllRows:
    """Advance until the gap is small beside P, which is known only on the way. Changes ``rows`` and returns it."""
    unit = 0.5 / objective.rows.usual
    rows.target_gap = FIRST_SHARE * unit
    for _ in range(ROUNDS):
        rows.advance(deadline)
        least = max(OFFSET_TOLERANCE_SHARE * rows.problem.tolerance * abs(rows.primal), OFFSET_LEAST_SHARE * unit)
        if rows.solved and rows.target_gap <= least:
            break
        if rows.solved:  # else ``advance`` returned to have the deadline checked
            rows.target_gap = max(SMALLER * rows.target_gap, least)
    return rows


def _make_feasible(a: Float64, s: Float64, mass: float) -> Float64:
    """Return a (n,) that sum up to ``mass``, or come as near as their bounds 0 and s allow."""
    found, most = float(a.sum()), float(s.sum())
    if found > mass:
        return a * (max(mass, 0.0) / found)
    return a + min((mass - found) / (most - found), 1.0) * (s - a) if most > found else a


@saved_as("interior_point.proven")
class ProvenPoint(NamedTuple):
    """A dual point of all rows: the slopes at ``w``, except for some rows, whose variables were found in memory."""

    w: Float64
    """(p,) the weights."""
    rows: Int64
    """(k,) numbers of those rows, rising."""
    alpha: Float64
    """(k,) their variables."""


@saved_as("interior_point.state")
@dataclass(slots=True)
class InteriorPointState(SegmentState):
    """A pass looks at ``point + t direction``. Arrays are float64; p = columns + 1."""

    problem: Problem
    """What is solved."""
    point: Float64
    """(p,) the best point of the readings so far, which is the solution."""
    direction: Float64
    """(p,) from there to the candidate; 0: there is none, and the point is evaluated."""
    sums: Total[SegmentSums]
    """Of the pass along the segment."""
    near: Total[NearestRows]
    """The rows nearest to the corner: in every pass for a loss with a corner, else in a first pass that takes a
    sample."""
    squares: FirstPassTotal[Float64]
    """(p,) sum s_i x_ij^2, of the first pass."""
    weight: Total[float] = 0.0
    """sum s_i over the rows met in this pass."""
    gram: Total[Float64 | None] = None
    """(p, p) X' diag(C_i l'') X at the candidate, for smooth losses; None before the first block and for the hinge."""
    primal: float = np.inf
    """P of ``point``; inf before the first pass."""
    dual: float = -np.inf
    """The largest D so far; -inf before the first pass."""
    passes: int = 0
    """Passes that were closed."""
    iterations: int = 0
    """Of the interior point, in memory."""
    damping: float = 0.0
    """How much the next step is held back."""
    deadline: float = np.inf
    """When work in memory is to end, on the clock of ``time.perf_counter``."""
    facts: dict[str, float] = field(default_factory=dict)
    """What is reported of the last pass."""
    rows: FirstPassTotal[RowSums | None] = None
    """Of one class with a free offset: sums over all rows, which the first pass makes."""
    proven: ProvenPoint | None = None
    """Where ``dual`` comes from; None: it is a = 0, or that of one class."""

    @property
    def in_memory(self) -> ProblemInMemory:
        """The problem that is solved in memory; of one class with a free offset once the first pass is over."""
        if self.problem.loss.numeric() and not self.problem.loss.smooth():
            return NumberProblem(self.problem)
        regularizer = self.problem.regularizer
        if self.rows is None or not isinstance(regularizer, FreeOffset):
            return ReducedProblem(self.problem)
        return OffsetProblem(self.problem, OffsetObjective(regularizer.nu, self.rows, regularizer.origin))


@dataclass(frozen=True, slots=True)
class InteriorPoint(SegmentSolver):
    """Settings of the method."""

    kept: Annotated[
        int | None,
        Option(
            "Rows kept in memory: those nearest to the corner.",
            bounds=Bounds(least=1),
            default=f"{ROWS}, or {PER_COMPONENT} a column where that is more",
        ),
    ] = None
    losses: ClassVar[LossRequirement] = LossRequirement()
    """Any: with corners by the rows near them, without by the matrix of all rows."""
    halved: ClassVar[str] = "kept"
    has_dual_witness: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    def count_kept(self, problem: Problem) -> int:
        """Return the number of rows kept."""
        return min(problem.rows, self.kept or max(ROWS, PER_COMPONENT * (problem.columns + 1)))

    def min_kept(self, problem: Problem) -> int:
        """Return the least number of rows that is of use."""
        return max(LEAST_ROWS, LEAST_ROWS_PER_COMPONENT * (problem.columns + 1))

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of the rows kept, while they are joined; of a matrix of all columns; of vectors."""
        p, kept = problem.columns + 1, self.count_kept(problem)
        entry, sides = layout.entry_bytes, 2 if problem.loss.numeric() and not problem.loss.smooth() else 0
        row = bytes_per_row(problem.columns, layout.rows, layout.nonzeros, entry) + ROW_ARRAYS
        nonzeros = problem.nonzeros or problem.rows * p
        matrix = block_bytes(block_size(problem.columns, nonzeros, dense=layout.dense), entry)
        if problem.loss.smooth():
            matrix = max(matrix, matrix_bytes(p, entry))
        return Cost(fixed=int((SPARE + 1 + sides) * kept * row) + matrix + VECTORS * 8 * p, per_block_row=48)

    def start(self, problem: Problem) -> InteriorPointState:
        """Begin at w = 0, or at the warm weights; the first pass evaluates that point alone."""
        p, point = problem.columns + 1, problem.first_weights()
        near, rows = NearestRows(self.count_kept(problem)), problem.regularizer.row_sums(p)
        return InteriorPointState(problem, point, np.zeros(p), SegmentSums(p), near, np.zeros(p), rows=rows)

    def visit(self, state: InteriorPointState, block: Block) -> None:
        """Add the block to the sums along the segment; keep its rows that are near, or add to the matrix."""
        problem = state.problem
        f, df = state.sums.add(problem, block, state.point, state.direction)
        state.weight += float(block.s.sum(dtype=np.float64))
        smooth, sampling = problem.loss.smooth(), state.passes == 0 and _takes_sample(problem)
        if sampling or not smooth:
            if state.passes == 0:
                found = squares(block.X, block.s.astype(np.float64), problem.columns)
                state.squares += found
                if state.rows is not None:
                    state.rows.add(problem, block, found)
            state.near.add(block, _corner_distances(state, block, f, df), f, df)
        if smooth and not sampling:
            state.gram = add_to_sum(state.gram, block_hessian(problem, block, f + df))

    def set_deadline(self, state: InteriorPointState, moment: float) -> None:
        """End iterations in memory at that moment."""
        state.deadline = moment

    def finish(self, state: InteriorPointState) -> Certificate:
        """Close the pass at the best point of the segment, and find the next candidate; both bounds are exact."""
        objective = state.in_memory.objective
        found = state.sums.close(state.point, state.direction, objective)
        state.point, state.primal, state.direction = found.w, found.primal, np.zeros_like(found.w)
        if found.dual > state.dual:
            state.dual, state.proven = found.dual, _point_of_slopes(found)
        if not self._is_done(state):
            state.direction = self._next_candidate(state, found) - state.point
        state.passes += 1
        state.facts = {"step": found.step, "iterations": state.iterations, "damping": state.damping}
        if state.rows is not None:
            state.facts |= state.rows.facts()
        clear_totals(state)
        return Certificate(state.primal, state.dual, final=objective.is_degenerate(state.dual), facts=dict(state.facts))

    def _is_done(self, state: InteriorPointState) -> bool:
        return state.primal - state.dual <= state.problem.tolerance * abs(state.primal)

    def _next_candidate(self, state: InteriorPointState, found: BestPoint) -> Float64:
        """Return the point (p,) to which the next pass looks."""
        problem = state.problem
        if problem.loss.smooth() and state.gram is not None:
            state.gram[np.diag_indices_from(state.gram)] += 1.0
            gradient = found.w - found.v
            return found.w - factorize_after_rounding(state.gram)(gradient)
        near, in_memory = state.near.take(), state.in_memory
        if near is None:
            return found.w
        if state.passes == 0 and _takes_sample(problem) and (problem.loss.smooth() or len(near.y) < problem.rows):
            factor = state.weight / float(near.s.sum(dtype=np.float64))
            return in_memory.first_point(near, factor, state.deadline)
        state.damping = _next_damping(state, found.step)
        known = Known(found.w, found.v, found.gain, found.step, found.primal, state.dual, state.damping, state.weight)
        solved = in_memory.solve(near, known, state.deadline)
        state.iterations += solved.iterations
        if solved.dual > state.dual:
            state.dual = solved.dual
            state.proven = None if solved.alpha is None else ProvenPoint(found.w, near.row, solved.alpha)
        return solved.w

    def keep_dual_point(self) -> InteriorPoint:
        """Return the solver itself: it always knows the dual point behind its bound."""
        return self

    def dual_values(self, state: InteriorPointState, block: Block) -> Float64 | None:
        """Return the dual variables (n,) of the largest D: slopes at some weights, and of rows near the corner those
        found in memory.

        None for one class with a free offset: its bound is of slopes made feasible by sums over all rows.
        """
        proven = state.proven
        if not state.problem.regularizer.has_scale:
            return None
        if proven is None:
            return np.zeros(len(block.y))
        found = slopes_at(state.problem, DualPoint(proven.w, 0.0, 1.0), block)
        mine, places = block.members(proven.rows)
        found[places] = proven.alpha[mine]
        return found


def _point_of_slopes(found: BestPoint) -> ProvenPoint | None:
    """Return the dual point of the slopes along a segment; None where a = 0 is better."""
    return None if found.steepest is None else ProvenPoint(found.steepest, np.empty(0, np.int64), np.empty(0))


def _takes_sample(problem: Problem) -> bool:
    """Return whether the first pass takes a sample: not at warm weights, nor where Newton's matrix at w = 0 says as
    much.
    """
    return problem.warm is None and problem.loss.quadratic()


def _next_damping(state: InteriorPointState, step: float) -> float:
    """Return the next damping, after a best point at the share ``step`` of the way; 0 where all rows are kept."""
    damping = state.damping
    if state.near.threshold == np.inf:
        return 0.0
    if state.passes < 2:
        return START_DAMPING
    if step >= LONG:
        return damping / EASED if damping > LEAST_DAMPING else 0.0
    return max(LEAST_DAMPING, DAMPED * damping) if step <= SHORT else damping


def _corner_distances(state: InteriorPointState, block: Block, f: Float64, df: Float64) -> Float64:
    """Return how near to the corner each row comes (n,) at the points of the segment that are evaluated.

    The distance is relative to how far a row moves: rows with most of a rare column go where that weight goes, which
    nothing else holds.
    """
    problem, values = state.problem, f + np.array(STEPS)[:, None] * df
    if problem.loss.numeric():
        beyond = np.abs(values - block.y) - abs(1.0 - problem.loss.conjugate_slope(0.0, 1.0))
    else:
        beyond = block.y * values - threshold(problem.loss)
    nearest: Float64 = np.abs(beyond).min(axis=0)
    if state.passes == 0:
        return nearest
    return nearest / np.sqrt(leverages(block.X, 1.0 / (state.squares + 1.0 / problem.C), 1.0 / problem.rows))
