"""Line search passes: sums over the rows at several points w + t d of a segment, each row read once.

**Values, gradients and dual values at a few steps** (``segment_pass``), for any loss:

    losses_j = sum_i C_i l(m_i(t_j)),    gains_j = sum_i (a_i - conjugate(a_i)),    v_j = sum_i a_i y_i x_i,    a_i = -C_i l'(m_i(t_j))

Most rows have the same slope at all t_j and are added to one sum. Rows with different slopes are added to one sum for
each t_j. (Sums of differences from v_0 would be inaccurate if they are small compared with v_0, and unbounded slopes
grow with the length of the segment.)

**Values at many steps** (``breakpoints_pass``), for losses that are piecewise linear, exact on a grid of t:

    L(t) = sum_i C_i max(0, r_i - t d_i),     r_i = k - y_i f_i,   d_i = y_i df_i

for the hinge. In regression a row has two such terms, one for each side of the tube: r_i = -e - m_i, d_i = df_i, and
r_i = m_i - e, d_i = -df_i. A term is linear on one side of its breakpoint r_i / d_i and 0 on the other. Sorting all
breakpoints gives the exact minimum (Franc and Sonnenburg, JMLR 10, 2009, section 3.2) but needs a number for each row;
binned by the grid, a few sums suffice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.targets import argument, change, dual_gain, entry, left_slope, lower
from streamsvm.rows import Float32, Float64, Labeled, Targets


class Line(NamedTuple):
    """A segment, and the sum of losses along it."""

    w: Float64
    """(p,) the start of the segment."""
    d: Float64
    """(p,) its direction."""
    steps: Float64
    """(J,) the step lengths t_j."""
    C: float
    """The weight of the loss sum."""
    loss: Any
    """The loss l."""


class LineSums(NamedTuple):
    """The sums of ``segment_pass``, float64."""

    losses: Float64
    """(J,)."""
    gains: Float64
    """(J,)."""
    v: Float64
    """(p,) the sum over rows whose slope is the same at all t_j; ``low``: its rounding errors."""
    low: Float64
    """(p,)."""
    apart: Float64
    """(J, p) the sums over the other rows, v_j = v + apart_j; ``lows``: their rounding errors."""
    lows: Float64
    """(J, p)."""


@compiled(fastmath=FAST)
def segment_pass(given: Labeled, line: Line, f: Float64, df: Float64, sums: LineSums) -> None:
    """Add the rows of a block to the sums at all steps. Given: X, y, s; the line. Changed: f (n,) = X w, df (n,) = X d,
    and the sums.
    """
    X, y, s = given
    w, d, steps, C, loss = line
    losses, gains, v, low, apart, lows = sums
    slopes = np.empty(steps.size)
    for i in range(y.size):
        f[i], df[i] = X.dot(i, w), X.dot(i, d)
        C_i = C * np.float64(s[i])
        if C_i <= 0.0:
            continue
        alike = True
        for j in range(steps.size):
            m = argument(loss, y[i], f[i] + steps[j] * df[i])
            losses[j] += C_i * loss.value(m)
            slopes[j] = -C_i * loss.slope(m)
            gains[j] += dual_gain(loss, slopes[j], y[i], C_i)
            alike = alike and slopes[j] == slopes[0]
        if alike:
            if slopes[0] != 0.0:
                X.add_row(i, entry(loss, slopes[0], y[i]), v, low)
            continue
        for j in range(steps.size):
            if slopes[j] != 0.0:
                X.add_row(i, entry(loss, slopes[j], y[i]), apart[j], lows[j])


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
    """Add the terms max(0, r - t d) of rows to sums, binned by their breakpoints.

    Given: y, s, f = X w and df = X d (n,); C, l = loss; the t_j (J,), ascending from 0. Changed: sums (2, J + 1, 2). A
    term is added as (C_i r_i, C_i d_i) to sums[0, e] if it is above 0 at t_j exactly for j < e, and to sums[1, e] if
    exactly for j >= e.
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
