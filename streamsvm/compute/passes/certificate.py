"""Sums from which a certificate is computed at given weights w: the exact primal value, and a dual point formed from w.

    P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),     D(a) = sum_i (a_i - conjugate(a_i, C_i)) - 1/2 ||v||^2,   v = sum a_i y_i x_i

a_i = -C_i l'(m_i) is feasible for every w. By the equality of Fenchel and Young,

    P(w) - D(a) = 1/2 ||w - v||^2 = 1/2 ||grad P(w)||^2,

so that for a smooth loss the gap closes as w approaches the optimum. At a kink of l the optimal a_i lie between the
slopes on both sides. The slopes of a smoothed loss also lie between them, so that they are feasible, and they are
closer to the optimal a_i.
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
"""Options of functions with a different implementation for some losses."""
JOINT = "value_slope_entropy"
"""Name of a method of some smooth losses that computes value, slope and conjugate together."""


class RowLoss(NamedTuple):
    """The loss C s l(m) of a row with weight s, and the loss whose slopes are used as dual variables."""

    C: float
    """The weight of the sum of losses."""
    loss: Any
    """The loss l."""
    smooth: Any
    """A loss whose slopes give dual points that are feasible for ``loss``: a smoothed loss, or ``loss`` itself."""


@compiled(fastmath=FAST)
def dual_terms(loss: Any, a: float, y: float, C: float) -> tuple[float, float]:
    """Return what a row adds to linear and quadratic in sum_i (t a_i - conjugate(t a_i)) = t linear - t^2 quadratic. C
    is the cost C_i of the row.

    In regression the linear term includes the term t_i a_i of the dual (target ``y``) and the kink of the conjugate at
    0.

    If the conjugate is not quadratic, quadratic is 0, and t linear is a lower bound of the sum for t <= 1, exact at t =
    1, because the conjugate is convex and 0 at 0. Larger t are not feasible, because such a loss has bounded dual
    variables.
    """
    if not loss.quadratic():
        return a - loss.conjugate(a, C), 0.0
    if loss.numeric():
        bend = 0.5 * loss.curvature(C) * a * a
        return a * y + (a - loss.conjugate(a, C)) + bend, bend
    first = loss.conjugate_slope(0.0, C)
    return a - first * a, loss.conjugate(a, C) - first * a


def row_terms(loss: Any, smooth: Any, m: float, y: float, C: float) -> tuple[float, float, float, float, float]:
    """Return C l(m), C smooth(m), a = -C smooth'(m), and the two ``dual_terms`` of a.

    If the loss can compute all of them together (``JOINT``), use that.
    """
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
    """Compute the three sums over a block from which P(w), and D(t a) for every t, follow; a_i = -C s_i smooth'(m_i).

    Given: X, y, s; w; C, l = loss, smooth.
    Changed: v, to which sum a_i y_i x_i is added.
    Returned: sum C s_i l(m_i); and linear, quadratic in sum t a_i - conjugate(t a_i) = t linear - t^2 quadratic.
    """
    X, y, s = given
    C, loss, smooth = cost
    losses, linear, quadratic = 0.0, 0.0, 0.0
    for i in range(y.size):
        C_i = C * np.float64(s[i])  # float64 also if the pass is not compiled
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
