"""How the target of a row enters a problem. The functions are compiled with the loss, whose ``numeric`` selects the
branch.

                                     argument m of the loss   sign of the row in w   term of the dual
    classification, y = +1 or -1     m = y f, the margin      y                      a
    regression, target t             m = f - t, the residual  1                      a (1 + t)

The dual also has the conjugate and the norm (``losses``). Targets of another kind would be a further branch here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST

LEAST = 1e-300
"""A stand-in for the positive number nearest to 0, negligible compared with the epsilon of a loss."""


@compiled(fastmath=FAST)
def argument(loss: Any, y: float, f: float) -> float:
    """Return the argument m of the loss for a row with target y and decision value f."""
    if loss.numeric():
        return f - y
    return y * f


@compiled(fastmath=FAST)
def change(loss: Any, y: float, df: float) -> float:
    """Return the change of m for a change df of f."""
    if loss.numeric():
        return df
    return y * df


@compiled(fastmath=FAST)
def entry(loss: Any, a: float, y: float) -> float:
    """Return the factor with which a row with dual variable a and target y enters w."""
    if loss.numeric():
        return a
    return a * y


@compiled(fastmath=FAST)
def lower(loss: Any, C: float) -> float:
    """Return the lower bound of the dual variable: 0 in classification, -C l'(inf) in regression, which is -inf for an
    unbounded slope.
    """
    if loss.numeric():
        return -C * loss.slope(np.inf)
    return 0.0


@compiled(fastmath=FAST)
def left_slope(loss: Any, a: float, C: float) -> float:
    """Return the left derivative of the conjugate at a. In regression, at a = 0, it is less than the right
    derivative.
    """
    if loss.numeric() and a == 0.0:
        return loss.conjugate_slope(-LEAST, C)
    return loss.conjugate_slope(a, C)


@compiled(fastmath=FAST)
def dual_gain(loss: Any, a: float, y: float, C: float) -> float:
    """Return the term of a row in the dual, without the norm: a - conjugate(a, C), plus a t in regression."""
    if loss.numeric():
        return a * y + (a - loss.conjugate(a, C))
    return a - loss.conjugate(a, C)
