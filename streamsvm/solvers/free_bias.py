"""Linear classification with a free bias: the weight of the constant feature is not regularized.

    P(w, b) = 1/2 ||w||^2 + sum_i C_i l(y_i (w.x_i + b))

*Given* rows with y_i = +-1, a loss l that is convex and does not increase. Let v = sum_i a_i y_i x_i, beta = sum_i a_i y_i and
gain = sum_i (a_i - conjugate(a_i)). By Fenchel's inequality, for any a and any (w, b),

    P(w, b) >= gain - v.w + 1/2 ||w||^2 - beta b >= gain - 1/2 ||v||^2 - beta b.

The dual without bounds of b needs beta = 0, which slopes at a point do not satisfy. If b* of an optimum is in [low, high],

    D(a) = gain - 1/2 ||v||^2 - max(beta low, beta high) <= P*

holds for every a. *Changed* is therefore only what is subtracted from the gain, and every pass still certifies. The multiple t
of slopes is the best one of t (linear - cost) - t^2 (quadratic + 1/2 ||v||^2), cost = max(beta low, beta high).

**The bounds of b.** Let P be the value of any point, hence P >= P*, and S_+ = sum C_i, x_+ the weighted mean of the rows with
y_i = 1. ||w*|| <= sqrt(2 P), and by Jensen S_+ l(w*.x_+ + b*) <= sum over these rows of C_i l(m_i) <= P. With u_+, the
least u with S_+ l(u) <= P, and likewise u_- for the other rows,

    b* >= u_+ - sqrt(2 P) r,      b* <= -u_- + sqrt(2 P) r,      r >= ||x_i|| for all rows.

**Center.** A free bias makes the problem the same for rows x_i - c, with b + w.c in place of b, v - beta c in place of v. c is
the middle of the range of every column and r^2 the sum of the squares of half these ranges, so that columns far from 0
do not make the bounds wide.

**Softmax** (``solvers.softmax``): W has K rows, beta = (beta_k), sum_k beta_k = 0, as the dual variables of a row have the sum 0. P
does not change if a number is added to all b_k. The loss of a row of class k is at least l(f_k - f_j) of the logistic loss for
each j. Since ||w_k - w_j|| <= sqrt(2) ||W||, Jensen gives b_j - b_k <= R_k = -u_k + 2 sqrt(P) r for all j. Hence
max b - min b <= R = max_k R_k, and sum_k beta_k b_k <= R sum_k |beta_k| / 2 is what is subtracted.

**Balanced slopes.** What beta costs is small only near the optimum: the range of b is wide. Hence D is also computed at a
point with beta = 0. Let M_+ = sum C_i x_i over the rows with y_i = 1, M_- over the others. If beta < 0,

    a' = (1 - t) a + t theta C_i [y_i = 1],      t = |beta| / (|beta| + theta S_+),

has beta' = 0 and v' = (1 - t) v + t theta M_+, and as the gain is concave and 0 at a_i = 0, it is at least (1 - t) gain + t S_+ g(theta), g being
the gain of a row with C = 1; likewise with the other rows if beta > 0. Each theta = -l'(m) is feasible, and some are tried. Of a
softmax, with a_i = C_i (e_y - p_i), the p_i are mixed with one q for all rows,

    p' = (1 - t) p + t q,      q_k = (t S_k + (1 - t) beta_k) / (t S),      t >= -beta_k / (S_k - beta_k) for all k, so that q >= 0,

has beta' = 0, V'_k = (1 - t) V_k + t (M_k - q_k M), M = sum_k M_k, and a gain of at least (1 - t) gain + t S H(q). The M are sums of
the first pass. What rounding leaves of beta' is charged with the range of b, as above.

**Rounding.** An error dv of v and dbeta of beta changes v - beta c by at most (1 + ||c||) times their norm,
and D by at most (1 + ||c||) ||v - beta c|| + B times it, where B is the largest |b| that is allowed (R of a softmax). Twice this is the
slope that ``solvers.linear_rounding`` needs, since what balancing adds to the slopes has at most their bound H |r| there: the rows
of one class may be few and long, so that the sum of what is added does not tell. With |r| of all rows, sum_i t theta C_i |x_i| <=
t theta sqrt(S_+ n C max s) |r|, which is at most H |r| if t^2 theta^2 S_+ <= 2 b L; where H is smaller because |l'| <= g, it
follows from theta <= g and t theta S_+ <= |beta| <= sum a_i. Other theta are left out, and of a softmax those t for which
4 t^2 S > 2 b L, b = k / 4. The bounds there hold with P - D as it is: D is the dual of the problem with b in [low, high], which has the same optimum. P, the u and r are
enlarged by more than their rounding errors.

A class without rows has no such bound, and no optimum (b_k falls for ever): D is then 0.

Reference: the bound of Jensen as in the existence proofs for logistic regression (Albert and Anderson, Biometrika 71, 1984).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.matrix_products import sum_products
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.losses import Logistic
from streamsvm.rows import Float64
from streamsvm.type_aliases import JsonObject
from streamsvm.types import AnySolver, Block, Loss, Problem, Regularizer
from streamsvm.types.problem import Bounds, best_scale, dual_at
from streamsvm.types.state import Total

SLACK = 1e-6
"""The relative enlargement of P and of r, far above their rounding errors."""
BIAS_BOUND_FACTOR = 1.01
"""The factor by which the bound of |b| in a certificate is enlarged: an evaluation in float64 has a slightly different P."""
MAX_MARGIN = 1e12
"""Largest |u| that is searched for."""
BISECTIONS = 60
MARGINS = (-3.0, -1.0, 0.0, 0.5)
"""Margins whose slopes are tried as theta."""


@saved_as("free_bias.class_weights")
@dataclass(slots=True)
class ClassWeights:
    """The sums of C_i over the rows of each class of a problem."""

    totals: Total[Float64 | None] = None
    """(2,) of the rows with y_i = -1 and +1; (K,) of the classes of a softmax. None before the first block."""
    sums: Total[Float64 | None] = None
    """(2 or K, p) sum C_i x_i over these rows."""

    def add(self, problem: Problem, block: Block) -> None:
        """Add a block."""
        classes = problem.kind.classes
        own = block.y.astype(np.intp) if classes else (block.y > 0).astype(np.intp)
        s = problem.C * block.s.astype(np.float64)
        totals: Float64 = np.bincount(own, s, classes or 2).astype(np.float64)
        weights = np.zeros((len(totals), len(own)))
        weights[own, np.arange(len(own))] = s
        sums = sum_products(block.X, weights, problem.columns, precise=True)
        self.totals = totals if self.totals is None else self.totals + totals
        self.sums = sums if self.sums is None else self.sums + sums

    def transform(self, change: Callable[[Float64], Float64]) -> None:
        """Change to other features, for which ``change`` transforms each sum."""
        if self.sums is not None:
            self.sums = np.array([change(row) for row in self.sums])


@saved_as("regularizer.free_bias")
@dataclass(frozen=True, slots=True)
class FreeBias(Regularizer):
    """1/2 ||w||^2 without the weight of the constant feature."""

    components: int
    """p = columns + 1, the constant feature last."""
    center: Float64 | None = field(default=None, compare=False, repr=False)
    """(columns,) c; None: 0."""
    reach: float = field(default=math.inf, compare=False)
    """r."""
    is_squared_norm: ClassVar[bool] = False
    refusal: ClassVar[str] = "regularizes the bias"
    instead: ClassVar[str] = "--solver lbfgs, or leave out --free-bias; "

    def value(self, w: Float64) -> float:
        W = w.reshape(-1, self.components)[:, :-1]
        return 0.5 * float(np.vdot(W, W))

    def gradient(self, w: Float64) -> Float64:
        gradient = w.copy()
        gradient.reshape(-1, self.components)[:, -1] = 0.0
        return gradient

    def row_sums(self, components: int) -> ClassWeights:
        return ClassWeights()

    def bounds(
        self, loss: Loss, sums: tuple[float, float, float], w: Float64, v: Float64, rows: ClassWeights | None = None
    ) -> Bounds:
        losses, linear, quadratic = sums
        value, V = self.value(w), v.reshape(-1, self.components)
        low, high = self.bias_range(loss, value + losses, rows)
        if rows is None or not math.isfinite(high - low):
            return Bounds(value, 0.0, 0.0)
        points = [(linear, quadratic, V)]
        points += (
            balance_softmax(loss, losses, points[0], rows) if len(V) > 1 else balance(loss, losses, points[0], rows)
        )
        best = max((self._bounds_at(loss, value, point, (low, high)) for point in points), key=lambda one: one.dual)
        return best._replace(largest_bias=BIAS_BOUND_FACTOR * max(abs(low), abs(high)))

    def _bounds_at(
        self, loss: Loss, value: float, point: tuple[float, float, Float64], bias_range: tuple[float, float]
    ) -> Bounds:
        """Return the best multiple of a dual point with these linear and quadratic terms and V, and D there."""
        linear, quadratic, V = point
        beta, (low, high) = V[:, -1], bias_range
        if len(V) > 1:
            cost = 0.5 * (high - low) * float(np.abs(beta).sum())
        else:
            cost = max(low * float(beta[0]), high * float(beta[0]))
        inner = V[:, :-1] if self.center is None else V[:, :-1] - beta[:, None] * self.center
        square = float(np.vdot(inner, inner))
        scale = best_scale(loss, linear - cost, quadratic, square)
        return Bounds(value, scale, dual_at(scale, linear - cost, quadratic, square))

    def bias_range(self, loss: Loss, primal: float, rows: ClassWeights | None) -> tuple[float, float]:
        """Return bounds of b* for centered rows; of a softmax 0 and R. Infinite if a class has no rows."""
        if rows is None or rows.totals is None or not np.all(rows.totals > 0.0) or not math.isfinite(self.reach):
            return -math.inf, math.inf
        P = (1.0 + SLACK) * primal
        least = [least_margin(loss, P / float(total)) for total in rows.totals]
        if len(least) > 2:  # a softmax has three classes or more
            return 0.0, max(0.0, 2.0 * math.sqrt(P) * self.reach - min(least))
        size = math.sqrt(2.0 * P) * self.reach  # at least |w*.x| of every row
        return least[1] - size, size - least[0]

    def slope_of_dual(self, length: float, facts: JsonObject) -> float:
        center = 0.0 if self.center is None else float(np.linalg.norm(self.center))
        return 2.0 * (1.0 + center) * length + 2.0 * float(facts.get("bias_bound", 0.0))

    def automatic_solver(self, exact_kernel: bool) -> tuple[str, str]:
        return "lbfgs", "a free bias"

    def adapt(self, solver: AnySolver) -> AnySolver | None:
        """Return the same L-BFGS, which keeps no dual variables: those of slopes are not feasible without the bounds of b."""
        from streamsvm.solvers.lbfgs import LBFGS, FreeBiasLBFGS, FreeBiasSoftmaxLBFGS, SoftmaxLBFGS

        if not isinstance(solver, LBFGS):
            return None
        form = FreeBiasSoftmaxLBFGS if isinstance(solver, SoftmaxLBFGS) else FreeBiasLBFGS
        return form(solver.history, solver.problems)


def balance(
    loss: Loss, losses: float, point: tuple[float, float, Float64], rows: ClassWeights
) -> list[tuple[float, float, Float64]]:
    """Return dual points with beta = 0, each with its linear and quadratic terms and v (1, p); ``losses``: L."""
    (linear, quadratic, V), beta = point, float(point[2][0, -1])
    assert rows.totals is not None
    assert rows.sums is not None
    sign = 1.0 if beta < 0.0 else -1.0
    total, M = float(rows.totals[int(sign > 0.0)]), sign * rows.sums[int(sign > 0.0)]
    points = []
    for margin in MARGINS if beta else ():
        slopes, curvatures, one = np.empty(1), np.empty(1), np.ones(1, np.float32)
        sums = slopes_pass(one, one, np.array([margin]), RowLoss(1.0, loss, loss), slopes, curvatures)
        theta = float(slopes[0])
        if theta > 0.0:
            t = abs(beta) / (abs(beta) + theta * total)
            if (t * theta) ** 2 * total > 2.0 * losses / loss.curvature(1.0):
                continue
            mixed = [
                (1.0 - t) * own + t * total * other for own, other in zip((linear, quadratic), sums[2:], strict=True)
            ]
            points.append((mixed[0], mixed[1], (1.0 - t) * V + t * theta * M))
    return points


def balance_softmax(
    loss: Loss, losses: float, point: tuple[float, float, Float64], rows: ClassWeights
) -> list[tuple[float, float, Float64]]:
    """Return dual points with beta_k = 0, each with its linear and quadratic terms and V (K, p); ``losses``: L."""
    linear, quadratic, V = point
    assert isinstance(loss, Logistic)  # a softmax has no other
    assert rows.totals is not None
    assert rows.sums is not None
    beta, S = V[:, -1] - V[:, -1].mean(), float(rows.totals.sum())
    least, points = float(np.max(-beta / (rows.totals - np.minimum(beta, 0.0)))), []
    for t in (least, 2.0 * least, 5.0 * least) if least > 0.0 else ():
        if 2.0 * t * S <= min(S, math.sqrt(0.5 * loss.sharpness * losses * S)):
            q = np.maximum((t * rows.totals + (1.0 - t) * beta) / (t * S), 0.0)
            entropy = -float(np.sum(q * np.log(np.maximum(q, 1e-300)))) / loss.sharpness
            mixed = (1.0 - t) * V + t * (rows.sums - q[:, None] * rows.sums.sum(axis=0))
            points.append(((1.0 - t) * linear + t * S * entropy, (1.0 - t) * quadratic, mixed))
    return points


def least_margin(loss: Loss, most: float) -> float:
    """Return a lower bound of the least u with l(u) <= ``most``, by bisection between points with l above and below it."""
    most *= 1.0 + SLACK
    low = -1.0
    while loss.value(low) <= most:
        low *= 2.0
        if low < -MAX_MARGIN:
            return -math.inf
    high = 1.0
    while loss.value(high) > most:
        low, high = high, 2.0 * high
        if high > MAX_MARGIN:
            return low
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if loss.value(middle) > most else (low, middle)
    return low
