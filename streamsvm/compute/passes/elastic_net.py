"""Coordinate descent on a quadratic model with an l1 term, in memory.

    min_w  1/2 ||w||^2 + l1 ||w||_1 - v.(w - c) + 1/2 (w - c)'G(w - c)

The optimum of one coordinate, the others fixed, is soft(G_jj w_j - g_j, l1) / (1 + G_jj), g = G(w - c) - v the slope of the sum
over rows. Reference: Friedman, Hastie, Tibshirani, J. Statistical Software 33, 2010.
"""

from __future__ import annotations

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import Float64, Int64


@compiled(fastmath=FAST)
def soft_threshold_sweep(gram: Float64, l1: float, chosen: Int64, w: Float64, g: Float64) -> None:
    """Set each of the ``chosen`` coordinates to its optimum once, in this order. Given: G (m, m), symmetric. Changed: w, g (m,)."""
    for j in chosen:
        z = gram[j, j] * w[j] - g[j]
        found = max(abs(z) - l1, 0.0) / (1.0 + gram[j, j])
        if z < 0.0:
            found = -found
        step = found - w[j]
        if step != 0.0:
            w[j] = found
            for k in range(g.size):
                g[k] += step * gram[j, k]
