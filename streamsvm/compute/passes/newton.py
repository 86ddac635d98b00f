"""Sums over a block for second-order steps: values and gradients at a point, second derivatives, and sums of squares of
columns.

With f_i = w.x_i, m_i = y_i f_i and C_i = C s_i, for a smooth loss h (that of the problem, or a smoothed version of it):

    slopes_i = -C_i h'(m_i) y_i         so that grad = w - X' slopes
    second_derivatives_i = C_i h''(m_i)   so that the Hessian is I + X' diag(second_derivatives) X

and a_i = -C_i h'(m_i) is a feasible dual point of the problem with its loss l (``compute.passes.certificate``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.compute.blocks.curves import Curved, curve_squares
from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import RowLoss, row_terms
from streamsvm.compute.targets import argument, entry
from streamsvm.rows import CSR, Float32, Float64, Int32, Int64, Labeled, Rows, Targets


@compiled(fastmath=FAST)
def evaluation_pass(
    given: Labeled, w: Float64, cost: RowLoss, f: Float64, v: Float64, low: Float64
) -> tuple[float, float, float, float]:
    """Compute the sums of ``slopes_pass`` and X' slopes, reading each row once. Given: X, y, s, w, C, l = loss, h =
    smooth.

    Changed: f (n,) = X w; v + low (p,), to which X' slopes is added; ``low`` accumulates the rounding errors. Returned:
    as ``slopes_pass``.
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
        loss_term, smooth_term, a, first, second = row_terms(loss, smooth, m, y[i], C_i)
        losses += loss_term
        smoothed += smooth_term
        linear += first
        quadratic += second
        if a != 0.0:
            X.add_row(i, entry(loss, a, y[i]), v, low)
    return losses, smoothed, linear, quadratic


@compiled(fastmath=FAST)
def slopes_pass(
    y: Targets, s: Float32 | Float64, f: Float64, cost: RowLoss, slopes: Float64, second_derivatives: Float64
) -> tuple[float, float, float, float]:
    """Compute slopes, second derivatives and the sums of a certificate from decision values f (n,).

    Given: y, s, f, C, l = loss, h = smooth. Changed: slopes, second_derivatives (n,).
    Returned: sum C_i l(m_i), sum C_i h(m_i), and linear, quadratic of the dual as in ``certify_pass``.
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
        loss_term, smooth_term, a, first, second = row_terms(loss, smooth, m, y[i], C_i)
        losses += loss_term
        smoothed += smooth_term
        linear += first
        quadratic += second
        slopes[i] = entry(loss, a, y[i])
    return losses, smoothed, linear, quadratic


@compiled(fastmath=FAST)
def second_derivatives_pass(
    y: Targets, s: Float32 | Float64, f: Float64, C: float, smooth: Any, second_derivatives: Float64
) -> None:
    """Set second_derivatives (n,) as ``slopes_pass`` does, and nothing else."""
    for i in range(y.size):
        second_derivatives[i] = 0.0
        C_i = C * np.float64(s[i])
        if C_i > 0.0:
            second_derivatives[i] = C_i * smooth.second_derivative(argument(smooth, y[i], f[i]))


@compiled(fastmath=FAST)
def trial_pass(
    y: Targets, s: Float32 | Float64, f: Float64, df: Float64, C: float, smooth: Any, steps: Float64
) -> Float64:
    """Return sum_i C_i h(y_i (f_i + steps_k df_i)) for every step length steps_k, (steps,)."""
    values = np.zeros(steps.size)
    for i in range(y.size):
        C_i = C * s[i]
        for k in range(steps.size):
            values[k] += C_i * smooth.value(argument(smooth, y[i], f[i] + steps[k] * df[i]))
    return values


def squares(X: Rows | Curved, a: Float64, columns: int) -> Float64:
    """Return sum_i a_i x_ij^2 for every column j (p,), the constant feature included."""
    if isinstance(X, Curved):
        return curve_squares(X, a, columns)
    out = np.zeros(columns + 1)
    if isinstance(X, CSR):
        _sparse_squares(X.data, X.indices, X.indptr, a, out)
    else:
        _dense_squares(X.values, a, out)
    out[-1] = X.bias * X.bias * float(a.sum())
    return out


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
