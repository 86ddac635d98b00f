"""Newton's method on a model (``solvers.newton.surrogate``), with the corner of the loss narrowing on the way.

Reference: Keerthi and DeCoste, JMLR 2005 (Newton on the squared hinge).
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.certificate import scaled_dual
from streamsvm.compute.passes.newton import trial_pass
from streamsvm.losses import round_corners
from streamsvm.rows import Float64
from streamsvm.solvers.newton.hessian import Hessian
from streamsvm.solvers.newton.row_sample import Sample
from streamsvm.solvers.newton.surrogate import RowValues, Surrogate, model_at
from streamsvm.solvers.point_evaluation import PointEvaluation
from streamsvm.types import Loss, Problem

ITERATIONS = 40
HALF = 0.5
"""mu falls so in memory, from one problem to the next."""
DECREMENT = 1e-3
"""The model is minimized when a step promises less than this share of the tolerance, of its value ..."""
CRUDE = 1e-4
"""... and, on the way to a narrower corner, this share."""
SHARP = 0.02
"""... and half the squared gradient, which is what a dual value would lack, is this share of the tolerance."""
LENGTHS: Float64 = 0.5 ** np.arange(24, dtype=np.float64)
FIRST_TRIED, TRIED = 2, 6
"""Lengths tried at once: at first those that nearly always do, then more."""


class Descent:
    """Of one model, whose damping is set."""

    def __init__(self, model: Surrogate) -> None:
        self._model = model
        self._hessian = Hessian(model.sample.X, model.problem.columns, 1.0 + model.damping)

    def minimize(self, smooth: Loss, w: Float64, *, crude: bool = False) -> tuple[Float64, bool]:
        """Newton's method with step halving, from w; and whether it has arrived. After the model's deadline it stays."""
        model, tolerance = self._model, self._model.problem.tolerance
        for _ in range(ITERATIONS):
            if time.perf_counter() > model.deadline:
                break
            here = model.values_at(smooth, w)
            value, gradient = here.sums.smoothed + model.outer(w), model.gradient(here, w)
            step = self._hessian.step(here.second_derivatives, gradient)
            promise, norm = -float(gradient @ step), 0.5 * float(gradient @ gradient)
            if promise <= (CRUDE if crude else DECREMENT * tolerance) * abs(value) and (
                crude or norm <= SHARP * tolerance * abs(value)
            ):
                return w, True
            length = _length(model, smooth, here, w, step)
            if length == 0.0:
                break
            w = w + length * step
        return w, False

    def follow(self, w: Float64, mu: float, floor: float, goal: float) -> tuple[Float64, float]:
        """The minimum of the model and the mu it is for, from w, the corner narrowing on the way: not below ``floor``,
        and no further than to where smoothing costs ``goal``. mu = 0: the loss is smooth by itself.
        """
        loss = self._model.problem.loss
        w, solved = self.minimize(round_corners(loss, mu), w, crude=True)
        while mu and solved:
            smoothing = smoothing_of(self._model, round_corners(loss, mu), w)
            following = mu * max(HALF, float(np.sqrt(0.95 * goal / max(smoothing, goal))))
            if smoothing <= goal or following < 0.99 * floor:
                break
            nearer, solved = self.minimize(round_corners(loss, following), w, crude=True)
            mu, w = (following, nearer) if solved else (mu, w)
        return w, mu


def smoothing_of(model: Surrogate, smooth: Loss, w: Float64) -> float:
    """sum_i C_i (l(m_i) - b_i (1 - m_i)), by the sample."""
    found = model.values_at(smooth, w)
    return found.sums.losses - found.sums.linear + float(found.slopes @ found.f)


def polished_dual(  # noqa: PLR0917  a problem, a point and what is known of it
    problem: Problem, sample: Sample, smooth: Loss, found: PointEvaluation, w: Float64, deadline: float = np.inf
) -> float:
    """The dual value when the sample's a_i are solved for, all others being what they are at w."""
    model = model_at(problem, sample, sample.s.astype(np.float64), w)
    model.deadline = deadline
    before = model.values_at(smooth, w)
    model.shift = model.weighted_sum(before) - found.v
    after = model.values_at(smooth, Descent(model).minimize(smooth, w)[0])
    sums, v = found.sums.plus(before.sums, -1.0).plus(after.sums), model.weighted_sum(after) - model.shift
    return scaled_dual(problem.loss, sums.linear, sums.quadratic, float(v @ v))


def _length(model: Surrogate, smooth: Loss, here: RowValues, w: Float64, step: Float64) -> float:
    """The first of LENGTHS after which the model rises again; 0 where none lowers it."""
    y, C = model.sample.y, model.problem.C
    df = operators.margins(model.sample.X, step)
    least, best = here.sums.smoothed + model.outer(w), 0.0
    for start, stop in pairwise((0, *range(FIRST_TRIED, len(LENGTHS), TRIED), len(LENGTHS))):
        lengths = LENGTHS[start:stop]
        values = trial_pass(y, model.factor, here.f, df, C, smooth, lengths)
        for length, rows in zip(lengths.tolist(), values.tolist(), strict=True):
            value = rows + model.outer(w + length * step)
            if value < least:
                least, best = value, length
            elif best:
                return best
    return best
