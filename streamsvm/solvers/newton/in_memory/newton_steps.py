"""Newton's method on a linear problem whose rows are in memory; the corner of a hinge is rounded, and narrows on the way.

    P(w) = 1/2 ||w||^2 + sum_i C_i h(m_i),     grad = w - v,     v = sum_i a_i y_i x_i,     a_i = -C_i h'(m_i)

h is the loss, or the loss with its corner rounded over a width 2 mu (``losses.Huber``): its a_i are feasible for the loss itself, and

    P - D = smoothing + 1/2 ||grad||^2,        smoothing = sum_i C_i (l(m_i) + conjugate terms of a_i) + a_i m_i.

The first part falls with mu, which halves whenever a step would gain little. The second comes late on columns of large scale: once the
energy grad' H^-1 grad is small, the exact step of the dense columns takes their part of it away. Of sparse rows, columns outside the
block of the preconditioner are set to their best after each step (``rare_columns``). Line searches are exact.

References: Keerthi and DeCoste, JMLR 2005; Chapelle, Neural Computation 2007.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.in_memory.all_rows import line_pass
from streamsvm.compute.passes.newton import slopes_pass, trial_pass
from streamsvm.losses import round_corners
from streamsvm.rows import Float64
from streamsvm.solvers.newton.in_memory.line_search import step_length
from streamsvm.solvers.newton.in_memory.linear_systems.conjugate_gradients import solve
from streamsvm.solvers.newton.in_memory.linear_systems.preconditioner import ArrowPreconditioner
from streamsvm.solvers.newton.in_memory.memory_rows import MemoryRows
from streamsvm.solvers.newton.in_memory.rare_columns import rare_columns
from streamsvm.types import Loss

if TYPE_CHECKING:
    from streamsvm.solvers.newton.in_memory.all_rows import AllRows

FORCING = (1e-4, 0.1)
"""Steps end when the norm of the residual is this share of the gradient's, the less the nearer the optimum."""
TARGET, TIGHTEN = 0.02, 0.3
"""They end too at this share of the gap allowed; and where that did not do, at this share of the energy there was."""
SHORT_STEP, SHORT_STEPS, STEPS = 0.3, 2, 40
"""So many steps shorter than that, one after the other where a corner narrows, or so many in all, lead nowhere ..."""
WHOLE_SHORT_STEPS, WHOLE_STEPS = 40, 200
"""... or so many where the matrix is of all columns: a step costs hardly more than an evaluation, an interior point's much more; and
where the conjugate is no parabola, for which there is no interior point."""
SETTLED_LENGTHS = (1.0, 0.4, 0.16)
"""Lengths of a step tried where rare columns are set to their best after it; then the exact one without them."""
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


class Moved(NamedTuple):
    """Where a step has led."""

    length: float
    """How much of the step was taken."""
    w: Float64
    """The weights (p,)."""
    f: Float64
    """X w (n,)."""


def has_interior_point(loss: Loss) -> bool:
    """Whether there is an interior point to go on with: of parabolas and lines in dual variables of one sign."""
    return loss.quadratic() and not loss.numeric()


class NewtonSteps:
    """From the iterate of ``known`` on, until it is solved, it is time for a reading, or steps stay short."""

    def __init__(self, known: AllRows, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        self._known, self._rows, self._preconditioner = known, rows, preconditioner
        self._slopes, self._h = np.empty(rows.count), np.empty(rows.count)
        self._rare = rare_columns(rows, preconditioner) if known.outer is None else None

    @property
    def lost(self) -> bool:
        """Whether there have been too many steps, or short ones."""
        patient = self._preconditioner.whole or not has_interior_point(self._known.problem.loss)
        short, steps = (WHOLE_SHORT_STEPS, WHOLE_STEPS) if patient else (SHORT_STEPS, STEPS)
        return self._known.short >= short or self._known.steps >= steps

    def run(self) -> None:
        """Changes ``known``."""
        known, rows, arrow, near, closing = self._known, self._rows, self._preconditioner, False, False
        f = rows.margins(known.w)
        while not self.lost:
            here = self._evaluated(f)
            if known.solved or rows.exhausted:
                return
            if not closing:
                arrow.update(self._h, estimated=not near)
            energy = float(here.gradient @ arrow(here.gradient))
            if self._narrowed(here, energy):
                closing = False
                continue
            near = energy <= known.allowed
            closing = near and not closing and arrow.exact and not arrow.whole
            if near:
                known.target = min(known.target, TIGHTEN * energy / known.allowed)
            f = self._closed(f, here) if closing else self._moved(f, here, energy)

    def _closed(self, f: Float64, here: Here) -> Float64:
        """The margins X w after the exact step of the dense columns alone."""
        step = self._preconditioner.block_step(-here.gradient)
        self._known.w = self._known.w + step
        return self._rows.moved(f, self._rows.margins(step), self._known.w, self._known.allowed)

    def _moved(self, f: Float64, here: Here, energy: float) -> Float64:
        """The margins X w after a step for all columns."""
        known = self._known
        step = self._step(here, energy)
        df = self._rows.margins(step)
        moved = self._settled(f, df, step, here.value)
        if moved is None:
            length = self._length(f, df, step)
            w = known.w + length * step
            moved = Moved(length, w, self._rows.moved(f, length * df, w, known.allowed))
        known.w = moved.w
        known.steps += 1
        if moved.length < SHORT_STEP:
            known.short += 1
        elif known.mu:
            known.short = 0
        return moved.f

    def _settled(self, f: Float64, df: Float64, step: Float64, value: float) -> Moved | None:
        """Where a step ends after which the rare columns are set to their best; None where that is no better than here."""
        known, rows, rare = self._known, self._rows, self._rare
        if rare is None:
            return None
        smooth = round_corners(known.problem.loss, known.mu)
        for length in SETTLED_LENGTHS:
            w, g = known.w + length * step, f + length * df
            rare.settle(w, g, smooth, known.allowed)
            losses = trial_pass(rows.terms.y, rows.terms.s, g, g, rows.terms.C, smooth, np.zeros(1))
            if rows.outer.value(w) + float(losses[0]) < value:
                return Moved(length, w, g)
        return None

    def _evaluated(self, f: Float64) -> Here:
        """What there is at the iterate, whose margins are y f; slopes and second derivatives are filled in."""
        known, rows, loss = self._known, self._rows, self._known.problem.loss
        cost = RowLoss(known.problem.C, loss, round_corners(loss, known.mu))
        losses, smoothed, linear, quadratic = slopes_pass(rows.terms.y, rows.terms.s, f, cost, self._slopes, self._h)
        v = rows.weighted_sum(self._slopes)
        known.seen(rows, known.w, losses, rows.outer.dual(loss, linear, quadratic, v), self._slopes)
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
        smooth, (along, square) = round_corners(known.problem.loss, known.mu), rows.outer.along(known.w, step)
        y, s, C = rows.terms.y, rows.terms.s, rows.terms.C

        def slopes(t: float) -> tuple[float, float]:
            slope, curvature = line_pass(y, s, f, df, C, smooth, t)
            return along + t * square + slope, square + curvature

        return step_length(slopes)
