"""A model of the objective on a sample of rows that fits in memory, its minimizer, and the damping of the model.

The model is built around a point c at which the gradient and the value of the objective are known. With S the rows of a
sample
(``solvers.newton.priority_sampling``),

    M(w) = 1/2 ||w||^2 + sum_S C_i h(m_i) / q_i + shift.w + 1/2 (w - c)' diag(damping) (w - c).

``shift`` gives M the true gradient at c, and ``offset`` gives it the true margins m_i = y_i (x_i.w + offset_i): kernel
features in memory are float32, and margins computed from low-rank factors differ slightly. The sample only estimates
how the gradient changes away from c. M is not quadratic, so it includes rows that enter or leave the kink of the loss.
If only a few rows have a component, all of them are in S. ``damping`` holds back the components that S estimates
poorly.

M is minimized by Newton's method (``Descent``). The half-width mu of a smoothed kink shrinks along the path of
minimizers, in small steps, so that the set of rows in the kink changes slowly. The decrease that the model predicted is
compared with the decrease that the next pass measures (``TrustRegion``). If the prediction was poor, the damping grows;
if the objective rose, the model is minimized again from c with more damping.

References: Keerthi and DeCoste, JMLR 2005 (Newton on the squared hinge); Shamir, Srebro, Zhang, ICML 2014 (DANE).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.newton import slopes_pass, squares
from streamsvm.compute.passes.rows_in_memory import line_pass
from streamsvm.losses import round_corners, threshold
from streamsvm.rows import Dense, Float64
from streamsvm.solvers.evaluation import PointEvaluation, Sums
from streamsvm.solvers.line_search import find_step_length
from streamsvm.solvers.newton.conjugate_gradients import conjugate_gradients
from streamsvm.solvers.newton.preconditioner import ArrowPreconditioner, max_explicit_components
from streamsvm.solvers.newton.priority_sampling import WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT, Sample
from streamsvm.types import Loss, Problem
from streamsvm.types.problem import scale_dual

CG_ENERGY_RATIO = 1e-4
"""Conjugate gradients stop when the energy of the residual falls to this fraction of the first energy."""
MAX_ITERATIONS = 40
"""Maximum number of Newton steps on a model."""
MU_FACTOR = 0.5
"""mu is multiplied by no less than this factor between two in-memory minimizations."""
DECREMENT = 1e-3
"""A model counts as minimized when a step predicts a decrease below this fraction of tolerance times value."""
CRUDE_DECREMENT = 1e-4
"""While mu is still shrinking, the model counts as minimized when a step predicts a decrease below this fraction of its
value."""
GRADIENT_SHARE = 0.02
"""Half the squared gradient, which lowers the dual value, must also be below this fraction of tolerance times value."""
FIRST_MU, FIRST_FINAL_MU = 1.5, 0.5
"""mu at the start of the first model, at which all rows are in the kink at w = 0, and the least mu at its end, in units
of the margin."""
LEAST_MU = 1e-6
"""The least mu if the model contains all rows."""
SMOOTHING_SHARE = 0.3
"""The fraction of the tolerance that the smoothing term may use up."""
FIRST_DAMPING = 4.0
"""The first damping, in units of components / sampled rows."""
GOOD_RATIO, POOR_RATIO = 0.9, 0.4
"""Ratios of measured to predicted decrease above which the damping is reduced, and below which it is increased."""
DAMPING_DECREASE, DAMPING_INCREASE = 0.3, 4.0
"""The factors by which the damping is reduced and increased."""
NEGLIGIBLE_SHARE = 1e-5
"""Predicted decreases below this fraction of the objective are too small to judge the model by."""


class Hessian:
    """The Hessian diag(diagonal) + X' diag(second_derivatives) X for fixed rows X and changing second derivatives.

    With few columns it is an explicit matrix, which is updated for the rows whose second derivative changed
    (``ArrowPreconditioner``). With many columns conjugate gradients use products with it. ``diagonal`` is (p,).
    """

    def __init__(self, X: Any, columns: int, diagonal: Float64) -> None:
        self._X, self._columns, self._diagonal = X, columns, diagonal
        explicit = columns + 1 <= max_explicit_components(dense=isinstance(X, Dense))
        self._matrix = ArrowPreconditioner(X, columns, diagonal) if explicit else None

    def step(self, second_derivatives: Float64, gradient: Float64) -> Float64:
        """Return -Hessian^-1 gradient (p,) for the given second derivatives (n,) of the rows."""
        if self._matrix is None:
            return self._solve_by_products(second_derivatives, -gradient)
        self._matrix.update(second_derivatives)
        return self._matrix(-gradient)

    def _solve_by_products(self, second_derivatives: Float64, right: Float64) -> Float64:
        """Return Hessian^-1 right (p,) approximately, by conjugate gradients preconditioned with the Hessian's
        diagonal.
        """
        diagonal, columns, is_curved = self._diagonal, self._columns, second_derivatives > 0.0
        rows: Any = operators.where(self._X, is_curved)
        weights = second_derivatives[is_curved]
        scale = 1.0 / (diagonal + squares(rows, weights, columns))
        least = CG_ENERGY_RATIO * float(right @ (scale * right))

        def product(d: Float64) -> Float64:
            return diagonal * d + operators.adjoint(rows, weights * operators.margins(rows, d), columns)

        def enough(energy: float, _: Float64) -> bool:
            return energy <= least

        return conjugate_gradients(product, lambda residual: scale * residual, right, enough).x


@saved_as("newton.look")
class RowValues(NamedTuple):
    """The rows of a model evaluated at a point; arrays are (n,)."""

    sums: Sums
    """The sums over the rows, each row counted ``factor`` times."""
    slopes: Float64
    """-C_i h'(m_i) y_i, C_i = C factor_i."""
    second_derivatives: Float64
    """C_i h''(m_i), the row weights in the Hessian."""
    f: Float64
    """Decision values x_i.w + offset_i."""


@saved_as("newton.model")
@dataclass(slots=True)
class Surrogate:
    """The model M. ``factor`` (n,) is s_i / q_i, or s_i if the contribution of the other rows is fixed, not
    estimated.
    """

    problem: Problem
    sample: Sample
    """The rows of the model, with their decision values at ``center``."""
    factor: Float64
    """How often each row counts, its weight s_i included."""
    center: Float64
    """(p,) the point c at which the model's gradient is that of the objective."""
    shift: Float64
    """(p,) the difference of the gradient of all rows at c and that of the sample."""
    damping: Float64
    """(p,) the damping >= 0 of each component; set by the trust region."""
    offset: Float64
    """(n,) the difference of x_i.c as computed in the pass and as computed from the rows in memory."""
    deadline: float = np.inf
    """The time of ``time.perf_counter`` after which no step is made on the model."""

    def values_at(self, smooth: Loss, w: Float64) -> RowValues:
        """Return the sums, slopes, second derivatives and decision values of the model's rows at w."""
        problem, f = self.problem, operators.margins(self.sample.X, w) + self.offset
        slopes, second_derivatives = np.empty(len(f)), np.empty(len(f))
        sums = slopes_pass(
            self.sample.y, self.factor, f, RowLoss(problem.C, problem.loss, smooth), slopes, second_derivatives
        )
        return RowValues(Sums(*sums), slopes, second_derivatives, f)

    def weighted_sum(self, values: RowValues) -> Float64:
        """Return X' slopes (p,)."""
        return operators.adjoint(self.sample.X, values.slopes, self.problem.columns)

    def subsample(self, step: int) -> Surrogate:
        """Return the model built from every ``step``-th row, each counted ``step`` times."""
        sample, factor = self.sample.take_every(step), step * self.factor[::step]
        offset = self.offset[::step]
        return Surrogate(self.problem, sample, factor, self.center, self.shift, self.damping, offset, self.deadline)

    def outer(self, w: Float64) -> float:
        """Return the part of M(w) that is not a sum over rows."""
        d = w - self.center
        return 0.5 * float(w @ w) + float(self.shift @ w) + 0.5 * float(self.damping @ (d * d))

    def value(self, smooth: Loss, w: Float64) -> float:
        """Return M(w) without the damping, which estimates the objective up to a constant."""
        return self.values_at(smooth, w).sums.smoothed + 0.5 * float(w @ w) + float(self.shift @ w)

    def outer_gradient(self, w: Float64) -> Float64:
        """Return the gradient of ``outer`` at w (p,)."""
        return w + self.shift + self.damping * (w - self.center)

    def gradient(self, values: RowValues, w: Float64) -> Float64:
        """Return the gradient of M at w (p,), from ``values_at(w)``."""
        return self.outer_gradient(w) - self.weighted_sum(values)

    def find_step_length(self, smooth: Loss, current: RowValues, w: Float64, step: Float64) -> float:
        """Return the step length that approximately minimizes M along ``step`` from w; ``current``: ``values_at(w)``."""
        df = operators.margins(self.sample.X, step)
        row_slopes = partial(line_pass, self.sample.y, self.factor, current.f, df, self.problem.C, smooth)
        along = float(self.outer_gradient(w) @ step), float(step @ ((1.0 + self.damping) * step))
        return find_step_length(row_slopes, along)


def model_at(problem: Problem, sample: Sample, factor: Float64, center: Float64) -> Surrogate:
    """Return a model without shift and damping, of the sample of a pass at ``center``."""
    zero = np.zeros_like(center)
    return Surrogate(problem, sample, factor, center, zero, zero, sample.f - operators.margins(sample.X, center))


def model_of_stored_rows(problem: Problem, sample: Sample, factor: Float64, center: Float64) -> Surrogate:
    """Return a model without shift and damping, each row counted ``factor`` (n,) times.

    The rows must be stored rows: margins computed in memory then equal those of the pass, and the offset is 0.
    """
    zero = np.zeros_like(center)
    return Surrogate(problem, sample, factor, center, zero, zero, np.zeros(len(factor)))


class Descent:
    """Newton's method on one model. The damping of the model must be set before."""

    def __init__(self, model: Surrogate) -> None:
        self._model = model
        self._hessian = Hessian(model.sample.X, model.problem.columns, 1.0 + model.damping)

    def minimize(self, smooth: Loss, w: Float64, crude: float = 0.0) -> tuple[Float64, bool]:
        """Return the minimizer of the model, starting at w, and whether the iteration converged. No step is made after
        the model's deadline.

        ``crude`` > 0: the iteration converges when a step predicts a decrease below this fraction of the value. 0: when
        both the predicted decrease and half the squared gradient are small fractions of the tolerance.
        """
        model, tolerance = self._model, self._model.problem.tolerance
        for _ in range(MAX_ITERATIONS):
            if time.perf_counter() > model.deadline:
                break
            current = model.values_at(smooth, w)
            value, gradient = current.sums.smoothed + model.outer(w), model.gradient(current, w)
            step = self._hessian.step(current.second_derivatives, gradient)
            decrease, half_square = -float(gradient @ step), 0.5 * float(gradient @ gradient)
            if decrease <= (crude or DECREMENT * tolerance) * abs(value) and (
                crude or half_square <= GRADIENT_SHARE * tolerance * abs(value)
            ):
                return w, True
            length = model.find_step_length(smooth, current, w, step)
            if length <= 0.0:
                break
            w = w + length * step
        return w, False

    def follow(self, w: Float64, mu: float, floor: float, goal: float) -> tuple[Float64, float]:
        """Return the minimizer of the model and its mu, starting at w with ``mu`` and reducing mu step by step.

        mu is not reduced below ``floor``, nor once the smoothing term is at most ``goal``. mu = 0: the loss is smooth.
        """
        loss = self._model.problem.loss
        w, solved = self.minimize(round_corners(loss, mu), w, crude=CRUDE_DECREMENT)
        while mu and solved:
            smoothing = smoothing_of(self._model, round_corners(loss, mu), w)
            following = mu * max(MU_FACTOR, float(np.sqrt(0.95 * goal / max(smoothing, goal))))
            if smoothing <= goal or following < 0.99 * floor:
                break
            minimizer, solved = self.minimize(round_corners(loss, following), w, crude=CRUDE_DECREMENT)
            mu, w = (following, minimizer) if solved else (mu, w)
        return w, mu


def smoothing_of(model: Surrogate, smooth: Loss, w: Float64) -> float:
    """Return the smoothing term sum_i C_i (l(m_i) - b_i (1 - m_i)), estimated from the sample."""
    values = model.values_at(smooth, w)
    return values.sums.losses - values.sums.linear + float(values.slopes @ values.f)


def polish_dual(  # noqa: PLR0917  a problem, a point and its evaluation
    problem: Problem, sample: Sample, smooth: Loss, evaluation: PointEvaluation, w: Float64, deadline: float = np.inf
) -> float:
    """Return the dual value after the a_i of the sample are re-optimized, with all other a_i fixed at the loss slopes
    at w.
    """
    model = model_at(problem, sample, sample.s.astype(np.float64), w)
    model.deadline = deadline
    before = model.values_at(smooth, w)
    model.shift = model.weighted_sum(before) - evaluation.v
    after = model.values_at(smooth, Descent(model).minimize(smooth, w)[0])
    sums, v = evaluation.sums.plus(before.sums, -1.0).plus(after.sums), model.weighted_sum(after) - model.shift
    return scale_dual(problem.loss, sums.linear, sums.quadratic, float(v @ v))


@saved_as("newton.trust_region")
@dataclass(slots=True)
class TrustRegion:
    """A model, its damping, and the decrease it predicted for its minimizer.

    The damping of a component is a multiple of C sum s_i x_ij^2, summed over the rows that the sample only estimates.
    The multiple grows if a point was worse than predicted. mu is reduced as far as the tolerance requires, but by a
    limited factor in each step.
    """

    model: Surrogate
    """The model of the objective around the last evaluated point."""
    mu: float
    """The half-width of the smoothed kink at the center of the model."""
    value: float
    """The smoothed objective at the center."""
    damping: float
    """The multiple of C sum s_i x_ij^2 over estimated rows by which components are damped; set by ``accept``."""
    reference: float = 0.0
    """An estimate of the objective at the center, smoothed with the mu of the minimizer."""
    predicted_decrease: float = 0.0
    """The predicted decrease of the objective, from ``reference``."""

    def accept(self, evaluation: PointEvaluation) -> bool:
        """Return whether the step did not increase the objective, and update the damping by the ratio of measured to
        predicted decrease.
        """
        if self.predicted_decrease <= NEGLIGIBLE_SHARE * abs(evaluation.value) or self.model.sample.complete:
            return True  # a model of all rows is off by rounding only, and a new model repairs that
        ratio = (self.reference - evaluation.value) / self.predicted_decrease
        self.damping = next_damping(self.damping, ratio)
        return ratio >= 0.0

    def begin(self, primal: float) -> tuple[Float64, float]:
        """Return the next w and mu from w = 0. The model is not damped there, and begins with a subsample of the
        rows.
        """
        model, mu = self.model, self.mu
        floor, goal = self._floor(FIRST_FINAL_MU * threshold(model.problem.loss)), self._goal(primal)
        model.damping = np.zeros_like(model.center)
        w, step = model.center, len(model.factor) // max(WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT * len(model.center))
        if step > 1:
            w, mu = Descent(model.subsample(step)).follow(w, mu, floor, goal)
        return self._minimize_and_predict(w, mu, floor, goal)

    def next_point(self, primal: float, narrowing: float, total: Float64) -> tuple[Float64, float]:
        """Return the minimizer of the damped model and its mu, which is at least ``narrowing`` times the former mu.

        ``total`` (p,): sum_i s_i x_ij^2 over all rows. ``primal``: the least objective so far, from which the goal of
        the smoothing term is computed.
        """
        model = self.model
        model.damping = self.damping * model.problem.C * self._part_of_rare_rows(total)
        return self._minimize_and_predict(model.center, self.mu, self._floor(narrowing * self.mu), self._goal(primal))

    def _minimize_and_predict(self, w: Float64, mu: float, floor: float, goal: float) -> tuple[Float64, float]:
        model, loss, descent = self.model, self.model.problem.loss, Descent(self.model)
        w, mu = descent.follow(w, mu, floor, goal)
        smooth = round_corners(loss, mu)
        w, _ = descent.minimize(smooth, w)
        start, before = (model.value(h, model.center) for h in (smooth, round_corners(loss, self.mu)))
        self.reference, self.predicted_decrease = self.value + start - before, start - model.value(smooth, w)
        return w, mu

    def _floor(self, floor: float) -> float:
        return LEAST_MU if self.model.sample.complete else floor

    def _goal(self, primal: float) -> float:
        return SMOOTHING_SHARE * self.model.problem.tolerance * primal

    def _part_of_rare_rows(self, total: Float64) -> Float64:
        """Return the part of ``total`` that is due to rows with a sampling probability below 1."""
        sample = self.model.sample
        is_certain = (sample.probability >= 1.0).astype(np.float64)
        return np.maximum(total - squares(sample.X, is_certain * sample.s, self.model.problem.columns), 0.0)


def next_damping(damping: float, ratio: float) -> float:
    """Return the damping after a step whose measured decrease is ``ratio`` times the predicted one."""
    if ratio < 0.0:
        return damping * DAMPING_INCREASE * DAMPING_INCREASE
    if ratio < POOR_RATIO:
        return damping * DAMPING_INCREASE
    return damping * DAMPING_DECREASE if ratio > GOOD_RATIO else damping


def first_damping(sample: Sample, components: int) -> float:
    """Return the damping of the first model; 0 if the sample contains all rows."""
    return 0.0 if sample.complete else FIRST_DAMPING * components / len(sample.y)


def first_mu(problem: Problem) -> float:
    """Return mu of the first pass. After a warm start margins are spread over a width of about 1, and the smoothing
    term is about mu^2 times the objective; mu is then chosen such that this stays within the tolerance.
    """
    if problem.loss.smooth():
        return 0.0
    widest = FIRST_MU if problem.warm is None else float(np.sqrt(SMOOTHING_SHARE * problem.tolerance))
    return widest * threshold(problem.loss)
