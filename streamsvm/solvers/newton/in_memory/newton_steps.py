"""Newton's method on a linear problem whose rows are in memory; the corner of a hinge is rounded, and narrows on the way.

    P(w) = 1/2 ||w||^2 + sum_i C_i h(m_i),     grad = w - v,     v = sum_i a_i y_i x_i,     a_i = -C_i h'(m_i)

h is the loss, or the loss with its corner rounded over a width 2 mu (``losses.Huber``): its a_i are feasible for the loss itself, and

    P - D = smoothing + 1/2 ||grad||^2,        smoothing = sum_i C_i (l(m_i) + conjugate terms of a_i) + a_i m_i.

The first part falls with mu, which halves whenever a step would gain little. The second comes late on columns of large scale: once the
energy grad' H^-1 grad is small, the exact step of the dense columns takes their part of it away. Line searches are exact.

References: Keerthi and DeCoste, JMLR 2005; Chapelle, Neural Computation 2007.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.compute.passes.all_rows import line_pass
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.losses import rounded
from streamsvm.rows import Float64
from streamsvm.solvers.newton.in_memory.conjugate_gradients import solve
from streamsvm.solvers.newton.in_memory.line_search import step_length
from streamsvm.solvers.newton.in_memory.memory_rows import MemoryRows
from streamsvm.solvers.newton.in_memory.preconditioner import ArrowPreconditioner

if TYPE_CHECKING:
    from streamsvm.solvers.newton.in_memory.all_rows import AllRows

FORCING = (1e-4, 0.1)
"""Steps end when the norm of the residual is this share of the gradient's, the less the nearer the optimum."""
TARGET, TIGHTEN = 0.02, 0.3
"""They end too at this share of the gap allowed; and where that did not do, at this share of the energy there was."""
SHORT_STEP, SHORT_STEPS, STEPS = 0.3, 2, 40
"""So many steps shorter than that, one after the other where a corner narrows, or so many in all, lead nowhere ..."""
WHOLE_SHORT_STEPS, WHOLE_STEPS = 40, 200
"""... or so many where the matrix is of all columns: a step costs hardly more than an evaluation, an interior point's much more."""
NARROWING, SMOOTHING_SHARE = 0.5, 0.3
"""mu falls to this share of itself, until smoothing costs no more than this share of the gap allowed ..."""
CRUDE = 1e-4
"""... wherever the energy is this share of the objective."""


class Here(NamedTuple):
    """An iterate, evaluated."""

    value: float
    """The objective with the rounded loss."""
    smoothing: float
    """What rounding takes from the bound."""
    gradient: Float64
    """Of the objective with the rounded loss, (p,)."""


class NewtonSteps:
    """From the iterate of ``known`` on, until it is solved, it is time for a reading, or steps stay short."""

    def __init__(self, known: AllRows, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        self._known, self._rows, self._preconditioner = known, rows, preconditioner
        self._slopes, self._h = np.empty(rows.count), np.empty(rows.count)

    @property
    def lost(self) -> bool:
        """Whether there have been too many steps, or short ones."""
        short, steps = (WHOLE_SHORT_STEPS, WHOLE_STEPS) if self._preconditioner.whole else (SHORT_STEPS, STEPS)
        return self._known.short >= short or self._known.steps >= steps

    def run(self) -> None:
        """Changes ``known``."""
        known, rows, arrow, near, corrected = self._known, self._rows, self._preconditioner, False, False
        f = rows.margins(known.w)
        while not self.lost:
            here = self._evaluated(f)
            if known.solved or rows.exhausted:
                return
            if not corrected:
                arrow.update(self._h, estimated=not near)
            energy = float(here.gradient @ arrow(here.gradient))
            if self._narrowed(here, energy):
                corrected = False
                continue
            near = energy <= known.allowed
            corrected = near and not corrected and arrow.exact and not arrow.whole
            if near:
                known.target = min(known.target, TIGHTEN * energy / known.allowed)
            if corrected:
                step, length = arrow.block_step(-here.gradient), 1.0
                df = rows.margins(step)
            else:
                step = self._step(here, energy)
                df = rows.margins(step)
                length = self._length(f, df, step)
            known.w, f = known.w + length * step, f + length * df

    def _evaluated(self, f: Float64) -> Here:
        """What there is at the iterate, whose margins are y f; slopes and second derivatives are filled in."""
        known, rows, loss = self._known, self._rows, self._known.problem.loss
        cost = RowLoss(known.problem.C, loss, rounded(loss, known.mu))
        losses, smoothed, linear, quadratic = slopes_pass(rows.terms.y, rows.terms.s, f, cost, self._slopes, self._h)
        v = rows.weighted_sum(self._slopes)
        known.seen(rows, known.w, losses, rows.outer.dual(loss, linear, quadratic, v))
        smoothing = losses - linear + quadratic + float(self._slopes @ f)
        return Here(rows.outer.value(known.w) + smoothed, smoothing, rows.outer.gradient(known.w) - v)

    def _narrowed(self, here: Here, energy: float) -> bool:
        """Whether mu was made smaller, and the iterate is to be looked at again."""
        known, goal = self._known, SMOOTHING_SHARE * self._known.allowed
        if not known.mu or energy > CRUDE * abs(here.value) or here.smoothing <= goal:
            return False
        known.mu *= max(NARROWING, float(np.sqrt(0.95 * goal / here.smoothing)))
        return True

    def _step(self, here: Here, energy: float) -> Float64:
        """About -H^-1 grad."""
        known, rows = self._known, self._rows
        forcing = min(max(energy / known.size, FORCING[0]), FORCING[1])
        least = max(forcing * forcing * energy, known.target * known.allowed)

        def enough(found: float, _: Float64) -> bool:
            return found <= least or rows.late

        solved = solve(lambda d: rows.hessian_product(self._h, d), self._preconditioner, -here.gradient, enough)
        return solved.x + self._preconditioner.block_step(solved.residual) if self._preconditioner.whole else solved.x

    def _length(self, f: Float64, df: Float64, step: Float64) -> float:
        known, rows = self._known, self._rows
        smooth, (along, square) = rounded(known.problem.loss, known.mu), rows.outer.along(known.w, step)
        y, s, C = rows.terms.y, rows.terms.s, rows.terms.C

        def slopes(t: float) -> tuple[float, float]:
            slope, curvature = line_pass(y, s, f, df, C, smooth, t)
            return along + t * square + slope, square + curvature

        length = step_length(slopes)
        known.steps += 1
        if length < SHORT_STEP:
            known.short += 1
        elif known.mu:
            known.short = 0
        return length
