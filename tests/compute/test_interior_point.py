"""Passes of the interior point, and the central path, against the formulas of their module in numpy; rows have weights, 0 among them."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from streamsvm.compute.passes import interior_point as interior_passes
from streamsvm.compute.passes.interior_point import Aim, Interior, center_line_pass, center_pass, central
from streamsvm.compute.passes.rows_in_memory import RowTerms
from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.rows import Float64
from tests.axes import each_value

N, C = 60, 0.7
LOSSES = [Hinge(), SquaredHinge(), Huber(0.25)]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda one: type(one).__name__)


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
    passes = [getattr(interior_passes, name) for name in ("system_pass", "step_pass", "move_pass")]
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
def test_interior_point_pass_values_at_a_point(loss: Any) -> None:
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


# -- the central path ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("curvature", "bound"), [(0.0, 0.5), (0.5, 4.0), (2.0, 0.5), (1.0, 1.0), (0.5, np.inf), (0.0, 4.0)]
)
def test_central_path_point_of_the_path_solves_its_equation_and_so_does_its_distance_from_the_bound(
    curvature: float, bound: float
) -> None:
    """The equation: z - curvature a + t / a - t / (bound - a) = 0 with a in (0, bound), compiled and as Python."""
    for t, z in itertools.product([1e-9, 1e-6, 1e-3, 0.1, 3.0], [-50.0, -5.0, -0.3, 0.0, 0.4, 1.0, 2.0, 30.0]):
        for run in (central, central.py_func):
            a, room = run(z, t, bound, curvature)
            assert 0.0 < a < bound
            assert room == bound == np.inf or a + room == pytest.approx(bound, rel=1e-12)
            terms = [z, -curvature * a, t / a, -t / room]
            assert abs(sum(terms)) <= 1e-8 * sum(map(abs, terms))


@each_loss
def test_central_path_slopes_along_a_line_are_those_of_the_points_and_their_derivative(loss: Any) -> None:
    rng = np.random.default_rng(3)
    y, s = rng.choice([-1.0, 1.0], 30).astype(np.float32), rng.choice([0.0, 0.5, 2.0], 30)
    f, df, C, target, step = rng.normal(size=30), rng.normal(size=30), 0.8, 0.05, 0.7
    rows = RowTerms(y, s, C, loss)

    def slope(at: float, run: Any = center_pass) -> float:
        points = Interior(*np.full((3, 30), np.nan))
        run(rows, f + at * df, target, points)
        there = s > 0.0
        assert not any(part[~there].any() for part in points)
        tops = np.array([loss.upper(C * weight) for weight in s[there]])
        np.testing.assert_allclose(points.below[there], target * s[there] / points.a[there], rtol=1e-9)
        np.testing.assert_allclose(points.above[there], target * s[there] / (tops - points.a[there]), rtol=1e-6)
        for a, weight, m in zip(points.a[there], s[there], (y * (f + at * df))[there], strict=True):
            bend, top = loss.curvature(C * weight), loss.upper(C * weight)
            z = 1.0 - loss.conjugate_slope(0.0, C * weight) - m
            assert z - bend * a + target * weight / a - target * weight / (top - a) == pytest.approx(0.0, abs=1e-6)
        return -float(points.a @ (y * df))

    change = (slope(step + 1e-5) - slope(step - 1e-5)) / 2e-5
    for run, points in ((center_line_pass, center_pass), (center_line_pass.py_func, center_pass.py_func)):
        found = run(rows, f, df, target, step)
        assert found[0] == pytest.approx(slope(step, points), rel=1e-7)
        assert found[1] == pytest.approx(change, rel=1e-5)
