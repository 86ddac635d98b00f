"""Cholesky factors: of a matrix, in blocks; of a matrix that rounding has made indefinite; and of a matrix to which
rows are added and from which they are removed.

**Triangular systems** and factors in blocks, with numpy alone:

L Z = B with L lower triangular (p, p), B (p, q), by forward substitution over blocks of rows k:

    Z_k = L_kk^-1 (B_k - sum_{j < k} L_kj Z_j),

and L' Z = B by backward substitution (Golub and Van Loan, Matrix Computations, 3.1.4). Nearly all of the work is one
product per block. scipy.linalg has both, but importing it would take a quarter of a second in every fit, and load a
second BLAS.

A = L L' is computed by columns of blocks: with A_kk and the blocks below it,

    P = A_{>=k, k} - sum_{j < k} L_{>=k, j} L_kj',    L_kk L_kk' = P_k,    L_{>k, k} = P_{>k} L_kk^-T  (4.2.6, there),

where threads compute strips of the rows of P in parallel. L_kk is inverted, so that all work is in products: 1,000
columns take 60 % of the time of numpy's factorization on one thread. The inversion adds an error of cond(L_kk) units of
rounding, at most the root of the condition number of the matrix. That is small compared with the errors of float32
products, from which matrices of so many columns are computed.

**Updates by a row** (``UpdatedFactor``): k^2 operations (``compute.passes.cholesky``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from streamsvm.compute.passes.cholesky import backward, forward, remove_row
from streamsvm.compute.threading import in_strips
from streamsvm.rows import Float64
from streamsvm.type_aliases import Array

BLOCK = 64
"""Number of rows of a block: small enough for a direct solution, and large enough for efficient products."""
STRIP = 256
"""Number of rows of a strip. A strip is computed by one product, on any thread. Matrices of at most this many columns
are factorized as a whole."""
LEAST_SHARE = 1e-14
"""The first relative increase of a diagonal: some units of rounding."""
FIRST_ROOM = 64
"""Number of rows for which an ``UpdatedFactor`` has room at first. The room is doubled when necessary."""
DEPENDENT = 1e-11
"""Pivots below this fraction of their diagonal entry count as 0: the row depends linearly on those before it."""


def cholesky(matrix: Float64) -> Float64:
    """Return L of the symmetric ``matrix`` = L L' (p, p), of which only the lower triangle is used. Raises LinAlgError
    if it is not positive definite.
    """
    lower: Float64 = np.zeros_like(matrix)
    if len(matrix) <= STRIP:
        lower[:] = np.linalg.cholesky(matrix)
        return lower
    for start in range(0, len(matrix), BLOCK):
        stop = min(start + BLOCK, len(matrix))
        rows = lower[start:stop, :start]
        diagonal_block = np.linalg.cholesky(matrix[start:stop, start:stop] - rows @ rows.T)
        lower[start:stop, start:stop] = diagonal_block
        _compute_below_diagonal(matrix, lower, start, stop)
    return lower


def _compute_below_diagonal(matrix: Float64, lower: Float64, start: int, stop: int) -> None:
    """Compute the columns [start, stop) of L below their diagonal block."""
    before, inverse = lower[start:stop, :start].T, np.linalg.inv(lower[start:stop, start:stop]).T

    def compute_strips(first: int, last: int) -> None:
        for top in range(stop + first, stop + last, STRIP):
            rows = slice(top, min(top + STRIP, stop + last))
            np.matmul(matrix[rows, start:stop] - lower[rows, :start] @ before, inverse, out=lower[rows, start:stop])

    in_strips(compute_strips, len(matrix) - stop, STRIP, least=1)


def solve_lower(lower: Array, right: Float64) -> Float64:
    """Return the solution Z of ``lower`` Z = ``right``, (p,) or (p, q). ``lower`` (p, p) is lower triangular; entries
    above the diagonal are not used.

    Raises LinAlgError if an entry of the diagonal is 0.
    """
    Z = right.astype(np.float64, copy=True)
    for start in range(0, len(lower), BLOCK):
        stop = min(start + BLOCK, len(lower))
        Z[start:stop] -= lower[start:stop, :start] @ Z[:start]
        Z[start:stop] = np.linalg.solve(np.tril(lower[start:stop, start:stop]), Z[start:stop])
    return Z


def solve_lower_transposed(lower: Array, right: Float64) -> Float64:
    """Return the solution Z of ``lower``' Z = ``right``; arguments and errors as in ``solve_lower``."""
    Z = right.astype(np.float64, copy=True)
    for start in reversed(range(0, len(lower), BLOCK)):
        stop = min(start + BLOCK, len(lower))
        Z[start:stop] -= lower[stop:, start:stop].T @ Z[stop:]
        Z[start:stop] = np.linalg.solve(np.tril(lower[start:stop, start:stop]).T, Z[start:stop])
    return Z


def solve_factorized(lower: Array, right: Float64) -> Float64:
    """Return the solution x of L L' x = ``right`` (p,), with the Cholesky factor L = ``lower``."""
    return solve_lower_transposed(lower, solve_lower(lower, right))


def factorize(matrix: Float64) -> Callable[[Float64], Float64]:
    """Return a function that solves ``matrix`` (p, p) x = right (p,). Raises LinAlgError if it is not positive
    definite.

    The factorization works in blocks, since that of a whole matrix of 8,000 columns would take many seconds, during
    which signals are not handled.
    """
    return partial(solve_factorized, cholesky(matrix))


def factorize_despite_rounding(matrix: Float64) -> Callable[[Float64], Float64]:
    """Return a function like that of ``factorize`` for a matrix that may not be positive definite because of rounding.
    Its diagonal is then increased step by step.

    Solutions are still descent directions of a convex function. Changes the diagonal. Raises LinAlgError if doubling
    the diagonal is not enough.
    """
    diagonal, share = np.diagonal(matrix).copy(), 0.0
    while True:
        matrix[np.diag_indices_from(matrix)] = diagonal * (1.0 + share)
        try:
            return factorize(matrix)
        except np.linalg.LinAlgError:
            if share >= 1.0:
                raise
            share = min(1.0, max(LEAST_SHARE, 100.0 * share))


class UpdatedFactor:
    """The Cholesky factor L of H = L L', updated when rows are added or removed."""

    def __init__(self) -> None:
        self.size = 0
        """k, the number of rows."""
        self._L = np.zeros((FIRST_ROOM, FIRST_ROOM))

    def try_add(self, column: Float64, diagonal: float) -> bool:
        """Add a row with the entries ``column`` (k,) and ``diagonal`` of H, unless it depends linearly on the others.
        Return whether it was added.
        """
        k = self.size
        if k == len(self._L):
            grown = np.zeros((2 * k, 2 * k))
            grown[:k, :k] = self._L
            self._L = grown
        pivot = column.astype(np.float64)
        forward(self._L, k, pivot)
        remainder = diagonal - float(pivot @ pivot)
        if remainder <= DEPENDENT * diagonal:
            return False
        self._L[k, :k], self._L[k, k] = pivot, np.sqrt(remainder)
        self.size += 1
        return True

    def remove(self, place: int) -> None:
        """Remove the row and column ``place`` of H."""
        remove_row(self._L, self.size, place)
        self.size -= 1

    def solve(self, right: Float64) -> Float64:
        """Return H^-1 right (k,)."""
        x = np.array(right, np.float64)
        forward(self._L, self.size, x)
        backward(self._L, self.size, x)
        return x
