"""Rows on the central path of an interior point (``compute.passes.in_memory.all_rows``): for given margins, dual variables in closed form.

With z_i = 1 - conjugate'(0) - m_i and a target t_i = t s_i for both complementarity products, a_i is the root in (0, U_i) of

    z_i - curvature_i a_i + t_i / a_i - t_i / (U_i - a_i) = 0,        lower_i = t_i / a_i,      upper_i = t_i / (U_i - a_i).

A quadratic where the conjugate is a line (the hinge) or where there is no upper bound (the squared hinge), else solved by Newton's
method. w is then the minimum of a smooth convex function of w alone, 1/2 ||w||^2 plus what has the slopes -a_i in m_i: the
minimum is where w = sum_i a_i y_i x_i.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.in_memory.all_rows import Interior, RowTerms, inside
from streamsvm.rows import Float64

ROOT_STEPS = 60
"""Of Newton's method, which needs about five."""
ROOT_PRECISION = 1e-14
"""Of a, where it ends."""


@compiled(fastmath=FAST)
def _small_root(z: float, t: float, bound: float, curvature: float) -> float:
    """The root in (0, bound / 2] of z - curvature a + t / a - t / (bound - a), z at most curvature bound / 2.

    Times a it is concave: Newton's method comes down to the root from anywhere above it.
    """
    a = 0.5 * bound
    if z <= 0.0:  # the root where there is no curvature
        a = 2.0 * t * bound / (2.0 * t - z * bound + np.sqrt(z * z * bound * bound + 4.0 * t * t))
    if curvature == 0.0:
        return a
    for _ in range(ROOT_STEPS):
        room = bound - a
        value, slope = z * a - curvature * a * a + t - t * a / room, z - 2.0 * curvature * a - t * bound / (room * room)
        change = value / slope
        a -= change
        if change <= ROOT_PRECISION * a:
            break
    return a


@compiled(fastmath=FAST)
def central(z: float, t: float, bound: float, curvature: float) -> tuple[float, float]:
    """Return a in (0, bound), and bound - a, neither of them by a difference; see above."""
    if bound == np.inf:
        root = np.sqrt(z * z + 4.0 * curvature * t)
        return (0.5 * (z + root) / curvature if z > 0.0 else 2.0 * t / (root - z)), np.inf
    if z <= 0.5 * curvature * bound:
        small = _small_root(z, t, bound, curvature)
        return small, bound - small
    small = _small_root(curvature * bound - z, t, bound, curvature)
    return bound - small, small


@compiled(fastmath=FAST)
def center_pass(rows: RowTerms, f: Float64, target: float, at: Interior) -> None:
    """Changes ``at`` to the point of the central path that goes with margins y f; ``target`` is t of a row of weight 1."""
    y, s, C, loss = rows
    a, lower, upper = at
    a[:] = 0.0
    lower[:] = 0.0
    upper[:] = 0.0
    for i in range(y.size):
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        z, t = 1.0 - loss.conjugate_slope(0.0, C_i) - y[i] * f[i], target * s[i]
        a[i], room = central(z, t, loss.upper(C_i), loss.curvature(C_i))
        a[i] = inside(a[i], loss.upper(C_i))
        lower[i] = t / a[i]
        if room < np.inf:
            upper[i] = t / room


@compiled(fastmath=FAST)
def center_line_pass(rows: RowTerms, f: Float64, df: Float64, target: float, step: float) -> tuple[float, float]:
    """First and second derivative along f + step df of the function with the slopes -a_i."""
    y, s, C, loss = rows
    slope, curvature = 0.0, 0.0
    for i in range(y.size):
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        bend, t = loss.curvature(C_i), target * s[i]
        z = 1.0 - loss.conjugate_slope(0.0, C_i) - y[i] * (f[i] + step * df[i])
        a, room = central(z, t, loss.upper(C_i), bend)
        slope -= a * y[i] * df[i]
        curvature += df[i] * df[i] / (bend + t / a / a + (t / room / room if room < np.inf else 0.0))
    return slope, curvature
