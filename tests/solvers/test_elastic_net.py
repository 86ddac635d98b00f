"""The elastic net: the optimum of a slow proximal gradient, columns that are ruled out for good reason, and pools of few columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import LOSSES
from streamsvm.rows import Dense
from streamsvm.solvers.elastic_net import ProximalNewton, screen_columns
from streamsvm.solvers.evaluation import PointSums
from streamsvm.solvers.regularizers import ElasticNet
from streamsvm.types import Block, Problem
from tests.arrays import csr_of
from tests.solvers.kernel_problems import solve
from tests.solvers.problems import kind_of

SMOOTH = ("squared", "squared_hinge", "logistic", "squared_epsilon_insensitive", "huber")


def values_of(name: str, m: Any) -> tuple[Any, Any]:
    """l(m) and l'(m) of the smooth losses, from what textbooks say of them."""
    if name == "squared":
        return m * m, 2.0 * m
    if name == "logistic":
        return np.logaddexp(0.0, -m), -1.0 / (1.0 + np.exp(m))
    if name == "squared_hinge":
        lack = np.maximum(1.0 - m, 0.0)
        return lack * lack, -2.0 * lack
    if name == "squared_epsilon_insensitive":
        lack = np.sign(m) * np.maximum(np.abs(m) - 0.1, 0.0)
        return lack * lack, 2.0 * lack
    mu, lack = LOSSES[name]().mu, 1.0 - m
    b = np.clip((lack + mu) / (2.0 * mu), 0.0, 1.0)  # l(m) = max_b b (1 + mu - m) - mu b^2
    return b * (lack + mu) - mu * b * b, -b


def fuzzed(seed: int, name: str) -> tuple[Any, Any, Any]:
    """Rows of columns of several scales, two of them nearly alike, targets that few make, weights with 0 among them."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(30, 120)), int(rng.integers(2, 14))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-0.5, 0.5, d)
    X[:, 0] = X[:, -1] + 0.1 * rng.normal(size=n)
    t = X @ (rng.normal(size=d) * (rng.random(d) < 0.5)) + 0.3 * rng.normal(size=n) + 0.5
    y = t if LOSSES[name]().numeric() else np.where(t > 0.5, 1.0, -1.0).astype(np.float32)
    return X.astype(np.float32), y, rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32)


def problem_of(name: str, X: Any, l1: float, tolerance: float, C: float = 0.3) -> Problem:
    return Problem(
        LOSSES[name](),
        C,
        len(X),
        X.shape[1],
        kind_of(LOSSES[name]()),
        1.0,
        tolerance=tolerance,
        regularizer=ElasticNet(l1),
    )


def largest_slope(name: str, X: Any, y: Any, s: Any, C: float = 0.3) -> float:
    """The l1 from which on all weights are 0."""
    w = np.zeros(X.shape[1] + 1)
    return float(np.abs(objective(name, X, y, s, w, 0.0, C)[1]).max())


def objective(name: str, X: Any, y: Any, s: Any, w: Any, l1: float, C: float = 0.3) -> tuple[float, Any]:
    """P(w), from its definition, and the gradient of the sum over rows."""
    Z, c = np.column_stack([X.astype(np.float64), np.ones(len(X))]), C * s.astype(np.float64)
    numeric = LOSSES[name]().numeric()
    loss, slope = values_of(name, Z @ w - y if numeric else y * (Z @ w))
    return float(0.5 * w @ w + l1 * np.abs(w).sum() + c @ loss), Z.T @ (c * slope * (1.0 if numeric else y))


def optimum(name: str, X: Any, y: Any, s: Any, l1: float, C: float = 0.3) -> Any:
    """The best weights, by accelerated proximal gradients that start anew where P rises."""
    Z, c = np.column_stack([X.astype(np.float64), np.ones(len(X))]), C * s.astype(np.float64)
    bend = 1.0 / LOSSES[name]().curvature(1.0)
    L = bend * float(np.linalg.norm((Z.T * c) @ Z, 2)) + 1e-12
    w = z = np.zeros(Z.shape[1])
    momentum, before = 1.0, np.inf
    for _ in range(20_000):
        v = z - objective(name, X, y, s, z, l1, C)[1] / L
        new = np.sign(v) * np.maximum(np.abs(v) - l1 / L, 0.0) / (1.0 + 1.0 / L)
        if float(np.abs(new - z).max()) <= 1e-13 * (1.0 + float(np.abs(new).max())):
            return new
        later, now = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)), objective(name, X, y, s, new, l1, C)[0]
        if now > before:
            z = w
            momentum, before = 1.0, np.inf
            continue
        z, w, momentum, before = new + (momentum - 1.0) / later * (new - w), new, later, now
    return w


@pytest.mark.parametrize("seed", range(5))
def test_elastic_net_optimum_is_that_of_slow_steps_and_the_bound_is_below_it(seed: int) -> None:
    name = SMOOTH[seed % len(SMOOTH)]
    X, y, s = fuzzed(seed, name)
    l1 = (0.01, 0.1, 0.4)[seed % 3] * largest_slope(name, X, y, s)
    solver = ProximalNewton()
    state, _, found = solve(solver, problem_of(name, X, l1, 1e-9), X, y, s, block=17, passes=40)
    known, w = optimum(name, X, y, s, l1), solver.solution(state).w
    best = objective(name, X, y, s, known, l1)[0]
    assert found[-1].gap <= 1e-9
    assert max(one.dual for one in found) <= best * (1 + 1e-11)
    assert best * (1 - 1e-11) <= found[-1].primal <= best * (1 + 1e-9)
    assert objective(name, X, y, s, w, l1)[0] == pytest.approx(found[-1].primal, rel=1e-12)
    assert state.possible[np.abs(known) > 0.0].all()
    assert np.array_equal(np.flatnonzero(np.abs(known) > 1e-4), np.flatnonzero(np.abs(w) > 1e-4))


def test_elastic_net_pool_of_few_columns_finds_the_same_optimum() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 400)).astype(np.float32)
    y = np.where(X[:, [3, 50, 120]] @ np.array([2.0, -1.0, 0.5]) > 0.0, 1.0, -1.0).astype(np.float32)
    s = np.ones(150, np.float32)
    l1 = 0.3 * largest_slope("squared_hinge", X, y, s)
    problem = problem_of("squared_hinge", X, l1, 1e-8)
    first = replace(ProximalNewton(), pool=20)
    found = {pool: solve(replace(first, pool=pool), problem, X, y, s, passes=60) for pool in (20, 300, 4096)}
    w = optimum("squared_hinge", X, y, s, l1)
    best = objective("squared_hinge", X, y, s, w, l1)[0]
    for pool, (state, _, certificates) in found.items():
        assert certificates[-1].gap <= 1e-8
        assert len(state.pool) <= min(pool, 400)
        assert best * (1 - 1e-11) <= certificates[-1].primal <= best * (1 + 1e-8)
        assert certificates[-1].facts["columns_used"] == np.count_nonzero(state.best[:-1]) < 40
        assert state.possible[np.abs(w) > 0.0].all()
        assert certificates[-1].facts["columns_possible"] < 100


def test_elastic_net_sparse_rows_are_the_same_problem() -> None:
    rng = np.random.default_rng(2)
    X = (rng.normal(size=(200, 60)) * (rng.random((200, 60)) < 0.2)).astype(np.float32)
    y, s = np.where(X[:, 0] + X[:, 1] > 0.0, 1.0, -1.0).astype(np.float32), np.ones(200, np.float32)
    for pool in (4096, 20):
        solver = replace(ProximalNewton(), pool=pool)
        problem = problem_of("squared_hinge", X, 2.0, 1e-9)
        one, two = (
            solve(solver, problem, rows, y, s, passes=60)[2][-1].primal for rows in (Dense(X, 1.0), csr_of(X, 1.0))
        )
        assert one == pytest.approx(two, rel=1e-8)


def test_elastic_net_column_is_ruled_out_by_every_dual_point_only_where_it_is_0_at_the_optimum() -> None:
    ruled_out = 0
    for seed in range(20):
        name = SMOOTH[seed % len(SMOOTH)]
        X, y, s = fuzzed(seed, name)
        l1 = 0.3 * largest_slope(name, X, y, s)
        problem, w = problem_of(name, X, l1, 1e-9), optimum(name, X, y, s, l1)
        squares = np.append((s[:, None] * X.astype(np.float64) ** 2).sum(0), s.sum())
        rng, best = np.random.default_rng(seed), objective(name, X, y, s, w, l1)[0]
        for far in (1e-4, 1e-2, 1.0):  # slopes at weights that are so far from the optimum
            sums, order = PointSums(len(w)), np.arange(len(X), dtype=np.int32)
            sums.add(
                problem, problem.loss, Block(Dense(X, 1.0), y, s, 0, 0, order, 0), w + far * rng.normal(size=len(w))
            )
            found = sums.close(problem, w)
            zero = screen_columns(problem, best - found.dual + 1e-9, found.scale * found.v, squares)
            assert not (zero & (np.abs(w) > 1e-12)).any()
            ruled_out += int(zero.sum())
    assert ruled_out > 30
