"""What rounding does to a kernel machine's certificate: the sums of the module, by numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.kernel_values.rounding import DOUBLE, error_of
from streamsvm.compute.passes.kernel_rows import in_reach_of_loss
from streamsvm.kernels import RBF, Polynomial
from streamsvm.losses import EpsilonInsensitive, Hinge, SquaredHinge
from streamsvm.rows import Reach
from streamsvm.solvers.kernel.pool import Form
from streamsvm.solvers.kernel.rounding import (
    EPS,
    bound_rounding,
    error_of_values,
    needs_certified_form,
)
from streamsvm.types import Problem

NEAR, FAR = Reach(3, 4.0), Reach(5, 1e6)


def problem(kernel: Any = RBF(0.5), **changed: Any) -> Problem:  # noqa: B008  a record
    return Problem(Hinge(), changed.pop("C", 1.0), 4, 3, 1, kernel=kernel, **changed)


@pytest.mark.parametrize("kernel", [RBF(0.5), Polynomial(0.5, 1.0, 2.0)])
def test_kernel_rounding_bounds_decision_values(kernel: Any) -> None:
    form = Form(kernel, 3, 0.5)._replace(arithmetic=DOUBLE)
    largest = 1.0 if isinstance(kernel, RBF) else (0.5 * 4.0 + 1.0) ** 2
    expected = 2.0 * (error_of(kernel, NEAR, DOUBLE) + (7 + 2) * EPS * (largest + 0.5))
    assert error_of_values(form, NEAR, 7, 2.0) == pytest.approx(expected, rel=1e-12, abs=0.0)
    assert error_of_values(form, NEAR, 7, 1.0) == 0.5 * error_of_values(form, NEAR, 7, 2.0)
    assert error_of_values(form, None, 7, 2.0) == error_of_values(form, NEAR, 7, 0.0) == 0.0


def test_kernel_rounding_bounds_primal_and_dual() -> None:
    """Of four rows; the last sum is seen where the others are 0."""
    large = bound_rounding(problem(), 0.5, 2.0, 3.0, (1.0, 1.5))  # E sum |x| / 2 = .5, losses risen by .5
    assert large == pytest.approx(1.0, rel=1e-12, abs=0.0)
    assert bound_rounding(problem(), 0.5, 2.0, 3.0, (2.0, 1.5)) == pytest.approx(0.5, rel=1e-12, abs=0.0)
    least = bound_rounding(problem(), 0.0, 2.0, 3.0, (1.5, 1.5))  # 1/2 2 n eps 3 + 2 n eps (1.5 + 2 + 3)
    assert least == pytest.approx((12.0 + 52.0) * EPS, rel=1e-12, abs=0.0)


def test_kernel_evaluation_is_repeated_where_rounding_is_felt() -> None:
    asked = problem(tolerance=0.5)
    for primal in (4.0, -4.0):
        assert not needs_certified_form(asked, primal, 0.2)
        assert needs_certified_form(asked, primal, 0.2001)
    assert needs_certified_form(asked, 4.0, float("nan"))


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), EpsilonInsensitive(0.5)])
def test_kernel_rounding_counts_rows_in_reach_of_a_loss(loss: Any) -> None:
    """Beyond the corner by less than the slack, and not by as much or more."""
    slack = 0.25
    f = np.array([0.0, 0.9, 1.0, 1.2, 1.25, 1.3, 3.0])
    y = np.ones(len(f), np.float32)
    found = in_reach_of_loss(f, y, loss, slack)
    offset = np.abs(f - 1.0) + slack - 0.5 if loss.numeric() else 1.0 - (f - slack)
    np.testing.assert_array_equal(found, offset > 0.0)
    assert not found.all()
    assert found.any()
