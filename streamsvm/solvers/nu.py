"""nu-SVM for two classes, out of core. It is a one-class problem with a free offset, whose rows are multiplied by the sign
of their class.

    P(u, rho) = 1/2 ||u||^2 - nu S rho + sum_i s_i max(0, rho - y_i u.x_i),      S = sum_i s_i,     0 < nu <= 1
    D(a)      = -1/2 ||sum_i a_i y_i x_i||^2,      sum_i a_i = nu S,      0 <= a_i <= s_i

in the units of LIBSVM (Scholkopf et al., Neural Computation 12, 2000; Chang and Lin, Neural Computation 13, 2001). The
constant feature belongs to x and is regularized like any other, so that there is no constraint y'a = 0. With z_i = y_i
x_i it is the problem of ``solvers.one_class``, which the interior-point method solves in passes over the data.

w = u / rho is the optimum of 1/2 ||w||^2 + C sum_i s_i max(0, 1 - y_i w.x_i) for C = 1 / rho. This w, with margins of
1, is returned, as in LIBSVM. Given w, the best u = q w and rho = q have q = deficit / ||w||^2, with
deficit = nu S - sum_i s_i max(0, 1 - y_i w.x_i), and P = -deficit^2 / (2 ||w||^2). If deficit <= 0, nothing is better
than u = 0, rho = 0. The slopes at w give dual points as for one-class problems.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.operators import sign_rows
from streamsvm.losses import Hinge
from streamsvm.rows import Float64
from streamsvm.solvers.one_class import HINGE_AT_ZERO, OFFSET, FreeOffset, NuRegularizer, OffsetObjective, RowSums
from streamsvm.solvers.problem_kinds import OneClass
from streamsvm.type_aliases import JsonObject
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


UNIT_HINGE = Hinge(margin=1.0)
"""The loss of a row at w."""
MAX_IDLE_PASSES = 8
"""Number of passes after which the solver stops if nothing is better than w = 0, because classes overlap too much for
this nu."""


@saved_as("regularizer.nu_margin")
@dataclass(frozen=True, slots=True)
class NuMargin(NuRegularizer):
    """1/2 ||u||^2 - nu S rho as a function of the weights w = u / rho, at the best rho."""

    refusal: ClassVar[str] = "does not support --nu"
    instead: ClassVar[str] = "--C in place of --nu, or "

    def bounds(
        self, loss: Loss, sums: tuple[float, float, float], w: Float64, v: Float64, rows: RowSums | None = None
    ) -> Bounds:
        """Return the regularizer's value at the best multiple of w, and D. The losses have a margin of 1, so that
        their linear term in ``sums`` is the sum of the slopes.
        """
        plain = Regularizer.bounds(self, loss, sums, w, v)
        if rows is None:
            return plain
        losses, linear, _ = sums
        value = primal_of_weights(self.nu, rows.total, losses, w) - losses
        return Bounds(value, plain.scale, OffsetObjective(self.nu, rows).dual_of(linear, v, rows.v))

    def cancellation(self, w: Float64, total: float, unit: float) -> float:
        """Return 2 nu S rho, the size of the cancellation in P because of the term - nu S rho."""
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
    deficit, square = nu * total - losses, float(w @ w)
    return -0.5 * deficit * deficit / square if deficit > 0.0 and square > 0.0 else 0.0


@saved_as("nu_classes.state")
@dataclass(slots=True)
class NuState:
    """The problem, and the state of the equivalent one-class problem."""

    problem: Problem
    signed: Total[InteriorPointState]
    """The state of the one-class problem of signed rows."""


@dataclass(frozen=True, slots=True)
class NuClasses(Solver[NuState]):
    """The nu-SVM for two classes, by the interior-point method for one-class problems."""

    inner: InteriorPoint
    """The solver of the one-class problem of signed rows."""
    row_state: ClassVar[tuple[RowState, ...]] = ()
    """Empty, like that of ``inner``."""
    shuffled: ClassVar[bool] = False
    """False: no step is made while rows are read."""
    losses: ClassVar[LossRequirement] = LossRequirement(smooth=False, numeric=False)
    """The hinge."""
    has_current_weights: ClassVar[bool] = True
    stops_early: ClassVar[bool] = True

    def cost(self, problem: Problem, layout: Layout) -> Cost:
        """Return the bytes of ``inner`` and of a copy of a block's rows."""
        inner = self.inner.cost(_build_signed_problem(problem), layout)
        entries = 4 * (problem.columns + 1)
        if not layout.dense:
            entries = 24 * (-(-sum(layout.nonzeros or ()) // max(1, layout.rows)) + 1)
        return replace(inner, per_block_row=inner.per_block_row + entries)

    def shrink_memory(self, problem: Problem, user_set: Collection[str]) -> NuClasses | None:
        """Return the solver with half as many rows in memory."""
        inner = self.inner.shrink_memory(_build_signed_problem(problem), user_set)
        return None if inner is None else replace(self, inner=inner)

    def memory_settings(self) -> dict[str, int | None]:
        """Return the rows in memory."""
        return self.inner.memory_settings()

    def start(self, problem: Problem) -> NuState:
        """Return the state at w = 0."""
        return NuState(problem, self.inner.start(_build_signed_problem(problem)))

    def visit(self, state: NuState, block: Block) -> None:
        """Visit the block with its rows multiplied by the signs of their classes."""
        X = sign_rows(block.X, block.y, state.problem.columns, OFFSET)
        self.inner.visit(state.signed, replace(block, X=X, y=np.ones(len(block.y), np.float32), copies=None))

    def set_deadline(self, state: NuState, moment: float) -> None:
        self.inner.set_deadline(state.signed, moment)

    def finish(self, state: NuState) -> Certificate:
        """Return P and D of the inner problem, which are exact."""
        certificate, rho = self.inner.finish(state.signed), float(state.signed.point[-1])
        facts = {**certificate.facts, "rho": rho, "equivalent_C": 1.0 / rho if rho > 0.0 else None}
        gives_up = rho <= 0.0 and state.signed.passes >= MAX_IDLE_PASSES
        return replace(certificate, final=certificate.final or gives_up, facts=facts)

    def certify(self, state: NuState) -> None:
        """Do nothing: every pass is an exact evaluation."""

    def current_weights(self, state: NuState) -> Float64:
        """Return the weights u / rho."""
        return self.solution(state).w

    def solution(self, state: NuState) -> LinearSolution:
        """Return the weights u / rho; 0 if nothing is better than u = 0."""
        u, rho, columns = state.signed.point[:-1], float(state.signed.point[-1]), state.problem.columns
        w = np.zeros(columns + 1)
        w[: len(u)] = u / rho if rho > 0.0 else 0.0
        return LinearSolution(w, state.problem.bias)


def _build_signed_problem(problem: Problem) -> Problem:
    """Return the one-class problem of signed rows, whose columns include the constant feature."""
    constant_feature = problem.bias != 0.0
    nonzeros = None if problem.nonzeros is None else problem.nonzeros + constant_feature * problem.rows
    assert isinstance(problem.regularizer, NuMargin)  # ``NuMargin.adapt`` alone makes this solver
    return replace(
        problem,
        loss=HINGE_AT_ZERO,
        columns=problem.columns + constant_feature,
        kind=OneClass(),
        regularizer=FreeOffset(problem.regularizer.nu),
        bias=OFFSET,
        nonzeros=nonzeros,
        weights=(),
    )
