"""Passes of ``solvers.dcd``: DCD sweeps over the rows of a block, also for all classes in one problem; the sums for
CoCoA+; the margin perceptron with unlearning (``mpu_pass``).

``dcd_sweep`` maximizes the dual by coordinates:

max_a  D(a) = sum_i (a_i - conjugate(a_i, C_i)) - 1/2 ||w||^2,   w = sum_i a_i y_i x_i,   0 <= a_i <= upper(C_i)

Given: X, y, C_i = C s_i, the first ``count`` entries of ``order``.
Changed: alpha and w together; each coordinate in turn is set to its optimum,
    a_i <- clip(a_i - G / Q, 0, upper),   G = y_i w.x_i - 1 + conjugate'(a_i),   Q = ||x_i||^2 + conjugate''.
    In regression with target t_i the box is [lower, upper], G = w.x_i - t_i - 1 + conjugate'(a_i) has a jump at a_i =
    0, the optimum is a soft threshold (``soft_threshold``; Ho and Lin, JMLR 13, 2012, (20) - (24)), and row i enters w
    with sign 1. If the conjugate is not quadratic, the optimum is found by Newton's method on the resulting margin
    (``optimum``). ``order``: the rows that need further visits are moved to its front. A row at a bound is left out
    (shrinking; Hsieh et al., ICML 2008, section 3.2) if its gradient points out of the box by more than the thresholds
    in ``shrinking``.
With ``sigma`` > 1 the quadratic form is multiplied by ``sigma``: w changes by sigma delta y_i x_i, and Q = sigma
||x_i||^2 + conjugate''.
Returned: the number of rows that need further visits; the losses sum_i C_i l(m_i) at the moment of each visit; the
largest and the smallest
    projected gradient of the rows at the front: G, but at a bound (in regression also at 0) only its part that points
    into the box.
"""

from __future__ import annotations

from math import ceil
from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST, prefetch_entry, prefetch_row, prefetch_row_start
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.targets import argument, dual_gain, entry, left_slope, lower
from streamsvm.rows import Float32, Float64, Int32, Labeled, Rows, Targets

AHEAD = 4
"""Number of visits between the prefetch of a row and its use."""
ROOT_STEPS, ROOT_PRECISION = 40, 1e-14
"""Newton's method along one coordinate: the largest number of steps (three to six suffice), and the step, relative to
the margin, at which it ends."""


class Box(NamedTuple):
    """The terms of the dual that belong to one row: conjugate and bound of its loss, and the factor of the quadratic
    form.
    """

    C: float
    """The weight of the sum of losses; multiplied by the weight of a row, it determines the bounds of its dual
    variable."""
    loss: Any
    sigma: float = 1.0
    """The factor of the quadratic form: 1 for one worker, larger for several workers at the same time (CoCoA+)."""


class ShrinkingThresholds(NamedTuple):
    """Thresholds by which rows at a bound are left out (shrinking). The defaults leave out every row whose gradient
    points out of the box.
    """

    above: float = 0.0
    """Rows at the lower bound with G > above are left out."""
    below: float = 0.0
    """Rows at the upper bound with G < below are left out; in regression also rows at 0 if G > above on the right and G
    < below on the left."""


class SweepResult(NamedTuple):
    """The result of a sweep."""

    remaining: int
    """Number of rows that need further visits."""
    losses: float
    """The sum of the losses at the moment of each visit."""
    highest: float
    """The largest projected gradient of the rows that need further visits; -inf if there are none."""
    lowest: float
    """The smallest projected gradient of these rows; inf if there are none."""


@compiled(fastmath=FAST)
def optimum(margin: float, a: float, C: float, loss: Any, square: float) -> float:
    """Return the a that maximizes D along one coordinate, for smooth losses.

    With m = margin + square (a_new - a), the optimum satisfies a_new = -C l'(m). The margin m is the root of the
    increasing function m - margin - square (-C l'(m) - a); a_new = 0 and a_new = C give a bracket. If a Newton step
    leaves the bracket, or is longer than half the last step, a bisection takes its place: near the strongly curved part
    of a loss, Newton's method would oscillate.
    """
    low, high = margin - square * a, margin + square * (C - a)
    m, last = min(max(margin, low), high), 2.0 * (high - low)
    for _ in range(ROOT_STEPS):
        f = m - margin - square * (-C * loss.slope(m) - a)
        if f > 0.0:
            high = m
        else:
            low = m
        change = f / (1.0 + square * C * loss.second_derivative(m))
        if not low <= m - change <= high or abs(change) > 0.5 * last:
            change = m - 0.5 * (low + high)
        m -= change
        last = abs(change)
        if last <= ROOT_PRECISION * (1.0 + abs(m)):
            break
    return -C * loss.slope(m)


@compiled(fastmath=FAST)
def soft_threshold(margin: float, a: float, C: float, loss: Any, Q: float) -> float:
    """Return the a that maximizes D along one coordinate in regression, without the box.

    It is the optimum of the parabola on the right or on the left of 0 if that lies on the same side, else 0.
    """
    curvature_term = loss.curvature(C) * a
    right = a - (margin - 1.0 + loss.conjugate_slope(0.0, C) + curvature_term) / Q
    left = a - (margin - 1.0 + left_slope(loss, 0.0, C) + curvature_term) / Q
    return max(right, 0.0) + min(left, 0.0)


@compiled(fastmath=FAST)
def dcd_sweep(
    given: Labeled, order: Int32, count: int, box: Box, shrinking: ShrinkingThresholds, alpha: Float64, w: Float64
) -> SweepResult:
    """Sweep over the first ``count`` rows of ``order``, as described at the top of the module.

    Given: X, y, s, box, shrinking. Changed: alpha, w, and order, whose first entries become the rows that need further
    visits.
    """
    X, y, s = given
    C, loss, sigma = box
    left, losses, highest, lowest = 0, 0.0, -np.inf, np.inf
    for t in range(count):
        i = order[t]
        if t + 2 * AHEAD < count:
            later = order[t + 2 * AHEAD]
            prefetch_entry(alpha, later)
            prefetch_entry(y, later)
            prefetch_entry(s, later)
            prefetch_row_start(X, later)
            prefetch_row(X, order[t + AHEAD])
        C_i = C * np.float64(s[i])  # float64 also if the pass is not compiled
        if C_i <= 0.0:
            continue
        margin = argument(loss, y[i], X.dot(i, w))
        losses += C_i * loss.value(margin)
        a, bottom, top = alpha[i], lower(loss, C_i), loss.upper(C_i)
        # The derivative of -D on the right of a, and on its left, where it is smaller if the conjugate has a kink at a.
        G, below = margin - 1.0 + loss.conjugate_slope(a, C_i), margin - 1.0 + left_slope(loss, a, C_i)
        up, down = G > shrinking.above, below < shrinking.below
        if (a <= bottom and up) or (a >= top and down) or (loss.numeric() and a == 0.0 and up and down):
            continue
        order[left] = i
        left += 1
        projected = G if G < 0.0 and a < top else (below if below > 0.0 and a > bottom else 0.0)
        highest, lowest = max(highest, projected), min(lowest, projected)
        Q = sigma * X.sqnorm(i) + loss.curvature(C_i)
        if not loss.quadratic():
            new = optimum(margin, a, C_i, loss, sigma * X.sqnorm(i))
        elif Q > 0.0:
            new = soft_threshold(margin, a, C_i, loss, Q) if loss.numeric() else a - G / Q
            new = min(max(new, bottom), top)
        else:  # an empty row: the dual is linear on each side of 0
            new = top if G < 0.0 else (bottom if below > 0.0 else a)
        if new != a:
            alpha[i] = new
            X.axpy(i, np.float64(entry(loss, sigma * (new - a), y[i])), w)
    return SweepResult(left, losses, highest, lowest)


@compiled(fastmath=FAST)
def row_costs(given: Labeled, rows: Int32, w: Float64, cost: RowLoss, out: Float64) -> None:
    """Set out_i = 1 + C_i l(m_i) for the rows with the numbers ``rows``. Given: X, y, s, w, and C and the loss l.
    Changed: out (n,).
    """
    X, y, s = given
    for i in rows:
        out[i] = 1.0 + cost.C * s[i] * cost.loss.value(argument(cost.loss, y[i], X.dot(i, w)))


@compiled(fastmath=FAST)
def row_margin(f: Float64, own: int) -> float:
    """Return the decision value of a row's own class minus the largest of the other classes; f (K,)."""
    other = -np.inf
    for k in range(f.size):
        if k != own:
            other = max(other, f[k])
    return f[own] - other


@compiled(fastmath=FAST)
def simplex_level(A: Float64, own: int, low: float, g: float, most: float) -> float:
    """Return t, the level above which A_k (K,) counts (``multinomial_sweep``); ``most`` is q upper(C_i)."""
    t, bound = low, False
    while True:
        r, S = 0, 0.0
        for k in range(A.size):
            if k != own and A[k] > t:
                r += 1
                S += A[k]
        if r == 0:
            return t
        higher = (low + g * S) / (1.0 + g * r)
        if bound or S - r * higher > most:
            bound = True
            higher = (S - most) / r
        if higher <= t:
            return t
        t = higher


@compiled(fastmath=FAST)
def lone_optimum(a: Float64, own: int, C_i: float, loss: Any) -> None:
    """Set the dual variables a (K,) of an empty row, whose dual depends only on b and not on its distribution over
    classes.
    """
    slope, curvature, b = 1.0 - loss.conjugate_slope(0.0, C_i), loss.curvature(C_i), 0.0
    if slope > 0.0:
        b = min(slope / curvature, loss.upper(C_i)) if curvature > 0.0 else loss.upper(C_i)
    a[:] = 0.0
    a[own] = b
    a[0 if own != 0 else 1] = -b


@compiled(fastmath=FAST)
def move_row(X: Rows, i: int, sigma: float, own: int, most: float, new: Float64, a: Float64, W: Float64) -> bool:
    """Set the dual variables a (K,) of row i to ``new`` (K,), and update W. The variable of the row's own class is set
    so that the sum of all is 0.

    Returns whether any of them has changed.
    """
    new[own] = 0.0
    b = 0.0
    for k in range(a.size):
        b -= new[k]
    new[own] = min(b, most)
    changed = False
    for k in range(a.size):
        if new[k] != a[k]:
            X.axpy(i, sigma * (new[k] - a[k]), W[k])
            a[k], changed = new[k], True
    return changed


@compiled(fastmath=FAST)
def multinomial_sweep(given: Labeled, order: Int32, count: int, box: Box, alpha: Float64, W: Float64) -> SweepResult:
    """Sweep over the first ``count`` rows of ``order``, all classes in one problem.

        P(W) = 1/2 sum_k ||w_k||^2 + sum_i C_i l(m_i),     m_i = w_y.x_i - max_{k != y} w_k.x_i,     y = y_i,

    where l is any loss of a margin; with the hinge it is the problem of Crammer and Singer, JMLR 2, 2001. Since -b
    min_k z_k is the maximum of -sum_k u_k z_k over u >= 0 with sum_k u_k = b, a row has a variable u_ik for every class
    but its own, and b_i = sum_k u_ik takes the place of a_i in the two-class problem:

        max_u  D(u) = sum_i (b_i - conjugate(b_i, C_i)) - 1/2 sum_k ||w_k||^2,     0 <= b_i <= upper(C_i),     u_ik >= 0,
        w_k = sum_i a_ik x_i,     a_ik = b_i where k = y_i, else -u_ik:     sum_k a_ik = 0.

    Given: X, y (class codes), C_i = C s_i, the first ``count`` entries of ``order``.
    Changed: a (n, K) and W (K, p) together: the variables of each row in turn are set to their optimum (the sequential
    dual method of Keerthi et al., KDD 2008, for losses with any conjugate c0 b + c1 b^2 / 2). With q = ||x_i||^2, f_k =
    w_k.x_i and A_k = q u_ik + f_k, where u and b have their old values, the new values are

        u_k = max(0, A_k - t) / q,     t = B + (q + c1) sum_k u_k,     B = f_y - q b - 1 + c0,

    or, if that sum exceeds upper(C_i), those for the t at which the sum is upper(C_i). The right side decreases as t
    increases. Over the r classes with A_k > t, whose A_k have the sum S, t = (B + g S) / (1 + g r) with g = 1 + c1 / q,
    or t = (S - r q upper) / r. The iteration starts with all classes with A_k > B. A set of classes that is too large
    gives a t that is too small; classes with A_k <= t are removed until there is none (Michelot 1986, for the simplex).
        ``order``: rows whose variables have changed are moved to its front.
    With ``sigma`` > 1 the quadratic form is multiplied by sigma, as in ``dcd_sweep``. The result is as there, without
    gradients.

    Given: X, y, s, box. Changed: alpha (n, K), W (K, p), and order, whose first entries become the rows that need
    further visits.
    """
    X, y, s = given
    C, loss, sigma = box
    f, A = np.empty(len(W)), np.empty(len(W))
    left, losses = 0, 0.0
    for t in range(count):
        i = order[t]
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        own, a = int(y[i]), alpha[i]
        for k in range(f.size):
            f[k] = X.dot(i, W[k])
        losses += C_i * loss.value(row_margin(f, own))
        q = sigma * X.sqnorm(i)
        if q <= 0.0:
            lone_optimum(a, own, C_i, loss)
            continue
        low = f[own] - q * a[own] - 1.0 + loss.conjugate_slope(0.0, C_i)
        for k in range(f.size):
            A[k] = f[k] - q * a[k]
        most = loss.upper(C_i)
        level = simplex_level(A, own, low, 1.0 + loss.curvature(C_i) / q, q * most)
        for k in range(f.size):
            f[k] = -max(0.0, A[k] - level) / q
        if move_row(X, i, sigma, own, most, f, a, W):
            order[left] = i
            left += 1
    return SweepResult(left, losses, np.inf, -np.inf)


@compiled(fastmath=FAST)
def multinomial_loss_sum(F: Float64, y: Targets, s: Float32, C: float, loss: Any) -> float:
    """Return sum_i C s_i l(m_i). Given: the decision values F (n, K)."""
    total = 0.0
    for i in range(y.size):
        total += C * s[i] * loss.value(row_margin(F[i], int(y[i])))
    return total


@compiled(fastmath=FAST)
def multinomial_dual_sum(alpha: Float64, y: Targets, s: Float32, C: float, loss: Any) -> float:
    """Return sum_i b_i - conjugate(b_i, C s_i): the dual without the term -1/2 ||W||^2."""
    total = 0.0
    for i in range(y.size):
        if s[i] > 0.0:
            b = alpha[i, int(y[i])]
            total += b - loss.conjugate(b, C * s[i])
    return total


@compiled(fastmath=FAST)
def proposals_pass(
    y: Targets, s: Float32, cost: RowLoss, a: Float64, directions: Float64, linear: Float64, quadratic: Float64
) -> None:
    """Add the terms of a quadratic lower bound of the sum of a_i - conjugate(a_i) along two directions d, e proposed by
    a group (CoCoA+).

        sum_i gain(a_i + t d_i + r e_i)  >=  sum_i gain(a_i) + linear.(t, r) + (t, r)' quadratic (t, r),      0 <= t <= 1, |r| <= 1

    gain(a) = a - conjugate(a), in regression plus a t_i. If the gain is quadratic between a and a + d, both sides are
    equal. If it has a kink there, or is not quadratic, the chord is used, which is a lower bound because the conjugate
    is convex; e is then 0.

    Given: y, s, cost, a (n,), ``directions`` (n, 2) with the columns d and e. Changed: linear (2,), quadratic (2, 2).
    """
    C, loss, _ = cost
    for i in range(y.size):
        C_i, d, e = C * np.float64(s[i]), directions[i, 0], directions[i, 1]
        if C_i <= 0.0:
            continue
        bend = 0.5 * loss.curvature(C_i) if loss.quadratic() else 0.0
        here = dual_gain(loss, a[i], y[i], C_i)
        linear[0] += dual_gain(loss, a[i] + d, y[i], C_i) - here + bend * d * d
        if e != 0.0:
            linear[1] += dual_gain(loss, a[i] + e, y[i], C_i) - here + bend * e * e
        quadratic[0, 0] -= bend * d * d
        quadratic[0, 1] -= bend * d * e
        quadratic[1, 0] -= bend * d * e
        quadratic[1, 1] -= bend * e * e


class MPUSteps(NamedTuple):
    """The steps in which dual variables change."""

    length: float
    """The length eta of one step."""
    most: int
    """Largest number of steps of one row in one visit."""


class MPUVisit(NamedTuple):
    """The result of a pass of the margin perceptron."""

    moved: int
    """Number of rows whose dual variables have changed."""
    losses: float
    """sum C_i l(m_i) at the moment of each visit."""
    hidden: float
    """The sum of the terms of P - D over the rows that have not changed."""


@compiled(fastmath=FAST)
def mpu_pass(given: Labeled, order: Int32, box: Box, steps: MPUSteps, alpha: Float64, w: Float64) -> MPUVisit:
    """Visit the rows of ``order`` with the update of the margin perceptron with unlearning.

        max_a  D(a) = sum_i (a_i - conjugate(a_i, C_i)) - 1/2 ||w||^2,   w = sum_i a_i y_i x_i,   0 <= a_i <= upper(C_i)

    In Panagiotakopoulos and Tsampouka, ICML 2010, I_i counts how often row i was added to v = sum_i I_i y_i x_i. A row
    is learned, I_i + 1, while y_i v.x_i is at most a margin b, and unlearned, I_i - 1, if it is far above b. With eta =
    1 / b, a_i = eta I_i and w = eta v: dual variables change in steps of eta, and the bound of the box corresponds to
    the paper's limit on the number of updates. With G = y_i w.x_i - 1 + conjugate'(a_i) and Q = ||x_i||^2 +
    conjugate'', k steps in the direction of -G change the dual by

        eta k |G| - 1/2 (eta k)^2 Q,

    so that each of the first k <= ceil(|G| / (eta Q) - 1/2) steps increases D. The pass makes these k steps, but at
    most ``most``; the last one is shortened if it would leave the box. For the hinge a step is made below y_i v.x_i = b
    - ||x_i||^2 / 2, and a step back above b + ||x_i||^2 / 2: the perceptron's condition with its threshold moved by
    half a step, which makes the number of steps on the grid finite. A row that does not change contributes

        C_i l(m_i) - (a_i - conjugate(a_i, C_i)) + a_i m_i,   m_i = y_i w.x_i,   for the hinge at most C_i eta Q / 2,

    to the gap P - D. The sum of these terms is the gap that remains when no row changes any more; the choice of eta
    bounds it.

    Given: X, y, C_i = C s_i; eta = ``length``. Changed: alpha, w, and ``order``, to whose front the rows that have
    changed are moved.
    """
    X, y, s = given
    C, loss, sigma = box
    length, most = steps
    moved, losses, hidden = 0, 0.0, 0.0
    for i in order:
        C_i = C * s[i]
        if C_i <= 0.0:
            continue
        margin = y[i] * X.dot(i, w)
        cost, a, top = C_i * loss.value(margin), alpha[i], loss.upper(C_i)
        losses += cost
        G = margin - 1.0 + loss.conjugate_slope(a, C_i)
        Q = sigma * X.sqnorm(i) + loss.curvature(C_i)
        new = a
        if Q > 0.0:
            k = min(ceil(abs(G) / (length * Q) - 0.5), most)
            new = min(max(a - k * length if G > 0.0 else a + k * length, 0.0), top)
        elif G < 0.0:  # an empty row: the dual is linear
            new = top
        if new == a:
            hidden += cost - a + loss.conjugate(a, C_i) + a * margin
            continue
        order[moved] = i
        moved += 1
        alpha[i] = new
        X.axpy(i, sigma * (new - a) * y[i], w)
    return MPUVisit(moved, losses, hidden)
