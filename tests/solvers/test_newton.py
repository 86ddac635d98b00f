"""Newton's method with a sample of rows: the optimum in few readings, and a bound below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from streamsvm.compute.blocks.operators import Factored, LazyRows, arrays_of
from streamsvm.compute.kernel_values.kernel_matrix import kernel_block, points_of
from streamsvm.engine.checkpoint import Decoder, Encoder
from streamsvm.engine.local_loop import local_trainer
from streamsvm.engine.loop import RunSettings
from streamsvm.engine.state_transfer import state_bytes
from streamsvm.jobs.fit.driver import fit, fit_in_memory
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.kernels import RBF
from streamsvm.losses import Hinge, Huber, Logistic, SquaredHinge
from streamsvm.rows import CSR, Dense
from streamsvm.sklearn import StreamSVC
from streamsvm.solvers.newton.priority_sampling import PrioritySampler
from streamsvm.solvers.newton.solver import Newton
from streamsvm.solvers.problem_kinds import OneAgainstRest
from streamsvm.store import create
from streamsvm.store.views import MemoryStore
from streamsvm.types import Block, Certificate, Problem, Stop
from tests.arrays import csr_of
from tests.axes import each_value
from tests.solvers.kernel_problems import solve
from tests.solvers.problems import ROWS, epoch_blocks, problem_of, rows_of, signed_rows

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


@each_loss
@pytest.mark.parametrize("sample", [60, ROWS])
def test_newton_primal_and_dual_meet_with_a_fifth_of_the_rows_as_with_all(loss: Any, sample: int) -> None:
    found, state = certificates(Newton(sample), problem_of(loss), 40)
    assert found[-1].gap < (1e-2 if sample < ROWS else 1e-4)
    assert found[-1].gap > -1e-12
    assert found[-1].primal == pytest.approx(objective(state.best, loss, 0.5), rel=1e-6)
    gaps = [certificate.gap for certificate in found]
    assert gaps == sorted(gaps, reverse=True)


def test_newton_rows_without_weight_alone_are_no_failure() -> None:
    solver, problem = Newton(), problem_of(SquaredHinge())
    state, block = solver.start(problem), whole()
    block.s[:] = 0.0
    solver.visit(state, block)
    certificate = solver.finish(state)
    assert certificate.primal == 0.0
    assert certificate.gap == 0.0


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


@each_value(("loss", ["hinge", "squared_hinge"]), ("lam", [1e-4, 1e-6]))
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


@each_value(("C", [1e-3, 1.0, 100.0]), ("rows", ["copies", "zeros"]))
def test_newton_optimum_of_zero_is_certified(rows: str, C: float) -> None:
    """Rows that both classes have: the dual point is at the bounds of the box, and its sum of rows is 0."""
    half = np.zeros((50, 3)) if rows == "zeros" else np.random.default_rng(0).normal(size=(50, 3))
    y = np.repeat([0, 1], 50)
    found = StreamSVC(C, loss="hinge", solver="newton", max_passes=10).fit(np.concatenate([half, half]), y)
    assert found.gap_ <= 1e-3
    assert abs(found.primal_ - 100 * C) <= 1e-3 * 100 * C


# -- the sample ----------------------------------------------------------------------------------------------------------


@each_value(("sparse", [False, True]), ("dtype", [np.float32, np.float64]))
def test_row_sample_rows_whose_kernel_values_are_made_again_are_kept_as_they_are_stored(
    sparse: bool, dtype: Any
) -> None:
    """They are those of a sample that keeps kernel values, in an eighth of the memory, also after a checkpoint."""
    rng, kernel, limit = np.random.default_rng(3), RBF(0.3), 150
    points, W = points_of(rng.normal(size=(80, 3)), dtype), rng.normal(size=(80, 30)).astype(dtype)
    remade, whole, ones = PrioritySampler(limit), PrioritySampler(limit), np.ones(200, np.float32)
    for start in (0, 200):
        stored, scores = rng.normal(size=(200, 3)).astype(np.float32), rng.random(200)
        rows: Any = csr_of(stored) if sparse else Dense(stored)
        values = np.empty((200, 80), dtype)
        kernel_block(rows, points, kernel, values)
        origin = LazyRows(rows, points, kernel, W, 1.0, by_differences=False)
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


# -- steps with the second derivatives of all rows -----------------------------------------------------------------------


MANY = 6000


def drawn(seed: int, sparse: bool) -> tuple[Any, Any, Any]:
    """Rows of columns of several scales, one of them rare; two classes; weights with 0 among them."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(MANY, 8)) * 10.0 ** rng.uniform(-1, 1, 8)).astype(np.float32)
    X[:, 3] = 30.0 * (rng.random(MANY) < 0.005)
    score = X @ rng.normal(size=8)
    y = np.where(score + score.std() * rng.normal(size=MANY) > 0.0, 1.0, -1.0).astype(np.float32)
    if not sparse:
        return Dense(X, 1.0), y, rng.choice([0.0, 0.5, 1.0, 3.0], MANY).astype(np.float32)
    X[rng.random(X.shape) < 0.5] = 0.0
    stored = sp.csr_matrix(X)
    rows = CSR(stored.data, stored.indices.astype(np.int32), stored.indptr.astype(np.int64), 1.0)
    return rows, y, rng.choice([0.0, 0.5, 1.0, 3.0], MANY).astype(np.float32)


def logistic_problem(C: float, tolerance: float) -> Problem:
    return Problem(Logistic(), C, MANY, 8, OneAgainstRest(1), 1.0, tolerance=tolerance)


@each_value(("C", [1e-3, 1.0, 100.0]), ("sparse", [False, True]))
def test_exact_newton_steps_close_the_gap_in_few_readings(C: float, sparse: bool) -> None:
    X, y, s = drawn(int(1000 * C), sparse)
    _, _, best = solve(Newton(), logistic_problem(C, 1e-11), X, y, s, passes=30)
    state, _, found = solve(Newton(sample=1500), logistic_problem(C, 1e-9), X, y, s, passes=30)
    assert best[-1].gap <= 1e-11
    assert state.all_rows is None
    assert state.hessian_steps is not None
    assert found[-1].gap <= 1e-9
    assert len(found) <= 9
    assert all(one.dual <= best[-1].primal * (1.0 + 1e-12) for one in found)
    assert all(one.primal >= best[-1].dual * (1.0 - 1e-12) for one in found)


def test_exact_newton_steps_recover_after_a_shortened_step() -> None:
    """Of rare columns a small sample has few rows: steps made of what bent before had to be cut again and again, 17 readings."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(MANY, 8)).astype(np.float32)
    for column, share in ((5, 0.01), (6, 0.005), (7, 0.002)):
        X[:, column] = 10.0 * (rng.random(MANY) < share)
    score = X[:, :5] @ rng.normal(size=5) - 0.15 * X[:, 7] + 0.1 * X[:, 6]
    y = np.where(score + score.std() * rng.normal(size=MANY) > 0.0, 1.0, -1.0).astype(np.float32)
    solver, s = Newton(sample=600), np.ones(MANY, np.float32)
    _, _, found = solve(solver, logistic_problem(100.0, 1e-3), Dense(X, 1.0), y, s, passes=20)
    assert found[-1].gap <= 1e-3
    assert len(found) <= 9


# -- the logistic loss ---------------------------------------------------------------------------------------------------


def certified(X: Any, codes: Any, s: Any, tolerance: float, **options: Any) -> tuple[Certificate, Any]:
    """The last certificate of a fit with C = 1, and the weights."""
    store = MemoryStore(chunk_bytes=20_000)
    store.append(CSR(X.data, X.indices.astype(np.int32), X.indptr.astype(np.int64)), codes, s)
    store.commit(("-1", "1"), X.shape[1])
    settings: dict[str, Any] = {"loss": "logistic", "C": 1.0, "tolerance": tolerance, "max_passes": 400}
    result = fit_in_memory(FitJob("memory", "model", solver="newton", options=options, **settings), store)
    certificate = result.training.runs[0].certificate
    assert certificate is not None
    return certificate, result.model.weights[0]


def test_logistic_sample_leads_newton_to_the_optimum_of_all_rows() -> None:
    """Where rows do not fit, and beyond 1,500 sparse columns: the model is solved by conjugate gradients."""
    rng, rows, columns = np.random.default_rng(3), 4000, 1600
    X = sp.random(rows, columns, density=0.01, format="csr", random_state=3, dtype=np.float32)
    score = X @ rng.normal(size=columns)
    codes = (score + score.std() * rng.normal(size=rows) > 0.0).astype(np.int32)
    s = rng.choice([0.0, 0.5, 1.0, 3.0], rows).astype(np.float32)
    best, _ = certified(X, codes, s, 1e-8)
    found, w = certified(X, codes, s, 1e-3, sample=rows // 2)
    assert best.gap <= 1e-8
    assert "rows" not in found.facts  # a sample it was: nothing was solved with all rows in memory
    assert found.gap <= 1e-3
    assert found.dual <= best.primal * (1.0 + 1e-12)
    assert best.dual * (1.0 - 1e-12) <= found.primal
    m = (2.0 * codes - 1.0) * (X.astype(np.float64) @ w[:-1] + w[-1])
    primal = 0.5 * w @ w + s.astype(np.float64) @ np.logaddexp(0.0, -m)
    assert found.primal == pytest.approx(primal, rel=1e-11)


@pytest.mark.parametrize("kernel", [{}, {"kernel": "rbf", "gamma": 0.5, "landmarks": 30}])
def test_logistic_auto_solves_and_decision_values_are_log_odds(tmp_path: Path, kernel: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3)).astype(np.float32)
    odds = 1.5 * X[:, 0] - X[:, 1]
    codes = (rng.random(4000) < 1.0 / (1.0 + np.exp(-odds))).astype(np.int32)
    writer = create(tmp_path / "s", sparse=False)
    writer.append(Dense(X), codes, None)
    writer.commit(("no", "yes"), 3, {"names": None})
    result = fit(FitJob(str(tmp_path / "s"), str(tmp_path / "m"), loss="logistic", C=1.0, **kernel))
    assert result.plan.solver_name == "newton"
    certificate = result.training.runs[0].certificate
    assert certificate is not None
    assert certificate.gap <= 1e-3
    decision = result.model.decision(Dense(X))[:, 0]
    near = np.abs(odds) < 2.0
    assert np.abs(decision - odds)[near].mean() < 0.25
