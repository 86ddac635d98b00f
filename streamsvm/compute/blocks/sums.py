"""Sums over the rows of a block from which certificates are computed: losses, dual terms, and weighted sums of rows.

Also the sum of two numbers together with its rounding error (``two_sum``), for sums in twice the precision.
"""

from __future__ import annotations

from typing import Any

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.targets import argument, dual_gain
from streamsvm.rows import Float32, Float64, Rows, Targets


@compiled(fastmath=FAST)
def loss_sum(X: Rows, y: Targets, s: Float32, w: Float64, C: float, loss: Any) -> float:
    """Return sum_i C s_i l(m_i)."""
    total = 0.0
    for i in range(y.size):
        total += C * s[i] * loss.value(argument(loss, y[i], X.dot(i, w)))
    return total


@compiled(fastmath=FAST)
def dual_sum(alpha: Float64, y: Targets, s: Float32, C: float, loss: Any) -> float:
    """Return sum_i a_i - conjugate(a_i, C s_i), in regression plus sum_i a_i t_i: the dual without the term -1/2
    ||w||^2.
    """
    total = 0.0
    for i in range(alpha.size):
        if s[i] > 0.0:
            total += dual_gain(loss, alpha[i], y[i], C * s[i])
    return total


@compiled()
def add_rows_precisely(X: Rows, factors: Float64, v: Float64, low: Float64) -> None:
    """Add sum_i c_i x_i to v + low, where low (p,) is the accumulated rounding error of v (p,). Given: X; c (n,).
    Changed: v, low.
    """
    for i in range(factors.size):
        if factors[i] != 0.0:
            X.add_row(i, factors[i], v, low)


def two_sum(one: Float64, other: Float64) -> tuple[Float64, Float64]:
    """Return the rounded sum one + other and its exact rounding error (float64 arrays of the same shape): sum + error =
    one + other.

    Reference: Knuth, The Art of Computer Programming 2, 4.2.2, theorem B.
    """
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


two_sum_of_numbers = compiled()(two_sum)
"""``two_sum`` for two numbers, compiled for use in passes."""
