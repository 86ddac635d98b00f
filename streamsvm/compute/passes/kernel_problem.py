"""Solve a kernel problem whose rows fit the processor's cache, in one call: steps on pairs of coordinates, and the
certificate. A row of the kernel matrix is computed when it is first needed.

    min_x  1/2 x'Mx - p'x     subject to  sum x = 0,   low <= x <= high,      M = K + diag(ridge),    v = p - Mx

with x_i = y_i a_i (``passes.kernel_rows``). A step moves weight from j to i, chosen by second order as in
``passes.smo``. It needs rows i and j of K, which are computed from the rows x_i as a whole: K_i = k(x_i, .), q values.
Rows that never enter a step are not needed: at the optimum x is 0 there, for most rows already at the first step.

Rounds: after the pairs have reached a violation eps, f = Kx is summed in float64, and

    P = 1/2 x'Kx + sum_i C_i l(y_i (f_i + b)),     D = sum_i (a_i - conjugate(a_i)) - 1/2 x'Kx

with b the mean of v over the coordinates strictly between their bounds, or the middle of the interval of possible b
if there are none. While (P - D) / P is above the tolerance, eps falls by the same factor, within bounds.

If K is float32, f of the rows that matter to P or D is then computed anew in float64 (``evaluate``), as in
``solvers.kernel.rounding``. Reference: Fan, Chen, Lin, JMLR 2005, algorithm 2 (WSS 2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.blocks.sums import dual_sum
from streamsvm.compute.compiled import compiled
from streamsvm.compute.kernel_values.kernel_matrix import dense_distances, dense_half_squares, finish
from streamsvm.compute.numba_bridge import larger, smaller
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.kernel_rows import Coordinates
from streamsvm.compute.passes.smo import FINITE
from streamsvm.compute.targets import argument
from streamsvm.rows import Float32, Float64, Int64
from streamsvm.type_aliases import Array

STRIPE = 64
"""Number of coordinates of which the largest is found without branches."""
OUT = 1e30
"""Larger than any gradient, and a float32; added to the value of a coordinate that must not be chosen."""
FIRST_VIOLATION = 0.02
"""The violation at which the first round ends."""
ROUNDS = 12
"""Maximum number of rounds."""
FALL = (0.02, 0.5)
"""The violation falls at least by the second factor in a round, and at most by the first."""
PRODUCTS, SQUARES, CITY_BLOCK = 0, 1, 2
"""From what a kernel value is computed: x.z, -1/2 ||x - z||^2 from differences, or |x - z|_1."""
TILE = 32
"""Number of rows whose decision values are computed together in float64."""


class Matrix(NamedTuple):
    """The rows of a problem, and the rows of K that were computed so far."""

    values: Float32
    """(q, d) the rows."""
    columns: Array
    """(d, q) their transpose in the dtype of K."""
    squares: Array
    """(q,) squared norms in the dtype of K; zeros unless ``source`` is PRODUCTS."""
    source: int
    """From what a kernel value is computed."""
    K: Array
    """(q, q) the rows of K in the order in which they were computed."""
    place: Int64
    """(q,) the place of row i in ``K``; -1 if it was not computed."""
    diagonal: Array
    """(q,) k(x_i, x_i)."""
    used: Int64
    """(1,) number of rows in ``K``."""


class Outcome(NamedTuple):
    """The result of ``optimize``."""

    steps: int
    intercept: float
    gap: float
    """(P - D) / P, without rounding."""


class Sums(NamedTuple):
    """The sums from which a certificate is computed, and the intercept b of P."""

    intercept: float
    square: float
    """x'Kx."""
    losses: float
    """sum C_i l(y_i (f_i + b))."""
    upper: float
    """The same at margins that are reduced by the error of f."""
    gain: float
    """sum a_i - conjugate(a_i)."""
    weight: float
    """sum |x_i|."""
    absolute: float
    """sum |x_i f_i|."""
    error: float
    """A bound of the error of f."""


@compiled(fastmath=FINITE)
def dense_products(values: Float32, columns: Array, out: Array) -> None:
    """Set ``out`` (n, m) to values (n, d) times columns (d, m)."""
    n, m = out.shape
    for i in range(n):
        for j in range(m):
            out[i, j] = 0
        for k in range(values.shape[1]):
            value = columns.dtype.type(values[i, k])
            for j in range(m):
                out[i, j] += value * columns[k, j]


@compiled(fastmath=FINITE)
def kernel_values(
    values: Float32, squares: Array, columns: Array, column_squares: Array, kernel: Any, source: int, out: Array
) -> None:
    """Set out[i, j] = k(x_i, z_j), with x_i the rows of ``values`` and z_j the columns of ``columns``."""
    if source == CITY_BLOCK:
        out[:] = 0
        dense_distances(values, columns, out)
    elif source == SQUARES:
        out[:] = 0
        dense_half_squares(values, columns, out)
    else:
        dense_products(values, columns, out)
    finish(out, squares, column_squares, kernel)


@compiled(fastmath=FINITE)
def row_of(matrix: Matrix, kernel: Any, i: int) -> Array:
    """Return row i of K, which is computed if it is needed for the first time."""
    at = matrix.place[i]
    if at < 0:
        at = matrix.used[0]
        matrix.used[0], matrix.place[i] = at + 1, at
        kernel_values(
            matrix.values[i : i + 1],
            matrix.squares[i : i + 1],
            matrix.columns,
            matrix.squares,
            kernel,
            matrix.source,
            matrix.K[at : at + 1],
        )
    return matrix.K[at]


@compiled(fastmath=FINITE, checks_division=False)
def _largest_sum(v: Array, closed: Array) -> float:
    """Return the largest v_t - closed_t."""
    best = v.dtype.type(-2.0 * OUT)
    for t in range(v.size):
        best = larger(best, v[t] - closed[t])
    return best


@compiled(fastmath=FINITE, checks_division=False)
def _best_score(
    v: Array, closed: Array, diagonal: Array, K_i: Array, top: float, own: float, least: float
) -> tuple[float, float]:
    """Return the smallest v_t + closed_t, and the largest score of a partner of i."""
    zero, low, best = v.dtype.type(0), v.dtype.type(2.0 * OUT), v.dtype.type(-1.0)
    for t in range(v.size):
        value = v[t] + closed[t]
        low = smaller(low, value)
        drop = larger(top - value, zero)
        best = larger(best, drop * drop / larger(own + diagonal[t] - K_i[t] - K_i[t], least))
    return low, best


@compiled(fastmath=FINITE)
def take_pairs(
    matrix: Matrix, kernel: Any, rows: Coordinates, v: Array, flat: float, tolerance: float, most: int
) -> int:
    """Make steps until the violation is at most the tolerance, at most ``most``; return their number.

    Changed: ``rows.x``, v = p - Mx (q,) in the dtype of K.
    """
    q, zero, least = v.size, v.dtype.type(0), v.dtype.type(flat)
    closed_up, closed_down, diagonal = np.empty_like(v), np.empty_like(v), np.empty_like(v)
    for t in range(q):
        diagonal[t] = matrix.diagonal[t] + rows.ridge[t]
        closed_up[t] = 0.0 if rows.x[t] < rows.high[t] else OUT
        closed_down[t] = 0.0 if rows.x[t] > rows.low[t] else OUT
    for step in range(most):
        top, stripe = v.dtype.type(-2.0 * OUT), 0
        for start in range(0, q, STRIPE):
            best = _largest_sum(v[start : start + STRIPE], closed_up[start : start + STRIPE])
            if best > top:
                top, stripe = best, start
        i = stripe
        while i < q - 1 and v[i] - closed_up[i] != top:
            i += 1
        K_i, own = row_of(matrix, kernel, i), diagonal[i]
        bottom, stripe, score = v.dtype.type(2.0 * OUT), 0, v.dtype.type(-1.0)
        for start in range(0, q, STRIPE):
            stop = start + STRIPE
            low, best = _best_score(
                v[start:stop], closed_down[start:stop], diagonal[start:stop], K_i[start:stop], top, own, least
            )
            bottom = min(bottom, low)
            if best > score:
                score, stripe = best, start
        if not top - bottom > tolerance:
            return step
        j, best = stripe, v.dtype.type(-1.0)
        for t in range(stripe, min(stripe + STRIPE, q)):
            drop = max(top - v[t] - closed_down[t], zero)
            value = drop * drop / max(own + diagonal[t] - K_i[t] - K_i[t], least)
            if value > best:
                best, j = value, t
        K_j = row_of(matrix, kernel, j)
        curvature = max(np.float64(own) + diagonal[j] - 2.0 * K_i[j], flat)
        s = min((np.float64(v[i]) - v[j]) / curvature, rows.high[i] - rows.x[i], rows.x[j] - rows.low[j])
        rows.x[i] = rows.high[i] if s >= rows.high[i] - rows.x[i] else rows.x[i] + s
        rows.x[j] = rows.low[j] if s >= rows.x[j] - rows.low[j] else rows.x[j] - s
        for t in (i, j):
            closed_up[t] = 0.0 if rows.x[t] < rows.high[t] else OUT
            closed_down[t] = 0.0 if rows.x[t] > rows.low[t] else OUT
        length = v.dtype.type(s)
        for t in range(q):
            v[t] -= length * (K_i[t] - K_j[t])
        v[i] -= length * v.dtype.type(rows.ridge[i])
        v[j] += length * v.dtype.type(rows.ridge[j])
    return most


@compiled(fastmath=FINITE)
def sum_values(matrix: Matrix, x: Float64, f: Float64) -> None:
    """Set f = Kx in float64, from the rows of K of the coordinates that are not 0."""
    f[:] = 0.0
    for j in range(x.size):
        if x[j] != 0.0:
            c, K_j = x[j], matrix.K[matrix.place[j]]
            for t in range(f.size):
                f[t] += c * K_j[t]


@compiled(fastmath=FINITE)
def middle_intercept(rows: Coordinates, f: Float64) -> float:
    """Return the mean of v over the coordinates strictly between their bounds; if there are none, the middle of the
    interval between the other v.
    """
    total, count, top, bottom = 0.0, 0, -np.inf, np.inf
    for t in range(f.size):
        v = rows.p[t] - f[t] - rows.ridge[t] * rows.x[t]
        grows, shrinks = rows.x[t] < rows.high[t], rows.x[t] > rows.low[t]
        if grows and shrinks:
            total, count = total + v, count + 1
        if grows:
            top = max(top, v)
        if shrinks:
            bottom = min(bottom, v)
    return total / count if count else 0.5 * (top + bottom)


@compiled(fastmath=FINITE)
def loss_sum(y: Float32, s: Array, f: Float64, cost: RowLoss, slack: float) -> float:
    """Return sum_i C s_i l(m_i) at margins that are reduced by ``slack``."""
    total = 0.0
    for t in range(f.size):
        total += cost.C * np.float64(s[t]) * cost.loss.value(argument(cost.loss, y[t], f[t]) - slack)
    return total


@compiled(fastmath=FINITE)
def optimize(
    matrix: Matrix, kernel: Any, y: Float32, s: Array, cost: RowLoss, rows: Coordinates, f: Float64,
    flat: float, violation: float, tolerance: float, most: int,
) -> Outcome:  # fmt: skip
    """Make rounds until (P - D) / P is at most ``tolerance``, or ``most`` steps were made.

    ``violation``: that of the first round. Changed: ``rows.x``, and f (q,), which is Kx at the beginning and the end.
    """
    v, steps, gap, b = np.empty_like(matrix.diagonal), 0, np.inf, 0.0
    for _ in range(ROUNDS):
        for t in range(v.size):
            v[t] = rows.p[t] - f[t] - rows.ridge[t] * rows.x[t]
        steps += take_pairs(matrix, kernel, rows, v, flat, violation, most - steps)
        sum_values(matrix, rows.x, f)
        b = middle_intercept(rows, f)
        square, alpha = 0.0, np.abs(rows.x)
        for t in range(f.size):
            square += rows.x[t] * f[t]
        primal = 0.5 * square + loss_sum(y, s, f + b, cost, 0.0)
        dual = dual_sum(alpha, y, s, cost.C, cost.loss) - 0.5 * square
        gap = (primal - dual) / primal if primal > 0.0 else primal - dual
        if gap <= tolerance or steps >= most:
            break
        violation *= max(FALL[0], min(FALL[1], 0.5 * tolerance / gap))
    return Outcome(steps, b, gap)


@compiled(fastmath=FINITE)
def evaluate(values: Float32, kernel: Any, source: int, support: Int64, x: Float64, chosen: Int64, f: Float64) -> None:
    """Set f of the chosen rows to sum_j x_j k(x_i, x_j) over the support, with kernel values in float64."""
    m, d = support.size, values.shape[1]
    Z, norms, c = np.empty((d, m)), np.zeros(m), np.empty(m)
    for k in range(m):
        c[k] = x[support[k]]
        for t in range(d):
            Z[t, k] = values[support[k], t]
            norms[k] += Z[t, k] * Z[t, k]
    if source != PRODUCTS:
        norms[:] = 0.0
    tile, part, squares = np.empty((TILE, m)), np.empty((TILE, d), np.float32), np.zeros(TILE)
    for start in range(0, chosen.size, TILE):
        count = min(TILE, chosen.size - start)
        for i in range(count):
            squares[i] = 0.0
            for t in range(d):
                part[i, t] = values[chosen[start + i], t]
                squares[i] += np.float64(part[i, t]) * part[i, t]
        if source != PRODUCTS:
            squares[:] = 0.0
        kernel_values(part[:count], squares[:count], Z, norms, kernel, source, tile[:count])
        for i in range(count):
            total = 0.0
            for k in range(m):
                total += c[k] * tile[i, k]
            f[chosen[start + i]] = total


@compiled(fastmath=FINITE)
def conclude(
    values: Float32, kernel: Any, source: int, y: Float32, s: Array, cost: RowLoss, rows: Coordinates, f: Float64,
    intercept: float, slack: float, errors: Float64,
) -> Sums:  # fmt: skip
    """Return the sums of the certificate of x.

    ``slack``: a bound of the error of f relative to sum |x_i|; if it is above 0, f is first computed anew at the rows
    that can matter to P or D, with kernel values in float64. ``errors`` (2,): two bounds of the error of f after that,
    relative to sum |x_i|; the second one counts once for each row of the support.
    """
    weight, support = 0.0, np.flatnonzero(rows.x)
    for j in support:
        weight += abs(rows.x[j])
    b, slack = intercept, slack * weight
    if slack > 0.0:
        chosen = np.empty(f.size, np.int64)
        count = 0
        for t in range(f.size):
            loss = cost.loss.value(argument(cost.loss, y[t], f[t] + b) - 2.0 * slack)
            if rows.x[t] != 0.0 or (loss > 0.0 and s[t] > 0.0):
                chosen[count] = t
                count += 1
        evaluate(values, kernel, source, support, rows.x, chosen[:count], f)
        b = middle_intercept(rows, f)
        if abs(b - intercept) > slack:  # a row whose f is not exact could have a loss
            b = intercept
    square, absolute = 0.0, 0.0
    for j in support:
        square += rows.x[j] * f[j]
        absolute += abs(rows.x[j] * f[j])
    error = weight * (errors[0] + support.size * errors[1])
    losses, upper = loss_sum(y, s, f + b, cost, 0.0), loss_sum(y, s, f + b, cost, error)
    gain = dual_sum(np.abs(rows.x), y, s, cost.C, cost.loss)
    return Sums(b, square, losses, upper, gain, weight, absolute, error)
