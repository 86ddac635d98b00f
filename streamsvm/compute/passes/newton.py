"""What a second-order step needs of a block: sums at a point, and which rows to keep for the model of the objective.

With f_i = w.x_i, m_i = y_i f_i and C_i = C s_i, for a smooth loss h (the problem's own, or a rounded one of it):

    slopes_i = -C_i h'(m_i) y_i         so that grad = w - X' slopes
    bends_i  =  C_i h''(m_i)            so that the Hessian is I + X' diag(second_derivatives) X

and a_i = -C_i h'(m_i) is a feasible dual point of the problem's own loss l (``compute.passes.certificate``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import RowLoss, row_terms
from streamsvm.compute.random import MIX1, STEP, mix
from streamsvm.compute.targets import argument, entry
from streamsvm.rows import CSR, Dense, Float32, Float64, Int32, Int64, Labeled, Rows, Targets, row_count

FAR_SHARE = 0.01
"""The share of its score that a row keeps where the loss is straight over all widths that are looked at: it may bend
there later."""


@compiled(fastmath=FAST)
def look_pass(
    given: Labeled, w: Float64, cost: RowLoss, f: Float64, v: Float64, low: Float64
) -> tuple[float, float, float, float]:
    """The sums of ``slopes_pass`` and X' slopes, each row read once. Given: X, y, s, w, C, l = loss, h = smooth.

    Changed: f (n,) = X w; v + low, to which X' slopes is added.
    """
    X, y, s = given
    C, loss, smooth = cost
    losses, smoothed, linear, quadratic = 0.0, 0.0, 0.0, 0.0
    for i in range(y.size):
        f[i] = X.dot(i, w)
        C_i = C * np.float64(s[i])
        if C_i <= 0.0:
            continue
        m = argument(loss, y[i], f[i])
        lost, rounded, a, first, second = row_terms(loss, smooth, m, y[i], C_i)
        losses += lost
        smoothed += rounded
        linear += first
        quadratic += second
        if a != 0.0:
            X.add_row(i, entry(loss, a, y[i]), v, low)
    return losses, smoothed, linear, quadratic


@compiled(fastmath=FAST)
def slopes_pass(
    y: Targets, s: Float32 | Float64, f: Float64, cost: RowLoss, slopes: Float64, second_derivatives: Float64
) -> tuple[float, float, float, float]:
    """Given: y, s, f, C, l = loss, h = smooth. Changed: slopes, second_derivatives (n,).

    Returned: sum C_i l(m_i), sum C_i h(m_i), and linear, quadratic of the dual as ``certify_pass`` has them.
    """
    C, loss, smooth = cost
    losses, smoothed, linear, quadratic = 0.0, 0.0, 0.0, 0.0
    for i in range(y.size):
        slopes[i], second_derivatives[i] = 0.0, 0.0
        C_i = C * np.float64(s[i])
        if C_i <= 0.0:
            continue
        m = argument(loss, y[i], f[i])
        second_derivatives[i] = C_i * smooth.second_derivative(m)
        lost, rounded, a, first, second = row_terms(loss, smooth, m, y[i], C_i)
        losses += lost
        smoothed += rounded
        linear += first
        quadratic += second
        slopes[i] = entry(loss, a, y[i])
    return losses, smoothed, linear, quadratic


@compiled(fastmath=FAST)
def second_derivatives_pass(
    y: Targets, s: Float32 | Float64, f: Float64, C: float, smooth: Any, second_derivatives: Float64
) -> None:
    """Those of ``slopes_pass`` alone."""
    for i in range(y.size):
        second_derivatives[i] = 0.0
        C_i = C * np.float64(s[i])
        if C_i > 0.0:
            second_derivatives[i] = C_i * smooth.second_derivative(argument(smooth, y[i], f[i]))


@compiled(fastmath=FAST)
def trial_pass(
    y: Targets, s: Float32 | Float64, f: Float64, df: Float64, C: float, smooth: Any, steps: Float64
) -> Float64:
    """sum_i C_i h(y_i (f_i + steps_k df_i)) for every k: several step lengths on one reading."""
    values = np.zeros(steps.size)
    for i in range(y.size):
        C_i = C * s[i]
        for k in range(steps.size):
            values[k] += C_i * smooth.value(argument(smooth, y[i], f[i] + steps[k] * df[i]))
    return values


@compiled(fastmath=FAST)
def scores_pass(y: Targets, s: Float32, f: Float64, smooth: Any, width: float, scores: Float64) -> None:
    """Multiply scores_i by s_i and by 1, 1/5, 1/25 or FAR_SHARE: the first where h bends within ``width`` of m_i, the
    next within 2 and 4 times that, the last where it does not. Where the conjugate is no parabola h bends everywhere: the factor
    is then how much it bends there on average, of the most it can, and FAR_SHARE at least.

    Given: y, s, f, h = smooth, width. Changed: scores (n,). A row of weight 0 has no score.
    """
    for i in range(y.size):
        if s[i] <= 0.0:
            scores[i] = 0.0
            continue
        m, near, reach = argument(smooth, y[i], f[i]), 1.0, width
        if not smooth.quadratic():
            near = (smooth.slope(m + width) - smooth.slope(m - width)) / (2.0 * width) * smooth.curvature(1.0)
        while smooth.quadratic() and near > FAR_SHARE and smooth.slope(m - reach) == smooth.slope(m + reach):
            reach *= 2.0
            near *= 0.2
        scores[i] *= s[i] * max(near, FAR_SHARE)


@compiled()
def keys_pass(scores: Float64, start: int, salt: int, keys: Float64) -> None:
    """keys_i = u_i / scores_i, u_i in (0, 1] a hash of ``salt`` and the row's global number start + i (splitmix64).

    The rows of the k smallest keys are a sample in which a row of score c is found with probability min(1, c t), t the
    next key: priority sampling (Duffield, Lund, Thorup, J. ACM 2007). Which rows they are depends on
    the rows alone, not on how they were dealt to blocks or workers.
    """
    seed = np.uint64(salt) * MIX1
    for i in range(scores.size):
        z = seed + np.uint64(start + i + 1) * STEP
        z = mix(z)
        u = (np.float64(z >> np.uint64(11)) + 1.0) / 9007199254740992.0
        keys[i] = u / scores[i] if scores[i] > 0.0 else np.inf


def leverages(X: Rows, scale: Float64, floor: float) -> Float64:
    """min(1, sum_j x_ij^2 scale_j) + floor (n,): how much of its columns a row is. ``scale`` (p,) = 1 / sum_i x_ij^2."""
    out = np.full(row_count(X), floor)
    if isinstance(X, Dense):
        _dense_leverages(X.values, X.bias, scale, out)
    else:
        _sparse_leverages(X.data, X.indices, X.indptr, X.bias, scale, out)
    return out


def squares(X: Rows, a: Float64, columns: int) -> Float64:
    """sum_i a_i x_ij^2 (p,)."""
    out = np.zeros(columns + 1)
    if isinstance(X, CSR):
        _sparse_squares(X.data, X.indices, X.indptr, a, out)
    else:
        _dense_squares(X.values, a, out)
    out[-1] = X.bias * X.bias * float(a.sum())
    return out


@compiled(fastmath=FAST)
def _dense_leverages(values: Float32, bias: float, scale: Float64, out: Float64) -> None:
    for i in range(out.size):
        row = values[i]
        total = bias * bias * scale[row.size]
        for j in range(row.size):
            total += np.float64(row[j]) * row[j] * scale[j]
        out[i] += min(total, 1.0)


@compiled(fastmath=FAST)
def _sparse_leverages(data: Float32, indices: Int32, indptr: Int64, bias: float, scale: Float64, out: Float64) -> None:
    for i in range(out.size):
        total = bias * bias * scale[scale.size - 1]
        for p in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[p]) * data[p] * scale[np.uint32(indices[p])]
        out[i] += min(total, 1.0)


@compiled(fastmath=FAST)
def _dense_squares(values: Float32, a: Float64, out: Float64) -> None:
    for i in range(a.size):
        row = values[i]
        for j in range(row.size):
            out[j] += a[i] * row[j] * row[j]


@compiled(fastmath=FAST)
def _sparse_squares(data: Float32, indices: Int32, indptr: Int64, a: Float64, out: Float64) -> None:
    for i in range(a.size):
        for p in range(indptr[i], indptr[i + 1]):
            out[np.uint32(indices[p])] += a[i] * data[p] * data[p]
