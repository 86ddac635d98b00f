"""A linear problem whose rows are all in memory: the choice of the method that solves it, and Newton's method.

The problem is solved between two passes over the data, which only confirm the solution. ``AllRows.advance`` chooses the
method:

- Losses without an upper bound on their dual variables (the squared hinge) are smooth: Newton's method
  (``NewtonSteps``). For sparse rows of similar length, such as texts, dual coordinate descent (``CoordinateDescent``)
  comes first, because it is twice as fast there, unless all columns that occur fit into Newton's matrix.
- Losses whose kink is smoothed: Newton's method, if a matrix of all columns is affordable and there are not many more
  columns than rows. If there are many rows for each column, a subsample of a few thousand rows gives a good starting
  point.
- All other problems begin with dual coordinate descent. If it makes no progress and rows are sparse, proximal descent
  follows, which ties the columns that many rows share to a moving center (``ProximalDescent``).
- If Newton's steps stay short, or descent is too slow, an interior-point method follows
  (``solvers.newton.interior_point_in_memory``).
- Losses whose conjugate is not quadratic (the logistic loss) have curvature everywhere and no kink: Newton's method
  alone.
- Rows of curves (``compute.blocks.curves``) are used only through products: Newton's method, and an interior-point
  method for the hinge.

Only the preconditioner scales columns: the regularizer stays ||w||^2 in the given columns. D is evaluated in float64 on
all rows, at feasible dual variables. It is a lower bound whatever rounding errors led to these dual variables.

**Newton's method** on the primal:

    P(w) = 1/2 ||w||^2 + sum_i C_i h(m_i),     grad = w - v,     v = sum_i a_i y_i x_i,     a_i = -C_i h'(m_i)

h is the loss, or the loss with its kink smoothed over a width 2 mu (``losses.Huber``). Its a_i are feasible for the
loss itself, and

    P - D = smoothing + 1/2 ||grad||^2,        smoothing = sum_i C_i (l(m_i) + conjugate terms of a_i) + a_i m_i.

The smoothing term shrinks with mu, which is halved whenever a step would gain little. The gradient term stays large for
long if columns have a large scale: once the energy grad' H^-1 grad is small, an exact step in the dense columns removes
their part of it. If rows are sparse, the columns outside the preconditioner's block are minimized over after each step
(``RareColumns``). Line searches are exact.

References: Keerthi and DeCoste, JMLR 2005; Chapelle, Neural Computation 2007.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.curves import Curved
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
from streamsvm.solvers.newton.preconditioner import MAX_COLUMNS_PER_ROW, ArrowPreconditioner, make_preconditioner
from streamsvm.solvers.newton.priority_sampling import WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT, Sample
from streamsvm.solvers.newton.row_products import NO_DUAL_POINT, DualValue, MemoryRows, OuterTerms, find_rare_columns
from streamsvm.types import Loss, Problem
from streamsvm.types.problem import has_box

FORCING_BOUNDS = (1e-4, 0.1)
"""Bounds of the forcing term: conjugate gradients stop at this fraction of the gradient's norm. It is smaller near the
optimum."""
CHEAP_COLUMNS = 256
"""A matrix of at most this many columns is cheap, however few rows there are."""
CG_TARGET, CG_TIGHTENING = 0.02, 0.3
"""Conjugate gradients also stop at an energy of the first fraction of the allowed gap. If that was not enough, the
fraction falls to the second number times the energy."""
SHORT_STEP, MAX_SHORT_STEPS, MAX_STEPS = 0.3, 2, 40
"""Newton's method stops after two steps with a length below 0.3 (consecutive ones if mu shrinks), or after 40 steps."""
PATIENT_SHORT_STEPS, PATIENT_STEPS = 40, 200
"""These limits if the matrix has all columns, so that a step costs little more than an evaluation, or if the conjugate
is not quadratic, so that no interior-point method can follow. Curves have these limits, too."""
RARE_LENGTHS = (1.0, 0.4, 0.16)
"""Step lengths that are tried with subsequent minimization over the rare columns. If all fail, an exact line search
without it follows."""
MU_FACTOR, SMOOTHING_SHARE = 0.5, 0.3
"""mu is multiplied by no less than the first factor at a time, until the smoothing term is at most the second fraction
of the allowed gap."""
CRUDE_ENERGY = 1e-4
"""mu shrinks when the energy is below this fraction of the objective."""
SOLVED_SHARE = 0.9
"""The problem counts as solved in memory at this fraction of the allowed gap. The next pass confirms it."""
MAX_INTERIOR_POINT_STEPS = 200
"""Maximum number of interior-point iterations between two passes. If the method converges it needs 20 to 60 in all."""
WARMUP_TOLERANCE = 1e-2
"""The relative gap to which the warm-up subsample is solved. A smaller gap would not bring w nearer to the optimum of
all rows."""
WARMUP_MU = 0.1
"""The least mu after the warm-up, as a fraction of the first one (``losses.threshold``). The subsample cannot tell more
precisely which rows are in the kink."""


class IterateValues(NamedTuple):
    """The values at an iterate."""

    value: float
    """The objective with the smoothed loss."""
    smoothing: float
    """The smoothing term of the gap."""
    gradient: Float64
    """The gradient of the objective with the smoothed loss, (p,)."""


def has_interior_point(loss: Loss) -> bool:
    """Return whether the interior-point method supports the loss: its conjugate is quadratic, and it is a loss for
    classification.
    """
    return loss.quadratic() and not loss.numeric()


class NewtonSteps:
    """Newton steps from the iterate of ``state``, until the problem is solved, the next pass is due, or steps stay
    short.
    """

    def __init__(self, state: AllRows, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        self._state, self._rows, self._preconditioner = state, rows, preconditioner
        self._slopes, self._h = np.empty(rows.count), np.empty(rows.count)
        self._rare = find_rare_columns(rows, preconditioner) if state.outer is None else None

    @property
    def has_too_many_steps(self) -> bool:
        """Whether a limit on the number of steps, or of short steps, is reached."""
        is_patient = self._preconditioner.whole or not has_interior_point(self._state.problem.loss)
        is_patient = is_patient or isinstance(self._rows.X, Curved)
        short, steps = (PATIENT_SHORT_STEPS, PATIENT_STEPS) if is_patient else (MAX_SHORT_STEPS, MAX_STEPS)
        return self._state.short_steps >= short or self._state.steps >= steps

    def run(self) -> None:
        """Make steps. Changes ``state``."""
        state, rows, arrow, is_near, dense_only = self._state, self._rows, self._preconditioner, False, False
        f = rows.margins(state.w)
        while not self.has_too_many_steps:
            current = self._evaluate(f)
            if state.solved or rows.is_exhausted:
                return
            if not dense_only:
                arrow.update(self._h, estimated=not is_near)
            energy = float(current.gradient @ arrow(current.gradient))
            if self._shrink_mu(current, energy):
                dense_only = False
                continue
            is_near = energy <= state.allowed_gap
            dense_only = is_near and not dense_only and arrow.exact and not arrow.whole
            if is_near:
                state.cg_target = min(state.cg_target, CG_TIGHTENING * energy / state.allowed_gap)
            f = self._step_in_dense_columns(f, current) if dense_only else self._take_step(f, current, energy)

    def _step_in_dense_columns(self, f: Float64, current: IterateValues) -> Float64:
        """Make the exact step in the dense columns alone, and return X w after it."""
        step = self._preconditioner.block_step(-current.gradient)
        self._state.w = self._state.w + step
        return self._rows.move_margins(f, self._rows.margins(step), self._state.w, self._state.allowed_gap)

    def _take_step(self, f: Float64, current: IterateValues, energy: float) -> Float64:
        """Make a step in all columns, and return X w after it."""
        state = self._state
        step = self._direction(current, energy)
        df = self._rows.margins(step)
        moved = self._step_with_rare_columns(f, df, step, current.value)
        if moved is None:
            length = self._length(f, df, step)
            w = state.w + length * step
            moved = length, w, self._rows.move_margins(f, length * df, w, state.allowed_gap)
        length, state.w, f = moved
        state.steps += 1
        if length < SHORT_STEP:
            state.short_steps += 1
        elif state.mu:
            state.short_steps = 0
        return f

    def _step_with_rare_columns(
        self, f: Float64, df: Float64, step: Float64, value: float
    ) -> tuple[float, Float64, Float64] | None:
        """Return length, w and X w of a step followed by minimization over the rare columns; None if no length that is
        tried reduces the objective.
        """
        state, rows, rare = self._state, self._rows, self._rare
        if rare is None:
            return None
        smooth = round_corners(state.problem.loss, state.mu)
        for length in RARE_LENGTHS:
            w, g = state.w + length * step, f + length * df
            rare.minimize(w, g, smooth, state.allowed_gap)
            losses = trial_pass(rows.terms.y, rows.terms.s, g, g, rows.terms.C, smooth, np.zeros(1))
            if rows.outer.value(w) + float(losses[0]) < value:
                return length, w, g
        return None

    def _evaluate(self, f: Float64) -> IterateValues:
        """Evaluate the iterate with the decision values f, and store its slopes and second derivatives."""
        state, rows, loss = self._state, self._rows, self._state.problem.loss
        cost = RowLoss(state.problem.C, loss, round_corners(loss, state.mu))
        losses, smoothed, linear, quadratic = slopes_pass(rows.terms.y, rows.terms.s, f, cost, self._slopes, self._h)
        v = rows.weighted_sum(self._slopes)
        state.record(rows, state.w, losses, rows.outer.dual(loss, linear, quadratic, v), self._slopes)
        smoothing = losses - linear + quadratic + float(self._slopes @ f)
        return IterateValues(rows.outer.value(state.w) + smoothed, smoothing, rows.outer.gradient(state.w) - v)

    def _shrink_mu(self, current: IterateValues, energy: float) -> bool:
        """Reduce mu if the iterate is near the minimizer for the current mu. Return whether it was reduced, so that the
        iterate has to be evaluated again.
        """
        state, goal = self._state, SMOOTHING_SHARE * self._state.allowed_gap
        if not state.mu or energy > CRUDE_ENERGY * abs(current.value) or current.smoothing <= goal:
            return False
        state.mu *= max(MU_FACTOR, float(np.sqrt(0.95 * goal / current.smoothing)))
        return True

    def _direction(self, current: IterateValues, energy: float) -> Float64:
        """Return -H^-1 grad approximately."""
        state, rows = self._state, self._rows
        forcing = min(max(energy / state.reference_value, FORCING_BOUNDS[0]), FORCING_BOUNDS[1])
        least = max(forcing * forcing * energy, state.cg_target * state.allowed_gap)

        def enough(residual_energy: float, _: Float64) -> bool:
            return residual_energy <= least or rows.is_late

        solved = conjugate_gradients(
            lambda d: rows.hessian_product(self._h, d), self._preconditioner, -current.gradient, enough
        )
        return solved.x + self._preconditioner.block_step(solved.residual) if self._preconditioner.whole else solved.x

    def _length(self, f: Float64, df: Float64, step: Float64) -> float:
        state, rows = self._state, self._rows
        smooth = round_corners(state.problem.loss, state.mu)
        row_slopes = partial(line_pass, rows.terms.y, rows.terms.s, f, df, rows.terms.C, smooth)
        return find_step_length(row_slopes, rows.outer.line_derivatives(state.w, step))


@saved_as("newton.all_rows")
@dataclass(slots=True)
class AllRows:
    """A problem with all its rows in memory, and the state of its solution between two passes."""

    problem: Problem
    sample: Sample
    """All rows with a positive weight."""
    w: Float64
    """(columns + 1,) the current iterate."""
    best: Float64
    """(columns + 1,) the iterate with the least P so far. The next pass confirms it."""
    primal: float = np.inf
    """P of ``best``, summed over the rows in memory; inf before the first iteration."""
    dual: float = -np.inf
    """The largest D so far; -inf before the first iteration."""
    interior_point: Interior | None = None
    """Dual variables and multipliers of the interior-point method; None before it starts."""
    cg_target: float = CG_TARGET
    """The fraction of the allowed gap at which conjugate gradients may stop. It falls when that was not precise
    enough."""
    steps: int = 0
    """Number of Newton steps on P and interior-point iterations so far."""
    short_steps: int = 0
    """Number of Newton steps shorter than SHORT_STEP; consecutive ones while mu > 0."""
    products: int = 0
    """Number of products of X' diag(h) X with a vector so far, which are most of the work."""
    outer: OuterTerms | None = None
    """The part of the objective that is not a sum over rows; None: 1/2 ||w||^2."""
    target_gap: float = 0.0
    """The gap to reach; 0: the problem's tolerance decides."""
    decrease_share: float = 0.0
    """With ``target_gap``: a gap of this fraction of the decrease so far is enough, if that is larger."""
    first_value: float = np.inf
    """The objective at the first iterate."""
    mu: float = 0.0
    """The half-width over which the kink is smoothed; 0: it is not smoothed."""
    descent: DescentState | None = None
    """The state of dual coordinate descent, kept after it was given up; None before its first round."""
    slopes: Float64 | None = None
    """(n,) a_i y_i of the largest D; None before."""
    advances: int = 0
    """The number of calls of ``advance``."""

    @property
    def allowed_gap(self) -> float:
        """The gap at which the problem is solved."""
        if not self.target_gap:
            return self.problem.tolerance * abs(self.primal)
        return (
            max(self.target_gap, self.decrease_share * (self.first_value - self.primal))
            if self.decrease_share
            else self.target_gap
        )

    @property
    def reference_value(self) -> float:
        """The value relative to which gaps are measured."""
        return self.allowed_gap / self.problem.tolerance if self.problem.tolerance else abs(self.primal)

    @property
    def solved(self) -> bool:
        """Whether the gap, computed on the rows in memory, is safely below the allowed gap."""
        return bool(self.primal < np.inf) and self.primal - self.dual <= SOLVED_SHARE * self.allowed_gap

    @property
    def progress_measure(self) -> float:
        """A number that falls as the work makes progress: the gap, or in proximal descent the least lag, because its
        gap improves late.
        """
        if isinstance(self.descent, ProximalState) and self.descent.gaps and self.interior_point is None:
            return min(self.descent.gaps) * abs(self.primal)
        return self.primal - self.dual

    @property
    def work(self) -> tuple[int, int, int]:
        """Numbers of steps, products and rounds of descent so far. They stay equal if ``advance`` did nothing."""
        return self.steps, self.products, 0 if self.descent is None else len(self.descent.gaps)

    def facts(self) -> dict[str, Any]:
        """Return the facts that the record of a fit holds for each pass."""
        proximal = "proximal " if isinstance(self.descent, ProximalState) else ""
        method = "newton" if self.descent is None or self.steps else f"{proximal}dual coordinate descent"
        method = method if self.interior_point is None else "interior point"
        return {"rows": "all in memory", "method": method, "steps": self.steps, "products": self.products}

    def advance(self, deadline: float) -> None:
        """Iterate until the gap is small enough, or the work limit of one in-memory step is reached."""
        self.advances += 1
        rows = MemoryRows(self.sample, self.problem, deadline, self.outer)
        preconditioner = make_preconditioner(rows.X, self.problem.columns, rows.outer.diagonal)
        if self.interior_point is None and self._prefers_dual_cd(rows, preconditioner):
            CoordinateDescent(self, rows).run()
            self.w = self.best
        if not self._is_step_over(rows):
            self._newton_or_descent(rows, preconditioner, deadline)
        if has_interior_point(self.problem.loss) and not self._is_step_over(rows):
            self._interior_point_steps(rows, preconditioner)
        self.products += rows.products

    def advance_until_solved(self, deadline: float, most: int) -> None:
        """Call ``advance`` until the gap is small enough, at most ``most`` times."""
        for _ in range(most):
            self.advance(deadline)
            if self.solved:
                break

    def _is_step_over(self, rows: MemoryRows) -> bool:
        """Return whether this in-memory step is over: the problem is solved, or the work limit is reached and at least
        one iterate was evaluated.
        """
        return self.solved or (rows.is_exhausted and self.primal < np.inf)

    def _newton_or_descent(self, rows: MemoryRows, preconditioner: ArrowPreconditioner, deadline: float) -> None:
        """Make Newton steps or rounds of coordinate descent, unless the interior-point method has started."""
        loss = self.problem.loss
        is_smooth, is_unbounded = loss.smooth() or self.mu > 0.0, not (has_box(loss) and has_interior_point(loss))
        has_few_rows = self.problem.columns > max(CHEAP_COLUMNS, MAX_COLUMNS_PER_ROW * rows.count)
        by_newton = (preconditioner.whole and not has_few_rows) or is_unbounded or isinstance(rows.X, Curved)
        if self.interior_point is None and is_smooth and by_newton:
            if not self.steps:
                self._warm_up(rows, deadline)
            NewtonSteps(self, rows, preconditioner).run()
        elif self.interior_point is None and self.outer is None:
            self._dual_descent(rows, preconditioner)

    def _prefers_dual_cd(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> bool:
        """Return whether dual coordinate descent comes before Newton's method for a smooth loss: on sparse rows of
        similar length, until it is given up; not if Newton's matrix has every column with an entry.
        """
        smooth = has_interior_point(self.problem.loss) and not has_box(self.problem.loss)
        if not smooth or self.outer is not None or preconditioner.whole:
            return False
        if self.descent is not None:
            return not self.descent.given_up
        if not isinstance(rows.X, CSR) or lengths_differ(rows.X, self.problem.columns):
            return False
        return not preconditioner.has_all_entries()

    def _dual_descent(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        """Make rounds of coordinate descent. If it was given up, or rows differ too much in length, make rounds of
        proximal descent.
        """
        X = rows.X if isinstance(rows.X, CSR) and not preconditioner.whole else None
        is_proximal = isinstance(self.descent, ProximalState)
        if not is_proximal and not (self.descent is None and X is not None and lengths_differ(X, self.problem.columns)):
            CoordinateDescent(self, rows).run()
        given_up = self.descent is not None and self.descent.given_up
        if (
            X is not None
            and (self.descent is None or given_up != is_proximal)
            and not (self.solved or rows.is_exhausted)
        ):
            ProximalDescent(self, rows, preconditioner, X).run()

    def _warm_up(self, rows: MemoryRows, deadline: float) -> None:
        """Set w to the approximate optimum of a subsample of the rows, if there are many rows and w is 0."""
        problem = self.problem
        step = rows.count // max(WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT * (problem.columns + 1))
        if step > 1 and not self.w.any() and self.outer is None:
            few = self.sample.take_every(step)
            coarse = replace(problem, C=step * problem.C, tolerance=max(WARMUP_TOLERANCE, problem.tolerance))
            part = AllRows(coarse, few, self.w, self.w, mu=self.mu)
            in_memory = MemoryRows(few, coarse, deadline)
            ones = in_memory.outer.diagonal
            NewtonSteps(part, in_memory, make_preconditioner(few.X, problem.columns, ones)).run()
            self.w = part.best
            if self.mu:
                self.mu = max(part.mu, WARMUP_MU * threshold(problem.loss))

    def dual_values(self, start: int, count: int) -> Float64 | None:
        """Return a_i (count,) of the largest D, for the rows with global numbers from ``start`` on; 0 for rows that are
        not in memory, None if no D was evaluated.
        """
        if self.slopes is None:
            return None
        low, high = np.searchsorted(self.sample.row, (start, start + count))
        alpha = np.zeros(count)
        alpha[self.sample.row[low:high] - start] = self.slopes[low:high] * self.problem.kind.signs(
            self.sample.y[low:high]
        )
        return alpha

    def dual_variables_only(self) -> AllRows:
        """Return a copy that contains only what ``dual_values`` needs: signs, row numbers and slopes."""
        none = np.empty(0)
        sample = self.sample._replace(X=None, s=none, probability=none, f=none)
        return replace(self, sample=sample, w=none, best=none, interior_point=None, descent=None, outer=None)

    def record(self, rows: MemoryRows, w: Float64, losses: float, dual: DualValue, slopes: Float64 | None) -> None:
        """Record an iterate with its sum of losses, and the dual point with a_i y_i = ``dual.scale`` * ``slopes`` (n,).

        ``slopes`` None: there is no dual point, and its value is -inf.
        """
        primal = rows.outer.value(w) + losses
        if self.primal == np.inf:
            self.first_value = primal
        if primal < self.primal:
            self.primal, self.best = primal, w
        if dual.value > self.dual:
            self.dual, self.slopes = dual.value, None if slopes is None else dual.scale * slopes

    def confirm(self, primal: float) -> None:
        """Raise P of ``best`` to the value that a pass has computed, if that is larger than the one computed in
        memory.
        """
        self.primal = max(self.primal, primal)

    def _evaluate_primal(self, rows: MemoryRows) -> None:
        """Record P at the iterate, before the interior-point method moves away to a point farther from the optimum."""
        none = np.zeros(rows.count)
        losses, *_ = value_pass(rows.terms, rows.values(self.w), Interior(none, none, none), np.empty(rows.count))
        self.record(rows, self.w, losses, NO_DUAL_POINT, None)

    def _interior_point_steps(self, rows: MemoryRows, preconditioner: ArrowPreconditioner) -> None:
        """Make interior-point iterations until the gap is small enough, or the next pass is due."""
        from streamsvm.solvers.newton.interior_point_in_memory import Centering, InteriorStep, Iterate

        point = self.interior_point
        if point is None:
            self._evaluate_primal(rows)
            self.w, point, centered = Centering(rows, preconditioner).run(self.w)
            self.interior_point = point if centered else None
        f, slopes = rows.values(self.w), np.empty(rows.count)
        for _ in range(
            MAX_INTERIOR_POINT_STEPS
        ):  # if numbers exceed the precision of float64, the method does not converge
            losses, linear, quadratic, products = value_pass(rows.terms, f, point, slopes)
            v, linear = rows.weighted_sum(slopes), linear + rows.offset_gain(slopes)
            self.record(rows, self.w, losses, rows.outer.dual(self.problem.loss, linear, quadratic, v), slopes)
            if self.solved or rows.is_exhausted:
                return
            step = InteriorStep(rows, preconditioner, point, Iterate(self.w, f, v, products))
            self.w, f = step.take(self.allowed_gap)
            self.steps += 1
