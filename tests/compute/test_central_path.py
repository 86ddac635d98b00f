"""Where a row is on the central path: the root of its equation, whatever the curvature of its loss."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.interior_point import Interior, _small_root, center_line_pass, center_pass, central
from streamsvm.compute.passes.rows_in_memory import RowTerms
from streamsvm.losses import Hinge, Huber, SquaredHinge


@pytest.mark.parametrize("curvature", [0.0, 0.5, 1.0, 2.0])
def test_central_path_small_root_solves_its_equation(curvature: float) -> None:
    """The equation: z - curvature a + t / a - t / (bound - a) = 0 with a in (0, bound / 2], compiled and as Python."""
    for t, bound, slope in itertools.product([1e-6, 0.1, 3.0], [0.5, 1.0, 4.0], [-5.0, -0.3, 0.0, 0.4, 1.0]):
        z = min(slope, 0.5 * curvature * bound)
        for root in (_small_root, _small_root.py_func):
            a = root(z, t, bound, curvature)
            assert 0.0 < a <= 0.5 * bound * (1.0 + 1e-12)
            terms = [z, -curvature * a, t / a, -t / (bound - a)]
            assert abs(sum(terms)) <= 1e-8 * sum(map(abs, terms))


@pytest.mark.parametrize("curvature", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("bound", [0.5, 4.0, np.inf])
def test_central_path_point_of_the_path_solves_its_equation_and_so_does_its_distance_from_the_bound(
    curvature: float, bound: float
) -> None:
    """As above, anywhere in (0, bound); without a bound there is a curvature."""
    if bound == np.inf and curvature == 0.0:
        return
    for t, z in itertools.product([1e-9, 1e-3, 0.1, 3.0], [-50.0, -0.3, 0.0, 0.4, 1.0, 2.0, 30.0]):
        for run in (central, central.py_func):
            a, room = run(z, t, bound, curvature)
            assert 0.0 < a < bound
            assert room == bound == np.inf or a + room == pytest.approx(bound, rel=1e-12)
            terms = [z, -curvature * a, t / a, -t / room]
            assert abs(sum(terms)) <= 1e-8 * sum(map(abs, terms))


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Huber(0.25)], ids=lambda loss: type(loss).__name__)
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
