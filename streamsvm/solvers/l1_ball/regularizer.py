"""What P and D of least squares over the l1 ball have beside sums over rows.

    P(w) = sum_i C_i l(w.x_i - t_i)  where ||w||_1 <= t,        D(a) = sum_i (a_i - conjugate(a_i, C_i) + a_i t_i) - t max_j |v_j|,

v = sum_i a_i x_i: the largest v.w over the ball is t max |v_j|, so that D <= P for all a and w. The constant feature counts like any
other column. Of the slopes a at w and their multiples u a, D(u a) = u linear - u^2 quadratic - u t max |v_j| is a parabola in u; at u = 1
P - D is the Frank-Wolfe gap w.grad P + t max |grad_j P|.
"""

from __future__ import annotations

import numpy as np

from streamsvm.rows import Float64


def dual_at_slopes(radius: float, linear: float, quadratic: float, v: Float64) -> float:
    """Return D at the slopes themselves; v (p,)."""
    return linear - radius * float(np.abs(v).max()) - quadratic


def best_multiple(radius: float, linear: float, quadratic: float, v: Float64) -> tuple[float, float]:
    """Return the u >= 0 that is best, and D(u a); v (p,)."""
    gain = linear - radius * float(np.abs(v).max())
    if gain <= 0.0 or quadratic <= 0.0:
        return 0.0, 0.0
    return 0.5 * gain / quadratic, 0.25 * gain * gain / quadratic
