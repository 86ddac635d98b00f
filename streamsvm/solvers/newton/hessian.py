"""Newton steps where the Hessian is diag(diagonal) + X' diag(second_derivatives) X, at one point after another of the same rows X.

Losses bend by pieces: from point to point most rows bend as before, and only those that do not are brought into the
matrix, or taken out of it. Where it would be too large, conjugate gradients meet it in products only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.newton import squares
from streamsvm.rows import Dense, Float64, Rows, row_where
from streamsvm.solvers.triangular import solve_factorized

EXPLICIT, DENSE_EXPLICIT = 1500, 8000
"""Up to as many components the Hessian is a matrix, of sparse and of dense rows. A dense one costs no more than the
products, and its steps are exact."""
STALE = 4.0
"""The matrix is made anew when what was added and taken out is so many times what it is: float32 products leave traces."""
PRODUCTS = 200
"""Hessian products a step may take."""


class Hessian:
    """Of rows X with ``columns`` columns; ``diagonal`` (p,)."""

    def __init__(self, X: Rows, columns: int, diagonal: Float64) -> None:
        self._X, self._columns, self._diagonal = X, columns, diagonal
        self._explicit = columns + 1 <= most_explicit(dense=isinstance(X, Dense))
        self._bends = np.empty(0)
        self._gram: Float64 | None = None
        self._moved = 0.0

    def step(self, second_derivatives: Float64, gradient: Float64) -> Float64:
        """-Hessian^-1 gradient (p,), where rows bend so (n,)."""
        if not self._explicit:
            return conjugate_gradients(self._X, second_derivatives, self._diagonal, -gradient, self._columns)
        self._update(second_derivatives)
        try:
            return factorized(self._matrix())(-gradient)
        except np.linalg.LinAlgError:  # rounding has made it indefinite: no eigenvalue is below the diagonal's 1
            values, vectors = np.linalg.eigh(self._matrix())
            step: Float64 = vectors @ ((vectors.T @ -gradient) / np.maximum(values, 1.0))
            return step

    def _update(self, second_derivatives: Float64) -> None:
        """``_gram`` is X' diag(second_derivatives) X from here on."""
        change = second_derivatives - self._bends if self._gram is not None else second_derivatives
        moved = self._moved + float(np.abs(change).sum())
        stale = moved > STALE * float(second_derivatives.sum())
        if self._gram is None or stale or np.count_nonzero(change) >= np.count_nonzero(second_derivatives):
            self._gram, self._moved = None, 0.0  # before, to make room
            self._gram = operators.gram(self._X, second_derivatives, self._columns)
        else:
            self._gram += operators.gram(self._X, np.maximum(change, 0.0), self._columns)
            self._gram -= operators.gram(self._X, np.maximum(-change, 0.0), self._columns)
            self._moved = moved
        self._bends = second_derivatives

    def _matrix(self) -> Float64:
        """The matrix, which is a copy."""
        assert self._gram is not None  # ``_update`` comes first
        matrix = self._gram.copy()
        matrix[np.diag_indices_from(matrix)] += self._diagonal
        return matrix


def factorized(matrix: Float64) -> Callable[[Float64], Float64]:
    """Return what solves ``matrix`` (p, p) x = right (p,). Raises LinAlgError where it is not positive definite.

    Of numpy: scipy's factorization of 8,000 columns holds the interpreter's lock for many seconds, in which no signal is heard.
    """
    return partial(solve_factorized, np.linalg.cholesky(matrix))


def most_explicit(*, dense: bool) -> int:
    """Components up to which the Hessian is a matrix."""
    return DENSE_EXPLICIT if dense else EXPLICIT


def matrix_bytes(components: int) -> int:
    """What steps hold at their height: the matrix, and either products on the way into it or a copy and its factor."""
    return max(32 * components**2, 16 * components**2 + operators.gram_bytes(components))


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
