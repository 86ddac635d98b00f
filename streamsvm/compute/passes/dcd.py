"""One sweep of dual coordinate descent over rows of a block.

    max_a  D(a) = sum_i (a_i - conjugate(a_i, C_i)) - 1/2 ||w||^2,   w = sum_i a_i y_i x_i,   0 <= a_i <= upper(C_i)

Given: X, y, C_i = C s_i, the first ``count`` entries of ``order``.
Changed: alpha and w, kept in step: one coordinate after the other is set to its optimum,
    a_i <- clip(a_i - G / Q, 0, upper),   G = y_i w.x_i - 1 + conjugate'(a_i),   Q = ||x_i||^2 + conjugate''.
    ``order``: the rows still worth a visit are moved to its front. A row at a bound whose gradient holds it there by
    more than ``slack`` is not among them (shrinking; Hsieh et al., ICML 2008, section 3.2, within a visit).
With ``sigma`` > 1 the matrix of the quadratic form is ``sigma`` times what it is: w moves by sigma delta y_i x_i, and
    Q = sigma ||x_i||^2 + conjugate''.
Returned: how many are left; the losses sum_i C_i l(m_i) at the moment of each visit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from streamsvm.compute.numba_bridge import FAST, touch_row, touch_start
from streamsvm.compute.prefetch import touch
from streamsvm.rows import Float64, Int32, Labeled

AHEAD = 4
"""Visits between asking for a row and needing it."""


class Box(NamedTuple):
    """What the dual of one row is: conjugate and bound of its loss, and the factor of the quadratic form."""

    C: float
    """The weight of the loss sum; times a row's weight it bounds the row's dual variable."""
    loss: Any
    """The loss."""
    sigma: float = 1.0
    """The factor of the quadratic form: 1 for one worker, more for several at once (CoCoA+)."""


@njit(cache=True, nogil=True, fastmath=FAST)
def dcd_sweep(
    given: Labeled, order: Int32, count: int, box: Box, slack: float, alpha: Float64, w: Float64
) -> tuple[int, float]:
    """Sweep over the first ``count`` rows of ``order``, as the module has it.

    Given: X, y, s, box, slack. Changed: alpha, w, and order, whose first entries become the rows that are looked at
    again. Returned: how many those are; the sum of the losses met.
    """
    X, y, s = given
    C, loss, sigma = box
    left, losses = 0, 0.0
    for t in range(count):
        i = order[t]
        if t + 2 * AHEAD < count:
            later = order[t + 2 * AHEAD]
            touch(alpha, later)
            touch(y, later)
            touch(s, later)
            touch_start(X, later)
            touch_row(X, order[t + AHEAD])
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        margin = y[i] * X.dot(i, w)
        losses += C_i * loss.value(margin)
        a, top = alpha[i], loss.upper(C_i)
        G = margin - 1.0 + loss.conjugate_slope(a, C_i)
        if (a <= 0.0 and G > slack) or (a >= top and G < -slack):
            continue
        order[left] = i
        left += 1
        Q = sigma * X.sqnorm(i) + loss.curvature(C_i)
        if Q > 0.0:
            new = min(max(a - G / Q, 0.0), top)
        else:  # an empty row: the dual is a line
            new = top if G < 0.0 else a
        if new != a:
            alpha[i] = new
            X.axpy(i, sigma * (new - a) * y[i], w)
    return left, losses
