"""The Frank-Wolfe family: each iteration against its definition, where it ends, and that both regimes end there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamsvm.compute.kernel_values.rounding import DOUBLE
from streamsvm.kernels import RBF
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.kernel.blended import Blended
from streamsvm.solvers.kernel.cache import KernelCache
from streamsvm.solvers.kernel.frank_wolfe import FrankWolfe, ModifiedFrankWolfe, Partan, SampledIterations, Swap
from streamsvm.solvers.kernel.frank_wolfe_steps import Iterations
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.reduced_set import evaluate_reduced_set
from streamsvm.solvers.kernel.working_set import recompute_gradient
from streamsvm.types import Block
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


ROWS = 120
FORM = Form(RBF(GAMMA), 4, 1.0, DOUBLE)


def spread_pool_of(n: int = ROWS, *, support: int = 3) -> tuple[Pool, Any]:
    """Weight on the first rows; the matrix in float64."""
    X, y = noisy_rows(n)
    z, zero = y.astype(np.float64), np.zeros(n)
    pool = Pool(Dense(X), np.arange(n), z, zero + RIDGE, zero, zero + 1.0, zero.copy(), zero.copy(), zero.copy())
    weights = np.arange(1.0, support + 1.0)  # no two of them alike, so that no two gradients are
    pool.x[:support] = weights / weights.sum()
    recompute_gradient(pool, FORM)
    return pool, np.outer(z, z) * (gram64(X, X, GAMMA) + 1.0) + RIDGE * np.eye(n)


def vertex(i: int) -> Any:
    e = np.zeros(ROWS)
    e[i] = 1.0
    return e


def best_on_line(K: Any, a: Any, d: Any, low: float, high: float) -> tuple[float, float]:
    """The step in an interval from a along d with the least f, and by how much f falls."""
    slope, bend = float(d @ K @ a), float(d @ K @ d)
    step = min(max(-slope / max(bend, 1e-15), low), high)
    return step, -(step * slope + 0.5 * step * step * bend)


class Plain:
    """The variants by their definitions (module ``compute.passes.frank_wolfe``)."""

    def __init__(self, K: Any, a: Any, variant: str, *, open_step: bool) -> None:
        self.K, self.a, self.variant, self.open_step = K, a.copy(), variant, open_step
        self.before: Any = None
        self.count = 0

    def advance(self, i: int, v: int | None) -> None:
        """One iteration toward vertex i; v is the worst of those with weight that are known."""
        self.count += 1
        a, K, g = self.a, self.K, self.K @ self.a
        toward, fall = best_on_line(K, a, vertex(i) - a, 0.0, 1.0)
        if self.open_step:
            toward = 2.0 / (self.count + 1.0)
        stepped = a + toward * (vertex(i) - a)
        if v is not None and a[v] > 0.0 and self.variant == "mfw" and g[v] - a @ g > a @ g - g[i]:
            away, _ = best_on_line(K, a, a - vertex(v), 0.0, a[v] / (1.0 - a[v]))
            stepped = a + away * (a - vertex(v))
        if v is not None and a[v] > 0.0 and self.variant == "swap" and i != v:
            swap, more = best_on_line(K, a, vertex(i) - vertex(v), 0.0, a[v])
            stepped = a + swap * (vertex(i) - vertex(v)) if more > fall else stepped
        if self.variant == "partan":
            if self.before is not None:
                d = stepped - self.before
                shrinking = d < 0.0
                room = float((stepped[shrinking] / -d[shrinking]).min()) if shrinking.any() else np.inf
                along, _ = best_on_line(K, stepped, d, -1.0, room)
                stepped = stepped + along * d
            self.before = a.copy()
        self.a = np.maximum(stepped, 0.0)


VARIANTS = ["fw", "mfw", "swap", "partan"]


@pytest.mark.parametrize(("variant", "open_step"), [*((name, False) for name in VARIANTS), ("fw", True)])
def test_frank_wolfe_steps_from_samples_are_those_of_the_definition(variant: str, open_step: bool) -> None:
    pool, K = spread_pool_of()
    found, plain = SampledIterations(pool, FORM, variant, open_step), Plain(K, pool.x, variant, open_step=open_step)
    draw = np.random.default_rng(1)
    for _ in range(60):
        sample, state = draw.integers(0, ROWS, 15), draw.bit_generator.state
        gap = found.find_vertices(sample, draw)
        again = np.random.default_rng()
        again.bit_generator.state = state
        g = K @ plain.a
        i, v = int(sample[np.argmin(g[sample])]), None
        assert gap == pytest.approx(plain.a @ g - g[i], rel=1e-6, abs=1e-9)
        if variant in ("mfw", "swap"):
            members = np.array(found.members)[again.integers(0, found.size, 15)]
            heavy = members[plain.a[members] > 0.0]
            v = int(heavy[np.argmax(g[heavy])]) if len(heavy) else None
        found.advance()
        plain.advance(i, v)
        a = np.zeros(ROWS)
        a[found.members] = found.a[: found.size]
        np.testing.assert_allclose(a, plain.a, rtol=1e-6, atol=1e-9)
        assert found.f == pytest.approx(0.5 * plain.a @ K @ plain.a, rel=1e-9)
        assert found.support == np.count_nonzero(a)
        plain.a = a
    assert found.count == 60


@pytest.mark.parametrize(("variant", "open_step"), [*((name, False) for name in VARIANTS), ("fw", True)])
def test_frank_wolfe_steps_with_all_gradients_are_those_of_the_definition(variant: str, open_step: bool) -> None:
    pool, K = spread_pool_of()
    found = Iterations(pool.x.copy(), -pool.v, KernelCache(pool, FORM, 10), variant, open_step)
    plain = Plain(K, pool.x, variant, open_step=open_step)
    for _ in range(60):
        g = K @ plain.a
        i, v = int(np.argmin(g)), int(np.argmax(np.where(plain.a > 0.0, g, -np.inf)))
        assert found.gap() == pytest.approx(plain.a @ g - g[i], rel=1e-6, abs=1e-9)
        found.advance()
        plain.advance(i, v)
        np.testing.assert_allclose(found.a, plain.a, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found.g, K @ plain.a, rtol=1e-6, atol=1e-9)
        assert found.f == pytest.approx(0.5 * plain.a @ K @ plain.a, rel=1e-9)
        assert found.support == np.count_nonzero(found.a)
        plain.a = found.a.copy()


def test_frank_wolfe_weights_that_are_given_back_sum_to_one() -> None:
    pool, _ = spread_pool_of()
    found = SampledIterations(pool, FORM, "fw")
    found.a[:3] = 0.5, 0.25, 0.5
    found.write(pool)
    assert pool.x[:4].tolist() == [0.4, 0.2, 0.4, 0.0]


@pytest.mark.parametrize("constant", [0.0, 0.75])
def test_frank_wolfe_short_machine_says_its_values_and_its_norm(constant: float) -> None:
    """Of each block the part that its own rows have."""
    X, y = noisy_rows(50)
    kept, c = np.array([3, 17, 30, 44]), np.array([1.0, -2.0, 0.5, 0.25])
    zero = np.zeros(4)
    reduced = Pool(Dense(X[kept]), kept, zero + 1.0, zero, zero, zero, zero, c, zero)
    K, norm, form = gram64(X, X, GAMMA) + constant, 0.0, Form(RBF(GAMMA), 4, constant, DOUBLE)
    for start, stop in ((0, 20), (20, 50)):
        order = np.arange(stop - start, dtype=np.int32)
        block = Block(Dense(X[start:stop]), y[start:stop], np.ones(stop - start, np.float32), 0, start, order, 0)
        f, part = evaluate_reduced_set(reduced, form, block)
        np.testing.assert_allclose(f, K[start:stop][:, kept] @ c, rtol=1e-9, atol=1e-12)
        norm += part
    assert norm == pytest.approx(c @ K[np.ix_(kept, kept)] @ c, rel=1e-9)
