"""A model of the whole objective on rows that fit in memory, and Newton's method on it.

Around a point c where gradient and value of the objective are known, with rows S of a sample (``solvers.sketch``),

    M(w) = 1/2 ||w||^2 + sum_S C_i h(m_i) / q_i + shift.w + 1/2 (w - c)' diag(brake) (w - c).

``shift`` gives M the true gradient at c: what is left to sampling is how the gradient changes on the way, and that a
row can leave the corner of its loss, or enter it, is in M. Rows of which a component has but a few are all in S.
``brake`` holds back components about which S says little. References: Shamir, Srebro, Zhang, ICML 2014 (DANE);
Keerthi and DeCoste, JMLR 2005 (Newton on the squared hinge).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from streamsvm.compute import operators
from streamsvm.compute.certificate import RowLoss, scaled_dual
from streamsvm.compute.newton import slopes_pass, squares, trial_pass
from streamsvm.losses import rounded
from streamsvm.rows import Dense, Float64, Rows, row_where
from streamsvm.solvers.evaluation import Found, Sums
from streamsvm.solvers.sketch import Sample
from streamsvm.types import Problem

EXPLICIT, DENSE_EXPLICIT = 1500, 4000
"""Up to as many components the Hessian is a matrix, of sparse and of dense rows; beyond, conjugate gradients meet it in
products only. A dense one costs no more than the products, and its steps are exact."""
ITERATIONS = 40
HALF = 0.5
"""mu falls so in memory, from one problem to the next."""
DECREMENT = 1e-3
"""The model is minimised when a step promises less than this share of the tolerance, of its value ..."""
CRUDE = 1e-4
"""... and, on the way to a narrower corner, this share."""
SHARP = 0.02
"""... and half the squared gradient, which is what a dual value would lack, is this share of the tolerance."""
LENGTHS: Float64 = 0.5 ** np.arange(24, dtype=np.float64)
TRIED = 6
"""Lengths tried at once."""
PRODUCTS = 200
"""Hessian products a step may take."""


class Look(NamedTuple):
    """The model's rows at a point; all (n,)."""

    sums: Sums
    slopes: Float64
    bends: Float64
    f: Float64


@dataclass(slots=True)
class Model:
    """See above; ``factor`` (n,) is s_i / q_i, or s_i where the rest of the rows is fixed, not estimated."""

    problem: Problem
    sample: Sample
    factor: Float64
    center: Float64
    shift: Float64
    brake: Float64

    def look(self, smooth: Any, w: Float64) -> Look:
        problem, f = self.problem, operators.margins(self.sample.X, w)
        slopes, bends = np.empty(len(f)), np.empty(len(f))
        sums = slopes_pass(self.sample.y, self.factor, f, RowLoss(problem.C, problem.loss, smooth), slopes, bends)
        return Look(Sums(*sums), slopes, bends, f)

    def pull(self, look: Look) -> Float64:
        """V (p,) = X' slopes."""
        return operators.adjoint(self.sample.X, look.slopes, self.problem.columns)

    def thinned(self, step: int) -> Model:
        """Every ``step``-th row, standing for that many."""
        chosen = np.zeros(len(self.factor), np.bool_)
        chosen[::step] = True
        X, y, s, probability = self.sample
        sample = Sample(row_where(X, chosen), y[chosen], s[chosen], probability[chosen])
        return Model(self.problem, sample, step * self.factor[chosen], self.center, self.shift, self.brake)

    def outer(self, w: Float64) -> float:
        """What of M(w) is not a sum over rows."""
        d = w - self.center
        return 0.5 * float(w @ w) + float(self.shift @ w) + 0.5 * float(self.brake @ (d * d))

    def value(self, smooth: Any, w: Float64) -> float:
        """M(w) without the brake: an estimate of the objective, but for a constant."""
        return self.look(smooth, w).sums.smoothed + 0.5 * float(w @ w) + float(self.shift @ w)

    def gradient(self, look: Look, w: Float64) -> Float64:
        return w + self.shift + self.brake * (w - self.center) - self.pull(look)


def minimise(model: Model, smooth: Any, w: Float64, *, crude: bool = False) -> tuple[Float64, bool]:
    """Newton's method with step halving on the model, from w; and whether it has arrived."""
    sharp = SHARP * model.problem.tolerance
    for _ in range(ITERATIONS):
        here = model.look(smooth, w)
        value, gradient = here.sums.smoothed + model.outer(w), model.gradient(here, w)
        step = _step(model, here, gradient)
        promise, norm = -float(gradient @ step), 0.5 * float(gradient @ gradient)
        if promise <= (CRUDE if crude else DECREMENT * model.problem.tolerance) * abs(value) and (
            crude or norm <= sharp * abs(value)
        ):
            return w, True
        length = _length(model, smooth, here, w, step)
        if length == 0.0:
            break
        w = w + length * step
    return w, False


def follow(model: Model, w: Float64, mu: float, floor: float, goal: float) -> tuple[Float64, float]:
    """The minimum of the model and the mu it is for, from w, the corner narrowing on the way: not below ``floor``, and no
    further than to where smoothing costs ``goal``. mu = 0: the loss is smooth by itself.
    """
    loss = model.problem.loss
    w, solved = minimise(model, rounded(loss, mu), w, crude=True)
    while mu and solved:
        smoothing = smoothing_of(model, rounded(loss, mu), w)
        following = mu * max(HALF, float(np.sqrt(0.95 * goal / max(smoothing, goal))))
        if smoothing <= goal or following < 0.99 * floor:
            break
        nearer, solved = minimise(model, rounded(loss, following), w, crude=True)
        mu, w = (following, nearer) if solved else (mu, w)
    return w, mu


def smoothing_of(model: Model, smooth: Any, w: Float64) -> float:
    """sum_i C_i (l(m_i) - b_i (1 - m_i)), by the sample."""
    found = model.look(smooth, w)
    return found.sums.losses - found.sums.linear + float(found.slopes @ found.f)


def polished_dual(problem: Problem, sample: Sample, smooth: Any, found: Found, w: Float64) -> float:
    """The dual value when the sample's a_i are solved for, all others being what they are at w."""
    model = Model(problem, sample, sample.s.astype(np.float64), w, np.zeros_like(w), np.zeros_like(w))
    before = model.look(smooth, w)
    model.shift = model.pull(before) - found.v
    after = model.look(smooth, minimise(model, smooth, w)[0])
    sums, v = found.sums.plus(before.sums, -1.0).plus(after.sums), model.pull(after) - model.shift
    return scaled_dual(problem.loss, sums.linear, sums.quadratic, float(v @ v))


def _length(model: Model, smooth: Any, here: Look, w: Float64, step: Float64) -> float:
    """The first of LENGTHS after which the model rises again; 0 where none lowers it."""
    y, C = model.sample.y, model.problem.C
    df = operators.margins(model.sample.X, step)
    least, best = here.sums.smoothed + model.outer(w), 0.0
    for start in range(0, len(LENGTHS), TRIED):
        lengths = LENGTHS[start : start + TRIED]
        values = trial_pass(y, model.factor, here.f, df, C, smooth, lengths)
        for length, rows in zip(lengths.tolist(), values.tolist(), strict=True):
            value = rows + model.outer(w + length * step)
            if value < least:
                least, best = value, length
            elif best:
                return best
    return best


def _step(model: Model, here: Look, gradient: Float64) -> Float64:
    """-(Hessian)^-1 gradient."""
    X, columns = model.sample.X, model.problem.columns
    diagonal = 1.0 + model.brake
    if len(gradient) > most_explicit(dense=isinstance(X, Dense)):
        return _conjugate_gradients(X, here.bends, diagonal, -gradient, columns)
    matrix = operators.gram(X, here.bends, columns)
    matrix[np.diag_indices_from(matrix)] += diagonal
    return newton_step(gradient, matrix)


def most_explicit(*, dense: bool) -> int:
    """Components up to which the Hessian is a matrix."""
    return DENSE_EXPLICIT if dense else EXPLICIT


def newton_step(gradient: Float64, matrix: Float64) -> Float64:
    """-matrix^-1 gradient; where rounding has made the matrix indefinite, its eigenvalues are lifted to 1."""
    try:
        step: Float64 = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), -gradient)
    except scipy.linalg.LinAlgError:
        values, vectors = scipy.linalg.eigh(matrix)
        step = vectors @ ((vectors.T @ -gradient) / np.maximum(values, 1.0))
    return step


def _conjugate_gradients(X: Rows, bends: Float64, diagonal: Float64, right: Float64, columns: int) -> Float64:
    """Solves (diag(diagonal) + X' diag(bends) X) x = right, to a hundredth, scaled by the matrix's own diagonal."""
    chosen = bends > 0.0
    rows, weights = row_where(X, chosen), bends[chosen]
    scale = 1.0 / (diagonal + squares(rows, weights, columns))
    x, residual = np.zeros_like(right), right.copy()
    z = scale * residual
    direction, fit = z.copy(), float(residual @ z)
    enough = 1e-4 * fit
    for _ in range(PRODUCTS):
        if fit <= enough:
            break
        image = diagonal * direction + operators.adjoint(rows, weights * operators.margins(rows, direction), columns)
        length = fit / float(direction @ image)
        x += length * direction
        residual -= length * image
        z = scale * residual
        fit, before = float(residual @ z), fit
        direction = z + (fit / before) * direction
    return x
