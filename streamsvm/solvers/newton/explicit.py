"""Hessians that are a matrix: up to which width, what that holds, and its factorization."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.rows import Float64
from streamsvm.solvers.triangular import solve_factorized

EXPLICIT, DENSE_EXPLICIT = 1500, 8000
"""Up to as many components the Hessian is a matrix, of sparse and of dense rows. A dense one costs no more than the
products, and its steps are exact."""


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

    Of numpy: scipy's factorization of 8,000 columns holds the interpreter's lock for many seconds, in which no signal is heard.
    """
    return partial(solve_factorized, np.linalg.cholesky(matrix))
