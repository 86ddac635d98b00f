"""Newton steps from a sample, if not all rows fit in memory and there are too many columns for an explicit Hessian.

The next point is the minimizer of a model that has the curvature of a sample and the gradient of all rows
(``SampledSteps``). The model is solved like a problem whose rows are in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.columns import column_counts
from streamsvm.compute.passes.newton import squares
from streamsvm.losses import round_corners
from streamsvm.rows import CSR, Float64
from streamsvm.solvers.evaluation import PointEvaluation
from streamsvm.solvers.newton.in_memory import AllRows
from streamsvm.solvers.newton.priority_sampling import Sample
from streamsvm.solvers.newton.row_products import OuterTerms
from streamsvm.solvers.newton.trust_region import (
    FIRST_DAMPING,
    NEGLIGIBLE_SHARE,
    SMOOTHING_SHARE,
    Surrogate,
    model_of_stored_rows,
    next_damping,
    smoothing_of,
)
from streamsvm.types import Problem

DECREASE_SHARE, LEAST_GAP_SHARE = 0.1, 3e-4
"""A model is minimized to a gap of this fraction of its own decrease so far, or of this fraction of the problem's gap,
whichever is larger."""
DUAL_SHARE = 0.05
"""The dual problem of the sample is solved to a gap of this fraction of the problem's gap."""
MAX_DECREASE_SHARE, MAX_SMOOTHING = 0.1, 2.0
"""The dual problem of the sample is solved only if the last step predicted a decrease below this fraction of the
objective, and the smoothing term is at most this many times the tolerance."""
MAX_ADVANCES = 3
"""Maximum number of calls of ``AllRows.advance`` for one problem between two passes."""


class PassResult(NamedTuple):
    """The result of a pass, and the bounds so far."""

    evaluation: PointEvaluation
    """P, D and v at the point of the pass."""
    sample: Sample
    """The sample that the pass has drawn."""
    point: Float64
    """(p,) the point."""
    mu: float
    """The half-width of the smoothed kink in this pass; 0: none."""
    squares: Float64
    """sum_i s_i x_ij^2 (p,) over all rows."""
    primal: float
    """The least P so far."""
    dual: float
    """The largest D so far."""
    deadline: float
    """The time of ``time.perf_counter`` at which to stop."""

    @property
    def gap(self) -> float:
        """The duality gap. The largest D is at least 0, the value of a = 0."""
        return self.primal - max(self.dual, 0.0)


@saved_as("newton.out_of_core")
@dataclass(slots=True)
class SampledSteps:
    """Steps to the minimizers of damped sampled models, one step after each pass.

    A pass at w computes P, v = sum_i a_i y_i x_i of the slopes at w, and a sample S of the rows that contains row i
    with probability q_i. Around the best point c so far, with v_c from the pass that evaluated it, the model

        M(w) = 1/2 ||w||^2 + shift.w + sum_S C_i h(m_i) / q_i + 1/2 (w - c)' diag(damping) (w - c)

    has the gradient of P at c. It has the form of a problem whose rows are in memory, and is solved as one
    (``AllRows``) with the diagonal G = 1 + damping and the linear term q = shift - damping * c. The dual problem of the
    sample's a_i, with all other a_i fixed at the slopes, has the same form with G = 1 and -q = sum of a_i y_i x_i over
    the other rows. Solving it removes the gradient term from the gap, P - D = 1/2 ||grad||^2, which is large for long
    because of columns of large scale. What remains is about 1 / q times the distance of P from the optimum.

    The sample estimates (X' diag(h) X)_jj with a relative error of about 1 / sqrt(1 + k_j), where k_j counts the
    sampled rows with column j whose probability was below 1. With T_j = C sum s_i x_ij^2 over the rows with probability
    below 1, the model may lack that fraction of T_j, hence

        damping_j = delta T_j / sqrt(1 + k_j),

    where delta is adapted by the ratio of the measured to the predicted decrease. (Damping by T_j alone ignores what
    the sample knows, and takes twice as many passes.) The sample is needed only between two passes: after a step that
    increased P, a new model is built around the same c from the next sample.

    Reference: Shamir, Srebro and Zhang, ICML 2014 (DANE: a local model with the global gradient).
    """

    problem: Problem
    center: Float64
    """c (p,), the last accepted point."""
    v: Float64
    """sum_i a_i y_i x_i (p,) at ``center``."""
    value: float
    """P at ``center``, smoothed by ``mu``."""
    mu: float
    """The half-width of the smoothed kink at ``center``."""
    damping: float
    """delta."""
    reference: float = 0.0
    """An estimate of P at ``center``, smoothed with the mu of the next point."""
    predicted_decrease: float = np.inf
    """The predicted decrease of P, from ``reference``."""

    def accept(self, evaluation: PointEvaluation, point: Float64, mu: float) -> bool:
        """Make the evaluated point the center unless P has increased, and update the damping. Return whether it is the
        center.
        """
        if self.predicted_decrease > NEGLIGIBLE_SHARE * abs(evaluation.value):
            ratio = (self.reference - evaluation.value) / self.predicted_decrease
            self.damping = next_damping(self.damping, ratio)
            if ratio < 0.0:
                return False
        self.center, self.v, self.value, self.mu = point, evaluation.v, evaluation.value, mu
        return True

    def next_point(self, result: PassResult, narrowing: float) -> tuple[Float64, float]:
        """Return the minimizer (p,) of the model and its mu, which is at least ``narrowing`` times the former mu."""
        model, loss = self._model(result), self.problem.loss
        rounded_loss, mu = round_corners(loss, self.mu), self._next_mu(model, result.primal, narrowing)
        smooth = round_corners(loss, mu)
        outer = OuterTerms(1.0 + model.damping, model.shift - model.damping * self.center)
        rows = AllRows(
            replace(self.problem, loss=smooth), rows_with_weights(model), self.center, self.center, outer=outer
        )
        rows.target_gap, rows.decrease_share = LEAST_GAP_SHARE * result.gap, DECREASE_SHARE
        rows.advance_until_solved(result.deadline, MAX_ADVANCES)
        w = rows.best
        start, before = (model.value(h, self.center) for h in (smooth, rounded_loss))
        self.reference, self.predicted_decrease = self.value + start - before, start - model.value(smooth, w)
        return w, mu

    def improve_dual(self, result: PassResult) -> float:
        """Return D after the sample's dual variables are re-optimized, with all others fixed at the slopes of the pass;
        -inf if the point is still far from the optimum.
        """
        evaluation, problem = result.evaluation, self.problem
        if self.predicted_decrease > MAX_DECREASE_SHARE * abs(
            evaluation.value
        ) or evaluation.smoothing > MAX_SMOOTHING * problem.tolerance * abs(evaluation.primal):
            return -np.inf
        model = model_of_stored_rows(problem, result.sample, result.sample.s.astype(np.float64), result.point)
        slopes = model.values_at(round_corners(problem.loss, result.mu), result.point)
        outer = OuterTerms(np.ones_like(result.point), model.weighted_sum(slopes) - evaluation.v)
        rows = AllRows(problem, rows_with_weights(model), result.point, result.point, outer=outer)
        rows.target_gap = DUAL_SHARE * result.gap
        others = evaluation.sums.plus(slopes.sums, -1.0)
        rows.advance_until_solved(result.deadline, MAX_ADVANCES)
        return rows.dual + others.linear - others.quadratic

    def _model(self, result: PassResult) -> Surrogate:
        """Return the model of the pass's sample, with the gradient of all rows at the center."""
        sample, problem = result.sample, self.problem
        model = model_of_stored_rows(problem, sample, sample.s / sample.probability, self.center)
        model.shift = model.weighted_sum(model.values_at(round_corners(problem.loss, self.mu), self.center)) - self.v
        model.damping = self.damping * problem.C * uncertain_squares(sample, result.squares)
        return model

    def _next_mu(self, model: Surrogate, primal: float, narrowing: float) -> float:
        """Return the mu at which the smoothing term is its fraction of the tolerance, but at least ``narrowing`` times
        the current mu.
        """
        goal, loss = SMOOTHING_SHARE * self.problem.tolerance * primal, round_corners(self.problem.loss, self.mu)
        smoothing = smoothing_of(model, loss, self.center) if self.mu else 0.0
        return self.mu if smoothing <= goal else self.mu * max(narrowing, float(np.sqrt(goal / smoothing)))


def start_sampled_steps(
    problem: Problem, evaluation: PointEvaluation, sample: Sample, point: Float64, mu: float
) -> SampledSteps:
    """Return the steps after the first pass."""
    damping = FIRST_DAMPING * len(point) / len(sample.y)
    return SampledSteps(problem, point, evaluation.v, evaluation.value, mu, damping)


def uncertain_squares(sample: Sample, total: Float64) -> Float64:
    """Return T_j / C / sqrt(1 + k_j) (p,), the uncertainty of the sample about ``total`` = sum_i s_i x_ij^2 over all
    rows.
    """
    is_uncertain, columns = sample.probability < 1.0, len(total) - 1
    rest = np.maximum(total - squares(sample.X, np.where(is_uncertain, 0.0, sample.s), columns), 0.0)
    if isinstance(sample.X, CSR):
        counts = column_counts(sample.X, columns + 1, is_uncertain)
        counts[-1] = np.count_nonzero(is_uncertain)
    else:
        counts = np.full(columns + 1, np.count_nonzero(is_uncertain))
    return rest / np.sqrt(1.0 + counts)


def rows_with_weights(model: Surrogate) -> Sample:
    """Return the rows of the model, with the weights that they have in it."""
    return model.sample._replace(s=model.factor)
