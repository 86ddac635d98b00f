"""Hessians that are a matrix: up to which width, what that holds, and its factorization."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.rows import Float64
from streamsvm.solvers.triangular import cholesky, solve_factorized

EXPLICIT, DENSE_EXPLICIT = 1500, 8000
"""Up to as many components the Hessian is a matrix, of sparse and of dense rows. A dense one costs no more than the
products, and its steps are exact."""
LEAST_SHARE = 1e-14
"""By which a diagonal grows first, of itself: some units of rounding."""


def most_explicit(*, dense: bool) -> int:
    """Components up to which the Hessian is a matrix."""
    return DENSE_EXPLICIT if dense else EXPLICIT


def matrix_bytes(components: int, entry: int = 4) -> int:
    """What steps hold at their height: the matrix, and either products on the way into it or a copy and its factor.

    ``entry``: bytes of an entry of a row.
    """
    return max(32 * components**2, 16 * components**2 + operators.gram_bytes(components, entry=entry))


def factorized(matrix: Float64) -> Callable[[Float64], Float64]:
    """Return what solves ``matrix`` (p, p) x = right (p,). Raises LinAlgError where it is not positive definite.

    In blocks: one of 8,000 columns as a whole takes many seconds, in which no signal is heard.
    """
    return partial(solve_factorized, cholesky(matrix))


def factorized_after_rounding(matrix: Float64) -> Callable[[Float64], Float64]:
    """As ``factorized``, of a matrix that rounding can have left not positive definite: its diagonal then grows by shares of itself.

    What it solves is still a direction in which a convex function falls. Changes the diagonal. Raises LinAlgError where its double does not do.
    """
    diagonal, share = np.diagonal(matrix).copy(), 0.0
    while True:
        matrix[np.diag_indices_from(matrix)] = diagonal * (1.0 + share)
        try:
            return factorized(matrix)
        except np.linalg.LinAlgError:
            if share >= 1.0:
                raise
            share = min(1.0, max(LEAST_SHARE, 100.0 * share))
