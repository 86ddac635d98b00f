"""Newton steps with the Hessian of all rows, if rows do not fit in memory, columns are few, and every row has
curvature.

Passes that evaluate a point also accumulate H = X' diag(C_i l''(m_i)) X over all rows. The loss is the logistic one.

The first step uses a sample of rows alone. For piecewise quadratic losses few rows have curvature near a point, and a
sample contains nearly all of them. With the logistic loss every row has curvature, so that a sample of a tenth of the
rows estimates only a tenth of it exactly. With few columns, accumulating H costs a pass no more than a few evaluations.
With c the evaluated point,

    M(w) = sum_S C_i l(m_i) / probability_i + shift.w + 1/2 (w - c)' [I + H - H_S]+ (w - c)

has the gradient of P at c. It also has the Hessian of P at c, except in directions in which the sample S has more
curvature than all rows. Away from c the Hessian changes as that of S, which contains all rows of high leverage. []+
drops negative eigenvalues, so that M is convex. (Without S, with plain Newton steps, covtype takes five passes to 1e-3
instead of three.) M is minimized in memory. The next pass does not accumulate H again: mostly it is the last one, and
otherwise the old H with the new gradient is good enough for one step. If P did not fall, the step is shortened by means
of the tangent of P, and every pass accumulates H until a full step succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.rows_in_memory import line_pass
from streamsvm.rows import Float64
from streamsvm.solvers.cholesky import factorize_despite_rounding, solve_lower
from streamsvm.solvers.evaluation import PointEvaluation
from streamsvm.solvers.line_search import find_step_length
from streamsvm.solvers.newton.priority_sampling import Sample
from streamsvm.solvers.newton.trust_region import (
    WARMUP_ROWS,
    WARMUP_ROWS_PER_COMPONENT,
    Descent,
    Surrogate,
    model_of_stored_rows,
    polish_dual,
)
from streamsvm.types import Problem

MAX_COMPONENTS = 128
"""Maximum number of components (columns + 1): up to here accumulating H costs a pass no more than a few evaluations."""
SAMPLE_ROWS, SAMPLE_ROWS_PER_COMPONENT = 2_000, 200
"""Maximum number of rows of S: the first number, or the second times the components, whichever is larger."""
MIN_DECREASE_RATIO, ROUNDING = 1e-4, 1e-13
"""The fraction of the predicted decrease by which P must fall, and the fraction of P below which differences are
rounding errors."""
START_DECREMENT = 1e-2
"""The first sample's model is minimized until a step predicts a decrease below this fraction of its value. Its exact
minimizer would be farther from that of all rows if a column is in few rows of the sample."""
MAX_ITERATIONS = 30
"""Maximum number of Newton steps on M."""
LEAST_CUT = 1e-2
"""Backtracking multiplies the step length by at least half of this factor, even if rounding errors distort the
tangent."""
GAP_SHARE = 1e-3
"""M counts as minimized when a step predicts a decrease below this fraction of the tolerated gap."""


@saved_as("newton.exact_model")
class FullHessianModel(NamedTuple):
    """The parts of M that do not depend on the point c."""

    sample: Sample
    """The rows S."""
    factor: Float64
    """(n,) how often each row of S counts, its weight s_i included."""
    rest: Float64
    """(p, p) [I + H - H_S]+ at the point at which H was last accumulated."""

    def minimum(self, problem: Problem, evaluation: PointEvaluation, center: Float64) -> tuple[Float64, float]:
        """Return the approximate minimizer (p,) of M for c = ``center`` (p,), and the change of M from c to it.

        ``evaluation``: that of ``center``.
        """
        loss, w, change = problem.loss, center, 0.0
        model = model_of_stored_rows(problem, self.sample, self.factor, center)
        current = model.values_at(loss, w)
        before, shift = current.sums.smoothed, model.weighted_sum(current) - evaluation.v + center
        enough = GAP_SHARE * problem.tolerance * abs(evaluation.primal)
        for _ in range(MAX_ITERATIONS):
            gradient = shift + self.rest @ (w - center) - model.weighted_sum(current)
            hessian = self.rest + operators.gram(self.sample.X, current.second_derivatives, problem.columns)
            step = -factorize_despite_rounding(hessian)(gradient)
            df = operators.margins(self.sample.X, step)
            row_slopes = partial(line_pass, self.sample.y, self.factor, current.f, df, problem.C, loss)
            curve = self.rest @ step
            length = find_step_length(row_slopes, (float(shift @ step + (w - center) @ curve), float(step @ curve)))
            if length <= 0.0:
                break
            w = w + length * step
            current, d = model.values_at(loss, w), w - center
            change = current.sums.smoothed - before + float(shift @ d) + 0.5 * float(d @ self.rest @ d)
            if -float(gradient @ step) <= enough:
                break
        return w, change


@saved_as("newton.exact_steps")
@dataclass(slots=True)
class FullHessianSteps:
    """The step whose end the current pass evaluates."""

    center: Float64
    """(p,) the last accepted point, at which the step begins."""
    value: float
    """P at ``center``."""
    direction: Float64
    """(p,) the full step."""
    predicted_decrease: float = 0.0
    """The predicted decrease of P for the full step."""
    length: float = 1.0
    """The fraction of the full step to the evaluated point."""
    model: FullHessianModel | None = None
    """The model made when H was last accumulated."""

    @property
    def point(self) -> Float64:
        """The point (p,) that the pass evaluates."""
        return self.center + self.length * self.direction

    def accept(self, evaluation: PointEvaluation) -> bool:
        """Return whether P has fallen. If it has not, shorten the step.

        P is convex, so it is nowhere below its tangent at the evaluated point. Values below that at the center are only
        possible between the center and the point at which the tangent equals it. The next length is half of that
        distance, and at most half of the current length.
        """
        rise = evaluation.value - self.value
        if rise <= ROUNDING * abs(evaluation.value) - MIN_DECREASE_RATIO * self.length * self.predicted_decrease:
            return True
        slope = float((self.point - evaluation.v) @ self.direction)
        longest = self.length - max(rise, 0.0) / slope if slope > 0.0 else self.length
        self.length *= 0.5 * max(longest / self.length, LEAST_CUT)
        return False

    def renew(self, problem: Problem, sample: Sample, hessian: Float64, point: Float64) -> None:
        """Replace the model by one of the pass at ``point`` (p,): its Hessian H (p, p), and its sample as S."""
        factor = sample.s / sample.probability
        model = model_of_stored_rows(problem, sample, factor, point)
        of_sample = operators.gram(sample.X, model.values_at(problem.loss, point).second_derivatives, problem.columns)
        of_all = np.eye(len(point)) + hessian
        self.model = FullHessianModel(sample, factor, _positive_part(of_all - of_sample, of_all))

    def polish_dual(self, problem: Problem, evaluation: PointEvaluation, deadline: float) -> float:
        """Return the dual value after the a_i of S are re-optimized, with all other a_i fixed at the slopes at the
        evaluated point.
        """
        if self.model is None:
            return evaluation.dual
        f = operators.margins(self.model.sample.X, self.point)
        return polish_dual(problem, self.model.sample._replace(f=f), problem.loss, evaluation, self.point, deadline)

    def start_step(self, problem: Problem, evaluation: PointEvaluation, model: FullHessianModel) -> None:
        """Start a step from the evaluated point to the minimizer of M."""
        point = self.point
        w, change = model.minimum(problem, evaluation, point)
        self.center, self.value, self.length = point, evaluation.value, 1.0
        self.direction, self.predicted_decrease = w - point, -change


def is_full_hessian_cheap(problem: Problem) -> bool:
    """Return whether all rows have curvature (the conjugate is not quadratic) and columns are few."""
    return not problem.loss.quadratic() and problem.columns + 1 <= MAX_COMPONENTS


def start_full_hessian_steps(model: Surrogate, evaluation: PointEvaluation) -> FullHessianSteps:
    """Return the step from the point of the first pass to the approximate minimizer of its sample's model. Sets the
    damping of the model to 0.
    """
    loss, w = model.problem.loss, model.center
    model.damping = np.zeros_like(w)
    stride = len(model.factor) // max(WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT * len(w))
    for next_model in (model.subsample(stride), model) if stride > 1 else (model,):
        w, _ = Descent(next_model).minimize(loss, w, crude=START_DECREMENT)
    return FullHessianSteps(model.center, evaluation.value, w - model.center)


def full_hessian_sample_rows(problem: Problem) -> int:
    """Return how many rows are sampled in a pass that accumulates the Hessian."""
    return min(problem.rows, max(SAMPLE_ROWS, SAMPLE_ROWS_PER_COMPONENT * (problem.columns + 1)))


def _positive_part(part: Float64, whole: Float64) -> Float64:
    """Return ``part`` (p, p) without its negative eigenvalues, those of the generalized eigenproblem with the positive
    definite ``whole`` (p, p).
    """
    lower = np.linalg.cholesky(whole)
    scaled = solve_lower(lower, solve_lower(lower, part).T)
    values, vectors = np.linalg.eigh(0.5 * (scaled + scaled.T))
    half = (lower @ vectors) * np.sqrt(np.maximum(values, 0.0))
    return half @ half.T
