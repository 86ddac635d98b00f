"""Blocks of kernel values, K[i, j] = k(x_i, z_j): a matrix product with the points, then one pass that applies the
kernel in place.

The dtype of the output array determines the arithmetic, float32 or float64; norms are always summed in float64. Bounds
of the rounding error are derived in ``compute/kernel_values/arithmetic.py``. If a kernel of x - z is so narrow that
products in float64 are not accurate enough, distances are sums of differences. BLAS uses the number of threads that the
caller has set (``threadpool_limits``): one, while a reader works.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import streamsvm.compute.kernel_values.elementary  # noqa: F401  gives passes the functions of kernels.py
from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import row_squares
from streamsvm.compute.compiled import compiled
from streamsvm.compute.kernel_values.arithmetic import DIFFERENCES, exact_arithmetic, reach_of
from streamsvm.compute.kernel_values.whole_numbers import WholePoints, exact_half_squares
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import Dense, Float32, Float64, Int32, Int64, Rows, row_count
from streamsvm.type_aliases import Array

CONVERTED_ROWS = 512
"""Number of rows that are converted to float64 at a time."""


@saved_as("kernel.points")
class Points(NamedTuple):
    """Landmarks or support rows z_1 .. z_m in the layout for passes.

    Each point is a column: the product of a sparse row with all points is then a sum of contiguous rows of this array.
    For BLAS the orientation makes no difference.
    """

    columns: Array
    """(d, m), C-contiguous: z_j is column j. float32, or float64 for kernel values in float64."""
    squares: Array
    """||z_j||^2, (m,), of the same type."""

    @property
    def size(self) -> int:
        """The number of points."""
        return self.columns.shape[1]

    @property
    def nbytes(self) -> int:
        """The bytes of both arrays."""
        return self.columns.nbytes + self.squares.nbytes


def points_of(rows: Array, dtype: Any = np.float32) -> Points:
    """Return the points of a matrix with one point per row, (m, d), for kernel values of this dtype."""
    columns = np.ascontiguousarray(rows.T, dtype)
    squares = np.einsum("jk,jk->k", columns, columns, dtype=np.float64)
    return Points(columns, squares.astype(dtype))


def single(kernel: Any) -> Any:
    """Return the kernel with float32 parameters, so that a pass over float32 values computes in float32."""
    return type(kernel)(*(np.float32(value) for value in kernel))


def squares_of(X: Rows, dtype: Any = np.float32) -> Array:
    """Return ||x_i||^2 of every row without its constant feature, (n,), rounded to this dtype."""
    squares = np.empty(row_count(X), dtype)
    row_squares(X._replace(bias=0.0), squares)
    return squares


def kernel_block(X: Rows, Z: Points, kernel: Any, out: Array, *, by_differences: bool = False) -> None:
    """Set out[i, j] = k(x_i, z_j), (n, m) C-contiguous, of the dtype of the points. The constant feature of X is
    ignored.

    ``by_differences``: compute distances from x_ik - z_jk; only for kernels of x - z, and in float64.
    """
    squares, norms = np.zeros(len(out), out.dtype), Z.squares
    if kernel.city_block():
        distances(X, Z, out, by_differences=by_differences)
    elif by_differences:
        half_squares(X, Z, out)
        norms = np.zeros_like(norms)
    else:
        dot_products(X, Z, out)
        squares = squares_of(X, out.dtype)
    finish(out, squares, norms, single(kernel) if out.dtype == np.float32 else kernel)


def exact_kernel_block(values: Float32, Z: WholePoints, kernel: Any, out: Array) -> None:
    """Set out[i, j] = k(x_i, z_j) of a kernel of ||x - z||, for rows of whole numbers (``whole_numbers``)."""
    exact_half_squares(values, Z, out)
    nothing = np.zeros(max(out.shape), out.dtype)
    finish(out, nothing, nothing, single(kernel) if out.dtype == np.float32 else kernel)


def symmetric_gram(Z: Points, kernel: Any) -> Float64:
    """Return K[i, j] = k(z_i, z_j) in float64, symmetric up to rounding, for a factorization."""
    rows, points = Dense(np.ascontiguousarray(Z.columns.T)), points_of(Z.columns.T, np.float64)
    reach = reach_of(rows, points.squares)
    by_differences = exact_arithmetic(kernel, reach, len(Z.columns)) == DIFFERENCES
    out = np.empty((Z.size, Z.size))
    kernel_block(rows, points, kernel, out, by_differences=by_differences)
    return out


def dense_rows(X: Rows, rows: Int64, columns: int) -> Float32:
    """Return the chosen rows as a matrix (k, columns), without the constant feature."""
    if isinstance(X, Dense):
        return X.values[rows]
    out = np.zeros((len(rows), columns), np.float32)
    for i, row in enumerate(rows):
        part = slice(X.indptr[row], X.indptr[row + 1])
        out[i, X.indices[part]] = X.data[part]
    return out


def diagonal(X: Rows, kernel: Any, dtype: Any = np.float32) -> Array:
    """Return k(x_i, x_i) of every row, (n,), computed in this dtype."""
    squares = squares_of(X, dtype)
    out = np.zeros_like(squares) if kernel.city_block() else squares.copy()
    finish_diagonal(out, squares, single(kernel) if dtype == np.float32 else kernel)
    return out


def dot_products(X: Rows, Z: Points, out: Array) -> None:
    """Set out[i, j] = x_i . z_j. Rows of another dtype than the points are converted a few at a time."""
    if isinstance(X, Dense):
        height = len(out) if Z.columns.dtype == X.values.dtype else CONVERTED_ROWS
        for start in range(0, len(out), max(height, 1)):
            np.matmul(X.values[start : start + height], Z.columns, out=out[start : start + height])
    else:
        sparse_products(X.data, X.indices, X.indptr, Z.columns, out)


def half_squares(X: Rows, Z: Points, out: Array) -> None:
    """Set out[i, j] = -1/2 ||x_i - z_j||^2, which takes the place of a product if norms are set to 0. Sparse rows are
    converted to dense.
    """
    values = X.values if isinstance(X, Dense) else dense_rows(X, np.arange(len(out)), len(Z.columns))
    out[:] = 0.0
    dense_half_squares(values, Z.columns, out)


def distances(X: Rows, Z: Points, out: Array, *, by_differences: bool = False) -> None:
    """Set out[i, j] = |x_i - z_j|_1. ``by_differences``: convert sparse rows to dense; else add corrections to
    |z_j|_1.
    """
    if isinstance(X, Dense) or by_differences:
        values = X.values if isinstance(X, Dense) else dense_rows(X, np.arange(len(out)), len(Z.columns))
        out[:] = 0.0
        dense_distances(values, Z.columns, out)
    else:
        out[:] = np.abs(Z.columns).sum(axis=0, dtype=np.float64)
        sparse_distances(X.data, X.indices, X.indptr, Z.columns, out)


@compiled(fastmath=FAST)
def finish(out: Array, sqx: Array, sqz: Array, kernel: Any) -> None:
    """Convert ``out`` (n, m) from products or distances to kernel values, in place."""
    n, m = out.shape
    for i in range(n):
        for j in range(m):
            out[i, j] = kernel.similarity(out[i, j], sqx[i], sqz[j])


@compiled(fastmath=FAST)
def finish_diagonal(out: Array, squares: Array, kernel: Any) -> None:
    """Convert ``out`` (n,) from ||x||^2, or 0, to k(x, x), in place."""
    for i in range(out.size):
        out[i] = kernel.similarity(out[i], squares[i], squares[i])


@compiled(fastmath=FAST)
def sparse_products(data: Float32, indices: Int32, indptr: Int64, columns: Array, out: Array) -> None:
    """Set ``out`` (n, m) to the rows of a CSR matrix times ``columns`` (d, m).

    Four entries are processed at a time, because reading and writing ``out`` takes most of the time.
    """
    n, m = out.shape
    for i in range(n):
        for j in range(m):
            out[i, j] = 0
        p, stop = indptr[i], indptr[i + 1]
        while p + 3 < stop:
            a, b, c, d = data[p], data[p + 1], data[p + 2], data[p + 3]
            A, B, C, D = columns[indices[p]], columns[indices[p + 1]], columns[indices[p + 2]], columns[indices[p + 3]]
            for j in range(m):
                out[i, j] += (a * A[j] + b * B[j]) + (c * C[j] + d * D[j])
            p += 4
        while p < stop:
            value, row = data[p], columns[indices[p]]
            for j in range(m):
                out[i, j] += value * row[j]
            p += 1


@compiled(fastmath=FAST)
def dense_distances(values: Array, columns: Array, out: Array) -> None:
    """Add |x_ik - z_jk|, summed over k, to ``out`` (n, m)."""
    n, m = out.shape
    for i in range(n):
        for k in range(values.shape[1]):
            value = values[i, k]
            for j in range(m):
                out[i, j] += abs(value - columns[k, j])


@compiled(fastmath=FAST)
def dense_half_squares(values: Array, columns: Array, out: Array) -> None:
    """Add -1/2 (x_ik - z_jk)^2, summed over k, to ``out`` (n, m)."""
    n, m = out.shape
    for i in range(n):
        for k in range(values.shape[1]):
            value = np.float64(values[i, k])
            for j in range(m):
                difference = value - columns[k, j]
                out[i, j] -= 0.5 * difference * difference


@compiled(fastmath=FAST)
def sparse_distances(data: Float32, indices: Int32, indptr: Int64, columns: Array, out: Array) -> None:
    """Add |x_ik - z_jk| - |z_jk|, summed over the stored entries of row i, to ``out`` (n, m), which holds |z_j|_1."""
    n, m = out.shape
    for i in range(n):
        for p in range(indptr[i], indptr[i + 1]):
            value, row = data[p], columns[indices[p]]
            for j in range(m):
                out[i, j] += abs(value - row[j]) - abs(row[j])
