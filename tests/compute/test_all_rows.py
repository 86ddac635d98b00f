"""Passes of the interior point and of steps of Newton's method, against the formulas of their module in numpy; rows have weights, 0 among them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from streamsvm.compute.passes import interior_point, rows_in_memory
from streamsvm.compute.passes import interior_point as interior_passes
from streamsvm.compute.passes.interior_point import Aim, Interior
from streamsvm.compute.passes.rows_in_memory import RowTerms
from streamsvm.losses import Hinge, Huber, Logistic, SquaredEpsilonInsensitive, SquaredHinge
from streamsvm.rows import Float64
from tests.axes import each_value

N, C = 60, 0.7
each_loss = pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Huber(0.25)], ids=lambda one: type(one).__name__)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


class Case(NamedTuple):
    """An interior point; everything of the rows that count, those of weight 0 left out, as the formulas have it."""

    rows: RowTerms
    at: Interior
    f: Float64
    there: Any
    C_i: Float64
    upper: Float64
    room: Float64

    def of(self, values: Any) -> Any:
        """Those of the rows that count."""
        return values[self.there]


def case(loss: Any) -> Case:
    rng = np.random.default_rng(6)
    y, s = rng.choice([-1.0, 1.0], N).astype(np.float32), rng.choice([0.0, 0.5, 1.0, 3.0], N)
    there = s > 0.0
    upper = np.array([loss.upper(weight) for weight in C * s])
    a = np.minimum(upper, 2.0) * rng.uniform(0.05, 0.95, N)
    at = Interior(a, rng.uniform(0.1, 2.0, N), rng.uniform(0.1, 2.0, N) * np.isfinite(upper))
    rows = RowTerms(y, s, C, loss)
    return Case(rows, at, rng.standard_normal(N) * 2.0, there, C * s[there], upper[there], (upper - a)[there])


class Step(NamedTuple):
    """What a step towards an aim is, by the formulas, of the rows that count."""

    theta: Float64
    right: Float64
    da: Float64
    below: Float64
    above: Float64


def targets(given: Case, aim: Aim, affine: Float64) -> tuple[Float64, Float64]:
    """What the products are to change by: up to the aim, less what the affine step adds to them beyond its linear part."""
    a, below, above = (given.of(part) for part in given.at)
    da = given.of(affine)
    d_below, d_above = -below * (1.0 + da / a), -above * (1.0 - da / given.room)
    low = aim.target - below * a - aim.correction * da * d_below
    room = np.where(np.isfinite(given.room), given.room, 0.0)
    high = aim.target - above * room + aim.correction * da * d_above
    return low, np.where(np.isfinite(given.room), high, 0.0)


def expected(given: Case, aim: Aim, affine: Float64, df: Float64) -> Step:
    loss = given.rows.loss
    a, below, above = (given.of(part) for part in given.at)
    y, f = given.of(given.rows.y), given.of(given.f)
    low, high = targets(given, aim, affine)
    bend = np.array([loss.curvature(weight) for weight in given.C_i])
    slope = np.array([loss.conjugate_slope(x, weight) for x, weight in zip(a, given.C_i, strict=True)])
    theta = 1.0 / (bend + below / a + above / given.room)
    right = 1.0 - slope - y * f + below - above + low / a - high / given.room
    da = theta * (right - y * given.of(df))
    return Step(theta, right, da, (low - below * da) / a, (high + above * da) / given.room)


AIMS = [Aim(0.0, 0.0), Aim(0.3, 0.0), Aim(0.2, 0.8)]


@each_loss
@each_value(("aim", AIMS), ("python", [False, True]))
def test_interior_point_pass_step_is_what_the_formulas_say(loss: Any, aim: Aim, python: bool) -> None:
    """The system, the step and how much of it stays inside, and where it leads."""
    given, rng = case(loss), np.random.default_rng(1)
    affine, df = rng.standard_normal(N) * 0.1, rng.standard_normal(N)
    step = expected(given, aim, affine, df)
    passes = [getattr(interior_point, name) for name in ("system_pass", "step_pass", "move_pass")]
    system, find, move = (one.py_func for one in passes) if python else passes
    theta, right, da = np.full(N, 7.0), np.full(N, 7.0), np.full(N, 7.0)
    system(given.rows, given.f, given.at, aim, affine, theta, right)
    same(given.of(theta), step.theta)
    same(given.of(right), step.right)
    longest = find(given.rows, given.at, aim, affine, theta, right, df, da)
    same(given.of(da), step.da)
    for part in (theta, right, da):
        assert not part[~given.there].any()
    ends = [given.of(given.at.a), given.of(given.at.below), given.room, given.of(given.at.above)]
    moved = [step.da, step.below, -step.da, step.above]
    most = [(-x[d < 0.0] / d[d < 0.0]).min(initial=np.inf) for x, d in zip(ends, moved, strict=True)]
    assert longest == pytest.approx(min(1.0, *most))
    before = Interior(*(part.copy() for part in given.at))
    move(given.rows, given.at, aim, affine, da, 0.9 * longest)
    for part, old, d in zip(given.at, before, (step.da, step.below, step.above), strict=True):
        same(given.of(part), given.of(old) + 0.9 * longest * d)
        np.testing.assert_array_equal(part[~given.there], old[~given.there])


@each_loss
def test_interior_point_pass_step_that_stays_inside_is_taken_whole(loss: Any) -> None:
    """And one that does not as far as the nearest end: of a row at 0, or at its upper bound."""
    given, aimed = case(loss), Aim(1e3, 0.0)  # multipliers rise
    ones, none = np.ones(N), np.zeros(N)
    assert interior_passes.step_pass(given.rows, given.at, aimed, none, ones * 1e-9, ones, none, np.empty(N)) == 1.0
    for right, end in [(-ones, given.of(given.at.a)), (ones, given.room)]:
        found = interior_passes.step_pass(given.rows, given.at, aimed, none, 10.0 * ones, right, none, np.empty(N))
        assert found == pytest.approx(min(1.0, end.min() / 10.0))


@each_loss
@pytest.mark.parametrize("length", [0.0, 0.4, 1.0])
def test_interior_point_pass_products_after_an_affine_step(loss: Any, length: float) -> None:
    given, rng = case(loss), np.random.default_rng(2)
    da = rng.standard_normal(N) * 0.1
    a, below, above = (given.of(part) for part in given.at)
    d = given.of(da)
    lower = (a + length * d) * (below - length * below * (1.0 + d / a))
    box = np.isfinite(given.room)
    upper = (given.room - length * d)[box] * (above - length * above * (1.0 - d / given.room))[box]
    found = interior_passes.affine_products(given.rows, given.at, da, length)
    assert found == pytest.approx(lower.sum() + upper.sum())


@each_loss
def test_values_at_a_point(loss: Any) -> None:
    given, slopes = case(loss), np.full(N, 7.0)
    losses, linear, quadratic, products = interior_passes.value_pass(given.rows, given.f, given.at, slopes)
    a, below, above = (given.of(part) for part in given.at)
    y, f = given.of(given.rows.y), given.of(given.f)
    assert losses == pytest.approx(sum(weight * loss.value(m) for weight, m in zip(given.C_i, y * f, strict=True)))
    gains = [x - loss.conjugate(x, weight) for x, weight in zip(a, given.C_i, strict=True)]
    assert linear - quadratic == pytest.approx(sum(gains))
    half = [0.5 * x - loss.conjugate(0.5 * x, weight) for x, weight in zip(a, given.C_i, strict=True)]
    assert 0.5 * linear - 0.25 * quadratic == pytest.approx(sum(half))
    box = np.isfinite(given.room)
    assert products == pytest.approx((below * a).sum() + (above[box] * given.room[box]).sum())
    same(given.of(slopes), a * y)
    assert not slopes[~given.there].any()


@pytest.mark.parametrize("bound", [1.0, 1e-200, np.inf])
def test_interior_point_pass_what_rounding_takes_to_an_end_stays_inside(bound: float) -> None:
    for a in (0.0, -1.0, bound, 2.0 * bound, 0.5 * bound):
        assert 0.0 < interior_passes.inside(a, bound) < bound or a == bound == np.inf
    assert interior_passes.inside(0.75 * bound, bound) == 0.75 * bound


@pytest.mark.parametrize("loss", [SquaredHinge(), Huber(0.25), Logistic(2.0), SquaredEpsilonInsensitive(0.1)], ids=str)
@pytest.mark.parametrize("t", [0.0, 0.6])
def test_interior_point_pass_derivatives_along_a_line(loss: Any, t: float) -> None:
    given, rng = case(SquaredHinge()), np.random.default_rng(3)
    y, df = given.rows.y.astype(np.float64), rng.standard_normal(N)
    f = given.f + t * df
    m, sign = (f - y, np.ones(N)) if loss.numeric() else (y * f, y)
    weights = C * given.rows.s
    slope = sum(w * loss.slope(at) * g * d for w, at, g, d in zip(weights, m, sign, df, strict=True))
    bend = sum(w * loss.second_derivative(at) * d * d for w, at, d in zip(weights, m, df, strict=True))
    assert bend > 0.0
    found = rows_in_memory.line_pass(given.rows.y, given.rows.s, given.f, df, C, loss, t)
    assert found == pytest.approx((slope, bend))
