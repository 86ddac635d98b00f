"""A step of Newton's method for a linear problem with few rows and columns, whose Hessian is formed as a whole.

    P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),     grad = w - sum_i b_i x_i,     H = I + sum_i h_i x_i x_i'

with b_i = -C_i l'(m_i) y_i and h_i = C_i l''(m_i). Rows enter H in groups of TILE, so that each number of H is read and
written once for several rows. H is scaled to a diagonal of 1 before it is factored, because columns may differ in scale.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.cholesky import backward, forward
from streamsvm.compute.targets import argument, entry
from streamsvm.rows import Float32, Float64, Targets

TILE = 4
"""Number of rows that are added to H together."""


class Step(NamedTuple):
    """The values at a point, and the energy of the step from there."""

    primal: float
    """P."""
    square: float
    """||grad||^2."""
    energy: float
    """grad' H^-1 grad; NaN if H could not be factored."""


@compiled(fastmath=FAST)
def newton_step(
    values: Float32, bias: float, y: Targets, s: Float64, C: float, loss: Any, w: Float64, f: Float64, step: Float64,
    df: Float64,
) -> Step:  # fmt: skip
    """Compute the step -H^-1 grad at w.

    Given: the rows (n, d) and the value of their constant feature, y, s (n,), C, l = loss, w (d + 1,).
    Changed: f = X w, df = X step (n,), step (d + 1,).
    """
    n, d = values.shape
    losses, gradient, H = 0.0, w.copy(), np.zeros((d + 1, d + 1))
    tile, curvature, count = np.zeros((TILE, d + 1)), np.zeros(TILE), 0
    for i in range(n):
        row, value = values[i], bias * w[d]
        for j in range(d):
            value += row[j] * w[j]
        f[i] = value
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        m = argument(loss, y[i], value)
        losses += C_i * loss.value(m)
        b, h = entry(loss, -C_i * loss.slope(m), y[i]), C_i * loss.second_derivative(m)
        if b != 0.0:
            for j in range(d):
                gradient[j] -= b * row[j]
            gradient[d] -= b * bias
        if h != 0.0:
            for j in range(d):
                tile[count, j] = row[j]
            tile[count, d], curvature[count] = bias, h
            count += 1
            if count == TILE:
                _add_rows(tile, curvature, H)
                count = 0
    curvature[count:] = 0.0
    _add_rows(tile, curvature, H)
    square, energy = 0.0, solve_scaled(H, gradient, step)
    for j in range(d + 1):
        square += gradient[j] * gradient[j]
        step[j] = -step[j]
    for i in range(n):
        row, value = values[i], bias * step[d]
        for j in range(d):
            value += row[j] * step[j]
        df[i] = value
    return Step(0.5 * (w * w).sum() + losses, square, energy)


@compiled(fastmath=FAST)
def _add_rows(tile: Float64, curvature: Float64, H: Float64) -> None:
    """Add sum_k h_k x_k x_k' to the lower triangle of H, for the TILE rows x_k."""
    one, two, three, four = tile[0], tile[1], tile[2], tile[3]
    for a in range(len(H)):
        row = H[a]
        p, q = curvature[0] * one[a], curvature[1] * two[a]
        r, t = curvature[2] * three[a], curvature[3] * four[a]
        for j in range(a + 1):
            row[j] += p * one[j] + q * two[j] + r * three[j] + t * four[j]


@compiled(fastmath=FAST)
def solve_scaled(H: Float64, g: Float64, x: Float64) -> float:
    """Set x = (I + H)^-1 g and return g'x, or NaN if a pivot is not positive. H: the lower triangle, which is changed."""
    p = len(g)
    scale = np.empty(p)
    for i in range(p):
        scale[i] = 1.0 / np.sqrt(1.0 + H[i, i])
    for i in range(p):
        for j in range(i):
            H[i, j] *= scale[i] * scale[j]
        H[i, i] = 1.0
    for i in range(p):  # H = L L', row by row
        row = H[i]
        for j in range(i):
            other, total = H[j], row[j]
            for k in range(j):
                total -= row[k] * other[k]
            row[j] = total / other[j]
        pivot = row[i]
        for k in range(i):
            pivot -= row[k] * row[k]
        if not pivot > 0.0:
            x[:] = 0.0
            return np.nan
        row[i] = np.sqrt(pivot)
    for i in range(p):
        x[i] = g[i] * scale[i]
    forward(H, p, x)
    energy = (x * x).sum()
    backward(H, p, x)
    for i in range(p):
        x[i] *= scale[i]
    return energy
