"""What the elastic net has in P and D beside sums over rows, and which columns a gap proves to be 0.

    P(w) = R(w) + sum_i C_i l(m_i),      R(w) = 1/2 ||w||^2 + l1 ||w||_1,
    D(a) = sum_i (a_i - conjugate(a_i, C_i) + a_i o_i) - R*(v),      v = sum_i a_i z_i x_i,     o, z as in ``losses``,

R*(v) = max_w v.w - R(w) = 1/2 ||soft(v)||^2, taken at w = soft(v), soft(v)_j = sign(v_j) max(0, |v_j| - l1). At the optimum w = soft(v).
The constant feature counts like any other column.

Of slopes a and their multiples t a, D(t a) >= t linear - t^2 quadratic - 1/2 ||soft(t v)||^2: concave, its slope in t falls along
straight pieces that end where t |v_j| = l1.

**Screening** (the gap-safe spheres of Ndiaye et al., JMLR 18, 2017, for this dual). Without corners l'' <= b, and the conjugate of a row bends by
1 / (b C_i) at least: D is strongly concave, sum_i (a_i - a*_i)^2 / (b C_i) <= 2 (D* - D(a)) <= 2 gap, and by Cauchy and Schwarz

    |v_j - v*_j| <= sqrt(2 gap b sum_i C_i x_ij^2) =: r_j,      so that  |v_j| + r_j < l1  proves w*_j = 0.

A loss with a corner has no such b. Of all losses ||w - w*||^2 <= 2 gap, as P is strongly convex: |w_j| > sqrt(2 gap) proves w*_j not 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamsvm.rows import Float64
from streamsvm.types import Problem
from streamsvm.types.problem import has_box

SLACK = 1e-9
"""Of l1 and of P: what rounding is allowed for, where columns are ruled out."""


def soft(v: Float64, l1: float) -> Float64:
    """Return the soft threshold of v (p,), the w at which v.w - R(w) is largest."""
    result: Float64 = np.sign(v) * np.maximum(np.abs(v) - l1, 0.0)
    return result


def value(w: Float64, l1: float) -> float:
    """Return R(w); w (p,)."""
    return 0.5 * float(w @ w) + l1 * float(np.abs(w).sum())


def conjugate(v: Float64, l1: float) -> float:
    """Return R*(v); v (p,)."""
    u = soft(v, l1)
    return 0.5 * float(u @ u)


def best_multiple(problem: Problem, linear: float, quadratic: float, v: Float64) -> tuple[float, float]:
    """Return the feasible t >= 0 that is best, and D(t a), of slopes a with v (p,)."""
    l1, size = l1_of(problem), np.sort(np.abs(v))[::-1]
    size = size[size > 0.0]
    most = 1.0 if has_box(problem.loss) else np.inf
    ends = l1 / size  # rising: up to the k-th of them k components count
    sums = np.concatenate([[0.0], np.cumsum(size)])
    squares = np.concatenate([[0.0], np.cumsum(size * size)])
    slopes = linear + l1 * sums[:-1] - ends * (2.0 * quadratic + squares[:-1])
    k = int(np.argmax(slopes <= 0.0)) if (slopes <= 0.0).any() else len(ends)
    bend = 2.0 * quadratic + float(squares[k])
    if linear <= 0.0 or bend <= 0.0:
        t = most if linear > 0.0 and np.isfinite(most) else 0.0
    else:
        t = min(most, (linear + l1 * float(sums[k])) / bend)
    return t, t * linear - t * t * quadratic - conjugate(t * v, l1)


def proved_zero(problem: Problem, gap: float, v: Float64, squares: Float64) -> NDArray[np.bool_]:
    """Return of which columns (p,) a dual point with v, ``gap`` below P, proves that they are 0; ``squares`` (p,) is sum_i s_i x_ij^2.

    ``gap`` has what rounding may take from it added to it.
    """
    l1 = l1_of(problem)
    if not problem.loss.smooth():
        return np.zeros(len(v), np.bool_)
    reach = np.sqrt(2.0 * max(gap, 0.0) * problem.C * squares / problem.loss.curvature(1.0))
    found: NDArray[np.bool_] = np.abs(v) + reach < (1.0 - SLACK) * l1
    return found


def l1_of(problem: Problem) -> float:
    """Return the weight of ||w||_1."""
    assert problem.l1 is not None  # what makes these functions of another problem
    return problem.l1
