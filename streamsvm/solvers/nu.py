"""nu-SVM of two classes, out of core: one class with a free offset, of rows that are multiplied by the sign of their
class.

    P(u, rho) = 1/2 ||u||^2 - nu S rho + sum_i s_i max(0, rho - y_i u.x_i),      S = sum_i s_i,     0 < nu <= 1
    D(a)      = -1/2 ||sum_i a_i y_i x_i||^2,      sum_i a_i = nu S,      0 <= a_i <= s_i

in the units of LIBSVM (Scholkopf et al., Neural Computation 12, 2000; Chang and Lin, Neural Computation 13, 2001). The
constant feature is one of x, and regularized like any other, so that there is no y'a = 0. With z_i = y_i x_i it is the
problem of ``solvers.one_class``, which the interior point solves in readings.

w = u / rho is the optimum of 1/2 ||w||^2 + C sum_i s_i max(0, 1 - y_i w.x_i) for C = 1 / rho: what is returned, as in
LIBSVM, with margins of 1. Of w alone, u = q w and rho = q are best at q = lack / ||w||^2, lack = nu S - sum_i s_i
max(0, 1 - y_i w.x_i), where P is -lack^2 / (2 ||w||^2); if lack <= 0 nothing is better than u = 0, rho = 0. Slopes at w
make dual points as those of one class do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.operators import sign_rows
from streamsvm.losses import Hinge
from streamsvm.rows import Float64
from streamsvm.solvers.one_class import CORNER, OFFSET, FreeOffset, NuRegularizer, OffsetObjective, RowSums
from streamsvm.solvers.problem_kinds import OneClass
from streamsvm.types import (
    AnySolver,
    Block,
    Certificate,
    Cost,
    Layout,
    LinearSolution,
    Loss,
    LossRequirement,
    Problem,
    Regularizer,
    RowState,
    Solver,
)
from streamsvm.types.problem import Bounds
from streamsvm.types.state import Total

if TYPE_CHECKING:
    from streamsvm.solvers.interior_point_out_of_core import InteriorPoint, InteriorPointState


MARGIN = Hinge(margin=1.0)
"""The loss of a row at w."""
PATIENCE = 8
"""Readings after which a run that has found nothing better than w = 0 ends: classes overlap more than nu allows, or
nearly so."""


@saved_as("regularizer.nu_margin")
@dataclass(frozen=True, slots=True)
class NuMargin(NuRegularizer):
    """1/2 ||u||^2 - nu S rho, of weights w = u / rho with margins of 1, at their best multiple."""

    refusal: ClassVar[str] = "does not find C by nu"
    instead: ClassVar[str] = "--C in place of --nu, or "

    def bounds(
        self, loss: Loss, sums: tuple[float, float, float], w: Float64, v: Float64, rows: RowSums | None = None
    ) -> Bounds:
        """Return what R is at the best multiple of w, and D; the slopes are those of a margin of 1, so that their sum
        is linear.
        """
        plain = Regularizer.bounds(self, loss, sums, w, v)
        if rows is None:
            return plain
        losses, linear, _ = sums
        value = primal_of_weights(self.nu, rows.total, losses, w) - losses
        return Bounds(value, plain.scale, OffsetObjective(self.nu, rows).dual_of(linear, v, rows.v))

    def cancellation(self, w: Float64, total: float, unit: float) -> float:
        """Return twice nu S rho, which P has with a minus."""
        return 2.0 * self.nu * total * unit

    def margin_unit(self, facts: JsonObject) -> float:
        """Return rho."""
        return max(0.0, float(facts["rho"]))

    def automatic_solver(self, exact_kernel: bool) -> tuple[str, str]:
        return "interior_point", "two classes, C by nu"

    def adapt(self, solver: AnySolver) -> AnySolver | None:
        from streamsvm.solvers.interior_point_out_of_core import InteriorPoint

        return NuClasses(solver) if isinstance(solver, InteriorPoint) else None


def primal_of_weights(nu: float, total: float, losses: float, w: Float64) -> float:
    """Return P at the best multiple of w (p,); ``losses`` is sum s_i max(0, 1 - y_i w.x_i), ``total`` sum s_i."""
    lack, square = nu * total - losses, float(w @ w)
    return -0.5 * lack * lack / square if lack > 0.0 and square > 0.0 else 0.0


@saved_as("nu_classes.state")
@dataclass(slots=True)
class NuState:
    """The problem, and the state of the problem of one class that it becomes."""

    problem: Problem
    signed: Total[InteriorPointState]
    """The run on rows with signs."""


@dataclass(frozen=True, slots=True)
class NuClasses(Solver[NuState]):
    """The method for two classes."""

    inner: InteriorPoint
    """The method for one class, which is given rows with signs."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty, as that of ``inner``."""
    shuffled: ClassVar[bool] = False
    """False: no step is taken while rows are read."""
    losses: ClassVar[LossRequirement] = LossRequirement(smooth=False, numeric=False)
    """The hinge."""
    has_candidates: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of ``inner``, and of a copy of a block's rows."""
        inner = self.inner.cost(_build_signed_problem(problem), layout)
        entries = 4 * (problem.columns + 1)
        if not layout.dense:
            entries = 24 * (-(-sum(layout.nonzeros or ()) // max(1, layout.rows)) + 1)
        return replace(inner, per_block_row=inner.per_block_row + entries)

    def shrink_memory(self, problem: Problem, asked: Collection[str]) -> NuClasses | None:
        """Return the solver with half as many rows in memory."""
        inner = self.inner.shrink_memory(_build_signed_problem(problem), asked)
        return None if inner is None else replace(self, inner=inner)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the rows in memory."""
        return self.inner.memory_settings()

    def start(self, problem: Problem) -> NuState:
        """Begin at w = 0."""
        return NuState(problem, self.inner.start(_build_signed_problem(problem)))

    def visit(self, state: NuState, block: Block) -> None:
        """Add the block, its rows with the signs of their classes."""
        X = sign_rows(block.X, block.y, state.problem.columns, OFFSET)
        self.inner.visit(state.signed, replace(block, X=X, y=np.ones(len(block.y), np.float32), copies=None))

    def set_deadline(self, state: NuState, moment: float) -> None:
        self.inner.set_deadline(state.signed, moment)

    def finish(self, state: NuState) -> Certificate:
        """Close the pass; both bounds are those of the inner problem, which are exact."""
        found, rho = self.inner.finish(state.signed), float(state.signed.point[-1])
        facts = {**found.facts, "rho": rho, "equivalent_C": 1.0 / rho if rho > 0.0 else None}
        nothing = rho <= 0.0 and state.signed.passes >= PATIENCE
        return replace(found, final=found.final or nothing, facts=facts)

    def certify(self, state: NuState) -> None:
        """Do nothing: every pass is an exact evaluation."""

    def candidate(self, state: NuState) -> Float64:
        """Return the weights u / rho."""
        return self.solution(state).w

    def solution(self, state: NuState) -> LinearSolution:
        """Return the weights u / rho; 0 where nothing is better than u = 0."""
        u, rho, columns = state.signed.point[:-1], float(state.signed.point[-1]), state.problem.columns
        w = np.zeros(columns + 1)
        w[: len(u)] = u / rho if rho > 0.0 else 0.0
        return LinearSolution(w, state.problem.bias)


def _build_signed_problem(problem: Problem) -> Problem:
    """Return the problem of one class that rows with signs make, the constant feature among their columns."""
    more = problem.bias != 0.0
    nonzeros = None if problem.nonzeros is None else problem.nonzeros + more * problem.rows
    assert isinstance(problem.regularizer, NuMargin)  # what makes this solver of another one
    return replace(
        problem,
        loss=CORNER,
        columns=problem.columns + more,
        kind=OneClass(),
        regularizer=FreeOffset(problem.regularizer.nu),
        bias=OFFSET,
        nonzeros=nonzeros,
        weights=(),
    )
