"""Cutting planes: the optimum of LIBLINEAR, sums along a segment, the model's program, and planes that are below the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize as minimized

from streamsvm.losses import LOSSES
from streamsvm.solvers.cutting_plane import GRID, LEAST_PLANES, Bundle, CuttingPlane, LineSearch, minimize
from streamsvm.solvers.segment import SegmentSums
from streamsvm.types import Layout, Problem
from tests.axes import each_value
from tests.solvers.kernel_problems import solve
from tests.solvers.problems import epoch_blocks, problem_of, rows_of, signed_rows
from tests.solvers.test_interior_point import fuzzed, value


@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
@each_value(("seed", range(8)), ("loss, tolerance", [("hinge", 1e-8), ("squared_hinge", 1e-7)]))
def test_cutting_plane_optimum_is_that_of_liblinear(seed: int, loss: str, tolerance: float) -> None:
    from sklearn.svm import LinearSVC

    X, y, s, C = fuzzed(seed)
    problem = Problem(LOSSES[loss](), C, len(X), X.shape[1], 1, tolerance=tolerance)
    state, _, found = solve(CuttingPlane(planes=32), problem, X, y, s, block=37, passes=100)
    other = LinearSVC(C=C, loss=loss, dual=True, tol=1e-10, max_iter=20_000, random_state=0)
    other.fit(X.astype(np.float64), y, sample_weight=s.astype(np.float64))
    reached = value(LOSSES[loss](), X, y, s, C, np.append(other.coef_[0], other.intercept_[0]))
    assert found[-1].gap <= tolerance
    assert max(one.dual for one in found) <= reached * (1 + 1e-12)
    assert found[-1].primal <= reached * (1 + tolerance)
    assert value(LOSSES[loss](), X, y, s, C, state.point) == pytest.approx(found[-1].primal, rel=1e-11)


@pytest.mark.parametrize("loss", ["huber", "logistic"])
@pytest.mark.parametrize("seed", range(5))
def test_cutting_plane_losses_without_a_corner_have_their_optimum_too(seed: int, loss: str) -> None:
    """Against a quasi-Newton method that is told the slopes, on the definition of P."""
    X, y, s, C = fuzzed(seed)
    kind, Z = LOSSES[loss](), np.hstack([X.astype(np.float64), np.ones((len(X), 1))]) * y[:, None]

    def slopes(w: Any) -> Any:
        return w + C * ((s * np.array([kind.slope(m) for m in Z @ w])) @ Z)

    scale = 1.0 / np.sqrt(1.0 + C * (s @ Z**2))
    best = minimized(
        lambda u: value(kind, X, y, s, C, scale * u),
        np.zeros(Z.shape[1]),
        jac=lambda u: scale * slopes(scale * u),
        method="BFGS",
        options={"gtol": 1e-9, "maxiter": 5000},
    )
    problem = Problem(kind, C, len(X), X.shape[1], 1, tolerance=1e-6)
    state, _, found = solve(CuttingPlane(), problem, X, y, s, block=37, passes=100)
    assert found[-1].gap <= 1e-6
    assert max(one.dual for one in found) <= best.fun * (1 + 1e-12)
    assert value(kind, X, y, s, C, state.point) <= best.fun * (1 + 1e-6)


def test_cutting_plane_values_on_the_grid_are_those_of_the_definition() -> None:
    """Rows that end, rows that begin to have a loss, rows whose margin does not move; blocks of two workers."""
    problem, Z, (_, _, s) = problem_of(LOSSES["hinge"](0.7)), signed_rows(), rows_of()
    rng = np.random.default_rng(3)
    for direction in (rng.normal(size=Z.shape[1]), np.zeros(Z.shape[1])):
        w, parts = rng.normal(size=Z.shape[1]), [LineSearch(), LineSearch()]
        for k, block in enumerate(epoch_blocks(1)):
            f, df = SegmentSums(len(w)).add(problem, block, w, direction)
            parts[k % 2].add(problem, block, f, df)
        parts[0].merge(parts[1])
        found = parts[0].close(w, direction)
        points = w + GRID[:, None] * direction
        values = 0.5 * (points**2).sum(1) + problem.C * np.maximum(0.0, 0.7 - points @ Z.T) @ s.astype(float)
        assert found.primal == pytest.approx(values.min(), rel=1e-12)
        assert values[GRID == found.step] == pytest.approx(values.min(), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_cutting_plane_program_is_solved_to_rounding(seed: int) -> None:
    """Against the conditions of an optimum, which are sufficient; alike planes, constants of other sizes."""
    rng = np.random.default_rng(seed)
    K = int(rng.integers(1, 40))
    V = rng.normal(size=(K, int(rng.integers(1, 12)))) * 10.0 ** rng.integers(-2, 3)
    V[K // 2 :] = V[: K - K // 2] if seed % 3 == 0 else V[K // 2 :]
    g = rng.normal(size=K) * 10.0 ** rng.integers(-2, 5)
    G = V @ V.T
    theta = minimize(G, g, 0.0)
    slopes, scale = G @ theta - g, max(np.abs(G).max(), np.abs(g).max())
    assert theta.min() >= 0.0
    assert theta.sum() == pytest.approx(1.0, abs=1e-14)
    assert float(theta @ slopes) - slopes.min() <= 1e-11 * scale  # the duality gap of the simplex


@pytest.mark.parametrize("loss", [name for name in LOSSES if not LOSSES[name]().numeric()])
def test_planes_are_below_the_loss_sum_everywhere_and_touch_it(loss: str) -> None:
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


def test_planes_too_steep_for_float64_are_left_out() -> None:
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


def test_cutting_plane_memory_that_is_asked_for_holds_the_planes() -> None:
    """And half the planes are what a solver that is to do with less asks for, unless a number was given."""
    rng = np.random.default_rng(8)
    problem, solver = Problem(LOSSES["hinge"](), 1.0, 1000, 199, 1), CuttingPlane()
    bundle, layout = Bundle(200, 256), Layout(199, (1000,), None, ("-1", "1"), (500, 500))
    for _ in range(60):
        bundle.add(rng.normal(size=6), rng.normal(size=(6, 200)))
    held = sum(array.nbytes for array in (bundle.g, bundle.V, bundle.gram, bundle.theta))
    assert 0.2 * solver.cost(problem, layout).fixed < held < solver.cost(problem, layout).fixed
    half = solver.smaller(problem, ())
    assert half is not None
    assert half.cost(problem, layout).fixed < 0.6 * solver.cost(problem, layout).fixed
    assert half.memory_settings() == {"planes": 128}
    assert solver.smaller(problem, ("planes",)) is None
    assert CuttingPlane(planes=40).smaller(problem, ()) is None
    least = CuttingPlane(planes=2 * LEAST_PLANES).smaller(problem, ())
    assert least is not None
    assert least.memory_settings() == {"planes": LEAST_PLANES}
