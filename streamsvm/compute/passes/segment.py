"""Sums along a segment w + t d at several t, each row read once: an exact line search over a reading that had to be made anyway.

    losses_j = sum_i C_i l(m_i(t_j)),    gains_j = sum_i (a_i - conjugate(a_i)),    v_j = sum_i a_i y_i x_i,    a_i = -C_i l'(m_i(t_j))

Most rows have the same slope at all t: v_0 is summed, and of the others what differs from it.
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
    """(p,) v_0, with ``low`` what rounding took from it."""
    low: Float64
    """(p,)."""
    differences: Float64
    """(J, p) v_j - v_0."""


@compiled(fastmath=FAST)
def segment_pass(given: Labeled, line: Line, f: Float64, df: Float64, sums: LineSums) -> None:
    """Given: X, y, s; the line. Changed: f (n,) = X w, df (n,) = X d, and the sums."""
    X, y, s = given
    w, d, steps, C, loss = line
    losses, gains, v, low, differences = sums
    for i in range(y.size):
        f[i], df[i] = X.dot(i, w), X.dot(i, d)
        C_i = C * np.float64(s[i])
        if C_i <= 0.0:
            continue
        first = 0.0
        for j in range(steps.size):
            m = argument(loss, y[i], f[i] + steps[j] * df[i])
            losses[j] += C_i * loss.value(m)
            a = -C_i * loss.slope(m)
            gains[j] += dual_gain(loss, a, y[i], C_i)
            if j == 0:
                first = a
                if a != 0.0:
                    X.add_row(i, entry(loss, a, y[i]), v, low)
            elif a != first:
                X.axpy(i, entry(loss, a - first, y[i]), differences[j])
