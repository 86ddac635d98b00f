"""Kernel expansions, f_i = sum_j c_j k(x_i, z_j), computed in tiles that fit the processor's cache.

The caller chooses the arithmetic of the kernel values (``compute/kernel_values/arithmetic.py``); sums are always float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.kernel_values.arithmetic import DIFFERENCES, SINGLE, WHOLE_NUMBERS, dtype_of
from streamsvm.compute.kernel_values.kernel_matrix import diagonal, exact_kernel_block, kernel_block, points_of
from streamsvm.compute.kernel_values.whole_numbers import WholePoints, pack_points
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.threading import in_strips, share_out, threads
from streamsvm.rows import Dense, Float64, Int64, Rows, row_count, row_slice, to_matrix
from streamsvm.type_aliases import Array

TILE_ROWS = 512
TILE_POINTS = 512
"""A tile of kernel values stays in the second-level cache while it is computed and multiplied by its coefficients."""
DENSE_BYTES = 8 << 20
"""Bytes of points that a thread converts to dense rows at a time."""
GRAM_POINTS = 128
"""The width of a block of a Gram matrix, small enough that a working set has blocks for several threads."""
WHOLE_GRAM_POINTS = 512
"""The width of such a block in integers, for each of which all rows are converted to bytes."""
WIDER = 4
"""Tiles in integers are this many times wider, and lower, because rows are converted to bytes for each tile."""
VALUES_PER_THREAD = 1 << 17
"""Minimum number of kernel values that are worth a thread: a tenth of a millisecond of work or more."""


def scratch_bytes(columns: int) -> int:
    """Return an upper bound of the bytes that an expansion needs beside its arguments."""
    dense = max(min(DENSE_BYTES, 8 * columns * TILE_POINTS), 8 * columns)
    return threads() * (3 * dense + 8 * TILE_ROWS * TILE_POINTS)


def expand(
    X: Rows, Z: Rows, coefficients: Float64, kernel: Any, columns: int, out: Float64, arithmetic: int = SINGLE
) -> None:
    """Add sum_j coefficients[j] k(x_i, z_j) to out[i]. Given: X (n), Z (m) rows. Changed: out (n,)."""

    def expand_strip(start: int, stop: int) -> None:
        for rows, points, tile in tiles(row_slice(X, start, stop), Z, kernel, columns, arithmetic):
            weigh(tile, coefficients[points], out[start:stop][rows])
            del tile

    in_strips(expand_strip, len(out), TILE_ROWS, min_tiles_per_thread(TILE_ROWS * row_count(Z)))


def expand_all(X: Rows, Z: Rows, coefficients: Float64, kernel: Any, columns: int, arithmetic: int = SINGLE) -> Float64:
    """Return sum_j coefficients[k, j] k(x_i, z_j), (problems, n). The kernel is evaluated once for all k."""
    out = np.zeros((len(coefficients), row_count(X)))

    def expand_strip(start: int, stop: int) -> None:
        for rows, points, tile in tiles(row_slice(X, start, stop), Z, kernel, columns, arithmetic):
            for k, part in enumerate(coefficients[:, points]):
                nonzero = np.flatnonzero(part)
                weigh_some(tile, nonzero, part[nonzero], out[k, start:stop][rows])
            del tile

    in_strips(expand_strip, row_count(X), TILE_ROWS, min_tiles_per_thread(TILE_ROWS * row_count(Z)))
    return out


def min_tiles_per_thread(values: int) -> int:
    """Return how many tiles of ``values`` kernel values each are worth a thread of their own."""
    return -(-VALUES_PER_THREAD // max(values, 1))


def tiles(
    X: Rows, Z: Rows, kernel: Any, columns: int, arithmetic: int = SINGLE
) -> Iterator[tuple[slice, slice, Array]]:
    """Yield k(x_i, z_j) for X (n), Z (m) rows tile by tile: the slice of rows, the slice of points, and the values.

    Each tile is a new array. Callers delete it before they request the next one: ``scratch_bytes`` counts only one.
    """
    n, m, dtype = row_count(X), row_count(Z), dtype_of(arithmetic)
    is_whole = arithmetic in WHOLE_NUMBERS
    width = _points_at_a_time(TILE_POINTS * (WIDER if is_whole else 1), columns, dtype)
    height = TILE_ROWS if dtype == np.float32 else max(1, min(TILE_ROWS, DENSE_BYTES // (8 * columns)))
    height = TILE_ROWS // WIDER if is_whole else height
    for first in range(0, m, width):
        last = min(first + width, m)
        values = to_matrix(row_slice(Z, first, last), columns)
        points = pack_points(values) if is_whole else points_of(values, dtype)
        for start in range(0, n, height):
            stop = min(start + height, n)
            tile, part = np.empty((stop - start, last - first), dtype), row_slice(X, start, stop)
            if isinstance(points, WholePoints):
                assert isinstance(part, Dense)  # rows in integers are
                exact_kernel_block(part.values, points, kernel, tile)
            else:
                kernel_block(part, points, kernel, tile, by_differences=arithmetic == DIFFERENCES)
            yield slice(start, stop), slice(first, last), tile
            del tile


def _points_at_a_time(max_points: int, columns: int, dtype: Any) -> int:
    """Return how many points, at most ``max_points``, are converted to dense rows at a time."""
    return max(1, min(max_points, DENSE_BYTES // (np.dtype(dtype).itemsize * max(columns, 1))))


def gram(Z: Rows, kernel: Any, columns: int, arithmetic: int = SINGLE) -> Array:
    """Return k(z_i, z_j), (m, m), symmetric to the last bit: values on and below the diagonal are computed, then
    mirrored.
    """
    m, dtype = row_count(Z), dtype_of(arithmetic)
    points = WHOLE_GRAM_POINTS if arithmetic in WHOLE_NUMBERS else GRAM_POINTS
    out, width = np.empty((m, m), dtype), _points_at_a_time(points, columns, dtype)

    def fill(first: int) -> None:
        _fill_block(Z, slice(first, min(first + width, m)), kernel, columns, arithmetic, out)

    share_out(iter(range(0, m, width)), fill, max(1, m * m // (2 * VALUES_PER_THREAD)))
    out[np.diag_indices_from(out)] = diagonal(Z, kernel, dtype)
    return out


def _fill_block(Z: Rows, block: slice, kernel: Any, columns: int, arithmetic: int, out: Array) -> None:
    """Fill the columns of a block in ``out`` (m, m) from the diagonal down, and mirror them into its rows."""
    below = row_slice(Z, block.start, len(out))
    for rows, _, tile in tiles(below, row_slice(Z, block.start, block.stop), kernel, columns, arithmetic):
        out[block.start :, block][rows] = tile
        out[block, block.start :][:, rows] = tile.T
        del tile
    square = out[block, block]  # the block on the diagonal is mirrored within itself
    square[:] = np.tril(square) + np.tril(square, -1).T


@compiled(fastmath=FAST)
def weigh(K: Array, coefficients: Float64, out: Float64) -> None:
    """Add K c to ``out`` (n,), summed in float64."""
    n, m = K.shape
    for i in range(n):
        total = 0.0
        for j in range(m):
            total += K[i, j] * coefficients[j]
        out[i] += total


@compiled(fastmath=FAST)
def weigh_some(K: Array, places: Int64, coefficients: Float64, out: Float64) -> None:
    """Add sum_j coefficients[j] K[:, places[j]] to ``out`` (n,), summed in float64."""
    for i in range(out.size):
        total = 0.0
        for j in range(places.size):
            total += K[i, places[j]] * coefficients[j]
        out[i] += total
