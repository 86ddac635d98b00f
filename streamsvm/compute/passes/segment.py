"""Sums along a segment w + t d at several t, each row read once: an exact line search over a reading that had to be made anyway.

    losses_j = sum_i C_i l(m_i(t_j)),    gains_j = sum_i (a_i - conjugate(a_i)),    v_j = sum_i a_i y_i x_i,    a_i = -C_i l'(m_i(t_j))

Most rows have the same slope at all t and are summed once for all of them. The others are summed at each t by themselves: as a
difference from v_0 what is small beside it would be lost, and slopes of losses without a box are as steep as the segment is long.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.targets import argument, dual_gain, entry
from streamsvm.rows import Float64, Labeled


class Line(NamedTuple):
    """The segment, and the objective's loss sum."""

    w: Float64
    """(p,) where it begins."""
    d: Float64
    """(p,) its direction."""
    steps: Float64
    """(J,) the t_j that are looked at."""
    C: float
    """The weight of the loss sum."""
    loss: Any
    """The loss l."""


class LineSums(NamedTuple):
    """What is added to, float64."""

    losses: Float64
    """(J,)."""
    gains: Float64
    """(J,)."""
    v: Float64
    """(p,) of the rows whose slope is the same at all t, with ``low`` what rounding took from it."""
    low: Float64
    """(p,)."""
    apart: Float64
    """(J, p) of the other rows: v_j = v + apart_j, with ``lows`` what rounding took from it."""
    lows: Float64
    """(J, p)."""


@compiled(fastmath=FAST)
def segment_pass(given: Labeled, line: Line, f: Float64, df: Float64, sums: LineSums) -> None:
    """Given: X, y, s; the line. Changed: f (n,) = X w, df (n,) = X d, and the sums."""
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
