"""Newton steps where the Hessian is diag(diagonal) + X' diag(second_derivatives) X, at one point after another of the same rows X.

Where all columns are few enough it is a matrix, which follows the rows that bend otherwise than before
(``solvers.newton.in_memory.block_matrix``); elsewhere conjugate gradients meet it in products only.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.newton import squares
from streamsvm.rows import Dense, Float64, Rows, row_where
from streamsvm.solvers.newton.explicit import most_explicit
from streamsvm.solvers.newton.in_memory.linear_systems.preconditioner import ArrowPreconditioner

PRODUCTS = 200
"""Hessian products a step may take."""


class Hessian:
    """Of rows X with ``columns`` columns; ``diagonal`` (p,)."""

    def __init__(self, X: Rows, columns: int, diagonal: Float64) -> None:
        self._X, self._columns, self._diagonal = X, columns, diagonal
        explicit = columns + 1 <= most_explicit(dense=isinstance(X, Dense))
        self._whole = ArrowPreconditioner(X, columns, diagonal) if explicit else None

    def step(self, second_derivatives: Float64, gradient: Float64) -> Float64:
        """-Hessian^-1 gradient (p,), where rows bend so (n,)."""
        if self._whole is None:
            return conjugate_gradients(self._X, second_derivatives, self._diagonal, -gradient, self._columns)
        self._whole.update(second_derivatives)
        return self._whole(-gradient)


def conjugate_gradients(
    X: Rows, second_derivatives: Float64, diagonal: Float64, right: Float64, columns: int
) -> Float64:
    """Solves (diag(diagonal) + X' diag(second_derivatives) X) x = right, to a hundredth, scaled by the matrix's own diagonal."""
    chosen = second_derivatives > 0.0
    rows, weights = row_where(X, chosen), second_derivatives[chosen]
    scale = 1.0 / (diagonal + squares(rows, weights, columns))
    x, residual = np.zeros_like(right), right.copy()
    z = scale * residual
    direction, fit = z.copy(), float(residual @ z)
    enough = 1e-4 * fit
    for _ in range(PRODUCTS):
        if fit <= enough:
            break
        image = diagonal * direction + operators.adjoint(rows, weights * operators.margins(rows, direction), columns)
        length = fit / float(direction @ image)
        x += length * direction
        residual -= length * image
        z = scale * residual
        fit, before = float(residual @ z), fit
        direction = z + (fit / before) * direction
    return x
