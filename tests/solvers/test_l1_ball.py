"""Least squares over the l1 ball: the optimum of the path of the lasso by the four methods, a bound below it, and pools of few columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import lars_path_gram

import streamsvm as sv
from streamsvm.losses import Squared
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.frank_wolfe import FrankWolfe, ModifiedFrankWolfe, Partan, Swap
from streamsvm.solvers.problem_kinds import Regression
from streamsvm.solvers.regularizers import L1Ball
from streamsvm.types import Problem
from tests.arrays import csr_of
from tests.solvers.kernel_problems import solve

METHODS = {"fw": FrankWolfe, "mfw": ModifiedFrankWolfe, "swap": Swap, "partan": Partan}


def fuzzed(seed: int) -> tuple[Any, Any, Any, float]:
    """Rows of columns of several scales, targets that few of them make, weights with 0 among them, and a share of the free norm."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(30, 120)), int(rng.integers(2, 12))
    X = (rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-0.5, 0.5, d)).astype(np.float32)
    w = rng.normal(size=d) * (rng.random(d) < 0.5)
    t = X @ w + 0.3 * rng.normal(size=n) + 0.5
    return X, t, rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32), float(rng.choice([0.2, 0.5, 0.8, 1.5]))


def problem_of(X: Any, radius: float, tolerance: float) -> Problem:
    return Problem(
        Squared(0.5), 1.0, len(X), X.shape[1], Regression(), 1.0, tolerance=tolerance, regularizer=L1Ball(radius)
    )


def value(X: Any, t: Any, s: Any, w: Any) -> float:
    """1/2 sum s (w.x - t)^2, from its definition, the constant feature last."""
    r = np.column_stack([X.astype(np.float64), np.ones(len(X))]) @ w - t
    return float(0.5 * s.astype(np.float64) @ r**2)


def optimum(X: Any, t: Any, s: Any, radius: float) -> float:
    """The least value in the ball: along the path of the lasso ||w||_1 grows in straight pieces, up to that of least squares."""
    Z, s = np.column_stack([X.astype(np.float64), np.ones(len(X))]), s.astype(np.float64)
    _, _, path = lars_path_gram((Z * s[:, None]).T @ t, (Z * s[:, None]).T @ Z, n_samples=1, method="lasso")
    norms = np.abs(path).sum(0)
    if radius >= norms[-1]:
        return value(X, t, s, path[:, -1])
    k = int(np.searchsorted(norms, radius))
    share = (radius - norms[k - 1]) / (norms[k] - norms[k - 1])
    return value(X, t, s, (1.0 - share) * path[:, k - 1] + share * path[:, k])


def radius_of(X: Any, t: Any, s: Any, share: float) -> float:
    """A share of ||w||_1 of least squares."""
    Z, root = np.column_stack([X.astype(np.float64), np.ones(len(X))]), np.sqrt(s.astype(np.float64))
    return share * float(np.abs(np.linalg.lstsq(Z * root[:, None], t * root, rcond=None)[0]).sum())


@pytest.mark.parametrize("seed", range(4))
def test_l1_ball_optimum_is_that_of_the_path_and_the_bound_is_below_it(seed: int) -> None:
    X, t, s, share = fuzzed(seed)
    name, radius = list(METHODS)[seed % 4], radius_of(X, t, s, share)
    solver = L1Ball(1.0).adapt(METHODS[name](sample=5 if seed % 3 == 0 else 0))
    tolerance = 1e-3 if name in {"mfw", "swap"} else 3e-2  # the others go to and fro between vertices of a face
    state, _, found = solve(solver, problem_of(X, radius, tolerance), X, t, s, block=17, passes=40)
    best, w = optimum(X, t, s, radius), solver.solution(state).w
    assert found[-1].gap <= tolerance
    assert max(one.dual for one in found) <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= found[-1].primal <= best * (1 + 1.02 * tolerance)
    assert np.abs(w).sum() <= radius * (1 + 1e-12)
    assert value(X, t, s, w) == pytest.approx(found[-1].primal, rel=1e-9)


def test_l1_ball_pool_of_few_columns_ends_at_the_same_optimum_with_the_others_at_0() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 200)).astype(np.float32)
    t = X[:, [3, 50, 120]] @ np.array([2.0, -1.0, 0.5]) + 0.1 * rng.normal(size=300)
    s = np.ones(300, np.float32)
    problem = problem_of(X, 3.0, 1e-3)
    whole, _, first = solve(L1Ball(1.0).adapt(Partan()), problem, X, t, s, passes=30)
    state, _, found = solve(L1Ball(1.0).adapt(Partan(pool=12)), problem, X, t, s, passes=60)
    assert len(whole.pool) == 200
    assert len(state.pool) == 12
    assert found[-1].gap <= 1e-3
    assert found[-1].primal == pytest.approx(first[-1].primal, rel=1e-3)
    w = L1Ball(1.0).adapt(Partan()).solution(state).w
    assert set(np.flatnonzero(np.abs(w[:-1]) > 0.05)) == {3, 50, 120}
    assert found[-1].facts["columns_used"] == np.count_nonzero(w[:-1]) <= 40


def test_l1_ball_pool_smaller_than_the_solution_ends_without_a_false_proof() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 20)).astype(np.float32)
    t, s = X @ np.ones(20) + 0.1 * rng.normal(size=80), np.ones(80, np.float32)
    solver, radius = L1Ball(1.0).adapt(Swap(pool=8)), 15.0
    state, _, found = solve(solver, problem_of(X, radius, 1e-3), X, t, s, passes=12)
    best, w = optimum(X, t, s, radius), solver.solution(state).w
    assert found[-1].gap > 1e-3
    assert found[-1].dual <= best <= found[-1].primal == pytest.approx(value(X, t, s, w), rel=1e-9)


def test_l1_ball_sparse_rows_are_the_same_problem() -> None:
    rng = np.random.default_rng(2)
    X = (rng.normal(size=(200, 60)) * (rng.random((200, 60)) < 0.2)).astype(np.float32)
    t, s, problem = rng.normal(size=200), np.ones(200, np.float32), problem_of(X, 0.7, 1e-4)
    for pool in (4096, 20):
        solver = L1Ball(1.0).adapt(ModifiedFrankWolfe(pool=pool))
        one, two = (
            solve(solver, problem, rows, t, s, passes=60)[2][-1].primal for rows in (Dense(X, 1.0), csr_of(X, 1.0))
        )
        assert one == pytest.approx(two, rel=1e-4)


@pytest.mark.parametrize("away", ["exact", "drawn"])
def test_l1_ball_sampled_swaps_end_in_few_passes(away: str, tmp_path: Path) -> None:
    """A swap has its length by K between its two vertices: with that of another vertex these took 23 passes, and all 40."""
    X, t, s, share = fuzzed(4)
    sv.ingest(X, tmp_path / "s.zarr", y=t, task="regression")
    options: dict[str, Any] = {"loss": "squared", "solver": "swap", "options": {"sample": 5, "away": away}}
    options |= {"l1_ball": radius_of(X, t, np.ones_like(s), share), "loss_options": {"factor": 0.5}, "tolerance": 1e-3}
    found = sv.fit(tmp_path / "s.zarr", tmp_path / "m.ssvm", max_passes=40, **options)
    assert found.certified
    assert found.training.passes <= 10


def test_l1_ball_open_steps_and_a_gap_of_their_own_end_a_run() -> None:
    X, t, s, share = fuzzed(11)
    radius = radius_of(X, t, s, share)
    solver = L1Ball(1.0).adapt(FrankWolfe(step="open", epsilon=0.5))
    _, _, found = solve(solver, problem_of(X, radius, 1e-12), X, t, s, passes=20)
    assert found[-1].final
    assert found[-1].facts["simplex_gap"] <= 0.5
    assert found[-1].primal - optimum(X, t, s, radius) <= 0.5


@pytest.mark.parametrize(
    ("linear", "quadratic"), [(9.0, 2.0), (6.5, 0.25), (8.0, 0.5), (6.0, 2.0), (5.0, 2.0), (-1.0, 0.5), (9.0, 0.0)]
)
def test_l1_ball_scales_slopes_to_the_best_dual_point(linear: float, quadratic: float) -> None:
    """Of the radius 2 and a largest |v_j| of 3 it takes slopes that gain more than 6."""
    v = np.array([1.0, -3.0, 2.0])
    ball = L1Ball(2.0)
    _, u, dual, _ = ball.bounds(Squared(0.5), (0.0, linear, quadratic), np.zeros(3), v)
    assert dual == pytest.approx(ball.dual(u * linear - u * u * quadratic, u * v), abs=1e-12)
    if quadratic > 0.0:
        tried = [ball.dual(t * linear - t * t * quadratic, t * v) for t in np.linspace(0.0, 3.0, 61)]
        assert dual == pytest.approx(max(tried), abs=1e-12)
    assert (u > 0.0) == (dual > 0.0) == (linear > 6.0 and quadratic > 0.0)
