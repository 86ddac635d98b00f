"""Bounds of the rounding errors of P and D of a kernel machine.

With coefficients x on points z_j, and K known up to ``delta`` per entry (``compute/kernel_values/arithmetic.py``), the
error of the decision values f = K x is at most

    E = (delta + m eps max|k|) sum |x_j|,     eps = 2^-53,

for m points. The second term is that of the float64 sum over the points. The sums over n rows are float64 as well,
hence

    |x'Kx - fl(x'Kx)| <= E sum |x_j| + n eps sum |x_i f_i|
    L(f) = sum C_i l(y_i f_i) is at most its value with every margin reduced by E, plus n eps L,

because losses are monotone in the margin, or convex in the residual. They are summed twice, at the computed margins and
at these minus E (for residuals, at the worse of f - E and f + E). Bounds for P = 1/2 x'Kx + L and
D = sum (a_i - conjugate(a_i)) - 1/2 x'Kx follow; the terms of the first sum of D are exact.

A row without a coefficient whose loss is 0 even at a margin reduced by E adds nothing to P or D. The certified
evaluation therefore computes f in float64 at the other rows alone.
"""

from __future__ import annotations

from typing import Any

from streamsvm.compute.kernel_values.arithmetic import (
    COARSE,
    ENOUGH,
    SINGLE,
    WHOLE_DOUBLE,
    WHOLE_NUMBERS,
    WHOLE_SINGLE,
    error_of,
    exact_arithmetic,
    reach_of,
    working_arithmetic,
)
from streamsvm.compute.kernel_values.kernel_matrix import squares_of
from streamsvm.compute.kernel_values.whole_numbers import is_exact_faster
from streamsvm.rows import Dense, Reach, Rows
from streamsvm.solvers.kernel.pool import Form
from streamsvm.solvers.linear_rounding import SHARE
from streamsvm.types import Problem

EPS = 2.0**-53
NEGLIGIBLE_SHARE = 3e-3
"""Rounding errors of P and D below this fraction of the tolerance are negligible: they do not justify computing distances
from differences, which takes three times as long. This chooses the arithmetic only; the bounds contain its errors."""
MAX_MARGIN_ERROR = 1e-2
"""If the largest coefficient of a row times the error of a float32 kernel value exceeds this, the solver works in
float64."""
FLOAT64_TOLERANCE = 1e-9
"""For tolerances below this the solver works in float64 from the first pass."""


def extend_reach(reach: Reach | None, X: Rows) -> Reach:
    """Return the reach of the rows X and of the rows before, whose reach is ``reach``."""
    reach_of_rows = reach_of(X, squares_of(X, float))
    if reach is None or reach.whole:
        reach_of_rows = reach_of_rows._replace(whole=isinstance(X, Dense) and is_exact_faster(X.values))
    return reach_of_rows if reach is None else reach.join(reach_of_rows)


def use_whole_numbers(problem: Problem, form: Form, reach: Reach | None) -> Form:
    """Return the form in integers if all rows, whose reach is ``reach``, are small whole numbers; else the form itself."""
    kernel = form.kernel
    if reach is None or not reach.whole or form.arithmetic in WHOLE_NUMBERS:
        return form
    if kernel.city_block() or not kernel.translation_invariant():
        return form
    is_single = error_of(kernel, reach, WHOLE_SINGLE) <= COARSE and problem.tolerance >= FLOAT64_TOLERANCE
    return form._replace(arithmetic=WHOLE_SINGLE if is_single else WHOLE_DOUBLE)


def choose_form(problem: Problem, constant: float = 0.0) -> Form:
    """Return the form of a problem's matrix, in the arithmetic that typical rows require."""
    assert problem.kernel is not None  # problems of a kernel solver have a kernel
    form = Form(problem.kernel, problem.columns, constant)
    if problem.reach is None:
        return form
    kernel, reach = problem.kernel, problem.reach
    margin_error = problem.C * max(problem.weights, default=1.0) * error_of(kernel, reach, SINGLE)
    if margin_error > MAX_MARGIN_ERROR or problem.tolerance < FLOAT64_TOLERANCE:
        return form_for_certificates(form, reach)
    return form._replace(arithmetic=working_arithmetic(kernel, reach, problem.columns))


def form_for_certificates(form: Form, reach: Reach | None, enough: float = ENOUGH) -> Form:
    """Return the form in the arithmetic of certificates, in which an error of ``enough`` in a kernel value is
    negligible.
    """
    if reach is None:
        return form
    if form.arithmetic in WHOLE_NUMBERS:
        return form._replace(arithmetic=WHOLE_DOUBLE)
    return form._replace(arithmetic=max(form.arithmetic, exact_arithmetic(form.kernel, reach, form.columns, enough)))


def negligible_error(problem: Problem, primal: float, weight: float) -> float:
    """Return the negligible error of a kernel value: times (sum |x_j|)^2 it is NEGLIGIBLE_SHARE of the allowed gap."""
    square = weight * weight
    return max(ENOUGH, NEGLIGIBLE_SHARE * problem.tolerance * abs(primal) / square) if square > 0.0 else ENOUGH


def error_of_values(form: Form, reach: Reach | None, points: int, weight: float) -> float:
    """Return E of an expansion with ``points`` points whose absolute coefficients have the sum ``weight``."""
    if reach is None or weight == 0.0:
        return 0.0
    sums = (points + 2) * EPS * (form.kernel.largest(reach) + form.constant)
    return weight * (error_of(form.kernel, reach, form.arithmetic) + sums)


def bound_rounding(
    problem: Problem, error: float, weight: float, absolute: float, losses: tuple[float, float]
) -> float:
    """Return a bound of the rounding errors of P and of D.

    ``error``: E. ``weight``: sum |x_j|. ``absolute``: sum |x_i f_i|. ``losses``: the loss sums at the computed margins
    and at these minus E.
    """
    computed, upper = losses
    square = 0.5 * (error * weight + 2 * problem.rows * EPS * absolute)
    return square + max(upper - computed, 0.0) + 2 * problem.rows * EPS * (upper + weight + absolute)


def needs_certified_form(problem: Problem, primal: float, rounding: float) -> bool:
    """Return whether the bound ``rounding`` is so large that an evaluation in the arithmetic of certificates is
    needed.
    """
    return not rounding <= SHARE * problem.tolerance * abs(primal)


def select_same_form(states: list[Any]) -> list[Any]:
    """Return the states with the same kernel and arithmetic as the first one."""
    return [state for state in states if state.form == states[0].form]
