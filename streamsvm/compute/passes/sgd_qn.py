"""Passes of SGD-QN: sub-gradient steps scaled by a diagonal matrix in place of a step length.

    min_w  lambda/2 ||w||^2 + 1/n sum_i s_i l(y_i w.x_i),     lambda = 1 / (C n)

Bordes, Bottou and Gallinari, JMLR 10, 2009, with the matrix of their erratum (with Chang and Smith, JMLR 11, 2010). H
is diagonal and starts at lambda t_0. A row changes w by b_i y_i x_i / H, b_i = -s_i l'(m_i), at a cost proportional to
its entries. Work on all columns is done only every ``skip`` rows: w is copied to v, and w shrinks by skip lambda w / H,
before the row changes w. The gradients of the next row at w and at v give the curvature of column j,

    r_j = [grad(w) - grad(v)]_j / (w_j - v_j) = lambda + s_i (l'(y_i w.x_i) - l'(y_i v.x_i)) y_i x_ij / (w_j - v_j),

limited to [lambda, 100 lambda], and H_j increases by skip r_j. (The version before the erratum averaged 1 / r_j, most
of which are 1 / lambda.) Thus 1 / H is about 1 / (lambda t) for columns with little curvature, and smaller for columns
with more.

Every row is visited once in a pass, so that sum_i C b_i y_i x_i and the conjugates of b_i give the dual value of a
feasible point, as in ``solvers.stochastic``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.compute.passes.certificate import dual_terms
from streamsvm.compute.passes.stochastic import Objective
from streamsvm.compute.targets import argument, entry
from streamsvm.rows import Float64, Int32, Labeled

STEEPEST = 100.0
"""Upper limit of the curvature of a column, in units of lambda (from the erratum)."""


class StepArrays(NamedTuple):
    """The arrays that steps change, (columns + 1,) float64."""

    w: Float64
    """The weights."""
    H: Float64
    """The diagonal of the matrix."""
    before_shrinking: Float64
    """v, the weights before they were shrunk last."""
    total: Float64
    """The sum of ``samples`` values of w, one for each time it was shrunk."""
    v: Float64
    """sum b_i y_i x_i."""
    row: Float64
    """Temporary memory for a dense row."""


class Counters(NamedTuple):
    """Counters that continue from block to block."""

    rows: int
    """Number of rows since w was shrunk last, less than ``skip``."""
    due: bool
    """Whether the next row is used to measure the curvature."""


class PassSums(NamedTuple):
    """The sums over the rows of a pass."""

    linear: float
    """sum b_i (1 - conjugate'(0))."""
    quadratic: float
    """sum s_i conjugate(b_i / s_i, 1) minus its linear part."""
    losses: float
    """sum s_i l(m_i), each at the time of the visit."""
    samples: int
    """Number of values of w in ``total``."""


@compiled(fastmath=FAST)
def measure(given: Labeled, i: int, objective: Objective, skip: int, arrays: StepArrays) -> None:
    """Increase H by the curvature that row i shows between v and w. Given: X, y, s; lambda, l. Changed: arrays.H,
    arrays.row.
    """
    X, y, s = given
    lam, loss = objective
    now = loss.slope(argument(loss, y[i], X.dot(i, arrays.w)))
    then = loss.slope(argument(loss, y[i], X.dot(i, arrays.before_shrinking)))
    change = np.float64(entry(loss, s[i] * (now - then), y[i]))
    arrays.row[:] = 0.0
    X.axpy(i, change, arrays.row)
    for j in range(arrays.w.size):
        r, moved = lam, arrays.w[j] - arrays.before_shrinking[j]
        if arrays.row[j] != 0.0 and moved != 0.0:
            r = min(max(lam + arrays.row[j] / moved, lam), STEEPEST * lam)
        arrays.H[j] += skip * r


@compiled(fastmath=FAST)
def sgd_qn_pass(
    given: Labeled, order: Int32, objective: Objective, skip: int, counters: Counters, arrays: StepArrays
) -> tuple[PassSums, Counters]:
    """Make a step for each row of ``order``. Given: X, y, s; lambda, l; skip; the counters. Changed: ``arrays``.
    Returned: sums, counters.
    """
    X, y, s = given
    lam, loss = objective
    rows, due = counters
    linear, quadratic, losses, samples = 0.0, 0.0, 0.0, 0
    for i in order:
        if due:
            measure(given, i, objective, skip, arrays)
            due = False
        m, weight = argument(loss, y[i], X.dot(i, arrays.w)), np.float64(s[i])
        losses += weight * loss.value(m)
        rows += 1
        if rows >= skip:
            rows, due = 0, True
            for j in range(arrays.w.size):
                arrays.before_shrinking[j] = arrays.w[j]
                arrays.w[j] -= skip * lam * arrays.w[j] / arrays.H[j]
                arrays.total[j] += arrays.w[j]
            samples += 1
        share = -loss.slope(m)
        if share * weight != 0.0:
            X.axpy_over(i, np.float64(entry(loss, share * weight, y[i])), arrays.H, arrays.w)
            X.axpy(i, np.float64(entry(loss, share * weight, y[i])), arrays.v)
            first, second = dual_terms(loss, share, y[i], 1.0)
            linear += weight * first
            quadratic += weight * second
    return PassSums(linear, quadratic, losses, samples), Counters(rows, due)
