"""Dual coordinate descent with a proximal term on frequent columns: one sweep over sparse rows, and the preparation of
the rows.

    max_a  sum_i (a_i - conjugate(a_i)) - 1/2 (v + M c)' (I + M)^-1 (v + M c),     v = sum_i a_i y_i x_i,     0 <= a_i <= U_i

is the dual of P(w) + 1/2 (w - c)' M (w - c), and w = (I + M)^-1 (v + M c). M is a full matrix among a few ``full``
columns, and diagonal for all other columns. Let I + M = L L' on the full columns, z_i = L^-1 x_i (full columns only)
and u = L' w. A decision value is u.z_i + sum over the other columns of w_j x_ij, and

    a_i <- clip(a_i - G / Q, 0, U_i),     G = y_i f_i - 1 + conjugate'(a_i),     Q = ||z_i||^2 + sum_j x_ij^2 / (1 + M_jj) + conjugate'',

after which u changes by da y_i z_i, and w_j by da y_i x_ij / (1 + M_jj). For quadratic and linear conjugates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.rows_in_memory import RowTerms
from streamsvm.rows import CSR, Float32, Float64, Int32, Int64


class MetricRows(NamedTuple):
    """Sparse rows in the metric I + M."""

    X: CSR
    place: Int32
    """(p,) the place of each column among the full ones, or -1; the constant feature is the last full column."""
    shrink: Float64
    """(p,) 1 / (1 + M_jj) for the other columns."""
    full: Float32
    """(n, k) the rows z_i."""
    squares: Float64
    """(n,) Q without conjugate''."""


@compiled(fastmath=FAST)
def _whiten(
    data: Float32, indices: Int32, indptr: Int64, bias: float, place: Int32, inverse: Float64, out: Float32
) -> None:
    k = inverse.shape[0]
    for i in range(indptr.size - 1):
        z = np.zeros(k)
        for p in range(indptr[i], indptr[i + 1]):
            c = place[np.uint32(indices[p])]
            if c >= 0:
                for r in range(c, k):
                    z[r] += inverse[r, c] * data[p]
        for r in range(k):
            out[i, r] = z[r] + inverse[r, k - 1] * bias


@compiled(fastmath=FAST)
def _squares(
    data: Float32, indices: Int32, indptr: Int64, place: Int32, shrink: Float64, full: Float32, out: Float64
) -> None:
    for i in range(out.size):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = np.uint32(indices[p])
            if place[j] < 0:
                total += shrink[j] * np.float64(data[p]) * data[p]
        for c in range(full.shape[1]):
            total += np.float64(full[i, c]) * full[i, c]
        out[i] = total


def row_squares(X: CSR, place: Int32, shrink: Float64, full: Float32) -> Float64:
    """Return ||z_i||^2 + sum over the other columns of shrink_j x_ij^2, (n,)."""
    out = np.empty(len(X.indptr) - 1)
    _squares(X.data, X.indices, X.indptr, place, shrink, full, out)
    return out


def metric_rows(X: CSR, place: Int32, shrink: Float64, inverse: Float64) -> MetricRows:
    """Return the rows in the metric I + M; ``inverse`` is L^-1 (k, k), lower triangular."""
    full = np.empty((len(X.indptr) - 1, len(inverse)), np.float32)
    _whiten(X.data, X.indices, X.indptr, X.bias, place, inverse, full)
    return MetricRows(X, place, shrink, full, row_squares(X, place, shrink, full))


@compiled(fastmath=FAST)
def _decision(part: Float32, where: Int32, z: Float32, place: Int32, w: Float64, u: Float64) -> float:
    """Return the decision value of a row with entries ``part`` in columns ``where``."""
    f = 0.0
    for p in range(part.size):
        j = np.uint32(where[p])
        if place[j] < 0:
            f += part[p] * w[j]
    for c in range(u.size):
        f += z[c] * u[c]
    return f


@compiled(fastmath=FAST)
def _add(
    change: float, part: Float32, where: Int32, z: Float32, place: Int32, shrink: Float64, w: Float64, u: Float64
) -> None:
    """Update w and u after ``change``, a change of a_i y_i."""
    for p in range(part.size):
        j = np.uint32(where[p])
        if place[j] < 0:
            w[j] += change * part[p] * shrink[j]
    for c in range(u.size):
        u[c] += change * z[c]


@compiled(fastmath=FAST)
def proximal_sweep(
    rows: MetricRows, terms: RowTerms, order: Int32, count: int, a: Float64, w: Float64, u: Float64
) -> int:
    """Sweep over the first ``count`` rows of ``order``.

    Changed: a (n,), w (p,) except for the full columns, u (k,), and order, whose first entries become the rows that
    need further visits.
    Returned: the number of these rows.
    """
    X, place, shrink, full, squares = rows
    y, s, C, loss = terms
    left = 0
    for t in range(count):
        i = order[t]
        part, where = X.data[X.indptr[i] : X.indptr[i + 1]], X.indices[X.indptr[i] : X.indptr[i + 1]]
        C_i, before = C * s[i], a[i]
        top = loss.upper(C_i)
        G = y[i] * _decision(part, where, full[i], place, w, u) - 1.0 + loss.conjugate_slope(before, C_i)
        if (before <= 0.0 and G > 0.0) or (before >= top and G < 0.0):
            continue
        order[left] = i
        left += 1
        Q = squares[i] + loss.curvature(C_i)
        if Q > 0.0:
            a[i] = min(max(before - G / Q, 0.0), top)
        else:  # an empty row: the dual is linear
            a[i] = top if G < 0.0 else before
        if a[i] != before:
            _add((a[i] - before) * y[i], part, where, full[i], place, shrink, w, u)
    return left
