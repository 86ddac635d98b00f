"""The Frank-Wolfe family: what holds after every iteration, where it ends, and that both regimes end there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.kernels import RBF
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.cache import COLUMNS_AT_ONCE, KernelCache
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.simplex import iterations as iterations_module
from streamsvm.solvers.kernel.simplex.blended import Blended
from streamsvm.solvers.kernel.simplex.frank_wolfe import FrankWolfe, ModifiedFrankWolfe, Partan, Swap
from streamsvm.solvers.kernel.simplex.iterations import Iterations
from streamsvm.solvers.kernel.simplex.sampled_iterations import SampledIterations
from streamsvm.solvers.kernel.working_set import recompute_gradient
from tests.arrays import csr_of
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
def test_every_iteration_keeps_its_promises(method: Any) -> None:
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


def test_all_that_partan_carries_is_summed_anew_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only f, summed anew, does not fit b'Ka and f(b), from which the small differences of a step are made."""
    monkeypatch.setattr(iterations_module, "RESUM_EVERY", 8)
    pool, form, K = pool_of()
    iterations = Iterations(pool.x.copy(), -pool.v, KernelCache(pool, form, 50), "partan")
    for _ in range(23):
        iterations.gap()
        iterations.advance()
    assert iterations.tangent is not None
    iterations.f += 1e-3  # what rounding has done meanwhile
    iterations.gap()
    iterations.advance()
    assert iterations.f == pytest.approx(0.5 * float(iterations.a @ K @ iterations.a), abs=1e-6)
    assert iterations.tangent.before == pytest.approx(0.5 * float(iterations.before @ K @ iterations.before), abs=1e-6)
    assert pytest.approx(float(iterations.before @ K @ iterations.a), abs=1e-6) == iterations.tangent.W


@each_method
def test_sampled_iterations_keep_them_too(method: Any) -> None:
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
def test_vertices_that_do_not_help_are_dropped(variant: str) -> None:
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


def test_a_vertex_that_a_step_takes_all_weight_from_has_none() -> None:
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
        sampled._away(a, 100.0, 1.0)
        assert sampled.a[2] == 0.0
        assert sampled.a[:3].sum() == pytest.approx(1.0, rel=1e-12)


def test_a_step_that_does_not_take_all_weight_leaves_the_rest() -> None:
    """Half of the way: of a third of the weight 1/3 (1 + t) - t is left at t = 1/4."""
    pool, form, _ = pool_of(8)
    pool.x[:3], pool.x[3:] = 1.0 / 3.0, 0.0
    recompute_gradient(pool, form)
    for curvature, left in ((4.0, 1.0 / 6.0), (0.1, 0.0)):
        sampled = SampledIterations(pool, form, "mfw")
        sampled._v = 2
        sampled._away(1.0 / 3.0, 2.0 * sampled.f + 1.0, curvature + 2.0 * sampled.f + 2.0)  # which falls by 1 at first
        assert sampled.a[2] == pytest.approx(left, abs=1e-15)
    alone = SampledIterations(pool, form, "mfw")
    alone.a[:3] = 0.0, 0.0, 1.0
    alone._v = 2
    alone._away(1.0, 2.0 * alone.f + 1.0, 1.0)  # of all weight there is no step
    assert alone.a[2] == 1.0


def test_the_open_step() -> None:
    pool, form, _ = pool_of()
    iterations = Iterations(pool.x.copy(), -pool.v, KernelCache(pool, form, 50), "fw", open_step=True)
    for _ in range(3):
        iterations.gap()
        iterations.advance()
    assert np.count_nonzero(iterations.a) <= 3
    assert iterations.a[iterations.i] >= 2.0 / 4.0


@each_method
@pytest.mark.parametrize("sample", [0, 194])
def test_the_gap_is_met_and_certified(method: Any, sample: int) -> None:
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
def test_the_certificate_is_that_of_the_model(method: Any, sample: int) -> None:
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
def test_every_row_can_be_drawn(method: Any) -> None:
    """A sampled stop in a pool of a seventh of the rows: pools follow one another, and it is the asked gap that ends it."""
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), 2.0, GAMMA, 1e-9)
    state, _, found = solve(method(epsilon=1e-3, pool=60, sample=40), problem, X, y)
    assert found[-1].final
    assert 4 < len(found) < 60
    assert found[-1].facts["seen_gap"] <= 1e-3
    assert found[-1].facts["simplex_gap"] <= 1e-2
    assert state.support.size > 60


@each_method
def test_a_pool_that_is_smaller_than_the_data_is_enough(method: Any) -> None:
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), 2.0, GAMMA, 1e-9)
    _, _, found = solve(method(epsilon=1e-3, pool=60), problem, X, y)
    assert found[-1].final
    assert found[-1].facts["simplex_gap"] <= 1e-3


def test_partan_needs_fewer_iterations_and_the_trajectory_tells() -> None:
    X, y = noisy_rows()
    problem = problem_of(X, SquaredHinge(), 2.0, GAMMA, 1e-9)
    facts = [solve(m(epsilon=1e-4), problem, X, y)[2][-1].facts for m in (FrankWolfe, Partan)]
    assert facts[1]["iterations"] < facts[0]["iterations"]
    gaps = [entry[1] for entry in facts[1]["trajectory"]]
    assert len(gaps) > 5
    assert gaps[-1] <= 1e-4


@pytest.mark.parametrize("capacity", [2, 500])
@pytest.mark.parametrize("sparse", [False, True])
def test_columns_are_those_of_the_matrix(capacity: int, sparse: bool) -> None:
    pool, form, K = pool_of()
    if sparse:
        pool.X = csr_of(pool.X.values)
    columns, g = KernelCache(pool, form, capacity), -pool.v
    for i in (3, 9, 3, 77):
        np.testing.assert_allclose(columns.column(i, g), K[i], atol=1e-5)
    np.testing.assert_allclose(columns.diagonal, K.diagonal(), atol=1e-5)
    assert len(columns._kept) <= max(capacity, COLUMNS_AT_ONCE + 1)


@pytest.mark.parametrize(("cache", "columns"), [(1 << 30, 60), (60 * 4 * 7, 7), (0, 2)])
def test_of_kernel_columns_there_are_as_many_as_fit(cache: int, columns: int) -> None:
    """All of them at most, and two at least: those of the two rows that a step is between."""
    pool, form, _ = pool_of(60)
    state: Any = SimpleNamespace(form=form, iterations=0)
    kept: Any = FrankWolfe(cache=cache)._iterations(state, pool).columns
    assert kept.capacity == columns


@pytest.mark.parametrize(("working", "rows"), [(2, 1), (20, 10), (21, 10), (400, 60)])
def test_the_blended_method_begins_with_equal_weight_on_half_a_working_set(working: int, rows: int) -> None:
    pool, form, K = pool_of(60)
    state: Any = SimpleNamespace(form=form)
    Blended(working=working).begin(state, pool)
    assert pool.x[pool.x > 0.0] == pytest.approx(np.full(rows, 1.0 / rows))
    np.testing.assert_allclose(pool.v, -K @ pool.x, atol=2e-6)
