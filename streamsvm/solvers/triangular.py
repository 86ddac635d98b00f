"""Triangular systems in blocks, of numpy alone.

L Z = B with L lower triangular (p, p), B (p, q), by forward substitution over blocks of rows k:

    Z_k = L_kk^-1 (B_k - sum_{j < k} L_kj Z_j),

and L' Z = B backward in the same way (Golub and Van Loan, Matrix Computations, 3.1.4). Nearly all of it is one product a block.
scipy.linalg has both too; to import it takes a quarter of a second of every fit, and a second BLAS with it.
"""

from __future__ import annotations

import numpy as np

from streamsvm.aliases import Array
from streamsvm.rows import Float64

BLOCK = 64
"""Rows of a block: few enough for a dense solution of its own, and enough for products."""


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
