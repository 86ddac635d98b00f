"""Sequential minimal optimization on a Gram matrix in memory: pairs of coordinates, chosen by second order.

    min_x  1/2 x'Mx - p'x     subject to  sum x = constant,   low <= x <= high

Both kernel families have this form: for the C-SVC with a bias, x_i = y_i a_i and M = k; for the L2-SVM on the simplex,
x = alpha, low = 0, high = infinity and M_ij = y_i y_j (k_ij + 1) + ridge_i [i = j].

Given: M (q, q) float32 symmetric, low, high (q,), the tolerance, and the largest number of steps.
Changed: x and v = p - Mx, float64 (q,), together. A step moves weight from j to i along e_i - e_j,
    i = argmax v over x_i < high_i,     j = argmax (v_i - v_j)^2 / (M_ii + M_jj - 2 M_ij) over x_j > low_j, v_j < v_i
until max v over coordinates below their upper bound exceeds min v over those above their lower bound by at most the
tolerance.
Returned: the number of steps.  Reference: Fan, Chen, Lin, JMLR 2005, algorithm 2 (WSS 2).

Maxima are found in two stages: a loop without branches finds the stripe of coordinates that contains the maximum, a
second loop its place in the stripe.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import Float32, Float64

FINITE = FAST | {"nnan"}
"""No NaN can occur here; with this flag a maximum is compiled to a vector instruction."""
STRIPE = 128
OUT = 1e100
"""Larger than any gradient; added to the value of a coordinate that must not be chosen."""
FLAT = 1e-12
"""Minimum curvature along a pair; for equal rows the curvature would be 0."""


@compiled(fastmath=FINITE)
def smo(M: Float32, x: Float64, low: Float64, high: Float64, v: Float64, tolerance: float, most: int) -> int:
    """Optimize x within its bounds at constant sum, by steps of pairs, as described at the top of the module."""
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
    """Return the coordinate with the largest v; ``closed`` is OUT for coordinates that must not be chosen, else 0."""
    best, stripe = -np.inf, 0
    for start in range(0, v.size, STRIPE):
        stripe_best = -2.0 * OUT
        for t in range(start, min(start + STRIPE, v.size)):
            stripe_best = max(stripe_best, v[t] - closed[t])
        if stripe_best > best:
            best, stripe = stripe_best, start
    place, best = stripe, -np.inf
    for t in range(stripe, min(stripe + STRIPE, v.size)):
        if v[t] - closed[t] > best:
            best, place = v[t] - closed[t], t
    return place


@compiled(fastmath=FINITE)
def _partner(row: Float32, diagonal: Float64, v: Float64, closed: Float64, top: float, own: float) -> tuple[int, float]:
    """Return the coordinate j whose pair with i decreases the objective most, and the smallest v among the open
    coordinates.

    ``row``: row i of M; ``top``: v_i; ``own``: M_ii; ``closed``: as for ``_largest``.
    """
    best, stripe, bottom = -1.0, 0, 2.0 * OUT
    for start in range(0, v.size, STRIPE):
        stripe_best = -1.0
        for t in range(start, min(start + STRIPE, v.size)):
            value = v[t] + closed[t]
            bottom = min(bottom, value)
            drop = max(top - value, 0.0)
            stripe_best = max(stripe_best, drop * drop / max(own + diagonal[t] - 2.0 * row[t], FLAT))
        if stripe_best > best:
            best, stripe = stripe_best, start
    place, best = stripe, -1.0
    for t in range(stripe, min(stripe + STRIPE, v.size)):
        drop = max(top - v[t] - closed[t], 0.0)
        score = drop * drop / max(own + diagonal[t] - 2.0 * row[t], FLAT)
        if score > best:
            best, place = score, t
    return place, bottom
