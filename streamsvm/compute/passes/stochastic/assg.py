"""Sub-gradient steps of constant length in a ball around a center, averaged: the inner loop of accelerated stages.

    f(w) = lambda/2 ||w||^2 + 1/n sum_i s_i l(y_i w.x_i),     lambda = 1 / (C n)

    w <- P[(1 - eta lambda) w + eta / |A| sum_A b_i y_i x_i],   b_i = -s_i l'(m_i),   P: onto ||w - center|| <= radius

for one mini-batch A after the other (Xu, Lin, Yang, Analysis and Applications 2019, algorithm ASSG-c; Tanji et al.,
Snacks, algorithm 1). Of two readings of the latter we take the one its theorem is about: w itself is projected, as in
the paper's (7) and not in its line 5, and the average holds the T iterates with weights that add up to 1, so it starts
from 0 and not, as in line 3, from w.

w is kept as scale * u + part * center, u starting as w, so that a row costs only its entries: two inner products. Of
u the pass follows ||u||^2 and u.center, which a projection needs; they are computed afresh with every call.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import dual_terms
from streamsvm.compute.passes.stochastic.steps import Batches, Objective
from streamsvm.compute.targets import argument, entry
from streamsvm.rows import Float64, Labeled


class Stage(NamedTuple):
    """What stays as it is through a stage: the ball, and the length of a step."""

    center: Float64
    """The center of the ball, (columns + 1,)."""
    radius: float
    """The radius of the ball."""
    eta: float
    """The length of a step."""


@compiled(fastmath=FAST)
def _projected(scale: float, part: float, products: tuple[float, float, float], radius: float) -> tuple[float, float]:
    """Scale and part of w = scale u + part c after P; products: ||u||^2, u.c, ||c||^2."""
    (uu, uc, cc), off = products, part - 1.0
    square = scale * scale * uu + 2.0 * scale * off * uc + off * off * cc
    if square <= radius * radius:
        return scale, part
    shrink = radius / sqrt(square)
    return scale * shrink, 1.0 + shrink * off


@compiled(fastmath=FAST)
def assg_pass(
    given: Labeled, batches: Batches, objective: Objective, stage: Stage, w: Float64, total: Float64, v: Float64
) -> tuple[float, float, float, float]:
    """Steps through the rows of ``order`` in batches.

    Given: X, y, s; order, size, every; lambda, loss; center, radius, eta. eta lambda < 1.
    Changed: w; total, to which w is added after every ``every``-th batch; v, to which sum b_i y_i x_i is added.
    Returned: linear = sum b_i (1 - conjugate'(0)), quadratic = sum s_i conjugate(b_i / s_i, 1) less its linear part:
        C v, C linear and C quadratic of complete epochs are a dual point and its value; sum s_i l(m_i) as met on the
        way; the number of samples in ``total``.
    """
    X, y, s = given
    order, batch, every = batches
    lam, loss = objective
    center, radius, eta = stage
    linear, quadratic, losses, samples = 0.0, 0.0, 0.0, 0.0
    scale, part, added = 1.0, 0.0, 0.0
    uu, uc, cc = np.dot(w, w), np.dot(w, center), np.dot(center, center)
    b = np.empty(batch)
    for start in range(0, order.size, batch):
        rows = order[start : start + batch]
        for k in range(rows.size):
            i = rows[k]
            m = argument(loss, y[i], scale * X.dot(i, w) + part * X.dot(i, center))
            weight, share = np.float64(s[i]), -loss.slope(m)
            losses += weight * loss.value(m)
            b[k] = weight * share
            first, second = dual_terms(loss, share, y[i], 1.0)
            linear += weight * first
            quadratic += weight * second
        decay = 1.0 - eta * lam * rows.size / batch  # a batch cut short is a shorter step
        scale, part = scale * decay, part * decay
        for k in range(rows.size):
            if b[k] != 0.0:
                i, c = rows[k], np.float64(entry(loss, b[k], y[rows[k]]))
                step = c * eta / (batch * scale)
                uu += step * (2.0 * X.dot(i, w) + step * X.sqnorm(i))
                uc += step * X.dot(i, center)
                X.axpy(i, step, w)
                X.axpy(i, c, v)
        scale, part = _projected(scale, part, (uu, uc, cc), radius)
        if (start // batch) % every == 0:
            for j in range(w.size):
                total[j] += scale * w[j]
            added += part
            samples += 1.0
    total += added * center
    for j in range(w.size):
        w[j] = scale * w[j] + part * center[j]
    return linear, quadratic, losses, samples
