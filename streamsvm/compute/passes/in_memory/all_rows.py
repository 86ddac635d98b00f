"""What second-order methods on rows in memory need of them: Hessian products, blocks of the Hessian, and the row terms of an interior point.

Interior point. With m_i = y_i x_i.w, C_i = C s_i, upper bounds U_i and multipliers lower_i, upper_i > 0 of 0 <= a_i <= U_i
the optimum is where w = sum_i a_i y_i x_i and, for every row,

    1 - conjugate'(a_i) - m_i + lower_i - upper_i = 0,      lower_i a_i = 0,      upper_i (U_i - a_i) = 0.

A Newton step towards products equal to a target instead of 0, with da_i eliminated last, is

    theta_i = 1 / (conjugate'' + lower_i / a_i + upper_i / (U_i - a_i)),      da_i = theta_i (right_i - y_i x_i.dw),

where right_i collects the residuals (``system_pass``), and what is left to solve is (I + X' diag(theta) X) dw = X' (y theta right) + v - w.
The second-order correction (Mehrotra, SIAM J. Optimization 1992) subtracts the products of an affine step from the targets, as far as
that step can be taken (Colombo and Gondzio, Computational Optimization and Applications 2008); the affine multiplier steps
follow from its da alone. Reference: Ferris and Munson, SIAM J. Optimization 2003.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import dual_terms
from streamsvm.compute.targets import argument, change, entry
from streamsvm.rows import Float32, Float64, Int32, Int64, Rows, Targets
from streamsvm.tags import saved_as


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


# -- interior point ----------------------------------------------------------------------------------------------------

LEAST = 1e-150
"""The least dual variable: its square is a number too."""


@saved_as("newton.interior")
class Interior(NamedTuple):
    """Dual variables a_i strictly inside their bounds and the multipliers of the bounds; all float64 (n,)."""

    a: Float64
    """The dual variables."""
    below: Float64
    """Of the lower bound 0."""
    above: Float64
    """Of the upper bound; 0 where there is no upper bound."""


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


class Aim(NamedTuple):
    """Where a step is to lead."""

    target: float
    """Of every complementarity product."""
    correction: float
    """The weight of the second-order correction, at most 1: how much of an affine step can be taken."""


@compiled(fastmath=FAST)
def inside(a: float, bound: float) -> float:
    """Return a, or what is next to it inside (0, bound) where rounding has taken it to an end; bound may be inf."""
    return max(min(a, bound * (1.0 - 2.0**-52)), min(LEAST, 0.5 * bound))


@compiled(fastmath=FAST)
def _targets(at: Interior, i: int, room: float, aim: Aim, affine: float) -> tuple[float, float]:
    """What the two complementarity products of a row are to change by, second-order correction included."""
    a, lower, upper = at.a[i], at.below[i], at.above[i]
    second = aim.correction * affine
    low = aim.target - lower * a + second * lower * (1.0 + affine / a)
    high = aim.target - upper * room - second * upper * (1.0 - affine / room) if room < np.inf else 0.0
    return low, high


@compiled(fastmath=FAST)
def system_pass(
    rows: RowTerms, f: Float64, at: Interior, aim: Aim, affine: Float64, theta: Float64, right: Float64
) -> None:
    """Changes theta, right (n,). ``affine`` (n,): da of the affine step, or zeros."""
    y, s, C, loss = rows
    for i in range(y.size):
        C_i = C * s[i]
        theta[i], right[i] = 0.0, 0.0
        if C_i <= 0.0:
            continue
        a, room = at.a[i], loss.upper(C_i) - at.a[i]
        low, high = _targets(at, i, room, aim, affine[i])
        weight = loss.curvature(C_i) + at.below[i] / a
        residual = 1.0 - loss.conjugate_slope(a, C_i) - y[i] * f[i] + at.below[i] - at.above[i] + low / a
        if room < np.inf:
            weight += at.above[i] / room
            residual -= high / room
        theta[i], right[i] = 1.0 / weight, residual


@compiled(fastmath=FAST)
def step_pass(
    rows: RowTerms,
    at: Interior,
    aim: Aim,
    affine: Float64,
    theta: Float64,
    right: Float64,
    df: Float64,
    da: Float64,
) -> float:
    """Changes da (n,), which may be ``affine`` itself; returns the longest step, at most 1, that stays inside."""
    y, s, C, loss = rows
    longest = 1.0
    for i in range(y.size):
        C_i = C * s[i]
        if C_i <= 0.0:
            da[i] = 0.0
            continue
        a, room = at.a[i], loss.upper(C_i) - at.a[i]
        low, high = _targets(at, i, room, aim, affine[i])
        d = theta[i] * (right[i] - y[i] * df[i])
        change = (low - at.below[i] * d) / a
        if d < 0.0:
            longest = min(longest, -a / d)
        if change < 0.0:
            longest = min(longest, -at.below[i] / change)
        if room < np.inf:
            change = (high + at.above[i] * d) / room
            if d > 0.0:
                longest = min(longest, room / d)
            if change < 0.0:
                longest = min(longest, -at.above[i] / change)
        da[i] = d
    return longest


@compiled(fastmath=FAST)
def affine_products(rows: RowTerms, at: Interior, da: Float64, length: float) -> float:
    """The sum of all complementarity products after so much of an affine step."""
    y, s, C, loss = rows
    total = 0.0
    for i in range(y.size):
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        a, room = at.a[i], loss.upper(C_i) - at.a[i]
        total += (a + length * da[i]) * at.below[i] * (1.0 - length * (1.0 + da[i] / a))
        if room < np.inf:
            total += (room - length * da[i]) * at.above[i] * (1.0 - length * (1.0 - da[i] / room))
    return total


@compiled(fastmath=FAST)
def move_pass(rows: RowTerms, at: Interior, aim: Aim, affine: Float64, da: Float64, length: float) -> None:
    """Changes ``at``: moves along da and the multiplier steps that go with it."""
    y, s, C, loss = rows
    a, lower, upper = at
    for i in range(y.size):
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        room = loss.upper(C_i) - a[i]
        low, high = _targets(at, i, room, aim, affine[i])
        lower[i] += length * (low - lower[i] * da[i]) / a[i]
        if room < np.inf:
            upper[i] += length * (high + upper[i] * da[i]) / room
        a[i] = inside(a[i] + length * da[i], loss.upper(C_i))


@compiled(fastmath=FAST)
def value_pass(rows: RowTerms, f: Float64, at: Interior, slopes: Float64) -> tuple[float, float, float, float]:
    """Changes slopes (n,) to a_i y_i. Returned: sum C_i l(m_i), linear and quadratic of the dual, all complementarity products."""
    y, s, C, loss = rows
    losses, linear, quadratic, products = 0.0, 0.0, 0.0, 0.0
    for i in range(y.size):
        C_i = C * s[i]
        slopes[i] = 0.0
        if C_i <= 0.0:
            continue
        a = at.a[i]
        losses += C_i * loss.value(argument(loss, y[i], f[i]))
        first, second = dual_terms(loss, a, y[i], C_i)
        linear += first
        quadratic += second
        slopes[i] = entry(loss, a, y[i])
        products += at.below[i] * a
        if loss.upper(C_i) < np.inf:
            products += at.above[i] * (loss.upper(C_i) - a)
    return losses, linear, quadratic, products
