"""Sums along a line, over rows or over their dual variables, each against the sum as it is written down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.compute.passes.cutting_plane import breakpoints_pass
from streamsvm.compute.passes.dcd import proposals_pass
from streamsvm.compute.passes.segment import Line, LineSums, segment_pass
from streamsvm.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from streamsvm.rows import Dense, Labeled
from tests.arrays import csr_of, sparse_values

N, D, BIAS, C = 23, 5, 0.5, 1.0
RNG = np.random.default_rng(21)
VALUES = sparse_values(RNG, N, D).astype(np.float64)
VALUES[4] = 0.0
X = np.hstack([VALUES, np.full((N, 1), BIAS)])
SIGNS, NUMBERS = RNG.choice([-1.0, 1.0], N), RNG.normal(size=N)
S = RNG.choice([0.0, 0.25, 1.0, 4.0], N)
"""A row of weight 1 on the line of its loss has the dual variable 1. All float64: a Python float times a float32 would be a float32 where a pass is not compiled."""
WEIGHTED: list[int] = np.flatnonzero(S).tolist()


def targets(loss: Any) -> Any:
    return NUMBERS if loss.numeric() else SIGNS


def argument(loss: Any, i: int, f: float) -> float:
    y = float(targets(loss)[i])
    return f - y if loss.numeric() else y * f


def gain(loss: Any, i: int, a: float) -> float:
    """What a row adds to the dual beside the norm."""
    return float(a * (NUMBERS[i] + 1.0 if loss.numeric() else 1.0) - loss.conjugate(a, C * S[i]))


@pytest.mark.parametrize(
    "loss", [Hinge(), SquaredHinge(), Huber(0.2), Logistic(), SquaredEpsilonInsensitive(0.3)], ids=str
)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_line_sums_segment_is_summed_at_each_of_its_points(loss: Any, sparse: bool) -> None:
    """Losses, dual values and dual points; rows whose slope does not change are summed once, all others apart."""
    w, d, steps = RNG.normal(size=D + 1), RNG.normal(size=D + 1), np.array([0.0, 0.4, 1.0])
    losses, gains, v, low, apart, lows = (
        np.ones(3),
        np.ones(3),
        np.ones(D + 1),
        *np.zeros((1, D + 1)),
        *np.zeros((2, 3, D + 1)),
    )
    rows, f, df = csr_of(VALUES, BIAS) if sparse else Dense(VALUES, BIAS), np.empty(N), np.empty(N)
    given, line = Labeled(rows, targets(loss), S), Line(w, d, steps, C, loss)
    segment_pass.py_func(given, line, f, df, LineSums(losses, gains, v, low, apart, lows))
    np.testing.assert_allclose(f, X @ w, rtol=1e-12)
    np.testing.assert_allclose(df, X @ d, rtol=1e-12)
    alike, others, found = np.ones(D + 1), np.zeros((3, D + 1)), np.ones((2, 3))
    for i in WEIGHTED:
        m = [argument(loss, i, X[i] @ (w + t * d)) for t in steps]
        a = [-C * S[i] * loss.slope(at) for at in m]
        found += [[C * S[i] * loss.value(at) for at in m], [gain(loss, i, one) for one in a]]
        sign = 1.0 if loss.numeric() else SIGNS[i]
        if a[0] == a[1] == a[2]:
            alike += a[0] * sign * X[i]
        else:
            others += np.multiply.outer(a, sign * X[i])
    np.testing.assert_allclose([losses, gains], found, rtol=1e-9)
    np.testing.assert_allclose(v + low, alike, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(apart + lows, others, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", [Hinge(), Hinge(2.0), EpsilonInsensitive(0.3), Pinball(0.8)], ids=str)
def test_lines_sorted_by_their_corners_give_the_loss_at_every_point_of_a_grid(loss: Any) -> None:
    """Also where the line does not move, and where its corner is a point of the grid or beyond all of them."""
    f, df, grid = 1.5 * RNG.normal(size=N), RNG.normal(size=N), np.array([0.0, 0.25, 1.0, 1.5])
    df[:6] = 0.0
    f[7], df[7] = (NUMBERS[7] + 0.3 if loss.numeric() else SIGNS[7]) - 0.25, 1.0
    sums = np.zeros((2, len(grid) + 1, 2))
    breakpoints_pass.py_func(targets(loss), S, f, df, RowLoss(C, loss, loss), grid, sums)
    for j, t in enumerate(grid):
        lines = sums[0, j + 1 :].sum(0) + sums[1, : j + 1].sum(0)
        at = [C * S[i] * loss.value(argument(loss, i, f[i] + t * df[i])) for i in range(N)]
        assert lines[0] - t * lines[1] == pytest.approx(sum(at), rel=1e-9)


def ways(loss: Any, *, across: bool) -> tuple[Any, Any]:
    """Dual variables inside their boxes, and two ways for each; ``across``: some of them to the other side of 0, and no second way."""
    rng = np.random.default_rng(5)
    a, found = np.zeros(N), np.zeros((N, 2))
    for i in WEIGHTED:
        top = min(loss.upper(C * S[i]), 3.0)
        a[i], end = rng.uniform(0.3, 0.7, 2) * top
        found[i] = end - a[i], rng.uniform(-0.25, 0.25) * top
        if loss.numeric() and i % 2:
            a[i], found[i] = -a[i], -found[i]
            if across:
                found[i] = end - a[i], 0.0
    found[::3, 1] = 0.0
    if across:
        found[:, 1] = 0.0
    return a, found


@pytest.mark.parametrize(
    "loss",
    [Hinge(), SquaredHinge(), Huber(0.2), Squared(), SquaredEpsilonInsensitive(0.3), EpsilonInsensitive(0.3)],
    ids=str,
)
def test_line_sums_along_two_ways_at_once_dual_values_are_a_parabola(loss: Any) -> None:
    a, both = ways(loss, across=False)
    linear, quadratic = np.zeros(2), np.zeros((2, 2))
    proposals_pass.py_func(targets(loss), S, RowLoss(C, loss, loss), a, both, linear, quadratic)
    here = sum(gain(loss, i, a[i]) for i in WEIGHTED)
    for step in np.array([[1.0, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, -0.7], [1.0, 0.8], [0.3, -1.0]]):
        there = sum(gain(loss, i, a[i] + both[i] @ step) for i in WEIGHTED)
        assert here + linear @ step + step @ quadratic @ step == pytest.approx(there, rel=1e-9)


@pytest.mark.parametrize("loss", [Logistic(), SquaredEpsilonInsensitive(0.3), EpsilonInsensitive(0.3)], ids=str)
def test_line_sums_along_a_way_that_is_no_parabola_they_are_bounded_by_one_that_ends_where_it_does(loss: Any) -> None:
    a, both = ways(loss, across=True)
    linear, quadratic = np.zeros(2), np.zeros((2, 2))
    proposals_pass.py_func(targets(loss), S, RowLoss(C, loss, loss), a, both, linear, quadratic)
    values = [sum(gain(loss, i, a[i] + t * both[i, 0]) for i in WEIGHTED) for t in (0.0, 0.5, 1.0)]
    bound = [values[0] + t * linear[0] + t * t * quadratic[0, 0] for t in (0.5, 1.0)]
    assert bound[0] < values[1]
    assert bound[1] == pytest.approx(values[2], rel=1e-9)
    assert linear[1] == quadratic[0, 1] == quadratic[1, 1] == 0.0
