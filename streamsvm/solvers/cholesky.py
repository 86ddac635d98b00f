"""Cholesky factors: of a whole matrix, in blocks; of one that rounding has left indefinite; and of one whose rows come
and go.

**Triangular systems** and factors in blocks, of numpy alone:

L Z = B with L lower triangular (p, p), B (p, q), by forward substitution over blocks of rows k:

    Z_k = L_kk^-1 (B_k - sum_{j < k} L_kj Z_j),

and L' Z = B backward in the same way (Golub and Van Loan, Matrix Computations, 3.1.4). Nearly all of it is one product
a block. scipy.linalg has both too; to import it takes a quarter of a second of every fit, and a second BLAS with it.

A = L L' column by column of blocks: with A_kk and what is below it,

    P = A_{>=k, k} - sum_{j < k} L_{>=k, j} L_kj',    L_kk L_kk' = P_k,    L_{>k, k} = P_{>k} L_kk^-T  (4.2.6, there),

where idle threads take strips of the rows of P. L_kk is inverted, so that all is products: 1,000 columns take 60 % of
what numpy's factorization takes, on one thread. What it costs is an error of cond(L_kk) units of rounding, at most the
root of the matrix's own condition: nothing to products in float32, which matrices of so many columns are made of.

**Updates by a row** (``UpdatedFactor``): k^2 operations (``compute.passes.cholesky``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.passes.cholesky import backward, forward, remove_row
from streamsvm.compute.threading import in_strips
from streamsvm.rows import Float64

BLOCK = 64
"""Rows of a block: few enough for a dense solution of its own, and enough for products."""
STRIP = 256
"""Rows of a strip; a strip is a product of its own, whoever makes it. So many columns or fewer are factorized as a
whole."""
LEAST_SHARE = 1e-14
"""Share of itself by which a diagonal grows first: some units of rounding."""
FIRST_ROOM = 64
"""Rows that an ``UpdatedFactor`` has room for at first; it doubles."""
DEPENDENT = 1e-11
"""A pivot that is this share of its diagonal entry is 0: the row depends on those before it."""


def cholesky(matrix: Float64) -> Float64:
    """Return L of ``matrix`` = L L', symmetric (p, p), of which the lower triangle is looked at. Raises LinAlgError."""
    lower: Float64 = np.zeros_like(matrix)
    if len(matrix) <= STRIP:
        lower[:] = np.linalg.cholesky(matrix)
        return lower
    for start in range(0, len(matrix), BLOCK):
        stop = min(start + BLOCK, len(matrix))
        mine = lower[start:stop, :start]
        corner = np.linalg.cholesky(matrix[start:stop, start:stop] - mine @ mine.T)
        lower[start:stop, start:stop] = corner
        _write_below_corner(matrix, lower, start, stop)
    return lower


def _write_below_corner(matrix: Float64, lower: Float64, start: int, stop: int) -> None:
    """Write the columns [start, stop) of L below their corner."""
    before, inverse = lower[start:stop, :start].T, np.linalg.inv(lower[start:stop, start:stop]).T

    def strip(first: int, last: int) -> None:
        for at in range(stop + first, stop + last, STRIP):
            rows = slice(at, min(at + STRIP, stop + last))
            np.matmul(matrix[rows, start:stop] - lower[rows, :start] @ before, inverse, out=lower[rows, start:stop])

    in_strips(strip, len(matrix) - stop, STRIP, least=1)


def solve_lower(lower: Array, right: Float64) -> Float64:
    """Return Z of ``lower`` Z = ``right``: (p, p), lower triangular, what is above is not looked at; (p,) or (p, q).

    Raises LinAlgError where a number of the diagonal is 0.
    """
    found = right.astype(np.float64, copy=True)
    for start in range(0, len(lower), BLOCK):
        stop = min(start + BLOCK, len(lower))
        found[start:stop] -= lower[start:stop, :start] @ found[:start]
        found[start:stop] = np.linalg.solve(np.tril(lower[start:stop, start:stop]), found[start:stop])
    return found


def solve_lower_transposed(lower: Array, right: Float64) -> Float64:
    """Return Z of ``lower``' Z = ``right``; see ``solve_lower``."""
    found = right.astype(np.float64, copy=True)
    for start in reversed(range(0, len(lower), BLOCK)):
        stop = min(start + BLOCK, len(lower))
        found[start:stop] -= lower[stop:, start:stop].T @ found[stop:]
        found[start:stop] = np.linalg.solve(np.tril(lower[start:stop, start:stop]).T, found[start:stop])
    return found


def solve_factorized(lower: Array, right: Float64) -> Float64:
    """Return x of L L' x = ``right`` (p,), with L = ``lower`` of a Cholesky factorization."""
    return solve_lower_transposed(lower, solve_lower(lower, right))


def factorize(matrix: Float64) -> Callable[[Float64], Float64]:
    """Return what solves ``matrix`` (p, p) x = right (p,). Raises LinAlgError where it is not positive definite.

    In blocks: one of 8,000 columns as a whole takes many seconds, in which no signal is heard.
    """
    return partial(solve_factorized, cholesky(matrix))


def factorize_after_rounding(matrix: Float64) -> Callable[[Float64], Float64]:
    """As ``factorize``, of a matrix that rounding can have left not positive definite: its diagonal then grows by
    shares of itself.

    What it solves is still a direction in which a convex function falls. Changes the diagonal. Raises LinAlgError where
    its double does not do.
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
    """L of H = L L', to which rows are added and from which they are removed."""

    def __init__(self) -> None:
        self.size = 0
        """k, the number of rows."""
        self._L = np.zeros((FIRST_ROOM, FIRST_ROOM))

    def try_add(self, column: Float64, diagonal: float) -> bool:
        """Add a row with entries ``column`` (k,) and ``diagonal`` of H, unless it depends on the others; return whether
        it was added.
        """
        k = self.size
        if k == len(self._L):
            grown = np.zeros((2 * k, 2 * k))
            grown[:k, :k] = self._L
            self._L = grown
        pivot = column.astype(np.float64)
        forward(self._L, k, pivot)
        left = diagonal - float(pivot @ pivot)
        if left <= DEPENDENT * diagonal:
            return False
        self._L[k, :k], self._L[k, k] = pivot, np.sqrt(left)
        self.size += 1
        return True

    def remove(self, place: int) -> None:
        """Remove row and column ``place`` of H."""
        remove_row(self._L, self.size, place)
        self.size -= 1

    def solve(self, right: Float64) -> Float64:
        """Return H^-1 right (k,)."""
        x = np.array(right, np.float64)
        forward(self._L, self.size, x)
        backward(self._L, self.size, x)
        return x
