"""The free block of the dual's Hessian, by its Cholesky factor: rows come and go, systems are solved.

    H = diag(y) (K + tau) diag(y) + diag(curvature),     the free rows only

A free intercept is a constraint y'd = 0 on every step d. tau > 0 changes nothing on such steps, and makes H positive definite
where it only was on them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.compute.passes.active_set import backward, forward, remove_row
from streamsvm.rows import Float64

FIRST_ROOM = 64
"""Rows the array has room for at first; it doubles."""
DEPENDENT = 1e-11
"""A pivot that is this share of its diagonal entry is 0: the row's direction is a combination of those in the block."""


class Step(NamedTuple):
    """A solution of H d + y beta = right, y'd = total; beta is 0 where there is no such constraint."""

    d: Float64
    """(k,) of the free rows."""
    beta: float
    """The change of the intercept that goes with it."""


class FreeBlock:
    """``rows`` are the free ones in the order of the factor; ``signs`` their y."""

    def __init__(self, *, constrained: bool) -> None:
        self.rows: list[int] = []
        self._signs = np.empty(FIRST_ROOM)
        self._L = np.zeros((FIRST_ROOM, FIRST_ROOM))
        self._constrained = constrained

    @property
    def size(self) -> int:
        """The number of free rows."""
        return len(self.rows)

    @property
    def signs(self) -> Float64:
        """(k,) y of the free rows."""
        return self._signs[: self.size]

    def offer(self, row: int, sign: float, column: Float64, diagonal: float) -> bool:
        """Take a row in, or return that it depends on those there are. ``column`` (k,) and ``diagonal`` are its entries of H."""
        k = self.size
        if k == len(self._L):
            self._grow()
        pivot = column.astype(np.float64)
        forward(self._L, k, pivot)
        left = diagonal - float(pivot @ pivot)
        if left <= DEPENDENT * diagonal:
            return False
        self._L[k, :k], self._L[k, k], self._signs[k] = pivot, np.sqrt(left), sign
        self.rows.append(row)
        return True

    def remove(self, place: int) -> None:
        """Leave out the row at a place of ``rows``."""
        k = self.size
        remove_row(self._L, k, place)
        self._signs[place : k - 1] = self._signs[place + 1 : k].copy()
        del self.rows[place]

    def solve(self, right: Float64, total: float = 0.0) -> Step:
        """Return the step for a right side (k,); ``total``: what y'd is to be."""
        d = self._inverse(right)
        if not self._constrained:
            return Step(d, 0.0)
        y = self.signs
        q = self._inverse(y)
        beta = (float(y @ d) - total) / float(y @ q)
        return Step(d - beta * q, beta)

    def _inverse(self, right: Float64) -> Float64:
        x = np.array(right, np.float64)
        forward(self._L, self.size, x)
        backward(self._L, self.size, x)
        return x

    def _grow(self) -> None:
        k = len(self._L)
        L, signs = np.zeros((2 * k, 2 * k)), np.empty(2 * k)
        L[:k, :k], signs[:k] = self._L, self._signs
        self._L, self._signs = L, signs
