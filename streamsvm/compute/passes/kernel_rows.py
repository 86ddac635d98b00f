"""The rows of a block as coordinates of a kernel solver's problem, and their losses, in float64.

The coordinate of a row is x_i = y_i a_i. With f_i = sum_j x_j k_ij the dual problem (``losses``) is

    min_x  1/2 x'Kx + sum_i conjugate(y_i x_i, C_i) - sum_i y_i x_i,      low_i <= x_i <= high_i,

a quadratic problem with linear term p_i = y_i (1 - conjugate'(0, C_i)), and with ridge_i = conjugate'' added to the
diagonal of K. Its negative gradient is v_i = p_i - f_i - ridge_i x_i.

In regression the coordinate is x_i = a_i, of either sign, and the conjugate has a kink at 0: on its right p_i = t_i + 1
- conjugate'(0+), on its left t_i + 1 - conjugate'(0-). The coordinates describe a row on one side of 0, so that low_i
or high_i is 0: on the side of its x_i, or if x_i = 0, on the side to which it could move with v = b, which is the right
if t_i > f_i + b. ``bounds_across_kink`` returns v on the other side of 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.targets import argument, entry, left_slope, lower
from streamsvm.rows import Float32, Float64, Targets


class Coordinates(NamedTuple):
    """The coordinates of rows, each array float64 (n,)."""

    x: Float64
    low: Float64
    high: Float64
    """Bounds of x."""
    ridge: Float64
    """Added to the diagonal of the Gram matrix."""
    p: Float64
    """The linear term."""
    v: Float64
    """The negative gradient, p - M x."""


@compiled(fastmath=FAST)
def coordinates(y: Targets, s: Float32, alpha: Float64, f: Float64, cost: RowLoss, intercept: float) -> Coordinates:
    """Return the coordinates of rows with targets y, weights s, dual variables alpha and decision values f; b =
    ``intercept``.

    A row with weight 0 is fixed at 0.
    """
    C, loss, _ = cost
    x, low, high, p, ridge = np.zeros(y.size), np.zeros(y.size), np.zeros(y.size), np.zeros(y.size), ridges(s, C, loss)
    for i in range(y.size):
        C_i, x[i] = C * np.float64(s[i]), entry(loss, alpha[i], y[i])
        if C_i > 0.0 and loss.numeric():
            if alpha[i] > 0.0 or (alpha[i] == 0.0 and y[i] > f[i] + intercept):
                p[i], high[i] = y[i] + 1.0 - loss.conjugate_slope(0.0, C_i), loss.upper(C_i)
            else:
                p[i], low[i] = y[i] + 1.0 - left_slope(loss, 0.0, C_i), lower(loss, C_i)
        elif C_i > 0.0:
            p[i] = y[i] * (1.0 - loss.conjugate_slope(0.0, C_i))
            if y[i] > 0.0:
                high[i] = loss.upper(C_i)
            else:
                low[i] = -loss.upper(C_i)
    return Coordinates(x, low, high, ridge, p, p - f - ridge * x)


@compiled(fastmath=FAST)
def bounds_across_kink(given: Coordinates, loss: Any) -> tuple[float, float]:
    """Return the largest v of rows at 0 that may increase, and the smallest v of rows at 0 that may decrease, each on
    the side of 0 that ``given`` does not describe.

    Return -inf or inf if there is no such row; only regression has them.
    """
    top, bottom = -np.inf, np.inf
    jump = loss.conjugate_slope(0.0, 1.0) - left_slope(loss, 0.0, 1.0)
    for i in range(given.x.size):
        if loss.numeric() and given.x[i] == 0.0 and given.low[i] < given.high[i]:
            if given.high[i] > 0.0:
                bottom = min(bottom, given.v[i] + jump)
            else:
                top = max(top, given.v[i] - jump)
    return top, bottom


@compiled(fastmath=FAST)
def ridges(s: Float32, C: float, loss: Any) -> Float64:
    """Return the ridge of every row (n,); 0 for a row with weight 0."""
    out = np.zeros(s.size)
    for i in range(s.size):
        if s[i] > 0.0:
            out[i] = loss.curvature(C * s[i])
    return out


@compiled(fastmath=FAST)
def largest_loss(loss: Any, m: float, slack: float) -> float:
    """Return the largest loss l within ``slack`` of m: at m - slack for a margin, at either end for a residual."""
    if loss.numeric():
        return max(loss.value(m - slack), loss.value(m + slack))
    return loss.value(m - slack)


@compiled(fastmath=FAST)
def sum_shifted_losses(
    f: Float64, y: Targets, s: Float32, cost: RowLoss, slack: float, shifts: Float64, out: Float64
) -> None:
    """Add sum_i C s_i l(m_i) at decision values f_i + shifts_k to out[k], for several intercepts at once.

    Each l(m_i) is the largest loss if the decision value has an error of at most ``slack``.
    """
    C, loss, _ = cost
    for i in range(y.size):
        C_i = C * np.float64(s[i])
        for k in range(shifts.size):
            out[k] += C_i * largest_loss(loss, argument(loss, y[i], f[i] + shifts[k]), slack)


@compiled(fastmath=FAST)
def can_have_loss(f: Float64, y: Targets, loss: Any, slack: float) -> NDArray[np.bool_]:
    """Return for each row (n,) whether its loss can be above 0 if f_i has an error of at most ``slack``."""
    out = np.empty(y.size, np.bool_)
    for i in range(y.size):
        out[i] = largest_loss(loss, argument(loss, y[i], f[i]), slack) > 0.0
    return out
