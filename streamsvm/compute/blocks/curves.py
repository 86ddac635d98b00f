"""Rows of hat functions, which piecewise-linear curves of numbers are linear in, and the basis in which solvers see them.

A curve of a column is piecewise linear on its knots t_1 < .. < t_K and constant outside of them, with the value theta_r
at t_r. With t_r <= x < t_r+1, f = (x - t_r) / (t_r+1 - t_r), and x replaced by the nearest knot outside of them,

    c(x) = theta_r (1 - f) + theta_r+1 f = h(x).theta,

where h(x) has two entries. A row with q curves has 2 q such entries, those of curve j in the components ``starts[j]`` to
``starts[j + 1]``, followed by the entries of the columns that stay linear.

The penalty of a curve is theta' S theta. With B B' = S^-1 and theta = B u it is ||u||^2, so that a solver that minimizes
||u||^2 / 2 plus losses of x.u, x = B' h, solves the penalized problem. x has K entries where h has two; ``Curved`` rows
are therefore the pair of h and B, whose product is never formed:

    X u = H (B u),    X' a = B' (H' a),    X' diag(a) X = B' (H' diag(a) H) B.

H' diag(a) H of one curve is tridiagonal (``curve_grams``). Rows with tables of pairs of columns have one entry more for each pair,
and B has a Kronecker product for each (``compute.blocks.column_pairs``).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.column_pairs import PairBasis
from streamsvm.compute.compiled import compiled
from streamsvm.rows import CSR, Dense, Float32, Float64, Int32, Int64, Rows, find_column_places, row_count
from streamsvm.type_aliases import Array

LEVELS = 1 << 16
"""Number of cells of a histogram: the values of the upper 16 bits of a float32."""


@saved_as("rows.basis")
class Basis(NamedTuple):
    """The block-diagonal matrix B: a square matrix for each curve and each pair of columns, and 1 for all other components."""

    matrices: Float64
    """The matrices B_j, row by row, one after the other."""
    starts: Int64
    """(q + 1,) The first component of each curve, and of the linear columns."""
    pairs: PairBasis | None = None
    """The blocks of pairs of columns; None: there are no pairs."""

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices."""
        return self.matrices.nbytes + (0 if self.pairs is None else self.pairs.nbytes)

    def blocks(self) -> list[tuple[slice, Float64]]:
        """Return the components and the matrix B_j (K, K) of every curve."""
        sizes = np.diff(self.starts)
        ends = np.cumsum(sizes * sizes)
        return [
            (slice(int(a), int(b)), self.matrices[int(end) - int(size * size) : int(end)].reshape(int(size), int(size)))
            for (a, b), size, end in zip(pairwise(self.starts), sizes, ends, strict=True)
        ]

    def lift(self, W: Float64) -> Float64:
        """Return theta = B u for each row u of W (k, p)."""
        out = W.copy()
        for part, B in self.blocks():
            out[:, part] = W[:, part] @ B.T
        if self.pairs is not None:
            self.pairs.lift(W, out)
        return out

    def adjoint(self, V: Float64) -> Float64:
        """Return B' v for each row v of V (k, p)."""
        out = V.copy()
        for part, B in self.blocks():
            out[:, part] = V[:, part] @ B
        if self.pairs is not None:
            self.pairs.adjoint(V, out)
        return out

    def congruent(self, G: Float64) -> Float64:
        """Return B' G B (p, p) for the symmetric matrix G (p, p). Changes G."""
        for part, B in self.blocks():
            G[part] = B.T @ G[part]
        for part, B in self.blocks():
            G[:, part] = G[:, part] @ B
        if self.pairs is not None:
            for side in (G, G.T):
                self.pairs.adjoint(side, side)
        return G


@saved_as("rows.curved")
class Curved(NamedTuple):
    """Rows B' h_i as the pair of sparse rows h_i and B."""

    rows: CSR
    """The rows h_i, with the constant feature."""
    basis: Basis

    @property
    def bias(self) -> float:
        """The value of the constant feature."""
        return self.rows.bias

    def with_rows(self, rows: Rows) -> Curved:
        """Return rows with the same basis."""
        assert isinstance(rows, CSR)
        return Curved(rows, self.basis)


def curve_grams(X: Curved, a: Float64, columns: int) -> tuple[Float64, Float64]:
    """Return the diagonal of H' diag(a) H (p,), and the entries (p,) at (j, j + 1) within curves."""
    diagonal, beside = np.zeros(columns + 1), np.zeros(columns + 1)
    rows = X.rows
    _add_curve_grams(rows.data, rows.indices, rows.indptr, len(X.basis.starts) - 1, a, diagonal, beside)
    diagonal[-1] = rows.bias * rows.bias * float(a.sum())
    return diagonal, beside


def curve_gram(B: Float64, diagonal: Float64, beside: Float64) -> Float64:
    """Return T B (K, K), T the tridiagonal matrix with this diagonal and these entries beside it, (K,) each."""
    product = diagonal[:, None] * B
    product[:-1] += beside[:-1, None] * B[1:]
    product[1:] += beside[:-1, None] * B[:-1]
    return product


def curve_squares(X: Curved, a: Float64, columns: int) -> Float64:
    """Return sum_i a_i x_ij^2 for every component j (p,) of the rows x = B' h, the constant feature included."""
    diagonal, beside = curve_grams(X, a, columns)
    out = diagonal.copy()
    for part, B in X.basis.blocks():
        out[part] = (B * curve_gram(B, diagonal[part], beside[part])).sum(axis=0)
    if X.basis.pairs is not None:
        X.basis.pairs.squares(diagonal, out)
    return out


@compiled()
def _add_curve_grams(
    data: Float32, indices: Int32, indptr: Int64, curves: int, a: Float64, diagonal: Float64, beside: Float64
) -> None:
    for i in range(a.size):
        if a[i] == 0.0:
            continue
        first = indptr[i]
        for j in range(curves):
            p = first + 2 * j
            low, high = np.float64(data[p]), np.float64(data[p + 1])
            r = indices[p]
            diagonal[r] += a[i] * low * low
            diagonal[r + 1] += a[i] * high * high
            beside[r] += a[i] * low * high
        for p in range(first + 2 * curves, indptr[i + 1]):
            diagonal[indices[p]] += a[i] * np.float64(data[p]) * data[p]


# -- from numbers to hat functions


def hat_rows(X: Rows, places: Int32, knots: Float32, starts: Int64, bias: float, tail: int = 0) -> CSR:
    """Return the rows h of stored rows, with the constant feature ``bias``. Zeros of linear columns are not stored. The last
    ``tail`` entries of each row are left unset.

    ``places`` (d,): j for the column of curve j, and -1 - i for the linear column number i; columns without either have
    the number -1 - d. Curves and linear columns are numbered in the order of the columns. ``knots``: those of all curves, curve j from ``starts[j]`` on.
    """
    curves, first = len(starts) - 1, int(starts[-1])
    is_linear = (places < 0) & (places > -1 - len(places))
    if isinstance(X, Dense):
        linear, indptr = np.flatnonzero(is_linear), np.zeros(row_count(X) + 1, np.int64)
        _count_dense_entries(X.values, linear, 2 * curves + tail, indptr)
        data, indices = np.empty(int(indptr[-1]), np.float32), np.empty(int(indptr[-1]), np.int32)
        _fill_dense_hats(X.values, np.flatnonzero(places >= 0), linear, knots, starts, tail, data, indices)
        return CSR(data, indices, indptr, bias)
    kept = np.concatenate([[0], np.cumsum(is_linear[X.indices], dtype=np.int64)])[X.indptr]
    indptr = kept - kept[0] + (2 * curves + tail) * np.arange(len(kept), dtype=np.int64)
    data, indices = np.empty(int(indptr[-1]), np.float32), np.empty(int(indptr[-1]), np.int32)
    _fill_sparse_hats(X.data, X.indices, X.indptr, places, knots, starts, first, indptr, data, indices)
    return CSR(data, indices, indptr, bias)


@compiled()
def _count_dense_entries(values: Float32, linear: Int64, always: int, indptr: Int64) -> None:
    for i in range(values.shape[0]):
        row, count = values[i], always
        for k in range(linear.size):
            if row[linear[k]] != 0.0:
                count += 1
        indptr[i + 1] = indptr[i] + count


@compiled()
def _fill_dense_hats(
    values: Float32,
    columns: Int64,
    linear: Int64,
    knots: Float32,
    starts: Int64,
    tail: int,
    data: Float32,
    indices: Int32,
) -> None:
    p, first = 0, starts[starts.size - 1]
    for i in range(values.shape[0]):
        row = values[i]
        for j in range(columns.size):
            _set_hats(row[columns[j]], knots, starts[j], starts[j + 1], p, data, indices)
            p += 2
        for k in range(linear.size):
            if row[linear[k]] != 0.0:
                data[p], indices[p] = row[linear[k]], first + k
                p += 1
        p += tail


@compiled()
def _fill_sparse_hats(
    values: Float32,
    stored: Int32,
    ends: Int64,
    places: Int32,
    knots: Float32,
    starts: Int64,
    first: int,
    indptr: Int64,
    data: Float32,
    indices: Int32,
) -> None:
    curves, none = starts.size - 1, -1 - places.size
    zero_data, zero_indices = np.empty(2 * curves, np.float32), np.empty(2 * curves, np.int32)
    for j in range(curves):
        _set_hats(np.float32(0.0), knots, starts[j], starts[j + 1], 2 * j, zero_data, zero_indices)
    for i in range(ends.size - 1):
        start = indptr[i]
        for k in range(2 * curves):
            data[start + k], indices[start + k] = zero_data[k], zero_indices[k]
        p = start + 2 * curves
        for e in range(ends[i], ends[i + 1]):
            place = places[stored[e]]
            if place >= 0:
                _set_hats(values[e], knots, starts[place], starts[place + 1], start + 2 * place, data, indices)
            elif place > none:
                data[p], indices[p] = values[e], first - 1 - place
                p += 1


@compiled()
def _set_hats(x: float, knots: Float32, start: int, stop: int, p: int, data: Float32, indices: Int32) -> None:
    """Write the two entries of h(x) at p and p + 1. Given: the knots of the curve, from start to stop."""
    low, high = start, stop - 1
    while high - low > 1:
        middle = (low + high) // 2
        if knots[middle] <= x:
            low = middle
        else:
            high = middle
    left = np.float64(knots[low])
    f = (np.float64(x) - left) / (np.float64(knots[low + 1]) - left)
    f = np.float64(min(max(f, 0.0), 1.0))
    data[p], indices[p] = np.float32(1.0 - f), low
    data[p + 1], indices[p + 1] = np.float32(f), low + 1


# -- histograms


def add_to_histograms(X: Rows, columns: Int64, counts: Int64, minimum: Float32, maximum: Float32) -> None:
    """Count the values of ``columns`` (q,), ascending, in stored rows.

    ``counts`` (q, LEVELS): how many values have these upper 16 bits, in the order of the numbers. ``minimum``, ``maximum``
    (q,). Changed: all three. The counts do not depend on the order of the rows, and those of several parts add up.
    """
    if isinstance(X, Dense):
        _count_dense(X.values.view(np.uint32), X.values, columns, counts, minimum, maximum)
        return
    absent = np.full(len(columns), row_count(X), np.int64)
    _count_sparse(
        X.data.view(np.uint32), X.data, X.indices, find_column_places(X, columns), counts, minimum, maximum, absent
    )
    counts[:, LEVELS // 2] += absent
    has_zero = absent > 0
    minimum[has_zero], maximum[has_zero] = np.minimum(minimum[has_zero], 0.0), np.maximum(maximum[has_zero], 0.0)


@compiled()
def level_of(bits: int) -> int:
    """Return the upper 16 bits of a float32 as a number that rises with the float32; -0 is counted as 0."""
    upper = bits >> 16
    if bits == 0x80000000:
        return 0x8000
    return 0x8000 + upper if upper < 0x8000 else 0xFFFF - upper


@compiled()
def _count_dense(
    bits: Array, values: Float32, columns: Int64, counts: Int64, minimum: Float32, maximum: Float32
) -> None:
    for i in range(values.shape[0]):
        for j in range(columns.size):
            x = values[i, columns[j]]
            counts[j, level_of(np.int64(bits[i, columns[j]]))] += 1
            minimum[j] = min(minimum[j], x)
            maximum[j] = max(maximum[j], x)


@compiled()
def _count_sparse(
    bits: Array,
    values: Float32,
    indices: Int32,
    place: Int32,
    counts: Int64,
    minimum: Float32,
    maximum: Float32,
    absent: Int64,
) -> None:
    for p in range(values.size):
        j = place[indices[p]]
        if j >= 0:
            counts[j, level_of(np.int64(bits[p]))] += 1
            minimum[j] = min(minimum[j], values[p])
            maximum[j] = max(maximum[j], values[p])
            absent[j] -= 1


def lower_bounds() -> Float32:
    """Return the least number of each cell of a histogram (LEVELS,), rising."""
    bounds = least_values()
    negative = bounds[: LEVELS // 2].view(np.uint32)  # those nearest 0 have lower bits of 0
    negative |= np.uint32(0xFFFF)
    return bounds


def least_values() -> Float32:
    """Return the number nearest 0 of each cell of a histogram (LEVELS,), rising."""
    cell = np.arange(LEVELS, dtype=np.uint32)
    upper = np.where(cell >= LEVELS // 2, cell - LEVELS // 2, LEVELS - 1 - cell).astype(np.uint32)
    return (upper << np.uint32(16)).view(np.float32)
