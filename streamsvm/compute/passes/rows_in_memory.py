"""What second-order methods on rows in memory need of them: Hessian products, blocks of the Hessian, descent on some columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.blocks.columns import column_counts
from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.targets import argument, change
from streamsvm.rows import CSR, Float32, Float64, Int32, Int64, Rows, Targets

TRIALS = 20
"""Points at most at which a root is looked for."""
ENOUGH = 1e-3
"""The search ends where the slope has fallen to this share of the first one."""


class RowTerms(NamedTuple):
    """What a row adds to the problem: its sign, its weight, and C times the loss."""

    y: Targets
    """The sign of each row, or its number, (n,)."""
    s: Float64
    """The weight of each row, (n,)."""
    C: float
    """What the sum of losses is multiplied by."""
    loss: Any
    """The record of the loss."""


@compiled(fastmath=FAST)
def hessian_product(X: Rows, h: Float64, d: Float64, out: Float64) -> int:
    """Adds X' diag(h) X d to ``out`` (p,), each row read once; returns how many rows have h_i > 0."""
    count = 0
    for i in range(h.size):
        if h[i] != 0.0:
            X.axpy(i, h[i] * X.dot(i, d), out)
            count += 1
    return count


@compiled(fastmath=FAST)
def sparse_block(
    data: Float32, indices: Int32, indptr: Int64, bias: float, h: Float64, place: Int32, out: Float64
) -> None:
    """Adds to the lower triangle of ``out`` (k, k): sum_i h_i z_i z_i', z_i the entries of row i that have a place in it.

    ``place`` (p,): where a column is in the block, or -1; the last one is that of the constant feature. Entries are sorted by place
    as they come, so that one triangle is written whatever the order of the columns.
    """
    where, values = np.empty(place.size, np.int32), np.empty(place.size)
    last = place[place.size - 1]
    for i in range(h.size):
        if h[i] == 0.0:
            continue
        count = 0
        for p in range(indptr[i], indptr[i + 1]):
            k = place[np.uint32(indices[p])]
            if k >= 0:
                where[count], values[count] = k, data[p]
                count += 1
        if last >= 0:
            where[count], values[count] = last, bias
            count += 1
        for p in range(count):
            scaled, k = h[i] * values[p], where[p]
            for q in range(p + 1):
                j = where[q]
                out[max(k, j), min(k, j)] += scaled * values[q]


@compiled(fastmath=FAST)
def line_pass(
    y: Targets, s: Float32 | Float64, f: Float64, df: Float64, C: float, smooth: Any, t: float
) -> tuple[float, float]:
    """First and second derivative of sum_i C s_i h(y_i (f_i + t df_i)) with respect to t."""
    slope, curvature = 0.0, 0.0
    for i in range(y.size):
        C_i = C * s[i]
        if C_i > 0.0:
            m = argument(smooth, y[i], f[i] + t * df[i])
            slope += C_i * smooth.slope(m) * change(smooth, y[i], df[i])
            curvature += C_i * smooth.second_derivative(m) * df[i] * df[i]
    return slope, curvature


class StoredColumns(NamedTuple):
    """Some columns of rows: entry k of column c is row ``rows[k]``, value ``data[k]``, start[c] <= k < start[c + 1]."""

    number: Int64
    """The component of w each belongs to, (c,)."""
    start: Int64
    """Where each begins, (c + 1,)."""
    rows: Int32
    """The row of each entry, rising within a column."""
    data: Float32
    """The value of each entry."""


@compiled(fastmath=FAST)
def _gather(data: Float32, indices: Int32, indptr: Int64, place: Int32, free: Int64, rows: Int32, out: Float32) -> None:
    for i in range(indptr.size - 1):
        for p in range(indptr[i], indptr[i + 1]):
            c = place[np.uint32(indices[p])]
            if c >= 0:
                k = free[c]
                rows[k], out[k] = i, data[p]
                free[c] = k + 1


def columns_of(X: CSR, chosen: Int64, columns: int) -> StoredColumns:
    """The ``chosen`` columns of sparse rows; those without an entry are left out."""
    counts = column_counts(X, columns)
    chosen = chosen[counts[chosen] > 0]
    place = np.full(columns, -1, np.int32)
    place[chosen] = np.arange(len(chosen), dtype=np.int32)
    start = np.concatenate([[0], np.cumsum(counts[chosen])]).astype(np.int64)
    rows, data = np.empty(int(start[-1]), np.int32), np.empty(int(start[-1]), np.float32)
    _gather(X.data, X.indices, X.indptr, place, start[:-1].copy(), rows, data)
    return StoredColumns(chosen, start, rows, data)


class Outside(NamedTuple):
    """What of the objective is not a sum over rows, for all components."""

    diagonal: Float64
    """G (p,)."""
    linear: Float64
    """q (p,)."""


@compiled(fastmath=FAST)
def column_sweep(
    given: StoredColumns, rows: RowTerms, outside: Outside, negligible: float, w: Float64, f: Float64
) -> float:
    """Coordinate descent on the weights of some columns, which are stored by column: each is set to its best in turn.

        min_t  1/2 G_j (w_j + t)^2 + q_j (w_j + t) + sum_i C s_i h(y_i (f_i + t x_ij)),      f = X w

    over the rows that have column j; the slope in t is monotone, and its root is found by Newton's method within what is known to
    bracket it. A column that few rows have, and that is large in them, can take one of them from the corner of the loss to its margin
    by itself: the objective bends by pieces there on a scale of 1 / x_ij, on which a step for all columns at once cannot follow.

    Reference: Chang, Hsieh and Lin, JMLR 2008 (coordinate descent on the primal).

    Changes w, and f with it: every column whose slope squared is more than ``negligible`` is set to its best once.

    Given: the columns; y, s, C and h = loss of the rows; G, q. Returned: half the sum of the squared slopes that were met.
    """
    squares = 0.0
    for c in range(given.number.size):
        entries = slice(given.start[c], given.start[c + 1])
        j, part, data = given.number[c], given.rows[entries], given.data[entries]
        low, high, t, first = -np.inf, np.inf, 0.0, 0.0
        for trial in range(TRIALS):
            slope, bend = outside.diagonal[j] * (w[j] + t) + outside.linear[j], outside.diagonal[j]
            for k in range(part.size):
                i = part[k]
                C_i, x = rows.C * rows.s[i], change(rows.loss, rows.y[i], data[k])
                m = argument(rows.loss, rows.y[i], f[i]) + t * x
                slope += C_i * rows.loss.slope(m) * x
                bend += C_i * rows.loss.second_derivative(m) * x * x
            if trial == 0:
                first = abs(slope)
                squares += 0.5 * slope * slope
                if slope * slope <= negligible:
                    break
            elif abs(slope) <= ENOUGH * first:
                break
            if slope > 0.0:
                high = t
            else:
                low = t
            following = t - slope / bend
            t = following if low < following < high else 0.5 * (low + high)
        if t != 0.0:
            w[j] += t
            for k in range(part.size):
                f[part[k]] += t * data[k]
    return squares
