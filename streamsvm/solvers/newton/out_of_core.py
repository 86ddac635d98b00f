"""Steps where rows do not fit the memory: by the Hessian of all rows where columns are few, by a sample where they are
many.

**By the Hessian** (``ExactSteps``): the second derivatives of all rows are summed up in readings that evaluate points.
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

**By a sample**: ``SampledSteps``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.columns import column_counts
from streamsvm.compute.passes.newton import squares
from streamsvm.losses import round_corners
from streamsvm.rows import CSR, Float64
from streamsvm.solvers.cholesky import factorize_after_rounding, solve_lower
from streamsvm.solvers.evaluation import PointEvaluation
from streamsvm.solvers.newton.in_memory import AllRows
from streamsvm.solvers.newton.model import (
    FIRST_DAMPING,
    NEGLIGIBLE_SHARE,
    SMOOTHING_SHARE,
    WARMUP_ROWS,
    WARMUP_ROWS_PER_COMPONENT,
    Descent,
    Surrogate,
    next_damping,
    polished_dual,
    smoothing_of,
)
from streamsvm.solvers.newton.row_products import OuterTerms
from streamsvm.solvers.newton.sample import Sample
from streamsvm.tags import saved_as
from streamsvm.types import Problem

MOST_COMPONENTS = 128
"""Components at most: the matrix then costs a reading no more than some evaluations."""
EXACT_SAMPLE_ROWS, EXACT_ROWS_PER_COMPONENT = 2_000, 200
"""Rows of S at most: the larger of this number and this number for each component."""
FALLS, ROUNDING = 1e-4, 1e-13
"""The share of the promised decrease by which P must fall; and the share of P below which differences say nothing."""
EXACT_ITERATIONS, SHORTEST = 30, 1e-6
"""Steps on M at most; and the least length of a step."""
SHORTEST_CUT = 1e-2
"""A step is cut to no less than half of this share, whatever rounding makes of the tangent."""
EXACT_DECREMENT = 1e-3
"""M is minimized when a step promises less than this share of the gap that is asked for."""
DECREASE_SHARE, LEAST_GAP_SHARE = 0.1, 3e-4
"""A model is minimized to the larger of this share of the decrease it promises and this share of the gap."""
DUAL_SHARE = 0.05
"""The sample's dual variables are solved for to this share of the gap."""
NEAR, WIDTHS = 0.1, 2.0
"""They are only where a step promises less than this share of the objective, and smoothing costs at most two
tolerances."""
ADVANCES = 3
"""Calls of ``AllRows.advance`` for one problem between two readings at most."""


@saved_as("newton.exact_model")
class ExactModel(NamedTuple):
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
        model = surrogate_around(problem, self.sample, self.factor, center)
        here = model.values_at(loss, w)
        before, shift = here.sums.smoothed, model.weighted_sum(here) - found.v + center
        enough = EXACT_DECREMENT * problem.tolerance * abs(found.primal)
        for _ in range(EXACT_ITERATIONS):
            gradient = shift + self.rest @ (w - center) - model.weighted_sum(here)
            hessian = self.rest + operators.gram(self.sample.X, here.second_derivatives, problem.columns)
            step = -factorize_after_rounding(hessian)(gradient)
            promised, length = -float(gradient @ step), 1.0
            while True:
                d = w + length * step - center
                here = model.values_at(loss, w + length * step)
                value = here.sums.smoothed - before + float(shift @ d) + 0.5 * float(d @ self.rest @ d)
                if value <= change - FALLS * length * promised or length < SHORTEST:
                    break
                length *= 0.5
            if length < SHORTEST:
                break
            w, change = w + length * step, value
            if promised <= enough:
                break
        return w, change


@saved_as("newton.exact_steps")
@dataclass(slots=True)
class ExactSteps:
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
    model: ExactModel | None = None
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
        model = surrogate_around(problem, sample, factor, point)
        own = operators.gram(sample.X, model.values_at(problem.loss, point).second_derivatives, problem.columns)
        whole = np.eye(len(point)) + hessian
        self.model = ExactModel(sample, factor, _positive_part(whole - own, whole))

    def polished_dual(self, problem: Problem, found: PointEvaluation, deadline: float) -> float:
        """Return the dual value when the a_i of S are solved for, all others being what they are at the point that was
        read.
        """
        if self.model is None:
            return found.dual
        f = operators.margins(self.model.sample.X, self.point)
        return polished_dual(problem, self.model.sample._replace(f=f), problem.loss, found, self.point, deadline)

    def start_step(self, problem: Problem, found: PointEvaluation, model: ExactModel) -> None:
        """Begin a step to the minimum of M at the point that was read."""
        point = self.point
        w, change = model.minimum(problem, found, point)
        self.center, self.value, self.length = point, found.value, 1.0
        self.direction, self.promised = w - point, -change


def worth_exact_steps(problem: Problem) -> bool:
    """Return whether all rows have a nonzero second derivative, and columns are few."""
    return not problem.loss.quadratic() and problem.columns + 1 <= MOST_COMPONENTS


def start_exact_steps(model: Surrogate, found: PointEvaluation) -> ExactSteps:
    """Return the step to about the minimum of a sample's model around the point of the first pass. Changed: its
    damping.
    """
    loss, w = model.problem.loss, model.center
    model.damping = np.zeros_like(w)
    thin = len(model.factor) // max(WARMUP_ROWS, WARMUP_ROWS_PER_COMPONENT * len(w))
    for one in (model.thin(thin), model) if thin > 1 else (model,):
        w, _ = Descent(one).minimize(loss, w, crude=True)
    return ExactSteps(model.center, found.value, w - model.center)


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


class Reading(NamedTuple):
    """The result of a reading, and the state of the run."""

    found: PointEvaluation
    """P, D and v at the point that was read at."""
    sample: Sample
    """Of its rows."""
    point: Float64
    """(p,) the point."""
    mu: float
    """Half the width of its rounded corners; 0: there are none."""
    squares: Float64
    """sum_i s_i x_ij^2 (p,) over all rows."""
    primal: float
    """The least P so far."""
    dual: float
    """The largest D so far."""
    deadline: float
    """When to stop, by ``time.perf_counter``."""

    @property
    def gap(self) -> float:
        """The gap; D is never below that of a = 0."""
        return self.primal - max(self.dual, 0.0)


@saved_as("newton.out_of_core")
@dataclass(slots=True)
class SampledSteps:
    """Where rows do not fit the memory and columns are too many for a matrix: the next point from a sample, one reading
    a step.

    A reading at w gives P, v = sum_i a_i y_i x_i of the slopes there, and a sample S of the rows, row i found with
    probability q_i. Around the best point c met so far, with v_c of the reading that met it, the model

        M(w) = 1/2 ||w||^2 + shift.w + sum_S C_i h(m_i) / q_i + 1/2 (w - c)' diag(damping) (w - c)

    has the gradient of P at c. It is of the shape of a problem whose rows are in memory, and solved as one
    (``AllRows``): diagonal G = 1 + damping, linear term q = shift - damping * c. So is the dual problem of the sample's
    a_i with all other a_i fixed at the slopes: there G = 1 and -q = sum of a_i y_i x_i over the others. It takes a
    gradient away that is large in columns of large scale, and turns a bound that would come late,
    P - D = 1/2 ||grad||^2, into one some 1 / q times as far from the optimum as P is.

    The sample tells (X' diag(h) X)_jj to a share of about 1 / sqrt(1 + k_j), k_j the rows in it that have column j and
    were not certain to be: so much of T_j = C sum s_i x_ij^2 over those rows the model may lack, and

        damping_j = delta T_j / sqrt(1 + k_j),

    delta by what the last model promised and the next reading found. (T_j alone holds every column back as if S said
    nothing of it: that takes twice the readings.) A sample is needed between two readings only: a model that misled is
    made again, around the same c.

    Reference: Shamir, Srebro and Zhang, ICML 2014 (DANE: a local model with the gradient of the whole).
    """

    problem: Problem
    """What is solved."""
    center: Float64
    """c (p,), the last point that was no worse than the one before."""
    v: Float64
    """sum_i a_i y_i x_i (p,) there."""
    value: float
    """P there, with corners rounded by ``mu``."""
    mu: float
    """Half the width of the corners there."""
    damping: float
    """delta."""
    reference: float = 0.0
    """``value`` with corners as they are at the point led to; estimated."""
    promised: float = np.inf
    """Decrease from there."""

    def accept(self, found: PointEvaluation, point: Float64, mu: float) -> bool:
        """Make the point of the reading the center, unless it is worse; set the damping by what the step was worth."""
        if self.promised > NEGLIGIBLE_SHARE * abs(found.value):
            ratio = (self.reference - found.value) / self.promised
            self.damping = next_damping(self.damping, ratio)
            if ratio < 0.0:
                return False
        self.center, self.v, self.value, self.mu = point, found.v, found.value, mu
        return True

    def next_point(self, reading: Reading, narrowing: float) -> tuple[Float64, float]:
        """Return the minimum (p,) of the model, and the half width of corners there, at least ``narrowing`` times what
        it was.
        """
        model, loss = self._model(reading), self.problem.loss
        here, mu = round_corners(loss, self.mu), self._next_mu(model, reading.primal, narrowing)
        smooth = round_corners(loss, mu)
        outer = OuterTerms(1.0 + model.damping, model.shift - model.damping * self.center)
        rows = AllRows(replace(self.problem, loss=smooth), weighted_rows(model), self.center, self.center, outer=outer)
        rows.wanted, rows.share = LEAST_GAP_SHARE * reading.gap, DECREASE_SHARE
        rows.advance_until_solved(reading.deadline, ADVANCES)
        w = rows.best
        start, before = (model.value(h, self.center) for h in (smooth, here))
        self.reference, self.promised = self.value + start - before, start - model.value(smooth, w)
        return w, mu

    def dual(self, reading: Reading) -> float:
        """Return D with the sample's dual variables solved for and all others at the slopes of the reading; -inf where
        it is far off.
        """
        found, problem = reading.found, self.problem
        if self.promised > NEAR * abs(found.value) or found.smoothing > WIDTHS * problem.tolerance * abs(found.primal):
            return -np.inf
        model = surrogate_around(problem, reading.sample, reading.sample.s.astype(np.float64), reading.point)
        slopes = model.values_at(round_corners(problem.loss, reading.mu), reading.point)
        outer = OuterTerms(np.ones_like(reading.point), model.weighted_sum(slopes) - found.v)
        rows = AllRows(problem, weighted_rows(model), reading.point, reading.point, outer=outer)
        rows.wanted = DUAL_SHARE * reading.gap
        others = found.sums.plus(slopes.sums, -1.0)
        rows.advance_until_solved(reading.deadline, ADVANCES)
        return rows.dual + others.linear - others.quadratic

    def _model(self, reading: Reading) -> Surrogate:
        """Return the model of the reading's sample, with the gradient of the whole at the center."""
        sample, problem = reading.sample, self.problem
        model = surrogate_around(problem, sample, sample.s / sample.probability, self.center)
        model.shift = model.weighted_sum(model.values_at(round_corners(problem.loss, self.mu), self.center)) - self.v
        model.damping = self.damping * problem.C * unknown_squares(sample, reading.squares)
        return model

    def _next_mu(self, model: Surrogate, primal: float, narrowing: float) -> float:
        """Return the half width of corners at which smoothing costs its share of the tolerance, as far as one step may
        narrow.
        """
        goal, loss = SMOOTHING_SHARE * self.problem.tolerance * primal, round_corners(self.problem.loss, self.mu)
        smoothing = smoothing_of(model, loss, self.center) if self.mu else 0.0
        return self.mu if smoothing <= goal else self.mu * max(narrowing, float(np.sqrt(goal / smoothing)))


def start_sampled_steps(
    problem: Problem, found: PointEvaluation, sample: Sample, point: Float64, mu: float
) -> SampledSteps:
    """Return the steps after the first reading."""
    damping = FIRST_DAMPING * len(point) / len(sample.y)
    return SampledSteps(problem, point, found.v, found.value, mu, damping)


def unknown_squares(sample: Sample, total: Float64) -> Float64:
    """Return T_j / C / sqrt(1 + k_j) (p,): what a sample may be wrong about of ``total`` = sum_i s_i x_ij^2 over all
    rows.
    """
    unsure, columns = sample.probability < 1.0, len(total) - 1
    left = np.maximum(total - squares(sample.X, np.where(unsure, 0.0, sample.s), columns), 0.0)
    if isinstance(sample.X, CSR):
        counts = column_counts(sample.X, columns + 1, unsure)
        counts[-1] = np.count_nonzero(unsure)
    else:
        counts = np.full(columns + 1, np.count_nonzero(unsure))
    return left / np.sqrt(1.0 + counts)


def surrogate_around(problem: Problem, sample: Sample, factor: Float64, center: Float64) -> Surrogate:
    """Return a model without shift and damping, each row counted ``factor`` (n,) times.

    Rows are as they are stored: margins in memory are those of the reading.
    """
    zero = np.zeros_like(center)
    return Surrogate(problem, sample, factor, center, zero, zero, np.zeros(len(factor)))


def weighted_rows(model: Surrogate) -> Sample:
    """Return the rows, each with the weight it has in the model."""
    return model.sample._replace(s=model.factor)
