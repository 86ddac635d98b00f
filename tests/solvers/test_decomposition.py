"""Kernel machines by decomposition, of classes and of numbers: the optimum of LIBSVM, true certificates, short models, working sets."""

from __future__ import annotations

import lzma
import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import streamsvm as sv
from streamsvm.compute.passes.smo import smo
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.fit.driver import fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.kernels import RBF, Linear, Sigmoid
from streamsvm.losses import EpsilonInsensitive, Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense, Reach
from streamsvm.solvers.kernel.decomposition import (
    Decomposition,
    add_to_bounds,
    rows_of,
)
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.solvers.kernel.smo import Interval, Progress, optimize_working_set, solve_box
from streamsvm.store.views import MemoryStore
from streamsvm.types import Block, Status
from tests.arrays import csr_of
from tests.axes import each_value
from tests.solvers.kernel_problems import closed, gram64, noisy_rows, problem_of, solve, weights_of
from tools.fuzz import optima_peers as peers
from tools.fuzz.optima import TASKS, compared

GAMMA, C, ROWS = 0.5, 2.0, 400


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


@each_value(("loss", ["hinge", "squared_hinge"]), ("sparse", [False, True]))
def test_decomposition_moves_repeated_points_together(
    loss: Any, sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten points with labels at random, 400 rows each: row by row they took 2,000 steps, or 14,000."""
    steps, plain = list[int](), solve_box

    def counted(*values: Any, **more: Any) -> int:
        steps.append(plain(*values, **more))
        return steps[-1]

    monkeypatch.setattr("streamsvm.solvers.kernel.smo.solve_box", counted)
    draw, rows = np.random.default_rng(0), 4000
    X: Any = np.repeat(draw.normal(size=(10, 4)), rows // 10, 0).astype(np.float32)
    X = scipy.sparse.csr_matrix(X) if sparse else X
    sv.ingest(X, str(tmp_path / "s.zarr"), y=draw.integers(0, 2, rows))
    model = sv.fit(str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), kernel="rbf", loss=loss).model
    assert model.provenance["status"] == "converged"
    assert 0 < sum(steps) < 500


@each_value(("loss", [Hinge(), SquaredHinge()]), ("points", [5, 50]))
def test_decomposition_short_model_says_its_gap_to_the_dual_of_the_long_one(loss: Any, points: int) -> None:
    """A model of fewer rows has another norm; the dual point, and what it proves, is that of all of them."""
    X, y = noisy_rows()
    solver = Decomposition(max_support=points)
    state, rows, found = solve(solver, problem_of(X, loss, C, GAMMA, 1e-4), X, y)
    solution, x = solver.solution(state), rows["alpha"] * y
    f = gram64(X, X[solution.numbers], GAMMA) @ solution.coefficients + solution.intercept
    norm = solution.coefficients @ gram64(X[solution.numbers], X[solution.numbers], GAMMA) @ solution.coefficients
    primal = 0.5 * float(norm) + C * sum(map(loss.value, (y * f).tolist()))
    conjugates = sum(loss.conjugate(a, C) for a in rows["alpha"] if a > 0.0)
    dual = float(np.abs(x).sum() - conjugates - 0.5 * x @ gram64(X, X, GAMMA) @ x)
    assert len(solution.coefficients) == points
    assert found[-1].final
    assert not found[-2].exact
    assert found[-2].gap <= 1e-4
    assert found[-1].primal == pytest.approx(primal, rel=1e-4)
    assert found[-1].dual == pytest.approx(dual, rel=1e-5)
    assert found[-1].rounding <= 1e-8 * primal


@pytest.mark.parametrize("loss", [Hinge(), EpsilonInsensitive(0.25)])
def test_decomposition_bound_of_rounding_counts_every_row_of_a_pass(loss: Any) -> None:
    """What goes into the certificate and into the bound of its rounding, over two blocks, in float64."""
    X, y = noisy_rows(ROWS)
    rng = np.random.default_rng(4)
    s = rng.choice([0.0, 0.5, 2.0], ROWS).astype(np.float32)
    top = np.array([min(loss.upper(C * float(c)), 3.0) for c in s])
    alpha = rng.choice([0.0, 0.5, 1.0], ROWS) * top * (rng.choice([-1.0, 1.0], ROWS) if loss.numeric() else 1.0)
    f = rng.normal(size=ROWS)
    state = Decomposition().start(problem_of(X, loss, C, GAMMA, 1e-3))
    state.drift, state.half_width, state.intercept = 0.01, 0.5, 0.125
    for part in (slice(0, 150), slice(150, ROWS)):
        rows, order = {"alpha": alpha[part], "f": f[part]}, np.arange(len(y[part]), dtype=np.int32)
        block = Block(Dense(X[part]), y[part], s[part], 0, part.start, order, 0, rows=rows)
        add_to_bounds(state, block, rows_of(state, block))
    x = (1.0 if loss.numeric() else y.astype(float)) * alpha
    targets = np.abs(x) @ np.abs(y.astype(float)) if loss.numeric() else 0.0
    assert state.visited_support == np.count_nonzero(x)
    assert state.square == pytest.approx(x @ f, rel=1e-12)
    assert state.weight == pytest.approx(np.abs(alpha).sum(), rel=1e-12)
    assert state.absolute == pytest.approx(np.abs(x) @ np.abs(f) + targets, rel=1e-12)
    assert state.total == pytest.approx(float(s.sum(dtype=float)), rel=1e-12)
    shifts = 0.125 + np.linspace(-0.5, 0.5, 129)
    for k in (0, 64, 128):
        m = f + shifts[k] - y if loss.numeric() else y * (f + shifts[k])
        for sums, slack in ((state.losses, 0.0), (state.upper_losses, 0.01)):
            worst = [max(loss.value(u - slack), loss.value(u + slack)) for u in m.astype(float)]
            assert sums[k] == pytest.approx(C * float(s.astype(float) @ worst), rel=1e-9)


# -- working sets --------------------------------------------------------------------------------------------------------


def objective(M: Any, p: Any, x: Any) -> float:
    return float(0.5 * x @ M.astype(np.float64) @ x - p @ x)


def pool_of(n: int = 300) -> tuple[Pool, Any]:
    X, y = noisy_rows(n)
    z, zero = np.ones(n), np.zeros(n)
    p = y.astype(np.float64)
    pool = Pool(
        Dense(X), np.arange(n), z, zero + 0.3, np.minimum(y, 0.0) * 2.0, np.maximum(y, 0.0) * 2.0, p, zero, p.copy()
    )
    return pool, gram64(X, X, GAMMA) + 0.3 * np.eye(n)


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
    assert steps == 4


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


def circle(count: int, C: float) -> tuple[Any, Any, Interval]:
    """A smooth kernel's Gram matrix, the linear term, and the box of labels of which one in ten is wrong."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (count, 2))
    y = np.where((np.square(X).sum(1) < 0.6) ^ (rng.random(count) < 0.1), 1.0, -1.0)
    M = np.exp(-0.5 * np.square(X[:, None] - X[None]).sum(2))
    return M, y, Interval(np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0))


def test_working_set_box_problem_reaches_what_pairs_alone_do_not() -> None:
    M, p, box = circle(150, 1e6)
    alone, v = np.zeros(150), p.copy()
    assert smo(M, alone, box.low, box.high, v, 1e-6, 200_000) == 200_000
    together, v = np.zeros(150), p.copy()
    assert solve_box(M, together, v, box, 1e-6, most=200_000, deadline=math.inf) < 200_000
    grow, shrink = v[together < box.high].max(), v[together > box.low].min()
    assert grow - shrink <= 1e-6
    assert objective(M, p, together) < objective(M, p, alone)


# -- numbers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "loss"),
    [("decomposition", "epsilon_insensitive"), ("kernel_active_set", "squared")],
)
def test_kernel_regression_targets_far_from_0_are_the_same_problem(solver: str, loss: str) -> None:
    """The intercept is free: what all targets have in common is its own, P and D are not touched by it."""
    given = peers.draw_numbers(3)
    job = FitJob("m", "m", solver=solver, loss=loss, C=given.C, kernel="rbf", gamma=GAMMA, tolerance=1e-4)
    found = [fit_in_memory(job, peers.store_of(given._replace(y=far + given.y), 400)) for far in (0.0, 1e6)]
    near, away = (result.training.runs[0].certificate for result in found)
    assert near is not None
    assert away is not None
    assert max(near.gap, away.gap) <= 1e-4
    assert away.rounding <= 10.0 * near.rounding
    assert max(near.dual, away.dual) <= min(near.primal, away.primal) * (1 + 1e-8)
    np.testing.assert_allclose(found[1].model.predict(given.X) - 1e6, found[0].model.predict(given.X), atol=1e-2)


def test_kernel_regression_numbers_that_are_all_within_the_tube_of_one_are_refused() -> None:
    given = peers.draw_numbers(0)
    store = peers.store_of(given._replace(y=5.0 + np.linspace(-0.05, 0.05, len(given.X))), 400)
    job = FitJob("m", "m", loss="epsilon_insensitive", kernel="rbf", gamma=GAMMA, max_passes=50)
    with pytest.raises(DataError, match="the best function is the same for every row"):
        fit_in_memory(job, store)


@pytest.mark.parametrize("solver", ["decomposition", "kernel_active_set"])
def test_kernel_regression_fit_of_numbers_that_is_cut_short_says_so(solver: str) -> None:
    """No row has a coefficient after one pass of decomposition; what active sets have found is not certified yet."""
    X, t = smooth_rows()
    store = MemoryStore()
    store.append(Dense(X), t, None)
    store.commit((), 3)
    given: dict[str, Any] = {"loss": "epsilon_insensitive", "kernel": "rbf", "gamma": GAMMA, "solver": solver}
    if solver == "decomposition":
        with pytest.raises(UsageError, match="before any row had a coefficient") as caught:
            fit_in_memory(FitJob("m", "m", max_passes=1, **given), store)
        assert "allow more passes" in str(caught.value.hint)
        return
    first, last = (fit_in_memory(FitJob("m", "m", max_passes=passes, **given), store) for passes in (1, 3))
    cut, found = (result.training.runs[0].certificate for result in (first, last))
    assert cut is not None
    assert found is not None
    assert (first.training.status, last.training.status) == (Status.PASSES, Status.CONVERGED)
    assert (cut.exact, cut.primal, cut.dual) == (False, found.primal, found.dual)
    assert found.primal > 1.0


def smooth_rows() -> tuple[Any, Any]:
    """Rows whose numbers are a smooth function and noise."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(240, 3)).astype(np.float32)
    return X, 5.0 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=len(X))


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared"])
def test_kernel_regression_optimum_with_a_small_pool_is_that_of_other_programs(loss: str) -> None:
    """A loss with a box and one without; ``tests/contract/test_optima.py`` has every loss with the usual pool."""
    task = TASKS["numbers, rbf"]
    smaller = {"options": {"pool": 24, "working": 12}}
    pool = task._replace(settings=lambda given, name: {**task.settings(given, name), **smaller})
    given = task.draw(5)
    outcome = compared(pool, ("decomposition", loss), given, 1e-4, task.peer(given, loss))
    assert outcome.finding == ""
    assert outcome.converged
