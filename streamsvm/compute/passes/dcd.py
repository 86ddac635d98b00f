"""One sweep of dual coordinate descent over rows of a block.

    max_a  D(a) = sum_i (a_i - conjugate(a_i, C_i)) - 1/2 ||w||^2,   w = sum_i a_i y_i x_i,   0 <= a_i <= upper(C_i)

Given: X, y, C_i = C s_i, the first ``count`` entries of ``order``.
Changed: alpha and w, kept in step: one coordinate after the other is set to its optimum,
    a_i <- clip(a_i - G / Q, 0, upper),   G = y_i w.x_i - 1 + conjugate'(a_i),   Q = ||x_i||^2 + conjugate''.
    Of a number t_i the box is [lower, upper], G = w.x_i - t_i - 1 + conjugate'(a_i) with a jump at a_i = 0, and the optimum a soft
    threshold (``soft_threshold``; Ho and Lin, JMLR 13, 2012, (20) - (24)); row i enters w with sign 1.
    Where the conjugate is no parabola, the optimum is found by Newton's method on the margin it leads to (``optimum``).
    ``order``: the rows still worth a visit are moved to its front. A row at a bound whose gradient holds it there by
    more than ``held`` says is not among them (shrinking; Hsieh et al., ICML 2008, section 3.2).
With ``sigma`` > 1 the matrix of the quadratic form is ``sigma`` times what it is: w moves by sigma delta y_i x_i, and
    Q = sigma ||x_i||^2 + conjugate''.
Returned: how many are left; the losses sum_i C_i l(m_i) at the moment of each visit; the largest and the least projected gradient
    of the rows that are left: G, but at a bound, and of a number at 0, only the part of it that leads away from there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST, touch_row, touch_start
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.prefetch import touch
from streamsvm.compute.targets import argument, entry, left_slope, lower
from streamsvm.rows import Float64, Int32, Labeled

AHEAD = 4
"""Visits between asking for a row and needing it."""
ROOT_STEPS, ROOT_PRECISION = 40, 1e-14
"""Of Newton's method along one coordinate, which needs three to six; and where it ends, relative to the margin."""


class Box(NamedTuple):
    """What the dual of one row is: conjugate and bound of its loss, and the factor of the quadratic form."""

    C: float
    """The weight of the loss sum; times a row's weight it bounds the row's dual variable."""
    loss: Any
    """The loss."""
    sigma: float = 1.0
    """The factor of the quadratic form: 1 for one worker, more for several at once (CoCoA+)."""


class Held(NamedTuple):
    """Which rows at a bound are left out; as they are here, all that their gradient holds there."""

    above: float = 0.0
    """Those at the lower end of their box with G > above."""
    below: float = 0.0
    """Those at the upper end with G < below; of numbers also those at 0 where both hold, each on its side."""


class Swept(NamedTuple):
    """What a sweep has found."""

    left: int
    """How many rows are looked at again."""
    losses: float
    """The sum of the losses met."""
    highest: float
    """The largest projected gradient of those rows; -inf if there are none."""
    lowest: float
    """The least one."""


@compiled(fastmath=FAST)
def optimum(margin: float, a: float, C: float, loss: Any, square: float) -> float:
    """Return the a that maximizes D along one coordinate, for smooth losses.

    With m = margin + square (a_new - a) the optimum has a_new = -C l'(m): the root of m - margin - square (-C l'(m) - a), which
    rises with m and is bracketed by what a_new = 0 and a_new = C lead to. A step that leaves the bracket, or is not half as long
    as the last one, is a bisection instead: across the bend of a sharp loss Newton's method would go to and fro.
    """
    low, high = margin - square * a, margin + square * (C - a)
    m, last = min(max(margin, low), high), 2.0 * (high - low)
    for _ in range(ROOT_STEPS):
        f = m - margin - square * (-C * loss.slope(m) - a)
        if f > 0.0:
            high = m
        else:
            low = m
        change = f / (1.0 + square * C * loss.second_derivative(m))
        if not low <= m - change <= high or abs(change) > 0.5 * last:
            change = m - 0.5 * (low + high)
        m -= change
        last = abs(change)
        if last <= ROOT_PRECISION * (1.0 + abs(m)):
            break
    return -C * loss.slope(m)


@compiled(fastmath=FAST)
def soft_threshold(margin: float, a: float, C: float, loss: Any, Q: float) -> float:
    """Return the a that maximizes D along one coordinate of a number, without the box: that of the parabola on its own side of 0, else 0."""
    bend = loss.curvature(C) * a
    right = a - (margin - 1.0 + loss.conjugate_slope(0.0, C) + bend) / Q
    left = a - (margin - 1.0 + left_slope(loss, 0.0, C) + bend) / Q
    return max(right, 0.0) + min(left, 0.0)


@compiled(fastmath=FAST)
def dcd_sweep(given: Labeled, order: Int32, count: int, box: Box, held: Held, alpha: Float64, w: Float64) -> Swept:
    """Sweep over the first ``count`` rows of ``order``, as the module has it.

    Given: X, y, s, box, held. Changed: alpha, w, and order, whose first entries become the rows that are looked at
    again.
    """
    X, y, s = given
    C, loss, sigma = box
    left, losses, highest, lowest = 0, 0.0, -np.inf, np.inf
    for t in range(count):
        i = order[t]
        if t + 2 * AHEAD < count:
            later = order[t + 2 * AHEAD]
            touch(alpha, later)
            touch(y, later)
            touch(s, later)
            touch_start(X, later)
            touch_row(X, order[t + AHEAD])
        C_i = C * np.float64(s[i])  # a float64 also where the pass is not compiled
        if C_i <= 0.0:
            continue
        margin = argument(loss, y[i], X.dot(i, w))
        losses += C_i * loss.value(margin)
        a, bottom, top = alpha[i], lower(loss, C_i), loss.upper(C_i)
        # the slope of -D on the right of a, and on its left, where it is less if the conjugate has a corner
        G, below = margin - 1.0 + loss.conjugate_slope(a, C_i), margin - 1.0 + left_slope(loss, a, C_i)
        up, down = G > held.above, below < held.below
        if (a <= bottom and up) or (a >= top and down) or (loss.numeric() and a == 0.0 and up and down):
            continue
        order[left] = i
        left += 1
        projected = G if G < 0.0 and a < top else (below if below > 0.0 and a > bottom else 0.0)
        highest, lowest = max(highest, projected), min(lowest, projected)
        Q = sigma * X.sqnorm(i) + loss.curvature(C_i)
        if not loss.quadratic():
            new = optimum(margin, a, C_i, loss, sigma * X.sqnorm(i))
        elif Q > 0.0:
            new = soft_threshold(margin, a, C_i, loss, Q) if loss.numeric() else a - G / Q
            new = min(max(new, bottom), top)
        else:  # an empty row: the dual is a line, on each side of 0
            new = top if G < 0.0 else (bottom if below > 0.0 else a)
        if new != a:
            alpha[i] = new
            X.axpy(i, np.float64(entry(loss, sigma * (new - a), y[i])), w)
    return Swept(left, losses, highest, lowest)


@compiled(fastmath=FAST)
def row_costs(given: Labeled, rows: Int32, w: Float64, cost: RowLoss, out: Float64) -> None:
    """Set out_i = 1 + C_i l(m_i) for some rows. Given: X, y, s; the rows; w; C, l = loss. Changed: out (n,)."""
    X, y, s = given
    for i in rows:
        out[i] = 1.0 + cost.C * s[i] * cost.loss.value(argument(cost.loss, y[i], X.dot(i, w)))
