"""What a kernel solver derives of rows, against the dual as it is written: gradients by differences, and both sides of a corner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes import kernel_rows
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.losses import EpsilonInsensitive, Hinge, Huber, Pinball, SquaredEpsilonInsensitive, SquaredHinge
from streamsvm.types import Loss
from tests.axes import each_value

N, C, B = 24, 0.7, 0.3
MARGINS: list[Loss] = [Hinge(2.0), SquaredHinge(), Huber(0.25)]
NUMBERS: list[Loss] = [EpsilonInsensitive(0.4), SquaredEpsilonInsensitive(0.4), Pinball(0.7)]
RNG = np.random.default_rng(31)
F, S = RNG.normal(size=N), np.resize([0.0, 0.5, 1.0, 3.0], N)


def rows_of(loss: Any) -> tuple[Any, Any]:
    """Targets, and dual variables inside their boxes, a third of them 0; of numbers of either sign."""
    y = RNG.normal(size=N) if loss.numeric() else RNG.choice([-1.0, 1.0], N)
    alpha = np.array([0.4 * min(loss.upper(C * s), 2.0) if s else 0.0 for s in S])
    alpha[::3] = 0.0
    return y, alpha * np.resize([1.0, -0.5], N) if loss.numeric() else alpha


def value(loss: Any, x: float, y: float, weight: float) -> float:
    """What a row adds to the objective beside the quadratic form of the kernel."""
    if loss.numeric():
        return float(loss.conjugate(x, weight)) - x * (y + 1.0)
    return float(loss.conjugate(y * x, weight)) - y * x


def slope(loss: Any, x: float, y: float, weight: float, way: float) -> float:
    """Its derivative at x, from one side."""
    h = way * 1e-6
    return (value(loss, x + h, y, weight) - value(loss, x, y, weight)) / h


@pytest.mark.parametrize("loss", [*MARGINS, *NUMBERS], ids=str)
def test_coordinates_are_those_of_the_dual(loss: Any) -> None:
    """The box, and a gradient that is that of the side on which a row is shown."""
    y, alpha = rows_of(loss)
    found = kernel_rows.coordinates.py_func(y, S, alpha, F, RowLoss(C, loss, loss), B)
    sign = np.ones(N) if loss.numeric() else y
    np.testing.assert_allclose(found.x, alpha * sign)
    np.testing.assert_allclose(found.v, found.p - F - found.ridge * found.x, rtol=1e-12)
    for i in range(N):
        weight, x = C * S[i], found.x[i]
        if weight == 0.0:
            assert (found.low[i], found.high[i], found.ridge[i], found.p[i]) == (0.0, 0.0, 0.0, 0.0)
            continue
        right = y[i] > F[i] + B if loss.numeric() and x == 0.0 else (x > 0.0 or (x == 0.0 and sign[i] > 0.0))
        end = loss.upper(weight) if right else (weight * loss.slope(np.inf) if loss.numeric() else loss.upper(weight))
        assert (found.low[i], found.high[i]) == pytest.approx((0.0, end) if right else (-end, 0.0))
        assert found.v[i] == pytest.approx(-F[i] - slope(loss, x, y[i], weight, 1.0 if right else -1.0), abs=1e-5)


@pytest.mark.parametrize("loss", NUMBERS, ids=str)
def test_at_its_corner_a_number_is_shown_where_it_could_move(loss: Any) -> None:
    """On the right only above f + b: not at it."""
    y, none = np.array([1.0, 1.0, 1.0]), np.zeros(3)
    f = np.array([0.5, 0.75, 1.0])
    found = kernel_rows.coordinates.py_func(y, np.ones(3), none, f, RowLoss(C, loss, loss), 0.25)
    assert ((found.high > 0.0).tolist(), (found.low < 0.0).tolist()) == ([True, False, False], [False, True, True])


@pytest.mark.parametrize("loss", NUMBERS, ids=str)
def test_beyond_the_corner_is_the_gradient_on_the_other_side(loss: Any) -> None:
    y, alpha = rows_of(loss)
    found = kernel_rows.coordinates.py_func(y, S, alpha, F, RowLoss(C, loss, loss), B)
    top, bottom = kernel_rows.beyond_corner.py_func(found, loss)
    at_zero = [i for i in range(N) if S[i] > 0.0 and alpha[i] == 0.0]
    left = [-F[i] - slope(loss, 0.0, y[i], C * S[i], 1.0) for i in at_zero if found.high[i] == 0.0]
    right = [-F[i] - slope(loss, 0.0, y[i], C * S[i], -1.0) for i in at_zero if found.high[i] > 0.0]
    assert (top, bottom) == pytest.approx((max(left), min(right)), abs=1e-5)


@pytest.mark.parametrize("loss", MARGINS, ids=str)
def test_a_margin_has_no_corner_to_be_beyond(loss: Any) -> None:
    y, alpha = rows_of(loss)
    found = kernel_rows.coordinates.py_func(y, S, alpha, F, RowLoss(C, loss, loss), B)
    assert kernel_rows.beyond_corner.py_func(found, loss) == (-np.inf, np.inf)


@each_value(("loss", [*MARGINS, *NUMBERS]), ("slack", [0.0, 0.25]))
def test_losses_of_shifted_values_are_the_largest_within_the_slack(loss: Any, slack: float) -> None:
    """On a grid of what the decision value may be: that of a margin at its left end, that of a residual at one of both."""
    y, _ = rows_of(loss)
    shifts, sums = np.array([-0.5, 0.0, 1.0]), np.ones(3)
    kernel_rows.shifted_losses.py_func(F, y, S, RowLoss(C, loss, loss), slack, shifts, sums)
    near = np.linspace(-slack, slack, 21)
    expected, costs = np.ones(3), []
    for i in range(N):
        f = F[i] + shifts[:, None] + near
        m = f - y[i] if loss.numeric() else y[i] * f
        most = np.vectorize(loss.value, otypes=[float])(m).max(1)
        expected += C * S[i] * most
        costs.append(most[1] > 0.0)
    np.testing.assert_allclose(sums, expected, rtol=1e-12)
    np.testing.assert_array_equal(kernel_rows.in_reach_of_loss.py_func(F, y, loss, slack), costs)
