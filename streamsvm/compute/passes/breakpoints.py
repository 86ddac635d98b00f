"""The hinge's loss sum on a grid of step lengths along a segment, exact at each of them, in one look at the rows.

    L(t) = sum_i C_i max(0, r_i - t d_i),     r_i = k - y_i f_i,   d_i = y_i df_i

A row is a line on one side of its breakpoint r_i / d_i and 0 on the other. Sorting breakpoints gives the exact minimum (Franc and
Sonnenburg, JMLR 10, 2009, section 3.2) and wants a number for each row; sorted into the bins between grid points they are sums.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import Float64, Targets


@njit(cache=True, nogil=True, fastmath=FAST)
def breakpoints_pass(
    y: Targets, cost: Float64, f: Float64, df: Float64, corner: float, grid: Float64, sums: Float64
) -> None:
    """Given: y, cost C_i, f = X w and df = X d (n,); k; the t (J,), rising from 0. Changed: sums (2, J + 1, 2).

    Row i adds (C_i r_i, C_i d_i) to sums[0, e] if it has a loss at t_j for all j < e and none beyond, to sums[1, e] if for
    all j >= e.
    """
    for i in range(y.size):
        if cost[i] <= 0.0:
            continue
        r, d = corner - y[i] * f[i], y[i] * df[i]
        if d == 0.0:
            side, e = 1, 0 if r > 0.0 else grid.size
        else:
            side, e = 0 if d > 0.0 else 1, np.searchsorted(grid, r / d)
        sums[side, e, 0] += cost[i] * r
        sums[side, e, 1] += cost[i] * d
