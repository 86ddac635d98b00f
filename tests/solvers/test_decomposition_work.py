"""Pieces of decomposition by themselves: which rows are offered and taken, what is summed over a block, when it is over, what is owed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import streamsvm as sv
from streamsvm.compute.kernel_values.rounding import DOUBLE
from streamsvm.compute.random import lots
from streamsvm.errors import UsageError
from streamsvm.kernels import RBF, Linear, Sigmoid
from streamsvm.losses import EpsilonInsensitive, Hinge, SquaredEpsilonInsensitive, SquaredHinge
from streamsvm.rows import Dense, Reach
from streamsvm.solvers.kernel.decomposition import closing, multilevel, pool_work
from streamsvm.solvers.kernel.decomposition.block_update import evaluate_anew, measure, rows_of
from streamsvm.solvers.kernel.decomposition.candidates import next_pool, offer, shorten_offer
from streamsvm.solvers.kernel.decomposition.closing import STALLED_LEVELS, STALLED_POOLS, STALLED_SETS, _stalled
from streamsvm.solvers.kernel.decomposition.model_rows import collect, collected, reduce_support
from streamsvm.solvers.kernel.decomposition.solver import FIRST_POOL, Decomposition
from streamsvm.solvers.kernel.decomposition.state import LevelWork
from streamsvm.solvers.kernel.pool import Form, Pool, depth, select, unite, violation
from streamsvm.solvers.kernel.reduced_set import SAMPLE_PER_POINT
from streamsvm.solvers.kernel.rounding import enough_for, error_of_values, rounding_of
from streamsvm.types import Block
from tests.solvers.kernel_problems import closed, gram64, noisy_rows, problem_of, solve

GAMMA, C, ROWS = 0.5, 2.0, 400
PROBLEM = problem_of(np.zeros((ROWS, 4)), Hinge(), C, GAMMA, 1e-3)


def rows_with(v: Any, x: Any = 0.0, *, first: int = 0) -> Pool:
    """Rows with coordinates between 0 and 1, and these v."""
    n, zero = len(v), np.zeros(len(v))
    numbers = np.arange(first, first + n)
    X = Dense(numbers.astype(np.float32)[:, None])
    return Pool(X, numbers, zero + 1.0, zero, zero.copy(), zero + 1.0, zero, zero + x, np.array(v, float))


@pytest.mark.parametrize(
    ("pool", "rows", "capacity", "rate"),
    [
        (100, 100, 100, 1.0),
        (100, 250, 100, 1.0),
        (100, 251, 100, 100 / 251),
        (10**6, 200_000, 200_000, 1.0),
        (100_000, 200_000, FIRST_POOL, FIRST_POOL / 200_000),
        (20_000, 200_000, 20_000, 0.1),
        (200_000, 200_000, 200_000, 1.0),
    ],
)
def test_the_first_pool_holds_all_rows_or_few_and_of_very_many_a_share_is_offered(
    pool: int, rows: int, capacity: int, rate: float
) -> None:
    state = Decomposition(pool=pool).start(replace(PROBLEM, rows=rows))
    assert state.capacity == (pool if rows <= pool else capacity)
    assert state.rate == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize(
    ("capacity", "pool", "violators", "after", "rate"),
    [(50, 400, 250, 100, 1.0), (50, 400, 251, 100, 100 / 251), (50, 80, 1000, 80, 0.08), (80, 80, 200, 80, 1.0)],
)
def test_each_pool_may_have_twice_the_rows_and_a_share_of_the_violators(
    capacity: int, pool: int, violators: int, after: int, rate: float
) -> None:
    state = Decomposition(pool=pool).start(PROBLEM)
    state.capacity, state.violators, state.rate, state.gaps = capacity, violators, 1.0, [1.0]
    state.candidates = [rows_with(np.linspace(-1.0, 1.0, 60), 0.5)]
    pool_work.begin_work(Decomposition(pool=pool, working=20), state, 0.5)
    assert state.capacity == after
    assert state.rate == pytest.approx(rate, rel=1e-12)
    assert state.work is not None
    assert state.work.pool.size == min(capacity, 60)
    assert state.work.levels[0].tolerance == pytest.approx(0.05)
    assert state.work.levels[0].known.rounds == 4 * (-(-state.work.pool.size // 20)) ** 2
    assert (state.work.before == 0.5).all()


@pytest.mark.parametrize(
    ("rows", "gaps", "share"),
    [
        (ROWS - 1, [1e-6], 0.1),
        (ROWS, [1.0], 0.01),
        (ROWS, [0.0], 0.1),
        (ROWS, [5.0, 0.005], 0.1),
        (ROWS, [5.0, 0.01], 0.05),
        (ROWS, [0.01, 0.04], 0.0125),
        (ROWS, [0.01, 0.06], 0.01),
    ],
)
def test_all_rows_are_solved_further_as_the_gap_is_further_away(rows: int, gaps: list[float], share: float) -> None:
    """To half the tolerance, 1e-3, of the gap, and a tenth or a hundredth of the violation at the ends."""
    state: Any = SimpleNamespace(gaps=gaps, problem=PROBLEM)
    assert pool_work._share(state, rows_with(np.zeros(rows))) == pytest.approx(share)


@pytest.mark.parametrize(
    ("pool", "one_set", "passes"),
    [(ROWS, True, STALLED_SETS), (ROWS, False, STALLED_LEVELS), (90, True, STALLED_POOLS)],
)
@pytest.mark.parametrize("nu", [None, 0.5])
def test_it_leads_nowhere_where_the_gap_is_nine_tenths_of_what_it_was(
    pool: int, one_set: bool, passes: int, nu: float | None
) -> None:
    """So many passes ago; D below 0 counts as 0, but of one class with a free offset, where it is below 0 and rises."""
    for last, expected in ((0.899, False), (0.901, True)):
        state: Any = SimpleNamespace(
            pool=rows_with(np.zeros(pool)), problem=replace(PROBLEM, nu=nu), gaps=[], stalled=False
        )
        for k in range(passes + 1):
            assert (
                not _stalled(
                    state, 10.0, 0.0 if k == 0 else 10.0 * (1.0 - (last if k == passes else 0.95)), one_set=one_set
                )
                or k == passes
            )
        assert state.stalled == expected
        assert _stalled(state, 10.0, 9.0, one_set=one_set) == expected  # what led nowhere once does so for good
    state = SimpleNamespace(pool=None, problem=replace(PROBLEM, nu=nu), gaps=[], stalled=False)
    _stalled(state, -4.0, -6.0, one_set=one_set)
    _stalled(state, 5.0, -5.0, one_set=one_set)
    assert state.gaps == ([0.5, 2.0] if nu else [-1.0, 1.0])


def test_of_a_pool_that_was_solved_a_quarter_at_most_stays() -> None:
    """Rows between their bounds, beside the worst of those offered, no row twice."""
    state = Decomposition(pool=40).start(PROBLEM)
    x = np.full(60, 0.5)
    x[[3, 17]] = 0.0, 1.0
    state.pool, state.capacity, state.rate = rows_with(np.zeros(60), x, first=20), 40, 1.0
    offered = rows_with(np.r_[np.linspace(1.0, 9.0, 40), -np.linspace(1.0, 9.0, 30)])
    offered.x[40:] = 1.0  # those are to shrink
    state.candidates = [select(offered, np.arange(25)), select(offered, np.arange(25, 70))]
    found = next_pool(state)
    assert found.size == 40
    assert len(set(found.index.tolist())) == 40
    carried = found.v == 0.0
    assert carried.sum() == 10
    assert not {23, 37} & set(found.index[carried].tolist())
    fresh = np.setdiff1d(np.arange(70), found.index[carried])
    grow, shrink = fresh[fresh < 40][-15:], fresh[fresh >= 40][-15:]
    assert set(found.index[~carried].tolist()) == {*grow.tolist(), *shrink.tolist()}
    np.testing.assert_array_equal(found.X.values[:, 0], found.index)
    state.pool.x[10:] = 0.0
    assert (next_pool(state).v == 0.0).sum() == 9  # there are no more
    state.problem = replace(PROBLEM, rows=40)
    assert (next_pool(state).v != 0.0).all()


def offered_by(rate: float, *, seed: int = 7, capacity: int = 30) -> Any:
    """A state that was offered a block of 100 rows that violate by 0.01 to 1, at a reach of 1."""
    state = Decomposition(pool=capacity).start(PROBLEM)
    state.capacity, state.rate, state.gaps = capacity, rate, [1.0]
    rows = rows_with(np.arange(1, 101) / 100.0, 0.5, first=100)
    offer(state, rows, seed)
    return state, rows


def test_violators_are_rows_that_violate_by_a_twentieth_of_what_all_do() -> None:
    state, rows = offered_by(1.0)
    assert (depth(rows, 0.0) > 0.0).all()
    assert state.violators == 95
    (part,) = state.candidates
    assert part.size == 30
    assert part.index.tolist() == [*range(100, 115), *range(185, 200)]
    drawn, _ = offered_by(0.5)
    (part,) = drawn.candidates
    chosen = np.random.default_rng((7, 100)).random(100) < 0.5
    least = 5  # the first that violates by enough
    drawn_rows = 100 + np.flatnonzero(chosen[least:]) + least
    assert set(part.index.tolist()) == {*drawn_rows.tolist(), *range(100, 108), *range(192, 200)}
    assert drawn.violators == 95


def test_the_first_rows_of_one_class_are_the_same_draw_however_they_lie_in_blocks() -> None:
    """Before any has a coefficient none violates more than another."""
    drawn = []
    for cuts in ([100, 250], [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 330, 360, 390], [370]):
        state = Decomposition(pool=40).start(replace(PROBLEM, nu=0.5))
        assert state.beginning
        for first, last in zip([0, *cuts], [*cuts, ROWS], strict=True):
            offer(state, rows_with(np.zeros(last - first), first=first), first)
        drawn.append(next_pool(state).index.tolist())
    assert drawn[0] == drawn[1] == drawn[2]
    assert len(drawn[0]) == 40
    assert np.ptp(drawn[0]) > ROWS / 2


def test_more_than_twice_as_many_rows_as_fit_are_not_offered() -> None:
    state = Decomposition(pool=40).start(PROBLEM)
    state.capacity, state.rate, state.gaps = 40, 1.0, [1.0]
    for first, sizes in ((0, [40]), (100, [40, 40]), (200, [40]), (300, [40, 40])):
        offer(state, rows_with(np.linspace(0.1, 1.0, 100) + first, 0.5, first=first), 1)
        assert [part.size for part in state.candidates] == sizes
    state.candidates = [rows_with(np.linspace(0.0, 1.0, 80), 0.5)]
    shorten_offer(state)
    assert state.candidates[0].size == 80
    state.candidates.append(rows_with(np.ones(1), 0.5, first=80))
    shorten_offer(state)
    assert [part.size for part in state.candidates] == [40]


def test_one_class_begins_at_the_bounds_of_a_draw_of_rows() -> None:
    """Of all the weight there is to be as much as the first rows of the draw can have; v is that of this x."""
    X, _ = noisy_rows(60)
    state = Decomposition().start(replace(PROBLEM, nu=0.3, rows=60))
    n, zero = 60, np.zeros(60)
    high = np.random.default_rng(2).choice([0.0, 0.5, 2.0], n)
    pool = Pool(Dense(X), np.arange(n), zero + 1.0, zero, zero, high, zero, zero.copy(), zero.copy())
    state.total, state.largest, state.reach = 40.0, Reach(4, 20.0), 1e-3
    found = pool_work._spread(state, pool)
    left, expected = 0.3 * 40.0, np.zeros(n)
    for row in np.argsort(lots(pool.index, 0), kind="stable"):
        expected[row] = min(high[row], left)
        left -= expected[row]
    np.testing.assert_allclose(pool.x, expected, atol=1e-12)
    assert pool.x.sum() == pytest.approx(12.0, rel=1e-12)
    np.testing.assert_allclose(pool.v, -gram64(X, X, GAMMA) @ expected, rtol=1e-5)
    assert found == state.reach == violation(pool) > 1e-3
    assert state.drift == pytest.approx(error_of_values(state.form, state.largest, 60, 12.0), rel=1e-12, abs=0.0)
    state.reach = 50.0
    pool_work._spread(state, pool)
    assert state.reach == 50.0
    state.problem, state.total = replace(state.problem, nu=1.0), float(high.sum())
    pool_work._spread(state, pool)
    np.testing.assert_array_equal(pool.x, high)  # where all there is is to be there
    state.total *= 1.0 + 1e-12
    with pytest.raises(UsageError, match="a smaller nu"):
        pool_work._spread(state, pool)


def block_of(X: Any, y: Any, s: Any, rows: Any, start: int = 0) -> Block:
    return Block(Dense(X), y, s, 0, start, np.arange(len(y), dtype=np.int32), 0, rows=rows)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), EpsilonInsensitive(0.25)])
def test_what_a_pass_sums_is_that_of_its_rows(loss: Any) -> None:
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
        measure(state, block, rows_of(state, block))
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


def test_f_can_be_off_by_what_every_move_in_memory_has_brought() -> None:
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
        assert state.intercept == multilevel.threshold(work.pool)
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


@pytest.mark.parametrize(("pool", "owed"), [(ROWS, 0), (ROWS // 2, ROWS)])
def test_time_is_owed_for_rows_outside_the_pool(pool: int, owed: int) -> None:
    """Of a pool without levels: each of all rows times the working set, if there are rows outside."""
    state = Decomposition(pool=pool).start(PROBLEM)
    known = multilevel.Improvement(3, np.arange(25))
    state.work = LevelWork([multilevel.Level(rows_with(np.ones(pool)), 0.1, known)], np.zeros(pool))
    state.deadline, state.pace = time.perf_counter() + 3600.0, 1e-3
    assert state.owed() == pytest.approx(1e-3 * 25 * owed)


@pytest.mark.parametrize(("working", "one_set"), [(ROWS - 1, False), (ROWS, True), (ROWS + 1, True)])
def test_pools_are_given_up_sooner_where_all_rows_are_one_working_set(
    working: int, one_set: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bool] = []

    def noted(state: Any, primal: float, dual: float, *, one_set: bool) -> bool:
        said.append(one_set)
        return _stalled(state, primal, dual, one_set=one_set)

    monkeypatch.setattr(closing, "_stalled", noted)
    X, y = noisy_rows(ROWS)
    solver = Decomposition(working=working)
    state = solver.start(problem_of(X, Hinge(), C, GAMMA, 1e-6))
    solver.visit(state, block_of(X, y, np.ones(ROWS, np.float32), {name: np.zeros(ROWS) for name in ("alpha", "f")}))
    solver.finish(state)
    assert said == [one_set]


def test_the_pace_is_that_of_a_row_of_the_pool_and_one_of_the_working_set(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = noisy_rows(ROWS)
    solver = Decomposition(pool=100, working=30)
    state = solver.start(problem_of(X, Hinge(), C, GAMMA, 1e-6))
    solver.visit(state, block_of(X, y, np.ones(ROWS, np.float32), {name: np.zeros(ROWS) for name in ("alpha", "f")}))
    solver.finish(state)
    clock = iter(range(100))
    monkeypatch.setattr(pool_work, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    solver.proceed(state)
    assert state.work is not None
    assert state.pace == pytest.approx(
        1.0 / (state.work.pool.size * len(state.work.levels[-1].known.recent)), rel=1e-12
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_level_below_has_half_of_the_last_rows_and_the_worst(seed: int) -> None:
    """By sorting, where violators are few enough that none are drawn."""
    rng = np.random.default_rng(seed)
    pool = rows_with(rng.normal(size=80), rng.choice([0.0, 0.5, 1.0], 80))
    recent = np.sort(rng.permutation(80)[:20])
    found = set(multilevel.subset(pool, 40, recent).tolist())
    free = {int(i) for i in recent if 0.0 < pool.x[i] < 1.0}
    wanted = 40 - min(len(free), 20)
    by_v = np.argsort(pool.v)
    grow = [int(i) for i in by_v[::-1] if pool.x[i] < 1.0][: wanted // 2]
    shrink = [int(i) for i in by_v if pool.x[i] > 0.0][: wanted - wanted // 2]
    assert found == free | set(grow) | set(shrink)


@pytest.mark.parametrize(("rows", "drawn"), [(100, False), (102, True)])
def test_of_more_violators_than_two_and_a_half_levels_full_most_are_drawn(rows: int, drawn: bool) -> None:
    pool = rows_with(np.r_[np.linspace(1.0, 2.0, rows // 2), np.linspace(-2.0, -1.0, rows // 2)], 0.5)
    found, by_v = multilevel.subset(pool, 40, np.empty(0, np.int64)), np.argsort(pool.v)
    worst = {*by_v[:20].tolist(), *by_v[-20:].tolist()}
    assert (set(found.tolist()) != worst) == drawn
    assert {*by_v[:8].tolist(), *by_v[-8:].tolist()} <= set(found.tolist())


def test_a_pool_that_violates_by_nothing_is_left_at_once() -> None:
    known = multilevel.Improvement(5)
    levels = [multilevel.Level(rows_with(np.ones(300), 0.5), 0.0, known)]
    assert not multilevel.solve_step(levels, Form(RBF(1.0), 1), 20)
    assert (known.rounds, len(levels)) == (5, 1)


def test_of_one_level_the_one_below_is_a_working_set() -> None:
    assert {multilevel.size_below(size, 1000) for size in range(1000, 8001, 7)} == {1000}


def test_a_level_is_solved_to_a_tenth_of_what_the_one_above_violates_or_half_of_what_will_do_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(multilevel, "LEVEL_RATIO", 2)
    for allowed in (1e-3, 1.0):
        pool = rows_with(np.linspace(-1.0, 1.0, 300), 0.5)
        levels = [multilevel.Level(pool, allowed, multilevel.Improvement(5))]
        assert multilevel.solve_step(levels, Form(RBF(1.0), 1), 20)
        first, second = levels
        assert second.tolerance == pytest.approx(max(0.5 * allowed, 0.1 * 2.0))
        below = multilevel.size_below(300, 20)
        assert len(first.known.recent) == second.pool.size <= below
        assert first.known.rounds == 4
        assert second.known.rounds == 4 * (-(-below // multilevel.size_below(below, 20))) ** 2
        np.testing.assert_array_equal(second.pool.index, first.known.recent)


@pytest.mark.parametrize(("size", "working", "ratio", "below"), [
    (1000, 1000, 8, 1000), (1001, 1000, 8, 1000), (8000, 1000, 8, 1000), (8001, 1000, 8, 2828), (64_000, 1000, 8, 8000),
    (64_000, 1000, 4, 16_000), (512_000, 1000, 8, 64_000), (600_000, 1000, 8, 121_230),
])  # fmt: skip
def test_ratios_of_levels_are_equal(size: int, working: int, ratio: int, below: int, monkeypatch: Any) -> None:
    """Of 600,000 rows there are four, the fourth root of 600 apart; of eight thousand one, and of one more two."""
    monkeypatch.setattr(multilevel, "LEVEL_RATIO", ratio)
    assert multilevel.size_below(size, working) == pytest.approx(below, abs=1)


def test_what_was_solved_below_is_brought_to_the_level_above() -> None:
    X, y = noisy_rows(50)
    n, zero = 50, np.zeros(50)
    z = y.astype(float)
    pool = Pool(Dense(X), np.arange(n), z, zero + 0.3, zero, zero + 1.0, zero + 1.0, zero.copy(), zero + 1.0)
    form, chosen = Form(RBF(GAMMA), 4, 0.25, DOUBLE), np.array([3, 8, 20, 44])
    M = np.outer(z, z) * (gram64(X, X, GAMMA) + 0.25) + 0.3 * np.eye(n)
    part = select(pool, chosen)
    part.x = np.array([0.5, 0.0, 1.0, 0.25])
    part.v = (pool.p - M[:, chosen] @ part.x)[chosen]
    assert multilevel._join(pool, chosen, part, form)
    np.testing.assert_allclose(pool.v, pool.p - M @ pool.x, rtol=1e-9, atol=1e-12)
    assert pool.x[chosen].tolist() == part.x.tolist()
    assert not multilevel._join(pool, chosen, part, form)


def test_of_the_support_no_more_rows_are_collected_than_a_short_model_is_fitted_to() -> None:
    """Four for each point that is kept, and up to twice as many meanwhile; of a model of all rows every one."""
    for most, sizes in ((5, [10, 20, 30, 40, 20, 30]), (0, [10, 20, 30, 40, 50, 60])):
        state = Decomposition().start(PROBLEM)
        for k, size in enumerate(sizes):
            rows = rows_with(np.ones(20), np.tile([0.0, 0.5], 10), first=20 * (5 - k))
            collect(state, rows, most)
            assert sum(part.size for part in state.collected_parts) == size
        found = collected(state, most)
        assert found.size == (SAMPLE_PER_POINT * most or 60)
        assert (np.diff(found.index) > 0).all()
        assert (found.x == 0.5).all()


@pytest.mark.parametrize(("most", "made"), [(0, False), (1, True), (29, True), (30, False), (31, False)])
def test_a_short_model_is_made_of_more_support_than_is_allowed(most: int, made: bool) -> None:
    """Of 30 rows: f at them is p - v less the ridge."""
    X, _ = noisy_rows(30)
    n, zero = 30, np.zeros(30)
    weights = np.random.default_rng(0).normal(size=n)
    f = gram64(X, X, GAMMA) @ weights
    support = Pool(
        Dense(X), np.arange(n), zero + 1.0, zero + 0.25, zero, zero, zero + 1.0, weights, 1.0 - f - 0.25 * weights
    )
    state = Decomposition().start(PROBLEM)
    assert not reduce_support(state, most)
    state.support, state.support_size, state.reach = support, 30, 0.125
    assert reduce_support(state, most) == made == (state.reduced is not None)
    assert state.reach == (1.0 if made else 0.125)
    if state.reduced is not None:
        assert state.reduced.size == most
        values = gram64(X, X[state.reduced.index], GAMMA) @ state.reduced.x
        assert np.abs(values - f).max() < (0.05 if most > 1 else np.abs(f).max())


def test_a_short_model_pays_for_differences_as_much_as_the_loss_may_bend() -> None:
    """C for each support row, of which each of the sample stands for some."""
    X, _ = noisy_rows(40)
    n, zero = 40, np.zeros(40)
    weights = np.random.default_rng(0).normal(size=n)
    K = gram64(X, X, GAMMA)
    f = K @ weights
    support = Pool(Dense(X), np.arange(n), zero + 1.0, zero, zero, zero, zero, weights, -f)
    state = Decomposition().start(PROBLEM)
    state.support, state.support_size = support, 100
    assert reduce_support(state, 10)
    assert state.reduced is not None
    kept, importance = state.reduced.index, C * 100 / 40
    matrix = K[np.ix_(kept, kept)] + 1e-6 * np.eye(10) + importance * K[:, kept].T @ K[:, kept]
    expected = np.linalg.solve(matrix, f[kept] + importance * K[:, kept].T @ f)
    np.testing.assert_allclose(state.reduced.x, expected, rtol=1e-3)


@pytest.mark.parametrize(("everywhere", "intercept"), [(False, 0.5), (False, -0.5), (True, 0.5)])
def test_f_is_computed_anew_where_a_row_has_a_say(everywhere: bool, intercept: float) -> None:
    """Rows with a coefficient, and rows with a weight that may cost something as far as f may be off and b elsewhere; or all."""
    X, y = noisy_rows(ROWS)
    rng = np.random.default_rng(3)
    s, alpha = rng.choice([0.0, 0.5], ROWS).astype(np.float32), rng.choice([0.0, 0.0, 0.0, 1.0, 0.25], ROWS)
    alpha *= s > 0.0
    f = rng.normal(size=ROWS) * 3.0
    state = Decomposition().start(PROBLEM)
    state.largest, state.drift, state.reach, state.intercept = Reach(4, 20.0), 0.25, 0.5, intercept
    state.everywhere = everywhere
    support = rows_with(np.zeros(20), rng.normal(size=20))
    support.X = Dense(X[:20])
    rows = {"alpha": alpha, "f": f.copy()}
    evaluate_anew(state, support, block_of(X, y, s, rows))
    near = (alpha != 0.0) | ((y * (f + intercept) - 0.75 < 1.0) & (s > 0.0))
    assert near.any()
    assert not near.all()
    expected = np.where(near | everywhere, gram64(X, X[:20], GAMMA) @ support.x, f)
    np.testing.assert_allclose(rows["f"], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("dual", "bounded"), [(8.0, True), (8.09, True), (8.11, False)])
def test_an_optimum_is_missed_where_d_is_beyond_its_linear_term_and_rounding(dual: float, bounded: bool) -> None:
    """Of coefficients that sum up to 4 and a margin of 2, with a rounding of a tenth, where the kernel may have negative eigenvalues."""
    problem = replace(PROBLEM, kernel=Sigmoid(1.0), loss=SquaredHinge(2.0))
    state = Decomposition().start(problem)
    state.weight = 4.0
    if bounded:
        closing._check_bounded(state, dual, 0.1)
    else:
        with pytest.raises(UsageError, match="no optimum"):
            closing._check_bounded(state, dual, 0.1)
    for other in ({"kernel": RBF(1.0)}, {"loss": Hinge(2.0)}, {"loss": SquaredEpsilonInsensitive(0.1)}):
        state.problem = replace(problem, **other)
        closing._check_bounded(state, 100.0, 0.1)


def test_before_a_row_is_met_nothing_is_large() -> None:
    state = Decomposition().start(PROBLEM)
    assert closing._largest(state) == 0.0
    state.largest, state.problem = Reach(4, 20.0), replace(PROBLEM, kernel=Linear())
    assert closing._largest(state) == Linear().largest(Reach(4, 20.0)) > 19.0
    assert state.violation == 0.0
    state.top, state.bottom = 2.0, -0.5
    assert state.violation == 2.5


def test_before_rows_of_one_class_have_coefficients_the_largest_kernel_value_bounds_their_sum() -> None:
    """Half of a weight of 8, squared, times a k(x, x) of 20 at most; then D is that of the coefficients."""
    state = Decomposition().start(replace(PROBLEM, nu=0.5, kernel=Linear()))
    state.total, state.largest, state.top, state.bottom = 8.0, Reach(4, 20.0), 0.0, 0.0
    largest = Linear().largest(Reach(4, 20.0))
    assert closing._bounds(state).dual == pytest.approx(-0.5 * 4.0**2 * largest)
    state.weight, state.square, state.dual = 4.0, 6.0, 0.5
    assert closing._bounds(state).dual == 0.5 - 3.0


def test_a_copy_that_visits_some_blocks_has_sums_of_its_own() -> None:
    X, y = noisy_rows(ROWS)
    solver = Decomposition(pool=100, working=30)
    state, _, _ = solve(solver, problem_of(X, Hinge(), C, GAMMA, 1e-6), X, y, passes=3)
    state.losses[:], state.upper_losses[:], state.square = 1.0, 2.0, 3.0
    part = solver.part(state)
    part.losses += 5.0
    part.upper_losses += 5.0
    assert (state.losses == 1.0).all()
    assert (state.upper_losses == 2.0).all()
    assert (part.losses == 5.0).all()
    assert (part.square, state.square) == (0.0, 3.0)
    assert part.pool is state.pool


def test_what_a_certificate_does_not_feel_is_that_of_its_pass() -> None:
    X, y = noisy_rows(ROWS)
    problem = problem_of(X, Hinge(), C, GAMMA, 1e-2)
    solver = Decomposition(pool=100, working=30)
    state = solver.start(problem)
    rows = {name: np.zeros(ROWS) for name in ("alpha", "f")}
    for _ in range(3):
        solver.visit(state, block_of(X, y, np.ones(ROWS, np.float32), rows))
        weight = state.weight
        found = closed(solver, state)
        assert state.enough == enough_for(problem, found.primal, weight)
        assert (state.weight, state.absolute, state.total, state.square) == (0.0, 0.0, 0.0, 0.0)
        assert (state.top, state.bottom, state.support_met) == (-np.inf, np.inf, 0)
    assert weight > 0.0


def test_decision_values_are_off_by_what_moves_added_up_or_by_what_they_are_computed_anew_from() -> None:
    """Of a short model by what its own points bring; rounding is that of the larger, as x moved on the values before."""
    state = Decomposition().start(PROBLEM)
    state.largest, state.drift, state.weight, state.absolute = Reach(4, 20.0), 1e-9, 3.0, 5.0
    state.losses[7], state.upper_losses[7] = 2.0, 2.5
    assert state.value_error() == 1e-9
    assert state.rounding(7) == rounding_of(PROBLEM, 1e-9, 3.0, 5.0, (2.0, 2.5))
    points = rows_with(np.zeros(6), np.array([1.0, -2.0, 0.5, 0.0, 1.0, 1.5]))
    state.anew = points
    exact = error_of_values(state.exact_form(), state.largest, 6, 6.0)
    assert 0.0 < exact < 1e-9
    assert state.value_error() == exact
    assert state.rounding(7) == rounding_of(PROBLEM, exact, 3.0, 5.0, (2.0, 2.5))
    state.reduced = select(points, np.arange(2))
    assert state.value_error() == error_of_values(state.form, state.largest, 2, 3.0) > 1e-9
    state.drift = 1.0
    assert state.value_error() < 1.0
    assert state.rounding(7) == rounding_of(PROBLEM, 1.0, 3.0, 5.0, (2.0, 2.5))


def test_kernel_values_are_shared_where_some_rows_moved_that_are_not_all() -> None:
    """What two problems have moved is evaluated once at the rows that are next."""
    X, y = noisy_rows(ROWS, 100)
    solver, states = Decomposition(pool=100, working=30), []
    for _ in range(2):
        state = solver.start(replace(problem_of(X, Hinge(), C, GAMMA, 1e-6), kernel=Linear()))
        rows = {name: np.zeros(ROWS) for name in ("alpha", "f")}
        solver.visit(state, block_of(X, y, np.ones(ROWS, np.float32), rows))
        closed(solver, state)
        states.append(state)
    solver.prepare_shared(states, Dense(X[:7]))
    for state in states:
        assert state.moved is not None
        assert state.shared_values is not None
        expected = X[:7].astype(float) @ X[state.moved.index].astype(float).T @ state.moved.x
        np.testing.assert_allclose(state.shared_values, expected, rtol=1e-5, atol=1e-5)
        state.shared_values = None
    solver.prepare_shared(states[:1], Dense(X[:7]))
    assert states[0].shared_values is None
    states[0].problem = replace(states[0].problem, rows=states[0].pool.size)
    solver.prepare_shared(states, Dense(X[:7]))
    assert [state.shared_values for state in states] == [None, None]


def test_a_pool_that_was_united_is_that_of_its_parts() -> None:
    parts = [rows_with([1.0, 2.0]), rows_with([3.0], 0.5, first=2)]
    whole = unite(parts)
    assert whole.v.tolist() == [1.0, 2.0, 3.0]
    assert whole.x.tolist() == [0.0, 0.0, 0.5]


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("sparse", [False, True])
def test_copies_of_a_few_points_take_no_more_than_quadratic_time(loss: str, sparse: bool, tmp_path: Path) -> None:
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
