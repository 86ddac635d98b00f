"""Cutting planes: a model of the loss sum from below, minimized in memory between readings, and a line search in every reading.

    P(w) = 1/2 ||w||^2 + C sum_i s_i l(y_i w.x_i)  >=  1/2 ||w||^2 + max_k (g_k - v_k.w)

A pass looks along the segment from the best point to the minimum of the model: P at a grid of step lengths (``line_search``; exact,
of the hinge), and at a few of them the planes that touch the loss sum there (``solvers.segment_sums``), which make the next model.
As published a plane is taken where the model is least (SVMperf: Joachims, KDD 2006; BMRM: Teo et al., JMLR 11, 2010) or between
there and the best point (OCAS: Franc and Sonnenburg, JMLR 10, 2009, algorithm 2); the same reading brings both, and those between.
The model's minimum is the lower bound. Losses without a corner have the planes and their few points, without the grid.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from streamsvm.config.fields import Bounds, Option
from streamsvm.rows import Float64
from streamsvm.solvers.cutting_plane.bundle import Bundle
from streamsvm.solvers.cutting_plane.line_search import LineSearch
from streamsvm.solvers.segment_solver import SegmentSolver, SegmentState
from streamsvm.solvers.segment_sums import STEPS, SegmentSums
from streamsvm.tags import saved_as
from streamsvm.types import Block, Certificate, Cost, Layout, Problem

PLANES, LEAST_PLANES = 256, 32
"""Planes kept, and how few are of use."""
VECTORS = 40
"""Of length p: the sums at every step, their copies while they are closed, points."""
COPIES = 3
"""Of planes while some are joined or left out."""
MATRICES = 6
"""Of K by K numbers, while the model is solved."""
MODEL_SHARE, LEAST_SHARE = 0.02, 1e-15
"""How exactly the model is solved: a share of the gap that is asked for, and of P."""


@saved_as("cutting_plane.state")
@dataclass(slots=True)
class CuttingPlaneState(SegmentState):
    """A pass looks at ``point + t direction``. Arrays are float64; p = columns + 1."""

    problem: Problem
    """What is solved."""
    point: Float64
    """(p,) the best point of the readings so far, which is the solution."""
    direction: Float64
    """(p,) from there to the minimum of the model; 0 in the first pass."""
    sums: SegmentSums
    """Of the pass, at few steps: values and planes."""
    line: LineSearch
    """Of the pass, at many steps: values."""
    bundle: Bundle | None = None
    """The planes; None before the first pass is closed, and where blocks are visited."""
    primal: float = np.inf
    """P of ``point``; inf before the first pass."""
    dual: float = 0.0
    """The largest bound so far; at first that of l >= 0."""
    facts: dict[str, float] = field(default_factory=dict)
    """What there is to say of the last pass."""


@dataclass(frozen=True, slots=True)
class CuttingPlane(SegmentSolver):
    """Settings of the method."""

    planes: Annotated[
        int | None,
        Option(
            f"Planes kept; a reading adds up to {len(STEPS)}. Beyond, those that matter least are joined.",
            bounds=Bounds(least=len(STEPS) + 2),
            default=str(PLANES),
        ),
    ] = None
    driver_fields: ClassVar[tuple[str, ...]] = ("bundle",)
    """The planes are not sent to those who visit blocks."""
    halved: ClassVar[str] = "planes"
    """See ``SegmentSolver``."""

    def held(self, problem: Problem) -> int:
        """Planes."""
        return self.planes or PLANES

    def least(self, problem: Problem) -> int:
        """Planes of use."""
        return LEAST_PLANES

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Bytes of the planes, of their Gram matrix, of vectors."""
        p, planes = problem.columns + 1, self.held(problem)
        fixed = 8 * (p * (COPIES * planes + VECTORS) + MATRICES * planes * planes)
        return Cost(fixed=fixed, per_block_row=32)

    def start(self, problem: Problem) -> CuttingPlaneState:
        """Begin at w = 0, or at the warm weights, with nothing to look at beyond."""
        p = problem.columns + 1
        return CuttingPlaneState(problem, problem.first_weights(), np.zeros(p), SegmentSums(p), LineSearch())

    def visit(self, state: CuttingPlaneState, block: Block) -> None:
        """Add the block to the sums along the segment."""
        f, df = state.sums.add(state.problem, block, state.point, state.direction)
        if not state.problem.loss.smooth():
            state.line.add(state.problem, block, f, df)

    def finish(self, state: CuttingPlaneState) -> Certificate:
        """Close the pass at the best point of the segment, and minimize the model with the planes it has brought."""
        point, direction, problem = state.point, state.direction, state.problem
        found = state.sums.close(point, direction)
        state.point, state.primal, step = found.w, found.primal, found.step
        if not problem.loss.smooth():
            lowest = state.line.close(point, direction)
            if lowest.primal < found.primal:
                state.point, state.primal, step = point + lowest.step * direction, lowest.primal, lowest.step
        bundle = state.bundle = state.bundle or Bundle(problem.columns + 1, self.held(problem))
        added = bundle.add(*state.sums.planes())
        candidate, bound = bundle.solve(max(MODEL_SHARE * problem.tolerance, LEAST_SHARE) * state.primal)
        state.direction, state.dual = candidate - state.point, max(state.dual, bound, found.dual)
        state.facts = {"step": step, "planes": len(bundle.g)}
        state.sums.clear()
        state.line.clear()
        return Certificate(
            state.primal, state.dual, final=not added, facts=dict(state.facts)
        )  # it knows no more after that

    def merge(self, states: list[CuttingPlaneState]) -> CuttingPlaneState:
        """Add up what each worker summed."""
        first, *others = states
        for other in others:
            first.sums.merge(other.sums)
            first.line.merge(other.line)
        return first
