"""The Cholesky factor of a matrix whose rows come and go: H = L L', L lower triangular, kept in the corner of a larger array.

A row more is a triangular system (``forward``); a row less leaves L with one entry above the diagonal in every later row,
which plane rotations take away (Golub and Van Loan, *Matrix Computations*, section 6.5.4): k^2 operations either way, where
a factorization takes k^3 / 3. No freedom is taken with the order of sums: small pivots live by it.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.rows import Float64


@compiled()
def forward(L: Float64, k: int, x: Float64) -> None:
    """Changes x (k,) to L^-1 x. Given: L, of which the first k rows and columns count."""
    for i in range(k):
        row, total = L[i], x[i]
        for j in range(i):
            total -= row[j] * x[j]
        x[i] = total / row[i]


@compiled()
def backward(L: Float64, k: int, x: Float64) -> None:
    """Changes x (k,) to L^-T x, row by row of L."""
    for i in range(k - 1, -1, -1):
        row = L[i]
        x[i] /= row[i]
        for j in range(i):
            x[j] -= row[j] * x[i]


@compiled()
def remove_row(L: Float64, k: int, gone: int) -> None:
    """Changes L from the factor of H (k, k) to that of H without row and column ``gone``."""
    for i in range(gone, k - 1):
        for j in range(i + 2):
            L[i, j] = L[i + 1, j]
    for i in range(gone, k - 1):
        a, b = L[i, i], L[i, i + 1]
        length = np.hypot(a, b)
        c, s = a / length, b / length
        for t in range(i, k - 1):
            p, q = L[t, i], L[t, i + 1]
            L[t, i] = c * p + s * q
            L[t, i + 1] = c * q - s * p
