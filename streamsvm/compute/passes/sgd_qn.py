"""Sub-gradient descent with a diagonal matrix in place of the length of a step.

    min_w  lambda/2 ||w||^2 + 1/n sum_i s_i l(y_i w.x_i),     lambda = 1 / (C n)

Bordes, Bottou and Gallinari, JMLR 10, 2009, with the matrix of their erratum (with Chang and Smith, JMLR 11, 2010). H is diagonal
and begins at lambda t_0. A row moves w by b_i y_i x_i / H, b_i = -s_i l'(m_i), at the cost of its entries. What costs all columns is
done every ``skip`` rows: before such a row moves w, it is kept as v, and w shrinks by skip lambda w / H. The gradients of the row
after that, at w and at v, say what the curvature of column j is,

    r_j = [grad(w) - grad(v)]_j / (w_j - v_j) = lambda + s_i (l'(y_i w.x_i) - l'(y_i v.x_i)) y_i x_ij / (w_j - v_j),

held between lambda and 100 lambda, and H_j grows by skip r_j. (The first version averaged 1 / r_j, most of which are 1 / lambda.)
So 1 / H is a step of length 1 / (lambda t) where a loss hardly bends and a shorter one where it does.

Every row is met once in a pass: sum_i C b_i y_i x_i and the conjugates of b_i are the dual value of a feasible point, as
``solvers.stochastic`` has it.
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
"""The largest curvature of a column that counts, in units of lambda: of the erratum."""


class Moving(NamedTuple):
    """What steps change: arrays (columns + 1,) float64."""

    w: Float64
    """The weights."""
    H: Float64
    """The diagonal of the matrix."""
    before: Float64
    """v, the weights before the last time they shrank."""
    total: Float64
    """Sum of ``samples`` values of w, one each time they shrink."""
    v: Float64
    """sum b_i y_i x_i."""
    row: Float64
    """Scratch: a row, with its zeros."""


class Counted(NamedTuple):
    """Where the clock stands: rows since w shrank, and whether the next row measures the curvature."""

    rows: int
    """Rows since w shrank, less than ``skip``."""
    due: bool
    """Whether the next row is the one that measures."""


class Summed(NamedTuple):
    """What the rows of a pass add up to."""

    linear: float
    """sum b_i (1 - conjugate'(0))."""
    quadratic: float
    """sum s_i conjugate(b_i / s_i, 1) less its linear part."""
    losses: float
    """sum s_i l(m_i), as met on the way."""
    samples: int
    """How many values of w are in ``total``."""


@compiled(fastmath=FAST)
def measure(given: Labeled, i: int, objective: Objective, skip: int, at: Moving) -> None:
    """Let H grow by what row i says of the curvature between v and w. Given: X, y, s; lambda, l. Changed: at.H, at.row."""
    X, y, s = given
    lam, loss = objective
    now = loss.slope(argument(loss, y[i], X.dot(i, at.w)))
    then = loss.slope(argument(loss, y[i], X.dot(i, at.before)))
    change = np.float64(entry(loss, s[i] * (now - then), y[i]))
    at.row[:] = 0.0
    X.axpy(i, change, at.row)
    for j in range(at.w.size):
        r, moved = lam, at.w[j] - at.before[j]
        if at.row[j] != 0.0 and moved != 0.0:
            r = min(max(lam + at.row[j] / moved, lam), STEEPEST * lam)
        at.H[j] += skip * r


@compiled(fastmath=FAST)
def sgd_qn_pass(
    given: Labeled, order: Int32, objective: Objective, skip: int, clock: Counted, at: Moving
) -> tuple[Summed, Counted]:
    """Step through the rows of ``order``. Given: X, y, s; lambda, l; skip; the clock. Changed: ``at``. Returned: sums, the clock."""
    X, y, s = given
    lam, loss = objective
    rows, due = clock
    linear, quadratic, losses, samples = 0.0, 0.0, 0.0, 0
    for i in order:
        if due:
            measure(given, i, objective, skip, at)
            due = False
        m, weight = argument(loss, y[i], X.dot(i, at.w)), np.float64(s[i])
        losses += weight * loss.value(m)
        rows += 1
        if rows >= skip:
            rows, due = 0, True
            for j in range(at.w.size):
                at.before[j] = at.w[j]
                at.w[j] -= skip * lam * at.w[j] / at.H[j]
                at.total[j] += at.w[j]
            samples += 1
        share = -loss.slope(m)
        if share * weight != 0.0:
            X.axpy_over(i, np.float64(entry(loss, share * weight, y[i])), at.H, at.w)
            X.axpy(i, np.float64(entry(loss, share * weight, y[i])), at.v)
            first, second = dual_terms(loss, share, y[i], 1.0)
            linear += weight * first
            quadratic += weight * second
    return Summed(linear, quadratic, losses, samples), Counted(rows, due)
