"""Sequential minimal optimization on a Gram matrix in memory: pairs of coordinates, chosen by second order.

    min_x  1/2 x'Mx - p'x     subject to  sum x = constant,   low <= x <= high

Both kernel families come to this: the C-SVC with a bias has x_i = y_i a_i and M = k, the L2-SVM on the simplex has
x = alpha, low = 0, high = infinity and M_ij = y_i y_j (k_ij + 1) + ridge_i [i = j].

Given: M (q, q) float32 symmetric, low, high (q,), the tolerance, the most steps to make.
Changed: x and v = p - Mx, float64 (q,), kept in step. A step moves weight from j to i along e_i - e_j,
    i = argmax v over x_i < high_i,     j = argmax (v_i - v_j)^2 / (M_ii + M_jj - 2 M_ij) over x_j > low_j, v_j < v_i
until max v over those that may grow is within the tolerance of min v over those that may shrink.
Returned: the steps made.  Reference: Fan, Chen, Lin, JMLR 2005, algorithm 2 (WSS 2).

Maxima are sought in stripes: first which stripe has it, by a loop without branches, then its place in the stripe.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import Float32, Float64

FINITE = FAST | {"nnan"}
"""No NaN can arise here, and saying so lets a maximum be a vector instruction."""
STRIPE = 128
OUT = 1e100
"""Added to the value of a coordinate that must not be chosen; beyond any gradient."""
FLAT = 1e-12
"""The least curvature along a pair: equal rows have none."""


@compiled(fastmath=FINITE)
def smo(M: Float32, x: Float64, low: Float64, high: Float64, v: Float64, tolerance: float, most: int) -> int:
    """Optimize x in its box at constant sum, pair by pair, as the module has it.

    Given: M (n, n) float32, low, high (n,), tolerance, the most steps. Changed: x and v, the negative gradient, (n,).
    Returned: the number of steps.
    """
    q = x.size
    diagonal, closed_up, closed_down = np.empty(q), np.empty(q), np.empty(q)
    for t in range(q):
        diagonal[t] = M[t, t]
        closed_up[t] = 0.0 if x[t] < high[t] else OUT
        closed_down[t] = 0.0 if x[t] > low[t] else OUT
    for step in range(most):
        i = _largest(v, closed_up)
        j, bottom = _partner(M[i], diagonal, v, closed_down, v[i], diagonal[i])
        if v[i] - closed_up[i] - bottom <= tolerance:
            return step
        curvature = max(diagonal[i] + diagonal[j] - 2.0 * M[i, j], FLAT)
        s = min((v[i] - v[j]) / curvature, high[i] - x[i], x[j] - low[j])
        x[i] = high[i] if s >= high[i] - x[i] else x[i] + s
        x[j] = low[j] if s >= x[j] - low[j] else x[j] - s
        for t in (i, j):
            closed_up[t] = 0.0 if x[t] < high[t] else OUT
            closed_down[t] = 0.0 if x[t] > low[t] else OUT
        for t in range(q):
            v[t] -= s * (M[i, t] - M[j, t])
    return most


@compiled(fastmath=FINITE)
def _largest(v: Float64, closed: Float64) -> int:
    """Where v is largest among the coordinates that are open."""
    best, stripe = -np.inf, 0
    for start in range(0, v.size, STRIPE):
        found = -2.0 * OUT
        for t in range(start, min(start + STRIPE, v.size)):
            found = max(found, v[t] - closed[t])
        if found > best:
            best, stripe = found, start
    place, best = stripe, -np.inf
    for t in range(stripe, min(stripe + STRIPE, v.size)):
        if v[t] - closed[t] > best:
            best, place = v[t] - closed[t], t
    return place


@compiled(fastmath=FINITE)
def _partner(row: Float32, diagonal: Float64, v: Float64, closed: Float64, top: float, own: float) -> tuple[int, float]:
    """The open coordinate that drops the objective most, paired with the one whose row is given; the smallest open v."""
    best, stripe, bottom = -1.0, 0, 2.0 * OUT
    for start in range(0, v.size, STRIPE):
        found = -1.0
        for t in range(start, min(start + STRIPE, v.size)):
            value = v[t] + closed[t]
            bottom = min(bottom, value)
            drop = max(top - value, 0.0)
            found = max(found, drop * drop / max(own + diagonal[t] - 2.0 * row[t], FLAT))
        if found > best:
            best, stripe = found, start
    place, best = stripe, -1.0
    for t in range(stripe, min(stripe + STRIPE, v.size)):
        drop = max(top - v[t] - closed[t], 0.0)
        score = drop * drop / max(own + diagonal[t] - 2.0 * row[t], FLAT)
        if score > best:
            best, place = score, t
    return place, bottom
