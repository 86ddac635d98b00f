"""Passes of an interior point method over rows in memory: Newton steps of all rows, and points of the central path.

With m_i = y_i x_i.w, C_i = C s_i, upper bounds U_i and multipliers lower_i, upper_i > 0 of 0 <= a_i <= U_i,
the optimality conditions are w = sum_i a_i y_i x_i and, for every row,

    1 - conjugate'(a_i) - m_i + lower_i - upper_i = 0,      lower_i a_i = 0,      upper_i (U_i - a_i) = 0.

A Newton step towards complementarity products equal to a target instead of 0, with da_i eliminated last, is

    theta_i = 1 / (conjugate'' + lower_i / a_i + upper_i / (U_i - a_i)),      da_i = theta_i (right_i - y_i x_i.dw),

where right_i is the sum of the residuals (``system_pass``). The remaining system is (I + X' diag(theta) X) dw = X'
(y theta right) + v - w. The second-order correction (Mehrotra, SIAM J. Optimization 1992) subtracts the second-order
products of an affine step from the targets, weighted by the length of that step (Colombo and Gondzio, Computational
Optimization and Applications 2008). The affine steps of the multipliers follow from its da. Reference: Ferris and
Munson, SIAM J. Optimization 2003.

**Central path**: for given margins, dual variables in closed form. With z_i = 1 - conjugate'(0) - m_i and a target t_i
= t s_i for both complementarity products, a_i is the root in (0, U_i) of

    z_i - curvature_i a_i + t_i / a_i - t_i / (U_i - a_i) = 0,        lower_i = t_i / a_i,      upper_i = t_i / (U_i - a_i).

It is a quadratic equation if the conjugate is linear (the hinge) or if there is no upper bound (the squared hinge);
else it is solved by Newton's method. w then minimizes a smooth convex function of w alone: 1/2 ||w||^2 plus a sum over
rows of functions of m_i with the slopes -a_i. At the minimum w = sum_i a_i y_i x_i.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import dual_terms
from streamsvm.compute.passes.rows_in_memory import RowTerms
from streamsvm.compute.targets import argument, entry
from streamsvm.rows import Float64

LEAST = 1e-150
"""The smallest dual variable; its square does not underflow."""
ROOT_STEPS = 60
"""Largest number of steps of Newton's method for a root; about five suffice."""
ROOT_PRECISION = 1e-14
"""Relative precision of a at which Newton's method for a root ends."""


@saved_as("newton.interior")
class Interior(NamedTuple):
    """Dual variables a_i strictly within their bounds, and the multipliers of the bounds; all float64 (n,)."""

    a: Float64
    """The dual variables."""
    below: Float64
    """The multipliers of the lower bound 0."""
    above: Float64
    """The multipliers of the upper bound; 0 if there is no upper bound."""


class Aim(NamedTuple):
    """The aim of a step."""

    target: float
    """The target of every complementarity product."""
    correction: float
    """The weight of the second-order correction, at most 1: the length of the affine step."""


@compiled(fastmath=FAST)
def clip_to_interior(a: float, bound: float) -> float:
    """Return a; if rounding has moved it to an end of (0, bound), the number next to that end. bound may be inf."""
    return max(min(a, bound * (1.0 - 2.0**-52)), min(LEAST, 0.5 * bound))


@compiled(fastmath=FAST)
def _targets(point: Interior, i: int, room: float, aim: Aim, affine: float) -> tuple[float, float]:
    """Return the changes aimed at for the two complementarity products of a row, second-order correction included."""
    a, lower, upper = point.a[i], point.below[i], point.above[i]
    second = aim.correction * affine
    low = aim.target - lower * a + second * lower * (1.0 + affine / a)
    high = aim.target - upper * room - second * upper * (1.0 - affine / room) if room < np.inf else 0.0
    return low, high


@compiled(fastmath=FAST)
def system_pass(
    rows: RowTerms, f: Float64, point: Interior, aim: Aim, affine: Float64, theta: Float64, right: Float64
) -> None:
    """Compute theta and right (n,) of a Newton step. ``affine`` (n,): da of the affine step, or zeros. Changed: theta,
    right.
    """
    y, s, C, loss = rows
    for i in range(y.size):
        C_i = C * s[i]
        theta[i], right[i] = 0.0, 0.0
        if C_i <= 0.0:
            continue
        a, room = point.a[i], loss.upper(C_i) - point.a[i]
        low, high = _targets(point, i, room, aim, affine[i])
        weight = loss.curvature(C_i) + point.below[i] / a
        residual = 1.0 - loss.conjugate_slope(a, C_i) - y[i] * f[i] + point.below[i] - point.above[i] + low / a
        if room < np.inf:
            weight += point.above[i] / room
            residual -= high / room
        theta[i], right[i] = 1.0 / weight, residual


@compiled(fastmath=FAST)
def step_pass(
    rows: RowTerms,
    point: Interior,
    aim: Aim,
    affine: Float64,
    theta: Float64,
    right: Float64,
    df: Float64,
    da: Float64,
) -> float:
    """Compute the steps da (n,) of the dual variables; return the longest step, at most 1, that stays within the
    bounds.

    Changed: da, which may be the array ``affine``.
    """
    y, s, C, loss = rows
    longest = 1.0
    for i in range(y.size):
        C_i = C * s[i]
        if C_i <= 0.0:
            da[i] = 0.0
            continue
        a, room = point.a[i], loss.upper(C_i) - point.a[i]
        low, high = _targets(point, i, room, aim, affine[i])
        d = theta[i] * (right[i] - y[i] * df[i])
        change = (low - point.below[i] * d) / a
        if d < 0.0:
            longest = min(longest, -a / d)
        if change < 0.0:
            longest = min(longest, -point.below[i] / change)
        if room < np.inf:
            change = (high + point.above[i] * d) / room
            if d > 0.0:
                longest = min(longest, room / d)
            if change < 0.0:
                longest = min(longest, -point.above[i] / change)
        da[i] = d
    return longest


@compiled(fastmath=FAST)
def affine_products(rows: RowTerms, point: Interior, da: Float64, length: float) -> float:
    """Return the sum of all complementarity products after an affine step of the given length."""
    y, s, C, loss = rows
    total = 0.0
    for i in range(y.size):
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        a, room = point.a[i], loss.upper(C_i) - point.a[i]
        total += (a + length * da[i]) * point.below[i] * (1.0 - length * (1.0 + da[i] / a))
        if room < np.inf:
            total += (room - length * da[i]) * point.above[i] * (1.0 - length * (1.0 - da[i] / room))
    return total


@compiled(fastmath=FAST)
def move_pass(rows: RowTerms, point: Interior, aim: Aim, affine: Float64, da: Float64, length: float) -> None:
    """Make a step of the given length along da and the corresponding steps of the multipliers. Changed: ``point``."""
    y, s, C, loss = rows
    a, lower, upper = point
    for i in range(y.size):
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        room = loss.upper(C_i) - a[i]
        low, high = _targets(point, i, room, aim, affine[i])
        lower[i] += length * (low - lower[i] * da[i]) / a[i]
        if room < np.inf:
            upper[i] += length * (high + upper[i] * da[i]) / room
        a[i] = clip_to_interior(a[i] + length * da[i], loss.upper(C_i))


@compiled(fastmath=FAST)
def value_pass(rows: RowTerms, f: Float64, point: Interior, slopes: Float64) -> tuple[float, float, float, float]:
    """Set slopes (n,) to a_i y_i; return sum C_i l(m_i), linear and quadratic of the dual, and the sum of the
    complementarity products.
    """
    y, s, C, loss = rows
    losses, linear, quadratic, products = 0.0, 0.0, 0.0, 0.0
    for i in range(y.size):
        C_i = C * s[i]
        slopes[i] = 0.0
        if C_i <= 0.0:
            continue
        a = point.a[i]
        losses += C_i * loss.value(argument(loss, y[i], f[i]))
        first, second = dual_terms(loss, a, y[i], C_i)
        linear += first
        quadratic += second
        slopes[i] = entry(loss, a, y[i])
        products += point.below[i] * a
        if loss.upper(C_i) < np.inf:
            products += point.above[i] * (loss.upper(C_i) - a)
    return losses, linear, quadratic, products


# -- rows on the central path


@compiled(fastmath=FAST)
def _small_root(z: float, t: float, bound: float, curvature: float) -> float:
    """Return the root a in (0, bound / 2] of z - curvature a + t / a - t / (bound - a), where z is at most curvature
    bound / 2.

    Multiplied by a, the function is concave, so that Newton's method decreases monotonically to the root from any
    larger start.
    """
    a = 0.5 * bound
    if z <= 0.0:  # start at the root of the equation without curvature
        a = 2.0 * t * bound / (2.0 * t - z * bound + np.sqrt(z * z * bound * bound + 4.0 * t * t))
    if curvature == 0.0:
        return a
    for _ in range(ROOT_STEPS):
        room = bound - a
        value, slope = z * a - curvature * a * a + t - t * a / room, z - 2.0 * curvature * a - t * bound / (room * room)
        change = value / slope
        a -= change
        if change <= ROOT_PRECISION * a:
            break
    return a


@compiled(fastmath=FAST)
def central_root(z: float, t: float, bound: float, curvature: float) -> tuple[float, float]:
    """Return the root a in (0, bound) of the equation of the central path, and bound - a; the smaller one has no
    cancellation error.
    """
    if bound == np.inf:
        root = np.sqrt(z * z + 4.0 * curvature * t)
        return (0.5 * (z + root) / curvature if z > 0.0 else 2.0 * t / (root - z)), np.inf
    if z <= 0.5 * curvature * bound:
        small = _small_root(z, t, bound, curvature)
        return small, bound - small
    small = _small_root(curvature * bound - z, t, bound, curvature)
    return bound - small, small


@compiled(fastmath=FAST)
def center_pass(rows: RowTerms, f: Float64, target: float, point: Interior) -> None:
    """Set ``point`` to the point of the central path for margins y f; ``target`` is t for a row with weight 1."""
    y, s, C, loss = rows
    a, lower, upper = point
    a[:] = 0.0
    lower[:] = 0.0
    upper[:] = 0.0
    for i in range(y.size):
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        z, t = 1.0 - loss.conjugate_slope(0.0, C_i) - y[i] * f[i], target * s[i]
        a[i], room = central_root(z, t, loss.upper(C_i), loss.curvature(C_i))
        a[i] = clip_to_interior(a[i], loss.upper(C_i))
        lower[i] = t / a[i]
        if room < np.inf:
            upper[i] = t / room


@compiled(fastmath=FAST)
def center_line_pass(rows: RowTerms, f: Float64, df: Float64, target: float, step: float) -> tuple[float, float]:
    """Return the first and the second derivative, along f + step df, of the sum of functions with the slopes -a_i."""
    y, s, C, loss = rows
    slope, curvature = 0.0, 0.0
    for i in range(y.size):
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        ridge, t = loss.curvature(C_i), target * s[i]
        z = 1.0 - loss.conjugate_slope(0.0, C_i) - y[i] * (f[i] + step * df[i])
        a, room = central_root(z, t, loss.upper(C_i), ridge)
        slope -= a * y[i] * df[i]
        curvature += df[i] * df[i] / (ridge + t / a / a + (t / room / room if room < np.inf else 0.0))
    return slope, curvature
