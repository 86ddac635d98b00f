"""Kernel expansions, f_i = sum_j c_j k(x_i, z_j), in tiles that stay in the processor's cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from streamsvm.compute.blocks.row_selection import matrix_of
from streamsvm.compute.kernel_values.gram import kernel_block, points_of
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.threading import MOST_THREADS, in_strips
from streamsvm.rows import Float32, Float64, Int64, Rows, row_count, row_slice

TILE_ROWS = 512
TILE_POINTS = 512
"""A tile of kernel values stays in the second-level cache while it is made, finished and weighed."""
DENSE_BYTES = 8 << 20
"""How much of the points a thread makes dense at a time."""


def scratch_bytes(columns: int) -> int:
    """What an expansion needs beside its arguments, at most."""
    dense = max(min(DENSE_BYTES, 4 * columns * TILE_POINTS), 4 * columns)
    return MOST_THREADS * (2 * dense + 4 * TILE_ROWS * TILE_POINTS)


def expand(X: Rows, Z: Rows, coefficients: Float64, kernel: Any, columns: int, out: Float64) -> None:
    """out[i] += sum_j coefficients[j] k(x_i, z_j). Given: X (n), Z (m) rows. Changed: out (n,)."""

    def strip(start: int, stop: int) -> None:
        for rows, points, tile in tiles(row_slice(X, start, stop), Z, kernel, columns):
            weigh(tile, coefficients[points], out[start:stop][rows])

    in_strips(strip, len(out), TILE_ROWS)


def expand_all(X: Rows, Z: Rows, coefficients: Float64, kernel: Any, columns: int) -> Float64:
    """sum_j coefficients[k, j] k(x_i, z_j), (problems, n): the kernel is evaluated once for all k."""
    out = np.zeros((len(coefficients), row_count(X)))

    def strip(start: int, stop: int) -> None:
        for rows, points, tile in tiles(row_slice(X, start, stop), Z, kernel, columns):
            for k, part in enumerate(coefficients[:, points]):
                there = np.flatnonzero(part)
                weigh_some(tile, there, part[there], out[k, start:stop][rows])

    in_strips(strip, row_count(X), TILE_ROWS)
    return out


def tiles(X: Rows, Z: Rows, kernel: Any, columns: int) -> Iterator[tuple[slice, slice, Float32]]:
    """k(x_i, z_j) for X (n), Z (m) rows: which rows, which points, the values; a new array each time."""
    n, m = row_count(X), row_count(Z)
    width = max(1, min(TILE_POINTS, DENSE_BYTES // (4 * columns)))
    for first in range(0, m, width):
        last = min(first + width, m)
        points = points_of(matrix_of(row_slice(Z, first, last), columns))
        for start in range(0, n, TILE_ROWS):
            stop = min(start + TILE_ROWS, n)
            tile = np.empty((stop - start, last - first), np.float32)
            kernel_block(row_slice(X, start, stop), points, kernel, tile)
            yield slice(start, stop), slice(first, last), tile


def gram(Z: Rows, kernel: Any, columns: int) -> Float32:
    """k(z_i, z_j), (m, m)."""
    m = row_count(Z)
    out = np.empty((m, m), np.float32)
    points = points_of(matrix_of(Z, columns))

    def strip(start: int, stop: int) -> None:
        kernel_block(row_slice(Z, start, stop), points, kernel, out[start:stop])

    in_strips(strip, m, TILE_ROWS)
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


@njit(cache=True, nogil=True, fastmath=FAST)
def weigh_some(K: Float32, places: Int64, coefficients: Float64, out: Float64) -> None:
    """Adds sum_j coefficients[j] K[:, places[j]] to ``out`` (n,), summed in float64."""
    for i in range(out.size):
        total = 0.0
        for j in range(places.size):
            total += K[i, places[j]] * coefficients[j]
        out[i] += total
