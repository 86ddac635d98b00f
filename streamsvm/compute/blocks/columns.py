"""Statistics of the columns of a block: sums, moments, and counts of entries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.blocks.sums import two_sum_of_numbers
from streamsvm.compute.compiled import compiled
from streamsvm.rows import CSR, Float32, Float64, Int32, Int64

PIECE = 1 << 20
"""Number of entries counted at a time. numpy converts them to int64 first; for all rows in memory, that would take as
much memory as the rows."""


@compiled()
def dense_sums(values: Float32, sums: Float64, low: Float64, missing: Int64) -> None:
    """Add the rows of a dense block (n, d) to the sums of its columns, and count NaN as missing. Changed: sums, low,
    missing (d,).

    ``low`` is the accumulated rounding error of ``sums``: sums + low is as accurate as a sum in twice the precision,
    and does not depend on how rows are divided into blocks.
    """
    n, d = values.shape
    for i in range(n):
        for j in range(d):
            x = np.float64(values[i, j])
            if np.isnan(x):
                missing[j] += 1
            else:
                sums[j], lost = two_sum_of_numbers(sums[j], x)
                low[j] += lost


@compiled()
def sparse_sums(data: Float32, indices: Int32, sums: Float64, low: Float64, missing: Int64) -> None:
    """Add the stored entries of a CSR block to the sums of its columns, as ``dense_sums`` does."""
    for p in range(data.size):
        x, j = np.float64(data[p]), indices[p]
        if np.isnan(x):
            missing[j] += 1
        else:
            sums[j], lost = two_sum_of_numbers(sums[j], x)
            low[j] += lost


@compiled()
def dense_moments(
    values: Float32, shift: Float64, sums: Float64, squares: Float64, minimum: Float64, maximum: Float64
) -> None:
    """Add the rows of a dense chunk to the column statistics.

    Given: values (n, d), and a shift (d,) near the mean of each column. Changed: sums, squares, minimum, maximum (d,),
    all float64: sum (x - shift), sum (x - shift)^2, min x, max x. The shift avoids cancellation in the variance
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
    """Add the stored entries of a CSR chunk to the column statistics, as ``dense_moments`` does.

    The shift of a column is its first entry; it is set here. ``counts`` (d,): the number of entries of each column.
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
    """Return the number of entries of each column (columns,), in the rows where ``chosen`` (n,) is true; None: in all
    rows.
    """
    counts, row, rows = np.zeros(columns, np.int64), 0, len(X.indptr) - 1
    while row < rows:
        stop = max(row + 1, int(np.searchsorted(X.indptr, X.indptr[row] + PIECE, side="right")) - 1)
        indices = X.indices[X.indptr[row] : X.indptr[stop]]
        if chosen is not None:
            indices = indices[np.repeat(chosen[row:stop], np.diff(X.indptr[row : stop + 1]))]
        counts += np.bincount(indices, minlength=columns)
        row = stop
    return counts
