"""Sums over a block: losses and dual values, of which certificates are made; moments of columns; entries of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.targets import argument, dual_gain
from streamsvm.rows import CSR, Float32, Float64, Int32, Int64, Rows, Targets

PIECE = 1 << 20
"""Entries counted at a time: numpy makes int64 of them first, which of all rows in memory would be as much as the
rows."""


@compiled(fastmath=FAST)
def loss_sum(X: Rows, y: Targets, s: Float32, w: Float64, C: float, loss: Any) -> float:
    """sum_i C s_i l(m_i). Given: all. Changed: nothing."""
    total = 0.0
    for i in range(y.size):
        total += C * s[i] * loss.value(argument(loss, y[i], X.dot(i, w)))
    return total


@compiled(fastmath=FAST)
def dual_sum(alpha: Float64, y: Targets, s: Float32, C: float, loss: Any) -> float:
    """sum_i a_i - conjugate(a_i, C s_i), of numbers a_i t_i more: the part of the dual that is not -1/2 ||w||^2. Changed: nothing."""
    total = 0.0
    for i in range(alpha.size):
        if s[i] > 0.0:
            total += dual_gain(loss, alpha[i], y[i], C * s[i])
    return total


@compiled()
def add_rows_precisely(X: Rows, factors: Float64, v: Float64, low: Float64) -> None:
    """Add sum_i c_i x_i to v + low, both (p,): low has what rounding takes from v. Given: X; c (n,). Changed: v, low."""
    for i in range(factors.size):
        if factors[i] != 0.0:
            X.add_row(i, factors[i], v, low)


@compiled()
def dense_moments(
    values: Float32, shift: Float64, sums: Float64, squares: Float64, minimum: Float64, maximum: Float64
) -> None:
    """Add the rows of a dense chunk to its column statistics, in one sweep.

    Given: values (n, d), a shift (d,) for each column near its mean. Changed: sums, squares, minimum, maximum (d,), all
    float64: sum (x - shift), sum (x - shift)^2, min x, max x. The shift keeps the second sum free of cancellation
    (Chan, Golub, LeVeque 1983).
    """
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
    """Add the stored entries of a CSR chunk to its column statistics, as ``dense_moments`` does.

    The shift of a column is the first entry it has, and is set here; ``counts`` (d,) says how many entries there are.
    """
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


def column_counts(X: CSR, columns: int, chosen: NDArray[np.bool_] | None = None) -> Int64:
    """Return the entries (columns,) of each column, in the ``chosen`` (n,) rows or in all."""
    counts, row, rows = np.zeros(columns, np.int64), 0, len(X.indptr) - 1
    while row < rows:
        stop = max(row + 1, int(np.searchsorted(X.indptr, X.indptr[row] + PIECE, side="right")) - 1)
        indices = X.indices[X.indptr[row] : X.indptr[stop]]
        if chosen is not None:
            indices = indices[np.repeat(chosen[row:stop], np.diff(X.indptr[row : stop + 1]))]
        counts += np.bincount(indices, minlength=columns)
        row = stop
    return counts
