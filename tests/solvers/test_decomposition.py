"""Decomposition against LIBSVM, scikit-learn and explicit float64 sums; pools of every size find the same optimum."""

from __future__ import annotations

import lzma
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import streamsvm as sv
from streamsvm.errors import UsageError
from streamsvm.kernels import Linear, Sigmoid
from streamsvm.losses import EpsilonInsensitive, Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense, Reach
from streamsvm.solvers.kernel import working_set
from streamsvm.solvers.kernel.decomposition import (
    Decomposition,
    add_to_bounds,
    rows_of,
)
from streamsvm.solvers.kernel.pool import Pool, select_rows
from streamsvm.solvers.kernel.rounding import bound_rounding, error_of_values
from streamsvm.types import Block
from tests.arrays import csr_of
from tests.solvers.kernel_problems import closed, gram64, noisy_rows, problem_of, solve

GAMMA, C, ROWS = 0.5, 2.0, 400
PROBLEM = problem_of(np.zeros((ROWS, 4)), Hinge(), C, GAMMA, 1e-3)


def weights_of(n: int) -> Any:
    return np.random.default_rng(1).choice([0.0, 0.5, 1.0, 2.0], n).astype(np.float32)


def explicit(X: Any, y: Any, s: Any, a: Any, b: float, loss: Any) -> tuple[float, float]:
    """P at the decision values of ``a`` and the intercept ``b``, and D."""
    f = gram64(X, X, GAMMA) @ (a * y)
    half = 0.5 * float((a * y) @ f)
    values = [C * w * loss.value(float(m)) for w, m in zip(s, y * (f + b), strict=True)]
    duals = [x - loss.conjugate(x, C * float(w)) for x, w in zip(a, s, strict=True) if w > 0]
    return half + float(np.sum(values)), float(np.sum(duals)) - half


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Huber(0.2)], ids=["hinge", "squared_hinge", "huber"])
@pytest.mark.parametrize("pool", [48, 100_000])
def test_decomposition_certificate_is_true(loss: Any, pool: int) -> None:
    X, y = noisy_rows()
    s = weights_of(len(y))
    solver = Decomposition(working=32, pool=pool)
    state, rows, found = solve(solver, problem_of(X, loss, C, GAMMA, 1e-4), X, y, s)
    a = rows["alpha"]
    primal, dual = explicit(X, y, s, a, state.intercept, loss)
    assert found[-1].gap <= 1e-4
    assert found[-1].primal == pytest.approx(primal, rel=1e-5)
    assert found[-1].dual == pytest.approx(dual, rel=1e-5)
    assert a.min() >= 0.0
    assert (a <= [loss.upper(C * float(w)) if w > 0 else 0.0 for w in s]).all()
    assert abs(float(a @ y)) < 1e-9
    np.testing.assert_allclose(rows["f"], gram64(X, X, GAMMA) @ (a * y), atol=1e-4)


def test_decomposition_every_pass_certifies_the_a_it_ended_with() -> None:
    X, y = noisy_rows()
    problem = problem_of(X, Hinge(), C, GAMMA, 1e-6)
    for passes in (2, 3, 5):
        solver = Decomposition(working=16, pool=40)
        _, rows, found = solve(solver, problem, X, y, passes=passes)
        _, dual = explicit(X, y, np.ones(len(y)), rows["alpha"], 0.0, Hinge())
        assert found[-1].dual == pytest.approx(dual, rel=1e-5)
        assert all(later.dual >= sooner.dual - 1e-6 for sooner, later in pairwise(found))


def test_decomposition_solution_is_the_model() -> None:
    X, y = noisy_rows()
    solver = Decomposition()
    state, rows, _ = solve(solver, problem_of(X, Hinge(), C, GAMMA), X, y)
    solution = solver.solution(state)
    support = np.flatnonzero(rows["alpha"])
    np.testing.assert_array_equal(solution.numbers, support)
    np.testing.assert_allclose(solution.coefficients, (rows["alpha"] * y)[support])
    np.testing.assert_array_equal(solution.points.values, X[support])


def test_decomposition_libsvm_has_the_same_objective_and_intercept() -> None:
    from sklearn.svm import SVC

    X, y = noisy_rows()
    solver = Decomposition()
    state, _, found = solve(solver, problem_of(X, Hinge(), C, GAMMA, 1e-6), X, y)
    other = SVC(C=C, gamma=GAMMA, tol=1e-6).fit(X, y)
    signed = np.zeros(len(y))
    signed[other.support_] = other.dual_coef_[0]
    dual = float(np.abs(signed).sum() - 0.5 * signed @ gram64(X, X, GAMMA) @ signed)
    assert found[-1].dual == pytest.approx(dual, rel=1e-5)
    assert state.intercept == pytest.approx(float(other.intercept_[0]), abs=1e-2)


def test_decomposition_form_and_blocks_do_not_matter() -> None:
    X, y = noisy_rows()
    problem = problem_of(X, Hinge(), C, GAMMA)
    duals = [solve(Decomposition(), problem, X, y, block=block)[2][-1].dual for block in (33, 200, 400)]
    duals.append(solve(Decomposition(), problem, csr_of(X), y)[2][-1].dual)
    np.testing.assert_allclose(duals, duals[0], rtol=1e-5)


def test_decomposition_many_violators_are_sampled_and_the_optimum_is_the_same() -> None:
    X, y = noisy_rows(1200)
    problem = problem_of(X, Hinge(), C, GAMMA, 1e-4)
    few = solve(Decomposition(working=64, pool=128), problem, X, y)[2]
    all_at_once = solve(Decomposition(), problem, X, y)[2]
    assert few[-1].gap <= 1e-4
    assert few[-1].dual == pytest.approx(all_at_once[-1].dual, rel=2e-4)


@pytest.mark.parametrize("ratio", [2, 4])
def test_decomposition_levels_find_the_same_optimum(ratio: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = noisy_rows(1200)
    problem = problem_of(X, Hinge(), C, GAMMA, 1e-5)
    flat = solve(Decomposition(working=64), problem, X, y)[2]
    monkeypatch.setattr(working_set, "LEVEL_RATIO", ratio)
    assert working_set.size_below(1200, 64) > 64
    found = solve(Decomposition(working=64), problem, X, y)[2]
    assert found[-1].gap <= 1e-5
    assert found[-1].dual == pytest.approx(flat[-1].dual, rel=2e-5)


def test_decomposition_short_model_says_its_gap() -> None:
    X, y = noisy_rows()
    solver = Decomposition(max_support=50)
    state, _, found = solve(solver, problem_of(X, Hinge(), C, GAMMA, 1e-4), X, y)
    solution = solver.solution(state)
    f = gram64(X, X[solution.numbers], GAMMA) @ solution.coefficients + solution.intercept
    K = gram64(X[solution.numbers], X[solution.numbers], GAMMA)
    primal = 0.5 * float(solution.coefficients @ K @ solution.coefficients) + C * float(np.maximum(0, 1 - y * f).sum())
    assert len(solution.coefficients) == 50
    assert found[-1].final
    assert found[-1].primal == pytest.approx(primal, rel=1e-4)
    assert found[-2].gap <= 1e-4
    assert found[-1].rounding <= 1e-8 * primal
    assert not found[-2].exact


@pytest.mark.parametrize("points", [5, 50])
@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()])
def test_decomposition_dual_of_a_short_model_is_that_of_the_long_one(loss: Any, points: int) -> None:
    """A model of fewer rows has another norm; the dual point, and what it proves, is that of all of them."""
    X, y = noisy_rows()
    problem = problem_of(X, loss, C, GAMMA, 1e-4)
    _, rows, found = solve(Decomposition(max_support=points), problem, X, y)
    alpha = rows["alpha"]
    conjugates = sum(loss.conjugate(a, C) for a in alpha if a > 0.0)
    x = alpha * y
    dual = float(alpha.sum() - conjugates - 0.5 * x @ gram64(X, X, GAMMA) @ x)
    assert found[-1].final
    assert found[-1].dual == pytest.approx(dual, rel=1e-5)
    assert found[-1].primal > found[-1].dual


def test_decomposition_last_pass_allowed_makes_the_short_model_too() -> None:
    X, y = noisy_rows()
    solver = Decomposition(max_support=30, pool=60, working=20)
    state, _, found = solve(solver, problem_of(X, Hinge(), C, GAMMA, 1e-9), X, y, passes=4)
    assert found[-1].exact
    assert len(solver.solution(state).coefficients) == 30


def test_decomposition_workers_together_find_what_one_finds() -> None:
    X, y = noisy_rows()
    problem, solver = problem_of(X, Hinge(), C, GAMMA, 1e-9), Decomposition(pool=100, working=32)
    kept = {name: np.zeros(len(y)) for name in ("alpha", "f")}
    state, found = solver.start(problem), []
    for number in range(3):
        if number == 2:
            solver.certify(state)
        workers = [deepcopy(state) for _ in range(3)]
        for k, worker in enumerate([workers[1], workers[2], workers[2], workers[0]]):
            part = slice(100 * k, 100 * k + 100)
            rows = {name: array[part] for name, array in kept.items()}
            order, ones = np.arange(100, dtype=np.int32), np.ones(100, np.float32)
            solver.visit(worker, Block(Dense(X[part]), y[part], ones, k, 100 * k, order, 1000 * number + k, rows=rows))
        state = solver.merge([solver.merge(workers[1:]), workers[0]])
        found.append(closed(solver, state))
    alone, _, expected = solve(solver, problem, X, y, passes=3)
    assert [c.primal for c in found] == pytest.approx([c.primal for c in expected])
    together, single = solver.solution(state), solver.solution(alone)
    np.testing.assert_array_equal(together.numbers, single.numbers)
    np.testing.assert_allclose(together.coefficients, single.coefficients)


@pytest.mark.parametrize("positive", [0.03, 0.97])
def test_decomposition_intercept_is_found_wherever_it_is(positive: float) -> None:
    """Of few rows of one class the intercept is far from 0 when the violation is small already."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)).astype(np.float32)
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=600) > np.quantile(X[:, 0], 1 - positive), 1.0, -1.0)
    problem = problem_of(X, Hinge(), 10.0, 0.02, 1e-4)
    _, _, found = solve(Decomposition(), problem, X, y.astype(np.float32), passes=12)
    assert found[-1].gap <= 1e-4


@pytest.mark.data
def test_decomposition_a9a_as_libsvm_solves_it(data_file: Callable[[str], Path]) -> None:
    from sklearn.datasets import load_svmlight_file
    from sklearn.svm import SVC

    with lzma.open(data_file("a9a.xz")) as file:
        X, y = load_svmlight_file(file, n_features=123, dtype=np.float32)
    X, y = X.toarray()[:4000], y[:4000].astype(np.float32)
    problem = problem_of(X, Hinge(), 1.0, 0.03, 1e-5)
    _, _, found = solve(Decomposition(pool=1500), problem, csr_of(X), y, block=1000)
    other = SVC(C=1.0, gamma=0.03, tol=1e-4).fit(X, y)
    support, signed = X[other.support_], other.dual_coef_[0]
    square = np.maximum(((support**2).sum(1)[:, None] + (support**2).sum(1) - 2.0 * support @ support.T), 0.0)
    dual = float(np.abs(signed).sum() - 0.5 * signed @ np.exp(-0.03 * square.astype(np.float64)) @ signed)
    assert found[-1].dual == pytest.approx(dual, rel=1e-5)
    assert len(found) <= 30


def test_decomposition_kernel_values_that_range_too_far_end_it_as_stalled() -> None:
    """Columns of 1e37: what a pair of coordinates gains is lost in rounding. It ends by itself, and D is a bound still."""
    X, y = noisy_rows(60)
    far, problem = np.float32(1e37) * X, replace(problem_of(X, Hinge(), 1.0, GAMMA, 1e-3), kernel=Linear())
    reach = Reach(4, float(np.square(far, dtype=np.float64).sum(1).max()))
    state, _, found = solve(Decomposition(), replace(problem, reach=reach), far, y, passes=100)
    assert len(found) < 30
    assert found[-1].final
    assert found[-1].exact
    assert state.stalled
    assert 0.0 <= found[-1].dual <= len(y)  # which P(0) is: the optimum is not above
    assert found[-1].dual <= found[-1].primal < np.inf
    near, _, certified = solve(Decomposition(), problem, X, y, passes=100)
    assert certified[-1].gap <= 1e-3
    assert not near.stalled


def test_decomposition_kernel_without_an_optimum_is_told_at_once() -> None:
    """tanh(x.z / 3) has negative eigenvalues: a squared hinge lets coefficients grow for ever, to 1e198 and beyond."""
    X, y = noisy_rows(60, 3)
    problem = replace(problem_of(X, SquaredHinge(), 1.0, GAMMA), kernel=Sigmoid(1.0 / 3.0))
    with pytest.raises(UsageError, match="has no optimum: the kernel Sigmoid"):
        solve(Decomposition(), problem, X, y, passes=4)
    for bounded in (replace(problem, C=1e-3), replace(problem, loss=Hinge())):
        _, _, found = solve(Decomposition(), bounded, X, y, passes=20)
        assert abs(found[-1].gap) < 1e-3


def visited_once(solver: Decomposition, X: Any, y: Any) -> Any:
    """A state that has met all rows, and is not the last one."""
    state = solver.start(problem_of(X, Hinge(), C, GAMMA))
    order, rows = np.arange(len(y), dtype=np.int32), {name: np.zeros(len(y)) for name in ("alpha", "f")}
    solver.visit(state, Block(Dense(X), y, np.ones(len(y), np.float32), 0, 0, order, 0, rows=rows))
    return state


def test_decomposition_proves_nothing_until_decision_values_are_exact() -> None:
    """Its rounding is not said either: it is that of an f that will be left."""
    X, y = noisy_rows()
    solver = Decomposition()
    state = visited_once(solver, X, y)
    state.drift = state.weight = 1e6
    found = solver.finish(state)
    assert not found.exact
    assert found.rounding == 0.0


def rows_with(v: Any, x: Any = 0.0, *, first: int = 0) -> Pool:
    """Rows with coordinates between 0 and 1, and these v."""
    n, zero = len(v), np.zeros(len(v))
    numbers = np.arange(first, first + n)
    X = Dense(numbers.astype(np.float32)[:, None])
    return Pool(X, numbers, zero + 1.0, zero, zero.copy(), zero + 1.0, zero, zero + x, np.array(v, float))


def block_of(X: Any, y: Any, s: Any, rows: Any, start: int = 0) -> Block:
    return Block(Dense(X), y, s, 0, start, np.arange(len(y), dtype=np.int32), 0, rows=rows)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), EpsilonInsensitive(0.25)])
def test_decomposition_pass_sums_are_those_of_its_rows(loss: Any) -> None:
    """All in float64, over two blocks: each of them is in the bounds, or in what rounding does to them."""
    X, y = noisy_rows(ROWS)
    rng = np.random.default_rng(4)
    s = rng.choice([0.0, 0.5, 2.0], ROWS).astype(np.float32)
    top = np.array([min(loss.upper(C * float(c)), 3.0) for c in s])
    alpha = rng.choice([0.0, 0.5, 1.0], ROWS) * top * (rng.choice([-1.0, 1.0], ROWS) if loss.numeric() else 1.0)
    f = rng.normal(size=ROWS)
    state = Decomposition().start(replace(PROBLEM, loss=loss))
    state.drift, state.reach, state.intercept = 0.01, 0.5, 0.125
    for part in (slice(0, 150), slice(150, ROWS)):
        block = block_of(X[part], y[part], s[part], {"alpha": alpha[part], "f": f[part]}, part.start)
        add_to_bounds(state, block, rows_of(state, block))
    signs = 1.0 if loss.numeric() else y.astype(float)
    x = signs * alpha
    assert state.support_met == np.count_nonzero(x)
    assert state.square == pytest.approx(x @ f, rel=1e-12)
    assert state.weight == pytest.approx(np.abs(alpha).sum(), rel=1e-12)
    targets = np.abs(x) @ np.abs(y.astype(float)) if loss.numeric() else 0.0
    assert state.absolute == pytest.approx(np.abs(x) @ np.abs(f) + targets, rel=1e-12)
    assert state.total == pytest.approx(float(s.sum(dtype=float)), rel=1e-12)
    slopes = 1.0 + y.astype(float) if loss.numeric() else np.ones(ROWS)
    gains = [a * u - loss.conjugate(a, C * float(c)) for a, u, c in zip(alpha, slopes, s, strict=True) if c > 0.0]
    assert state.dual == pytest.approx(sum(gains), rel=1e-9)
    shifts = 0.125 + np.linspace(-0.5, 0.5, 129)
    np.testing.assert_allclose(state.shifts(), shifts, rtol=1e-12)
    for k in (0, 64, 128):
        m = f + shifts[k] - y if loss.numeric() else y * (f + shifts[k])
        for sums, slack in ((state.losses, 0.0), (state.upper_losses, 0.01)):
            worst = [max(loss.value(u - slack), loss.value(u + slack)) for u in m.astype(float)]
            assert sums[k] == pytest.approx(C * float(s.astype(float) @ worst), rel=1e-9)


def test_decomposition_bounds_the_error_of_f_after_moves_in_memory() -> None:
    """Over two pools: an error of values for the travel of each; the intercept is the threshold, and moved rows those whose x did."""
    X, y = noisy_rows(ROWS)
    solver = Decomposition(pool=100, working=30)
    state = solver.start(problem_of(X, Hinge(), C, GAMMA, 1e-6))
    rows, drift = {name: np.zeros(ROWS) for name in ("alpha", "f")}, 0.0
    for _ in range(2):
        solver.visit(state, block_of(X, y, np.ones(ROWS, np.float32), rows))
        solver.finish(state)
        work = state.work
        assert work is not None
        while solver.pending(state):
            solver.proceed(state)
        assert state.pool is work.pool
        travel = work.levels[0].known.moves.travel
        assert travel >= np.abs(work.pool.x - work.before).sum() * (1.0 - 1e-12)
        drift += error_of_values(state.form, state.largest, work.pool.size, travel)
        assert state.drift == pytest.approx(drift, rel=1e-12, abs=0.0)
        assert state.intercept == working_set.estimate_threshold(work.pool)
        changed = np.flatnonzero(work.pool.x != work.before)
        assert state.moved is not None
        np.testing.assert_array_equal(state.moved.index, work.pool.index[changed])
        np.testing.assert_array_equal(state.moved.x, (work.pool.x - work.before)[changed])
        assert (state.moved.sign == 1.0).all()
    assert len(state.gaps) == 2
    solver.visit(state, block_of(X, y, np.ones(ROWS, np.float32), rows))
    solver.finish(state)
    solver.set_deadline(state, time.perf_counter() - 1.0)
    steps = 0
    while solver.pending(state):
        solver.proceed(state)
        steps += 1
    assert steps == 2  # one working set, and a look at the clock
    assert state.gaps == []


def test_decomposition_bounds_the_error_of_decision_values() -> None:
    """Of a short model by what its own points bring; rounding is that of the larger, as x moved on the values before."""
    state = Decomposition().start(PROBLEM)
    state.largest, state.drift, state.weight, state.absolute = Reach(4, 20.0), 1e-9, 3.0, 5.0
    state.losses[7], state.upper_losses[7] = 2.0, 2.5
    assert state.value_error() == 1e-9
    assert state.rounding(7) == bound_rounding(PROBLEM, 1e-9, 3.0, 5.0, (2.0, 2.5))
    points = rows_with(np.zeros(6), np.array([1.0, -2.0, 0.5, 0.0, 1.0, 1.5]))
    state.recompute_support = points
    exact = error_of_values(state.certified_form(), state.largest, 6, 6.0)
    assert 0.0 < exact < 1e-9
    assert state.value_error() == exact
    assert state.rounding(7) == bound_rounding(PROBLEM, exact, 3.0, 5.0, (2.0, 2.5))
    state.reduced = select_rows(points, np.arange(2))
    assert state.value_error() == error_of_values(state.form, state.largest, 2, 3.0) > 1e-9
    state.drift = 1.0
    assert state.value_error() < 1.0
    assert state.rounding(7) == bound_rounding(PROBLEM, 1.0, 3.0, 5.0, (2.0, 2.5))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("sparse", [False, True])
def test_decomposition_takes_quadratic_time_on_repeated_points(loss: str, sparse: bool, tmp_path: Path) -> None:
    """Ten points with labels at random: twice the rows took seven times as long, 8,000 of them ten seconds."""
    draw = np.random.default_rng(0)
    spent = []
    for rows in (2500, 8000, 8000):  # the first compiles
        X: Any = np.repeat(draw.normal(size=(10, 4)), rows // 10, 0).astype(np.float32)
        sv.ingest(
            scipy.sparse.csr_matrix(X) if sparse else X,
            str(tmp_path / "s.zarr"),
            y=draw.integers(0, 2, rows),
            overwrite=True,
        )
        began = time.process_time()
        model = sv.fit(
            str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), kernel="rbf", loss=loss, overwrite=True
        ).model
        spent.append(time.process_time() - began)
        assert model.provenance["status"] == "converged"
    assert min(spent[1:]) < 3.0
