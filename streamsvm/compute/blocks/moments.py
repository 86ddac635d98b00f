"""Column statistics of a chunk, in one compiled sweep.

Given: X, a shift per column near its mean.  Changed: sums, squares, minimum, maximum (d,), all float64, over the
stored entries x: sum (x - shift), sum (x - shift)^2, min x, max x. The shift keeps the second sum free of cancellation
(Chan, Golub, LeVeque 1983); for CSR it is the first entry a column has, and ``counts`` says how many there are.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.rows import Float32, Float64, Int32, Int64


@compiled()
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


@compiled()
def sparse_moments(
    data: Float32,
    indices: Int32,
    shift: Float64,
    counts: Int64,
    sums: Float64,
    squares: Float64,
    minimum: Float64,
    maximum: Float64,
) -> None:
    """Adds the entries of a CSR chunk to the sums, and sets the shift of columns that had none before."""
    for p in range(data.size):
        x, j = np.float64(data[p]), indices[p]
        if counts[j] == 0:
            shift[j] = x
        d = x - shift[j]
        counts[j] += 1
        sums[j] += d
        squares[j] += d * d
        minimum[j] = min(minimum[j], x)
        maximum[j] = max(maximum[j], x)
