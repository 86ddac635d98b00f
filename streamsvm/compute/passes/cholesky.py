"""Updates of a Cholesky factor when rows are added and removed: H = L L', L lower triangular, stored in the corner of a
larger array.

To add a row, a triangular system is solved (``forward``). When a row is removed, L has one entry above the diagonal in
every later row; plane rotations remove them (Golub and Van Loan, *Matrix Computations*, section 6.5.4). Both take about
k^2 operations, while a factorization takes k^3 / 3. The order of sums is not changed by the compiler, because small
pivots depend on it.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.rows import Float64


@compiled()
def forward(L: Float64, k: int, x: Float64) -> None:
    """Replace x (k,) by L^-1 x, where L is the leading (k, k) part of the array."""
    for i in range(k):
        row, total = L[i], x[i]
        for j in range(i):
            total -= row[j] * x[j]
        x[i] = total / row[i]


@compiled()
def backward(L: Float64, k: int, x: Float64) -> None:
    """Replace x (k,) by L^-T x, reading L row by row."""
    for i in range(k - 1, -1, -1):
        row = L[i]
        x[i] /= row[i]
        for j in range(i):
            x[j] -= row[j] * x[i]


@compiled()
def remove_row(L: Float64, k: int, gone: int) -> None:
    """Change L from the factor of H (k, k) to the factor of H without row and column ``gone``."""
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
