"""Steps where rows do not fit the memory and columns are too many for a matrix: the next point is the minimum of a
sample's model with the gradient of all rows (``SampledSteps``), which is solved like a problem whose rows are in memory.
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
"""A model is minimized to the larger of this share of the decrease it promises and this share of the gap."""
DUAL_SHARE = 0.05
"""The sample's dual variables are solved for to this share of the gap."""
NEAR, WIDTHS = 0.1, 2.0
"""They are only where a step promises less than this share of the objective, and smoothing costs at most two
tolerances."""
ADVANCES = 3
"""Calls of ``AllRows.advance`` for one problem between two readings at most."""


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
        model = model_of_stored_rows(problem, reading.sample, reading.sample.s.astype(np.float64), reading.point)
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
        model = model_of_stored_rows(problem, sample, sample.s / sample.probability, self.center)
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


def weighted_rows(model: Surrogate) -> Sample:
    """Return the rows, each with the weight it has in the model."""
    return model.sample._replace(s=model.factor)
