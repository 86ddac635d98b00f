"""What the sum of a_i - conjugate(a_i) is along two directions that a group of rows proposes (``solvers.dcd.cocoa``).

    sum_i gain(a_i + t d_i + r e_i)  >=  sum_i gain(a_i) + linear.(t, r) + (t, r)' quadratic (t, r),      0 <= t <= 1, |r| <= 1

gain(a) = a - conjugate(a), of a number t_i a t_i more. With parabolas the two sides are the same; where the way from a to a + d crosses a
corner, or is no parabola, the line through its ends lies below, the conjugate being convex. e is 0 on such ways.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.targets import dual_gain
from streamsvm.rows import Float32, Float64, Targets


@compiled(fastmath=FAST)
def proposals_pass(
    y: Targets, s: Float32, cost: RowLoss, a: Float64, ways: Float64, linear: Float64, quadratic: Float64
) -> None:
    """Given: y, s; C, l = loss; a (n,); d and e, ways (n, 2). Changed: linear (2,), quadratic (2, 2)."""
    C, loss, _ = cost
    for i in range(y.size):
        C_i, d, e = C * np.float64(s[i]), ways[i, 0], ways[i, 1]
        if C_i <= 0.0:
            continue
        bend = 0.5 * loss.curvature(C_i) if loss.quadratic() else 0.0
        here = dual_gain(loss, a[i], y[i], C_i)
        linear[0] += dual_gain(loss, a[i] + d, y[i], C_i) - here + bend * d * d
        if e != 0.0:
            linear[1] += dual_gain(loss, a[i] + e, y[i], C_i) - here + bend * e * e
        quadratic[0, 0] -= bend * d * d
        quadratic[0, 1] -= bend * d * e
        quadratic[1, 0] -= bend * d * e
        quadratic[1, 1] -= bend * e * e
