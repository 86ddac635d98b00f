"""Every registered loss: its functions are the value, derivatives and dual of one another."""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from math import inf, isfinite
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from streamsvm.compute.passes.dcd import optimum
from streamsvm.compute.targets import lower
from streamsvm.losses import (
    LOSSES,
    MIN_THRESHOLD,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    RoundedEpsilon,
    RoundedPinball,
    Squared,
    SquaredHinge,
    threshold,
)
from streamsvm.types.problem import has_box

STEP = 1e-6
SETTINGS: dict[str, list[dict[str, float]]] = {
    "hinge": [{}, {"margin": 2.5}],
    "squared_hinge": [{}, {"margin": 0.5}],
    "logistic": [{}, {"sharpness": 5.0}],
    "epsilon_insensitive": [{"epsilon": 0.0}, {"epsilon": 2.0}],
    "squared_epsilon_insensitive": [{"epsilon": 0.0}, {"epsilon": 2.0}],
    "squared": [{}, {"factor": 0.3}],
    "pinball": [{}, {"quantile": 0.97}],
    "huber": [{"mu": 0.01}, {"mu": 0.3, "margin": 2.0}, {"margin": 0.05}],
}
CASES = [LOSSES[name](**settings) for name in LOSSES for settings in SETTINGS.get(name, [{}])]
CASES += [RoundedEpsilon(0.2, 0.6), RoundedEpsilon(0.0, 0.5)]

each_loss = pytest.mark.parametrize("loss", CASES, ids=str)
margins = st.floats(-50.0, 50.0)
costs = st.floats(1e-4, 1e4)
widths = st.floats(1e-3, 5.0)


def corners(loss: Any) -> list[float]:
    """Where the loss or its slope is not differentiable."""
    match loss:
        case Logistic() | Squared():
            found = []
        case Huber():
            found = [loss.margin - loss.mu, loss.margin + loss.mu]
        case RoundedEpsilon():
            found = [side * end for side in (-1, 1) for end in loss]
        case Pinball():
            found = [0.0]
        case RoundedPinball():
            found = [-loss.mu, loss.mu]
        case _:
            found = [-loss.epsilon, loss.epsilon] if loss.numeric() else [loss.margin]
    return found


def box_of(loss: Any, C: float, beyond: float) -> tuple[float, float]:
    """The ends of what a dual variable may be, or ``beyond`` C where there are none."""
    return max(lower(loss, C), -beyond * C), min(loss.upper(C), beyond * C)


def conjugate_by_search(loss: Any, a: float, C: float) -> float:
    """What ``conjugate`` says, from the values of l alone: a - min_m [C l(m) + a m], of a convex function."""
    far = 60.0 / min(1.0, loss.sharpness) if isinstance(loss, Logistic) else 60.0
    found = minimize_scalar(
        lambda m: C * loss.value(m) + a * m, bounds=(-far, far), method="bounded", options={"xatol": 1e-9}
    )
    return a - min([float(found.fun), *(C * loss.value(m) + a * m for m in corners(loss))])


@each_loss
@given(m=margins)
def test_loss_slope_is_the_derivative_of_the_value(loss: Any, m: float) -> None:
    assume(all(abs(m - corner) > 2 * STEP for corner in corners(loss)))
    numerical = (loss.value(m + STEP) - loss.value(m - STEP)) / (2 * STEP)
    assert loss.slope(m) == pytest.approx(numerical, rel=1e-5, abs=1e-5)


@each_loss
@given(m=margins)
def test_loss_bend_is_the_derivative_of_the_slope(loss: Any, m: float) -> None:
    assume(all(abs(m - corner) > 2 * STEP for corner in corners(loss)))
    numerical = (loss.slope(m + STEP) - loss.slope(m - STEP)) / (2 * STEP)
    assert loss.second_derivative(m) == pytest.approx(numerical, rel=1e-5, abs=1e-5)


@each_loss
@given(one=margins, other=margins, share=st.floats(0.0, 1.0))
def test_loss_value_is_convex_never_negative_and_of_margins_falling(
    loss: Any, one: float, other: float, share: float
) -> None:
    between = share * one + (1 - share) * other
    assert loss.value(between) <= share * loss.value(one) + (1 - share) * loss.value(other) + 1e-9
    assert loss.value(one) >= 0.0
    assert loss.slope(one) <= 0.0 or loss.numeric()
    assert loss.value(0.0) == 0.0 or not loss.numeric()
    assert loss.second_derivative(one) >= 0.0


@each_loss
@given(m=margins, C=costs)
def test_loss_slope_gives_the_dual_point_that_meets_the_value(loss: Any, m: float, C: float) -> None:
    """Fenchel's equality: C l(m) = a - conjugate(a) - a m at a = -C l'(m), which lies in the box."""
    a = -C * loss.slope(m)
    assert lower(loss, C) <= a <= loss.upper(C)
    scale = C * (1.0 + m * m)
    assert C * loss.value(m) == pytest.approx(a - loss.conjugate(a, C) - a * m, abs=1e-12 * scale)


@each_loss
@given(m=margins, C=costs, share=st.floats(0.0, 1.0))
def test_loss_any_point_of_the_box_bounds_the_value_from_below(loss: Any, m: float, C: float, share: float) -> None:
    """Fenchel and Young's inequality: what makes a dual value a certificate."""
    low, high = box_of(loss, C, 200.0)
    a = low + share * (high - low)
    assert a - loss.conjugate(a, C) - a * m <= C * loss.value(m) + 1e-12 * C * (1.0 + m * m)


@each_loss
def test_loss_conjugate_is_the_one_of_the_value(loss: Any) -> None:
    for C, share in itertools.product((0.25, 3.0), (0.0, 0.2, 0.7, 1.0)):
        low, high = box_of(loss, C, 10.0)
        a = low + share * (high - low)
        assert loss.conjugate(a, C) == pytest.approx(conjugate_by_search(loss, a, C), abs=1e-6 * C)


@each_loss
@given(C=costs, share=st.floats(0.01, 0.99))
def test_loss_conjugate_slope_and_curvature_are_the_derivatives_of_the_conjugate(
    loss: Any, C: float, share: float
) -> None:
    a, step = share * C, 1e-4 * C
    low, here, high = (loss.conjugate(x, C) for x in (a - step, a, a + step))
    near = 1e-6 if loss.quadratic() else 1e-3  # of an entropy there are further terms
    assert loss.conjugate_slope(a, C) == pytest.approx((high - low) / (2 * step), rel=near, abs=1e-8 + near)
    second = (loss.conjugate_slope(a + step, C) - loss.conjugate_slope(a - step, C)) / (2 * step)
    if loss.quadratic():
        assert loss.curvature(C) == pytest.approx(second, rel=1e-6, abs=1e-8 / C)
    assert loss.curvature(C) <= second * (1 + near) + 1e-8 / C
    assert here <= (low + high) / 2 + 1e-12 * C


@each_loss
@given(C=costs, share=st.floats(0.01, 0.99))
def test_loss_of_a_number_the_conjugate_is_even_but_for_what_all_begin_with(loss: Any, C: float, share: float) -> None:
    """conjugate(a) - a, and the slope of that is odd; the box has the same length on both sides. Of quantiles only the box is not."""
    if not loss.numeric():
        assert lower(loss, C) == 0.0
        return
    if isinstance(loss, Pinball):
        assert lower(loss, C) == pytest.approx(-(1.0 - loss.quantile) * C, rel=1e-15)
        return
    a = share * C
    assert lower(loss, C) == -loss.upper(C)
    assert loss.conjugate(-a, C) + a == pytest.approx(loss.conjugate(a, C) - a, rel=1e-12)
    assert loss.conjugate_slope(-a, C) - 1.0 == pytest.approx(1.0 - loss.conjugate_slope(a, C), rel=1e-12)


@each_loss
@pytest.mark.parametrize("C", [0.01, 7.0])
def test_loss_upper_is_the_end_of_the_box(loss: Any, C: float) -> None:
    """Above it the dual value is minus infinity: C l(m) + a m falls without end as m does. At it, it does not."""
    top = loss.upper(C)
    far, farther = -1e6, -2e6
    if top == inf:
        a = 100.0 * C
        assert C * loss.value(farther) + a * farther > C * loss.value(far) + a * far
        return
    above, below = 1.001 * top, 0.999 * top
    assert C * loss.value(farther) + above * farther < C * loss.value(far) + above * far
    assert C * loss.value(farther) + below * farther > C * loss.value(far) + below * far


@each_loss
@given(m=st.floats(-3.0, 3.0), square=st.floats(0.01, 10.0), C=costs, start=st.floats(0.0, 1.0))
def test_loss_coordinate_step_solves_its_one_dimensional_problem(
    loss: Any, m: float, square: float, C: float, start: float
) -> None:
    """From any a the step is the best of the box: no point of a grid has a larger dual value."""
    if loss.numeric():
        return
    top = loss.upper(C)
    a = start * C
    if loss.quadratic():
        G, Q = m - 1.0 + loss.conjugate_slope(a, C), square + loss.curvature(C)
        new = min(max(a - G / Q, 0.0), top)
    else:
        new = optimum(m, a, C, loss, square)

    def gained(x: float) -> float:
        return float((x - a) * (1.0 - m) - 0.5 * (x - a) ** 2 * square - (loss.conjugate(x, C) - loss.conjugate(a, C)))

    grid = np.linspace(0.0, top if isfinite(top) else 4.0 * max(new, C), 1001)
    assert gained(new) >= max(map(gained, grid.tolist())) - 1e-9 * C * (1.0 + C)
    assert gained(new) >= -1e-12 * C


@given(m=margins, mu=widths)
def test_loss_huber_is_the_hinge_but_for_its_corner(m: float, mu: float) -> None:
    excess = Huber(mu).value(m) - Hinge().value(m)
    assert -1e-12 <= excess <= mu / 4 + 1e-12  # largest at the corner
    if abs(m - 1.0) >= mu:
        assert excess == pytest.approx(0.0, abs=1e-12 * max(1.0, abs(m)))


@given(m=margins, margin=st.floats(0.0, 4.0))
def test_loss_squared_hinge_is_the_square_of_the_hinge(m: float, margin: float) -> None:
    assert SquaredHinge(margin).value(m) == Hinge(margin).value(m) ** 2


@each_loss
def test_loss_properties_are_those_of_the_functions(loss: Any) -> None:
    """What solvers ask instead of a name."""
    assert has_box(loss) == isfinite(lower(loss, 1.0)) or not loss.numeric()
    assert loss.smooth() == (loss.curvature(1.0) > 0.0)
    sides = [(loss.slope(m - STEP), loss.slope(m + STEP)) for m in corners(loss)]
    assert loss.smooth() == all(abs(right - left) < 1e-2 for left, right in sides)
    a = np.linspace(0.05, 0.95, 9)
    third = np.diff([loss.conjugate_slope(x, 1.0) for x in a], n=2)
    assert loss.quadratic() == bool(np.all(np.abs(third) < 1e-12))


@each_loss
def test_loss_threshold_is_where_the_loss_ends(loss: Any) -> None:
    end = threshold(loss)
    if loss.numeric():
        assert end == pytest.approx(
            max(MIN_THRESHOLD, getattr(loss, "epsilon", getattr(loss, "inner", 0.0))), rel=1e-12
        )
        assert loss.value(end) <= MIN_THRESHOLD
        return
    assert loss.value(end + 1e-9) == 0.0
    assert end == inf or loss.value(end - 1e-3) > 0.0


@each_loss
@given(m=margins, share=st.floats(0.01, 1.0))
def test_a_rounded_loss_is_smooth_near_and_has_feasible_slopes(loss: Any, m: float, share: float) -> None:
    """Its slopes are dual points of the loss: inside the box, and next to the corner between the slopes of its sides."""
    mu = share * min(max(threshold(loss), 0.1), 10.0)
    smooth = loss.round_corners(mu)
    assert smooth.smooth()
    below = 0.5 * max(0.0, mu - getattr(loss, "epsilon", mu)) if not loss.smooth() else 0.0  # where both corners meet
    assert -below - 1e-12 <= smooth.value(m) - loss.value(m) <= mu / 4 + 1e-12
    assert smooth.round_corners(mu) is smooth
    between = sorted((loss.slope(m - 1.0001 * mu), loss.slope(m + 1.0001 * mu)))
    assert between[0] - 1e-12 <= smooth.slope(m) <= between[1] + 1e-12


@each_loss
def test_loss_record_is_one_the_compiler_takes(loss: Any) -> None:
    assert len(loss) > 0
    assert all(type(value) is float for value in loss)


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
@pytest.mark.parametrize("m", [-800.0, -30.0, -1.0, -1e-9, 0.0, 1e-9, 0.7, 40.0, 800.0])
def test_loss_all_at_once_is_what_they_are_one_by_one(m: float, sharpness: float) -> None:
    loss = Logistic(sharpness)
    value, slope, entropy = loss.value_slope_entropy(m)
    assert value == pytest.approx(loss.value(m), rel=1e-15)
    assert slope == pytest.approx(loss.slope(m), rel=1e-15)
    assert entropy >= 0.0
    with localcontext(prec=400):
        z = Decimal(sharpness * m)
        tail, b = ((-abs(z)).exp() + 1).ln(), 1 / (1 + z.exp())
        exact = b * (tail + max(z, Decimal(0))) + (1 - b) * (tail + max(-z, Decimal(0)))
    assert entropy * sharpness == pytest.approx(float(exact), rel=1e-14)


def test_loss_logistic_far_margins_neither_overflow_nor_lose_the_tail() -> None:
    loss = Logistic()
    assert (loss.value(-1e5), loss.value(1e5)) == (1e5, 0.0)
    assert (loss.slope(-1e5), loss.slope(1e5)) == (-1.0, 0.0)
    assert loss.value(40.0) == pytest.approx(np.exp(-40.0), rel=1e-12)
    assert loss.slope(40.0) == pytest.approx(-np.exp(-40.0), rel=1e-12)
