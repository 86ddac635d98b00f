"""Rows of numbers as rows of two signs: what the exchange of rows, which knows variables a >= 0 alone, makes of one signed variable.

With a = a+ - a-, both 0 or more, and conjugate(a, C) = a + epsilon |a| + q a^2 / C the dual of a row with target t is

    a t + a - conjugate(a, C) = (t - epsilon) a+ + (-t - epsilon) a- - q (a+^2 + a-^2) / C,      0 <= a+ <= upper,  0 <= a- <= -lower,

where one of both is 0, as it is at the optimum (Smola and Scholkopf, Statistics and Computing 14, 2004, (5)). So a row counts twice, with sign +1 and
z = t - epsilon, and with sign -1 and z = -t - epsilon; K has its rows and columns twice. Rows of classes are what they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.compute.targets import LEAST
from streamsvm.rows import Float64
from streamsvm.solvers.active_set.exchange import DualTerms, terms_of
from streamsvm.solvers.active_set.spaces import Space
from streamsvm.types import Loss


def sided_terms(loss: Any, y: Any, C: Float64) -> DualTerms:
    """Return the terms of rows with targets y (n,) and C (n,) above 0: (n,) of classes; of numbers (2 n,), those with sign +1 first."""
    if not loss.numeric():
        return terms_of(loss, y, C)
    t, ones = np.asarray(y, np.float64), np.ones(len(C))
    above = t + np.array([1.0 - loss.conjugate_slope(0.0, c) for c in C])
    below = np.array([loss.conjugate_slope(-LEAST, c) - 1.0 for c in C]) - t
    curvature, upper = (np.array([part(c) for c in C]) for part in (loss.curvature, loss.upper))
    lower = -C * loss.slope(np.inf)
    return DualTerms(
        np.append(ones, -ones),
        np.append(above, below),
        np.append(curvature, curvature),
        np.append(upper, -lower),
    )


def apart(loss: Loss, a: Float64) -> Float64:
    """Return the dual variables (n,) of rows as those of their sides, a copy."""
    return np.append(np.maximum(a, 0.0), np.maximum(-a, 0.0)) if loss.numeric() else a.copy()


def together(loss: Loss, a: Float64) -> Float64:
    """Return the dual variables (n,) of rows for those of their sides."""
    n = len(a) // 2
    return a[:n] - a[n:] if loss.numeric() else a


def sided(loss: Loss, space: Space) -> Space:
    """Return the inner products of the sides of rows."""
    return TwiceSpace(space) if loss.numeric() else space


class TwiceSpace:
    """K of rows each of which is there twice: row i is rows i and n + i."""

    def __init__(self, space: Space) -> None:
        self._space, self._rows = space, len(space.diagonal)
        self.diagonal = np.tile(space.diagonal, 2)

    def column(self, row: int) -> Float64:
        """See ``Space``."""
        return np.tile(self._space.column(row % self._rows), 2)

    def values(self, rows: Any, coefficients: Float64) -> Float64:
        """See ``Space``."""
        return np.tile(self._space.values(rows % self._rows, coefficients), 2)
