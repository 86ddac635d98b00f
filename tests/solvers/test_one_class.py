"""One class with a free offset: the optimum of LIBSVM, whatever share of the rows is kept; bounds that hold for any weights."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from streamsvm.rows import Dense
from streamsvm.solvers.evaluation import PointSums
from streamsvm.solvers.interior_point import InteriorPoint
from streamsvm.solvers.one_class import CORNER, DEGENERATE, OFFSET, OffsetObjective, RowSums
from streamsvm.types import EVERY_ROW, Block, Problem
from tests.solvers.kernel_problems import solve

pytestmark = pytest.mark.filterwarnings("ignore:Solver terminated early")


def fuzzed(seed: int) -> tuple[Any, Any, float]:
    """Rows with columns of several scales, one of about 0 and 1, about a point away from 0; weights, 0 among them, and nu."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(60, 120)), int(rng.integers(2, 7))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-1, 2, d)
    X[:, -1] = (rng.random(n) < 0.3) + 0.05 * rng.normal(size=n)
    X += rng.uniform(0.0, 3.0, d) * np.abs(X).mean(0)
    s = rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32)
    return X.astype(np.float32), s, float(rng.choice([0.05, 0.1, 0.3, 0.5, 0.9]))


def problem_of(X: Any, nu: float, tolerance: float) -> Problem:
    return Problem(CORNER, 1.0, len(X), X.shape[1], EVERY_ROW, OFFSET, tolerance=tolerance, nu=nu)


def value(X: Any, s: Any, nu: float, w: Any) -> float:
    """P(w, rho), from its definition."""
    f, s = X.astype(np.float64) @ w[:-1], s.astype(np.float64)
    return float(0.5 * w[:-1] @ w[:-1] - nu * s.sum() * w[-1] + s @ np.maximum(0.0, w[-1] - f))


def optimum(X: Any, s: Any, nu: float) -> float:
    """What LIBSVM finds; it is given no rows of weight 0, which it would leave out of what it numbers."""
    from sklearn.svm import OneClassSVM

    X, s = X[s > 0].astype(np.float64), s[s > 0].astype(np.float64)
    found = OneClassSVM(kernel="linear", nu=nu, tol=1e-9, max_iter=300_000).fit(X, sample_weight=s)
    v = found.dual_coef_[0] @ X[found.support_]
    return float(-0.5 * v @ v)


@pytest.mark.parametrize("seed", range(8))
def test_one_class_optimum_is_that_of_libsvm_with_few_rows_kept(seed: int) -> None:
    X, s, nu = fuzzed(seed)
    ones = np.ones(len(X), np.float32)
    state, _, found = solve(InteriorPoint(kept=40), problem_of(X, nu, 1e-6), X, ones, s, block=37, passes=60)
    best = optimum(X, s, nu)
    assert found[-1].gap <= 1e-6
    assert max(one.dual for one in found) <= best * (1 - 1e-7)
    assert found[-1].primal <= best * (1 - 2e-6)
    assert value(X, s, nu, state.point) == pytest.approx(found[-1].primal, rel=1e-9)
    f = X.astype(np.float64) @ state.point[:-1] - state.point[-1]
    edge = 1e-3 * np.abs(f).max()
    assert s[f < -edge].sum() <= nu * s.sum() * 1.001  # few are outside
    assert s[f <= edge].sum() >= nu * s.sum() * 0.999


@pytest.mark.parametrize("nu", [0.1, 0.6, 0.95])
def test_one_class_slopes_at_any_weights_are_made_a_feasible_dual_point(nu: float) -> None:
    X, s, _ = fuzzed(7)
    Z = np.hstack([X, np.full((len(X), 1), OFFSET)]).astype(np.float64)
    sums, block = (
        RowSums(Z.shape[1]),
        Block(Dense(X, OFFSET), np.ones(len(X), np.float32), s, 0, 0, np.arange(1, dtype=np.int32), 0),
    )
    sums.add(problem_of(X, nu, 0.0), block)
    objective, rng, best = OffsetObjective(nu, sums), np.random.default_rng(2), optimum(X, s, nu)
    for _ in range(30):
        w = np.append(rng.normal(size=X.shape[1]), 0.0)
        w[-1] = np.quantile(X @ w[:-1], rng.random())
        a = np.where(Z @ w < 0.0, s, 0.0).astype(np.float64)
        assert objective.dual(0.0, a @ Z) <= best * (1 - 1e-7)
        assert objective.value(w) + float(s @ np.maximum(0.0, -(Z @ w))) >= best * (1 + 1e-7)
    assert objective.least <= best * (1 - 1e-7)


def three_rows(*rows: int) -> RowSums:
    """Sums over some of (3, 4), (1, 2) and (0, 5), which weigh 1, 2 and 3."""
    X, s = np.array([[3, 4], [1, 2], [0, 5]], np.float32)[list(rows)], np.array([1, 2, 3], np.float32)[list(rows)]
    sums, n = RowSums(3), len(rows)
    block = Block(Dense(X, OFFSET), np.ones(n, np.float32), s, 0, 0, np.arange(n, dtype=np.int32), 0)
    sums.add(problem_of(X, 0.5, 0.0), block, np.append(s @ (X * X), s.sum()).astype(np.float64))
    return sums


def test_one_class_sums_over_rows_are_joined_from_those_of_workers() -> None:
    sums = three_rows(2, 0)
    sums.merge(three_rows(1))
    assert sums.facts() == {"weight": 6.0, "squared_weights": 14.0, "largest_weight": 3.0}
    np.testing.assert_array_equal(sums.v, [5.0, 23.0, -6.0])
    assert sums.energy == 25.0 + 2 * 5.0 + 3 * 25.0
    assert sums.usual == sums.energy / 6.0
    assert RowSums(3).usual == RowSums(1).usual == float(np.finfo(np.float32).tiny)


@pytest.mark.parametrize("cut", [0.0, 0.4, 1.0])
def test_one_class_point_is_evaluated_by_workers_together_though_one_may_meet_no_rows(cut: float) -> None:
    X, s, nu = fuzzed(3)
    problem, w, n = problem_of(X, nu, 0.0), np.linspace(-1.0, 1.0, X.shape[1] + 1), len(X)
    whole, first, other = (PointSums(len(w)) for _ in range(3))
    at = int(cut * n)
    for sums, part in ((whole, slice(0, n)), (first, slice(0, at)), (other, slice(at, n))):
        order = np.arange(part.stop - part.start, dtype=np.int32)
        if len(order):
            ones = np.ones(len(order), np.float32)
            sums.add(problem, problem.loss, Block(Dense(X[part], OFFSET), ones, s[part], 0, part.start, order, 0), w)
    first.merge(other)
    found, expected = first.close(problem, w), whole.close(problem, w)
    assert found.primal == pytest.approx(expected.primal, rel=1e-12)
    assert found.dual == pytest.approx(expected.dual, rel=1e-12)
    assert first.rows is not None
    assert first.rows.total == pytest.approx(float(s.sum()))


@pytest.mark.parametrize(
    ("v", "dual"),
    [
        ([1.0, 2.0, -6.0], -0.5 * 1.25),  # T = 6 > nu S = 3: a_i / 2
        ([1.0, 2.0, -3.0], -0.5 * 5.0),
        ([1.0, 2.0, -1.5], -0.5 * ((7 / 3) ** 2 + 9.0**2)),
    ],
)
def test_one_class_dual_of_slopes_is_that_of_the_nearest_feasible_point(v: Any, dual: float) -> None:
    """Of the last t = (3 - 1.5) / (6 - 1.5) = 1/3 of the way from (1, 2) to V = (5, 23)."""
    objective = OffsetObjective(0.5, three_rows(0, 1, 2))
    assert objective.mass == 3.0
    assert objective.dual(0.0, np.array(v)) == pytest.approx(dual, rel=1e-14)
    assert objective.least == -0.5 * 0.25 * (25.0 + 529.0)
    assert objective.value(np.array([1.0, 2.0, 5.0])) == 0.5 * 5.0 - 3.0 * 5.0
    little = OffsetObjective(0.05, three_rows(0, 1, 2))  # nu S = .3
    assert little.dual(0.0, np.array([1.0, 2.0, -0.5])) == pytest.approx(-0.5 * 5.0 * 0.6**2, rel=1e-14)
    edge = -0.5 * DEGENERATE * 9.0 * 110.0 / 6.0
    assert objective.degenerate(0.999 * edge)
    assert not objective.degenerate(1.001 * edge)


def test_one_class_rows_around_the_origin_have_no_hyperplane_and_the_run_says_so() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 3)).astype(np.float32)
    X = np.concatenate([X, -X])
    ones = np.ones(len(X), np.float32)
    state, _, found = solve(InteriorPoint(), problem_of(X, 0.5, 1e-6), X, ones, ones, passes=10)
    assert found[-1].final
    assert found[-1].primal == pytest.approx(0.0, abs=1e-3)
    assert np.abs(state.point[:-1]).max() < 1e-2 * 0.5 * len(X)


def test_workers_find_what_one_finds() -> None:
    X, s, nu = fuzzed(3)
    problem, solver = problem_of(X, nu, 1e-6), InteriorPoint(kept=40)
    states = [solver.start(problem) for _ in range(2)]
    for _ in range(6):
        for k, start in enumerate(range(0, len(X), 20)):
            part = slice(start, min(start + 20, len(X)))
            n = part.stop - start
            block = Block(
                Dense(X[part], OFFSET), np.ones(n, np.float32), s[part], k, start, np.arange(n, dtype=np.int32), 0
            )
            solver.visit(states[k % 2], block)
        joined = solver.merge(states)
        found = solver.finish(joined)
        if found.gap <= 1e-6:
            break
        states = [joined, copy.deepcopy(joined)]
        states[1].rows = RowSums(X.shape[1] + 1)
    assert found.primal == pytest.approx(optimum(X, s, nu), rel=1e-5)
