"""Passes of second-order methods over rows in memory: Hessian products, blocks of the Hessian, coordinate descent on
some columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.blocks.columns import column_counts
from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.targets import argument, change
from streamsvm.rows import CSR, Float32, Float64, Int32, Int64, Rows, Targets

MAX_TRIALS = 20
"""Largest number of points at which the slope is evaluated to find a root."""
ENOUGH = 1e-3
"""The search for a root ends when the slope has fallen to this fraction of its first value."""


class RowTerms(NamedTuple):
    """The terms of rows in the objective: C s_i l(m_i)."""

    y: Targets
    """The target of each row, (n,): its sign, or in regression its number."""
    s: Float64
    """The weight of each row, (n,)."""
    C: float
    """The factor of the sum of losses."""
    loss: Any
    """The loss l."""


@compiled(fastmath=FAST)
def hessian_product(X: Rows, h: Float64, d: Float64, out: Float64) -> int:
    """Add X' diag(h) X d to ``out`` (p,), reading each row once; return the number of rows with h_i > 0."""
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
    """Add sum_i h_i z_i z_i' to the lower triangle of ``out`` (k, k), where z_i has the entries of row i in the columns
    of the block.

    ``place`` (p,): the place of each column in the block, or -1; its last item belongs to the constant feature. Each
    product is added at (larger place, smaller place), so that only one triangle is written whatever the order of the
    columns.
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
    """Return the first and the second derivative of sum_i C s_i h(y_i (f_i + t df_i)) with respect to t."""
    slope, curvature = 0.0, 0.0
    for i in range(y.size):
        C_i = C * s[i]
        if C_i > 0.0:
            m = argument(smooth, y[i], f[i] + t * df[i])
            slope += C_i * smooth.slope(m) * change(smooth, y[i], df[i])
            curvature += C_i * smooth.second_derivative(m) * df[i] * df[i]
    return slope, curvature


class StoredColumns(NamedTuple):
    """Some columns of rows, stored by column: the entries k of column c, start[c] <= k < start[c + 1], are data[k] in
    row rows[k].
    """

    number: Int64
    """The component of w of each column, (c,)."""
    start: Int64
    """The position of the first entry of each column, (c + 1,)."""
    rows: Int32
    """The row of each entry, ascending within a column."""
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
    """Return the ``chosen`` columns of sparse rows, without those that have no entry."""
    counts = column_counts(X, columns)
    chosen = chosen[counts[chosen] > 0]
    place = np.full(columns, -1, np.int32)
    place[chosen] = np.arange(len(chosen), dtype=np.int32)
    start = np.concatenate([[0], np.cumsum(counts[chosen])]).astype(np.int64)
    rows, data = np.empty(int(start[-1]), np.int32), np.empty(int(start[-1]), np.float32)
    _gather(X.data, X.indices, X.indptr, place, start[:-1].copy(), rows, data)
    return StoredColumns(chosen, start, rows, data)


class FixedTerms(NamedTuple):
    """The terms 1/2 G_j w_j^2 + q_j w_j of the objective that do not depend on rows."""

    diagonal: Float64
    """G (p,)."""
    linear: Float64
    """q (p,)."""


@compiled(fastmath=FAST)
def column_sweep(
    given: StoredColumns, rows: RowTerms, fixed: FixedTerms, negligible: float, w: Float64, f: Float64
) -> float:
    """Make one sweep of coordinate descent over the weights of some columns; each weight in turn is set to its optimum.

        min_t  1/2 G_j (w_j + t)^2 + q_j (w_j + t) + sum_i C s_i h(y_i (f_i + t x_ij)),      f = X w

    The sum is over the rows that have an entry in column j. The slope in t is monotone; its root is found by Newton's
    method within a bracket. A column with few but large entries can by itself move a row from the kink of the loss to
    its margin. The curvature of the objective then changes on a scale of 1 / x_ij, which a step for all columns
    together cannot follow.

    Reference: Chang, Hsieh and Lin, JMLR 2008 (coordinate descent on the primal).

    Given: the columns; y, s, C and h = loss of the rows; G, q. Changed: w, and f = X w; columns whose squared slope is
    at most ``negligible`` stay unchanged. Returned: half the sum of the squared slopes before each step.
    """
    squares = 0.0
    for c in range(given.number.size):
        entries = slice(given.start[c], given.start[c + 1])
        j, part, data = given.number[c], given.rows[entries], given.data[entries]
        low, high, t, first = -np.inf, np.inf, 0.0, 0.0
        for trial in range(MAX_TRIALS):
            slope, curvature = fixed.diagonal[j] * (w[j] + t) + fixed.linear[j], fixed.diagonal[j]
            for k in range(part.size):
                i = part[k]
                C_i, x = rows.C * rows.s[i], change(rows.loss, rows.y[i], data[k])
                m = argument(rows.loss, rows.y[i], f[i]) + t * x
                slope += C_i * rows.loss.slope(m) * x
                curvature += C_i * rows.loss.second_derivative(m) * x * x
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
            next_t = t - slope / curvature
            t = next_t if low < next_t < high else 0.5 * (low + high)
        if t != 0.0:
            w[j] += t
            for k in range(part.size):
                f[part[k]] += t * data[k]
    return squares
