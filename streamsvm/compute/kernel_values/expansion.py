"""Kernel expansions, f_i = sum_j c_j k(x_i, z_j), in tiles that stay in the processor's cache.

In the arithmetic that is asked for (``compute/kernel_values/rounding.py``); the sums are float64 in any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.compiled import compiled
from streamsvm.compute.kernel_values.kernel_matrix import diagonal, kernel_block, points_of
from streamsvm.compute.kernel_values.rounding import DIFFERENCES, SINGLE, dtype_of
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.threading import in_strips, share_out, threads
from streamsvm.rows import Float64, Int64, Rows, row_count, row_slice, to_matrix

TILE_ROWS = 512
TILE_POINTS = 512
"""A tile of kernel values stays in the second-level cache while it is made, finished and weighed."""
DENSE_BYTES = 8 << 20
"""How much of the points a thread makes dense at a time."""
GRAM_POINTS = 128
"""The width of a block of a Gram matrix: few enough that a working set has some for each of several threads."""
WORTHWHILE = 1 << 17
"""Kernel values that are worth a thread: a tenth of a millisecond and more."""


def scratch_bytes(columns: int) -> int:
    """Return the most bytes an expansion needs beside its arguments."""
    dense = max(min(DENSE_BYTES, 8 * columns * TILE_POINTS), 8 * columns)
    return threads() * (3 * dense + 8 * TILE_ROWS * TILE_POINTS)


def expand(
    X: Rows, Z: Rows, coefficients: Float64, kernel: Any, columns: int, out: Float64, arithmetic: int = SINGLE
) -> None:
    """out[i] += sum_j coefficients[j] k(x_i, z_j). Given: X (n), Z (m) rows. Changed: out (n,)."""

    def strip(start: int, stop: int) -> None:
        for rows, points, tile in tiles(row_slice(X, start, stop), Z, kernel, columns, arithmetic):
            weigh(tile, coefficients[points], out[start:stop][rows])
            del tile

    in_strips(strip, len(out), TILE_ROWS, worthwhile(TILE_ROWS * row_count(Z)))


def expand_all(X: Rows, Z: Rows, coefficients: Float64, kernel: Any, columns: int, arithmetic: int = SINGLE) -> Float64:
    """Return sum_j coefficients[k, j] k(x_i, z_j), (problems, n): the kernel is evaluated once for all k."""
    out = np.zeros((len(coefficients), row_count(X)))

    def strip(start: int, stop: int) -> None:
        for rows, points, tile in tiles(row_slice(X, start, stop), Z, kernel, columns, arithmetic):
            for k, part in enumerate(coefficients[:, points]):
                there = np.flatnonzero(part)
                weigh_some(tile, there, part[there], out[k, start:stop][rows])
            del tile

    in_strips(strip, row_count(X), TILE_ROWS, worthwhile(TILE_ROWS * row_count(Z)))
    return out


def worthwhile(values: int) -> int:
    """Return how many pieces of so many kernel values each are worth a thread."""
    return -(-WORTHWHILE // max(values, 1))


def tiles(
    X: Rows, Z: Rows, kernel: Any, columns: int, arithmetic: int = SINGLE
) -> Iterator[tuple[slice, slice, Array]]:
    """Yield k(x_i, z_j) for X (n), Z (m) rows tile by tile: which rows, which points, the values; a new array each
    time. Who deletes it before the next one is made never holds two (``scratch_bytes`` counts one).
    """
    n, m, dtype = row_count(X), row_count(Z), dtype_of(arithmetic)
    width = _points(TILE_POINTS, columns, dtype)
    height = TILE_ROWS if arithmetic == SINGLE else max(1, min(TILE_ROWS, DENSE_BYTES // (8 * columns)))
    for first in range(0, m, width):
        last = min(first + width, m)
        points = points_of(to_matrix(row_slice(Z, first, last), columns), dtype)
        for start in range(0, n, height):
            stop = min(start + height, n)
            tile = np.empty((stop - start, last - first), dtype)
            kernel_block(row_slice(X, start, stop), points, kernel, tile, by_differences=arithmetic == DIFFERENCES)
            yield slice(start, stop), slice(first, last), tile
            del tile


def _points(most: int, columns: int, dtype: Any) -> int:
    """Return how many points are made dense at a time, ``most`` of them at most."""
    return max(1, min(most, DENSE_BYTES // (np.dtype(dtype).itemsize * max(columns, 1))))


def gram(Z: Rows, kernel: Any, columns: int, arithmetic: int = SINGLE) -> Array:
    """Return k(z_i, z_j), (m, m), symmetric to the last bit: what lies on and below the diagonal is evaluated, and mirrored."""
    m, dtype = row_count(Z), dtype_of(arithmetic)
    out, width = np.empty((m, m), dtype), _points(GRAM_POINTS, columns, dtype)

    def fill(first: int) -> None:
        _fill_block(Z, slice(first, min(first + width, m)), kernel, columns, arithmetic, out)

    share_out(iter(range(0, m, width)), fill, max(1, m * m // (2 * WORTHWHILE)))
    out[np.diag_indices_from(out)] = diagonal(Z, kernel, dtype)
    return out


def _fill_block(Z: Rows, block: slice, kernel: Any, columns: int, arithmetic: int, out: Array) -> None:
    """Changes ``out`` (m, m), in the columns of a block from the diagonal on, and in its rows."""
    below = row_slice(Z, block.start, len(out))
    for rows, _, tile in tiles(below, row_slice(Z, block.start, block.stop), kernel, columns, arithmetic):
        out[block.start :, block][rows] = tile
        out[block, block.start :][:, rows] = tile.T
        del tile
    square = out[block, block]  # mirrored in itself
    square[:] = np.tril(square) + np.tril(square, -1).T


@compiled(fastmath=FAST)
def weigh(K: Array, coefficients: Float64, out: Float64) -> None:
    """Adds K c to ``out`` (n,), summed in float64."""
    n, m = K.shape
    for i in range(n):
        total = 0.0
        for j in range(m):
            total += K[i, j] * coefficients[j]
        out[i] += total


@compiled(fastmath=FAST)
def weigh_some(K: Array, places: Int64, coefficients: Float64, out: Float64) -> None:
    """Adds sum_j coefficients[j] K[:, places[j]] to ``out`` (n,), summed in float64."""
    for i in range(out.size):
        total = 0.0
        for j in range(places.size):
            total += K[i, places[j]] * coefficients[j]
        out[i] += total
