"""Kernel expansions, f_i = sum_j c_j k(x_i, z_j), in tiles that stay in the processor's cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from streamsvm.compute.gram import kernel_block, points_of
from streamsvm.compute.records import FAST
from streamsvm.compute.subset import matrix_of
from streamsvm.rows import Float32, Float64, Rows, row_count, row_slice

TILE_ROWS = 256
TILE_POINTS = 2048
DENSE_BYTES = 32 << 20
"""How much of the points is made dense at a time."""
SCRATCH = 2 * DENSE_BYTES + 4 * TILE_ROWS * TILE_POINTS
"""Bytes an expansion needs beside its arguments, at most."""


def expand(X: Rows, Z: Rows, coefficients: Float64, kernel: Any, columns: int, out: Float64) -> None:
    """out[i] += sum_j coefficients[j] k(x_i, z_j). Given: X (n), Z (m) rows. Changed: out (n,)."""
    width = max(1, min(TILE_POINTS, DENSE_BYTES // (4 * columns)))
    for first in range(0, row_count(Z), width):
        part = coefficients[first : first + width]
        points = points_of(matrix_of(row_slice(Z, first, first + len(part)), columns))
        for start in range(0, len(out), TILE_ROWS):
            stop = min(start + TILE_ROWS, len(out))
            tile = np.empty((stop - start, len(part)), np.float32)
            kernel_block(row_slice(X, start, stop), points, kernel, tile)
            weigh(tile, part, out[start:stop])


def gram(Z: Rows, kernel: Any, columns: int) -> Float32:
    """k(z_i, z_j), (m, m)."""
    m = row_count(Z)
    out = np.empty((m, m), np.float32)
    kernel_block(Z, points_of(matrix_of(Z, columns)), kernel, out)
    return out


@njit(cache=True, nogil=True, fastmath=FAST)
def weigh(K: Float32, coefficients: Float64, out: Float64) -> None:
    """Adds K c to ``out`` (n,), summed in float64."""
    n, m = K.shape
    for i in range(n):
        total = 0.0
        for j in range(m):
            total += K[i, j] * coefficients[j]
        out[i] += total
