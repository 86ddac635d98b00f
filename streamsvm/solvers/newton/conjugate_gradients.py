"""Preconditioned conjugate gradients, for Newton systems whose matrix is only available through products with vectors.

The caller decides when a solution is accurate enough (Hestenes and Stiefel 1952; Dembo, Eisenstat and Steihaug, SIAM J.
Numer. Anal. 1982: inexact Newton steps).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamsvm.rows import Float64

MAX_ITERATIONS = 300
ROUNDING = 1e-28
"""Iterations stop at this fraction of the first energy, below which the residual is rounding error."""


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
    """Solve A x = right for x (p,), where A is symmetric and positive definite and ``product(d)`` returns A d.

    ``enough(energy, residual)`` is called before every iteration and returns whether to stop. The energy is
    residual' M^-1 residual, where ``preconditioner(residual)`` returns M^-1 residual. ``start``: the first x, by
    default 0.
    """
    x = np.zeros_like(right) if start is None else start.copy()
    residual = right.copy() if start is None else right - product(x)
    z = preconditioner(residual)
    direction, energy = z.copy(), float(residual @ z)
    first = energy
    for _ in range(MAX_ITERATIONS):
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
