"""Preconditioned conjugate gradients, for the linear systems of Newton steps whose matrix is known only by its products.

The caller says when a solution is good enough (Hestenes and Stiefel 1952; Dembo, Eisenstat and Steihaug, SIAM J. Numer.
Anal. 1982: inexact Newton steps).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamsvm.rows import Float64

ITERATIONS = 300
"""Iterations at most."""
ROUNDING = 1e-28
"""Iterations end at this share of the first energy: below it a residual is rounding."""


class Solution(NamedTuple):
    """An approximate solution of A x = right."""

    x: Float64
    """(p,)."""
    residual: Float64
    """right - A x (p,)."""


def conjugate_gradients(
    product: Callable[[Float64], Float64],
    preconditioner: Callable[[Float64], Float64],
    right: Float64,
    enough: Callable[[float, Float64], bool],
    start: Float64 | None = None,
) -> Solution:
    """Solve A x = right for x (p,), ``product`` being A d, symmetric and positive definite.

    ``enough(energy, residual)`` is asked before every iteration, energy = residual' M^-1 residual, M^-1 being the
    ``preconditioner``. Without ``start``: from 0.
    """
    x = np.zeros_like(right) if start is None else start.copy()
    residual = right.copy() if start is None else right - product(x)
    z = preconditioner(residual)
    direction, energy = z.copy(), float(residual @ z)
    first = energy
    for _ in range(ITERATIONS):
        if enough(energy, residual) or energy <= ROUNDING * first:
            break
        image = product(direction)
        length = energy / float(direction @ image)
        x += length * direction
        residual -= length * image
        z = preconditioner(residual)
        energy, before = float(residual @ z), energy
        direction = z + (energy / before) * direction
    return Solution(x, residual)
