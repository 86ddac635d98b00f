"""Pieces of dual coordinate descent by themselves: what a visit counts, how means are weighed, when it evaluates, how groups are joined."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.losses import (
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Pinball,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from streamsvm.rows import Dense
from streamsvm.solvers.dcd import cocoa
from streamsvm.solvers.dcd.dual_ascent import ROWS_PER_SAMPLE
from streamsvm.solvers.dcd.mpu import FINER, MPU, SHARE, MPUState, _step_of_one
from streamsvm.solvers.dcd.shrinking import RESTING
from streamsvm.solvers.dcd.solver import DCD
from streamsvm.types import Block, Problem
from tests.solvers.problems import COLUMNS, ROWS, epoch_blocks, problem_of, rows_of, signed_rows


def block_of(n: int, *, cached: bool, names: tuple[str, ...] = ("alpha",)) -> Block:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0).astype(np.float32)
    rows = {name: np.zeros(n) for name in names}
    return Block(
        Dense(X, 1.0), y, np.ones(n, np.float32), 0, 0, np.arange(n, dtype=np.int32), 5, cached=cached, rows=rows
    )


@pytest.mark.parametrize(
    ("rows", "sweeps", "cached", "samples"),
    [
        (100, 0, True, 1),
        (100, 0, False, 3),
        (100, 2, False, 2),
        (100, 4, True, 4),
        (ROWS_PER_SAMPLE, 1, True, 1),
        (ROWS_PER_SAMPLE + 1, 1, True, 2),
        (2 * ROWS_PER_SAMPLE + 1, 1, True, 3),
    ],
)
def test_w_is_sampled_in_every_sweep_and_after_so_many_rows(rows: int, sweeps: int, cached: bool, samples: int) -> None:
    """Of a block that stays in memory there is one sweep unless more are asked for, of another three."""
    solver = DCD(sweeps=sweeps)
    state = solver.start(Problem(SquaredHinge(), 1.0, rows, 3, 1))
    solver.visit(state, block_of(rows, cached=cached))
    assert state.samples == samples
    before = state.mean.copy()
    solver.finish(state)
    np.testing.assert_allclose(state.mean, before / samples, rtol=1e-12)


def test_the_mean_of_a_pass_is_that_of_w_where_it_was_sampled() -> None:
    """After every slice of rows, and of each block."""
    n = ROWS_PER_SAMPLE + 500
    solver, block = DCD(sweeps=1), block_of(n, cached=True)
    state, sliced = (solver.start(Problem(Hinge(), 1.0, n, 3, 1)) for _ in range(2))
    solver.visit(state, block)
    again, seen = block_of(n, cached=True), []
    for part in (slice(0, ROWS_PER_SAMPLE), slice(ROWS_PER_SAMPLE, n)):
        solver.visit(sliced, replace(again, order=again.order[part].copy()))
        seen.append(sliced.w.copy())
    np.testing.assert_array_equal(state.w, sliced.w)
    np.testing.assert_allclose(state.mean, seen[0] + seen[1], rtol=1e-12)
    assert state.losses == pytest.approx(sliced.losses, rel=1e-12)


def test_a_row_between_its_bounds_is_met_in_every_sweep() -> None:
    """Though it is the last one."""
    solver = DCD(sweeps=9)
    state = solver.start(Problem(SquaredHinge(), 1.0, 1, 3, 1))
    solver.visit(state, block_of(1, cached=True))
    assert state.samples == 9


@pytest.mark.parametrize("resting", [0, 39, 40])
def test_of_a_block_whose_rows_all_stay_out_w_is_sampled_as_it_is(resting: int) -> None:
    """And counts with the losses that were noted, a half for each."""
    solver, block = DCD(shrinking=True, sweeps=1), block_of(40, cached=True, names=("alpha", RESTING))
    state = solver.start(Problem(Hinge(), 1.0, 40, 3, 1))
    assert state.shrinking is not None
    state.shrinking.waking, state.w[:] = False, 0.25
    block.rows[RESTING][:resting] = 1.5
    solver.visit(state, block)
    assert state.samples == 1
    np.testing.assert_array_equal(state.mean, state.w)
    assert (state.w == 0.25).all() == (resting == 40)
    if resting == 40:
        assert state.losses == 20.0


def test_late_passes_weigh_more_in_the_mean_of_all() -> None:
    """As the products of three numbers from k on: of 1, 4, 10 and 20 for four passes."""
    solver, problem = DCD(), problem_of(Hinge())
    state, means = solver.start(problem), []
    alpha = np.zeros(ROWS)
    for epoch in range(4):
        for block in epoch_blocks(epoch):
            block.rows["alpha"] = alpha[block.start : block.start + 100]
            solver.visit(state, block)
        solver.finish(state)
        means.append(state.mean.copy())
        state.certifying = False
    np.testing.assert_allclose(state.tail, np.array([1.0, 4.0, 10.0, 20.0]) / 35.0 @ means, rtol=1e-9)
    np.testing.assert_array_equal(solver.candidate(state), state.tail)


@pytest.mark.parametrize(("passes", "next_check", "losses", "due"), [
    (7, 8.0, 1.05, True), (7, 8.01, 1.05, False), (7, 8.0, 1.12, False), (0, 0.0, 1.05, True),
])  # fmt: skip
def test_an_estimate_that_is_near_leads_to_an_evaluation_when_it_is_time(
    passes: int, next_check: float, losses: float, due: bool
) -> None:
    """Of w = 0: the estimate is the losses, a gap of .05 or .12 of them, and the tolerance a tenth."""
    solver = DCD()
    state = solver.start(replace(problem_of(Hinge()), tolerance=0.1))
    state.passes, state.next_check, state.losses, state.duals = passes, next_check, losses, 1.0
    found = solver.finish(state)
    assert (found.primal, found.dual, found.exact) == (losses, 1.0, False)
    assert (state.certifying, state.passes, state.losses, state.duals) == (due, passes + 1, 0.0, 0.0)


def test_after_an_evaluation_a_quarter_more_passes_are_waited_for_and_the_best_is_kept() -> None:
    solver = DCD()
    state = solver.start(problem_of(Hinge()))
    for k, w in enumerate((state.w, state.mean, state.tail)):
        w[:] = k + 1.0
    half = [0.5 * (k + 1.0) ** 2 * (COLUMNS + 1) for k in range(3)]
    state.passes, state.dual, state.certifying = 8, 2.0, True
    state.evaluated[:] = 100.0 - half[0], 90.0 - half[1], 95.0 - half[2]
    found = solver.finish(state)
    assert found.primal == pytest.approx(90.0)
    assert (found.dual, found.exact) == (2.0, True)
    assert (state.best == 2.0).all()
    assert (state.next_check, state.certifying, state.passes) == (10.0, False, 8)
    assert (state.evaluated == 0.0).all()
    state.certifying = True
    state.evaluated[:] = 200.0
    assert solver.finish(state).primal == pytest.approx(90.0)
    assert (state.best == 2.0).all()


@pytest.mark.parametrize(
    ("hidden", "divided"),
    [(SHARE * 3.0, 1.0), (SHARE * 3.0 * 1.5, 1.5), (SHARE * 3.0 * 7.9, 7.9), (SHARE * 3.0 * 20.0, FINER)],
)
def test_a_grid_is_made_finer_by_as_much_as_it_hides_more_than_a_quarter_of_the_gap(
    hidden: float, divided: float
) -> None:
    """Of a gap of 3; where there is none left, by the most. A pass that evaluates says nothing of it."""
    solver = MPU()
    for gap, factor in ((3.0, divided), (0.0, FINER), (-1.0, FINER)):
        state = solver.start(problem_of(Hinge()))
        assert isinstance(state, MPUState)
        state.length, state.hidden, state.losses, state.duals = 0.5, hidden, 4.0 + gap, 4.0
        solver.finish(state)
        assert state.length == pytest.approx(0.5 / factor)
        assert state.hidden == 0.0
        state.hidden, state.certifying = 100.0, True
        solver.finish(state)
        assert state.length == pytest.approx(0.5 / factor)
        assert state.hidden == 0.0


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(2.0)], ids=str)
@pytest.mark.parametrize("accuracy", [1.0, 0.25])
def test_the_first_grid_moves_the_margin_of_a_row_by_about_one(loss: Any, accuracy: float) -> None:
    """By s_i ||x_i||^2 of a step, in the mean over rows weighted by s_i."""
    _, _, s = rows_of()
    block = epoch_blocks(0)[0]
    mine = block.start + block.order
    weights, squares = s[mine].astype(float) ** 2, (signed_rows()[mine] ** 2).sum(1)
    state = MPU().start(problem_of(loss))
    assert isinstance(state, MPUState)
    expected = weights.sum() / (weights @ squares)
    assert _step_of_one(state, block, block.order) == pytest.approx(expected, rel=1e-6)
    nothing = replace(block, s=np.zeros(100, np.float32))
    assert _step_of_one(state, nothing, block.order) == 0.0
    block.rows["alpha"] = np.zeros(100)
    solver = MPU(accuracy=accuracy, sweeps=1)
    solver.visit(state, block)
    assert state.length == pytest.approx(accuracy * expected, rel=1e-6)
    assert state.hidden > 0.0


def test_a_grid_that_hides_nothing_stays_though_there_is_no_gap() -> None:
    solver = MPU()
    state = solver.start(problem_of(Hinge()))
    assert isinstance(state, MPUState)
    state.length, state.losses, state.duals = 0.5, 4.0, 4.0
    solver.finish(state)
    assert state.length == 0.5


# -- groups that move at once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_steps_of_groups_are_the_best_in_their_intervals(seed: int) -> None:
    """Against a general optimizer; a direction without length takes no step."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    A, gradient = rng.normal(size=(6, 8)), 3.0 * rng.normal(size=6)
    A[2] = 0.0
    matrix, lowest = A @ A.T, np.tile([0.0, -1.0], 3)
    t = cocoa._highest(gradient, matrix, lowest)
    assert t[2] == 0.0
    assert (t >= lowest).all()
    assert (t <= 1.0).all()
    kept = [0, 1, 3, 4, 5]
    M, g = matrix[np.ix_(kept, kept)], gradient[kept]
    found = minimize(
        lambda x: 0.5 * x @ M @ x - g @ x,
        np.zeros(5),
        jac=lambda x: M @ x - g,
        bounds=[(low, 1.0) for low in lowest[kept]],
        options={"ftol": 1e-15, "gtol": 1e-12},
    )
    np.testing.assert_allclose(t[kept], found.x, atol=1e-5)
    slope = g - M @ t[kept]
    inside = (t[kept] > lowest[kept]) & (t[kept] < 1.0)
    np.testing.assert_allclose(slope[inside], 0.0, atol=1e-9)


@pytest.mark.parametrize(("sigma", "length", "after"), [
    (4.0, 1.0, 3.2), (4.0, 0.91, 3.2), (4.0, 0.89, 4.0), (4.0, 0.51, 4.0), (4.0, 0.49, 5.0), (7.0, 0.25, 8.0), (1.1, 1.0, 1.0),
])  # fmt: skip
def test_groups_that_go_where_they_propose_allow_less_for_each_other(sigma: float, length: float, after: float) -> None:
    """Of eight groups at right angles to each other, each of which is best after that share of its move."""
    copies = []
    for k in range(8):
        vectors = np.zeros((2, 8))
        vectors[0, k] = 1.0
        copies.append(
            cocoa.Joint(sigma, np.zeros(8), np.tile(cocoa.AS_PROPOSED, (8, 1)), vectors, 0.5, np.array([length, 0.0]))
        )
    found = cocoa.joined(copies)
    assert found.joint.sigma == pytest.approx(after)
    np.testing.assert_allclose(found.joint.steps, np.tile([length, 0.0], (8, 1)))
    np.testing.assert_allclose(found.w, length)
    assert found.dual == pytest.approx(8 * (0.5 + length**2))
    assert (found.joint.vectors == 0.0).all()
    assert found.joint.vectors.shape == (2, 8)


LOSSES = [
    Hinge(),
    SquaredHinge(),
    Huber(0.3),
    Logistic(),
    EpsilonInsensitive(0.1),
    SquaredEpsilonInsensitive(0.1),
    Pinball(0.3),
]


def proposal(loss: Any) -> tuple[Block, Problem, Any, Any]:
    """A block of 60 rows, some without weight, with dual variables before and after a move, all in their boxes; its boxes."""
    rng, C = np.random.default_rng(8), 0.7
    X = rng.normal(size=(60, 3)).astype(np.float32)
    y = rng.choice([-1.0, 1.0], 60).astype(np.float32)
    s = rng.choice([0.0, 0.5, 2.0], 60).astype(np.float32)
    c = C * s.astype(float)
    low = np.array([-v * loss.slope(np.inf) if v and loss.numeric() else 0.0 for v in c])
    high = np.array([loss.upper(v) if v else 0.0 for v in c])
    ends = np.maximum(low, -3.0 * (c > 0)), np.minimum(high, 3.0 * (c > 0))
    before, alpha = (ends[0] + rng.choice([0.0, 0.02, 0.4, 0.97, 1.0], 60) * (ends[1] - ends[0]) for _ in range(2))
    alpha[::4] = before[::4]
    rows = {"alpha": alpha, "before": before}
    block = Block(Dense(X, 1.0), y, s, 4, 0, np.arange(60, dtype=np.int32), 0, rows=rows)
    return block, Problem(loss, C, 60, 3, 1), low, high


def gains(loss: Any, a: Any, block: Block, C: float) -> float:
    """Sum a_i - conjugate(a_i), of numbers a_i t_i more."""
    total = 0.0
    for x, t, c in zip(a, block.y.astype(float), C * block.s.astype(float), strict=True):
        total += (x * t if loss.numeric() else 0.0) + x - loss.conjugate(x, c) if c > 0.0 else 0.0
    return total


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_what_a_group_proposes_is_known_exactly_at_its_ends_and_from_below_between(loss: Any) -> None:
    """Both directions with every row in its box: the sums say what a is worth wherever the group is let go."""
    block, problem, low, high = proposal(loss)
    joint = cocoa.begun(3, np.zeros(4), 1.0)
    cocoa.count(joint, problem, block)
    before, move, shift = (
        block.rows["before"],
        block.rows["alpha"] - block.rows["before"],
        cocoa._shared(problem, block),
    )
    signs = 1.0 if loss.numeric() else block.y.astype(float)
    Z = np.column_stack([block.X.values.astype(float), np.ones(60)])
    np.testing.assert_allclose(joint.vectors, [(move * signs) @ Z, (shift * signs) @ Z], rtol=1e-6, atol=1e-9)
    assert joint.dual == pytest.approx(gains(loss, before, block, problem.C), rel=1e-9)
    parabola = loss.quadratic() and not loss.numeric()
    for t in ([0.0, 0.0], [1.0, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, -1.0], [0.6, 0.8], [1.0, -0.7]):
        there = before + t[0] * move + t[1] * shift
        assert (there >= low - 1e-12).all()
        assert (there <= high + 1e-12).all()
        said = joint.dual + joint.linear @ t + t @ joint.quadratic @ np.array(t)
        found = gains(loss, there, block, problem.C)
        assert said <= found + 1e-9 * abs(found)
        if parabola or (t[0] in (0.0, 1.0) and not t[1]):
            assert said == pytest.approx(found, rel=1e-9)
    assert shift.any() == loss.quadratic()


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_second_direction_keeps_from_bounds_and_from_the_corner_at_zero(loss: Any) -> None:
    """As far as a row is from the ends of its box before the move and after, and from 0 on its side of it; a twentieth of C s at most."""
    block, problem, low, high = proposal(loss)
    found, C = cocoa._shared(problem, block), problem.C * block.s.astype(float)
    for i, (a, b) in enumerate(zip(block.rows["alpha"], block.rows["before"], strict=True)):
        room = min(a - low[i], b - low[i], high[i] - a, high[i] - b, 0.05 * C[i])
        if loss.numeric():
            room = min(room, max(min(a, b), -max(a, b)))
        sign = 1.0 if loss.numeric() else float(block.y[i])
        assert found[i] == pytest.approx(sign * max(room, 0.0) if loss.quadratic() else 0.0, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("steps", [(1.0, 0.0), (0.0, 0.0), (0.25, -0.5), (1.0, 1.0)])
def test_rows_are_taken_to_where_their_group_went(loss: Any, steps: tuple[float, float]) -> None:
    """Chunk 4 of groups 0, 1 and 2 is one of group 1."""
    block, problem, low, high = proposal(loss)
    joint = cocoa.begun(3, np.zeros(4), 1.0)
    joint.steps[1] = steps
    before, move, shift = (
        block.rows["before"].copy(),
        block.rows["alpha"] - block.rows["before"],
        cocoa._shared(problem, block),
    )
    cocoa.settle(joint, problem, block)
    expected = before + steps[0] * move + steps[1] * shift
    np.testing.assert_allclose(block.rows["alpha"], expected, rtol=1e-12, atol=1e-15)
    assert (block.rows["alpha"] >= low - 1e-12).all()
    assert (block.rows["alpha"] <= high + 1e-12).all()
