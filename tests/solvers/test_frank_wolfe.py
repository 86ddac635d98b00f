"""The Frank-Wolfe family: what holds after every iteration, where it ends, and that both regimes end there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.kernels import RBF
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.blended import Blended
from streamsvm.solvers.kernel.cache import KernelCache
from streamsvm.solvers.kernel.frank_wolfe import FrankWolfe, ModifiedFrankWolfe, Partan, SampledIterations, Swap
from streamsvm.solvers.kernel.frank_wolfe_steps import Iterations
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.working_set import recompute_gradient
from tests.solvers.kernel_problems import gram64, noisy_rows, problem_of, solve

GAMMA, RIDGE = 0.5, 0.25
METHODS = [FrankWolfe, ModifiedFrankWolfe, Swap, Partan]
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.variant)


def pool_of(n: int = 200) -> tuple[Pool, Form, Any]:
    """All weight on row 7; the matrix in float64."""
    X, y = noisy_rows(n)
    z, zero = y.astype(np.float64), np.zeros(n)
    pool = Pool(Dense(X), np.arange(n), z, zero + RIDGE, zero, zero + 1.0, zero.copy(), zero.copy(), zero.copy())
    pool.x[7] = 1.0
    form = Form(RBF(GAMMA), 4, 1.0)
    recompute_gradient(pool, form)
    return pool, form, np.outer(z, z) * (gram64(X, X, GAMMA) + 1.0) + RIDGE * np.eye(n)


@each_method
def test_frank_wolfe_every_iteration_keeps_its_promises(method: Any) -> None:
    pool, form, K = pool_of()
    iterations = Iterations(pool.x.copy(), -pool.v, KernelCache(pool, form, 50), method.variant)
    before = iterations.f
    for _ in range(200):
        gap = iterations.gap()
        assert gap >= -1e-9
        iterations.advance()
        assert iterations.a.min() >= 0.0
        assert iterations.a.sum() == pytest.approx(1.0, abs=1e-9)
        assert iterations.f <= before + 1e-9
        np.testing.assert_allclose(iterations.g, K @ iterations.a, atol=2e-6)
        assert iterations.f == pytest.approx(0.5 * float(iterations.a @ K @ iterations.a), abs=1e-6)
        before = iterations.f


@each_method
def test_frank_wolfe_sampled_iterations_keep_them_too(method: Any) -> None:
    pool, form, K = pool_of()
    iterations = SampledIterations(pool, form, method.variant)
    draw = np.random.default_rng(0)
    before = iterations.f
    for _ in range(150):
        iterations.find_vertices(draw.integers(0, pool.size, 40), draw)
        iterations.advance()
        a = np.zeros(pool.size)
        a[iterations.members] = iterations.a[: iterations.size]
        assert a.min() >= 0.0
        assert a.sum() == pytest.approx(1.0, abs=1e-9)
        assert iterations.f <= before + 1e-9
        assert iterations.f == pytest.approx(0.5 * float(a @ K @ a), abs=1e-6)
        before = iterations.f
    iterations.write(pool)
    np.testing.assert_allclose(pool.x, a)


@pytest.mark.parametrize("variant", ["mfw", "swap"])
def test_frank_wolfe_vertices_that_do_not_help_are_dropped(variant: str) -> None:
    pool, form, _ = pool_of()
    pool.x[:] = 1.0 / pool.size
    recompute_gradient(pool, form)
    iterations = Iterations(pool.x.copy(), -pool.v, KernelCache(pool, form, 50), variant)
    sizes = []
    for _ in range(2000):
        iterations.gap()
        iterations.advance()
        sizes.append(int(np.count_nonzero(iterations.a)))
    assert min(np.diff(sizes)) == -1


class MatrixOf:
    """The columns of a matrix that is there."""

    def __init__(self, K: Any) -> None:
        self._K, self.diagonal = K, np.ascontiguousarray(np.diagonal(K))

    def column(self, i: int, g: Any) -> Any:
        """As ``MatrixColumns`` has it."""
        return self._K[i]


def test_frank_wolfe_vertex_that_a_step_takes_all_weight_from_has_none() -> None:
    """Nor less than none, whatever rounding makes of a (1 + t) - t at t = a / (1 - a)."""
    K = np.array([[0.1, 0.0, 0.9], [0.0, 0.1, 0.9], [0.9, 0.9, 20.0]])  # without the last vertex f is least
    pool, form, _ = pool_of(8)
    for a in (0.4 * np.random.default_rng(0).random(3000)).tolist():
        weights = np.array([0.75 * (1.0 - a), 0.25 * (1.0 - a), a])
        exact = Iterations(weights.copy(), K @ weights, MatrixOf(K), "mfw")
        exact.gap()
        exact.advance()
        assert exact.a[2] == 0.0
        assert exact.a.sum() == pytest.approx(1.0, rel=1e-12)
        pool.x[:3], pool.x[3:] = weights, 0.0
        sampled = SampledIterations(pool, form, "mfw", f=0.0)
        sampled._v = 2
        sampled._step_away(a, 100.0, 1.0)
        assert sampled.a[2] == 0.0
        assert sampled.a[:3].sum() == pytest.approx(1.0, rel=1e-12)


@each_method
@pytest.mark.parametrize("sample", [0, 194])
def test_frank_wolfe_gap_is_met_and_certified(method: Any, sample: int) -> None:
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), 2.0, GAMMA, 1e-9)
    _, _, found = solve(method(epsilon=1e-3, sample=sample), problem, X, y)
    best = solve(Blended(epsilon=1e-6), problem, X, y)[2][-1].facts["f"]
    facts = found[-1].facts
    assert found[-1].final
    assert len(found) <= 4
    assert facts["f"] >= best - 1e-7
    assert facts["f"] - best <= facts["simplex_gap"] + 1e-7
    assert facts["simplex_gap"] <= (1e-3 if sample == 0 else 1e-2)
    assert facts["seen_gap"] <= 1e-3
    assert facts["support"] <= facts["iterations"] + 1


@each_method
@pytest.mark.parametrize("sample", [0, 194])
def test_frank_wolfe_certificate_is_that_of_the_model(method: Any, sample: int) -> None:
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), 2.0, GAMMA, 1e-9)
    solver = method(epsilon=1e-3, sample=sample)
    state, _, found = solve(solver, problem, X, y)
    solution = solver.solution(state)
    K = gram64(X, X[solution.numbers], GAMMA) + 1.0
    f = K @ solution.coefficients
    primal = 0.5 * float(solution.coefficients @ f[solution.numbers]) + 2.0 * float(
        np.square(np.maximum(0, 1 - y * f)).sum()
    )
    assert found[-1].primal == pytest.approx(primal, rel=1e-3)


@each_method
def test_frank_wolfe_pool_that_is_smaller_than_the_data_is_enough(method: Any) -> None:
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), 2.0, GAMMA, 1e-9)
    _, _, found = solve(method(epsilon=1e-3, pool=60), problem, X, y)
    assert found[-1].final
    assert found[-1].facts["simplex_gap"] <= 1e-3
