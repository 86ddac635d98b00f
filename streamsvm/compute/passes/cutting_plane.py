"""A loss sum of lines on a grid of step lengths along a segment, exact at each of them, in one look at the rows.

    L(t) = sum_i C_i max(0, r_i - t d_i),     r_i = k - y_i f_i,   d_i = y_i df_i

of the hinge; a row of a number t_i has two such terms, one on each side: r_i = -e - m_i, d_i = df_i, and r_i = m_i - e, d_i = -df_i.

A row is a line on one side of its breakpoint r_i / d_i and 0 on the other. Sorting breakpoints gives the exact minimum (Franc and
Sonnenburg, JMLR 10, 2009, section 3.2) and wants a number for each row; sorted into the bins between grid points they are sums.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.targets import argument, change, left_slope, lower
from streamsvm.rows import Float32, Float64, Targets


@compiled(fastmath=FAST)
def _add_line(cost: float, r: float, d: float, grid: Float64, sums: Float64) -> None:
    """Add C_i max(0, r - t d)."""
    if d == 0.0:
        side, e = 1, 0 if r > 0.0 else grid.size
    else:
        side, e = 0 if d > 0.0 else 1, int(np.searchsorted(grid, r / d))
    sums[side, e, 0] += cost * r
    sums[side, e, 1] += cost * d


@compiled(fastmath=FAST)
def breakpoints_pass(
    y: Targets, s: Float32, f: Float64, df: Float64, cost: RowLoss, grid: Float64, sums: Float64
) -> None:
    """Given: y, s, f = X w and df = X d (n,); C, l = loss; the t (J,), rising from 0. Changed: sums (2, J + 1, 2).

    A line adds (C_i r_i, C_i d_i) to sums[0, e] if it has a loss at t_j for all j < e and none beyond, to sums[1, e] if for
    all j >= e.
    """
    C, loss, _ = cost
    for i in range(y.size):
        C_i = C * np.float64(s[i])
        if C_i <= 0.0:
            continue
        m, dm = argument(loss, y[i], f[i]), change(loss, y[i], df[i])
        _add_line(loss.upper(C_i), 1.0 - loss.conjugate_slope(0.0, C_i) - m, dm, grid, sums)
        if loss.numeric():
            _add_line(-lower(loss, C_i), m - (1.0 - left_slope(loss, 0.0, C_i)), -dm, grid, sums)
