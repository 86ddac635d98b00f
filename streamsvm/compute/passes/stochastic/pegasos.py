"""Stochastic sub-gradient descent with step 1 / (lambda t), mini-batches, projection and averaging.

    min_w  lambda/2 ||w||^2 + 1/n sum_i s_i l(y_i w.x_i),     lambda = 1 / (C n)

A step on a mini-batch A is w <- (1 - 1/t) w + sum_A b_i y_i x_i / (lambda t |A|), b_i = -s_i l'(m_i), then a projection
on a ball (Shalev-Shwartz, Singer, Srebro, Cotter, Math. Prog. 2011, figures 1 and 2; the lecture's "stochastic gradient
method" for the smoothed hinge). With t counted in rows, so that a batch cut short by the end of a block has the weight
of its rows, and a = lambda t w, it is a <- a + sum_A b_i y_i x_i.

After complete epochs a_i = sum of the row's b / (lambda t) is feasible for the dual, and, the conjugate being convex,
sum_i conjugate(a_i, C s_i) <= sum over visits of s_i conjugate(b_i / s_i, 1) / (lambda t): a dual bound in two numbers
for every loss. A projection shrinks all b met so far: their linear part by the factor, their quadratic one by its
square, and the bound stays valid. So it does when t starts from an offset.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import dual_terms
from streamsvm.compute.passes.stochastic.steps import Batches, Objective
from streamsvm.compute.targets import argument, entry
from streamsvm.rows import Float64, Int32, Labeled

_SMALLEST = 1e-100


@compiled(fastmath=FAST)
def pegasos_pass(
    given: Labeled, batches: Batches, objective: Objective, radius: float, t: float, a: Float64, total: Float64
) -> tuple[float, float, float, float, float]:
    """Steps through the rows of ``order`` in batches; a is kept as scale * a, so that a projection is one product.

    Given: X, y, s; order, size, every; lambda, loss; radius of the ball (inf: none); rows presented before + offset: t.
    Changed: a; total, to which w is added after every ``every``-th batch.
    Returned: linear = sum b_i (1 - conjugate'(0)), quadratic = sum s_i conjugate(b_i / s_i, 1) less its linear part;
        the product of all projections, by which what was there before has shrunk; sum s_i l(m_i) as met on the way;
        the number of samples in ``total``.
    """
    X, y, s = given
    order, batch, every = batches
    lam, loss = objective
    linear, quadratic, losses, samples = 0.0, 0.0, 0.0, 0.0
    scale, shrunk, square = 1.0, 1.0, np.dot(a, a)
    b = np.empty(batch)
    for start in range(0, order.size, batch):
        rows = order[start : start + batch]
        for k in range(rows.size):
            i = rows[k]
            m = argument(loss, y[i], scale * X.dot(i, a) / (lam * t) if t > 0 else 0.0)
            weight = np.float64(s[i])
            losses += weight * loss.value(m)
            slope = loss.slope(m)
            b[k] = -weight * slope
            first, second = dual_terms(loss, -slope, y[i], 1.0)
            linear += weight * first
            quadratic += weight * second
        for k in range(rows.size):
            if b[k] != 0.0:
                i, c = rows[k], np.float64(entry(loss, b[k], y[rows[k]]) / scale)
                if radius < inf:
                    square += c * (2.0 * X.dot(i, a) + c * X.sqnorm(i))
                X.axpy(i, c, a)
        t += rows.size
        largest = radius * lam * t
        if scale * scale * square > largest * largest:
            shrink = largest / (scale * sqrt(square))
            scale, shrunk = scale * shrink, shrunk * shrink
            linear, quadratic = linear * shrink, quadratic * shrink * shrink
            if scale < _SMALLEST:
                a *= scale
                square, scale = square * scale * scale, 1.0
        if (start // batch) % every == 0:
            share = scale / (lam * t)
            for j in range(a.size):
                total[j] += share * a[j]
            samples += 1.0
    a *= scale
    return linear, quadratic, shrunk, losses, samples


@compiled(fastmath=FAST)
def gradient_moments(given: Labeled, order: Int32, loss: Any, gradient: Float64) -> tuple[float, float]:
    """How long the steps of the rows in ``order`` are at w = 0, where b_i = -s_i l'(m_i), m_i = 0, or -t_i of numbers.

    Given: X, y, s, order, loss. Changed: gradient, to which sum b_i y_i x_i is added.
    Returned: sum ||b_i x_i||^2; max s_i ||x_i||^2.
    """
    X, y, s = given
    squares, largest = 0.0, 0.0
    for i in order:
        b, square = -loss.slope(argument(loss, y[i], 0.0)) * np.float64(s[i]), X.sqnorm(i)
        squares += b * b * square
        largest = max(largest, s[i] * square)
        X.axpy(i, np.float64(entry(loss, b, y[i])), gradient)
    return squares, largest
