"""The simplex: closed formulas of steps, the sums and the certificate of a pass, and the blended solver."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.rounding import DOUBLE
from streamsvm.compute.passes import frank_wolfe
from streamsvm.kernels import RBF
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Dense, Reach
from streamsvm.solvers.kernel import simplex
from streamsvm.solvers.kernel.blended import Blended
from streamsvm.solvers.kernel.cache import evaluate_shared, is_sharing_worthwhile
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.rounding import bound_rounding, error_of_values
from streamsvm.types import Block, Certificate, Problem
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


ROWS = 200


def noted(iterations: int) -> list[int]:
    """When an entry of a trajectory is due: when there are a tenth more iterations, or one more."""
    found, due = [], 0.0
    for count in range(iterations + 1):
        if count >= due:
            found.append(count)
            due = max(1.1 * count, count + 1)
    return found


def test_simplex_pass_sums_are_those_of_its_rows() -> None:
    """In float64: the norm of the model without ridges, and with them; absolute values; losses, and those at margins that are less."""
    X, y = noisy_rows(ROWS)
    s = np.random.default_rng(1).choice([0.0, 0.5, 2.0], ROWS).astype(np.float32)
    solver = Blended(working=64)
    problem = replace(problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), bias=0.5)
    state, _, _ = solve(solver, problem, X, y, s, passes=2)
    state.form = state.form._replace(arithmetic=DOUBLE)
    state.certifying = False
    solver.visit(state, Block(Dense(X, 0.5), y, s, 0, 0, np.arange(ROWS, dtype=np.int32), 0))
    a = np.zeros(ROWS)
    a[state.support.index] = state.support.x
    f = (gram64(X, X, GAMMA) + 0.25) @ (y * a)
    ridge = np.divide(0.5, C * s, out=np.zeros(ROWS), where=s > 0.0)
    g = y * f + ridge * a
    assert state.square == pytest.approx((y * a) @ f, rel=1e-9)
    assert state.ridge == pytest.approx(ridge @ a**2, rel=1e-9)
    assert state.absolute == pytest.approx(a @ np.abs(f), rel=1e-9)
    assert state.lowest == pytest.approx(g[s > 0.0].min(), rel=1e-9)
    np.testing.assert_allclose(state.support.v, -g[state.support.index], rtol=1e-8)
    t = 0.5 / state.f
    error = t * error_of_values(state.form, state.reach, int(np.count_nonzero(a)), float(a.sum()))
    assert state.error == pytest.approx(error, rel=1e-12, abs=0.0)
    for sums, off in ((state.losses, 0.0), (state.upper_losses, error)):
        margins = np.maximum(0.0, 1.0 - t * (y * f) + off)
        assert sums[0] == pytest.approx(C * float(s @ margins**2), rel=1e-9)
    assert state.upper_losses[0] > state.losses[0]
    offered = np.concatenate([part.index for part in state.candidates.parts])
    assert np.sort(offered).tolist() == np.flatnonzero((a == 0.0) & (s > 0.0)).tolist()


@pytest.mark.parametrize("cuts", [(70, 130), (0, 200), (200,)])
def test_simplex_workers_find_what_one_finds(cuts: tuple[int, ...]) -> None:
    """One of them may have met no row at all; g of a row with weight is that of who met it."""
    X, y = noisy_rows(ROWS)
    solver = Blended(working=64, pool=40)
    state, _, _ = solve(solver, problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), X, y, passes=2)
    found = []
    for bounds in ((0, ROWS), (0, *cuts, ROWS)):
        parts = [solver.part(state) for _ in bounds[1:]]
        for part, first, last in zip(parts, bounds[:-1], bounds[1:], strict=True):
            if first < last:
                ones, order = np.ones(last - first, np.float32), np.arange(last - first, dtype=np.int32)
                solver.visit(part, Block(Dense(X[first:last], 1.0), y[first:last], ones, 0, first, order, 0))
        found.append(solver.merge(parts))
    alone, together = found
    assert alone.support is not None
    assert together.support is not None
    assert np.isfinite(alone.support.v).all()
    np.testing.assert_allclose(together.support.v, alone.support.v, rtol=1e-5)
    for name in ("square", "ridge", "absolute", "lowest", "error"):
        assert getattr(together, name) == pytest.approx(getattr(alone, name), rel=1e-5), name
    np.testing.assert_allclose(together.losses, alone.losses, rtol=1e-5)
    assert state.support is not None
    assert together.candidates.take(partial(solver.choose, state)).size == solver.pool


def test_simplex_model_is_the_best_scaled_support() -> None:
    X, y = noisy_rows(ROWS)
    solver = Blended(working=64)
    problem = replace(problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), bias=0.5)
    state, _, found = solve(solver, problem, X, y, passes=3)
    machine = solver.solution(state)
    t = 0.5 / found[-1].facts["f"]
    coefficients = t * y[state.support.index].astype(float) * state.support.x
    np.testing.assert_allclose(machine.coefficients, coefficients, rtol=1e-6)  # f as the method has left it
    assert machine.intercept == pytest.approx(0.25 * float(machine.coefficients.sum()), rel=1e-12)


PROBLEM = Problem(SquaredHinge(), 1.0, 4, 3, 1, kernel=RBF(0.5), tolerance=0.5, reach=Reach(3, 4.0))


def closed(**changed: Any) -> Any:
    """A state after a pass in which f, 2, was found as the method left it."""
    state = Blended().start(changed.pop("problem", PROBLEM))
    given: dict[str, Any] = {"support": SimpleNamespace(size=3), "square": 3.0, "ridge": 1.0, "f": 2.0, "lowest": 3.0}
    given |= {"losses": np.array([2.0]), "upper_losses": np.array([2.5]), "absolute": 8.0, "error": 0.25, "seen": 0.75}
    for name, value in (given | {"reach": Reach(3, 4.0), "iterations": 7, "passes": 2} | changed).items():
        setattr(state, name, value)
    return state


def test_simplex_certificate_is_that_of_the_best_scaled_model() -> None:
    state = closed()
    found = Blended(epsilon=0.5)._certify_pass(state)
    assert found.primal == 0.5 * 3.0 / 16.0 + 2.0
    assert found.dual == 0.25 - 2.0 / 16.0
    assert found.rounding == bound_rounding(PROBLEM, 0.25, 0.25, 0.5, (2.0, 2.5)) > 0.5
    assert (state.gap, state.f, state.scale, state.trajectory) == (1.0, 2.0, 0.25, [])
    facts = {"simplex_gap": 1.0, "seen_gap": 0.75, "f": 2.0, "support": 3, "iterations": 7, "points": None}
    assert {name: found.facts[name] for name in facts} == facts


def test_simplex_certificate_scales_with_the_margin() -> None:
    found = Blended(epsilon=0.5)._certify_pass(closed(problem=replace(PROBLEM, loss=SquaredHinge(2.0))))  # t = 1/2
    assert found.primal == 0.5 * 3.0 / 4.0 + 2.0
    assert found.dual == 2.0 * 0.5 - 2.0 / 4.0


@pytest.mark.parametrize("blurred", [True, False])
def test_simplex_ends_only_on_an_evaluation_in_full_precision(blurred: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ended it: another pass comes, in the arithmetic of certificates."""
    state = closed()
    exact = state.form._replace(arithmetic=DOUBLE)
    ended = Certificate(2.0, 1.0, final=True, facts={"trajectory": []}, rounding=0.5)
    monkeypatch.setattr(Blended, "_certify_pass", lambda *_: ended)
    monkeypatch.setattr(simplex, "certified_form", lambda *_: exact)
    monkeypatch.setattr(simplex, "needs_certified_form", lambda *_: blurred)
    found = Blended().finish(state)
    assert (found.final, found.exact) == (not blurred, not blurred)
    assert (state.form == exact) == blurred
