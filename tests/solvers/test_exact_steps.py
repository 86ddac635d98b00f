"""Steps with the second derivatives of all rows: few readings to any gap, bounds that hold, and the same from parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from streamsvm.losses import Logistic
from streamsvm.rows import CSR, Dense
from streamsvm.solvers.newton.exact_steps import ExactSteps, rows_of_a_sample
from streamsvm.solvers.newton.solver import Newton
from streamsvm.solvers.point_evaluation import PointSums
from streamsvm.types import Block, Problem
from tests.solvers.kernel_problems import solve

ROWS = 6000


def drawn(seed: int, sparse: bool) -> tuple[Any, Any, Any]:
    """Rows of columns of several scales, one of them rare; two classes; weights with 0 among them."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(ROWS, 8)) * 10.0 ** rng.uniform(-1, 1, 8)).astype(np.float32)
    X[:, 3] = 30.0 * (rng.random(ROWS) < 0.005)
    score = X @ rng.normal(size=8)
    y = np.where(score + score.std() * rng.normal(size=ROWS) > 0.0, 1.0, -1.0).astype(np.float32)
    if not sparse:
        return Dense(X, 1.0), y, rng.choice([0.0, 0.5, 1.0, 3.0], ROWS).astype(np.float32)
    X[rng.random(X.shape) < 0.5] = 0.0
    stored = sp.csr_matrix(X)
    rows = CSR(stored.data, stored.indices.astype(np.int32), stored.indptr.astype(np.int64), 1.0)
    return rows, y, rng.choice([0.0, 0.5, 1.0, 3.0], ROWS).astype(np.float32)


def problem_of(C: float, tolerance: float) -> Problem:
    return Problem(Logistic(), C, ROWS, 8, 1, 1.0, tolerance=tolerance)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
def test_the_gap_is_closed_in_few_readings_without_all_rows(C: float, sparse: bool) -> None:
    X, y, s = drawn(int(1000 * C), sparse)
    _, _, best = solve(Newton(), problem_of(C, 1e-11), X, y, s, passes=30)
    state, _, found = solve(Newton(sample=1500), problem_of(C, 1e-9), X, y, s, passes=30)
    assert best[-1].gap <= 1e-11
    assert state.all_rows is None
    assert state.exact_steps is not None
    assert found[-1].gap <= 1e-9
    assert len(found) <= 9
    assert all(one.dual <= best[-1].primal * (1.0 + 1e-12) for one in found)
    assert all(one.primal >= best[-1].dual * (1.0 - 1e-12) for one in found)


def test_a_pass_in_parts_sums_up_what_one_pass_does() -> None:
    X, y, s = drawn(2, sparse=False)
    solver, problem, order = Newton(sample=1500), problem_of(1.0, 1e-9), np.arange(ROWS, dtype=np.int32)
    state, cut = solver.start(problem), 2500
    whole = Block(X, y, s, 0, 0, order, 0)
    pieces = [
        Block(Dense(X.values[a:b], 1.0), y[a:b], s[a:b], 0, a, order[: b - a], 0) for a, b in [(0, cut), (cut, ROWS)]
    ]
    solver.visit(state, whole)
    solver.finish(state)
    assert state.summing
    parts = [solver.part(state), solver.part(state)]
    for part, piece in zip(parts, pieces, strict=True):
        solver.visit(part, piece)
    alone = solver.part(state)
    solver.visit(alone, whole)
    joined = solver.merge(parts)
    assert joined.hessian is not None
    assert alone.hessian is not None
    assert joined.hessian == pytest.approx(alone.hessian, rel=1e-12)


def test_after_a_step_that_was_cut_the_next_ones_are_whole_again() -> None:
    """Of rare columns a small sample has few rows: steps made of what bent before had to be cut again and again, 17 readings."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 8)).astype(np.float32)
    for column, share in ((5, 0.01), (6, 0.005), (7, 0.002)):
        X[:, column] = 10.0 * (rng.random(ROWS) < share)
    score = X[:, :5] @ rng.normal(size=5) - 0.15 * X[:, 7] + 0.1 * X[:, 6]
    y = np.where(score + score.std() * rng.normal(size=ROWS) > 0.0, 1.0, -1.0).astype(np.float32)
    solver, s = Newton(sample=600), np.ones(ROWS, np.float32)
    _, _, found = solve(solver, problem_of(100.0, 1e-3), Dense(X, 1.0), y, s, passes=20)
    assert found[-1].gap <= 1e-3
    assert len(found) <= 9


@pytest.mark.parametrize(
    ("rise", "slope", "length"), [(0.5, 1.0, 0.25), (0.5, 0.6, 1 / 12), (0.5, 0.5, 0.005), (0.0, -1.0, 0.5)]
)
def test_a_step_is_cut_to_half_of_where_the_tangent_is_below_the_center(
    rise: float, slope: float, length: float
) -> None:
    direction = np.array([2.0, 4.0])
    steps, sums = ExactSteps(np.zeros(2), 1.0, direction, promised=1.0), PointSums(2)
    found = sums.close(Problem(Logistic(), 1.0, 1, 1, 1, 1.0), steps.point)
    gradient = slope * direction / (direction @ direction)
    assert not steps.taken(found._replace(value=1.0 + rise, v=steps.point - gradient))
    assert steps.length == pytest.approx(length)
    assert steps.taken(found._replace(value=0.5))


@pytest.mark.parametrize(("rows", "columns", "kept"), [(10**6, 3, 2_000), (10**6, 99, 20_000), (1_500, 99, 1_500)])
def test_a_sample_has_two_thousand_rows_or_two_hundred_a_component_and_no_more_than_there_are(
    rows: int, columns: int, kept: int
) -> None:
    assert rows_of_a_sample(Problem(Logistic(), 1.0, rows, columns, 1)) == kept
