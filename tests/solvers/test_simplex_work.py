"""What is done in memory between two passes on the simplex: which rows are offered, how long a method works, what is noted of it."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.kernel_values.rounding import DOUBLE
from streamsvm.errors import DataError, UsageError
from streamsvm.losses import SquaredHinge
from streamsvm.rows import Dense, Reach
from streamsvm.solvers.kernel.pool import Pool, select
from streamsvm.solvers.kernel.rounding import error_of_values
from streamsvm.solvers.kernel.simplex import block_update, pool_method
from streamsvm.solvers.kernel.simplex import state as state_module
from streamsvm.solvers.kernel.simplex.blended import Blended, reached_in
from streamsvm.solvers.kernel.simplex.frank_wolfe import (
    DRAWS_PER_ROW,
    ITERATIONS_IN_STEP,
    FrankWolfe,
    ModifiedFrankWolfe,
    Partan,
    Swap,
)
from streamsvm.solvers.kernel.simplex.state import Candidates, PoolWork, Target
from streamsvm.types import Block
from tests.solvers.kernel_problems import gram64, noisy_rows, problem_of, solve

GAMMA, C, ROWS = 0.5, 2.0, 200
PROBLEM = problem_of(np.zeros((ROWS, 4)), SquaredHinge(), C, GAMMA, 1e-4)


def rows_at(numbers: Any, v: Any = None) -> Pool:
    """Rows by their numbers, with these v."""
    n = len(numbers)
    zero = np.zeros(n)
    v = zero if v is None else np.asarray(v, float)
    X = Dense(np.asarray(numbers, np.float32)[:, None])
    return Pool(X, np.asarray(numbers), zero + 1.0, zero, zero, zero + 1.0, zero, zero.copy(), v.copy())


def largest_v(index: Any, v: Any, count: int) -> Any:
    return np.argsort(-v)[:count]


@pytest.mark.parametrize(("block", "expected"), [(3, [3, 6, 4, 7, 4, 7, 4]), (4, [4, 8, 4, 8, 4])])
def test_of_offered_rows_as_many_are_left_as_are_taken_in_the_end_or_twice_as_many(
    block: int, expected: list[int]
) -> None:
    candidates, v = Candidates(4), np.arange(20.0) % 7
    rows, sizes = rows_at(np.arange(20), v), []
    for start in range(0, 20, block):
        candidates.add(rows, np.arange(start, min(start + block, 20)), largest_v)
        sizes.append(candidates.size)
    assert sizes == expected
    taken = candidates.taken(largest_v)
    assert sorted(taken.v.tolist()) == [5.0, 5.0, 6.0, 6.0]
    assert np.all(np.diff(taken.index) > 0)
    assert [part.size for part in candidates.parts] == [4]


def test_of_a_block_no_more_are_offered_than_are_taken_in_the_end() -> None:
    for count, expected in ((4, [10, 11, 12, 13]), (5, [10, 12, 13, 14])):
        candidates = Candidates(4)
        rows = rows_at(np.arange(10, 20), [3.0, 1.0, 5.0, 4.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        candidates.add(rows, np.arange(count), largest_v)
        (part,) = candidates.parts
        assert part.index.tolist() == expected
        np.testing.assert_array_equal(part.X.values[:, 0], expected)


@pytest.mark.parametrize("pools", [state_module.STALLED_POOLS, state_module.STALLED_POOLS + 1])
@pytest.mark.parametrize(("last", "stops"), [(0.899, False), (0.901, True)])
def test_a_run_ends_where_the_gap_is_nine_tenths_of_what_it_was_twelve_pools_ago(
    pools: int, last: float, stops: bool
) -> None:
    """As a share of f, at which the method stopped in pools of all rows."""
    state = Blended().start(PROBLEM)
    pool = rows_at(np.arange(ROWS))
    for k in range(pools):
        state.seen, state.f = (1.0 if k == 0 else 0.95) * 0.5, 0.5
        if k == pools - 1:
            state.seen = last * 0.5
        state.note_gap(pool)
    assert len(state.gaps) == pools
    assert state.stopped == (stops and pools > state_module.STALLED_POOLS)


def test_gaps_of_pools_that_do_not_tell_are_not_noted() -> None:
    """Of some of the rows, or left because time was over."""
    state = Blended().start(PROBLEM)
    state.seen, state.f = 0.25, 0.5
    state.note_gap(rows_at(np.arange(ROWS - 1)))
    assert state.gaps == []
    state.deadline = time.perf_counter() - 1.0
    state.note_gap(rows_at(np.arange(ROWS)))
    assert state.gaps == []
    state.deadline = math.inf
    state.note_gap(rows_at(np.arange(ROWS)))
    state.f = 0.0
    state.note_gap(rows_at(np.arange(ROWS)))
    assert state.gaps == [0.5, 0.0]


@pytest.mark.parametrize(("left", "up"), [(3600.0, False), (1.5, False), (0.5, True), (-1.0, True)])
def test_time_is_up_when_what_is_left_is_what_the_last_pass_takes(left: float, up: bool) -> None:
    """A hundredth of a second for each of 20 rows with weight and each 200th part of the rows: 1 s in all."""
    state = Blended().start(PROBLEM)
    a = np.zeros(50)
    a[:20], state.pace = 0.05, 1.0 / (20 * ROWS)
    assert not state.time_is_up(a)
    state.deadline = time.perf_counter() + left
    assert state.time_is_up(a) == up


def noted(iterations: int) -> list[int]:
    """When an entry of a trajectory is due: when there are a tenth more iterations, or one more."""
    found, due = [], 0.0
    for count in range(iterations + 1):
        if count >= due:
            found.append(count)
            due = max(1.1 * count, count + 1)
    return found


@pytest.mark.parametrize("method", [FrankWolfe, ModifiedFrankWolfe, Swap, Partan])
@pytest.mark.parametrize("sample", [0, 30])
def test_iterations_are_as_many_as_allowed_and_noted_as_they_grow_by_a_tenth(method: Any, sample: int) -> None:
    X, y = noisy_rows(ROWS)
    problem = problem_of(X, SquaredHinge(), C, GAMMA, 1e-12)
    state, _, found = solve(method(iterations=100, sample=sample), problem, X, y, passes=3)
    first, second = found[1].facts, found[2].facts
    assert (first["iterations"], second["iterations"]) == (100, 200)
    assert [entry[0] for entry in first["trajectory"]] == [*noted(99), 100]
    assert [entry[0] for entry in second["trajectory"]] == [k for k in noted(199) if k >= 100] + [200]
    for entry in first["trajectory"] + second["trajectory"]:
        assert len(entry) == 6
        assert entry[4] >= 0.0
    assert {entry[5] for entry in first["trajectory"]} == {1}
    assert {entry[5] for entry in second["trajectory"]} == {2}
    last = first["trajectory"][-1]
    assert (last[1], last[3]) == (first["seen_gap"], first["support"])
    assert last[2] == pytest.approx(first["f"], rel=1e-3)
    assert state.iterations == 200


def begun(solver: Any, problem: Any, X: Any, y: Any) -> Any:
    """A state after a first pass, with a pool that is to be worked on."""
    state = solver.start(problem)
    n = len(y)
    solver.visit(state, Block(Dense(X), y, np.ones(n, np.float32), 0, 0, np.arange(n, dtype=np.int32), 0))
    solver.finish(state)
    return state


@pytest.mark.parametrize("sample", [0, 30])
@pytest.mark.parametrize(("most", "steps"), [(64, 1), (65, 2), (128, 2), (129, 3)])
def test_a_run_can_be_saved_after_every_sixty_four_iterations(sample: int, most: int, steps: int) -> None:
    assert ITERATIONS_IN_STEP == 64
    X, y = noisy_rows(ROWS)
    solver, count = FrankWolfe(iterations=most, sample=sample), 0
    state = begun(solver, problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), X, y)
    while solver.pending(state):
        solver.proceed(state)
        count += 1
    assert (count, state.iterations) == (steps, most)


@pytest.mark.parametrize("method", [FrankWolfe, ModifiedFrankWolfe, Swap, Partan, Blended])
@pytest.mark.parametrize("sample", [0, 30])
def test_after_the_deadline_a_method_ends_with_its_first_step(method: Any, sample: int) -> None:
    X, y = noisy_rows(ROWS)
    solver = method(working=20) if method is Blended else method(sample=sample)
    state = begun(solver, problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), X, y)
    solver.set_deadline(state, time.perf_counter() - 1.0)
    count = 0
    while solver.pending(state):
        solver.proceed(state)
        count += 1
    assert count == (2 if method is Blended else 1)  # one working set, and a look at what it came to
    assert state.iterations == 1 or (method is Blended and state.iterations > 0)
    assert state.support is not None


@pytest.mark.parametrize(("pool", "left"), [(ROWS, 1000), (60, 8 * 60 // 7 + 1)])
def test_rows_of_a_pool_that_holds_some_are_drawn_a_few_times_each(pool: int, left: int) -> None:
    assert DRAWS_PER_ROW == 8
    X, y = noisy_rows(ROWS)
    solver = FrankWolfe(sample=7, iterations=1000)
    state = begun(solver, problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), X, y)
    rows = select(state.work.pool, np.arange(pool))
    rows.x[0] = 1.0
    work = PoolWork(rows, Target(0.0, 0.0), 1.0, 1000)
    solver._sampled(state, work)
    assert work.left == left


@pytest.mark.parametrize(("pool", "most", "fair"), [(ROWS, 0.0, 0.0), (ROWS - 1, 0.1, 0.5)])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
def test_a_pool_is_solved_to_half_the_tolerance_or_to_the_gap_that_was_asked_for(
    pool: int, most: float, fair: float, epsilon: float
) -> None:
    """One of some of the rows also to a tenth of the gap over all of them, of which no more than 1 counts."""
    solver = Blended(epsilon=epsilon)
    state = solver.start(PROBLEM)
    rows = rows_at(np.arange(pool))
    for gap in (0.25, 1.0, 7.0):
        state.gap = gap
        expected = Target(epsilon, 0.0 if epsilon else 0.5e-4, most * min(gap, 1.0), fair)
        assert solver._target(state, rows) == pytest.approx(expected)


def test_a_gap_is_that_of_the_rows_that_may_have_weight() -> None:
    pool = rows_at(np.arange(4), [-3.0, -2.0, -0.5, -1.0])  # g is 3, 2, 1/2 and 1
    pool.x[:] = 0.5, 0.5, 0.0, 0.0
    pool.high[2] = 0.0
    found = reached_in(pool)
    assert (found.f, found.gap) == (1.25, 2.5 - 1.0)


@pytest.mark.parametrize(("keep", "lightened"), [(30, True), (1, True), (10_000, False), (0, False)])
def test_rows_of_least_weight_go_and_the_method_works_on_once_more(keep: int, lightened: bool) -> None:
    X, y = noisy_rows(ROWS)
    solver = Blended(keep=keep, working=40)
    state = begun(solver, problem_of(X, SquaredHinge(), C, GAMMA, 1e-3), X, y)
    while solver.pending(state) and not state.work.lightened:
        before = state.work
        solver.proceed(state)
    assert solver.pending(state) == lightened
    if not lightened:
        return
    assert state.work.left == solver.rounds(state.work.pool)
    heavy = np.sort(np.argsort(-before.pool.x)[:keep])
    rows, x = before.pool.index[heavy], before.pool.x[heavy]
    np.testing.assert_array_equal(state.work.pool.index, rows)
    np.testing.assert_allclose(state.work.pool.x, x / x.sum(), rtol=1e-12)
    signed = np.outer(y, y)[np.ix_(rows, rows)] * (gram64(X[rows], X[rows], GAMMA) + 1.0) + np.eye(keep) / (2 * C)
    np.testing.assert_allclose(state.work.pool.v, -signed @ state.work.pool.x, rtol=1e-5)
    while solver.pending(state):
        solver.proceed(state)
    assert 0 < state.support.size <= keep


@pytest.mark.parametrize(("before", "f", "stopped"), [(1.0, 0.9899, False), (1.0, 0.9901, True), (0.0, 2.0, False)])
def test_where_rows_had_to_go_and_f_has_not_fallen_by_a_hundredth_the_run_ends(
    before: float, f: float, stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pool_method.STALLED_SHARE == 0.99
    pool = rows_at(np.arange(10))
    pool.x[:4] = 0.25
    solver, state = Blended(pool=70), Blended(pool=20).start(PROBLEM)
    state.work = PoolWork(pool, Target(0.0, 0.0), before, 1, lightened=True)
    monkeypatch.setattr(Blended, "improve", lambda *_: (0.125, f))
    solver.proceed(state)
    assert not solver.pending(state)
    assert (state.stopped, state.seen, state.f) == (stopped, 0.125, f)
    assert state.support is not None
    assert state.support.index.tolist() == [0, 1, 2, 3]
    assert state.candidates.capacity == 40
    solver.proceed(replace(state, work=PoolWork(pool, Target(0.0, 0.0), before, 1)))
    assert state.candidates.capacity == 70


def test_what_a_pass_sums_is_that_of_its_rows() -> None:
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
def test_what_copies_found_on_their_rows_is_what_one_finds_on_all(cuts: tuple[int, ...]) -> None:
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
    assert together.candidates.taken(partial(solver.choose, state)).size == solver.pool


def test_the_clock_of_kernel_values_is_that_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second between two looks at it: so much for each pair of a row and a row with weight."""
    X, y = noisy_rows(ROWS)
    state, _, _ = solve(Blended(working=64), problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), X, y, passes=2)
    clock = iter(range(100))
    monkeypatch.setattr(block_update, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    Blended().visit(
        state, Block(Dense(X[:50], 1.0), y[:50], np.ones(50, np.float32), 0, 0, np.arange(50, dtype=np.int32), 0)
    )
    assert state.pace == pytest.approx(1.0 / (50 * state.support.size), rel=1e-12)


def test_kernel_values_are_shared_by_problems_with_supports() -> None:
    """Evaluated once for both at the rows that are next, without the constant."""
    X, y = noisy_rows(ROWS, 100)
    solver, problem = Blended(working=64), problem_of(X, SquaredHinge(), C, 0.01, 1e-12)
    states = [solve(solver, problem, X, y, passes=2)[0] for _ in range(2)] + [solver.start(problem)]
    solver.prepare_shared(states, Dense(X[:9]))
    for state in states[:2]:
        expected = gram64(X[:9], X[state.support.index], 0.01) @ (state.support.sign * state.support.x)
        np.testing.assert_allclose(state.shared_values, expected, rtol=1e-5, atol=1e-6)
        state.shared_values = None
    assert states[2].shared_values is None
    solver.prepare_shared(states[1:], Dense(X[:9]))
    assert states[1].shared_values is None


def test_without_weights_or_passes_there_is_no_machine_and_it_is_said_why() -> None:
    X, y = noisy_rows(ROWS)
    solver = Blended()
    state = solver.start(problem_of(X, SquaredHinge(), C, GAMMA))
    with pytest.raises(UsageError, match="no pass was left"):
        solver.solution(state)
    solver.visit(state, Block(Dense(X, 1.0), y, np.zeros(ROWS, np.float32), 0, 0, np.arange(ROWS, dtype=np.int32), 0))
    with pytest.raises(DataError, match="weight 0"):
        solver.finish(state)


def test_the_machine_is_the_support_best_scaled_with_the_constant_feature() -> None:
    X, y = noisy_rows(ROWS)
    solver = Blended(working=64)
    problem = replace(problem_of(X, SquaredHinge(), C, GAMMA, 1e-12), bias=0.5)
    state, _, found = solve(solver, problem, X, y, passes=3)
    machine = solver.solution(state)
    t = 0.5 / found[-1].facts["f"]
    coefficients = t * y[state.support.index].astype(float) * state.support.x
    np.testing.assert_allclose(machine.coefficients, coefficients, rtol=1e-6)  # f as the method has left it
    assert machine.intercept == pytest.approx(0.25 * float(machine.coefficients.sum()), rel=1e-12)


def test_every_row_of_a_pool_can_be_drawn() -> None:
    """The first and the last among them: of four rows at right angles all have weight in the end."""
    X, y = 10.0 * np.eye(4, dtype=np.float32), np.array([1.0, -1.0, 1.0, -1.0], np.float32)
    problem = problem_of(X, SquaredHinge(), C, GAMMA, 1e-12)
    state, _, _ = solve(FrankWolfe(sample=2, iterations=200), problem, X, y, passes=2)
    assert state.support.index.tolist() == [0, 1, 2, 3]


def test_decision_values_are_off_by_what_rounding_makes_of_the_machine() -> None:
    """Of its weights best scaled; of a short machine of its coefficients as they are; of none by nothing."""
    state = Blended().start(PROBLEM)
    assert state.value_error() == 0.0
    state.reach, state.f = Reach(4, 20.0), 0.125  # t = 4
    state.support = rows_at(np.arange(5))
    state.support.x[:] = 0.2
    assert state.value_error() == error_of_values(state.form, state.reach, 5, 4.0) > 0.0
    state.reduced = rows_at(np.arange(2))
    state.reduced.x[:] = -3.0, 2.0
    assert state.value_error() == error_of_values(state.form, state.reach, 2, 5.0)
