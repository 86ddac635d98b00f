"""Newton's method pass by pass: which chances rows have, what a part carries and what is joined, less memory, what a plan is told."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.losses import SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.newton.solver import Newton
from streamsvm.types import Block, Problem
from tests.solvers.problems import COLUMNS, ROWS, problem_of, rows_of


def whole() -> Block:
    X, y, s = rows_of()
    return Block(Dense(X, 1.0), y, s, 0, 0, np.arange(ROWS, dtype=np.int32), 0)


@pytest.mark.parametrize("passes", [0, 1])
def test_newton_merge_adds_what_parts_found(passes: int) -> None:
    """Squares of the first pass only: those of a later one are the same in every part."""
    solver = Newton(60)
    state = solver.start(problem_of(SquaredHinge()))
    state.passes, parts = passes, []
    for k in range(3):
        part = solver.part(state)
        part.squares, part.factored, part.margins = np.full(2, k + 1.0), k == 1, [(k, np.ones(1))]
        part.hessian = None if k == 0 else np.full((2, 2), float(k))
        parts.append(part)
    joined = solver.merge(parts)
    np.testing.assert_array_equal(joined.squares, np.full(2, 1.0 if passes else 6.0))
    assert joined.factored
    assert [start for start, _ in joined.margins] == [0, 1, 2]
    assert joined.hessian is not None
    np.testing.assert_array_equal(joined.hessian, np.full((2, 2), 3.0))
    assert not solver.merge([solver.part(state), solver.part(state)]).factored


def test_newton_merge_drops_rows_beyond_the_bound_of_others() -> None:
    solver = Newton(60)
    state = solver.start(problem_of(SquaredHinge()))
    for bound, threshold in ((0.5, 0.5), (0.7, 0.5), (0.1, 0.1)):
        solver.set_bound(state, bound)
        assert state.sampler.threshold == threshold
    assert solver.sample_bound(state) == 0.1


def of(rows: int, columns: int, entries: int | None = None) -> Problem:
    nonzeros = None if entries is None else entries * rows
    return Problem(SquaredHinge(), 1.0, rows, columns, 0, nonzeros=nonzeros)


def test_newton_keeps_the_best_point_and_the_best_bound() -> None:
    solver = Newton(60, polish=False)
    state = solver.start(problem_of(SquaredHinge()))
    for _ in range(3):
        solver.visit(state, whole())
        before = solver.finish(state)
    best, dual_point = state.best, state.dual_point
    state.point = np.full(COLUMNS + 1, 50.0)
    solver.visit(state, whole())
    after = solver.finish(state)
    assert (after.primal, after.dual) == (before.primal, before.dual)
    assert state.best is best
    assert state.dual_point is dual_point
    np.testing.assert_array_equal(solver.solution(state).w, best)
