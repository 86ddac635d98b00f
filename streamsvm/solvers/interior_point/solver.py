"""Second order by readings to the last digits: an interior point on the rows at the corner, Newton's matrix from all rows elsewhere.

A pass looks along the segment from the best point to a candidate (``segment_sums``): P, D and the gradient at several lengths
of the step, so that every reading ends with the best of them. What the next candidate is made of the same pass brings:

    hinge         the rows nearest to the corner, up to ``kept``; all others add to P only what is linear in w as long as they
                  stay on their side. The problem of the near rows is solved in memory (``reduced_problem``); it has a
                  dual point of all rows, whose value needs no reading.
    smooth losses X' diag(C_i l'') X, (p, p), and one step of Newton's method: between corners P is a parabola.

    numbers       as for the hinge where the loss has corners, of rows with two sides (``number_problem``); else one step of Newton's method.

    one class     with a free offset (``solvers.one_class``): as for the hinge; the problem in memory is ``offset_problem``.

Where no row beyond those kept changes sides a step is the last one, whatever lambda: what a reading finds is then confirmed to
rounding. The first candidate is the optimum of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.compute.passes.newton import leverages, squares
from streamsvm.config.fields import Bounds, Option
from streamsvm.errors import UsageError
from streamsvm.losses import threshold
from streamsvm.rows import Float64
from streamsvm.solvers.interior_point.multinomial import MultinomialInteriorPoint
from streamsvm.solvers.interior_point.nearest_rows import SPARE, NearestRows
from streamsvm.solvers.interior_point.nu_classes import NuClasses
from streamsvm.solvers.interior_point.problem_in_memory import Known
from streamsvm.solvers.interior_point.state import InteriorPointState, ProvenPoint
from streamsvm.solvers.newton.explicit import factorized_after_rounding, matrix_bytes
from streamsvm.solvers.newton.in_memory.linear_systems.preconditioner import block_bytes, block_size
from streamsvm.solvers.one_class import RowSums
from streamsvm.solvers.point_evaluation import DualPoint, slopes_at
from streamsvm.solvers.second_derivatives import added, second_derivatives_of
from streamsvm.solvers.segment_solver import SegmentSolver
from streamsvm.solvers.segment_sums import STEPS, Found, SegmentSums
from streamsvm.types import Block, Certificate, Cost, Layout, LossRequirement, Problem

ROWS, PER_COMPONENT = 50_000, 50
"""Rows that are kept: so many, or so many for each component."""
LEAST, LEAST_PER_COMPONENT = 2_000, 5
"""Fewer are of no use."""
ROW_ARRAYS = 260
"""Bytes a row beside its entries: sign, weight, key, margins, number, and the float64 arrays of an interior point."""
VECTORS = 60
"""Of length p: the sums at every step, and what the iteration in memory holds."""

SHORT, LONG = 0.1, 0.6
"""A share of the way after which the next step is held back more, or less, ..."""
START_DAMPING, LEAST_DAMPING, DAMPED, EASED = 0.1, 1e-3, 10.0, 4.0
"""... at first by so much, then by this at least, and by so many times as much, or as little."""


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
    """Any: rows near a corner are what is kept."""
    free_offset: ClassVar[bool] = True
    halved: ClassVar[str] = "kept"
    """See ``SegmentSolver``."""
    has_dual_witness: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    def held(self, problem: Problem) -> int:
        """Rows kept."""
        return min(problem.rows, self.kept or max(ROWS, PER_COMPONENT * (problem.columns + 1)))

    def least(self, problem: Problem) -> int:
        """Rows of use."""
        return max(LEAST, LEAST_PER_COMPONENT * (problem.columns + 1))

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of the rows kept, while they are joined; of a matrix of all columns; of vectors."""
        p, kept = problem.columns + 1, self.held(problem)
        entry, sides = layout.entry_bytes, 2 if problem.loss.numeric() and not problem.loss.smooth() else 0
        row = bytes_per_row(problem.columns, layout.rows, layout.nonzeros, entry) + ROW_ARRAYS
        nonzeros = problem.nonzeros or problem.rows * p
        matrix = block_bytes(block_size(problem.columns, nonzeros, dense=layout.dense), entry)
        if problem.loss.smooth():
            matrix = max(matrix, matrix_bytes(p, entry))
        return Cost(fixed=int((SPARE + 1 + sides) * kept * row) + matrix + VECTORS * 8 * p, per_block_row=48)

    def start(self, problem: Problem) -> InteriorPointState:
        """Begin at w = 0, or at the warm weights, with nothing to look at beyond."""
        p, point = problem.columns + 1, problem.first_weights()
        near, rows = NearestRows(self.held(problem)), None if problem.nu is None else RowSums(p)
        return InteriorPointState(problem, point, np.zeros(p), SegmentSums(p), near, np.zeros(p), rows=rows)

    def visit(self, state: InteriorPointState, block: Block) -> None:
        """Add the block to the sums along the segment; keep its rows that are near, or add to the matrix."""
        problem = state.problem
        f, df = state.sums.add(problem, block, state.point, state.direction)
        state.weight += float(block.s.sum(dtype=np.float64))
        smooth, sampling = problem.loss.smooth(), state.passes == 0 and _sampled(problem)
        if sampling or not smooth:
            if state.passes == 0:
                found = squares(block.X, block.s.astype(np.float64), problem.columns)
                state.squares += found
                if state.rows is not None:
                    state.rows.add(problem, block, found)
            state.near.add(block, _distance(state, block, f, df), f, df)
        if smooth and not sampling:
            state.gram = added(state.gram, second_derivatives_of(problem, block, f + df))

    def set_deadline(self, state: InteriorPointState, moment: float) -> None:
        """Iterations in memory end at that moment."""
        state.deadline = moment

    def finish(self, state: InteriorPointState) -> Certificate:
        """Close the pass at the best point of the segment, and find the next candidate; both bounds are exact."""
        objective = state.in_memory.objective
        found = state.sums.close(state.point, state.direction, objective)
        state.point, state.primal, state.direction = found.w, found.primal, np.zeros_like(found.w)
        if found.dual > state.dual:
            state.dual, state.proven = found.dual, _slopes_alone(found)
        if not self._done(state):
            state.direction = self._candidate(state, found) - state.point
        state.passes += 1
        state.facts = {"step": found.step, "iterations": state.iterations, "damping": state.damping}
        if state.rows is not None:
            state.facts |= state.rows.facts()
        state.sums.clear()
        state.near.clear()
        state.gram, state.weight = None, 0.0
        return Certificate(state.primal, state.dual, final=objective.degenerate(state.dual), facts=dict(state.facts))

    def _done(self, state: InteriorPointState) -> bool:
        return state.primal - state.dual <= state.problem.tolerance * abs(state.primal)

    def _candidate(self, state: InteriorPointState, found: Found) -> Float64:
        """Where the next pass is to look."""
        problem = state.problem
        if problem.loss.smooth() and state.gram is not None:
            state.gram[np.diag_indices_from(state.gram)] += 1.0
            gradient = found.w - found.v
            return found.w - factorized_after_rounding(state.gram)(gradient)
        near, in_memory = state.near.taken(), state.in_memory
        if near is None:
            return found.w
        if state.passes == 0 and _sampled(problem) and (problem.loss.smooth() or len(near.y) < problem.rows):
            factor = state.weight / float(near.s.sum(dtype=np.float64))
            return in_memory.first_point(near, factor, state.deadline)
        state.damping = _damping(state, found.step)
        known = Known(found.w, found.v, found.gain, found.step, found.primal, state.dual, state.damping, state.weight)
        solved = in_memory.solve(near, known, state.deadline)
        state.iterations += solved.iterations
        if solved.dual > state.dual:
            state.dual = solved.dual
            state.proven = None if solved.alpha is None else ProvenPoint(found.w, near.row, solved.alpha)
        return solved.w

    def of_classes(self, classes: int) -> MultinomialInteriorPoint:
        """Raises UsageError: all rows are kept where classes are told apart together."""
        if self.kept is not None:
            raise UsageError("all classes in one problem are solved with all rows", hint="leave out kept")
        return MultinomialInteriorPoint(classes)

    def for_two_classes(self) -> NuClasses:
        return NuClasses(self)

    def keeping_dual_point(self) -> InteriorPoint:
        """The same: where the bound comes from is always known."""
        return self

    def witness(self, state: InteriorPointState) -> InteriorPointState:
        """What ``dual_values`` looks at: the point behind the bound, without rows and sums."""
        nothing = NearestRows(state.near.limit)
        return replace(state, sums=SegmentSums(1), near=nothing, squares=np.zeros(1), gram=None)

    def dual_values(self, state: InteriorPointState, block: Block) -> Float64 | None:
        """The dual variables (n,) of the largest D: slopes at some weights, but of rows near the corner those found in memory.

        Of one class with a free offset none: its bound is of slopes made feasible by sums over all rows.
        """
        proven = state.proven
        if state.problem.nu is not None:
            return None
        if proven is None:
            return np.zeros(len(block.y))
        found = slopes_at(state.problem, DualPoint(proven.w, 0.0, 1.0), block)
        mine, places = block.members(proven.rows)
        found[places] = proven.alpha[mine]
        return found

    def merge(self, states: list[InteriorPointState]) -> InteriorPointState:
        """Add up what each worker summed, and join the rows they kept."""
        first, *others = states
        for other in others:
            first.sums.merge(other.sums)
            first.near.merge(other.near)
            first.weight += other.weight
            if first.rows is not None and other.rows is not None and first.passes == 0:
                first.rows.merge(other.rows)
            first.squares = first.squares + (other.squares if first.passes == 0 else 0.0)
            first.gram = added(first.gram, other.gram)
        return first


def _slopes_alone(found: Found) -> ProvenPoint | None:
    """The dual point that a segment has shown."""
    return None if found.steepest is None else ProvenPoint(found.steepest, np.empty(0, np.int64), np.empty(0))


def _sampled(problem: Problem) -> bool:
    """Whether the first pass takes a sample: not where weights are known, nor where the matrix at w = 0 says as much."""
    return problem.warm is None and problem.loss.quadratic()


def _damping(state: InteriorPointState, step: float) -> float:
    """The next damping, after so much of the way was worth going; 0 where all rows are near."""
    damping = state.damping
    if state.near.threshold == np.inf:
        return 0.0
    if state.passes < 2:
        return START_DAMPING
    if step >= LONG:
        return damping / EASED if damping > LEAST_DAMPING else 0.0
    return max(LEAST_DAMPING, DAMPED * damping) if step <= SHORT else damping


def _distance(state: InteriorPointState, block: Block, f: Float64, df: Float64) -> Float64:
    """How near to the corner each row comes (n,) at those points of the segment that are looked at.

    Relative to how far it moves: rows that are much of a rare column go where that weight goes, and nothing holds it.
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
