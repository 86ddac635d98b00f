"""Steps where rows do not fit the memory, columns are few, and all rows have a second derivative (the logistic loss): the
second derivatives of all rows, X' diag(C_i l''(m_i)) X, are summed up in readings that evaluate points.

A sample of rows leads to the first point. Where the loss bends by pieces the rows that bend near a point are few, and
the next sample has nearly all of them; the logistic loss bends everywhere, and a sample of a tenth of the rows is never
more than that. Of few columns H = X' diag(C_i l''(m_i)) X of all rows costs a reading no more than some evaluations.
With c the point that was read,

    M(w) = sum_S C_i l(m_i) / probability_i + shift.w + 1/2 (w - c)' [I + H - H_S]+ (w - c)

has the gradient of P at c and, but for directions in which the sample S bends more than all rows do, its Hessian; how
that changes on the way is as in S, in which rows that are much of one of their columns are for certain. []+ leaves out
negative eigenvalues, so that M is convex. (Without S, with Newton's steps alone, covtype takes five readings to 1e-3 in
place of three.) M is minimized in memory. The reading after that does not sum H up again: mostly it is the last one,
and else the old H, with the new gradient, does for a step. Where P did not fall the step is cut by P's tangent, and H
is summed up in every reading until one was taken whole.
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
from streamsvm.solvers.cholesky import factorize_after_rounding, solve_lower
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

MOST_COMPONENTS = 128
"""Components at most: the matrix then costs a reading no more than some evaluations."""
EXACT_SAMPLE_ROWS, EXACT_ROWS_PER_COMPONENT = 2_000, 200
"""Rows of S at most: the larger of the first number and the second for each component."""
FALLS, ROUNDING = 1e-4, 1e-13
"""The share of the promised decrease by which P must fall; and the share of P below which differences say nothing."""
START_DECREMENT = 1e-2
"""The first sample's model is minimized until a step promises less than this share of its value: its minimum, where a
column is in few rows of the sample, is farther from that of all rows."""
EXACT_ITERATIONS = 30
"""Steps on M at most."""
SHORTEST_CUT = 1e-2
"""A step is cut to no less than half of this share, whatever rounding makes of the tangent."""
EXACT_DECREMENT = 1e-3
"""M is minimized when a step promises less than this share of the gap that is asked for."""


@saved_as("newton.exact_model")
class FullHessianModel(NamedTuple):
    """M but for the point it is made at."""

    sample: Sample
    """The rows S."""
    factor: Float64
    """(n,) how often each of them counts, its weight included."""
    rest: Float64
    """(p, p) [I + H - H_S]+, as they were when H was summed up last."""

    def minimum(self, problem: Problem, found: PointEvaluation, center: Float64) -> tuple[Float64, float]:
        """Return about the least point (p,) of M, made at ``center`` (p,) from what a pass found there, and M less its
        value there.
        """
        loss, w, change = problem.loss, center, 0.0
        model = model_of_stored_rows(problem, self.sample, self.factor, center)
        here = model.values_at(loss, w)
        before, shift = here.sums.smoothed, model.weighted_sum(here) - found.v + center
        enough = EXACT_DECREMENT * problem.tolerance * abs(found.primal)
        for _ in range(EXACT_ITERATIONS):
            gradient = shift + self.rest @ (w - center) - model.weighted_sum(here)
            hessian = self.rest + operators.gram(self.sample.X, here.second_derivatives, problem.columns)
            step = -factorize_after_rounding(hessian)(gradient)
            df = operators.margins(self.sample.X, step)
            row_slopes = partial(line_pass, self.sample.y, self.factor, here.f, df, problem.C, loss)
            curve = self.rest @ step
            length = find_step_length(row_slopes, (float(shift @ step + (w - center) @ curve), float(step @ curve)))
            if length <= 0.0:
                break
            w = w + length * step
            here, d = model.values_at(loss, w), w - center
            change = here.sums.smoothed - before + float(shift @ d) + 0.5 * float(d @ self.rest @ d)
            if -float(gradient @ step) <= enough:
                break
        return w, change


@saved_as("newton.exact_steps")
@dataclass(slots=True)
class FullHessianSteps:
    """What led to the point of the pass under way."""

    center: Float64
    """(p,) where the step begins: the last point that was taken."""
    value: float
    """P there."""
    direction: Float64
    """(p,) the whole step."""
    promised: float = 0.0
    """What P was to fall by, if M were P."""
    length: float = 1.0
    """How much of the step was gone."""
    model: FullHessianModel | None = None
    """What was known of H when it was summed up last."""

    @property
    def point(self) -> Float64:
        """Where the pass looks (p,)."""
        return self.center + self.length * self.direction

    def accept(self, found: PointEvaluation) -> bool:
        """Return whether P has fallen; where it has not, the step is cut.

        P is convex, and so nowhere below its tangent at the point that was read: less than at the center only nearer
        than where that tangent is. Half of the way there is looked at next, at most half of this one.
        """
        rise = found.value - self.value
        if rise <= ROUNDING * abs(found.value) - FALLS * self.length * self.promised:
            return True
        slope = float((self.point - found.v) @ self.direction)
        nearer = self.length - max(rise, 0.0) / slope if slope > 0.0 else self.length
        self.length *= 0.5 * max(nearer / self.length, SHORTEST_CUT)
        return False

    def renew(self, problem: Problem, sample: Sample, hessian: Float64, point: Float64) -> None:
        """Take H (p, p) of a pass at ``point`` (p,), and its sample for S."""
        factor = sample.s / sample.probability
        model = model_of_stored_rows(problem, sample, factor, point)
        own = operators.gram(sample.X, model.values_at(problem.loss, point).second_derivatives, problem.columns)
        whole = np.eye(len(point)) + hessian
        self.model = FullHessianModel(sample, factor, _positive_part(whole - own, whole))

    def polish_dual(self, problem: Problem, found: PointEvaluation, deadline: float) -> float:
        """Return the dual value when the a_i of S are solved for, all others being what they are at the point that was
        read.
        """
        if self.model is None:
            return found.dual
        f = operators.margins(self.model.sample.X, self.point)
        return polish_dual(problem, self.model.sample._replace(f=f), problem.loss, found, self.point, deadline)

    def start_step(self, problem: Problem, found: PointEvaluation, model: FullHessianModel) -> None:
        """Begin a step to the minimum of M at the point that was read."""
        point = self.point
        w, change = model.minimum(problem, found, point)
        self.center, self.value, self.length = point, found.value, 1.0
        self.direction, self.promised = w - point, -change


def is_full_hessian_cheap(problem: Problem) -> bool:
    """Return whether all rows have a nonzero second derivative, and columns are few."""
    return not problem.loss.quadratic() and problem.columns + 1 <= MOST_COMPONENTS


def start_full_hessian(model: Surrogate, found: PointEvaluation) -> FullHessianSteps:
    """Return the step to about the minimum of a sample's model around the point of the first pass. Changed: its
    damping.
    """
    loss, w = model.problem.loss, model.center
    model.damping = np.zeros_like(w)
    thin = len(model.factor) // max(WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT * len(w))
    for one in (model.thin(thin), model) if thin > 1 else (model,):
        w, _ = Descent(one).minimize(loss, w, crude=START_DECREMENT)
    return FullHessianSteps(model.center, found.value, w - model.center)


def exact_sample_rows(problem: Problem) -> int:
    """Return how many rows a pass keeps in which second derivatives are summed up."""
    return min(problem.rows, max(EXACT_SAMPLE_ROWS, EXACT_ROWS_PER_COMPONENT * (problem.columns + 1)))


def _positive_part(part: Float64, whole: Float64) -> Float64:
    """Return ``part`` (p, p) without its negative directions, as ``whole`` (p, p), which is positive definite, measures
    them.
    """
    lower = np.linalg.cholesky(whole)
    scaled = solve_lower(lower, solve_lower(lower, part).T)
    values, vectors = np.linalg.eigh(0.5 * (scaled + scaled.T))
    half = (lower @ vectors) * np.sqrt(np.maximum(values, 0.0))
    return half @ half.T
