"""What rounding does to a kernel machine's certificate: the sums of the module, by numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.kernel_values.rounding import DIFFERENCES, DOUBLE, ENOUGH, SINGLE, error_of
from streamsvm.compute.passes.coordinates import in_reach_of_loss
from streamsvm.kernels import RBF, Polynomial
from streamsvm.losses import EpsilonInsensitive, Hinge, SquaredHinge
from streamsvm.rows import Dense, Reach
from streamsvm.solvers.kernel.pool import Form
from streamsvm.solvers.kernel.rounding import (
    EPS,
    MAX_MARGIN_ERROR,
    NEGLIGIBLE_SHARE,
    bound_rounding,
    certified_form,
    choose_form,
    error_of_values,
    extend_reach,
    join_reaches,
    needs_certified_form,
    negligible_error,
    select_same_form,
)
from streamsvm.types import Problem

NEAR, FAR = Reach(3, 4.0), Reach(5, 1e6)


def problem(kernel: Any = RBF(0.5), **changed: Any) -> Problem:  # noqa: B008  a record
    return Problem(Hinge(), changed.pop("C", 1.0), 4, 3, 1, kernel=kernel, **changed)


def test_the_reach_of_both_is_the_larger_and_of_one_its_own() -> None:
    assert join_reaches(NEAR, FAR) == join_reaches(FAR, NEAR) == FAR
    assert join_reaches(NEAR, None) == join_reaches(None, NEAR) == NEAR
    assert join_reaches(None, None) is None
    rows = Dense(np.array([[3.0, 4.0]], np.float32))
    assert extend_reach(None, rows) == Reach(2, 25.0)
    assert extend_reach(NEAR, rows) == Reach(3, 25.0)


def test_a_solver_works_in_float32_unless_coefficients_make_its_errors_large() -> None:
    blunt = MAX_MARGIN_ERROR / error_of(RBF(0.5), NEAR, SINGLE)
    assert choose_form(problem(C=1e9)).arithmetic == SINGLE  # nothing is known of the rows
    for C, weights, expected in (
        (0.99, (), SINGLE),
        (1.01, (), DOUBLE),
        (0.6, (1.0, 2.0), DOUBLE),
        (1.9, (0.5,), SINGLE),
    ):
        form = choose_form(problem(C=C * blunt, weights=weights, reach=NEAR), 0.25)
        assert (form.arithmetic, form.constant, form.columns) == (expected, 0.25, 3)
    for tolerance, expected in ((1e-9, SINGLE), (0.99e-9, DOUBLE)):
        assert choose_form(problem(C=0.5 * blunt, tolerance=tolerance, reach=NEAR)).arithmetic == expected
    narrow = problem(RBF(1e12), C=1e-30, reach=FAR)
    assert choose_form(narrow).arithmetic == DIFFERENCES


def test_certificates_are_never_evaluated_in_less_than_the_work() -> None:
    form = Form(RBF(0.5), 3, 0.0)
    assert certified_form(form, None) is form
    assert certified_form(form, NEAR).arithmetic == DOUBLE
    assert certified_form(form._replace(arithmetic=DIFFERENCES), NEAR).arithmetic == DIFFERENCES


def test_products_are_taken_where_a_certificate_does_not_feel_their_errors() -> None:
    """Of coefficients that sum up to w, an error of a kernel value of e changes P by about e w^2."""
    form, wide, kernel = Form(RBF(0.02), 784, 0.0), Reach(784, 400.0), RBF(0.02)
    error = error_of(kernel, wide, DOUBLE)
    assert ENOUGH < error < 1.5 * ENOUGH
    assert certified_form(form, wide).arithmetic == DIFFERENCES
    asked = problem(kernel, tolerance=1e-3)
    for weight, expected in ((0.99, DOUBLE), (1.01, DIFFERENCES)):
        allowed = negligible_error(asked, -7.0, weight * np.sqrt(NEGLIGIBLE_SHARE * 1e-3 * 7.0 / error))
        assert certified_form(form, wide, allowed).arithmetic == expected
    assert negligible_error(asked, 7.0, 1e30) == negligible_error(asked, 7.0, 0.0) == ENOUGH


@pytest.mark.parametrize("kernel", [RBF(0.5), Polynomial(0.5, 1.0, 2.0)])
def test_decision_values_are_off_by_entries_and_by_the_sum_of_them(kernel: Any) -> None:
    form = Form(kernel, 3, 0.5)._replace(arithmetic=DOUBLE)
    largest = 1.0 if isinstance(kernel, RBF) else (0.5 * 4.0 + 1.0) ** 2
    expected = 2.0 * (error_of(kernel, NEAR, DOUBLE) + (7 + 2) * EPS * (largest + 0.5))
    assert error_of_values(form, NEAR, 7, 2.0) == pytest.approx(expected, rel=1e-12, abs=0.0)
    assert error_of_values(form, NEAR, 7, 1.0) == 0.5 * error_of_values(form, NEAR, 7, 2.0)
    assert error_of_values(form, None, 7, 2.0) == error_of_values(form, NEAR, 7, 0.0) == 0.0


def test_primal_and_dual_are_off_by_the_square_the_losses_and_the_sums() -> None:
    """Of four rows; the last sum is seen where the others are 0."""
    large = bound_rounding(problem(), 0.5, 2.0, 3.0, (1.0, 1.5))  # E sum |x| / 2 = .5, losses risen by .5
    assert large == pytest.approx(1.0, rel=1e-12, abs=0.0)
    assert bound_rounding(problem(), 0.5, 2.0, 3.0, (2.0, 1.5)) == pytest.approx(0.5, rel=1e-12, abs=0.0)
    least = bound_rounding(problem(), 0.0, 2.0, 3.0, (1.5, 1.5))  # 1/2 2 n eps 3 + 2 n eps (1.5 + 2 + 3)
    assert least == pytest.approx((12.0 + 52.0) * EPS, rel=1e-12, abs=0.0)


def test_an_evaluation_is_repeated_where_rounding_is_a_tenth_of_the_tolerance() -> None:
    asked = problem(tolerance=0.5)
    for primal in (4.0, -4.0):
        assert not needs_certified_form(asked, primal, 0.2)
        assert needs_certified_form(asked, primal, 0.2001)
    assert needs_certified_form(asked, 4.0, float("nan"))


def test_only_states_of_the_first_ones_arithmetic_share_kernel_values() -> None:
    class State:
        def __init__(self, arithmetic: int) -> None:
            self.form = Form(RBF(0.5), 3, 0.0)._replace(arithmetic=arithmetic)

    states = [State(arithmetic) for arithmetic in (SINGLE, DOUBLE, SINGLE)]
    assert select_same_form(states) == [states[0], states[2]]


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), EpsilonInsensitive(0.5)])
def test_rows_in_reach_of_a_loss_are_those_that_would_cost_something(loss: Any) -> None:
    """Beyond the corner by less than the slack, and not by as much or more."""
    slack = 0.25
    f = np.array([0.0, 0.9, 1.0, 1.2, 1.25, 1.3, 3.0])
    y = np.ones(len(f), np.float32)
    found = in_reach_of_loss(f, y, loss, slack)
    offset = np.abs(f - 1.0) + slack - 0.5 if loss.numeric() else 1.0 - (f - slack)
    np.testing.assert_array_equal(found, offset > 0.0)
    assert not found.all()
    assert found.any()
