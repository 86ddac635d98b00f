"""Working sets: pairs, free coordinates and pools against explicit matrices and a general solver."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.compute.passes.smo import smo
from streamsvm.kernels import RBF, Linear
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.pool import Form, Pool, extremes, violation
from streamsvm.solvers.kernel.working_set import (
    Interval,
    Progress,
    optimize_working_set,
    solve_box,
    solve_free_coordinates,
    update_gradient,
)
from tests.solvers.kernel_problems import gram64, noisy_rows

GAMMA = 0.5


def problem(q: int, seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(q, q + 3))
    M = (A @ A.T / q + 0.1 * np.eye(q)).astype(np.float32)
    low, high = -rng.random(q), rng.random(q)
    return M, low, high, rng.normal(size=q)


def objective(M: Any, p: Any, x: Any) -> float:
    return float(0.5 * x @ M.astype(np.float64) @ x - p @ x)


@given(st.integers(2, 40), st.integers(0, 10_000))
def test_working_set_smo_stays_feasible_and_ends_optimal(q: int, seed: int) -> None:
    M, low, high, p = problem(q, seed)
    x, v = np.zeros(q), p.copy()
    steps = smo(M, x, low, high, v, 1e-9, 1_000_000)
    assert steps < 1_000_000
    assert abs(x.sum()) < 1e-9
    assert (x >= low).all()
    assert (x <= high).all()
    np.testing.assert_allclose(v, p - M.astype(np.float64) @ x, atol=1e-6)
    grow, shrink = v[x < high], v[x > low]
    assert len(grow) == 0 or len(shrink) == 0 or grow.max() - shrink.min() <= 1e-9


def test_working_set_smo_finds_what_a_general_solver_finds() -> None:
    from scipy.optimize import minimize

    M, low, high, p = problem(12, 5)
    x, v = np.zeros(12), p.copy()
    smo(M, x, low, high, v, 1e-10, 100_000)
    other = minimize(
        lambda z: objective(M, p, z),
        np.zeros(12),
        jac=lambda z: M.astype(np.float64) @ z - p,
        bounds=list(zip(low, high, strict=True)),
        constraints={"type": "eq", "fun": np.sum, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert objective(M, p, x) == pytest.approx(other.fun, abs=1e-7)


def pool_of(n: int = 300) -> tuple[Pool, Any]:
    X, y = noisy_rows(n)
    z, zero = np.ones(n), np.zeros(n)
    p = y.astype(np.float64)
    pool = Pool(
        Dense(X), np.arange(n), z, zero + 0.3, np.minimum(y, 0.0) * 2.0, np.maximum(y, 0.0) * 2.0, p, zero, p.copy()
    )
    return pool, gram64(X, X, GAMMA) + 0.3 * np.eye(n)


def solved(pool: Pool, working: int, tolerance: float) -> None:
    known = Progress(10_000)
    while violation(pool) > tolerance and not known.is_over(np.inf):
        optimize_working_set(pool, Form(RBF(GAMMA), 4), working, known, tolerance)


@pytest.mark.parametrize("working", [16, 64, 1000])
def test_working_set_pool_is_solved_whatever_the_working_set(working: int) -> None:
    pool, M = pool_of()
    solved(pool, working, 1e-5)
    top, bottom = extremes(pool)
    assert top - bottom <= 1e-5
    np.testing.assert_allclose(pool.v, pool.p - M @ pool.x, atol=1e-4)
    assert abs(pool.x.sum()) < 1e-9
    whole, _ = pool_of()
    solved(whole, 1000, 1e-7)
    assert objective(M, pool.p, pool.x) == pytest.approx(objective(M, pool.p, whole.x), rel=1e-6)


def test_working_set_travel_is_that_of_every_working_set_and_not_of_the_whole_way() -> None:
    """What one working set moves and another takes back has been added to f twice."""
    pool, _ = pool_of()
    known, travel, steps = Progress(10), 0.0, 0
    for _ in range(4):
        before, made = pool.x.copy(), known.moves.steps
        optimize_working_set(pool, Form(RBF(GAMMA), 4), 40, known, 1e-6)
        travel += float(np.abs(pool.x - before).sum())
        steps += known.moves.steps > made
        assert known.moves.travel == pytest.approx(travel, rel=1e-12)
    assert (known.rounds, steps) == (6, 4)


@pytest.mark.parametrize("ridge", [0.3, 300.0])
def test_working_set_ridge_that_hides_small_kernel_values_is_added_in_float64(ridge: float) -> None:
    """Kernel values of 1e-9 are right to 1e-16 in float32, which has no digit of them left beside a ridge."""
    n = 40
    rng = np.random.default_rng(0)
    X = (1e-4 * rng.normal(size=(n, 4))).astype(np.float32)
    p, zero = np.where(rng.random(n) < 0.5, 1.0, -1.0), np.zeros(n)
    bounds = np.full(n, -np.inf), np.full(n, np.inf)
    pool = Pool(Dense(X), np.arange(n), np.ones(n), zero + ridge, *bounds, p, zero.copy(), p.copy())
    optimize_working_set(pool, Form(Linear(), 4), n, Progress(10), 1e-6)
    assert np.abs(pool.x).max() > 0.1 / ridge
    K = X.astype(np.float64) @ X.T.astype(np.float64)
    atol = 1e-6 * np.abs(K @ pool.x).max() + 1e-15
    np.testing.assert_allclose(pool.p - pool.v - ridge * pool.x, K @ pool.x, rtol=0.0, atol=atol)


def test_working_set_signs_and_the_constant_enter_the_matrix() -> None:
    pool, _ = pool_of(50)
    y = pool.p.copy()
    pool.sign[:] = y
    M = np.outer(y, y) * (gram64(pool.X.values, pool.X.values, GAMMA) + 0.25) + 0.3 * np.eye(50)
    weights = np.linspace(-1.0, 1.0, 50)
    pool.x = weights.copy()
    pool.v = -pool.ridge * weights
    update_gradient(pool, Form(RBF(GAMMA), 4, 0.25), pool.X, y * weights)
    np.testing.assert_allclose(pool.v, -M @ weights, atol=1e-5)


def circle(count: int, C: float) -> tuple[Any, Any, Interval]:
    """A smooth kernel's Gram matrix, the linear term, and the box of labels of which one in ten is wrong."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (count, 2))
    y = np.where((np.square(X).sum(1) < 0.6) ^ (rng.random(count) < 0.1), 1.0, -1.0)
    M = np.exp(-0.5 * np.square(X[:, None] - X[None]).sum(2))
    return M, y, Interval(np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 25), rank=st.integers(1, 25))
def test_box_problem_descends_and_stays_in_the_box(seed: int, n: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    A, p = rng.normal(size=(n, min(rank, n))), rng.normal(size=n)
    M, box = A @ A.T, Interval(np.zeros(n), rng.choice([0.5, 2.0, 100.0], n))
    x = rng.choice([0.0, 0.25, 0.5], n)
    v = p - M @ x
    before, total = objective(M, p, x), x.sum()
    solve_free_coordinates(M, x, v, box)
    assert objective(M, p, x) <= before + 1e-12 * (1 + abs(before))
    assert ((x >= box.low) & (x <= box.high)).all()
    # each of at most 50 systems is off by roundings of its solution, which the box bounds
    assert x.sum() == pytest.approx(total, abs=1e-9 * box.high.sum())
    np.testing.assert_allclose(v, p - M @ x, atol=1e-9 * (1 + np.abs(M).sum(1).max()))


def test_box_problem_ends_at_the_optimum_of_free_coordinates() -> None:
    M, p, box = circle(60, 1e3)
    x, v = np.zeros(60), p.copy()
    smo(M, x, box.low, box.high, v, 1e-3, 600)
    solve_free_coordinates(M, x, v, box)
    free = box.free(x)
    assert len(free) > 3
    assert np.ptp(v[free]) < 1e-9 * np.abs(v).max()


def test_box_problem_reaches_what_pairs_alone_do_not() -> None:
    M, p, box = circle(150, 1e6)
    alone, v = np.zeros(150), p.copy()
    assert smo(M, alone, box.low, box.high, v, 1e-6, 200_000) == 200_000
    together, v = np.zeros(150), p.copy()
    assert solve_box(M, together, v, box, 1e-6, most=200_000, deadline=math.inf) < 200_000
    grow, shrink = v[together < box.high].max(), v[together > box.low].min()
    assert grow - shrink <= 1e-6
    assert objective(M, p, together) < objective(M, p, alone)
