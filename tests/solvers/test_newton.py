"""Newton with a sampled model: its passes against plain numpy, its sample, its certificate, its joins."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from streamsvm.compute.blocks.operators import Factored, UnformedRows, arrays_of, margins
from streamsvm.compute.kernel_values.gram import kernel_block, points_of
from streamsvm.compute.passes import newton as passes
from streamsvm.compute.passes.certificate import RowLoss
from streamsvm.engine.checkpoint import Decoder, Encoder
from streamsvm.engine.groups import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.engine.state_transfer import state_bytes
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.kernels import RBF
from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.rows import Dense
from streamsvm.sklearn import StreamSVC
from streamsvm.solvers.evaluation import PointSums
from streamsvm.solvers.newton.model import Descent, model_at, polished_dual
from streamsvm.solvers.newton.sample import PrioritySampler
from streamsvm.solvers.newton.solver import Newton
from streamsvm.store.views import MemoryStore
from streamsvm.types import Block, Problem, Stop
from tests.arrays import csr_of, sparse_values
from tests.solvers.problems import COLUMNS, ROWS, epoch_blocks, explicit_dual, problem_of, rows_of, signed_rows

LOSSES = [Hinge(), SquaredHinge(), Huber(0.4)]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


def in_order(epoch: int) -> list[Block]:
    return sorted(epoch_blocks(epoch), key=lambda block: block.start)


def whole() -> Block:
    X, y, s = rows_of()
    return Block(Dense(X, 1.0), y, s, 0, 0, np.arange(ROWS, dtype=np.int32), 0)


def objective(w: Any, loss: Any, C: float) -> float:
    return float(0.5 * w @ w + sum(C * c * loss.value(m) for c, m in zip(rows_of()[2], signed_rows() @ w, strict=True)))


def certificates(solver: Newton, problem: Problem, count: int) -> tuple[list[Any], Any]:
    state, found = solver.start(problem), []
    for epoch in range(count):
        for block in in_order(epoch):
            solver.visit(state, block)
        found.append(solver.finish(state))
    return found, state


# -- passes ------------------------------------------------------------------------------------------------------------


@each_loss
def test_newton_look_is_objective_gradient_and_dual(loss: Any) -> None:
    smooth, w = (Huber(0.3) if isinstance(loss, Hinge) else loss), np.linspace(-1, 1, COLUMNS + 1)
    problem, here = problem_of(loss), PointSums(COLUMNS + 1)
    for block in epoch_blocks(0):
        here.add(problem, smooth, block, w)
    found = here.close(problem, w)
    a = np.array([-0.5 * c * smooth.slope(m) for c, m in zip(rows_of()[2], signed_rows() @ w, strict=True)])
    assert found.primal == pytest.approx(objective(w, loss, 0.5), rel=1e-6)
    assert found.value == pytest.approx(objective(w, smooth, 0.5), rel=1e-6)
    np.testing.assert_allclose(found.gradient, w - a @ signed_rows(), rtol=1e-5, atol=1e-6)
    gap = found.smoothing + 0.5 * found.gradient @ found.gradient
    assert found.primal - gap == pytest.approx(explicit_dual(a, loss, 0.5), rel=1e-5, abs=1e-6)


def test_newton_compiled_passes_are_their_python() -> None:
    block, w, smooth = whole(), np.linspace(-1, 1, COLUMNS + 1), Huber(0.3)
    results = []
    for look, score, key in (
        (passes.look_pass, passes.scores_pass, passes.keys_pass),
        (passes.look_pass.py_func, passes.scores_pass.py_func, passes.keys_pass.py_func),
    ):
        f, v, scores, keys = np.empty(ROWS), np.zeros(COLUMNS + 1), np.ones(ROWS), np.empty(ROWS)
        low = np.zeros(COLUMNS + 1)
        sums = look(block.labeled, w, RowLoss(0.5, Hinge(), smooth), f, v, low)
        score(block.y, block.s, f, smooth, 0.2, scores)
        with np.errstate(over="ignore"):
            key(scores, 17, 3, keys)
        results.append((np.array(sums), f, v, scores, keys))
    for compiled, python in zip(*results, strict=True):
        np.testing.assert_allclose(compiled, python, rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_newton_leverages_and_squares(sparse: bool) -> None:
    values = sparse_values(np.random.default_rng(0), 40, 7)
    X, a, scale = (csr_of(values, 2.0) if sparse else Dense(values, 2.0)), np.arange(40.0), np.linspace(0.01, 0.1, 8)
    full = np.hstack([values.astype(np.float64), np.full((40, 1), 2.0)])
    np.testing.assert_allclose(passes.squares(X, a, 7), a @ full**2, rtol=1e-6)
    np.testing.assert_allclose(passes.leverages(X, scale, 0.5), np.minimum(1, full**2 @ scale) + 0.5, rtol=1e-6)


# -- the sample --------------------------------------------------------------------------------------------------------


def sketched(limit: int, scores: Any, order: list[int], salt: int = 1, w: Any = None) -> PrioritySampler:
    sampler = PrioritySampler(limit, salt)
    offer(sampler, scores, order, np.zeros(COLUMNS + 1) if w is None else w)
    return sampler


def offer(sampler: PrioritySampler, scores: Any, order: list[int], w: Any) -> None:
    for k in order:
        block = in_order(0)[k]
        sampler.add(block, margins(block.X, w), scores[block.start : block.start + 100])


def test_newton_sample_does_not_depend_on_how_rows_arrive() -> None:
    scores = np.random.default_rng(1).random(ROWS)
    one, other = (sketched(40, scores, order).sample() for order in ([0, 1, 2], [2, 0, 1]))
    left, right = sketched(40, scores, [1]), sketched(40, scores, [0, 2])
    left.merge(right)
    joined = left.sample()
    assert one is not None
    assert len(one.y) == 40
    for sample in (other, joined):
        assert sample is not None
        np.testing.assert_array_equal(sample.X.values, one.X.values)
        np.testing.assert_array_equal(sample.probability, one.probability)


def test_newton_weighted_sample_sums_are_unbiased() -> None:
    rng = np.random.default_rng(2)
    scores = rng.random(ROWS) ** 2 * rows_of()[2]
    values = rows_of()[0][:, 0].astype(np.float64) * (scores > 0)
    estimates = []
    for salt in range(400):
        sample = sketched(50, scores, [0, 1, 2], salt).sample()
        assert sample is not None
        estimates.append(np.sum(sample.X.values[:, 0] / sample.probability))
    assert np.mean(estimates) == pytest.approx(values.sum(), abs=4 * np.std(estimates) / 20)


def test_newton_all_rows_are_gathered_once_and_the_model_is_exact() -> None:
    _, state = certificates(Newton(), problem_of(SquaredHinge()), 1)
    assert state.gathered
    first = state.all_rows.sample
    solver = Newton()
    for block in in_order(1):
        solver.visit(state, block)
    assert state.sampler.held == 0
    found = solver.finish(state)
    assert found.gap < 1e-3
    assert state.all_rows.sample is first


@pytest.mark.parametrize("limit", [ROWS // 3, 2 * ROWS // 3])
def test_newton_sample_is_drawn_anew_in_every_pass(limit: int) -> None:
    """Also where it is so large that rows are thrown out at the end of the pass only."""
    solver = Newton(limit)
    _, state = certificates(solver, problem_of(SquaredHinge()), 1)
    assert not state.whole
    first = state.trust_region.model.sample.row
    for block in in_order(1):
        solver.visit(state, block)
    solver.finish(state)
    second = state.trust_region.model.sample.row
    assert len(first) == len(second) == limit
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_newton_rows_whose_kernel_values_are_made_again_are_kept_as_they_are_stored(sparse: bool, dtype: Any) -> None:
    """They are those of a sample that keeps kernel values, in an eighth of the memory, also after a checkpoint."""
    rng, kernel, limit = np.random.default_rng(3), RBF(0.3), 150
    points, W = points_of(rng.normal(size=(80, 3)), dtype), rng.normal(size=(80, 30)).astype(dtype)
    remade, whole, ones = PrioritySampler(limit), PrioritySampler(limit), np.ones(200, np.float32)
    for start in (0, 200):
        stored, scores = rng.normal(size=(200, 3)).astype(np.float32), rng.random(200)
        rows: Any = csr_of(stored) if sparse else Dense(stored)
        values = np.empty((200, 80), dtype)
        kernel_block(rows, points, kernel, values)
        origin = UnformedRows(rows, points, kernel, W, 1.0, by_differences=False)
        for sampler, pair in ((remade, Factored(values, W, 1.0, origin)), (whole, Factored(values, W, 1.0))):
            block = Block(pair, ones, ones, 0, start, np.arange(200, dtype=np.int32), 0)
            sampler.add(block, np.arange(200.0), scores)
        for array in (values, *arrays_of(rows)[:1]):
            array[:] = 0.0  # the buffers are of the reader and of the map
    held, before = (state_bytes([part.X for part in sampler.parts]) - W.nbytes for sampler in (remade, whole))
    assert held < before / 4
    encoder = Encoder()
    tree = encoder.encode(remade)
    saved = Decoder(encoder.tensors.__getitem__).decode(tree)
    found, again, same = remade.sample(), saved.sample(), whole.sample()
    assert found is not None
    assert same is not None
    np.testing.assert_array_equal(again.X.values, found.X.values)
    np.testing.assert_array_equal(found.row, same.row)
    assert len(found.row) == limit
    assert found.X.values.dtype == dtype
    np.testing.assert_allclose(found.X.values, same.X.values, rtol=1e-4, atol=1e-5)


# -- the model and the method ------------------------------------------------------------------------------------------


def test_newton_model_has_the_gradient_of_the_whole_at_its_center() -> None:
    problem, w, smooth = problem_of(SquaredHinge()), np.linspace(-1, 1, COLUMNS + 1), SquaredHinge()
    here = PointSums(COLUMNS + 1)
    here.add(problem, smooth, whole(), w)
    sample = sketched(60, np.ones(ROWS), [0, 1, 2], w=w).sample()
    assert sample is not None
    model = model_at(problem, sample, sample.s / sample.probability, w)
    model.damping = np.ones_like(w)
    model.shift = model.weighted_sum(model.values_at(smooth, w)) - here.v
    found = here.close(problem, w)
    np.testing.assert_allclose(model.gradient(model.values_at(smooth, w), w), found.gradient, atol=1e-9)
    end, solved = Descent(model).minimize(smooth, w)
    assert solved
    assert model.value(smooth, end) < model.value(smooth, w)
    model.deadline = 0.0  # long ago
    stayed, solved = Descent(model).minimize(smooth, w)
    assert not solved
    np.testing.assert_array_equal(stayed, w)
    assert model.thinned(2).deadline == 0.0


@pytest.mark.parametrize("sample", [60, ROWS])
def test_newton_deadline_that_has_passed_leaves_newton_where_it_is_with_bounds(sample: int) -> None:
    solver, problem = Newton(sample, polish=False), problem_of(SquaredHinge())
    state = solver.start(problem)
    for _ in range(2):
        solver.set_deadline(state, 0.0)
        solver.visit(state, whole())
        found = solver.finish(state)
        np.testing.assert_array_equal(state.point, np.zeros(COLUMNS + 1))
        assert 0.0 <= found.dual <= found.primal


@each_loss
def test_newton_polished_dual_is_below_the_optimum_and_above_the_raw_one(loss: Any) -> None:
    problem, w = problem_of(loss), np.full(COLUMNS + 1, 0.1)
    smooth, here = (Huber(0.05) if isinstance(loss, Hinge) else loss), PointSums(COLUMNS + 1)
    here.add(problem, smooth, whole(), w)
    found = here.close(problem, w)
    sample = sketched(150, np.ones(ROWS), [0, 1, 2], w=w).sample()
    assert sample is not None
    polished = polished_dual(problem, sample, smooth, found, w)
    best = certificates(Newton(), problem_of(loss), 6)[0][-1].primal
    assert found.dual < polished <= best * (1 + 1e-9)


@each_loss
@pytest.mark.parametrize("sample", [60, ROWS])
def test_newton_certified_optimum(loss: Any, sample: int) -> None:
    """With a fifth of the rows in memory as with all: primal and dual meet."""
    found, state = certificates(Newton(sample), problem_of(loss), 40)
    assert found[-1].gap < (1e-2 if sample < ROWS else 1e-4)
    assert found[-1].gap > -1e-12
    assert found[-1].primal == pytest.approx(objective(state.best, loss, 0.5), rel=1e-6)
    gaps = [certificate.gap for certificate in found]
    assert gaps == sorted(gaps, reverse=True)


@each_loss
def test_newton_merged_workers_take_the_same_way(loss: Any) -> None:
    solver, problem = Newton(60), problem_of(loss)
    alone, shared = solver.start(problem), solver.start(problem)
    for epoch in range(5):
        copies = [deepcopy(shared), deepcopy(shared)]
        for k, block in enumerate(in_order(epoch)):
            solver.visit(alone, block)
            solver.visit(copies[k % 2], block)
        shared = solver.merge(copies)
        one, other = solver.finish(alone), solver.finish(shared)
        assert other.primal == pytest.approx(one.primal, rel=1e-9)
        assert other.dual == pytest.approx(one.dual, rel=1e-6, abs=1e-9)


def test_newton_rows_without_weight_alone_are_no_failure() -> None:
    solver, problem = Newton(), problem_of(SquaredHinge())
    state, block = solver.start(problem), whole()
    block.s[:] = 0.0
    solver.visit(state, block)
    certificate = solver.finish(state)
    assert certificate.primal == 0.0
    assert certificate.gap == 0.0


@pytest.mark.parametrize("sample", [None, ROWS // 2])
def test_newton_another_margin_is_solved_for(sample: int | None) -> None:
    found, _ = certificates(Newton(sample), problem_of(Hinge(0.5)), 12)
    assert found[-1].dual <= found[-1].primal
    assert found[-1].gap < (1e-3 if sample is None else 0.1)


def rare_columns(rows: int = 30_000) -> MemoryStore:
    """Common columns, and ten that five rows have, with values of about sqrt(rows / 5): the rows a sample must hold."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(rows, 15)).astype(np.float32)
    X[:, 5:] = 0
    for j in range(5, 15):
        X[rng.choice(rows, 5, replace=False), j] = np.sqrt(rows / 5)
    codes = (X[:, :5] @ rng.normal(size=5) + rng.normal(size=rows) > 0).astype(np.int32)
    store = MemoryStore(chunk_bytes=1 << 18)
    store.append(Dense(X), codes, None)
    return store.commit(("-1", "1"), 15)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("lam", [1e-4, 1e-6])
def test_newton_few_passes_where_columns_are_rare(loss: str, lam: float) -> None:
    store = rare_columns()
    job = FitJob("memory", "model", solver="newton", options={"sample": 3000}, loss=loss, lambda_=lam)
    plan = make_plan(job, store)
    result = local_trainer(
        store, plan.solver, plan.problems, plan.features, RunSettings(depth=0), lambda _: None
    ).train(Stop(40))
    certificate = result.runs[0].certificate
    assert certificate is not None
    assert certificate.gap <= 1e-3
    assert result.passes <= 10


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("rows", ["copies", "zeros"])
def test_newton_optimum_of_zero_is_certified(rows, C):
    """Rows that both classes have: the dual point is at the bounds of the box, and its sum of rows is 0."""
    half = np.zeros((50, 3)) if rows == "zeros" else np.random.default_rng(0).normal(size=(50, 3))
    y = np.repeat([0, 1], 50)
    found = StreamSVC(C, loss="hinge", solver="newton", max_passes=10).fit(np.concatenate([half, half]), y)
    assert found.gap_ <= 1e-3
    assert abs(found.primal_ - 100 * C) <= 1e-3 * 100 * C
