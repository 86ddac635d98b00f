"""How far rounding can have moved the primal and dual values of a kernel machine.

With coefficients x on points z_j and K known up to ``delta`` an entry (``compute/kernel_values/rounding.py``), decision
values f = K x are off by at most

    E = (delta + m eps max|k|) sum |x_j|,     eps = 2^-53,

m points; the second term is that of the float64 sum over them. Hence, the sums over n rows being float64 as well,

    |x'Kx - fl(x'Kx)| <= E sum |x_j| + n eps sum |x_i f_i|
    L(f) = sum C_i l(y_i f_i) is at most what it is where every margin is less by E, plus n eps L,

the losses being monotone in the margin, or convex in the residual: they are summed twice, at the margins found and at
those less by E, for residuals at the worse of f - E and f + E. P = 1/2 x'Kx + L and D = sum (a_i - conjugate(a_i)) -
1/2 x'Kx follow; the terms of the first sum of D are given numbers.

A row that has no coefficient and costs nothing even where its margin is less by E adds nothing to P or D. So the
evaluation that is certified computes f in float64 of the other rows alone.
"""

from __future__ import annotations

from typing import Any

from streamsvm.compute.kernel_values.kernel_matrix import squares_of
from streamsvm.compute.kernel_values.rounding import (
    ENOUGH,
    SINGLE,
    error_of,
    exact_arithmetic,
    reach_of,
    working_arithmetic,
)
from streamsvm.rows import Reach, Rows
from streamsvm.solvers.kernel.pool import Form
from streamsvm.solvers.rounding import SHARE
from streamsvm.types import Problem

EPS = 2.0**-53
NEGLIGIBLE_SHARE = 1e-3
"""Rounding of P and D by this share of the tolerance makes no difference."""
MAX_MARGIN_ERROR = 1e-2
"""Where a row's largest coefficient times the error of a float32 kernel value is more, the solver works in float64."""
FLOAT64_TOLERANCE = 1e-9
"""For tolerances below this the solver works in float64 from the first pass."""


def extend_reach(reach: Reach | None, X: Rows) -> Reach:
    """Return the reach of these rows and of those before."""
    found = reach_of(X, squares_of(X, float))
    return found if reach is None else reach.join(found)


def choose_form(problem: Problem, constant: float = 0.0) -> Form:
    """Return the form of a problem's matrix, in the arithmetic that typical rows ask for."""
    assert problem.kernel is not None  # a kernel solver is given problems of one
    form = Form(problem.kernel, problem.columns, constant)
    if problem.reach is None:
        return form
    kernel, reach = problem.kernel, problem.reach
    margin_error = problem.C * max(problem.weights, default=1.0) * error_of(kernel, reach, SINGLE)
    if margin_error > MAX_MARGIN_ERROR or problem.tolerance < FLOAT64_TOLERANCE:
        return certified_form(form, reach)
    return form._replace(arithmetic=working_arithmetic(kernel, reach, problem.columns))


def certified_form(form: Form, reach: Reach | None, enough: float = ENOUGH) -> Form:
    """Return the form in the arithmetic of certificates, in which an error of ``enough`` in a kernel value is
    negligible.
    """
    if reach is None:
        return form
    return form._replace(arithmetic=max(form.arithmetic, exact_arithmetic(form.kernel, reach, form.columns, enough)))


def negligible_error(problem: Problem, primal: float, weight: float) -> float:
    """Return the error of a kernel value that is negligible: times (sum |x_j|)^2 it is NEGLIGIBLE_SHARE of the gap
    allowed.
    """
    square = weight * weight
    return max(ENOUGH, NEGLIGIBLE_SHARE * problem.tolerance * abs(primal) / square) if square > 0.0 else ENOUGH


def error_of_values(form: Form, reach: Reach | None, points: int, weight: float) -> float:
    """Return E of an expansion in this many points with coefficients of this sum of absolute values."""
    if reach is None or weight == 0.0:
        return 0.0
    sums = (points + 2) * EPS * (form.kernel.largest(reach) + form.constant)
    return weight * (error_of(form.kernel, reach, form.arithmetic) + sums)


def bound_rounding(
    problem: Problem, error: float, weight: float, absolute: float, losses: tuple[float, float]
) -> float:
    """Return a bound of the rounding of P and of D.

    Given: E, sum |x_j|, sum |x_i f_i|, and the losses at the margins found and at those less by E.
    """
    found, upper = losses
    square = 0.5 * (error * weight + 2 * problem.rows * EPS * absolute)
    return square + max(upper - found, 0.0) + 2 * problem.rows * EPS * (upper + weight + absolute)


def needs_certified_form(problem: Problem, primal: float, rounding: float) -> bool:
    """Return whether this much rounding calls for an evaluation in the arithmetic of certificates."""
    return not rounding <= SHARE * problem.tolerance * abs(primal)


def select_same_form(states: list[Any]) -> list[Any]:
    """Return those states whose kernel values are evaluated as the first one's are."""
    return [state for state in states if state.form == states[0].form]
