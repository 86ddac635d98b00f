"""The active set method on the primal, for smooth losses and no more columns than rows.

    P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i),     grad = w - sum_i a_i y_i x_i,     H = I + sum_i C_i l''(m_i) x_i x_i'

Between two sets of rows on curved pieces of the loss P is a quadratic: once a step finds the set of the optimum, the next one
lands on it exactly. With exact line searches that takes finitely many steps (Keerthi and DeCoste, JMLR 2005, section 3).
Rounding in H costs a step more and no accuracy: the gradient is summed in float64.
"""

from __future__ import annotations

import time

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.in_memory.all_rows import line_pass
from streamsvm.compute.passes.newton import slopes_pass
from streamsvm.rows import Float64
from streamsvm.solvers.active_set.gathered import GatheredRows
from streamsvm.solvers.newton.explicit import factorized_after_rounding
from streamsvm.solvers.newton.in_memory.line_search import step_length
from streamsvm.types import Problem

STEPS = 200
"""Steps at most: some ten are usual."""
FLAT = 4e-16
"""P that falls by no more than this share of itself has come to its end ..."""
LAST_STEPS = 3
"""... but the gradient has not: so many steps more make it as small as float64 can."""


def solved(problem: Problem, rows: GatheredRows, w: Float64, deadline: float) -> tuple[Float64, bool]:
    """Return the minimum (columns + 1,) of P over the rows, from w on; and whether it is that, or time was over."""
    y, s, loss = rows.y, rows.s.astype(np.float64), problem.loss
    slopes, h, cost = np.empty(len(y)), np.empty(len(y)), RowLoss(problem.C, loss, loss)
    f, best, least, smallest, flat = operators.margins(rows.X, w), w, np.inf, np.inf, 0
    for _ in range(STEPS):
        losses, *_ = slopes_pass(y, s, f, cost, slopes, h)
        gradient = w - operators.adjoint(rows.X, slopes, problem.columns)
        value, size = 0.5 * float(w @ w) + losses, float(gradient @ gradient)
        flat = flat + 1 if value >= least * (1.0 - FLAT) else 0
        least = min(least, value)
        if size < smallest:
            smallest, best = size, w
        if flat > LAST_STEPS or size == 0.0:
            return best, True
        if time.perf_counter() > deadline:
            break
        step = _newton_step(operators.gram(rows.X, h, problem.columns), gradient)
        df = operators.margins(rows.X, step)
        along, square = float(w @ step), float(step @ step)

        def line(
            t: float, f: Float64 = f, df: Float64 = df, along: float = along, square: float = square
        ) -> tuple[float, float]:
            slope, curvature = line_pass(y, s, f, df, problem.C, loss, t)
            return along + t * square + slope, square + curvature

        length = 1.0 if flat else step_length(line)
        w = w + length * step
        f = operators.margins(rows.X, w)
    return best, False


def _newton_step(gram: Float64, gradient: Float64) -> Float64:
    """-(I + gram)^-1 gradient."""
    gram[np.diag_indices_from(gram)] += 1.0
    return factorized_after_rounding(gram)(-gradient)
