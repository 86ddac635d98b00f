"""Passes of ``solvers.stochastic``: stochastic sub-gradient steps over the rows of a block, for SGD, Pegasos and
ASSG.
"""

from __future__ import annotations

from math import floor, inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import dual_terms
from streamsvm.compute.targets import argument, dual_gain, entry
from streamsvm.rows import Float64, Int32, Labeled

_MIN_SCALE = 1e-100
"""If the scale of a falls below this, it is multiplied into a, so that it does not underflow."""


class Objective(NamedTuple):
    """lambda/2 ||w||^2 + 1/n sum_i s_i l(y_i w.x_i)."""

    lam: float
    """The weight lambda of the regularizer."""
    loss: Any
    """The loss l."""


class Batches(NamedTuple):
    """The order in which rows are visited, in mini-batches of ``size`` rows."""

    order: Int32
    """The numbers of the rows, in the order of their visits."""
    size: int = 1
    """Number of rows of a step."""
    every: int = 1
    """Number of steps after which w is added to the sum for the average."""


@compiled()
def updates(excess: float, growth: float, square: float, times: int) -> int:
    """Return how many of ``times`` presentations of one row in succession lead to an update, in closed form.

    Let u = y_i a.x_i - growth t, which is ``excess`` at the first presentation, and square = s_i ||x_i||^2. A
    presentation is a plus-step, u += square - growth, if u <= 0, and otherwise a minus-step, u -= growth. Let p be the
    number of plus-steps.

    square <= growth: after a plus-step u <= 0, so that all plus-steps follow the first ceil(u / growth) minus-steps.
    square > growth: steps of one sign lead from every start to the interval (-growth, square - growth], which u does
    not leave again.
        u + p square - times growth lies in an interval of that length for only one p. If a start outside the interval
        does not reach it, the formula gives p <= 0 or p >= times. (It covers all sub-cases of the paper's section 2.1.)

    If u is close to 0, rounding may change p by one; any p in [0, times] keeps the dual point feasible.
    """
    largest = floor(((times - 1) * growth - excess) / max(square, growth)) + 1
    return min(max(int(largest), 0), times)


@compiled(fastmath=FAST)
def slopes_in_succession(
    y: float, at: float, square: float, t: int, times: int, objective: Objective
) -> tuple[float, float]:
    """Return sum b over ``times`` presentations of one row in succession, and their sum of dual terms.

    The first one is presentation t + 1. Given: y_i; at = a.x_i before the first; square = s_i ||x_i||^2.
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
    """Present the rows of ``order``, each ``times`` times in succession; the first one is presentation t + 1.

        min_w  lambda/2 ||w||^2 + 1/n sum_i s_i max(0, margin - y_i w.x_i),     lambda = 1 / (C n)

    Let a = lambda t w, where t counts presentations. A step is: if y_i a.x_i <= growth t then a += s_i y_i x_i; t += 1,
    where growth = lambda margin. w is never scaled. (Panagiotakopoulos and Tsampouka, arXiv:1304.6383, (6)-(8). Row
    weights are an addition: the loss of a row, and therefore its sub-gradient, is multiplied by s_i, while its
    presentation counts as one whatever s_i.)

    After every row was presented equally often, a_i = s_i I_i / (lambda t), where I_i is the number of its updates,
    lies in [0, C s_i]: a feasible dual point with sum a_i y_i x_i = w and sum a_i = M / (lambda t), M = sum s_i I_i.

    For a smooth loss with a bounded slope, a presentation adds b s_i y_i x_i to a, where b = -l'(y_i a.x_i /
    (lambda t)) lies in [0, 1]; for the hinge b is 0 or 1. Then a_i = s_i (sum of its b) / (lambda t). Because
    conjugates are convex and conjugate(C b, C) = C conjugate(b, 1), the sum of a_i - conjugate(a_i) is at least M /
    (lambda t), where M = sum s_i (b - conjugate(b, 1)) over the presentations. For the hinge M = margin sum s_i I_i,
    and the bound is exact.

    A regression loss is treated like a smooth loss, even if it has kinks: b = -l'(a.x_i / (lambda t) - t_i) lies in
    [-1, 1], the presentation adds b s_i x_i, and its term of M also has b t_i.

    Given: X, y, s; order, times; lambda, l = loss; t. Changed: a.
    Returned: the terms of M from these presentations; sum s_i l(y_i w.x_i), each with w at the time of the row's
    presentation.
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
    """Make a step for each mini-batch of rows in ``order``. a is stored as scale * a, so that a projection only changes
    the scale.

        min_w  lambda/2 ||w||^2 + 1/n sum_i s_i l(y_i w.x_i),     lambda = 1 / (C n)

    A step on a mini-batch A is w <- (1 - 1/t) w + sum_A b_i y_i x_i / (lambda t |A|), b_i = -s_i l'(m_i), followed by a
    projection onto a ball (Shalev-Shwartz, Singer, Srebro, Cotter, Math. Prog. 2011, figures 1 and 2). t counts rows,
    so that a batch shortened by the end of a block has the weight of its rows. With a = lambda t w the step is a <- a +
    sum_A b_i y_i x_i.

    After complete passes, a_i = sum of the row's b / (lambda t) is dual feasible, and because the conjugate is convex,
    sum_i conjugate(a_i, C s_i) <= sum over visits of s_i conjugate(b_i / s_i, 1) / (lambda t): a dual bound from two
    numbers, for every loss. A projection shrinks all earlier b: the linear part by the factor, the quadratic part by
    its square; the bound stays valid. It also stays valid if t starts from an offset.

    Given: X, y, s; order, size, every; lambda, loss; radius of the ball (inf: no projection); t, the number of rows
    visited before + offset.
    Changed: a; total, to which w is added after every ``every``-th batch.
    Returned: linear = sum b_i (1 - conjugate'(0)); quadratic = sum s_i conjugate(b_i / s_i, 1) minus its linear part;
    the product of
        the factors of all projections, by which earlier sums have shrunk; sum s_i l(m_i), each at the time of the
        visit; the number of samples in ``total``.
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
            if scale < _MIN_SCALE:
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
    """Sum up the lengths of the steps of rows at w = 0, where b_i = -s_i l'(m_i), with m_i = 0, or m_i = -t_i in
    regression.

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
    """The constants of a stage of ASSG: the ball and the step length."""

    center: Float64
    """The center of the ball, (columns + 1,)."""
    radius: float
    """The radius of the ball."""
    eta: float
    """The length of a step."""


@compiled(fastmath=FAST)
def _project(scale: float, part: float, products: tuple[float, float, float], radius: float) -> tuple[float, float]:
    """Return scale and part of w = scale u + part c after the projection onto ||w - c|| <= radius. ``products``:
    ||u||^2, u.c, ||c||^2.
    """
    (uu, uc, cc), offset = products, part - 1.0
    square = scale * scale * uu + 2.0 * scale * offset * uc + offset * offset * cc
    if square <= radius * radius:
        return scale, part
    shrink = radius / sqrt(square)
    return scale * shrink, 1.0 + shrink * offset


@compiled(fastmath=FAST)
def assg_pass(
    given: Labeled, batches: Batches, objective: Objective, stage: Stage, w: Float64, total: Float64, v: Float64
) -> tuple[float, float, float, float]:
    """Make a step for each mini-batch of rows in ``order``, within the ball of a stage.

        f(w) = lambda/2 ||w||^2 + 1/n sum_i s_i l(y_i w.x_i),     lambda = 1 / (C n)

        w <- P[(1 - eta lambda) w + eta / |A| sum_A b_i y_i x_i],   b_i = -s_i l'(m_i),   P: onto ||w - center|| <= radius

    for one mini-batch A after the other (Xu, Lin, Yang, Analysis and Applications 2019, algorithm ASSG-c; Tanji et al.,
    Snacks, algorithm 1). Where the algorithm of the latter differs from its theorem, the theorem is followed: w itself
    is projected, as in the paper's (7) and unlike its line 5, and the average contains the T iterates with weights that
    add up to 1, so that it starts from 0 and not, as in line 3, from w.

    w is stored as scale * u + part * center, where u starts as w, so that the cost of a row depends only on its entries
    (two inner products). The pass updates ||u||^2 and u.center, which a projection needs; they are computed anew in
    every call.

    Given: X, y, s; order, size, every; lambda, loss; center, radius, eta. eta lambda < 1.
    Changed: w; total, to which w is added after every ``every``-th batch; v, to which sum b_i y_i x_i is added.
    Returned: linear = sum b_i (1 - conjugate'(0)), quadratic = sum s_i conjugate(b_i / s_i, 1) minus its linear part:
    after complete
        passes C v, C linear and C quadratic give a dual point and its value; sum s_i l(m_i), each at the time of the
        visit; the number of samples in ``total``.
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
        decay = 1.0 - eta * lam * rows.size / batch  # for a shortened batch the step is shorter
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
