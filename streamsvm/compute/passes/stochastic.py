"""Passes of ``solvers.stochastic``: stochastic sub-gradient steps over the rows of a block, for SGD, Pegasos and ASSG."""

from __future__ import annotations

from math import floor, inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import dual_terms
from streamsvm.compute.targets import argument, dual_gain, entry
from streamsvm.rows import Float64, Int32, Labeled

_SMALLEST = 1e-100
"""Below it the scale of a is multiplied into a, before it underflows."""


class Objective(NamedTuple):
    """lambda/2 ||w||^2 + 1/n sum_i s_i l(y_i w.x_i)."""

    lam: float
    """The weight lambda of the regularizer."""
    loss: Any
    """The loss l."""


class Batches(NamedTuple):
    """Rows in the order of their visits, ``size`` for a step."""

    order: Int32
    """The numbers of the rows, in the order of their visits."""
    size: int = 1
    """Rows for a step."""
    every: int = 1
    """The number of steps after which w is added to the sum for its mean."""


@compiled()
def updates(excess: float, growth: float, square: float, times: int) -> int:
    """How many of ``times`` presentations of one row in succession lead to an update, in closed form.

    With u = y_i a.x_i - growth t (``excess``, at the first of them) a presentation is a plus-step, u += square - growth,
    when u <= 0 and a minus-step, u -= growth, otherwise; square = s_i ||x_i||^2. Let p be the number of plus-steps.

    square <= growth: a plus-step leaves u <= 0, so all come after the first ceil(u / growth) minus-steps.
    square > growth: once in (-growth, square - growth], which every start leads to by steps of one sign, u stays there,
        and of u + p square - times growth only one p lies in an interval of that length; a start outside it that does
        not get there gives p <= 0 or p >= times. (The sub-cases of the paper's section 2.1, found to be one formula.)

    Rounding may change p by one on the brink of a step; any p in [0, times] keeps the dual point feasible.
    """
    largest = floor(((times - 1) * growth - excess) / max(square, growth)) + 1
    return min(max(int(largest), 0), times)


@compiled(fastmath=FAST)
def slopes_in_succession(
    y: float, at: float, square: float, t: int, times: int, objective: Objective
) -> tuple[float, float]:
    """What ``times`` presentations of one row add up to, the first as presentation t + 1: sum b, and what the dual has of them.

    Given: y_i; at = a.x_i before them; square = s_i ||x_i||^2.
    """
    lam, loss = objective
    total, gain = 0.0, 0.0
    for k in range(t, t + times):
        b = -loss.slope(argument(loss, y, at / (lam * k) if k > 0 else 0.0))
        total += b
        gain += dual_gain(loss, b, y, 1.0)
        at += square * entry(loss, b, y)
    return total, gain


@compiled(fastmath=FAST)
def sgd_pass(given: Labeled, order: Int32, times: int, objective: Objective, t: int, a: Float64) -> tuple[float, float]:
    """Present the rows of ``order``, each ``times`` times in succession, the first one as presentation t + 1.

        min_w  lambda/2 ||w||^2 + 1/n sum_i s_i max(0, margin - y_i w.x_i),     lambda = 1 / (C n)

    With a = lambda t w, t the presentations so far, a step is: if y_i a.x_i <= growth t then a += s_i y_i x_i; t += 1, where
    growth = lambda margin. w is never scaled. (Panagiotakopoulos and Tsampouka, arXiv:1304.6383, (6)-(8); the weights are
    ours: a row's loss is multiplied by s_i, hence its sub-gradient, while its presentation counts as one whatever s_i.)

    When every row has been presented equally often, a_i = s_i I_i / (lambda t), I_i its updates, lies in [0, C s_i]: a
    feasible dual point with sum a_i y_i x_i = w and sum a_i = M / (lambda t), M = sum s_i I_i.

    A loss without a corner whose slope is bounded goes the same way: a presentation adds b s_i y_i x_i to a, b = -l'(y_i a.x_i / (lambda t))
    in [0, 1] where the hinge has 0 or 1. Then a_i = s_i (sum of its b) / (lambda t), and as conjugates are convex, and conjugate(C b, C) = C
    conjugate(b, 1), the sum of a_i - conjugate(a_i) is at least M / (lambda t) with M = sum s_i (b - conjugate(b, 1)) over the presentations.
    Of the hinge that is margin sum s_i I_i, and no bound but the value itself.

    A loss of numbers t_i goes the second way, with a corner or without: b = -l'(a.x_i / (lambda t) - t_i) in [-1, 1], the presentation adds
    b s_i x_i, and M has b t_i more.

    Given: X, y, s; order, times; lambda, l = loss; t. Changed: a.
    Returned: the part of M that these presentations bring; sum s_i l(y_i w.x_i) with w as it was when the row's turn came.
    """
    X, y, s = given
    lam, loss = objective
    margin = 1.0 - loss.conjugate_slope(0.0, 1.0)
    steady = loss.curvature(1.0) == 0.0 and not loss.numeric()
    gained, losses, growth = 0.0, 0.0, lam * margin
    for i in order:
        weight, at = np.float64(s[i]), X.dot(i, a)
        if not steady:
            losses += weight * loss.value(argument(loss, y[i], at / (lam * t) if t > 0 else 0.0))
            if weight > 0.0:
                square = weight * X.sqnorm(i) if times > 1 else 0.0
                total, gain = slopes_in_succession(y[i], at, square, t, times, objective)
                X.axpy(i, np.float64(entry(loss, total * weight, y[i])), a)
                gained += gain * weight
            t += times
            continue
        excess = argument(loss, y[i], at) - growth * t
        if t > 0:
            losses += weight * max(0.0, -excess) / (lam * t)
        else:
            losses += weight * margin
        if excess <= (times - 1) * growth and weight > 0.0:
            count = 1
            if times > 1:
                count = updates(excess, growth, weight * X.sqnorm(i), times)
            X.axpy(i, count * weight * y[i], a)
            gained += margin * count * weight
        t += times
    return gained, losses


@compiled(fastmath=FAST)
def pegasos_pass(
    given: Labeled, batches: Batches, objective: Objective, radius: float, t: float, a: Float64, total: Float64
) -> tuple[float, float, float, float, float]:
    """Step through the rows of ``order`` in batches; a is kept as scale * a, so that a projection is one product.

        min_w  lambda/2 ||w||^2 + 1/n sum_i s_i l(y_i w.x_i),     lambda = 1 / (C n)

    A step on a mini-batch A is w <- (1 - 1/t) w + sum_A b_i y_i x_i / (lambda t |A|), b_i = -s_i l'(m_i), then a projection
    on a ball (Shalev-Shwartz, Singer, Srebro, Cotter, Math. Prog. 2011, figures 1 and 2; the lecture's "stochastic gradient
    method" for the smoothed hinge). With t counted in rows, so that a batch cut short by the end of a block has the weight
    of its rows, and a = lambda t w, it is a <- a + sum_A b_i y_i x_i.

    After complete epochs a_i = sum of the row's b / (lambda t) is feasible for the dual, and, the conjugate being convex,
    sum_i conjugate(a_i, C s_i) <= sum over visits of s_i conjugate(b_i / s_i, 1) / (lambda t): a dual bound in two numbers
    for every loss. A projection shrinks all b met so far: their linear part by the factor, their quadratic one by its
    square, and the bound stays valid. So it does when t starts from an offset.

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


class Stage(NamedTuple):
    """What stays as it is through a stage: the ball, and the length of a step."""

    center: Float64
    """The center of the ball, (columns + 1,)."""
    radius: float
    """The radius of the ball."""
    eta: float
    """The length of a step."""


@compiled(fastmath=FAST)
def _project(scale: float, part: float, products: tuple[float, float, float], radius: float) -> tuple[float, float]:
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
    """Step through the rows of ``order`` in batches, in the ball of a stage.

        f(w) = lambda/2 ||w||^2 + 1/n sum_i s_i l(y_i w.x_i),     lambda = 1 / (C n)

        w <- P[(1 - eta lambda) w + eta / |A| sum_A b_i y_i x_i],   b_i = -s_i l'(m_i),   P: onto ||w - center|| <= radius

    for one mini-batch A after the other (Xu, Lin, Yang, Analysis and Applications 2019, algorithm ASSG-c; Tanji et al.,
    Snacks, algorithm 1). Of two readings of the latter we take the one its theorem is about: w itself is projected, as in
    the paper's (7) and not in its line 5, and the average holds the T iterates with weights that add up to 1, so it starts
    from 0 and not, as in line 3, from w.

    w is kept as scale * u + part * center, u starting as w, so that a row costs only its entries: two inner products. Of
    u the pass follows ||u||^2 and u.center, which a projection needs; they are computed afresh with every call.

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
        scale, part = _project(scale, part, (uu, uc, cc), radius)
        if (start // batch) % every == 0:
            for j in range(w.size):
                total[j] += scale * w[j]
            added += part
            samples += 1.0
    total += added * center
    for j in range(w.size):
        w[j] = scale * w[j] + part * center[j]
    return linear, quadratic, losses, samples
