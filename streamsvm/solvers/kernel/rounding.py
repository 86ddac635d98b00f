"""How far rounding can have moved the primal and dual values of a kernel machine.

With coefficients x on points z_j and K known up to ``delta`` an entry (``compute/kernel_values/rounding.py``), decision
values f = K x are off by at most

    E = (delta + m eps max|k|) sum |x_j|,     eps = 2^-53,

m points; the second term is that of the float64 sum over them. Hence, the sums over n rows being float64 as well,

    |x'Kx - fl(x'Kx)| <= E sum |x_j| + n eps sum |x_i f_i|
    L(f) = sum C_i l(y_i f_i) is at most what it is where every margin is less by E, plus n eps L,

the losses being monotone, or of residuals convex: they are summed twice, at the margins found and at those less by E, at the worse of two residuals. P = 1/2 x'Kx + L and
D = sum (a_i - conjugate(a_i)) - 1/2 x'Kx follow; the terms of the first sum of D are given numbers.

A row that has no coefficient and costs nothing even where its margin is less by what it may be off has no say in
either. So the evaluation that is certified computes f in float64 of those rows alone that have.
"""

from __future__ import annotations

from typing import Any

from streamsvm.compute.kernel_values.gram import squares_of
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
from streamsvm.solvers.linear_rounding import SHARE
from streamsvm.types import Problem

EPS = 2.0**-53
UNFELT = 1e-3
"""Of the tolerance: what rounding may do to P and D where it is to make no difference."""
BLUNT = 1e-2
"""A row's largest coefficient times the error of a kernel value, beyond which float32 blurs margins while it works."""

FINE = 1e-9
"""Tolerances below this are asked of float64 from the first pass: what float32 leads to would be found wanting at the end."""


def extended(reach: Reach | None, X: Rows) -> Reach:
    """The reach of these rows and of those before."""
    found = reach_of(X, squares_of(X, float))
    return found if reach is None else reach.joined(found)


def joined(one: Reach | None, other: Reach | None) -> Reach | None:
    """The reach of the rows of both."""
    return one.joined(other) if one is not None and other is not None else one or other


def form_of(problem: Problem, constant: float = 0.0) -> Form:
    """The form of a problem's matrix, in the arithmetic that typical rows ask for."""
    assert problem.kernel is not None  # a kernel solver is given problems of one
    form = Form(problem.kernel, problem.columns, constant)
    if problem.reach is None:
        return form
    kernel, reach = problem.kernel, problem.reach
    blurred = problem.C * max(problem.weights, default=1.0) * error_of(kernel, reach, SINGLE) > BLUNT
    if blurred or problem.tolerance < FINE:
        return in_full(form, reach)
    return form._replace(arithmetic=working_arithmetic(kernel, reach, problem.columns))


def in_full(form: Form, reach: Reach | None, enough: float = ENOUGH) -> Form:
    """The same in the arithmetic of certificates, which do not feel an error of ``enough`` in a kernel value."""
    if reach is None:
        return form
    return form._replace(arithmetic=max(form.arithmetic, exact_arithmetic(form.kernel, reach, form.columns, enough)))


def enough_for(problem: Problem, primal: float, weight: float) -> float:
    """The error of a kernel value that a certificate does not feel: (sum |x_j|)^2 times it is UNFELT of what is asked for."""
    felt = weight * weight
    return max(ENOUGH, UNFELT * problem.tolerance * abs(primal) / felt) if felt > 0.0 else ENOUGH


def error_of_values(form: Form, reach: Reach | None, points: int, weight: float) -> float:
    """E of an expansion in so many points with coefficients of this sum of absolute values."""
    if reach is None or weight == 0.0:
        return 0.0
    sums = (points + 2) * EPS * (form.kernel.largest(reach) + form.constant)
    return weight * (error_of(form.kernel, reach, form.arithmetic) + sums)


def rounding_of(problem: Problem, error: float, weight: float, absolute: float, risen: tuple[float, float]) -> float:
    """The larger of what P and D can be off by.

    Given: E, sum |x_j|, sum |x_i f_i| and the losses at the margins found and at those less by E.
    """
    losses, reduced = risen
    square = 0.5 * (error * weight + 2 * problem.rows * EPS * absolute)
    return square + max(reduced - losses, 0.0) + 2 * problem.rows * EPS * (reduced + weight + absolute)


def needed(problem: Problem, primal: float, rounding: float) -> bool:
    """Whether so much rounding calls for an evaluation in float64."""
    return not rounding <= SHARE * problem.tolerance * abs(primal)


def same_arithmetic(states: list[Any]) -> list[Any]:
    """Those states whose kernel values are evaluated as the first one's are."""
    return [state for state in states if state.form == states[0].form]
