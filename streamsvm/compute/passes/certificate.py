"""What a certificate is made of when a solver knows nothing but w: an exact primal, and a dual point read off w.

    P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),     D(a) = sum_i (a_i - conjugate(a_i, C_i)) - 1/2 ||v||^2,   v = sum a_i y_i x_i

a_i = -C_i l'(m_i) is feasible for every w. By Fenchel and Young's equality l and its conjugate then agree, and

    P(w) - D(a) = 1/2 ||w - v||^2 = 1/2 ||grad P(w)||^2:

it closes as w nears the optimum of a smooth loss. Where l has a kink the optimum's a_i lie between the slopes on its
two sides; the slopes of a smoothed loss, still between them, come closer. They need only be feasible.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from streamsvm.compute.compiled import NOT_FROM_C, compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.targets import argument, entry
from streamsvm.rows import Float64, Labeled

OPTIONS: Any = {"fastmath": FAST, **NOT_FROM_C}
"""Options of functions that are compiled for each loss in its own way."""
JOINT = "value_slope_entropy"
"""The method of a loss, which is smooth by itself, that gives value, slope and conjugate at once."""


class RowLoss(NamedTuple):
    """What a row of weight s costs, C s loss(m), and the loss whose slopes are taken for dual variables."""

    C: float
    """The weight of the loss sum."""
    loss: Any
    """The loss l."""
    smooth: Any
    """Its slopes are slopes of dual feasible points of ``loss``; that itself will do."""


@compiled(fastmath=FAST)
def dual_terms(loss: Any, a: float, y: float, C: float) -> tuple[float, float]:
    """What a row adds to linear and quadratic in sum t a_i - conjugate(t a_i) = t linear - t^2 quadratic; C is its own.

    Of a number, y, what the dual has of it is in the linear part, and so is the corner of the conjugate at 0.

    Where the conjugate is no parabola t linear is a bound of the sum for t <= 1, and the sum itself at t = 1: the conjugate is
    convex and 0 at 0. There is nothing to gain from a larger t then, as such a loss has a box.
    """
    if not loss.quadratic():
        return a - loss.conjugate(a, C), 0.0
    if loss.numeric():
        bend = 0.5 * loss.curvature(C) * a * a
        return a * y + (a - loss.conjugate(a, C)) + bend, bend
    first = loss.conjugate_slope(0.0, C)
    return a - first * a, loss.conjugate(a, C) - first * a


def row_terms(loss: Any, smooth: Any, m: float, y: float, C: float) -> tuple[float, float, float, float, float]:
    """C l(m), C smooth(m), a = -C smooth'(m), and the ``dual_terms`` of a; of a loss that has all of them at once, from there."""
    if hasattr(loss, JOINT):
        return _joint_terms(loss, m, C)
    return _separate_terms(loss, smooth, m, y, C)


@overload(row_terms, jit_options=OPTIONS, strict=False)
def _row_terms(loss: Any, smooth: Any, m: Any, y: Any, C: Any) -> Any:
    if hasattr(loss.instance_class, JOINT):

        def joint(loss: Any, smooth: Any, m: Any, y: Any, C: Any) -> Any:
            return _joint_terms(loss, m, C)

        return joint

    def separate(loss: Any, smooth: Any, m: Any, y: Any, C: Any) -> Any:
        return _separate_terms(loss, smooth, m, y, C)

    return separate


@compiled(fastmath=FAST)
def _joint_terms(loss: Any, m: float, C: float) -> tuple[float, float, float, float, float]:
    value, slope, entropy = loss.value_slope_entropy(m)
    return C * value, C * value, -C * slope, C * entropy, 0.0


@compiled(fastmath=FAST)
def _separate_terms(loss: Any, smooth: Any, m: float, y: float, C: float) -> tuple[float, float, float, float, float]:
    a, linear, quadratic = -C * smooth.slope(m), 0.0, 0.0
    if a != 0.0:
        linear, quadratic = dual_terms(loss, a, y, C)
    return C * loss.value(m), C * smooth.value(m), a, linear, quadratic


@compiled(fastmath=FAST)
def certify_pass(given: Labeled, w: Float64, cost: RowLoss, v: Float64) -> tuple[float, float, float]:
    """The three sums over a block that P(w) and D(t a) for every t follow from, a_i = -C s_i smooth'(m_i).

    Given: X, y, s; w; C, l = loss, smooth.
    Changed: v, to which sum a_i y_i x_i is added.
    Returned: sum C s_i l(m_i); and linear, quadratic in sum t a_i - conjugate(t a_i) = t linear - t^2 quadratic.
    """
    X, y, s = given
    C, loss, smooth = cost
    losses, linear, quadratic = 0.0, 0.0, 0.0
    for i in range(y.size):
        C_i = C * np.float64(s[i])  # a float64 also where the pass is not compiled
        if C_i <= 0.0:
            continue
        m = argument(loss, y[i], X.dot(i, w))
        losses += C_i * loss.value(m)
        a = -C_i * smooth.slope(m)
        if a != 0.0:
            first, second = dual_terms(loss, a, y[i], C_i)
            linear += first
            quadratic += second
            X.axpy(i, np.float64(entry(loss, a, y[i])), v)
    return losses, linear, quadratic
