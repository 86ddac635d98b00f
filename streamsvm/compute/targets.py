"""How the target of a row enters a problem: compiled with the loss, whose ``numeric`` decides which branch there is.

    of one of two classes, y = +1 or -1:   m = y f, the margin,       a row enters w with sign y,   the dual has a
    of a number t:                         m = f - t, the residual,   a row enters w with sign 1,   the dual has a (1 + t)

beside the conjugate and the norm (``losses``). A target of another kind is another branch here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST

LEAST = 1e-300
"""What stands for the nearest number to 0: small enough not to count beside the epsilon of a loss."""


@compiled(fastmath=FAST)
def argument(loss: Any, y: float, f: float) -> float:
    """Return m, of which the loss is a function, of a row with target y and decision value f."""
    if loss.numeric():
        return f - y
    return y * f


@compiled(fastmath=FAST)
def change(loss: Any, y: float, df: float) -> float:
    """Return by how much m changes when f changes by df."""
    if loss.numeric():
        return df
    return y * df


@compiled(fastmath=FAST)
def entry(loss: Any, a: float, y: float) -> float:
    """Return what a row with dual variable a and target y is multiplied by where it enters w."""
    if loss.numeric():
        return a
    return a * y


@compiled(fastmath=FAST)
def lower(loss: Any, C: float) -> float:
    """Return the least feasible dual variable: -C times the slope that l ends with, which is 0 of a margin; -inf where it has no end."""
    if loss.numeric():
        return -C * loss.slope(np.inf)
    return 0.0


@compiled(fastmath=FAST)
def left_slope(loss: Any, a: float, C: float) -> float:
    """Return the derivative of the conjugate on the left of a, which of a number at a = 0 is less than that on the right."""
    if loss.numeric() and a == 0.0:
        return loss.conjugate_slope(-LEAST, C)
    return loss.conjugate_slope(a, C)


@compiled(fastmath=FAST)
def dual_gain(loss: Any, a: float, y: float, C: float) -> float:
    """Return what a row adds to the dual beside the norm: a - conjugate(a, C), of a number a t more."""
    if loss.numeric():
        return a * y + (a - loss.conjugate(a, C))
    return a - loss.conjugate(a, C)
