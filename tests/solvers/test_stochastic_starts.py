"""What stochastic solvers begin with, and what they are averaged and certified by: steps, clocks and candidates by their formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.random import shuffle
from streamsvm.losses import EpsilonInsensitive, Hinge, Huber, Logistic, Pinball, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.solvers.dcd.solver import DCD
from streamsvm.solvers.stochastic import sgd
from streamsvm.solvers.stochastic.assg import ASSG, RADIUS_FACTOR, SAMPLE_SWEEPS
from streamsvm.solvers.stochastic.averaged_certificate import share_of
from streamsvm.solvers.stochastic.pegasos import Pegasos, largest_slope_product, sampling, weight_in_radius
from streamsvm.solvers.stochastic.sgd import ROWS_PER_SAMPLE, SGD
from streamsvm.solvers.stochastic.sgd_qn import COLUMNS_PER_ROW, LEAST_SKIP, SGDQN, TRIALS
from streamsvm.types import Block, Problem
from tests.solvers.problems import COLUMNS, ROWS, epoch_blocks, problem_of, rows_of, signed_rows

LAM = 1.0 / (0.5 * ROWS)
WARM = np.linspace(-1.0, 1.0, COLUMNS + 1)


def numbers_of(block: Block) -> Block:
    """Targets that are no classes."""
    return replace(block, y=np.linspace(-3.0, 2.0, 100).astype(np.float32))


# -- ASSG --------------------------------------------------------------------------------------------------------------


def first_steps(loss: Any, order: Any, batch: int, length: float, radius: float) -> float:
    """The step that the bound on a stage's error asks for: the mean gradient at w = 0, and what rows differ from it by, apart."""
    _, _, s = rows_of()
    g = -loss.slope(0.0) * s[order, None].astype(float) * signed_rows()[order]
    drift = float(np.square(g.mean(0)).sum())
    G = math.sqrt(drift + (np.square(g).sum(1).mean() - drift) / batch)
    step = radius * math.sqrt(batch / length) / G
    if math.isinf(loss.upper(1.0)):
        largest = float((s[order] * np.square(signed_rows()[order]).sum(1)).max())
        step = min(step, loss.curvature(1.0) / largest)
    return min(step, 0.5 / LAM)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge(), Huber(0.25)], ids=str)
@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("warm", [False, True])
def test_radius_and_step_of_the_first_stage_follow_from_a_sample(loss: Any, batch: int, warm: bool) -> None:
    """Three times the length of what a few sweeps over it come to, or of given weights once; a stage is a quarter of the rows."""
    solver, block = ASSG(batch=batch, sample=60), epoch_blocks(3)[0]
    state = solver.start(replace(problem_of(loss), warm=WARM if warm else None))
    order = block.start + block.order[:60]
    solver._begin(state, block)
    if warm:
        center, factor = WARM, 1.0
    else:
        center, factor = sample_solved(loss, block, block.order[:60].copy()), RADIUS_FACTOR
    np.testing.assert_allclose(state.center, center, rtol=1e-9)
    np.testing.assert_array_equal(state.w, state.center)
    radius = factor * float(np.linalg.norm(center))
    assert (state.length, state.left, state.stage, state.samples) == (75.0, 75.0, 0.0, 0.0)
    assert state.first_radius == state.radius == pytest.approx(radius, rel=1e-9)
    assert state.step == pytest.approx(first_steps(loss, order, batch, 75.0, radius), rel=1e-5)
    assert state.first_step == state.step


def sample_solved(loss: Any, block: Block, order: Any) -> Any:
    """Coordinate descent on the rows of a sample alone, each for as many as there are of all: sweeps over orders of their own."""
    own = replace(problem_of(loss), C=0.5 * ROWS / len(order))
    solver = DCD(sweeps=1)
    state = solver.start(own)
    given = replace(block, rows={"alpha": np.zeros(100)})
    for sweep in range(SAMPLE_SWEEPS):
        shuffle(order, len(order), block.seed + sweep)
        solver.visit(state, replace(given, order=order.copy()))
    return state.w


def test_where_a_sample_says_nothing_radius_and_step_are_what_they_need_be() -> None:
    """Rows without weight: w is 0, and so are gradients."""
    for loss in (Hinge(), SquaredHinge()):
        solver, block = ASSG(), epoch_blocks(0)[0]
        state = solver.start(problem_of(loss))
        solver._begin(state, replace(block, s=np.zeros(100, np.float32)))
        assert (state.radius, state.step) == (1.0, min(math.sqrt(1.0 / 75.0), 0.5 / LAM))
    assert ASSG(rows_per_stage=7).start(problem_of(Hinge())).length == 0.0


def test_steps_shrink_w_by_half_at_most_however_large_the_ball_is() -> None:
    solver = ASSG(radius=1e9)
    state = solver.start(problem_of(Hinge()))
    solver._begin(state, epoch_blocks(0)[0])
    assert state.step == pytest.approx(0.5 / LAM)


@pytest.mark.parametrize(("rows", "length"), [(3, 1.0), (7, 1.0), (8, 2.0)])
def test_a_stage_is_a_quarter_of_the_rows_and_one_at_least(rows: int, length: float) -> None:
    solver = ASSG()
    state = solver.start(replace(problem_of(Hinge()), rows=rows))
    solver._begin(state, epoch_blocks(0)[0])
    assert state.length == length


@pytest.mark.parametrize(("left", "samples", "own"), [(29.9, 4.0, True), (30.0, 4.0, False), (29.9, 0.0, False)])
def test_the_candidate_is_the_mean_of_a_stage_that_is_more_than_half_done(
    left: float, samples: float, own: bool
) -> None:
    """Else that of the stage before."""
    solver = ASSG()
    state = solver.start(problem_of(Hinge()))
    state.length, state.left, state.samples, state.losses, state.w[:] = 60.0, left, samples, 8.0, 2.0
    state.total[:], state.center[:] = 12.0, -1.0
    found = solver.finish(state)
    assert (state.averaged.candidate == (3.0 if own else -1.0)).all()
    assert found.primal == pytest.approx(0.5 * 4.0 * (COLUMNS + 1) + 0.5 * 8.0)
    assert (state.losses, state.linear, state.quadratic, state.averaged.passes) == (0.0, 0.0, 0.0, 1)


# -- Pegasos -----------------------------------------------------------------------------------------------------------


def test_a_ball_is_foretold_from_the_weights_of_the_rows_met() -> None:
    """C times the mean of s_i, or of twice the losses of numbers at w = 0, for as many rows as there are."""
    _, _, s = rows_of()
    for loss in (Hinge(), SquaredHinge(), Huber(0.25), Logistic()):
        solver, met = Pegasos(), np.zeros(0)
        state = solver.start(problem_of(loss))
        for block in epoch_blocks(0)[:2]:
            solver.visit(state, block)
            met = np.append(met, s[block.start : block.start + 100])
            expected = math.sqrt(0.5 * float(met.mean(dtype=float)) * ROWS * largest_slope_product(loss))
            assert solver._radius(state) == pytest.approx(expected, rel=1e-6)
        assert state.met == 200
        assert Pegasos(projection=False)._radius(state) == math.inf
    for numeric in (EpsilonInsensitive(0.1), Pinball(0.3)):
        block = numbers_of(epoch_blocks(0)[0])
        costs = [float(c) * numeric.value(-float(t)) for c, t in zip(block.s, block.y, strict=True)]
        assert weight_in_radius(problem_of(numeric), block) == pytest.approx(2.0 * sum(costs), rel=1e-6)
        state = solver.start(problem_of(numeric))
        state.weight, state.met = 10.0, 5
        assert solver._radius(state) == pytest.approx(math.sqrt(0.5 * 10.0 / 5 * ROWS))


def test_of_a_loss_without_an_end_the_ball_holds_the_optimum_too() -> None:
    loss = Logistic()
    exact = max(-loss.slope(m) * m for m in np.linspace(0.0, 100.0, 100_001).tolist())
    assert exact <= largest_slope_product(loss) <= 1.02 * exact


@pytest.mark.parametrize(("loss", "warm", "least"), [
    (Hinge(), False, 0.0), (Hinge(), True, float(ROWS)), (SquaredHinge(), False, 0.0), (SquaredHinge(), True, float(ROWS)),
])  # fmt: skip
def test_the_clock_is_ahead_by_what_makes_first_steps_stable_and_by_an_epoch_for_given_weights(
    loss: Any, warm: bool, least: float
) -> None:
    """Of a squared hinge 1 / (lambda t) is 1 over the curvature of the loss times s_i ||x_i||^2 then, at the largest."""
    block, (_, _, s) = epoch_blocks(0)[0], rows_of()
    mine = slice(block.start, block.start + 100)
    stable = 0.0
    if isinstance(loss, SquaredHinge):
        stable = float((s[mine] * np.square(signed_rows()[mine]).sum(1)).max()) * 2.0 / LAM
    solver = Pegasos()
    state = solver.start(replace(problem_of(loss), warm=WARM if warm else None))
    solver._begin(state, block)
    assert state.offset == pytest.approx(max(stable, least), rel=1e-6)
    for a in (state.a, state.before, state.origin):
        np.testing.assert_allclose(a, LAM * state.offset * WARM if warm else np.zeros(COLUMNS + 1), rtol=1e-12)
    assert state.a is not state.before


@pytest.mark.parametrize(
    ("columns", "batch", "after"), [(15, 1, 1), (16, 1, 2), (31, 1, 2), (32, 1, 3), (32, 4, 1), (64, 4, 2)]
)
def test_w_is_sampled_as_often_as_costs_a_row_sixteen_additions(columns: int, batch: int, after: int) -> None:
    assert sampling(columns, batch) == after


def test_late_means_weigh_more_unless_all_are_to_weigh_the_same() -> None:
    for solver, weights in (
        (Pegasos(averaging="tail"), [1.0, 6.0, 21.0]),
        (Pegasos(averaging="all"), [1.0, 1.0, 1.0]),
    ):
        state, means = solver.start(problem_of(Hinge())), []
        for epoch in range(3):
            for block in epoch_blocks(epoch):
                solver.visit(state, block)
            means.append(state.total / state.samples)
            solver.finish(state)
        np.testing.assert_allclose(state.averaged.candidate, np.array(weights) / sum(weights) @ means, rtol=1e-9)


# -- SGD ---------------------------------------------------------------------------------------------------------------


def test_given_weights_count_as_an_epoch() -> None:
    cold, warm = SGD().start(problem_of(Hinge())), SGD().start(replace(problem_of(Hinge()), warm=WARM))
    assert (cold.t, cold.t_before, cold.t_origin) == (0, 0, 0)
    assert (warm.t, warm.t_before, warm.t_origin) == (ROWS, ROWS, ROWS)
    for a in (warm.a, warm.before, warm.origin):
        np.testing.assert_allclose(a / (warm.lam * warm.t), WARM, rtol=1e-12)
    assert not cold.a.any()


@pytest.mark.parametrize("variant", ["s", "m"])
def test_w_is_sampled_after_so_many_rows_and_the_clock_counts_presentations(variant: Any) -> None:
    rows = 2 * ROWS_PER_SAMPLE + 1
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 3)).astype(np.float32)
    y, order = np.where(X[:, 0] > 0, 1.0, -1.0).astype(np.float32), np.arange(rows, dtype=np.int32)
    solver, problem = SGD(variant, multiplicity=4), Problem(Hinge(), 1.0, rows, 3, 1)
    state, parts = solver.start(problem), solver.start(problem)
    block = Block(Dense(X, 1.0), y, np.ones(rows, np.float32), 0, 0, order, 0)
    solver.visit(state, block)
    times, total = 4 if variant == "m" else 1, np.zeros(4)
    for start in range(0, rows, ROWS_PER_SAMPLE):
        solver.visit(parts, replace(block, order=order[start : start + ROWS_PER_SAMPLE]))
        total += parts.a / (parts.lam * parts.t)
    assert (state.samples, state.t) == (3, times * rows)
    np.testing.assert_allclose(state.total, total, rtol=1e-12)
    np.testing.assert_array_equal(state.a, parts.a)


@pytest.mark.parametrize("warm", [False, True])
def test_the_candidate_is_the_mean_over_passes_and_the_estimate_that_of_w(warm: bool) -> None:
    solver = SGD("s")
    state = solver.start(replace(problem_of(Hinge()), warm=WARM if warm else None))
    candidate = state.averaged.candidate.copy()
    for epoch in range(3):
        for block in epoch_blocks(epoch):
            solver.visit(state, block)
        mean, w, losses = state.total / state.samples, state.a / (state.lam * state.t), state.losses
        certifying = state.averaged.certifying
        found = solver.finish(state)
        if not certifying:
            assert found.primal == pytest.approx(0.5 * float(w @ w) + 0.5 * losses)
        candidate += share_of(epoch + 1) * (mean - candidate)
        np.testing.assert_allclose(state.averaged.candidate, candidate, rtol=1e-9)
        assert (state.samples, state.losses, state.gained, state.t_before) == (0, 0.0, 0.0, state.t)
        np.testing.assert_array_equal(state.before, state.a)


def test_drawn_rows_prove_what_the_slopes_at_the_candidate_prove() -> None:
    """And no more: what they present is no feasible point."""
    solver = SGD("r")
    state = solver.start(problem_of(Hinge()))
    duals = []
    for epoch in range(6):
        certifying = state.averaged.certifying
        for block in epoch_blocks(epoch):
            solver.visit(state, block)
        before = state.averaged.dual
        duals.append(solver.finish(state).dual)
        assert certifying or duals[-1] == before
    assert duals[0] == 0.0 < duals[-1]


# -- SGD-QN ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "skip"), [(10, LEAST_SKIP), (16 * 16 - 1, 16), (16 * 17 - 1, 17), (1600, 100)])
def test_all_columns_take_a_step_after_as_many_rows_as_make_it_cost_sixteen_columns_a_row(
    columns: int, skip: int
) -> None:
    assert COLUMNS_PER_ROW == 16
    state = SGDQN().start(replace(problem_of(Hinge()), columns=columns))
    assert SGDQN()._skip(state) == skip
    assert SGDQN(skip=3)._skip(state) == 3


@pytest.mark.parametrize("warm", [False, True])
def test_the_clock_of_the_matrix_is_the_best_of_ten_powers_of_ten(warm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the rows between two steps of all columns on, or from an epoch for given weights: the one of the least objective."""
    solver, block, tried = SGDQN(sample=50), epoch_blocks(0)[0], []
    state = solver.start(replace(problem_of(Hinge()), warm=WARM if warm else None))

    def objective(_: Any, state: Any, given: Any, order: Any, t: float) -> float:
        assert len(order) == 50
        tried.append(t)
        return abs(t - 1e3 * tried[0])

    monkeypatch.setattr(SGDQN, "_objective_after", objective)
    found = solver._tried(state, block)
    least = float(ROWS if warm else LEAST_SKIP)
    np.testing.assert_allclose(tried, [least * 10.0**k for k in range(TRIALS)])
    assert found == 1e3 * least
    solver.visit(state, block)
    assert state.H.min() >= state.lam * found


@pytest.mark.parametrize("warm", [False, True])
def test_a_trial_is_worth_the_mean_loss_of_the_sample_and_the_norm_after_a_pass_over_it(warm: bool) -> None:
    solver, block, loss = SGDQN(t0=1.0), epoch_blocks(0)[0], Hinge()
    problem = replace(problem_of(loss), warm=WARM if warm else None)
    state, order = solver.start(problem), block.order[:40]
    found = solver._objective_after(state, block.labeled, order, 70.0)
    after = SGDQN(t0=70.0)
    moved = after.start(problem)
    moved.averaged.certifying = False
    after.visit(moved, replace(block, order=order))
    mine = block.start + order
    margins, s = signed_rows()[mine] @ moved.w, rows_of()[2][mine].astype(float)
    expected = 0.5 * LAM * float(moved.w @ moved.w) + float(s @ np.maximum(0.0, 1.0 - margins)) / 40
    assert found == pytest.approx(expected, rel=1e-9)
    np.testing.assert_array_equal(state.w, WARM if warm else np.zeros(COLUMNS + 1))


def test_a_pass_of_the_matrix_is_closed_with_the_mean_of_w_and_what_its_slopes_prove() -> None:
    solver = SGDQN()
    state = solver.start(problem_of(Hinge()))
    candidate = np.zeros(COLUMNS + 1)
    for epoch in range(3):
        for block in epoch_blocks(epoch):
            solver.visit(state, block)
        certifying, losses, mean = state.averaged.certifying, state.losses, state.total / state.samples
        found = solver.finish(state)
        if not certifying:
            assert found.primal == pytest.approx(0.5 * float(state.w @ state.w) + 0.5 * losses)
        candidate += share_of(epoch + 1) * (mean - candidate)
        np.testing.assert_allclose(state.averaged.candidate, candidate, rtol=1e-9)
        np.testing.assert_array_equal(state.w_before, state.w)
        np.testing.assert_array_equal(state.H_before, state.H)
        assert not state.total.any()
        assert not state.v.any()
        assert (state.samples, state.losses, state.linear, state.quadratic) == (0, 0.0, 0.0, 0.0)
    state.w[:] = 7.0
    solver.finish(state)  # a pass without a row
    np.testing.assert_allclose(state.averaged.candidate, candidate + share_of(4) * (7.0 - candidate), rtol=1e-9)


def test_copies_of_the_matrix_add_up_what_they_summed() -> None:
    solver, names = SGDQN(), "total v samples linear quadratic losses"
    copies = [solver.start(problem_of(Hinge())) for _ in range(3)]
    for copy, n in zip(copies, (1, 2, 6), strict=True):
        for k, name in enumerate(names.split(), 1):
            old = getattr(copy, name)
            setattr(copy, name, np.full_like(old, k * n) if isinstance(old, np.ndarray) else k * n)
        copy.averaged.losses, copy.due = 1.0 * n, True
    assert solver.merge(copies[:1]) is copies[0]
    whole = solver.merge(copies)
    for k, name in enumerate(names.split(), 1):
        assert np.all(getattr(whole, name) == 9 * k), name
    assert (whole.averaged.losses, whole.due) == (9.0, False)
    np.testing.assert_array_equal(whole.w, copies[0].w_before)  # of columns that no row has there is no H
    np.testing.assert_array_equal(whole.past, whole.w)


def test_the_dual_points_of_sgd_are_what_was_added_to_the_weights_it_began_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over all passes, and over the last one: each a sum of rows, over as many as were shown."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(sgd, "raise_dual", lambda _, *point: given.update(all=point))
    monkeypatch.setattr(sgd, "take_pass", lambda _, *point: given.update(last=point))
    solver = SGD()
    state = solver.start(replace(problem_of(Hinge()), warm=WARM))
    first, second = np.arange(1.0, COLUMNS + 2), np.linspace(-3.0, 2.0, COLUMNS + 1)
    state.before += first
    state.a += first + second
    state.t_before, state.t = state.t_origin + ROWS, state.t_origin + 2 * ROWS
    state.gained_before, state.gained = 5.0, 3.0
    solver._bound(state)
    shown = state.lam * ROWS
    for name, added, gained, rows in (("all", first + second, 8.0, 2 * shown), ("last", second, 3.0, shown)):
        v, linear, quadratic = given[name]
        np.testing.assert_allclose(v, added / rows, rtol=1e-9)
        assert (linear, quadratic) == (pytest.approx(gained / rows, rel=1e-12), 0.0)


@pytest.mark.parametrize(
    ("samples", "left", "averaged"), [(1.0, 4.9, True), (1.0, 5.0, False), (0.0, 0.0, False), (7.0, 0.0, True)]
)
def test_the_candidate_of_a_stage_that_is_half_done_is_its_mean(samples: float, left: float, averaged: bool) -> None:
    """Before that, and where no row has counted yet, it is the center of the stage."""
    solver = ASSG()
    state = solver.start(problem_of(Hinge()))
    state.total[:], state.center[:] = samples * np.arange(COLUMNS + 1.0), -1.0
    state.samples, state.left, state.length = samples, left, 10.0
    solver.finish(state)
    wanted = np.arange(COLUMNS + 1.0) if averaged else np.full(COLUMNS + 1, -1.0)
    np.testing.assert_allclose(state.averaged.candidate, wanted, rtol=1e-15)
