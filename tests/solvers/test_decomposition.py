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

from streamsvm.errors import StreamSVMError, UsageError
from streamsvm.kernels import Linear, Sigmoid
from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense, Reach
from streamsvm.solvers.kernel.decomposition import multilevel, pool_work
from streamsvm.solvers.kernel.decomposition.candidates import trimmed
from streamsvm.solvers.kernel.decomposition.solver import GRACE, Decomposition
from streamsvm.solvers.kernel.decomposition.state import FLOAT64_COST
from streamsvm.solvers.kernel.pool import worst
from streamsvm.types import Block
from tests.arrays import csr_of
from tests.solvers.kernel_problems import closed, gram64, noisy_rows, problem_of, solve

GAMMA, C = 0.5, 2.0


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
def test_the_certificate_is_true(loss: Any, pool: int) -> None:
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


def test_every_pass_certifies_the_a_it_ended_with() -> None:
    X, y = noisy_rows()
    problem = problem_of(X, Hinge(), C, GAMMA, 1e-6)
    for passes in (2, 3, 5):
        solver = Decomposition(working=16, pool=40)
        _, rows, found = solve(solver, problem, X, y, passes=passes)
        _, dual = explicit(X, y, np.ones(len(y)), rows["alpha"], 0.0, Hinge())
        assert found[-1].dual == pytest.approx(dual, rel=1e-5)
        assert all(later.dual >= sooner.dual - 1e-6 for sooner, later in pairwise(found))


def test_the_solution_is_the_model() -> None:
    X, y = noisy_rows()
    solver = Decomposition()
    state, rows, _ = solve(solver, problem_of(X, Hinge(), C, GAMMA), X, y)
    solution = solver.solution(state)
    support = np.flatnonzero(rows["alpha"])
    np.testing.assert_array_equal(solution.numbers, support)
    np.testing.assert_allclose(solution.coefficients, (rows["alpha"] * y)[support])
    np.testing.assert_array_equal(solution.points.values, X[support])


def test_libsvm_has_the_same_objective_and_intercept() -> None:
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


def test_form_and_blocks_do_not_matter() -> None:
    X, y = noisy_rows()
    problem = problem_of(X, Hinge(), C, GAMMA)
    duals = [solve(Decomposition(), problem, X, y, block=block)[2][-1].dual for block in (33, 200, 400)]
    duals.append(solve(Decomposition(), problem, csr_of(X), y)[2][-1].dual)
    np.testing.assert_allclose(duals, duals[0], rtol=1e-5)


def test_many_violators_are_sampled_and_the_optimum_is_the_same() -> None:
    X, y = noisy_rows(1200)
    problem = problem_of(X, Hinge(), C, GAMMA, 1e-4)
    few = solve(Decomposition(working=64, pool=128), problem, X, y)[2]
    all_at_once = solve(Decomposition(), problem, X, y)[2]
    assert few[-1].gap <= 1e-4
    assert few[-1].dual == pytest.approx(all_at_once[-1].dual, rel=2e-4)


@pytest.mark.parametrize("ratio", [2, 4])
def test_levels_find_the_same_optimum(ratio: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = noisy_rows(1200)
    problem = problem_of(X, Hinge(), C, GAMMA, 1e-5)
    flat = solve(Decomposition(working=64), problem, X, y)[2]
    monkeypatch.setattr(multilevel, "LEVEL_RATIO", ratio)
    assert multilevel.size_below(1200, 64) > 64
    found = solve(Decomposition(working=64), problem, X, y)[2]
    assert found[-1].gap <= 1e-5
    assert found[-1].dual == pytest.approx(flat[-1].dual, rel=2e-5)


@pytest.mark.parametrize("size", [10, 64, 65, 1000, 10**6])
def test_levels_lead_down_to_the_working_set(size: int) -> None:
    sizes = [size]
    while sizes[-1] > 64:
        sizes.append(multilevel.size_below(sizes[-1], 64))
        assert 64 <= sizes[-1] < sizes[-2]
        assert sizes[-2] <= (multilevel.LEVEL_RATIO + 1) * sizes[-1]


def test_a_short_model_says_its_gap() -> None:
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
def test_the_dual_of_a_short_model_is_that_of_the_long_one(loss: Any, points: int) -> None:
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


def test_the_last_pass_allowed_makes_the_short_model_too() -> None:
    X, y = noisy_rows()
    solver = Decomposition(max_support=30, pool=60, working=20)
    state, _, found = solve(solver, problem_of(X, Hinge(), C, GAMMA, 1e-9), X, y, passes=4)
    assert found[-1].exact
    assert len(solver.solution(state).coefficients) == 30


def test_workers_together_find_what_one_finds() -> None:
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
def test_the_intercept_is_found_wherever_it_is(positive: float) -> None:
    """Of few rows of one class the intercept is far from 0 when the violation is small already."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)).astype(np.float32)
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=600) > np.quantile(X[:, 0], 1 - positive), 1.0, -1.0)
    problem = problem_of(X, Hinge(), 10.0, 0.02, 1e-4)
    _, _, found = solve(Decomposition(), problem, X, y.astype(np.float32), passes=12)
    assert found[-1].gap <= 1e-4


def test_no_pass_no_model() -> None:
    X, _ = noisy_rows()
    solver = Decomposition()
    with pytest.raises(StreamSVMError, match="no pass was left"):
        solver.solution(solver.start(problem_of(X, Hinge(), C, GAMMA)))


def test_rounds_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilevel, "rounds_for", lambda *_: 1)
    monkeypatch.setattr(pool_work, "rounds_for", lambda *_: 1)
    X, y = noisy_rows()
    _, _, found = solve(Decomposition(working=8), problem_of(X, Hinge(), C, GAMMA, 1e-3), X, y, passes=300)
    assert found[-1].dual > 0.0


@pytest.mark.data
def test_a9a_as_libsvm_solves_it(data_file: Callable[[str], Path]) -> None:
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


def test_kernel_values_that_range_too_far_end_it_as_stalled() -> None:
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


def test_a_kernel_without_an_optimum_is_told_at_once() -> None:
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


@pytest.mark.parametrize(("left", "kept"), [(-1.0, True), (-1.0, False), (3600.0, False)])
def test_f_is_computed_anew_at_the_end_where_that_is_soon_done(left: float, kept: bool) -> None:
    """A kernel value took so long that f of all rows from the support takes a tenth less than the grace, or a tenth more."""
    X, y = noisy_rows()
    solver = Decomposition()
    state = visited_once(solver, X, y)
    closed(solver, state)
    assert state.pool is not None
    values = FLOAT64_COST * len(y) * np.count_nonzero(state.pool.x)
    state.pace = (0.9 if kept else 1.1) * GRACE / values
    state.deadline, state.everywhere = time.perf_counter() + left, True
    solver.certify(state)
    assert not state.everywhere
    assert (state.anew is not None) == (kept or left > 0.0)
    assert state.collecting == (state.anew is None)


def test_time_is_owed_for_the_rows_of_each_level_and_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each times the rows that were chosen there last."""
    monkeypatch.setattr(multilevel, "LEVEL_RATIO", 2)
    X, y = noisy_rows()
    solver = Decomposition(pool=100, working=20)
    state = visited_once(solver, X, y)
    solver.finish(state)
    while state.work is not None and len(state.work.levels) < 2:
        solver.proceed(state)
    assert state.work is not None
    first, _ = state.work.levels
    state.pace = 1e-3
    assert state.owed() == 0.0  # there is no deadline
    state.deadline = time.perf_counter() + 3600.0
    chosen = len(first.known.recent)
    assert state.owed() == pytest.approx(1e-3 * (first.pool.size * chosen + len(y) * chosen))


@pytest.mark.parametrize(("pool", "working", "levels"), [(400, 20, True), (100, 20, False), (400, 400, False)])
def test_a_pool_of_all_rows_has_rounds_without_end_where_it_is_solved_on_levels(
    pool: int, working: int, levels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multilevel, "LEVEL_RATIO", 2)
    monkeypatch.setattr(pool_work, "ROUNDS", -1)
    X, y = noisy_rows(400)
    solver = Decomposition(pool=pool, working=working)
    state = visited_once(solver, X, y)
    solver.finish(state)
    assert state.work is not None
    assert (state.work.pool.size == len(y)) == (pool == len(y))
    assert (state.work.levels[0].known.rounds == -1) == levels


def test_a_pass_of_which_rounding_leaves_nothing_certain_proves_nothing_before_f_is_computed_anew() -> None:
    """Its rounding is not said either: it is that of an f that will be left."""
    X, y = noisy_rows()
    solver = Decomposition()
    state = visited_once(solver, X, y)
    state.drift = state.weight = 1e6
    found = solver.finish(state)
    assert not found.exact
    assert found.rounding == 0.0


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_no_row_is_left_out_where_there_is_room_for_all(rate: float) -> None:
    X, y = noisy_rows()
    state = visited_once(Decomposition(), X, y)
    (rows,) = state.candidates
    state.rate = rate
    assert trimmed(state, rows, rows.size) is rows
    assert trimmed(state, rows, rows.size - 1).size < rows.size


@pytest.mark.parametrize(("rate", "drawn"), [(0.75, True), (1.0, False)])
def test_of_violators_that_were_drawn_a_draw_is_left_and_a_few_of_the_worst(rate: float, drawn: bool) -> None:
    """Where all were offered the worst are."""
    X, y = noisy_rows()
    state = visited_once(Decomposition(), X, y)
    (rows,) = state.candidates
    state.rate, rows.v = rate, np.random.default_rng(0).normal(size=rows.size)
    left, order = trimmed(state, rows, 200), worst(rows, 200)
    assert set(rows.index[worst(rows, multilevel.WORST_ROWS)]) <= set(left.index)
    assert left.size <= 200
    assert (set(left.index) != set(rows.index[order])) == drawn
