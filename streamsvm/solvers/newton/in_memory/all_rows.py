"""The problem itself, all its rows in memory: solved between two readings, which only confirm what was found.

    P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),     grad = w - v,     v = sum_i a_i y_i x_i,     a_i = -C_i l'(m_i)

A loss without bound on its dual variables (the squared hinge) is smooth: Newton's method with exact line searches, steps by
conjugate gradients (Keerthi and DeCoste, JMLR 2005). Where its steps stay short, and for all other losses, an interior
point (``solvers.newton.in_memory.interior_point``). P - D = 1/2 ||grad||^2 comes late on columns of large scale; once the energy of the
gradient is small, the exact step of the dense columns takes their part of it away. Columns are scaled by the preconditioner alone:
the regularizer stays ||w||^2 in the columns as they are given.

D is evaluated in float64 on all rows, at dual variables that are feasible: a lower bound whatever was rounded on the way to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamsvm.compute.passes.all_rows import Interior, value_pass
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.rows import Float64
from streamsvm.solvers.newton.in_memory.conjugate_gradients import solve
from streamsvm.solvers.newton.in_memory.interior_point import InteriorStep, Iterate, first_interior
from streamsvm.solvers.newton.in_memory.line_search import step_length
from streamsvm.solvers.newton.in_memory.memory_rows import MemoryRows
from streamsvm.solvers.newton.in_memory.outer_terms import OuterTerms
from streamsvm.solvers.newton.in_memory.preconditioner import ArrowPreconditioner
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.tags import saved_as
from streamsvm.types import Problem

MARGIN = 0.9
"""Of the tolerance: the gap in memory at which the next reading is to confirm it."""
FORCING = (1e-4, 0.1)
"""Steps end when the norm of the residual is this share of the gradient's, the less the nearer the optimum."""
TARGET, TIGHTEN = 0.02, 0.3
"""They end too at this share of the gap allowed; and where that did not do, at this share of the energy there was."""
SHORT_STEP, SHORT_STEPS, NEWTON_STEPS = 0.3, 2, 40
"""So many steps shorter than that, or so many in all, and an interior point goes on."""


@saved_as("newton.all_rows")
@dataclass(slots=True)
class AllRows:
    """What is known between two readings. ``w`` is where the iteration is, ``best`` the least primal it has met."""

    problem: Problem
    """What is solved: loss, C, the number of rows and columns, the weights to start from."""
    sample: Sample
    """All rows that count."""
    w: Float64
    """(columns + 1,) the weights the next iteration begins at."""
    best: Float64
    """(columns + 1,) the weights of least P so far: the next reading confirms them."""
    primal: float = np.inf
    """P of ``best``, summed over the rows in memory; inf before the first iteration."""
    dual: float = -np.inf
    """The largest D met; -inf before the first iteration."""
    interior: Interior | None = None
    """Dual variables and multipliers of the interior point; None as long as Newton's method on P is at work."""
    target: float = TARGET
    """The share of the gap allowed at which conjugate gradients may end; falls where that did not do."""
    steps: int = 0
    """Newton steps on P and iterations of the interior point so far."""
    short: int = 0
    """How many of the Newton steps were shorter than SHORT_STEP."""
    products: int = 0
    """Products of X' diag(h) X with a vector so far, which is what the work costs."""

    outer: OuterTerms | None = None
    """What of the objective is not a sum over rows; None: 1/2 ||w||^2."""
    wanted: float = 0.0
    """The gap that is asked for; 0: the problem's tolerance says it."""
    share: float = 0.0
    """This share of the decrease that was reached will do, where that is more."""
    first: float = np.inf
    """The objective where the iteration began."""

    @property
    def allowed(self) -> float:
        """The gap that is asked for."""
        if not self.wanted:
            return self.problem.tolerance * abs(self.primal)
        return max(self.wanted, self.share * (self.first - self.primal)) if self.share else self.wanted

    @property
    def size(self) -> float:
        """What gaps are relative to."""
        return self.allowed / self.problem.tolerance

    @property
    def solved(self) -> bool:
        """Whether the gap, with all rows in memory, is what is asked for."""
        return bool(self.primal < np.inf) and self.primal - self.dual <= MARGIN * self.allowed

    def facts(self) -> dict[str, Any]:
        """What there is to say of it in the events of a run."""
        method = "newton" if self.interior is None else "interior point"
        return {"rows": "all in memory", "method": method, "steps": self.steps, "products": self.products}

    def advance(self, deadline: float) -> None:
        """Iterate until the gap is small enough, or until it is time for a reading."""
        rows = MemoryRows(self.sample, self.problem, deadline, self.outer)
        preconditioner = ArrowPreconditioner(rows.X, self.problem.columns, rows.outer.diagonal)
        if self.interior is None and not np.isfinite(self.problem.loss.upper(1.0)):
            self._newton(rows, preconditioner)
        if not self.solved and not (rows.exhausted and self.primal < np.inf):
            self._inside(rows, preconditioner)
        self.products += rows.products

    def _seen(self, rows: MemoryRows, w: Float64, losses: float, dual: float) -> None:
        """An iterate was evaluated: the sum of its losses, and the value of a dual point."""
        primal = rows.outer.value(w) + losses
        if self.primal == np.inf:
            self.first = primal
        if primal < self.primal:
            self.primal, self.best = primal, w
        self.dual = max(self.dual, dual)

    # -- Newton's method on the objective ------------------------------------------------------------------------------

    def _newton(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        """Steps until the gap is small enough, it is time for a reading, or steps stay short."""
        f, slopes, h = rows.margins(self.w), np.empty(rows.count), np.empty(rows.count)
        cost, corrected = RowLoss(self.problem.C, self.problem.loss, self.problem.loss), False
        while self.short < SHORT_STEPS and self.steps < NEWTON_STEPS:
            losses, _, linear, quadratic = slopes_pass(rows.terms.y, rows.terms.s, f, cost, slopes, h)
            v = rows.weighted_sum(slopes)
            self._seen(rows, self.w, losses, rows.outer.dual(self.problem.loss, linear, quadratic, v))
            if self.solved or rows.exhausted:
                return
            if not corrected:
                preconditioner.update(h)
            gradient = rows.outer.gradient(self.w) - v
            energy = float(gradient @ preconditioner(gradient))
            corrected = not corrected and energy <= self.allowed
            if corrected:
                self.target = min(self.target, TIGHTEN * energy / self.allowed)
                step = preconditioner.block_step(-gradient)
                length, df = 1.0, rows.margins(step)
            else:
                step = self._newton_step(rows, preconditioner, h, gradient, energy)
                df = rows.margins(step)
                length = step_length(rows.terms, self.problem.loss, f, df, rows.outer.along(self.w, step))
                self.steps, self.short = self.steps + 1, self.short + (length < SHORT_STEP)
            self.w, f = self.w + length * step, f + length * df

    def _newton_step(
        self, rows: MemoryRows, preconditioner: ArrowPreconditioner, h: Float64, gradient: Float64, energy: float
    ) -> Float64:
        forcing = min(max(energy / self.size, FORCING[0]), FORCING[1])
        least = max(forcing * forcing * energy, self.target * self.allowed)

        def enough(found: float, _: Float64) -> bool:
            return found <= least or rows.exhausted

        return solve(lambda d: rows.hessian_product(h, d), preconditioner, -gradient, enough).x

    # -- the interior point --------------------------------------------------------------------------------------------

    def _inside(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        """Iterations until the gap is small enough, or it is time for a reading."""
        f, slopes = rows.margins(self.w), np.empty(rows.count)
        if self.interior is None:
            self.interior = first_interior(rows, f)
        while True:
            losses, linear, quadratic, products = value_pass(rows.terms, f, self.interior, slopes)
            v = rows.weighted_sum(slopes)
            self._seen(rows, self.w, losses, rows.outer.dual(self.problem.loss, linear, quadratic, v))
            if self.solved or rows.exhausted:
                return
            step = InteriorStep(rows, preconditioner, self.interior, Iterate(self.w, f, v, products))
            self.w, f = step.take(self.allowed)
            self.steps += 1
