"""How far rounding can have moved the primal and dual values of a linear fit.

Given: u = 2^-53; p components of w; n rows; C_i = C s_i; r_j >= 0 with sum_i x_ij^2 <= n r_j^2, |r| their length; b =
max l''; k, the margin from which on a row costs nothing. If margins are off by d_i with mean d_i^2 <= d^2, Cauchy and
Schwarz give

    sum_i C_i |l'(m_i)| d_i <= M d       M = g C sqrt(n sum s_i^2)          where |l'| <= g (a box),
                                         M = sqrt(2 b P) sqrt(C n max s)    without corners, as |l'|^2 <= 2 b l;

the less where both hold.
Inner products of p terms in any order (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1) have
d <= (p + 2) u sum_j r_j |w_j|, and with a sum of n positive terms and ||w||^2 / 2 the **primal** is off by at most

    M d + b / 2 C n max s d^2 (0 with a corner) + (n + p + 8) u P,    8 for the arithmetic of a row's own term.

In a box rows beyond the corner, m_i >= k + e where no margin is off by more than e, cost nothing whatever rounding
does: of separable rows, whose P is small beside C_i, nearly all are. The first term is then g e sum C_i of the others,
if that is less.

D is strongly concave without corners: sqrt(sum a_i^2 / (2 b C_i)) <= sqrt(L*) + sqrt(D* - D) <= sqrt(Q), where Q =
(sqrt(P) + sqrt(P - D))^2, as L* >= sum a*_i^2 / (2 b C_i) at the optimum. In a box k sum a_i is D + ||v||^2 / 2, and
without corners sum a_i^2 / (2 b C_i) more: at most P + Q, as what is strongly concave is both terms at once. Hence

    ||sum_i a_i |x_i| || <= H |r|        H = M with Q for P, and sum a_i <= sqrt(2 b Q sum C_i) <= M without corners,
                                         H = min(M, sqrt(n g C max s sum a_i)) in a box.

v = sum a_i y_i x_i is off by dv,  ||dv|| <= T u H |r| if it is a sum of T terms, and <= 5 u T sqrt(2 P_0) if T steps
have changed it, each of which raised D: then ||v||^2 / 2 <= sum (a_i - conjugate(a_i)) <= P_0 = l(0) sum C_i all the
way. With ||v|| <= sqrt(2 P) + sqrt(2 (P - D)), by strong convexity around the optimum, the **dual** is off by at most

    ||v|| ||dv|| + ||dv||^2 / 2 + 2 (n + 8) u sum a_i.

**l1 ball** (``regularizers.L1Ball``): D has t max |v_j| in the place of ||v||^2 / 2, which is off by t ||dv|| at most.

**Elastic net** (``regularizers.ElasticNet``): ||w||^2 / 2 of P has l1 ||w||_1 beside it, a sum of terms as positive;
||v||^2 / 2 of D is ||soft(v)||^2 / 2, whose slope is soft(v): all of the above holds with soft(v) for v but in dv, as
D(a) is the least of a function of w that is strongly convex around soft(v).

The logistic loss has no such k: sum_i C_i |l'(m_i)| <= sharpness L, and sum a_i <= sum C_i are what is known then.

**All classes together**: a margin is off by two decision values, each at most by what max_k |w_kj| allows. With b_i for
a_i all of the above holds; the w_k are sums of a_ik x_i with sum_k |a_ik| = 2 b_i, and lengths of vectors >= 0 are no
more than that of their sum: dv is twice as long.

**One class with a free offset** (``solvers.one_class``): sum a_i is nu sum s_i, P is a sum of terms of both signs,
whose absolute values are to be given in its place, and the weights of rows are known. So it is of two classes by nu
(``solvers.nu``), with margins in units of rho.

**Numbers** t_i: m_i = f_i - t_i is off by u |m_i| more, and |l'| |m| <= 2 l + e |l'|, e the width that costs nothing: M
u e + 2 u P. D has a sum of a_i t_i, which rounding moves by (n + 8) u sum |a_i| |t_i|, and |t_i| <= |m_i| + |f_i|: with
F >= the root of the mean f_i^2

    sum |a_i| |f_i| <= H F,
    sum |a_i| |m_i| <= P + e sum C_i in a box,
                       sqrt(2 b Q (4 P / b + 2 e^2 sum C_i)) without corners, as m^2 <= 4 l / b + 2 e^2;

and P_0 = sum C_i l(-t_i) is at most P + e sum C_i + M F in a box, 4 P + 2 b e^2 sum C_i + b C n max s F^2 without
corners.

All that is proved. **To first order** only: rows that were scaled in float32, or features of a kernel, are themselves
off; P then changes by what margins are off by, M d, and D by v.dv, at most M (sum_j |w_j| r_j + ||v - w|| |r|) u', u'
what an entry is off by; ||v - w|| <= 2 sqrt(P - D). And where rows have weights of their own, of which no sum is known,
r_j = max |x_ij|, M = H = 8 P / k (at an optimum k sum a_i <= 2 L + ||w||^2) and P_0 = 1000 P.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamsvm.compute.targets import lower
from streamsvm.losses import threshold
from streamsvm.rows import Float64
from streamsvm.types import Certificate, Problem
from streamsvm.types.problem import has_box

UNIT = 2.0**-53
"""Unit roundoff of float64."""
SHARE = 0.1
"""Where rounding can be more than this share of the tolerance, the evaluation is repeated in float64."""
COARSE = 2.0**-23
"""Relative error of an entry that was centered and scaled in float32: two roundings."""
OWN = 8
"""Roundings of a row's own term: loss, weight, label."""


class RowWeights(NamedTuple):
    """What is known of the weights s_i of the rows of a problem."""

    total: float
    """sum s_i."""
    squares: float
    """sum s_i^2."""
    largest: float
    """max s_i."""


class VectorSum(NamedTuple):
    """How v came to be."""

    updates: int
    """T."""
    running: bool
    """Whether steps have changed it, each of which raised D; else it is a sum of terms."""
    spread: float
    """|r|."""


def reach_of_weights(w: Float64) -> Float64:
    """Return what stands for |w_j| (p,) where margins are bounded, of weights (p,) or of classes together (classes, p).

    Of these a margin is the difference of two decision values, each off by what max_k |w_kj| allows for.
    """
    return np.abs(w) if w.ndim == 1 else 2.0 * np.abs(w).max(axis=0)


def two_sum_terms(rows: int) -> int:
    """Return T of a sum of n terms of which what rounding takes is summed too (``rows.CSR.add_row``).

    Each product is off by u of itself and the result by u; of n corrections, each at most u sum |a_i x_ij|, the sum is
    off by n u times n times that (Higham, section 4.3). Two more for sums and differences of such vectors.
    """
    return 4 + math.ceil(rows * rows * UNIT)


def steepness(problem: Problem, primal: float, weights: RowWeights | None) -> float:
    """Return M; ``weights`` None: rows have weights of their own, of which nothing is known. Of numbers
    something is.
    """
    if weights is None:
        return 8.0 * primal / _width(problem)
    found = [_steepest(problem) * problem.C * math.sqrt(problem.rows * weights.squares)]
    if problem.loss.smooth():
        found.append(math.sqrt(2.0 * _bend(problem) * primal * problem.C * problem.rows * weights.largest))
    return min(found)


def pull_at_optimum(problem: Problem, primal: float, weights: RowWeights | None) -> float:
    """Return the most that sum a_i can be at the optimum: k sum a_i <= 2 L + ||w||^2 = 2 P, where a margin k costs
    nothing; or M.
    """
    found, k = steepness(problem, primal, weights), threshold(problem.loss)
    total = problem.regularizer.sum_of_dual(weights.total if weights else math.inf)
    if total is not None:
        return min(found, total)
    if problem.loss.numeric() or not math.isfinite(k):
        return found
    return min(found, 2.0 * primal / k)


def root_pull_at_optimum(problem: Problem, primal: float, weights: RowWeights | None) -> float:
    """Return the most that sqrt(sum a_i^2) can be there: sum a_i max a_i in a box, sum a_i^2 <= 2 b C max s P without
    corners; or sum a_i.
    """
    found, largest = [pull_at_optimum(problem, primal, weights)], problem.C * (weights.largest if weights else math.inf)
    if has_box(problem.loss):
        found.append(math.sqrt(found[0] * _steepest(problem) * largest))
    if problem.loss.smooth():
        found.append(math.sqrt(2.0 * _bend(problem) * largest * primal))
    return min(found)


def rounding_of_primal(problem: Problem, primal: float, off: float, weights: RowWeights | None) -> float:
    """Return how far P can be off where margins are by ``off``, d above."""
    if problem.loss.numeric():
        off = 2.0 * off + UNIT * threshold(problem.loss)
    found = steepness(problem, primal, weights) * off + _sums(problem) * primal
    if not problem.loss.smooth():
        return found
    most = weights.largest if weights else 1.0
    return found + 0.5 * _bend(problem) * problem.C * problem.rows * most * off * off


def rounding_of_few(problem: Problem, primal: float, off: float, weight: float) -> float:
    """Return the same in a box, where only rows with sum C_i = ``weight`` can cost something, and no margin is off by
    more than ``off``.
    """
    return _steepest(problem) * off * weight + _sums(problem) * primal


def rounding_of_dual(
    problem: Problem, found: Certificate, v: VectorSum, weights: RowWeights | None, size: float = 0.0
) -> float:
    """Return how far D can be off, of given rows; ``size`` is F, which counts where the target is a number."""
    primal = abs(found.primal)
    length = math.sqrt(2.0 * primal) + math.sqrt(2.0 * max(found.primal - found.dual, 0.0))
    heavy, total = _mass(problem, primal, 0.5 * length * length, weights)
    if problem.loss.numeric():
        assert weights is not None  # they are counted
        total += _products(problem, primal, 0.5 * length * length, weights) + heavy * size
    if v.running:
        start = _first_primal(problem, primal, weights, size)
        off = 5.0 * UNIT * v.updates * math.sqrt(2.0 * start)
    else:
        off = UNIT * v.updates * heavy * v.spread * problem.kind.entries
    return off * (problem.regularizer.slope_of_dual(length) + 0.5 * off) + 2.0 * (problem.rows + OWN) * UNIT * total


def _products(problem: Problem, primal: float, most: float, weights: RowWeights) -> float:
    """A bound of sum |a_i| |m_i| of residuals; ``most`` is Q."""
    width, total = threshold(problem.loss), problem.C * weights.total
    if has_box(problem.loss):
        return primal + width * total
    b = _bend(problem)
    return math.sqrt(2.0 * b * most * (4.0 * primal / b + 2.0 * width * width * total))


def _first_primal(problem: Problem, primal: float, weights: RowWeights | None, size: float) -> float:
    """P_0, or a bound of it."""
    if weights is None:
        return 1e3 * primal
    if not problem.loss.numeric():
        return problem.loss.value(0.0) * problem.C * weights.total
    width, total = threshold(problem.loss), problem.C * weights.total
    if has_box(problem.loss):
        return primal + width * total + steepness(problem, primal, weights) * size
    b = _bend(problem)
    return 4.0 * primal + 2.0 * b * width * width * total + b * problem.C * problem.rows * weights.largest * size * size


def _sums(problem: Problem) -> float:
    """What a sum over rows and one over weights are off by, relative to P; a residual is one rounding more, which
    counts twice.
    """
    return (problem.rows + problem.components + OWN + 2 * problem.loss.numeric()) * UNIT


def _mass(problem: Problem, primal: float, most: float, weights: RowWeights | None) -> tuple[float, float]:
    """Return H, and a bound of sum a_i; ``most`` is Q, which bounds ||v||^2 / 2 too."""
    k, steep = _width(problem), steepness(problem, most, weights)
    if weights is None:
        return steepness(problem, primal, None), steepness(problem, primal, None)
    if has_box(problem.loss):
        ends = problem.loss.quadratic() and not problem.loss.numeric()
        fixed = problem.regularizer.sum_of_dual(weights.total)
        total = fixed if fixed is not None else min((primal + most) / k, steep) if ends else steep
        return min(steep, math.sqrt(problem.rows * _steepest(problem) * problem.C * weights.largest * total)), total
    total = math.sqrt(2.0 * _bend(problem) * most * problem.C * weights.total)
    return steep, total


def _width(problem: Problem) -> float:
    """The margin k; for the logistic loss, which has no end, 1 / sharpness = 1 / (4 b): there -l' <= l / k."""
    end = threshold(problem.loss)
    return end if math.isfinite(end) else 0.25 / _bend(problem)


def _steepest(problem: Problem) -> float:
    """The largest |l'| there is, g; inf without a box."""
    return max(problem.loss.upper(1.0), -lower(problem.loss, 1.0))


def _bend(problem: Problem) -> float:
    """The largest second derivative of the loss, b."""
    return 1.0 / problem.loss.curvature(1.0)
