"""What a kernel solver derives of every row of a block, and what it sums over them. Float64 throughout.

A row's coordinate is x_i = y_i a_i. With f_i = sum_j x_j k_ij the dual of the loss (``losses``) is

    min_x  1/2 x'Kx + sum_i conjugate(y_i x_i, C_i) - sum_i y_i x_i,      low_i <= x_i <= high_i,

a quadratic with linear part p_i = y_i (1 - conjugate'(0, C_i)) and ridge_i = conjugate'' beside K; its negative gradient
is v_i = p_i - f_i - ridge_i x_i.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import Float32, Float64, Targets


class Coordinates(NamedTuple):
    """What the problem in coordinates holds of every row, as the module has it; each array float64 (n,)."""

    x: Float64
    """The coordinates."""
    low: Float64
    """Their lower bounds."""
    high: Float64
    """Their upper bounds."""
    ridge: Float64
    """What is added to the diagonal of the Gram matrix."""
    p: Float64
    """The linear term."""
    v: Float64
    """The negative gradient, p - M x."""


@njit(cache=True, nogil=True, fastmath=FAST)
def coordinates(y: Targets, s: Float32, alpha: Float64, f: Float64, C: float, loss: Any) -> Coordinates:
    """Return the coordinates of rows with these labels, weights, a and f. A row of weight 0 is fixed at 0."""
    x, low, high, p, ridge = y * alpha, np.zeros(y.size), np.zeros(y.size), np.zeros(y.size), ridges(s, C, loss)
    for i in range(y.size):
        C_i = C * s[i]
        if C_i > 0.0:
            p[i] = y[i] * (1.0 - loss.conjugate_slope(0.0, C_i))
            if y[i] > 0.0:
                high[i] = loss.upper(C_i)
            else:
                low[i] = -loss.upper(C_i)
    return Coordinates(x, low, high, ridge, p, p - f - ridge * x)


@njit(cache=True, nogil=True, fastmath=FAST)
def ridges(s: Float32, C: float, loss: Any) -> Float64:
    """Return the ridge of every row (n,); 0 for a row of weight 0."""
    out = np.zeros(s.size)
    for i in range(s.size):
        if s[i] > 0.0:
            out[i] = loss.curvature(C * s[i])
    return out


@njit(cache=True, nogil=True, fastmath=FAST)
def shifted_losses(f: Float64, y: Targets, s: Float32, C: float, loss: Any, shifts: Float64, out: Float64) -> None:
    """out[k] += sum_i C s_i l(y_i (f_i + shifts_k)): the losses for several intercepts at once."""
    for i in range(y.size):
        C_i = C * s[i]
        for k in range(shifts.size):
            out[k] += C_i * loss.value(y[i] * (f[i] + shifts[k]))


@njit(cache=True, nogil=True, fastmath=FAST)
def in_reach_of_loss(f: Float64, y: Targets, loss: Any, slack: float) -> NDArray[np.bool_]:
    """Which rows (n,) would cost something if their margins y_i f_i were less by ``slack``."""
    out = np.empty(y.size, np.bool_)
    for i in range(y.size):
        out[i] = loss.value(y[i] * f[i] - slack) > 0.0
    return out
