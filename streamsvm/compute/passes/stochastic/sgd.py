"""Sub-gradient descent with step 1 / (lambda t), written as a perceptron with a growing margin.

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
"""

from __future__ import annotations

from math import floor

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.stochastic.steps import Objective
from streamsvm.compute.targets import argument, dual_gain, entry
from streamsvm.rows import Float64, Int32, Labeled


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
    """Presents the rows of ``order``, each ``times`` times in succession, the first one as presentation t + 1.

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
