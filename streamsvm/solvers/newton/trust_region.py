"""What leads Newton's method from point to point: a model of the objective, and how far it is trusted.

The model (``solvers.newton.surrogate``) is minimized while the half width mu of a rounded corner falls along the path of its
optima, so that the rows in the corner stay in it. The decrease it promised is compared with the decrease the next pass
finds: a model that is off is damped by a multiple of C sum s_i x_ij^2 over the rows it only estimates, and one that made
things worse is minimized again from where it stood.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.compute.passes.newton import squares
from streamsvm.losses import round_corners, threshold
from streamsvm.rows import Float64
from streamsvm.solvers.newton.inner_solver import Descent
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.solvers.newton.surrogate import Surrogate
from streamsvm.solvers.point_evaluation import PointEvaluation
from streamsvm.tags import saved_as
from streamsvm.types import Problem

WIDEST, WIDE = 1.5, 0.5
"""mu of the first model, whose rows all bend at w = 0, and of the point it ends at, in margins."""
NARROWEST = 1e-6
SMOOTHING_SHARE = 0.3
"""The part of the tolerance that smoothing may take."""
THIN, THIN_PER_COMPONENT = 2_000, 40
"""The first model, which begins far from its minimum, is solved on every k-th row before: so many, at least."""
FIRST_DAMPING = 4.0
"""At first, in units of components / sampled rows."""
GOOD_RATIO, POOR_RATIO = 0.9, 0.4
"""Of the promised decrease: from here on the damping is eased, below it is tightened."""
DAMPING_DECREASE, DAMPING_INCREASE = 0.3, 4.0
NEGLIGIBLE_SHARE = 1e-5
"""Decreases below this share of the objective say nothing about the model."""


@saved_as("newton.trust_region")
@dataclass(slots=True)
class TrustRegion:
    """A model, what it was made at, and what it promised of the point it led to."""

    model: Surrogate
    """The model of the objective around the point that was evaluated last."""
    mu: float
    """At its center."""
    value: float
    """The rounded objective there."""
    damping: float
    """The multiple of C sum s_i x_ij^2, of rows only estimated, that components are damped by; set by ``accept``."""
    reference: float = 0.0
    """``value``, rounded as it is at the point led to; estimated."""
    promised: float = 0.0
    """Decrease from there."""

    def accept(self, found: PointEvaluation) -> bool:
        """Whether the step was worth taking; sets the damping by what it was worth."""
        if self.promised <= NEGLIGIBLE_SHARE * abs(found.value) or self.model.sample.complete:
            return True  # of all rows nothing was estimated: a model that is off by rounding is better made anew
        ratio = (self.reference - found.value) / self.promised
        self.damping = next_damping(self.damping, ratio)
        return ratio >= 0.0

    def begin(self, primal: float) -> tuple[Float64, float]:
        """The next w and mu after w = 0, where no model is wrong enough to be damped; see ``next_point``."""
        model, mu = self.model, self.mu
        floor, goal = self._floor(WIDE * threshold(model.problem.loss)), self._goal(primal)
        model.damping = np.zeros_like(model.center)
        w, step = model.center, len(model.factor) // max(THIN, THIN_PER_COMPONENT * len(model.center))
        if step > 1:
            w, mu = Descent(model.thinned(step)).follow(w, mu, floor, goal)
        return self._end(w, mu, floor, goal)

    def next_point(self, primal: float, narrowing: float, total: Float64) -> tuple[Float64, float]:
        """The next w and mu: the minimum of the model, mu no smaller than ``narrowing`` times what it was.

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
        """The part of ``total`` that is due to rows that were not certain to be in the sample."""
        sample = self.model.sample
        sure = (sample.probability >= 1.0).astype(np.float64)
        return np.maximum(total - squares(sample.X, sure * sample.s, self.model.problem.columns), 0.0)


def next_damping(damping: float, ratio: float) -> float:
    """What becomes of a damping when ``ratio`` of the decrease that was promised was found."""
    if ratio < 0.0:
        return damping * DAMPING_INCREASE * DAMPING_INCREASE
    if ratio < POOR_RATIO:
        return damping * DAMPING_INCREASE
    return damping * DAMPING_DECREASE if ratio > GOOD_RATIO else damping


def first_damping(sample: Sample, components: int) -> float:
    """Of the first model; one of all rows needs none."""
    return 0.0 if sample.complete else FIRST_DAMPING * components / len(sample.y)


def first_mu(problem: Problem) -> float:
    """Of the first pass. Rows whose margins spread over 1 cost about mu^2 of the objective: a warm start can afford that."""
    if problem.loss.smooth():
        return 0.0
    widest = WIDEST if problem.warm is None else float(np.sqrt(SMOOTHING_SHARE * problem.tolerance))
    return widest * threshold(problem.loss)
