"""Cutting planes: the optimum of LIBLINEAR, planes that are below the loss, the program of the model, and values along a line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.losses import LOSSES
from streamsvm.solvers.cutting_plane import GRID, Bundle, CuttingPlane, LineSearch, minimize_model
from streamsvm.solvers.line_search import SegmentSums
from streamsvm.types.state import merge_states
from tests.axes import each_value
from tests.solvers.drawn_rows import fuzzed, solve_as_liblinear
from tests.solvers.problems import epoch_blocks, problem_of, rows_of, signed_rows


@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
@each_value(("seed", range(6)), ("loss, tolerance", [("hinge", 1e-8), ("squared_hinge", 1e-7)]))
def test_cutting_plane_optimum_is_that_of_liblinear(seed: int, loss: str, tolerance: float) -> None:
    drawn = fuzzed(seed)
    solver = CuttingPlane(planes=32)
    state, _, found = solve_as_liblinear(solver, drawn, loss, tolerance, block=37, passes=100)
    assert found[-1].gap <= tolerance
    assert drawn.primal(LOSSES[loss](), state.point) == pytest.approx(found[-1].primal, rel=1e-11)


def test_cutting_plane_values_on_the_grid_are_those_of_the_definition() -> None:
    """Rows that end, rows that begin to have a loss, rows whose margin does not move; blocks of two workers."""
    problem, Z, (_, _, s) = problem_of(LOSSES["hinge"](0.7)), signed_rows(), rows_of()
    rng = np.random.default_rng(3)
    for direction in (rng.normal(size=Z.shape[1]), np.zeros(Z.shape[1])):
        w, parts = rng.normal(size=Z.shape[1]), [LineSearch(), LineSearch()]
        for k, block in enumerate(epoch_blocks(1)):
            f, df = SegmentSums(len(w)).add(problem, block, w, direction)
            parts[k % 2].add(problem, block, f, df)
        step, primal = merge_states(parts).close(w, direction)
        points = w + GRID[:, None] * direction
        values = 0.5 * (points**2).sum(1) + problem.C * np.maximum(0.0, 0.7 - points @ Z.T) @ s.astype(float)
        assert primal == pytest.approx(values.min(), rel=1e-12)
        assert values[GRID == step] == pytest.approx(values.min(), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_cutting_plane_program_is_solved_to_rounding(seed: int) -> None:
    """Against the conditions of an optimum, which are sufficient; alike planes, constants of other sizes."""
    rng = np.random.default_rng(seed)
    K = int(rng.integers(1, 40))
    V = rng.normal(size=(K, int(rng.integers(1, 12)))) * 10.0 ** rng.integers(-2, 3)
    V[K // 2 :] = V[: K - K // 2] if seed % 3 == 0 else V[K // 2 :]
    g = rng.normal(size=K) * 10.0 ** rng.integers(-2, 5)
    G = V @ V.T
    theta = minimize_model(G, g, 0.0)
    slopes, scale = G @ theta - g, max(np.abs(G).max(), np.abs(g).max())
    assert theta.min() >= 0.0
    assert theta.sum() == pytest.approx(1.0, abs=1e-14)
    assert float(theta @ slopes) - slopes.min() <= 1e-11 * scale  # the duality gap of the simplex


@pytest.mark.parametrize("loss", [name for name in LOSSES if not LOSSES[name]().numeric()])
def test_cutting_plane_planes_are_below_the_loss_sum_everywhere_and_touch_it(loss: str) -> None:
    problem, Z, (_, _, s), kind = problem_of(LOSSES[loss]()), signed_rows(), rows_of(), LOSSES[loss]()
    rng = np.random.default_rng(2)
    w, d = rng.normal(size=(2, Z.shape[1]))
    sums = SegmentSums(len(w))
    for block in epoch_blocks(1):
        sums.add(problem, block, w, d)
    g, V = sums.planes()
    assert len(g) == 6

    def losses(at: Any) -> float:
        return float(problem.C * sum(c * kind.value(m) for c, m in zip(s.astype(float), Z @ at, strict=True)))

    for at in rng.normal(size=(50, len(w))) * rng.choice([0.1, 1.0, 10.0], (50, 1)):
        assert (g - V @ at).max() <= losses(at) * (1 + 1e-12)
    for t in (1.0, 0.0, 0.03):
        assert (g - V @ (w + t * d)).max() == pytest.approx(losses(w + t * d), rel=1e-10)


def test_cutting_plane_planes_too_steep_for_float64_are_left_out() -> None:
    """What they lead to would overflow; of raw columns each led to a steeper one, and the twentieth pass to NaN."""
    bundle = Bundle(2, 12)
    assert bundle.add(np.array([1.0, 2.0, np.inf]), np.array([[1.0, 0.0], [1e60, 1e200], [0.0, 1.0]])) == 1
    w, bound = bundle.solve(1e-12)
    np.testing.assert_allclose((*w, bound), (1.0, 0.0, 0.5), atol=1e-6)
    assert bundle.add(np.array([2.0]), np.array([[0.0, -1e150]])) == 0


def test_cutting_plane_bound_does_not_fall_when_planes_are_left_out() -> None:
    rng = np.random.default_rng(8)
    bundle, bounds = Bundle(4, 12), []
    for _ in range(15):
        center, size = rng.normal(size=4), 3
        V = center + rng.normal(size=(size, 4))
        bundle.add(rng.normal(size=size), V)
        bounds.append(bundle.solve(0.0)[1])
        assert len(bundle.g) <= 12
        np.testing.assert_allclose(bundle.gram, bundle.V @ bundle.V.T, rtol=1e-12, atol=1e-12)
    assert (np.diff(bounds) >= -1e-10).all()
    assert bounds[-1] > bounds[0]
