"""Newton's method pass by pass: which chances rows have, what a part carries and what is joined, less memory, what a plan is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.passes.newton import FAR_SHARE
from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.newton.row_sample import SPARE, SPARE_WIDE, PrioritySampler
from streamsvm.solvers.newton.solver import Newton
from streamsvm.types import Block, Problem
from tests.solvers.problems import COLUMNS, ROWS, problem_of, rows_of, signed_rows


def whole() -> Block:
    X, y, s = rows_of()
    return Block(Dense(X, 1.0), y, s, 0, 0, np.arange(ROWS, dtype=np.int32), 0)


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What rows are offered to the sample with, pass by pass."""
    seen, add = [], PrioritySampler.add
    monkeypatch.setattr(
        PrioritySampler, "add", lambda self, block, f, found: (seen.append(found.copy()), add(self, block, f, found))[1]
    )
    return seen


def bending(m: Any, reach: float, corners: Any) -> Any:
    """1, 1/5 or 1/25 as one of the ``corners`` is within ``reach``, or 2 or 4 times that, of a margin; else what is left of far rows."""
    found = np.full(len(m), FAR_SHARE)
    for k in (2, 1, 0):
        near = np.zeros(len(m), np.bool_)
        for corner in corners:
            near |= np.abs(m - corner) < reach * 2.0**k
        found[near] = max(0.2**k, FAR_SHARE)
    return found


@pytest.mark.parametrize(
    ("loss", "mu", "reach"), [(Hinge(), 0.4, 0.4), (Hinge(), 0.05, 0.1), (Huber(0.05), 0.0, 0.5)], ids=str
)
def test_rows_have_chances_by_what_they_are_of_their_columns_and_by_how_near_they_bend(
    loss: Any, mu: float, reach: float, scores: list[Any]
) -> None:
    """After the first pass; s_i (min(1, sum_j x_ij^2 / (sum s x^2 + 1 / C)) + p / n), less where a row is far from the corner."""
    solver, problem = Newton(60), problem_of(loss)
    state = solver.start(problem)
    solver.visit(state, whole())
    np.testing.assert_array_equal(scores[0], rows_of()[2])  # at w = 0 all bend alike
    solver.finish(state)
    state.mu, state.point = mu, np.linspace(-1.0, 1.0, COLUMNS + 1)
    solver.visit(state, whole())
    X, _, s = rows_of()
    Z = np.column_stack([X.astype(float), np.ones(ROWS)])
    total = (s[:, None] * Z**2).sum(0)
    share = np.minimum(1.0, Z**2 @ (1.0 / (total + 1.0 / 0.5))) + (COLUMNS + 1) / ROWS
    m = signed_rows() @ state.point
    width = mu or 0.05
    near = bending(m, reach, [1.0 - width, 1.0 + width])
    inside = np.abs(m - 1.0) < width
    near[inside] = 1.0
    np.testing.assert_allclose(scores[1], s * share * near, rtol=1e-5)
    np.testing.assert_allclose(state.squares, total, rtol=1e-6)


def test_rows_of_a_warm_start_bend_where_they_are_from_the_first_pass_on(scores: list[Any]) -> None:
    """What they are of their columns is not known yet."""
    solver = Newton(60)
    problem = replace(problem_of(SquaredHinge()), warm=np.linspace(-1.0, 1.0, COLUMNS + 1))
    solver.visit(solver.start(problem), whole())
    m = signed_rows() @ np.linspace(-1.0, 1.0, COLUMNS + 1)
    near = bending(m, 0.5, [1.0])
    near[m < 1.0] = 1.0
    np.testing.assert_allclose(scores[0], rows_of()[2] * (COLUMNS + 1) / ROWS * near, rtol=1e-6)


def test_a_part_has_the_point_and_nothing_that_other_parts_have_counted() -> None:
    solver = Newton(60)
    state = solver.start(problem_of(SquaredHinge()))
    solver.visit(state, whole())
    state.margins, state.hessian = [(0, np.ones(3))], np.ones((2, 2))
    part = solver.part(state)
    assert part.point is state.point
    assert not part.squares.any()
    assert state.squares.any()
    assert (part.evaluation.sums.losses, part.sampler.held, part.sampler.parts) == (0.0, 0, [])
    assert part.sampler.threshold == state.sampler.threshold
    assert (part.margins, part.hessian) == ([], None)
    solver.finish(state)
    later = solver.part(state)
    assert later.squares is state.squares  # what the first pass has found goes with every part
    assert [getattr(later, name) for name in solver.driver_fields] == [None] * len(solver.driver_fields)


@pytest.mark.parametrize("passes", [0, 1])
def test_what_parts_have_found_is_added_up(passes: int) -> None:
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


def test_rows_beyond_a_bound_that_others_have_found_are_out() -> None:
    solver = Newton(60)
    state = solver.start(problem_of(SquaredHinge()))
    for bound, threshold in ((0.5, 0.5), (0.7, 0.5), (0.1, 0.1)):
        solver.set_bound(state, bound)
        assert state.sampler.threshold == threshold
    assert solver.sample_bound(state) == 0.1


def of(rows: int, columns: int, entries: int | None = None) -> Problem:
    nonzeros = None if entries is None else entries * rows
    return Problem(SquaredHinge(), 1.0, rows, columns, 0, nonzeros=nonzeros)


@pytest.mark.parametrize(
    ("sample", "problem", "less"),
    [
        (None, of(10**6, 20), 50_000),
        (None, of(3_000, 20), 3_000),
        (50_000, of(10**6, 20), 25_000),
        (4_001, of(10**6, 20), 2_000),
        (3_999, of(10**6, 20), None),
        (None, of(10**5, 2_000, 5), 25_000),  # a quarter of the rows where columns are many, ...
        (25_000, of(10**5, 2_000, 5), 20_000),  # ... then four fifths of that, ...
        (2_500, of(10**5, 2_000, 5), 2_000),
        (2_499, of(10**5, 2_000, 5), None),  # ... and no less than is of use
        (None, of(7_999, 2_000, 5), None),
        (None, of(8_000, 2_000, 5), 2_000),
    ],
)
def test_with_less_memory_a_sample_is_smaller_until_it_is_of_no_use(
    sample: int | None, problem: Problem, less: int | None
) -> None:
    found = Newton(sample).smaller(problem, ())
    assert (found and found.memory_settings()) == (less and {"sample": less})
    assert Newton(sample).smaller(problem, ("sample",)) is None


@pytest.mark.parametrize(("sample", "passes", "rows"), [(None, 3, 1_000), (1_000, 3, 1_000), (100, 5, 500)])
def test_a_plan_is_told_how_often_features_are_asked_for(sample: int | None, passes: int, rows: int) -> None:
    """All rows once, in three passes; a sample anew in each of five."""
    assert Newton(sample).expected(of(1_000, 20)) == (passes, rows)


def test_features_are_needed_but_at_0() -> None:
    solver, problem = Newton(), problem_of(SquaredHinge())
    cold, warm = solver.start(problem), solver.start(replace(problem, warm=np.ones(COLUMNS + 1)))
    assert not solver.needs_features(cold)
    assert solver.needs_features(warm)
    cold.passes = 1
    assert solver.needs_features(cold)


def test_a_sample_that_is_to_fill_the_memory_spares_less() -> None:
    wide = of(10**4, 2_000, 5)
    assert Newton(3_000).start(wide).sampler.spare == SPARE_WIDE
    assert Newton().start(wide).sampler.spare == Newton(3_000).start(of(10**4, 20)).sampler.spare == SPARE


@pytest.mark.parametrize("state", ["gathered", "looking"])
def test_a_pass_that_only_evaluates_keeps_no_rows(state: str) -> None:
    solver = Newton(60)
    found = solver.start(problem_of(SquaredHinge()))
    setattr(found, state, True)
    solver.visit(found, whole())
    assert (found.sampler.held, found.margins) == (0, [])
    assert found.evaluation.sums.losses > 0.0


def test_what_was_summed_up_is_forgotten_with_the_pass() -> None:
    solver = Newton(60)
    state = solver.start(problem_of(SquaredHinge()))
    solver.visit(state, whole())
    state.hessian, salt = np.ones((2, 2)), state.sampler.salt
    certificate = solver.finish(state)
    assert state.hessian is None
    assert (state.margins, state.sampler.salt, state.sampler.held) == ([], salt + 1, 0)
    assert state.evaluation.sums.losses == 0.0
    assert (state.passes, certificate.facts["mu"], certificate.facts["damping"]) == (1, 0.0, 0.0)
    assert (certificate.primal, certificate.dual) == (state.primal, state.dual)


def test_the_best_point_and_the_best_bound_are_kept_though_a_later_one_is_worse() -> None:
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


def test_that_rows_are_made_anew_is_known_from_the_first_of_their_blocks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = Newton(60)
    state, anew = solver.start(problem_of(SquaredHinge())), [False, True, False]
    monkeypatch.setattr("streamsvm.compute.blocks.operators.formed_anew", lambda X: anew.pop(0))
    found = []
    for _ in range(3):
        if not state.factored:
            found.append(anew[0])
        solver.visit(state, whole())
    assert state.factored
    assert found == [False, True]


def test_a_pass_says_how_much_what_led_to_it_was_damped() -> None:
    solver = Newton(60)
    state = solver.start(problem_of(SquaredHinge()))
    solver.visit(state, whole())
    solver.finish(state)
    assert state.trust_region is not None
    damping = state.trust_region.damping
    solver.visit(state, whole())
    assert solver.finish(state).facts["damping"] == damping > 0.0
