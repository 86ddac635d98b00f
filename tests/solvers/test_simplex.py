"""The closed formulas of the Frank-Wolfe steps against explicit matrices; the walk's recursions; the blended solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.passes import frank_wolfe
from streamsvm.kernels import RBF
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.blended import Blended
from streamsvm.solvers.kernel.cache import evaluate_shared, is_sharing_worthwhile
from streamsvm.solvers.kernel.pool import Form, Pool
from tests.arrays import csr_of
from tests.solvers.kernel_problems import gram64, noisy_rows, problem_of, solve

GAMMA, C = 0.5, 2.0
seeds = st.integers(0, 10_000)


def matrix(n: int, seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n + 2))
    return A @ A.T / n + 0.05 * np.eye(n), rng.dirichlet(np.ones(n)), rng


def value(K: Any, a: Any) -> float:
    return float(0.5 * a @ K @ a)


def along(K: Any, a: Any, d: Any, most: float) -> tuple[float, float]:
    """The best step by search on a grid, and f there."""
    steps = np.linspace(0.0, most, 20_001)
    values = value(K, a) + steps * float(d @ K @ a) + 0.5 * steps**2 * float(d @ K @ d)
    best = int(np.argmin(values))
    return float(steps[best]), float(values[best])


def vertex(n: int, i: int) -> Any:
    e = np.zeros(n)
    e[i] = 1.0
    return e


@given(st.integers(2, 12), seeds)
def test_simplex_step_toward_a_vertex(n: int, seed: int) -> None:
    K, a, _ = matrix(n, seed)
    g = K @ a
    i = int(np.argmin(g))
    step = frank_wolfe.toward_step(value(K, a), g[i], K[i, i])
    length, reached = along(K, a, vertex(n, i) - a, 1.0)
    assert step.length == pytest.approx(length, abs=1e-4)
    assert value(K, a) - step.fall == pytest.approx(reached, abs=1e-7)
    for s in (0.0, 0.3, step.length, 1.0):
        expected = value(K, (1 - s) * a + s * vertex(n, i))
        assert frank_wolfe.toward_value(value(K, a), g[i], K[i, i], s) == pytest.approx(expected, rel=1e-10)


@given(st.integers(2, 12), seeds)
def test_simplex_step_away_from_a_vertex(n: int, seed: int) -> None:
    K, a, _ = matrix(n, seed)
    g = K @ a
    v = int(np.argmax(g))
    step, most = frank_wolfe.away_step(value(K, a), g[v], K[v, v], a[v]), a[v] / (1.0 - a[v])
    length, reached = along(K, a, a - vertex(n, v), most)
    assert step.length == pytest.approx(length, abs=max(1e-3, most / 20_000))
    assert value(K, a) - step.fall == pytest.approx(reached, abs=1e-6)
    moved = a + step.length * (a - vertex(n, v))
    assert moved.min() >= -1e-12
    assert moved.sum() == pytest.approx(1.0)


@given(st.integers(2, 12), seeds)
def test_simplex_swap(n: int, seed: int) -> None:
    K, a, _ = matrix(n, seed)
    g = K @ a
    i, v = int(np.argmin(g)), int(np.argmax(g))
    if i == v:
        return
    step = frank_wolfe.swap_step(g[i], g[v], K[i, i] + K[v, v] - 2 * K[i, v], a[v])
    length, reached = along(K, a, vertex(n, i) - vertex(n, v), a[v])
    assert step.length == pytest.approx(length, abs=1e-4)
    assert value(K, a) - step.fall == pytest.approx(reached, abs=1e-7)


@given(st.integers(2, 12), seeds)
def test_simplex_tangent_step(n: int, seed: int) -> None:
    K, b, rng = matrix(n, seed)
    a = 0.5 * b + 0.5 * rng.dirichlet(np.ones(n))
    g, i, s = K @ a, int(np.argmin(K @ a)), 0.4
    mid = (1 - s) * a + s * vertex(n, i)
    tangent = frank_wolfe.Tangent(value(K, b), float(b @ K @ a))
    A = (1 - s) * tangent.W + s * float((K @ b)[i])
    assert pytest.approx(float(b @ K @ mid), rel=1e-9) == A
    room = frank_wolfe.tangent_room(mid, b)
    m = frank_wolfe.tangent_step(tangent, value(K, mid), A, room)
    end = (1 + m) * mid - m * b
    assert end.min() >= -1e-9
    assert end.sum() == pytest.approx(1.0)
    assert frank_wolfe.tangent_value(tangent, value(K, mid), A, m) == pytest.approx(value(K, end), rel=1e-8)
    for other in np.linspace(-1.0, min(room, 5.0), 50):
        assert value(K, end) <= value(K, (1 + other) * mid - other * b) + 1e-9
    along_a = (1 - s) * 2 * value(K, a) + s * g[i]
    assert (1 + m) * along_a - m * tangent.W == pytest.approx(float(a @ K @ end), rel=1e-8)


def weights_of(n: int) -> Any:
    return np.random.default_rng(1).choice([0.0, 0.5, 1.0, 2.0], n).astype(np.float32)


def explicit(X: Any, y: Any, s: Any, support: Any) -> tuple[Any, Any, Any]:
    """K, a and the part of K without the ridge, in float64; rows of weight 0 have none."""
    a = np.zeros(len(y))
    a[support.index] = support.x
    signed = np.outer(y, y).astype(np.float64) * (gram64(X, X, GAMMA) + 1.0)
    ridge = np.divide(1.0, 2.0 * C * s, out=np.zeros(len(s)), where=s > 0)
    return signed + np.diag(ridge), a, signed


@pytest.mark.parametrize("pool", [40, 100_000])
def test_simplex_blended_certifies_what_is_true(pool: int) -> None:
    X, y = noisy_rows()
    s = weights_of(len(y))
    state, _, found = solve(Blended(pool=pool, working=64), problem_of(X, SquaredHinge(), C, GAMMA, 1e-4), X, y, s)
    K, a, signed = explicit(X, y, s, state.support)
    f, g = value(K, a), K @ a
    assert found[-1].gap <= 1e-4
    assert a.min() >= 0.0
    assert a.sum() == pytest.approx(1.0)
    assert a[s == 0].max() == 0.0
    assert found[-1].facts["f"] == pytest.approx(f, rel=1e-5)
    assert found[-1].facts["simplex_gap"] == pytest.approx(2 * f - g[s > 0].min(), abs=1e-6 * f + 1e-7)
    t = 0.5 / f
    margins = t * (signed @ a)
    primal = 0.5 * t * t * float(a @ signed @ a) + C * float(s @ np.maximum(0.0, 1.0 - margins) ** 2)
    assert found[-1].primal == pytest.approx(primal, rel=1e-5)
    assert found[-1].dual == pytest.approx(1.0 / (4.0 * f), rel=1e-5)
    assert primal <= 1.0 / (4.0 * f) / (1.0 - (2 * f - g[s > 0].min()) / (2 * f)) ** 2 * (1.0 + 1e-5)


def test_simplex_blended_agrees_with_the_dual_of_the_squared_hinge() -> None:
    from scipy.optimize import minimize

    X, y = noisy_rows(60)
    ones = np.ones(60, np.float32)
    _, _, found = solve(Blended(), problem_of(X, SquaredHinge(), C, GAMMA, 1e-6), X, y, ones)
    Q = np.outer(y, y) * (gram64(X, X, GAMMA) + 1.0) + np.eye(60) / (2.0 * C)
    other = minimize(
        lambda a: float(0.5 * a @ Q @ a - a.sum()), np.zeros(60), jac=lambda a: Q @ a - 1.0, bounds=[(0, None)] * 60
    )
    assert found[-1].dual == pytest.approx(-other.fun, rel=1e-4)


def test_simplex_gaps_do_not_depend_on_the_blocks() -> None:
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), C, GAMMA, 1e-4)
    duals = [solve(Blended(), problem, X, y, block=block)[2][-1].dual for block in (50, 130, 400)]
    np.testing.assert_allclose(duals, duals[0], rtol=1e-9)


def test_simplex_support_is_kept_within_bounds() -> None:
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), C, GAMMA, 1e-4)
    state, _, found = solve(Blended(pool=60, keep=80), problem, X, y)
    best = solve(Blended(), problem, X, y)[2][-1].facts["f"]
    K, a, _ = explicit(X, y, np.ones(len(y)), state.support)
    assert max(certificate.facts.get("support", 0) for certificate in found) == 80
    assert a.sum() == pytest.approx(1.0)
    assert found[-1].final
    assert len(found) < 30
    assert found[-1].facts["simplex_gap"] == pytest.approx(2 * value(K, a) - (K @ a).min(), abs=1e-6)
    assert best < found[-1].facts["f"] < min(4.0 * best, found[1].facts["f"])


@pytest.mark.parametrize("count", [1, 20, 60])
def test_simplex_short_model_says_its_gap(count: int) -> None:
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), C, GAMMA, 1e-3)
    solver = Blended(max_support=count)
    state, _, found = solve(solver, problem, X, y)
    solution = solver.solution(state)
    assert found[-1].final
    assert found[-1].exact
    assert not found[-2].exact
    assert len(solution.coefficients) == count
    f = gram64(X, X[solution.numbers], GAMMA) @ solution.coefficients + solution.intercept
    K = gram64(X[solution.numbers], X[solution.numbers], GAMMA) + 1.0
    norm = float(solution.coefficients @ K @ solution.coefficients)
    primal = 0.5 * norm + C * float((np.maximum(0.0, 1.0 - y * f) ** 2).sum())
    assert found[-1].primal == pytest.approx(primal, rel=1e-4)
    assert found[-1].dual == pytest.approx(found[-2].dual, rel=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_simplex_values_of_several_problems_at_once(sparse: bool) -> None:
    X, y = noisy_rows(90)
    rng = np.random.default_rng(3)
    stored = csr_of(X) if sparse else Dense(X)
    supports, expected = [], []
    for count in (20, 35, 1):
        index = np.sort(rng.choice(90, count, replace=False))
        zero, x = np.zeros(count), rng.random(count)
        supports.append(
            Pool(take_rows(stored, index), index, y[index].astype(np.float64), zero, zero, zero, zero, x, zero)
        )
        expected.append(gram64(X, X[index], GAMMA) @ (y[index] * x))
    assert not is_sharing_worthwhile(supports, stored)
    assert is_sharing_worthwhile(supports * 20, csr_of(np.ones((90, 40), np.float32)))
    found = evaluate_shared(supports, Form(RBF(GAMMA), X.shape[1], 1.0), stored)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
