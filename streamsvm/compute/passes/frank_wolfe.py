"""Frank-Wolfe on the simplex: closed formulas of one step, and the passes that make it.

    min_a  f(a) = 1/2 a'Ka     subject to  sum a = 1,  a >= 0;         g = Ka,  2f = a'g,  i = argmin g,  gap = 2f - g_i

Along a direction d the best step length is -g'd / d'Kd (``best_step`` also returns the decrease of f):

    toward i     d = e_i - a      -g'd = 2f - g_i      d'Kd = 2f - 2 g_i + K_ii              step <= 1
    away from v  d = a - e_v      -g'd = g_v - 2f      d'Kd = 2f - 2 g_v + K_vv              step <= a_v / (1 - a_v)
    swap v for i d = e_i - e_v    -g'd = g_v - g_i     d'Kd = K_ii + K_vv - 2 K_iv           step <= a_v

A step away or a swap of the largest length drops v from the support. PARTAN (Frandi, Nanculef, Suykens) makes the step
toward i, to a~ with the value f~, and then a step along d = a~ - b, where b is the iterate before a. With W = b'Ka and
the gradient h = Kb at b,

    b'Ka~ = (1 - s) W + s h_i = A        g~'d = 2 (f~) - A        d'Kd = 2 f~ - 2 A + 2 f(b)

    f+ = (1 + m)^2 f~ - m (1 + m) A + m^2 f(b)          W+ = a'Ka+ = (1 + m) ((1 - s) 2f + s g_i) - m W

for a step length m, which is limited by the first component that reaches 0 (and by -1, where the result is b). The
paper's (9) and (11) - (15) hold as printed for f = -1/2 a'Ka, which its algorithm 2 maximizes; here, as in its (5), (6)
and (10), f = 1/2 a'Ka is minimized.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import Float32, Float64

MIN_CURVATURE = 1e-15
"""Curvatures below this are rounding errors."""


class LineStep(NamedTuple):
    """The length of a step, and the decrease of f."""

    length: float
    fall: float


def best_step(descent: float, curvature: float, most: float) -> LineStep:
    """Return the step of the exact line search, of length at most ``most``; descent is -g'd, curvature is d'Kd."""
    length = min(max(descent / max(curvature, MIN_CURVATURE), 0.0), most)
    return LineStep(length, length * descent - 0.5 * length * length * curvature)


def toward_step(f: float, g_i: float, K_ii: float) -> LineStep:
    """Return the exact step from a toward vertex i."""
    return best_step(2.0 * f - g_i, 2.0 * f - 2.0 * g_i + K_ii, 1.0)


def toward_value(f: float, g_i: float, K_ii: float, length: float) -> float:
    """Return f after a step of any length toward vertex i."""
    s = length
    return (1.0 - s) * (1.0 - s) * f + s * (1.0 - s) * g_i + 0.5 * s * s * K_ii


def away_room(a_v: float) -> float:
    """Return the length of the step away from vertex v after which its weight is 0; 0 if v has all the weight."""
    return a_v / (1.0 - a_v) if a_v < 1.0 else 0.0


def away_step(f: float, g_v: float, K_vv: float, a_v: float) -> LineStep:
    """Return the exact step from a away from vertex v."""
    return best_step(g_v - 2.0 * f, 2.0 * f - 2.0 * g_v + K_vv, away_room(a_v))


def swap_step(g_i: float, g_v: float, curvature: float, a_v: float) -> LineStep:
    """Return the exact step that moves weight from vertex v to vertex i; curvature = K_ii + K_vv - 2 K_iv."""
    return best_step(g_v - g_i, curvature, a_v)


@saved_as("simplex.tangent")
class Tangent(NamedTuple):
    """The state of PARTAN between two steps."""

    previous_value: float
    """f(b), b being the previous iterate."""
    W: float
    """b'Ka, for the iterate a and the previous iterate b."""


def tangent_step(tangent: Tangent, f_mid: float, A: float, most: float) -> float:
    """Return the step length m of the exact line search along a~ - b within [-1, most].

    Return 0 if the curvature is lost to rounding: then a~ is the better point.
    """
    curvature = 2.0 * (f_mid - A + tangent.previous_value)
    if curvature <= MIN_CURVATURE:
        return 0.0
    return min(max((A - 2.0 * f_mid) / curvature, -1.0), most)


def tangent_value(tangent: Tangent, f_mid: float, A: float, m: float) -> float:
    """Return f after the PARTAN step."""
    return (1.0 + m) * (1.0 + m) * f_mid - m * (1.0 + m) * A + m * m * tangent.previous_value


@compiled(fastmath=FAST)
def find_lowest(g: Float64) -> int:
    """Return argmin g: a loop without branches finds the stripe that contains it, a short loop its place in the
    stripe.
    """
    best, stripe = np.inf, 0
    for start in range(0, g.size, 128):
        stripe_best = np.inf
        for t in range(start, min(start + 128, g.size)):
            stripe_best = min(stripe_best, g[t])
        if stripe_best < best:
            best, stripe = stripe_best, start
    place = stripe
    for t in range(stripe, min(stripe + 128, g.size)):
        if g[t] < g[place]:
            place = t
    return place


@compiled(fastmath=FAST)
def find_highest(g: Float64, a: Float64) -> int:
    """Return argmax g over a > 0."""
    place, best = -1, -np.inf
    for t in range(g.size):
        if a[t] > 0.0 and g[t] > best:
            place, best = t, g[t]
    return place


@compiled(fastmath=FAST)
def blend(a: Float64, g: Float64, keep: float, column: Float32, share: float) -> None:
    """Make a step along a vertex: a *= keep, g = keep g + share column. The caller updates the vertex's own component
    of a.
    """
    for t in range(a.size):
        a[t] *= keep
        g[t] = keep * g[t] + share * column[t]


@compiled(fastmath=FAST)
def exchange(g: Float64, gains: Float32, loses: Float32, length: float) -> None:
    """Move weight between two vertices: g += length (K_i - K_v), computed in float64 for columns of any dtype."""
    for t in range(g.size):
        g[t] += length * (np.float64(gains[t]) - np.float64(loses[t]))


@compiled(fastmath=FAST)
def extrapolate(a: Float64, g: Float64, b: Float64, h: Float64, old_a: Float64, old_g: Float64, m: float) -> None:
    """Make the PARTAN step: set (a, g) to (1 + m) (a, g) - m (b, h), and then (b, h) to (old_a, old_g), the iterate
    before both steps.
    """
    for t in range(a.size):
        a[t] = max((1.0 + m) * a[t] - m * b[t], 0.0)
        g[t] = (1.0 + m) * g[t] - m * h[t]
        b[t], h[t] = old_a[t], old_g[t]


@compiled(fastmath=FAST)
def tangent_room(a: Float64, b: Float64) -> float:
    """Return the largest m with (1 + m) a - m b >= 0."""
    room = np.inf
    for t in range(a.size):
        if b[t] > a[t]:
            room = min(room, a[t] / (b[t] - a[t]))
    return room
