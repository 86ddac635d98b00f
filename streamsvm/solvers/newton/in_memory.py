"""A linear problem whose rows are all in memory: which method solves it, and Newton's method among them.

The problem is solved between two readings, which only confirm what was found. Which method comes when
(``AllRows.advance``):

- A loss without bound on its dual variables (the squared hinge) is smooth: Newton's method (``NewtonSteps``), but of
  sparse rows of about one length, such as texts, dual coordinate descent first (``CoordinateDescent``), which is twice
  as fast there.
- Losses whose corner is rounded are smooth, too, and have Newton's method where a matrix of all columns is affordable:
  there are then many rows for each column, and a few thousand of them already say about where the optimum is.
- All other problems begin with dual coordinate descent; where that does not move, of sparse rows, the columns they
  share are held near a center that moves (``ProximalDescent``).
- Where Newton's steps stay short, and where descent is too slow, an interior point comes
  (``solvers.newton.interior_point_in_memory``).
- A loss whose conjugate is no parabola (the logistic one) bends everywhere and has no corner to get stuck at: Newton's
  method alone.

Columns are scaled by the preconditioner alone: the regularizer stays ||w||^2 in the columns as they are given. D is
evaluated in float64 on all rows, at dual variables that are feasible: a lower bound whatever was rounded on the way to
them.

**Newton's method** on the primal:

    P(w) = 1/2 ||w||^2 + sum_i C_i h(m_i),     grad = w - v,     v = sum_i a_i y_i x_i,     a_i = -C_i h'(m_i)

h is the loss, or the loss with its corner rounded over a width 2 mu (``losses.Huber``): its a_i are feasible for the
loss itself, and

    P - D = smoothing + 1/2 ||grad||^2,        smoothing = sum_i C_i (l(m_i) + conjugate terms of a_i) + a_i m_i.

The first part falls with mu, which halves whenever a step would gain little. The second comes late on columns of large
scale: once the energy grad' H^-1 grad is small, the exact step of the dense columns takes their part of it away. Of
sparse rows, columns outside the block of the preconditioner are set to their best after each step (``RareColumns``).
Line searches are exact.

References: Keerthi and DeCoste, JMLR 2005; Chapelle, Neural Computation 2007.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.interior_point import Interior, value_pass
from streamsvm.compute.passes.newton import slopes_pass, trial_pass
from streamsvm.compute.passes.rows_in_memory import line_pass
from streamsvm.losses import round_corners, threshold
from streamsvm.rows import CSR, Float64
from streamsvm.solvers.line_search import find_step_length
from streamsvm.solvers.newton.conjugate_gradients import conjugate_gradients
from streamsvm.solvers.newton.dual_and_proximal_descent import (
    CoordinateDescent,
    DescentState,
    ProximalDescent,
    ProximalState,
    lengths_differ,
)
from streamsvm.solvers.newton.preconditioner import ArrowPreconditioner
from streamsvm.solvers.newton.priority_sampling import WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT, Sample
from streamsvm.solvers.newton.row_products import NO_DUAL_POINT, DualValue, MemoryRows, OuterTerms, find_rare_columns
from streamsvm.types import Loss, Problem
from streamsvm.types.problem import has_box

FORCING = (1e-4, 0.1)
"""Bounds of the share of the gradient's norm at which conjugate gradients end; it is less the nearer the optimum."""
TARGET, TIGHTEN = 0.02, 0.3
"""They end too at this share of the gap allowed; where that did not do, at the second share of the energy there was."""
SHORT_STEP, SHORT_STEPS, STEPS = 0.3, 2, 40
"""Newton steps are given up after two steps shorter than 0.3 (in a row where a corner narrows), or 40 in all."""
WHOLE_SHORT_STEPS, WHOLE_STEPS = 40, 200
"""The same where the matrix is of all columns, so that a step costs hardly more than an evaluation, or where the
conjugate is no parabola, so that there is no interior point to go on with."""
RARE_LENGTHS = (1.0, 0.4, 0.16)
"""Lengths of a step tried where rare columns are set to their best after it; then the exact one without them."""
NARROWING, SMOOTHING_SHARE = 0.5, 0.3
"""mu falls to this share of itself at most, until smoothing costs no more than the second share of the gap allowed."""
CRUDE = 1e-4
"""mu is narrowed where the energy is this share of the objective."""
MARGIN = 0.9
"""The problem counts as solved in memory at this share of the gap allowed; the next reading confirms it."""
INTERIOR_POINT_STEPS = 200
"""Iterations of the interior point between two readings at most. Where it gets anywhere it needs 20 to 60 in all."""
WARMUP_TOLERANCE = 1e-2
"""The relative gap to which the warm-up subsample is solved: it tells the optimum no better."""
WARMUP_MU = 0.1
"""The least mu after the warm-up, in units of the corner: the subsample tells no better which rows are in it."""


class Evaluated(NamedTuple):
    """An iterate, evaluated."""

    value: float
    """The objective with the rounded loss."""
    smoothing: float
    """What rounding takes from the bound."""
    gradient: Float64
    """Of the objective with the rounded loss, (p,)."""


def has_interior_point(loss: Loss) -> bool:
    """Return whether there is an interior point to go on with: the conjugate is a parabola or line, of a sign."""
    return loss.quadratic() and not loss.numeric()


class NewtonSteps:
    """Newton steps from the iterate of ``known`` on, until it is solved, it is time for a reading, or steps stay
    short.
    """

    def __init__(self, known: AllRows, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        self._known, self._rows, self._preconditioner = known, rows, preconditioner
        self._slopes, self._h = np.empty(rows.count), np.empty(rows.count)
        self._rare = find_rare_columns(rows, preconditioner) if known.outer is None else None

    @property
    def has_given_up(self) -> bool:
        """Whether there have been too many steps, or too many short ones."""
        patient = self._preconditioner.whole or not has_interior_point(self._known.problem.loss)
        short, steps = (WHOLE_SHORT_STEPS, WHOLE_STEPS) if patient else (SHORT_STEPS, STEPS)
        return self._known.short >= short or self._known.steps >= steps

    def run(self) -> None:
        """Make steps. Changes ``known``."""
        known, rows, arrow, near, closing = self._known, self._rows, self._preconditioner, False, False
        f = rows.margins(known.w)
        while not self.has_given_up:
            here = self._evaluate(f)
            if known.solved or rows.is_exhausted:
                return
            if not closing:
                arrow.update(self._h, estimated=not near)
            energy = float(here.gradient @ arrow(here.gradient))
            if self._narrow_corner(here, energy):
                closing = False
                continue
            near = energy <= known.allowed
            closing = near and not closing and arrow.exact and not arrow.whole
            if near:
                known.target = min(known.target, TIGHTEN * energy / known.allowed)
            f = self._close_dense_columns(f, here) if closing else self._take_step(f, here, energy)

    def _close_dense_columns(self, f: Float64, here: Evaluated) -> Float64:
        """Make the exact step of the dense columns alone, and return the margins X w."""
        step = self._preconditioner.block_step(-here.gradient)
        self._known.w = self._known.w + step
        return self._rows.move_margins(f, self._rows.margins(step), self._known.w, self._known.allowed)

    def _take_step(self, f: Float64, here: Evaluated, energy: float) -> Float64:
        """Make a step for all columns, and return the margins X w."""
        known = self._known
        step = self._direction(here, energy)
        df = self._rows.margins(step)
        moved = self._step_with_rare_columns(f, df, step, here.value)
        if moved is None:
            length = self._length(f, df, step)
            w = known.w + length * step
            moved = length, w, self._rows.move_margins(f, length * df, w, known.allowed)
        length, known.w, f = moved
        known.steps += 1
        if length < SHORT_STEP:
            known.short += 1
        elif known.mu:
            known.short = 0
        return f

    def _step_with_rare_columns(
        self, f: Float64, df: Float64, step: Float64, value: float
    ) -> tuple[float, Float64, Float64] | None:
        """Return length, w and X w of a step after which rare columns are set to their best; None where that is no
        better than here.
        """
        known, rows, rare = self._known, self._rows, self._rare
        if rare is None:
            return None
        smooth = round_corners(known.problem.loss, known.mu)
        for length in RARE_LENGTHS:
            w, g = known.w + length * step, f + length * df
            rare.settle(w, g, smooth, known.allowed)
            losses = trial_pass(rows.terms.y, rows.terms.s, g, g, rows.terms.C, smooth, np.zeros(1))
            if rows.outer.value(w) + float(losses[0]) < value:
                return length, w, g
        return None

    def _evaluate(self, f: Float64) -> Evaluated:
        """Evaluate the iterate, whose margins are y f, and fill in slopes and second derivatives."""
        known, rows, loss = self._known, self._rows, self._known.problem.loss
        cost = RowLoss(known.problem.C, loss, round_corners(loss, known.mu))
        losses, smoothed, linear, quadratic = slopes_pass(rows.terms.y, rows.terms.s, f, cost, self._slopes, self._h)
        v = rows.weighted_sum(self._slopes)
        known.record(rows, known.w, losses, rows.outer.dual(loss, linear, quadratic, v), self._slopes)
        smoothing = losses - linear + quadratic + float(self._slopes @ f)
        return Evaluated(rows.outer.value(known.w) + smoothed, smoothing, rows.outer.gradient(known.w) - v)

    def _narrow_corner(self, here: Evaluated, energy: float) -> bool:
        """Return whether mu was made smaller, so that the iterate has to be evaluated again."""
        known, goal = self._known, SMOOTHING_SHARE * self._known.allowed
        if not known.mu or energy > CRUDE * abs(here.value) or here.smoothing <= goal:
            return False
        known.mu *= max(NARROWING, float(np.sqrt(0.95 * goal / here.smoothing)))
        return True

    def _direction(self, here: Evaluated, energy: float) -> Float64:
        """Return about -H^-1 grad."""
        known, rows = self._known, self._rows
        forcing = min(max(energy / known.size, FORCING[0]), FORCING[1])
        least = max(forcing * forcing * energy, known.target * known.allowed)

        def enough(found: float, _: Float64) -> bool:
            return found <= least or rows.is_late

        solved = conjugate_gradients(
            lambda d: rows.hessian_product(self._h, d), self._preconditioner, -here.gradient, enough
        )
        return solved.x + self._preconditioner.block_step(solved.residual) if self._preconditioner.whole else solved.x

    def _length(self, f: Float64, df: Float64, step: Float64) -> float:
        known, rows = self._known, self._rows
        smooth = round_corners(known.problem.loss, known.mu)
        row_slopes = partial(line_pass, rows.terms.y, rows.terms.s, f, df, rows.terms.C, smooth)
        return find_step_length(row_slopes, rows.outer.along(known.w, step))


@saved_as("newton.all_rows")
@dataclass(slots=True)
class AllRows:
    """The problem with all its rows in memory, and what is known of it between two readings.

    ``w`` is where the iteration is, ``best`` the point of least primal it has met.
    """

    problem: Problem
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
    """The number of Newton steps shorter than SHORT_STEP."""
    products: int = 0
    """Products of X' diag(h) X with a vector so far, which the work consists of."""
    outer: OuterTerms | None = None
    """The part of the objective that is not a sum over rows; None: 1/2 ||w||^2."""
    wanted: float = 0.0
    """The gap that is asked for; 0: the problem's tolerance says it."""
    share: float = 0.0
    """This share of the decrease that was reached will do, where that is more."""
    first: float = np.inf
    """The objective where the iteration began."""
    mu: float = 0.0
    """Half the width over which a corner is rounded; 0: it is not."""
    descent: DescentState | None = None
    """The state of dual coordinate descent, also when it was left; None before its first round."""
    slopes: Float64 | None = None
    """(n,) a_i y_i of the largest D met; None before."""
    advances: int = 0
    """The number of calls of ``advance``."""

    @property
    def allowed(self) -> float:
        """The gap that is asked for."""
        if not self.wanted:
            return self.problem.tolerance * abs(self.primal)
        return max(self.wanted, self.share * (self.first - self.primal)) if self.share else self.wanted

    @property
    def size(self) -> float:
        """The value that gaps are relative to."""
        return self.allowed / self.problem.tolerance if self.problem.tolerance else abs(self.primal)

    @property
    def solved(self) -> bool:
        """Whether the gap, with all rows in memory, is what is asked for."""
        return bool(self.primal < np.inf) and self.primal - self.dual <= MARGIN * self.allowed

    @property
    def progress_measure(self) -> float:
        """A number that falls as work makes progress: the gap; in proximal descent, which proves nothing for long, its
        least lag.
        """
        if isinstance(self.descent, ProximalState) and self.descent.gaps and self.interior is None:
            return min(self.descent.gaps) * abs(self.primal)
        return self.primal - self.dual

    @property
    def work(self) -> tuple[int, int, int]:
        """Steps, products and rounds of descent so far; unchanged by an ``advance`` that made none."""
        return self.steps, self.products, 0 if self.descent is None else len(self.descent.gaps)

    def facts(self) -> dict[str, Any]:
        """Return the facts for the events of a run."""
        held = "proximal " if isinstance(self.descent, ProximalState) else ""
        method = "newton" if self.descent is None or self.steps else f"{held}dual coordinate descent"
        method = method if self.interior is None else "interior point"
        return {"rows": "all in memory", "method": method, "steps": self.steps, "products": self.products}

    def advance(self, deadline: float) -> None:
        """Iterate until the gap is small enough, or until so much was done as a step between two readings may take."""
        self.advances += 1
        rows = MemoryRows(self.sample, self.problem, deadline, self.outer)
        preconditioner = ArrowPreconditioner(rows.X, self.problem.columns, rows.outer.diagonal)
        if self.interior is None and self._prefers_dual_cd(rows, preconditioner):
            CoordinateDescent(self, rows).run()
            self.w = self.best
        if not self._is_step_over(rows):
            self._newton_or_descent(rows, preconditioner, deadline)
        if has_interior_point(self.problem.loss) and not self._is_step_over(rows):
            self._interior_point_steps(rows, preconditioner)
        self.products += rows.products

    def advance_until_solved(self, deadline: float, most: int) -> None:
        """Advance until the gap is small enough, ``most`` times at most."""
        for _ in range(most):
            self.advance(deadline)
            if self.solved:
                break

    def _is_step_over(self, rows: MemoryRows) -> bool:
        """Return whether a reading comes next, and there is something for it to confirm."""
        return self.solved or (rows.is_exhausted and self.primal < np.inf)

    def _newton_or_descent(self, rows: MemoryRows, preconditioner: ArrowPreconditioner, deadline: float) -> None:
        """Make Newton steps, or rounds of coordinate descent, which come before an interior point."""
        loss = self.problem.loss
        rounded, open_ended = loss.smooth() or self.mu > 0.0, not (has_box(loss) and has_interior_point(loss))
        if self.interior is None and rounded and (preconditioner.whole or open_ended):
            if not self.steps:
                self._warm_up(rows, deadline)
            NewtonSteps(self, rows, preconditioner).run()
        elif self.interior is None and self.outer is None:
            self._dual_descent(rows, preconditioner)

    def _prefers_dual_cd(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> bool:
        """Return whether a smooth loss has dual coordinate descent first: on sparse rows of similar length, until it is
        left.
        """
        smooth = has_interior_point(self.problem.loss) and not has_box(self.problem.loss)
        if not smooth or self.outer is not None or preconditioner.whole:
            return False
        if self.descent is not None:
            return not self.descent.left
        return isinstance(rows.X, CSR) and not lengths_differ(rows.X, self.problem.columns)

    def _dual_descent(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        """Make rounds of coordinate descent; where that is left, or rows differ too much in length, of proximal
        descent.
        """
        X = rows.X if isinstance(rows.X, CSR) and not preconditioner.whole else None
        held = isinstance(self.descent, ProximalState)
        if not held and not (self.descent is None and X is not None and lengths_differ(X, self.problem.columns)):
            CoordinateDescent(self, rows).run()
        left = self.descent is not None and self.descent.left
        if X is not None and (self.descent is None or left != held) and not (self.solved or rows.is_exhausted):
            ProximalDescent(self, rows, preconditioner, X).run()

    def _warm_up(self, rows: MemoryRows, deadline: float) -> None:
        """Go to about the optimum of a subsample of the rows, if they are many."""
        problem = self.problem
        step = rows.count // max(WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT * (problem.columns + 1))
        if step > 1 and not self.w.any() and self.outer is None:
            few = self.sample.every(step)
            coarse = replace(problem, C=step * problem.C, tolerance=max(WARMUP_TOLERANCE, problem.tolerance))
            part = AllRows(coarse, few, self.w, self.w, mu=self.mu)
            in_memory = MemoryRows(few, coarse, deadline)
            ones = in_memory.outer.diagonal
            NewtonSteps(part, in_memory, ArrowPreconditioner(few.X, problem.columns, ones)).run()
            self.w = part.best
            if self.mu:
                self.mu = max(part.mu, WARMUP_MU * threshold(problem.loss))

    def dual_values(self, start: int, count: int) -> Float64 | None:
        """Return a_i (count,) of the largest D met, of the rows with global numbers from ``start``; those not here have
        0.
        """
        if self.slopes is None:
            return None
        low, high = np.searchsorted(self.sample.row, (start, start + count))
        found = np.zeros(count)
        found[self.sample.row[low:high] - start] = self.slopes[low:high] * self.problem.kind.signs(
            self.sample.y[low:high]
        )
        return found

    def without_rows(self) -> AllRows:
        """Return the signs, numbers and slopes of the rows, for ``dual_values``, without the rows."""
        none = np.empty(0)
        sample = self.sample._replace(X=None, s=none, probability=none, f=none)
        return replace(self, sample=sample, w=none, best=none, interior=None, descent=None, outer=None)

    def record(self, rows: MemoryRows, w: Float64, losses: float, dual: DualValue, slopes: Float64 | None) -> None:
        """Record an iterate: the sum of its losses, and the value of the dual point with a_i y_i = ``slopes`` (n,),
        scaled.

        ``slopes`` None: there is no dual point, and its value is -inf.
        """
        primal = rows.outer.value(w) + losses
        if self.primal == np.inf:
            self.first = primal
        if primal < self.primal:
            self.primal, self.best = primal, w
        if dual.value > self.dual:
            self.dual, self.slopes = dual.value, None if slopes is None else dual.scale * slopes

    def confirm(self, primal: float) -> None:
        """Correct P of ``best`` by what a reading has found: where that is more, the problem is not as solved as it
        seemed.
        """
        self.primal = max(self.primal, primal)

    def _evaluate_primal(self, rows: MemoryRows) -> None:
        """Evaluate P at the iterate, before it is left for a point that is farther from the optimum."""
        none = np.zeros(rows.count)
        losses, *_ = value_pass(rows.terms, rows.values(self.w), Interior(none, none, none), np.empty(rows.count))
        self.record(rows, self.w, losses, NO_DUAL_POINT, None)

    def _interior_point_steps(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        """Iterate until the gap is small enough, or it is time for a reading."""
        from streamsvm.solvers.newton.interior_point_in_memory import Centering, InteriorStep, Iterate

        at = self.interior
        if at is None:
            self._evaluate_primal(rows)
            self.w, at, centered = Centering(rows, preconditioner).run(self.w)
            self.interior = at if centered else None
        f, slopes = rows.values(self.w), np.empty(rows.count)
        for _ in range(INTERIOR_POINT_STEPS):  # numbers that float64 cannot hold together keep it from the end for ever
            losses, linear, quadratic, products = value_pass(rows.terms, f, at, slopes)
            v, linear = rows.weighted_sum(slopes), linear + rows.offset_gain(slopes)
            self.record(rows, self.w, losses, rows.outer.dual(self.problem.loss, linear, quadratic, v), slopes)
            if self.solved or rows.is_exhausted:
                return
            step = InteriorStep(rows, preconditioner, at, Iterate(self.w, f, v, products))
            self.w, f = step.take(self.allowed)
            self.steps += 1
