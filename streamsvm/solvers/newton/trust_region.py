"""A model of the whole objective on rows that fit in memory, its minimum, and how far it is trusted.

Around a point c where gradient and value of the objective are known, with rows S of a sample
(``solvers.newton.priority_sampling``),

    M(w) = 1/2 ||w||^2 + sum_S C_i h(m_i) / q_i + shift.w + 1/2 (w - c)' diag(damping) (w - c).

``shift`` gives M the true gradient at c, and ``offset`` the true margins, m_i = y_i (x_i.w + offset_i): kernel features
that were formed are float32, and margins found without forming them are not the same. What is left to sampling is how
the gradient changes on the way, and that a row can leave the corner of its loss, or enter it, is in M. Rows of which a
component has but a few are all in S. ``damping`` holds back components about which S says little.

M is minimized by Newton's method (``Descent``) while the half width mu of a rounded corner falls
along the path of its optima, so that the rows in the corner stay in it. The decrease it promised is compared with the
decrease the next pass finds (``TrustRegion``): a model that is off is damped more, and one that made things worse is
minimized again from where it stood.

References: Keerthi and DeCoste, JMLR 2005 (Newton on the squared hinge); Shamir, Srebro, Zhang, ICML 2014 (DANE).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.newton import slopes_pass, squares
from streamsvm.compute.passes.rows_in_memory import line_pass
from streamsvm.losses import round_corners, threshold
from streamsvm.rows import Dense, Float64, Rows, row_where
from streamsvm.solvers.evaluation import PointEvaluation, Sums
from streamsvm.solvers.line_search import find_step_length
from streamsvm.solvers.newton.conjugate_gradients import conjugate_gradients
from streamsvm.solvers.newton.preconditioner import ArrowPreconditioner, most_explicit
from streamsvm.solvers.newton.priority_sampling import WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT, Sample
from streamsvm.types import Loss, Problem
from streamsvm.types.problem import scale_dual

STEP_ENERGY = 1e-4
"""Conjugate gradients of a step end at this share of the first energy."""
ITERATIONS = 40
"""Newton steps on a model at most."""
HALF = 0.5
"""The factor by which mu falls in memory, from one problem to the next, at most."""
DECREMENT = 1e-3
"""A model is minimized when a step promises less than this share of tolerance times value."""
CRUDE = 1e-4
"""On the way to a narrower corner it is minimized when a step promises less than this share of its value."""
SHARP = 0.02
"""Half the squared gradient, which a dual value would lack, must also be below this share of tolerance times value."""
WIDEST, WIDE = 1.5, 0.5
"""mu of the first model, at which all rows are in the corner at w = 0, and of the point it ends at, in margins."""
NARROWEST = 1e-6
"""The least mu where all rows are in the model."""
SMOOTHING_SHARE = 0.3
"""The part of the tolerance that smoothing may take."""
FIRST_DAMPING = 4.0
"""The first damping, in units of components / sampled rows."""
GOOD_RATIO, POOR_RATIO = 0.9, 0.4
"""Shares of the promised decrease above which the damping is eased, and below which it is tightened."""
DAMPING_DECREASE, DAMPING_INCREASE = 0.3, 4.0
"""The factors of the damping then."""
NEGLIGIBLE_SHARE = 1e-5
"""Decreases below this share of the objective say nothing about the model."""


class Hessian:
    """The Hessian diag(diagonal) + X' diag(second_derivatives) X at one point after another of the same rows X.

    Where all columns are few enough it is a matrix, which follows the rows whose second derivative has changed
    (``ArrowPreconditioner``); elsewhere conjugate gradients meet it in products only. ``diagonal`` is (p,).
    """

    def __init__(self, X: Rows, columns: int, diagonal: Float64) -> None:
        self._X, self._columns, self._diagonal = X, columns, diagonal
        explicit = columns + 1 <= most_explicit(dense=isinstance(X, Dense))
        self._whole = ArrowPreconditioner(X, columns, diagonal) if explicit else None

    def step(self, second_derivatives: Float64, gradient: Float64) -> Float64:
        """Return -Hessian^-1 gradient (p,), where rows have these second derivatives (n,)."""
        if self._whole is None:
            return self._solve_by_products(second_derivatives, -gradient)
        self._whole.update(second_derivatives)
        return self._whole(-gradient)

    def _solve_by_products(self, second_derivatives: Float64, right: Float64) -> Float64:
        """Return about Hessian^-1 right (p,), by conjugate gradients scaled by the diagonal of the Hessian."""
        diagonal, columns, bent = self._diagonal, self._columns, second_derivatives > 0.0
        rows, weights = row_where(self._X, bent), second_derivatives[bent]
        scale = 1.0 / (diagonal + squares(rows, weights, columns))
        least = STEP_ENERGY * float(right @ (scale * right))

        def product(d: Float64) -> Float64:
            return diagonal * d + operators.adjoint(rows, weights * operators.margins(rows, d), columns)

        def enough(energy: float, _: Float64) -> bool:
            return energy <= least

        return conjugate_gradients(product, lambda residual: scale * residual, right, enough).x


@saved_as("newton.look")
class RowValues(NamedTuple):
    """The model's rows at a point; all (n,)."""

    sums: Sums
    """The sums over the rows, each counted ``factor`` times."""
    slopes: Float64
    """-C_i h'(m_i) y_i, C_i = C factor_i."""
    second_derivatives: Float64
    """C_i h''(m_i), the weights of the rows in the Hessian."""
    f: Float64
    """Decision values x_i.w + offset_i."""


@saved_as("newton.model")
@dataclass(slots=True)
class Surrogate:
    """The model; ``factor`` (n,) is s_i / q_i, or s_i where the rest of the rows is fixed, not estimated."""

    problem: Problem
    sample: Sample
    """The rows the model is made of, as they were at ``center``."""
    factor: Float64
    """How often a row counts, its weight included."""
    center: Float64
    """(p,) the point c at which the model's gradient is that of the objective."""
    shift: Float64
    """(p,) what makes it so: the sample's own gradient at c differs from that of all rows by this."""
    damping: Float64
    """(p,) 0 or more: by how much each component is held back; set by the trust region."""
    offset: Float64
    """(n,) what the pass found of x_i.c beyond what the rows in memory give."""
    deadline: float = np.inf
    """The moment of ``time.perf_counter`` after which no step is made on it."""

    def values_at(self, smooth: Loss, w: Float64) -> RowValues:
        """Evaluate the rows of the model at w: sums, slopes, second derivatives and decision values."""
        problem, f = self.problem, operators.margins(self.sample.X, w) + self.offset
        slopes, second_derivatives = np.empty(len(f)), np.empty(len(f))
        sums = slopes_pass(
            self.sample.y, self.factor, f, RowLoss(problem.C, problem.loss, smooth), slopes, second_derivatives
        )
        return RowValues(Sums(*sums), slopes, second_derivatives, f)

    def weighted_sum(self, values: RowValues) -> Float64:
        """Return V (p,) = X' slopes."""
        return operators.adjoint(self.sample.X, values.slopes, self.problem.columns)

    def thin(self, step: int) -> Surrogate:
        """Return the model of every ``step``-th row, standing for that many."""
        sample, factor = self.sample.every(step), step * self.factor[::step]
        offset = self.offset[::step]
        return Surrogate(self.problem, sample, factor, self.center, self.shift, self.damping, offset, self.deadline)

    def outer(self, w: Float64) -> float:
        """Return the part of M(w) that is not a sum over rows."""
        d = w - self.center
        return 0.5 * float(w @ w) + float(self.shift @ w) + 0.5 * float(self.damping @ (d * d))

    def value(self, smooth: Loss, w: Float64) -> float:
        """Return M(w) without the damping: an estimate of the objective, but for a constant."""
        return self.values_at(smooth, w).sums.smoothed + 0.5 * float(w @ w) + float(self.shift @ w)

    def outer_gradient(self, w: Float64) -> Float64:
        """Return the gradient of ``outer`` at w (p,)."""
        return w + self.shift + self.damping * (w - self.center)

    def gradient(self, values: RowValues, w: Float64) -> Float64:
        """Return the gradient of M at w (p,), from what ``values_at`` says of the rows there."""
        return self.outer_gradient(w) - self.weighted_sum(values)

    def find_step_length(self, smooth: Loss, here: RowValues, w: Float64, step: Float64) -> float:
        """Return the length of a step from w, whose rows are ``here``, at which M is about least."""
        df = operators.margins(self.sample.X, step)
        row_slopes = partial(line_pass, self.sample.y, self.factor, here.f, df, self.problem.C, smooth)
        along = float(self.outer_gradient(w) @ step), float(step @ ((1.0 + self.damping) * step))
        return find_step_length(row_slopes, along)


def model_at(problem: Problem, sample: Sample, factor: Float64, center: Float64) -> Surrogate:
    """Return a model without shift and damping of a sample of a pass at ``center``."""
    zero = np.zeros_like(center)
    return Surrogate(problem, sample, factor, center, zero, zero, sample.f - operators.margins(sample.X, center))


def model_of_stored_rows(problem: Problem, sample: Sample, factor: Float64, center: Float64) -> Surrogate:
    """Return a model without shift and damping, each row counted ``factor`` (n,) times.

    Rows are as they are stored: margins in memory are those of the reading.
    """
    zero = np.zeros_like(center)
    return Surrogate(problem, sample, factor, center, zero, zero, np.zeros(len(factor)))


class Descent:
    """Newton's method on one model, whose damping is set."""

    def __init__(self, model: Surrogate) -> None:
        self._model = model
        self._hessian = Hessian(model.sample.X, model.problem.columns, 1.0 + model.damping)

    def minimize(self, smooth: Loss, w: Float64, crude: float = 0.0) -> tuple[Float64, bool]:
        """Return the minimum of the model from w, and whether it was reached; no step is made after the model's
        deadline.

        ``crude``: it is reached where a step promises less than this share of the value; 0: where a step promises, and
        the gradient costs a dual value, no more than small shares of the tolerance.
        """
        model, tolerance = self._model, self._model.problem.tolerance
        for _ in range(ITERATIONS):
            if time.perf_counter() > model.deadline:
                break
            here = model.values_at(smooth, w)
            value, gradient = here.sums.smoothed + model.outer(w), model.gradient(here, w)
            step = self._hessian.step(here.second_derivatives, gradient)
            promise, norm = -float(gradient @ step), 0.5 * float(gradient @ gradient)
            if promise <= (crude or DECREMENT * tolerance) * abs(value) and (
                crude or norm <= SHARP * tolerance * abs(value)
            ):
                return w, True
            length = model.find_step_length(smooth, here, w, step)
            if length <= 0.0:
                break
            w = w + length * step
        return w, False

    def follow(self, w: Float64, mu: float, floor: float, goal: float) -> tuple[Float64, float]:
        """Return the minimum of the model and the mu it is for, from w, narrowing the corner on the way.

        mu falls to ``floor`` at most, and to where smoothing costs ``goal``. mu = 0: the loss is smooth by itself.
        """
        loss = self._model.problem.loss
        w, solved = self.minimize(round_corners(loss, mu), w, crude=CRUDE)
        while mu and solved:
            smoothing = smoothing_of(self._model, round_corners(loss, mu), w)
            following = mu * max(HALF, float(np.sqrt(0.95 * goal / max(smoothing, goal))))
            if smoothing <= goal or following < 0.99 * floor:
                break
            nearer, solved = self.minimize(round_corners(loss, following), w, crude=CRUDE)
            mu, w = (following, nearer) if solved else (mu, w)
        return w, mu


def smoothing_of(model: Surrogate, smooth: Loss, w: Float64) -> float:
    """Return sum_i C_i (l(m_i) - b_i (1 - m_i)), estimated from the sample."""
    found = model.values_at(smooth, w)
    return found.sums.losses - found.sums.linear + float(found.slopes @ found.f)


def polish_dual(  # noqa: PLR0917  a problem, a point and what is known of it
    problem: Problem, sample: Sample, smooth: Loss, found: PointEvaluation, w: Float64, deadline: float = np.inf
) -> float:
    """Return the dual value when the sample's a_i are solved for, all others being what they are at w."""
    model = model_at(problem, sample, sample.s.astype(np.float64), w)
    model.deadline = deadline
    before = model.values_at(smooth, w)
    model.shift = model.weighted_sum(before) - found.v
    after = model.values_at(smooth, Descent(model).minimize(smooth, w)[0])
    sums, v = found.sums.plus(before.sums, -1.0).plus(after.sums), model.weighted_sum(after) - model.shift
    return scale_dual(problem.loss, sums.linear, sums.quadratic, float(v @ v))


@saved_as("newton.trust_region")
@dataclass(slots=True)
class TrustRegion:
    """A model, how far it is trusted, and what it promised of the point it led to.

    The damping of a component is a multiple of C sum s_i x_ij^2 over the rows that the sample only estimates; the
    multiple grows where a point was worse than promised. mu narrows as far as the tolerance asks, but only so far in a
    step.
    """

    model: Surrogate
    """The model of the objective around the point that was evaluated last."""
    mu: float
    """Half the width of corners at its center."""
    value: float
    """The rounded objective there."""
    damping: float
    """The multiple of C sum s_i x_ij^2, of rows only estimated, that components are damped by; set by ``accept``."""
    reference: float = 0.0
    """``value``, rounded as it is at the point led to; estimated."""
    promised: float = 0.0
    """Decrease from there."""

    def accept(self, found: PointEvaluation) -> bool:
        """Return whether the step was worth taking, and set the damping by what it was worth."""
        if self.promised <= NEGLIGIBLE_SHARE * abs(found.value) or self.model.sample.complete:
            return True  # of all rows nothing was estimated: a model that is off by rounding is better made anew
        ratio = (self.reference - found.value) / self.promised
        self.damping = next_damping(self.damping, ratio)
        return ratio >= 0.0

    def begin(self, primal: float) -> tuple[Float64, float]:
        """Return the next w and mu after w = 0, where no model is wrong enough to be damped."""
        model, mu = self.model, self.mu
        floor, goal = self._floor(WIDE * threshold(model.problem.loss)), self._goal(primal)
        model.damping = np.zeros_like(model.center)
        w, step = model.center, len(model.factor) // max(WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT * len(model.center))
        if step > 1:
            w, mu = Descent(model.thin(step)).follow(w, mu, floor, goal)
        return self._end(w, mu, floor, goal)

    def next_point(self, primal: float, narrowing: float, total: Float64) -> tuple[Float64, float]:
        """Return the next w and mu: the minimum of the model, mu no smaller than ``narrowing`` times what it was.

        ``total`` (p,) = sum_i s_i x_ij^2 over all rows; ``primal``: the least objective so far, for the aim.
        """
        model = self.model
        model.damping = self.damping * model.problem.C * self._unsure(total)
        return self._end(model.center, self.mu, self._floor(narrowing * self.mu), self._goal(primal))

    def _end(self, w: Float64, mu: float, floor: float, goal: float) -> tuple[Float64, float]:
        model, loss, descent = self.model, self.model.problem.loss, Descent(self.model)
        w, mu = descent.follow(w, mu, floor, goal)
        smooth = round_corners(loss, mu)
        w, _ = descent.minimize(smooth, w)
        start, before = (model.value(h, model.center) for h in (smooth, round_corners(loss, self.mu)))
        self.reference, self.promised = self.value + start - before, start - model.value(smooth, w)
        return w, mu

    def _floor(self, floor: float) -> float:
        return NARROWEST if self.model.sample.complete else floor

    def _goal(self, primal: float) -> float:
        return SMOOTHING_SHARE * self.model.problem.tolerance * primal

    def _unsure(self, total: Float64) -> Float64:
        """Return the part of ``total`` that is due to rows that were not certain to be in the sample."""
        sample = self.model.sample
        sure = (sample.probability >= 1.0).astype(np.float64)
        return np.maximum(total - squares(sample.X, sure * sample.s, self.model.problem.columns), 0.0)


def next_damping(damping: float, ratio: float) -> float:
    """Return the damping after a step that brought ``ratio`` of the decrease that was promised."""
    if ratio < 0.0:
        return damping * DAMPING_INCREASE * DAMPING_INCREASE
    if ratio < POOR_RATIO:
        return damping * DAMPING_INCREASE
    return damping * DAMPING_DECREASE if ratio > GOOD_RATIO else damping


def first_damping(sample: Sample, components: int) -> float:
    """Return the damping of the first model; one of all rows needs none."""
    return 0.0 if sample.complete else FIRST_DAMPING * components / len(sample.y)


def first_mu(problem: Problem) -> float:
    """Return mu of the first pass. Rows whose margins spread over 1 cost about mu^2 of the objective: a warm start can
    afford that.
    """
    if problem.loss.smooth():
        return 0.0
    widest = WIDEST if problem.warm is None else float(np.sqrt(SMOOTHING_SHARE * problem.tolerance))
    return widest * threshold(problem.loss)
