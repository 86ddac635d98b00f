"""Regularizers other than 1/2 ||w||^2: the l1 ball and the elastic net, with their terms of P and D.

The constant feature is regularized like any other column. v = sum_i a_i z_i x_i. For multiples t a of slopes a the sums
over rows are t linear - t^2 quadratic.

**The l1 ball**, of radius r, with squared losses (``l1_ball.py``):

    P(w) = sum_i C_i l(w.x_i - t_i)  where ||w||_1 <= r,
    D(a) = sum_i (a_i - conjugate(a_i, C_i) + a_i t_i) - r max_j |v_j|:

The maximum of v.w over the ball is r max |v_j|, so that D <= P for all a and w. For multiples u a of the slopes a at w,
D(u a) = u linear - u^2 quadratic - u r max |v_j| is a parabola in u. At u = 1, P - D is the Frank-Wolfe gap
w.grad P + r max |grad_j P|.

**The elastic net** (``elastic_net.py``):

    P(w) = R(w) + sum_i C_i l(m_i),      R(w) = 1/2 ||w||^2 + l1 ||w||_1,
    D(a) = sum_i (a_i - conjugate(a_i, C_i) + a_i o_i) - R*(v),      o, z as in ``losses``,

R*(v) = max_w v.w - R(w) = 1/2 ||soft(v)||^2, attained at w = soft(v), soft(v)_j = sign(v_j) max(0, |v_j| - l1). At the
optimum w = soft(v). For multiples t a of slopes a, D(t a) >= t linear - t^2 quadratic - 1/2 ||soft(t v)||^2. This is
concave in t, and its slope is piecewise linear with breakpoints at t |v_j| = l1.

*Screening* (the gap-safe spheres of Ndiaye et al., JMLR 18, 2017, for this dual). Without kinks l'' <= b, and the
conjugate of a row has a curvature of at least 1 / (b C_i). D is therefore strongly concave,
sum_i (a_i - a*_i)^2 / (b C_i) <= 2 (D* - D(a)) <= 2 gap, and by Cauchy and Schwarz

    |v_j - v*_j| <= sqrt(2 gap b sum_i C_i x_ij^2) =: r_j,      so that  |v_j| + r_j < l1  proves w*_j = 0.

A loss with a kink has no such b. For all losses ||w - w*||^2 <= 2 gap, as P is strongly convex: |w_j| > sqrt(2 gap)
proves that w*_j is not 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.rows import Float64
from streamsvm.type_aliases import JsonObject
from streamsvm.types import AnySolver, Loss, Regularizer
from streamsvm.types.problem import Bounds, has_box


def soft_threshold(v: Float64, l1: float) -> Float64:
    """Return soft(v) (p,), the w that maximizes v.w - R(w)."""
    result: Float64 = np.sign(v) * np.maximum(np.abs(v) - l1, 0.0)
    return result


def elastic_net_value(w: Float64, l1: float) -> float:
    """Return R(w); w (p,)."""
    return 0.5 * float(w @ w) + l1 * float(np.abs(w).sum())


def elastic_net_conjugate(v: Float64, l1: float) -> float:
    """Return R*(v); v (p,)."""
    u = soft_threshold(v, l1)
    return 0.5 * float(u @ u)


@saved_as("regularizer.l1_ball")
@dataclass(frozen=True, slots=True)
class L1Ball(Regularizer):
    """The constraint ||w||_1 <= radius instead of 1/2 ||w||^2."""

    radius: float
    """r."""
    is_squared_norm: ClassVar[bool] = False
    refusal: ClassVar[str] = "does not minimize over an l1 ball"

    def value(self, w: Float64) -> float:
        """Return 0, the value for w in the ball."""
        return 0.0

    def dual(self, gain: float, v: Float64) -> float:
        """Return D at the slopes themselves."""
        return gain - self.radius * float(np.abs(v).max())

    def bounds(self, loss: Loss, sums: tuple[float, float, float], w: Float64, v: Float64, rows: Any = None) -> Bounds:
        _, linear, quadratic = sums
        gain = linear - self.radius * float(np.abs(v).max())
        if gain <= 0.0 or quadratic <= 0.0:
            return Bounds(0.0, 0.0, 0.0)
        return Bounds(0.0, 0.5 * gain / quadratic, 0.25 * gain * gain / quadratic)

    def slope_of_dual(self, length: float, facts: JsonObject) -> float:
        return self.radius

    def automatic_solver(self, exact_kernel: bool) -> tuple[str, str]:
        return "partan", "least squares over the l1 ball: Frank-Wolfe with parallel tangents"

    def adapt(self, solver: AnySolver) -> AnySolver | None:
        """Return the same Frank-Wolfe method on the vertices of the ball, with ``pool`` columns at a time."""
        from streamsvm.solvers.kernel.frank_wolfe import FrankWolfe
        from streamsvm.solvers.l1_ball import OnL1Ball

        if not isinstance(solver, FrankWolfe):
            return None
        return OnL1Ball(
            solver.pool,
            solver.variant,
            solver.step == "open",
            solver.sample,
            solver.iterations,
            solver.epsilon,
            solver.seed,
            solver.away,
        )


@saved_as("regularizer.elastic_net")
@dataclass(frozen=True, slots=True)
class ElasticNet(Regularizer):
    """1/2 ||w||^2 + l1 ||w||_1."""

    l1: float
    is_squared_norm: ClassVar[bool] = False
    refusal: ClassVar[str] = "does not minimize with an l1 term"

    def value(self, w: Float64) -> float:
        return elastic_net_value(w, self.l1)

    def dual(self, gain: float, v: Float64) -> float:
        return gain - elastic_net_conjugate(v, self.l1)

    def bounds(self, loss: Loss, sums: tuple[float, float, float], w: Float64, v: Float64, rows: Any = None) -> Bounds:
        _, linear, quadratic = sums
        l1, size = self.l1, np.sort(np.abs(v))[::-1]
        size = size[size > 0.0]
        max_t = 1.0 if has_box(loss) else np.inf
        ends = l1 / size  # rising; below the k-th of them, k components of soft(t v) are nonzero
        totals = np.concatenate([[0.0], np.cumsum(size)])
        squares = np.concatenate([[0.0], np.cumsum(size * size)])
        slopes = linear + l1 * totals[:-1] - ends * (2.0 * quadratic + squares[:-1])
        k = int(np.argmax(slopes <= 0.0)) if (slopes <= 0.0).any() else len(ends)
        curvature = 2.0 * quadratic + float(squares[k])
        if linear <= 0.0 or curvature <= 0.0:
            t = max_t if linear > 0.0 and np.isfinite(max_t) else 0.0
        else:
            t = min(max_t, (linear + l1 * float(totals[k])) / curvature)
        return Bounds(self.value(w), t, t * linear - t * t * quadratic - elastic_net_conjugate(t * v, l1))

    def automatic_solver(self, exact_kernel: bool) -> tuple[str, str]:
        return "newton", "elastic net: a proximal Newton method, one pass per iteration"

    def adapt(self, solver: AnySolver) -> AnySolver | None:
        from streamsvm.solvers.elastic_net import ProximalNewton
        from streamsvm.solvers.newton.solver import Newton

        return ProximalNewton(narrowing=solver.narrowing) if isinstance(solver, Newton) else None
