"""Bounds of the rounding errors of P and D of a linear fit.

Notation: u = 2^-53; p components of w; n rows; C_i = C s_i; r_j >= 0 with sum_i x_ij^2 <= n r_j^2, |r| the norm of r;
b = max l''; k, the margin from which on the loss of a row is 0. If margins have errors d_i with mean d_i^2 <= d^2,
Cauchy and Schwarz give

    sum_i C_i |l'(m_i)| d_i <= M d       M = g C sqrt(n sum s_i^2)          where |l'| <= g (a box),
                                         M = sqrt(2 b P) sqrt(C n max s)    without kinks, as |l'|^2 <= 2 b l;

the smaller one if both hold.
Inner products of p terms in any order (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1) have
d <= (p + 2) u sum_j r_j |w_j|. With a sum of n positive terms and ||w||^2 / 2, the error of the **primal** is at most

    M d + b / 2 C n max s d^2 (0 with a kink) + (n + p + 8) u P,    8 for the arithmetic of the term of a row.

In a box, rows beyond the kink, m_i >= k + e if no margin has an error above e, have the loss 0 in spite of rounding. If
rows are separable and P is small relative to C_i, nearly all rows are beyond the kink. The first term is then g e sum
C_i over the other rows, if that is smaller.

Without kinks D is strongly concave: sqrt(sum a_i^2 / (2 b C_i)) <= sqrt(L*) + sqrt(D* - D) <= sqrt(Q), where
Q = (sqrt(P) + sqrt(P - D))^2, as L* >= sum a*_i^2 / (2 b C_i) at the optimum. In a box k sum a_i is D + ||v||^2 / 2,
plus sum a_i^2 / (2 b C_i) without kinks. That is at most P + Q, since both terms together are strongly concave. Hence

    ||sum_i a_i |x_i| || <= H |r|        H = M with Q for P, and sum a_i <= sqrt(2 b Q sum C_i) <= M without kinks,
                                         H = min(M, sqrt(n g C max s sum a_i)) in a box.

v = sum a_i y_i x_i has an error dv. ||dv|| <= T u H |r| if v is a sum of T terms, and ||dv|| <= 5 u T sqrt(2 P_0) if v
is the result of T steps each of which increased D: then ||v||^2 / 2 <= sum (a_i - conjugate(a_i)) <= P_0 = l(0) sum C_i
after each step. With ||v|| <= sqrt(2 P) + sqrt(2 (P - D)), by strong convexity around the optimum, the error of the
**dual** is at most

    ||v|| ||dv|| + ||dv||^2 / 2 + 2 (n + 8) u sum a_i.

**Free bias** (``solvers.free_bias``): P does not contain the square of the bias. D has another slope, derived there, and
sum (a_i - conjugate(a_i)) exceeds D + ||v||^2 / 2 by max(beta low, beta high) <= B |beta|. As beta is 0 at the optimum, and D strongly
concave, |beta| <= sum |a_i - a*_i| <= sqrt(2 b sum C_i (P - D)). B times this is added to P + Q. Of a softmax D subtracts
B sum_k |beta_k| / 2, and sum_k |beta_k| <= sqrt(8 b sum C_i (P - D)) by Pinsker's inequality, so that the same is added.

**l1 ball** (``regularizers.L1Ball``): D contains t max |v_j| instead of ||v||^2 / 2, with an error of at most t ||dv||.

**Elastic net** (``regularizers.ElasticNet``): P contains l1 ||w||_1 besides ||w||^2 / 2, which is also a sum of
positive terms. D contains ||soft(v)||^2 / 2 instead of ||v||^2 / 2, with the gradient soft(v). All of the above holds
with soft(v) for v, except in dv, since D(a) is the minimum of a function of w that is strongly convex around soft(v).

The logistic loss has no such k. sum_i C_i |l'(m_i)| <= sharpness L and sum a_i <= sum C_i are used instead.

**Multinomial problems**: a margin has the errors of two decision values, each bounded by means of max_k |w_kj|. All of
the above holds with b_i for a_i. The w_k are sums of a_ik x_i with sum_k |a_ik| = 2 b_i, and the norm of a vector >= 0
is at most that of a sum that contains it, so that the bound of dv doubles.

**Softmax** (``solvers.softmax``): the same with the logistic loss of soft margins and b_i = C_i (1 - p_iy). Its slope and
curvature in the errors of two decision values are those of that loss. D contains sum C_i H(p_i) <= D + ||v||^2 / 2, sums of
K positive terms.

**One-class problems with a free offset** (``solvers.one_class``): sum a_i is nu sum s_i. P is a sum of terms of both
signs; the sum of their absolute values must be given instead of P. The weights of rows are known. The same holds for
two classes with nu (``solvers.nu``), with margins in units of rho.

**Regression** with targets t_i: m_i = f_i - t_i has a further error of u |m_i|, and |l'| |m| <= 2 l + e |l'|, where e
is the half-width of the interval with loss 0: this adds M u e + 2 u P. D contains the sum of a_i t_i with a rounding
error of (n + 8) u sum |a_i| |t_i|, and |t_i| <= |m_i| + |f_i|. With F >= the root of the mean f_i^2

    sum |a_i| |f_i| <= H F,
    sum |a_i| |m_i| <= P + e sum C_i in a box,
                       sqrt(2 b Q (4 P / b + 2 e^2 sum C_i)) without kinks, as m^2 <= 4 l / b + 2 e^2;

and P_0 = sum C_i l(-t_i) is at most P + e sum C_i + M F in a box, 4 P + 2 b e^2 sum C_i + b C n max s F^2 without
kinks.

All of this is proved. The following only holds **to first order**: rows that were scaled in float32, or features of a
kernel, have errors themselves. P then changes by M d because of the errors of margins, and D by v.dv, at most
M (sum_j |w_j| r_j + ||v - w|| |r|) u', where u' is the relative error of an entry, and ||v - w|| <= 2 sqrt(P - D). If
rows have weights whose sums are not known, r_j = max |x_ij|, M = H = 8 P / k (at an optimum k sum a_i <= 2 L + ||w||^2)
and P_0 = 1000 P are used.
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
"""If the rounding error can exceed this fraction of the tolerance, the evaluation is repeated in float64."""
UNIT_FLOAT32 = 2.0**-23
"""Relative error of an entry that was centered and scaled in float32: two roundings."""
TRANSFORM_ROUNDINGS = 8
"""Number of roundings in the term of a row: loss, weight, label."""


class RowWeights(NamedTuple):
    """Sums over the weights s_i of the rows of a problem."""

    total: float
    """sum s_i."""
    squares: float
    """sum s_i^2."""
    largest: float
    """max s_i."""


class VectorSum(NamedTuple):
    """How v was computed, which determines its rounding error."""

    updates: int
    """T."""
    running: bool
    """Whether v is the result of steps each of which increased D; otherwise it is a sum of terms."""
    spread: float
    """|r|."""


def max_abs_weights(w: Float64) -> Float64:
    """Return the numbers (p,) that replace |w_j| in bounds of margins, for weights (p,) or multinomial weights
    (classes, p).

    A multinomial margin is the difference of two decision values, whose errors are bounded by means of max_k |w_kj|.
    """
    return np.abs(w) if w.ndim == 1 else 2.0 * np.abs(w).max(axis=0)


def two_sum_terms(rows: int) -> int:
    """Return T of a compensated sum of n terms (``rows.CSR.add_row``).

    Each product has a relative error of u, and so has the result. The sum of n corrections, each at most
    u sum |a_i x_ij|, has an error of n u times n times that (Higham, section 4.3). Two more roundings are for sums and
    differences of such vectors.
    """
    return 4 + math.ceil(rows * rows * UNIT)


def steepness(problem: Problem, primal: float, weights: RowWeights | None) -> float:
    """Return M. ``weights`` None: rows have weights whose sums are not known, which is not possible for regression."""
    if weights is None:
        return 8.0 * primal / _width(problem)
    bounds = [_max_slope(problem) * problem.C * math.sqrt(problem.rows * weights.squares)]
    if problem.loss.smooth():
        bounds.append(math.sqrt(2.0 * _max_curvature(problem) * primal * problem.C * problem.rows * weights.largest))
    return min(bounds)


def max_dual_sum(problem: Problem, primal: float, weights: RowWeights | None) -> float:
    """Return an upper bound of sum a_i at the optimum: M, or 2 P / k, as k sum a_i <= 2 L + ||w||^2 = 2 P."""
    M, k = steepness(problem, primal, weights), threshold(problem.loss)
    total = problem.regularizer.sum_of_dual(weights.total if weights else math.inf)
    if total is not None:
        return min(M, total)
    if problem.loss.numeric() or not math.isfinite(k):
        return M
    return min(M, 2.0 * primal / k)


def max_dual_norm(problem: Problem, primal: float, weights: RowWeights | None) -> float:
    """Return an upper bound of sqrt(sum a_i^2) at the optimum: sum a_i^2 <= sum a_i max a_i in a box,
    sum a_i^2 <= 2 b C max s P without kinks, and sqrt(sum a_i^2) <= sum a_i.
    """
    largest = problem.C * (weights.largest if weights else math.inf)
    bounds = [max_dual_sum(problem, primal, weights)]
    if has_box(problem.loss):
        bounds.append(math.sqrt(bounds[0] * _max_slope(problem) * largest))
    if problem.loss.smooth():
        bounds.append(math.sqrt(2.0 * _max_curvature(problem) * largest * primal))
    return min(bounds)


def rounding_of_primal(problem: Problem, primal: float, off: float, weights: RowWeights | None) -> float:
    """Return a bound of the rounding error of P if margins have errors of ``off`` (d above)."""
    if problem.loss.numeric():
        off = 2.0 * off + UNIT * threshold(problem.loss)
    error = steepness(problem, primal, weights) * off + _sums(problem) * primal
    if not problem.loss.smooth():
        return error
    largest = weights.largest if weights else 1.0
    return error + 0.5 * _max_curvature(problem) * problem.C * problem.rows * largest * off * off


def rounding_of_few(problem: Problem, primal: float, off: float, weight: float) -> float:
    """Return a bound of the rounding error of P in a box, if only rows with sum C_i = ``weight`` can have a positive
    loss, and no margin has an error above ``off``.
    """
    return _max_slope(problem) * off * weight + _sums(problem) * primal


def rounding_of_dual(
    problem: Problem, certificate: Certificate, v: VectorSum, weights: RowWeights | None, size: float = 0.0
) -> float:
    """Return a bound of the rounding error of D for exact rows. ``size``: F, for regression."""
    primal = abs(certificate.primal)
    length = math.sqrt(2.0 * primal) + math.sqrt(2.0 * max(certificate.primal - certificate.dual, 0.0))
    bias_cost = _bound_bias_cost(problem, certificate, weights)
    heavy, total = _bound_dual_sums(problem, primal, 0.5 * length * length, weights, bias_cost)
    if (
        problem.kind.classes and not problem.loss.quadratic()
    ):  # sum C_i H <= D + ||v||^2 / 2 + bias_cost, of K terms a row
        entropies = primal + 0.5 * length * length + bias_cost
        total = (1.0 + problem.kind.classes / (problem.rows + TRANSFORM_ROUNDINGS)) * max(total, entropies)
    if problem.loss.numeric():
        assert weights is not None  # they are counted
        total += _products(problem, primal, 0.5 * length * length, weights) + heavy * size
    if v.running:
        start = _first_primal(problem, primal, weights, size)
        off = 5.0 * UNIT * v.updates * math.sqrt(2.0 * start)
    else:
        off = UNIT * v.updates * heavy * v.spread * problem.kind.entries
    return (
        off * (problem.regularizer.slope_of_dual(length, certificate.facts) + 0.5 * off)
        + 2.0 * (problem.rows + TRANSFORM_ROUNDINGS) * UNIT * total
    )


def rounding_of_gradient(  # noqa: PLR0917
    problem: Problem, primal: float, sizes: Float64, w: Float64, off: float, terms: int, weights: RowWeights
) -> tuple[Float64, float]:
    """Return bounds (p,) of the errors of the components of w - v, with v the sum of ``terms`` roundings at the slopes of the
    computed margins, and a bound of sqrt(sum_i C_i b d_i^2), whose margins have errors d_i with a mean square of ``off``^2.

    ``sizes``: the r_j (p,). A component of v is off by T u sum_i a_i |x_ij| <= T u M r_j. In regression d_i has u |m_i|
    as well, and sum C_i b m_i^2 <= 4 P + 2 b e^2 sum C_i. All of this is proved for losses without kinks.
    """
    largest = _max_curvature(problem)
    errors = UNIT * ((terms + 2 * TRANSFORM_ROUNDINGS) * steepness(problem, primal, weights) * sizes + 4.0 * np.abs(w))
    margins = math.sqrt(largest * problem.C * weights.largest * problem.rows) * off
    if problem.loss.numeric():
        squares = 4.0 * primal + 2.0 * largest * threshold(problem.loss) ** 2 * problem.C * weights.total
        margins = 2.0 * margins + UNIT * math.sqrt(squares)
    return errors * (1.0 + 1e-9), margins * (1.0 + 1e-9)


def _products(problem: Problem, primal: float, most: float, weights: RowWeights) -> float:
    """Return a bound of sum |a_i| |m_i| for residuals m_i; ``most``: Q."""
    width, total = threshold(problem.loss), problem.C * weights.total
    if has_box(problem.loss):
        return primal + width * total
    b = _max_curvature(problem)
    return math.sqrt(2.0 * b * most * (4.0 * primal / b + 2.0 * width * width * total))


def _first_primal(problem: Problem, primal: float, weights: RowWeights | None, size: float) -> float:
    """Return P_0, or an upper bound of it."""
    if weights is None:
        return 1e3 * primal
    if not problem.loss.numeric():
        return problem.loss.value(0.0) * problem.C * weights.total
    width, total = threshold(problem.loss), problem.C * weights.total
    if has_box(problem.loss):
        return primal + width * total + steepness(problem, primal, weights) * size
    b = _max_curvature(problem)
    return 4.0 * primal + 2.0 * b * width * width * total + b * problem.C * problem.rows * weights.largest * size * size


def _sums(problem: Problem) -> float:
    """Return the relative error of P due to the sums over rows and over weights. A residual is one further rounding,
    which counts twice.
    """
    return (problem.rows + problem.components + TRANSFORM_ROUNDINGS + 2 * problem.loss.numeric()) * UNIT


def _bound_bias_cost(problem: Problem, certificate: Certificate, weights: RowWeights | None) -> float:
    """Return a bound of what D subtracts for a free bias; 0 if the bias is regularized, or to first order."""
    largest = float(certificate.facts.get("bias_bound", 0.0))
    if not largest or weights is None:
        return 0.0
    lag = max(certificate.primal - certificate.dual, 0.0)
    return largest * math.sqrt(2.0 * _max_curvature(problem) * problem.C * weights.total * lag)


def _bound_dual_sums(
    problem: Problem, primal: float, most: float, weights: RowWeights | None, bias_cost: float
) -> tuple[float, float]:
    """Return H, and an upper bound of sum a_i; ``most``: Q, which also bounds ||v||^2 / 2."""
    k, steep = _width(problem), steepness(problem, most, weights)
    if weights is None:
        return steepness(problem, primal, None), steepness(problem, primal, None)
    if has_box(problem.loss):
        ends = problem.loss.quadratic() and not problem.loss.numeric()
        fixed = problem.regularizer.sum_of_dual(weights.total)
        total = fixed if fixed is not None else min((primal + most + bias_cost) / k, steep) if ends else steep
        return min(steep, math.sqrt(problem.rows * _max_slope(problem) * problem.C * weights.largest * total)), total
    total = math.sqrt(2.0 * _max_curvature(problem) * most * problem.C * weights.total)
    return steep, total


def _width(problem: Problem) -> float:
    """Return k; for the logistic loss, which is positive everywhere, 1 / sharpness = 1 / (4 b), for which -l' <= l /
    k.
    """
    end = threshold(problem.loss)
    return end if math.isfinite(end) else 0.25 / _max_curvature(problem)


def _max_slope(problem: Problem) -> float:
    """Return g, the largest |l'|; inf without a box."""
    return max(problem.loss.upper(1.0), -lower(problem.loss, 1.0))


def _max_curvature(problem: Problem) -> float:
    """Return b, the largest second derivative of the loss."""
    return 1.0 / problem.loss.curvature(1.0)
