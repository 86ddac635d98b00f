"""From margins to what a second-order step needs, element by element.

With f_i = w.x_i, m_i = y_i f_i and C_i = C s_i, for a smooth loss h (the problem's own, or a rounded one of it):

    slopes_i = -C_i h'(m_i) y_i         so that grad = w - X' slopes
    bends_i  =  C_i h''(m_i)            so that the Hessian is I + X' diag(bends) X

and a_i = -C_i h'(m_i) is a feasible dual point of the problem's own loss l (``compute.certificate``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from streamsvm.compute.records import FAST
from streamsvm.rows import Float32, Float64


@njit(cache=True, nogil=True, fastmath=FAST)
def slopes_pass(
    y: Float32, s: Float32, f: Float64, C: float, loss: Any, smooth: Any, slopes: Float64, bends: Float64
) -> tuple[float, float, float, float]:
    """Given: y, s, f, C, l = loss, h = smooth. Changed: slopes, bends (n,).

    Returned: sum C_i l(m_i), sum C_i h(m_i), and linear, quadratic of the dual as ``certify_pass`` has them.
    """
    losses, smoothed, linear, quadratic = 0.0, 0.0, 0.0, 0.0
    for i in range(y.size):
        slopes[i], bends[i] = 0.0, 0.0
        C_i = C * np.float64(s[i])
        if C_i <= 0.0:
            continue
        m = y[i] * f[i]
        losses += C_i * loss.value(m)
        smoothed += C_i * smooth.value(m)
        bends[i] = C_i * smooth.bend(m)
        a = -C_i * smooth.slope(m)
        if a > 0.0:
            first = loss.conjugate_slope(0.0, C_i)
            linear += a - first * a
            quadratic += loss.conjugate(a, C_i) - first * a
            slopes[i] = a * y[i]
    return losses, smoothed, linear, quadratic


@njit(cache=True, nogil=True, fastmath=FAST)
def trial_pass(
    y: Float32, s: Float32, f: Float64, df: Float64, C: float, smooth: Any, steps: Float64, values: Float64
) -> None:
    """Adds to values[k] sum_i C_i h(y_i (f_i + steps_k df_i)): several step lengths on one reading."""
    for i in range(y.size):
        C_i = C * s[i]
        for k in range(steps.size):
            values[k] += C_i * smooth.value(y[i] * (f[i] + steps[k] * df[i]))
