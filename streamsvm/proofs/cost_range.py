"""Enclose the exact optima of all C in a range, from one fit.

Notation, and the lemma that this rests on, are those of ``streamsvm.proofs.enclosure``. At weights w near the optimum for C0, v = sum_i a_i z_i x_i, g = w - v is
the gradient. For C = k C0 the gradient at w is

    u_k = w - k v = (1 - k) w + k g,

and a Hessian I + D of the first problem becomes I + k D. ``StepLevels`` gives, for steps e_j of several sizes, I + D_lo = H_lo and I + D_hi = H_hi, and the reach
min_j e_j / |x_j|_{H_lo^-1}. For all k in [k1, k2], on one side of 1, let H1 = I + k1 D_lo, H2 = I + k2 D_hi, k_far the end that is farther from 1, and

    r = |1 - k_far| |w|_{H1^-1} + rest,    rest = k2 |g|_{H1^-1} + sqrt(k2) D.

H1 >= min(1, k1) H_lo, so that |x_j|_{H1^-1} <= |x_j|_{H_lo^-1} / sqrt(min(1, k1)), and the lemma applies to all of these C if

    r  <  sqrt(min(1, k1)) reach.

Then w*_k = w + (k - 1) H^-1 w - H^-1 (k g - p) for a matrix H with H1 <= H <= H2. x.H^-1 w lies in the interval that ``enclose_from_both_sides`` gives for the weights 0
and the gradient -w, so that x.w*_k lies in x.w + (k - 1) times that interval, give or take |x|_{H1^-1} rest; for all k of the
range in the hull of what the two ends give. Where no level is enough, the ball with the diameter from w to w - u_k remains: its center is
linear and its radius convex in k, so that the hull of both ends contains it, too.

**A second look.** What is known now bounds the decision values of the training rows at the optima of the range, L_j <= x_j.w*_k <= U_j. The secants in H are those from
m_j to the margins there. So one pass adds up H_lo and H_hi for secants towards margins between z_j L_j and z_j U_j: a much shorter stretch than
|m' - m_j| <= e_j, and m_j need not lie in it. The equation of w*_k holds with these bounds without any condition, because no path from w to w*_k has to be followed. Two
fits on both sides of the range give a stretch each, and the rows are in their intersection.

References: the lemma and its use are ours; balls for ranges of C: Shibagaki, Suzuki, Karasuyama and Takeuchi, NIPS 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.compute.passes.enclosure import UNIT
from streamsvm.proofs.enclosure import (
    TILE,
    Enclosure,
    EvaluatedPoint,
    MarginRows,
    Metric,
    PassSums,
    PointWithHessian,
    ball_of_gradient,
    enclose_between,
    hessian,
    invert,
    secants_towards,
    weighted_gram,
)
from streamsvm.proofs.row_changes import ADD_MATRICES, LevelSizes, StepLevels
from streamsvm.rows import Float64
from streamsvm.types import Loss

SIZES = LevelSizes(8, 0.03, 6.0)
"""Sizes of steps, in units of |w|_{H^-1}: that is how far the optimum moves when C is doubled, if the loss were a parabola."""


def start_levels(first: PointWithHessian, loss: Loss) -> StepLevels:
    """Return the state before the passes that add up matrices. The unit of its steps, |w|_{H^-1}, is known, so that no pass has to find it."""
    unit = 0.0 if first.metric is None else first.metric.norm(first.point.weights)
    return StepLevels(first, loss, SIZES, largest=unit, passes=ADD_MATRICES[0])


class CostLevel(NamedTuple):
    """Bounds of the Hessian for steps of one size."""

    low: Float64
    """(p, p) H_lo."""
    high: Float64
    """(p, p) H_hi."""
    reach: float
    size: float = 0.0
    """A lower bound of |w|_{H_lo^-1}, by which a level that is not enough is passed over."""


@dataclass(frozen=True, slots=True, eq=False)
class CostFit:
    """A fit for one C, with what encloses the optima for other C."""

    point: EvaluatedPoint
    levels: tuple[CostLevel, ...]

    @classmethod
    def of(cls, state: StepLevels) -> CostFit:
        """Return what is kept of the levels of a fit, after their last pass."""
        w = state.first.point.weights
        levels = zip(state.lows, state.highs, state.reaches, strict=True) if state.first.metric is not None else ()
        kept = [
            CostLevel(low.matrix, high.matrix, reach, float(low.norms_below(w[None, :])[0]))
            for low, high, reach in levels
            if low is not None and high is not None and np.isfinite(reach)
        ]
        return cls(state.first.point, tuple(kept))

    def enclose(self, least: float, largest: float, closer: CostLevel | None = None) -> CostRange:
        """Return what encloses the optima of all C between ``least`` and ``largest``, in units of the C of the fit; 1 is at most an end of it.

        ``closer``: the bounds of a second look at a range that contains this one.
        """
        point, ends = self.point, (least, largest)
        balls = [ball_of_gradient(_scale(point, k, float(np.sqrt(largest)) * point.margins)) for k in ends]
        balls = [one._replace(slack=one.slack * (1.0 + 1e-12)) for one in balls]
        p = len(point.weights)
        zero = np.zeros(p)
        towards = EvaluatedPoint(zero, -point.weights, zero, 0.0)
        far = max(abs(1.0 - k) for k in ends) * (1.0 + 4 * UNIT) + 4 * UNIT
        for level in self.levels if closer is None else (closer, *self.levels):
            room = level.reach * float(np.sqrt(min(1.0, least))) * (1.0 - 1e-9)
            if far * level.size >= room * float(
                np.sqrt(max(1.0, least))
            ):  # |w|_{H1^-1} is no less than size / sqrt(k1)
                continue
            low = invert(_with_factor(level.low, least, -1.0))
            if low is None:
                continue
            rest = largest * (low.norm(point.gradient) + low.norm_of_error(point.errors))
            rest = (rest + float(np.sqrt(largest)) * point.margins) * (1.0 + 1e-9) + 1e-300
            if far * low.norm(point.weights) + rest >= room:
                continue
            slope = enclose_between(towards, low, invert(_with_factor(level.high, largest, 1.0)))
            return CostRange(point.weights, ends, balls, slope, low, rest)
        return CostRange(point.weights, ends, balls, None, None, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class CostRange:
    """What encloses the optima of all C of a range."""

    weights: Float64
    ends: tuple[float, float]
    balls: Sequence[Enclosure]
    """Of both ends."""
    slope: Enclosure | None
    """Of H^-1 w; None: no level was enough."""
    low: Metric | None
    rest: float

    def interval(self, X: Float64) -> tuple[Float64, Float64]:
        """Return the least and the largest decision values (n,) of the optima for rows X (n, p)."""
        lows, highs = zip(*(ball.interval(X) for ball in self.balls), strict=True)
        low, high = np.minimum(*lows), np.maximum(*highs)
        if self.slope is None or self.low is None:
            return low, high
        middle = X @ self.weights
        moves = np.array([(k - 1.0) * end for k in self.ends for end in self.slope.interval(X)])
        pad = self.rest * self.low.norms(X) * (1.0 + 1e-12) + (X.shape[1] + 16) * UNIT * (
            np.abs(X) @ np.abs(self.weights)
        )
        pad += 8 * UNIT * np.abs(moves).max(axis=0)
        return np.maximum(low, middle + moves.min(axis=0) - pad), np.minimum(high, middle + moves.max(axis=0) + pad)


def intersect(both: tuple[CostRange, CostRange], X: Float64) -> tuple[Float64, Float64]:
    """Return the bounds of decision values (n,) of rows that the enclosures of two fits give."""
    (low, high), (other_low, other_high) = (one.interval(X) for one in both)
    return np.maximum(low, other_low), np.minimum(high, other_high)


def start_second_look(components: int) -> PassSums:
    """Return empty sums: H_lo - I and H_hi - I."""
    return PassSums([np.zeros((components, components)) for _ in range(2)])


def add_to_second_look(
    sums: PassSums, rows: MarginRows, signs: Float64, loss: Loss, both: tuple[CostRange, CostRange]
) -> None:
    """Add rows of two classes with signs z_j (n,). ``both``: what two fits say of the range."""
    sums.tiles += 1 + -(-len(rows.m) // TILE)
    low, high = intersect(both, rows.X)
    least, largest = secants_towards(loss, rows.m, np.where(signs > 0, low, -high), np.where(signs > 0, high, -low))
    sums.values[0] += weighted_gram(rows.X, rows.C * least)
    sums.values[1] += weighted_gram(rows.X, rows.C * largest)


def close_second_look(sums: PassSums) -> CostLevel:
    """Return the bounds, which hold at every optimum of the range."""
    low, high = (hessian(one, sums.tiles, sign) for one, sign in zip(sums.values, (-1.0, 1.0), strict=True))
    return CostLevel(low, high, np.inf)


def _scale(point: EvaluatedPoint, k: float, margins: float) -> EvaluatedPoint:
    """Return the point for k C0: the gradient (1 - k) w + k g."""
    w, g = point.weights, point.gradient
    errors = k * point.errors * (1.0 + 1e-9) + 8 * UNIT * (abs(1.0 - k) * np.abs(w) + k * np.abs(g))
    return EvaluatedPoint(w, (1.0 - k) * w + k * g, errors, margins * (1.0 + 1e-12))


def _with_factor(H: Float64, k: float, sign: float) -> Float64:
    """Return I + k (H - I), rounded down (sign -1) or up (sign 1)."""
    found, p = k * H, len(H)
    diagonal = np.diag_indices(p)
    found[diagonal] += (1.0 - k) + sign * (4 * p * UNIT * (k * np.diag(H) + 1.0))
    return found
