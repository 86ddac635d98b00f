"""One sweep of dual coordinate descent over rows of a block, all classes in one problem; sums over rows.

    P(W) = 1/2 sum_k ||w_k||^2 + sum_i C_i l(m_i),     m_i = w_y.x_i - max_{k != y} w_k.x_i,     y = y_i,

l any loss of a margin; with the hinge it is that of Crammer and Singer, JMLR 2, 2001. As -b min_k z_k is the largest -sum_k u_k z_k with
u >= 0, sum_k u_k = b, a row has a number u_ik for every class but its own, and b_i = sum_k u_ik stands for its a_i of two classes:

    max_u  D(u) = sum_i (b_i - conjugate(b_i, C_i)) - 1/2 sum_k ||w_k||^2,     0 <= b_i <= upper(C_i),     u_ik >= 0,
    w_k = sum_i a_ik x_i,     a_ik = b_i where k = y_i, else -u_ik:     sum_k a_ik = 0.

Given: X, y (class codes), C_i = C s_i, the first ``count`` entries of ``order``.
Changed: a (n, K) and W (K, p), kept in step: the numbers of one row after the other are set to their optimum (the sequential dual method
of Keerthi et al., KDD 2008, for losses of any conjugate c0 b + c1 b^2 / 2). With q = ||x_i||^2, f_k = w_k.x_i and A_k = q u_ik + f_k, where
u and b are what they were, the new ones are

    u_k = max(0, A_k - t) / q,     t = B + (q + c1) sum_k u_k,     B = f_y - q b - 1 + c0,

or, where that sum is above upper(C_i), the t that brings it there. The right side falls as t rises; over the classes with A_k > t, r of them with
sum S, t = (B + g S) / (1 + g r) with g = 1 + c1 / q, or (S - r q upper) / r. Begun with all A_k > B, a set that is too large gives a t that is too
small, and classes with A_k <= t leave it until none does (Michelot 1986, for the simplex).
    ``order``: rows whose numbers changed are moved to its front.
With ``sigma`` > 1 the quadratic form is sigma times what it is, as in ``passes.dcd``.
Returned: as there, without gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.dcd import Box, Swept
from streamsvm.rows import Float32, Float64, Int32, Labeled, Rows, Targets


@compiled(fastmath=FAST)
def row_margin(f: Float64, own: int) -> float:
    """Return how far the decision value of a row's own class is above the largest other one; f (K,)."""
    other = -np.inf
    for k in range(f.size):
        if k != own:
            other = max(other, f[k])
    return f[own] - other


@compiled(fastmath=FAST)
def level(A: Float64, own: int, low: float, g: float, most: float) -> float:
    """Return t: the level above which A_k (K,) counts, ``most`` being q upper. Changed: nothing."""
    t, bound = low, False
    while True:
        r, S = 0, 0.0
        for k in range(A.size):
            if k != own and A[k] > t:
                r += 1
                S += A[k]
        if r == 0:
            return t
        higher = (low + g * S) / (1.0 + g * r)
        if bound or S - r * higher > most:
            bound = True
            higher = (S - most) / r
        if higher <= t:
            return t
        t = higher


@compiled(fastmath=FAST)
def lone_optimum(a: Float64, own: int, C_i: float, loss: Any) -> None:
    """Set the numbers a (K,) of an empty row, whose dual does not depend on how b is shared out."""
    slope, curvature, b = 1.0 - loss.conjugate_slope(0.0, C_i), loss.curvature(C_i), 0.0
    if slope > 0.0:
        b = min(slope / curvature, loss.upper(C_i)) if curvature > 0.0 else loss.upper(C_i)
    a[:] = 0.0
    a[own] = b
    a[0 if own != 0 else 1] = -b


@compiled(fastmath=FAST)
def moved(X: Rows, i: int, sigma: float, own: int, most: float, new: Float64, a: Float64, W: Float64) -> bool:
    """Move the numbers a (K,) of row i to ``new`` (K,), that of its own class to what the others leave, and W with them.

    Returns whether any has changed.
    """
    new[own] = 0.0
    b = 0.0
    for k in range(a.size):
        b -= new[k]
    new[own] = min(b, most)
    changed = False
    for k in range(a.size):
        if new[k] != a[k]:
            X.axpy(i, sigma * (new[k] - a[k]), W[k])
            a[k], changed = new[k], True
    return changed


@compiled(fastmath=FAST)
def multinomial_sweep(given: Labeled, order: Int32, count: int, box: Box, alpha: Float64, W: Float64) -> Swept:
    """Sweep over the first ``count`` rows of ``order``, as the module has it.

    Given: X, y, s, box. Changed: alpha (n, K), W (K, p), and order, whose first entries become the rows that are looked at again.
    """
    X, y, s = given
    C, loss, sigma = box
    f, A = np.empty(len(W)), np.empty(len(W))
    left, losses = 0, 0.0
    for t in range(count):
        i = order[t]
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        own, a = int(y[i]), alpha[i]
        for k in range(f.size):
            f[k] = X.dot(i, W[k])
        losses += C_i * loss.value(row_margin(f, own))
        q = sigma * X.sqnorm(i)
        if q <= 0.0:
            lone_optimum(a, own, C_i, loss)
            continue
        low = f[own] - q * a[own] - 1.0 + loss.conjugate_slope(0.0, C_i)
        for k in range(f.size):
            A[k] = f[k] - q * a[k]
        most = loss.upper(C_i)
        at = level(A, own, low, 1.0 + loss.curvature(C_i) / q, q * most)
        for k in range(f.size):
            f[k] = -max(0.0, A[k] - at) / q
        if moved(X, i, sigma, own, most, f, a, W):
            order[left] = i
            left += 1
    return Swept(left, losses, np.inf, -np.inf)


@compiled(fastmath=FAST)
def multinomial_loss_sum(F: Float64, y: Targets, s: Float32, C: float, loss: Any) -> float:
    """sum_i C s_i l(m_i). Given: all, F (n, K) the decision values. Changed: nothing."""
    total = 0.0
    for i in range(y.size):
        total += C * s[i] * loss.value(row_margin(F[i], int(y[i])))
    return total


@compiled(fastmath=FAST)
def multinomial_dual_sum(alpha: Float64, y: Targets, s: Float32, C: float, loss: Any) -> float:
    """sum_i b_i - conjugate(b_i, C s_i): the part of the dual that is not -1/2 ||W||^2. Given: all. Changed: nothing."""
    total = 0.0
    for i in range(y.size):
        if s[i] > 0.0:
            b = alpha[i, int(y[i])]
            total += b - loss.conjugate(b, C * s[i])
    return total
