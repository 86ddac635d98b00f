"""The quadratic model of an elastic net around a point, and its minimum in memory.

    M(w) = R(w) - v.(w - c) + 1/2 (w - c)'G(w - c),     v = X' slopes at c,   G = X' diag(C_i l''(m_i)) X

Sweeps of coordinate descent find which coordinates are not 0; on a face, where the signs of w are fixed, the rest is a linear system

    (I + G_AA) d_A = -(w_A + g_A + l1 sign(w_A)),        g = G(w - c) - v,

whose step ends where a coordinate comes to 0, which then stays there. Both lower M, by turns, until its own primal and dual agree:
the dual point of the model is -g, and R(w) + R*(-g) + w.g, a sum of terms that are none below 0, is how far M is from its minimum.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from streamsvm.compute.blocks.operators import MOST_FLOAT64_COMPONENTS
from streamsvm.compute.passes.in_memory.soft_threshold import soft_threshold_sweep
from streamsvm.rows import Float64
from streamsvm.solvers.elastic_net.regularizer import soft
from streamsvm.solvers.triangular import solve_factorized

ROUNDS, SWEEPS, FACE_STEPS = 200, 10, 20
"""Rounds at most, each of so many sweeps and so many steps on faces at most."""
LARGEST_FACE = 2000
"""Coordinates of a face that is solved for by a factorization."""
COARSE = 1e-6
"""Where G is a sum of float32 products, its diagonal is this much larger: what rounding took may have made it indefinite."""


class QuadraticModel(NamedTuple):
    """M on m columns, the constant feature among them."""

    gram: Float64
    """(m, m) G."""
    v: Float64
    """(m,)."""
    center: Float64
    """(m,) c."""
    l1: float
    """The weight of ||w||_1."""


def minimum(model: QuadraticModel, target: float, deadline: float) -> Float64:
    """Return w (m,) at which M is ``target`` above its least value at most; further where the rounds, or the time, are over."""
    gram, w = model.gram, model.center.copy()
    if len(w) > MOST_FLOAT64_COMPONENTS:
        gram[np.diag_indices_from(gram)] *= 1.0 + COARSE
    g, all_of_them = -model.v, np.arange(len(w))
    for _ in range(ROUNDS):
        soft_threshold_sweep(gram, model.l1, all_of_them, w, g)
        for _ in range(SWEEPS - 1):
            soft_threshold_sweep(gram, model.l1, np.flatnonzero(w), w, g)
        g = gram @ (w - model.center) - model.v
        if above_minimum(w, -g, model.l1) <= target or time.perf_counter() > deadline:
            break
        w = _on_faces(model, w, g)
        g = gram @ (w - model.center) - model.v
        if above_minimum(w, -g, model.l1) <= target:
            break
    return w


def above_minimum(w: Float64, v: Float64, l1: float) -> float:
    """Return R(w) + R*(v) - w.v >= 0, added up coordinate by coordinate; both (m,)."""
    u = soft(v, l1)
    return float((0.5 * (w - u) ** 2 + np.abs(w) * l1 - w * (v - u)).sum())


def _on_faces(model: QuadraticModel, w: Float64, g: Float64) -> Float64:
    """Steps on the face of the signs of w (m,), and on those it leads to."""
    for _ in range(FACE_STEPS):
        free = np.flatnonzero(w)
        if not 0 < len(free) <= LARGEST_FACE:
            break
        matrix = model.gram[np.ix_(free, free)]
        matrix[np.diag_indices_from(matrix)] += 1.0
        at = w[free]
        try:
            d = solve_factorized(np.linalg.cholesky(matrix), -(at + g[free] + model.l1 * np.sign(at)))
        except np.linalg.LinAlgError:
            break
        crossing = np.where(at * d < 0.0, -at / np.where(d == 0.0, 1.0, d), np.inf)
        step = min(1.0, float(crossing.min()))
        moved = at + step * d
        moved[crossing <= step] = 0.0
        w = w.copy()
        w[free] = moved
        g = model.gram @ (w - model.center) - model.v
        if step == 1.0:
            break
    return w
