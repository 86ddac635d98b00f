"""Coordinate descent on a quadratic model with an l1 term, in memory.

    min_w  1/2 ||w||^2 + l1 ||w||_1 - v.(w - c) + 1/2 (w - c)'G(w - c)

With all others fixed, the optimum of one coordinate is soft(G_jj w_j - g_j, l1) / (1 + G_jj), where g = G(w - c) - v is
the gradient of the sum over rows. Reference: Friedman, Hastie, Tibshirani, J. Statistical Software 33, 2010.
"""

from __future__ import annotations

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import Float64, Int64


@compiled(fastmath=FAST)
def soft_threshold_sweep(gram: Float64, l1: float, chosen: Int64, w: Float64, g: Float64) -> None:
    """Set each of the ``chosen`` coordinates to its optimum once, in this order. Given: G (m, m), symmetric. Changed:
    w, g (m,).
    """
    for j in chosen:
        z = gram[j, j] * w[j] - g[j]
        optimum = max(abs(z) - l1, 0.0) / (1.0 + gram[j, j])
        if z < 0.0:
            optimum = -optimum
        step = optimum - w[j]
        if step != 0.0:
            w[j] = optimum
            for k in range(g.size):
                g[k] += step * gram[j, k]
