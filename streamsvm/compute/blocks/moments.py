"""Column statistics of a chunk, in one compiled sweep.

Given: X, a shift per column near its mean.  Changed: sums, squares, minimum, maximum (d,), all float64, over the
stored entries x: sum (x - shift), sum (x - shift)^2, min x, max x. The shift keeps the second sum free of cancellation
(Chan, Golub, LeVeque 1983); for CSR it is 0 and ``counts`` says how many entries a column has.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamsvm.rows import Float32, Float64, Int32, Int64


@njit(cache=True, nogil=True)
def dense_moments(
    values: Float32, shift: Float64, sums: Float64, squares: Float64, minimum: Float64, maximum: Float64
) -> None:
    """Adds the rows of ``values`` to the sums."""
    n, d = values.shape
    for i in range(n):
        for j in range(d):
            x = values[i, j] - shift[j]
            sums[j] += x
            squares[j] += x * x
            minimum[j] = min(minimum[j], values[i, j])
            maximum[j] = max(maximum[j], values[i, j])


@njit(cache=True, nogil=True)
def sparse_moments(
    data: Float32, indices: Int32, counts: Int64, sums: Float64, squares: Float64, minimum: Float64, maximum: Float64
) -> None:
    """Adds the entries of a CSR chunk to the sums."""
    for p in range(data.size):
        x, j = np.float64(data[p]), indices[p]
        counts[j] += 1
        sums[j] += x
        squares[j] += x * x
        minimum[j] = min(minimum[j], x)
        maximum[j] = max(maximum[j], x)
