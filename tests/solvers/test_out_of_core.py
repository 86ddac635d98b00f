"""Second order where rows do not fit and columns are many: the model and the dual bound against slow ones, a fit, a resumed state."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from streamsvm.engine.checkpoint import Decoder, Encoder
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.options import SynthJob
from streamsvm.jobs.synth import synth
from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.solvers.evaluation import PointEvaluation, PointSums
from streamsvm.solvers.newton.all_rows import AllRows
from streamsvm.solvers.newton.out_of_core import Reading, SampledSteps, start_sampled_steps
from streamsvm.solvers.newton.sample import PrioritySampler, Sample
from streamsvm.solvers.newton.solver import Newton, NewtonState
from streamsvm.store import open_store
from streamsvm.types import Block, Problem
from tests.arrays import csr_of

ROWS, COLUMNS, BLOCK = 3_000, 1_600, 500
LOSSES = [SquaredHinge(), Hinge(), Huber(0.3)]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


@lru_cache
def table() -> tuple[Any, Any]:
    """Two columns of numbers, one of them large, and three one-hot variables, most of whose levels are rare; labels."""
    rng = np.random.default_rng(3)
    values, score = np.zeros((ROWS, COLUMNS), np.float32), np.zeros(ROWS)
    numbers = rng.lognormal(size=(ROWS, 2))
    values[:, :2], score = numbers * [1.0, 1e4], score + numbers[:, 0]
    for first, levels in ((2, 20), (22, 300), (322, COLUMNS - 322)):
        level = np.minimum(rng.zipf(1.4, ROWS) - 1, levels - 1)
        values[np.arange(ROWS), first + level] = 1.0
        score += rng.normal(size=levels)[level]
    return values, np.where(score + rng.logistic(size=ROWS) > np.quantile(score, 0.7), 1, -1).astype(np.float32)


def blocks() -> list[Block]:
    values, y = table()
    ones = np.ones(BLOCK, np.float32)
    return [
        Block(csr_of(values[k : k + BLOCK], 1.0), y[k : k + BLOCK], ones, k, k, np.arange(BLOCK, dtype=np.int32), 0)
        for k in range(0, ROWS, BLOCK)
    ]


def problem_of(loss: Any, tolerance: float = 1e-3) -> Problem:
    return Problem(loss, 1.0, ROWS, COLUMNS, 1, tolerance=tolerance, nonzeros=int(np.count_nonzero(table()[0])))


def explicit_primal(w: Any, loss: Any) -> float:
    values, y = table()
    return float(0.5 * w @ w + sum(map(loss.value, y * (scipy.sparse.csr_matrix(values) @ w[:-1] + w[-1]))))


def optimum(loss: Any) -> AllRows:
    """All rows in memory, to 1e-7."""
    return _optimum(type(loss).__name__, loss)  # records of equal numbers are equal


@lru_cache
def _optimum(_kind: str, loss: Any) -> AllRows:
    values, y = table()
    ones, n = np.ones(ROWS, np.float32), np.arange(ROWS)
    sample = Sample(csr_of(values, 1.0), y, ones, np.ones(ROWS), np.zeros(ROWS), n, complete=True)
    rows = AllRows(problem_of(loss, 1e-7), sample, np.zeros(COLUMNS + 1), np.zeros(COLUMNS + 1))
    for _ in range(20):
        rows.advance(np.inf)
    assert rows.solved
    return rows


def one_pass(solver: Newton, state: NewtonState) -> Any:
    for block in blocks():
        solver.visit(state, block)
    return solver.finish(state)


def reading_at(loss: Any, w: Any, mu: float, limit: int) -> tuple[Reading, Any]:
    """What a reading at w finds, with a sample of so many rows; and the rounded loss."""
    smooth = Huber(mu) if mu else loss
    problem, sums, sampler = problem_of(loss), PointSums(COLUMNS + 1), PrioritySampler(limit, 1)
    rng = np.random.default_rng(8)
    for block in blocks():
        sampler.add(block, sums.add(problem, smooth, block, w), rng.random(BLOCK) + 0.1)
    found, sample = sums.close(problem, w), sampler.sample()
    assert sample is not None
    squares = np.append(np.square(table()[0]).sum(axis=0), ROWS).astype(np.float64)
    return Reading(found, sample, w, mu, squares, found.primal, found.dual, np.inf), smooth


@each_loss
@pytest.mark.parametrize("moved", [False, True])
def test_newton_out_of_core_model_has_the_gradient_of_the_whole_at_its_center_wherever_its_rows_were_met(
    loss: Any, moved: bool
) -> None:
    w = 1e-3 * np.random.default_rng(0).normal(size=COLUMNS + 1)
    w[1] = 0.0
    here, smooth = reading_at(loss, w, 0.0 if loss.smooth() else 0.2, 600)
    steps = start_sampled_steps(problem_of(loss), here.found, here.sample, w, here.mu)
    met = reading_at(loss, 2.0 * w, here.mu, 500)[0] if moved else here
    model = steps._model(met)
    gradient = model.gradient(model.values_at(smooth, w), w)
    np.testing.assert_allclose(gradient, here.found.gradient, atol=1e-6 * np.abs(here.found.gradient).max())


@each_loss
def test_the_dual_bound_of_a_sample_is_below_the_optimum_and_far_above_that_of_the_slopes(loss: Any) -> None:
    best = optimum(loss)
    w = best.best * (1.0 + 0.02 * np.random.default_rng(1).normal(size=COLUMNS + 1))
    w[1] = best.best[1]
    here = reading_at(loss, w, 0.0 if loss.smooth() else 1e-3, 600)[0]
    steps = start_sampled_steps(problem_of(loss), here.found, here.sample, w, here.mu)
    steps.promised = 0.0
    found = steps.dual(here._replace(found=here.found._replace(smoothing=0.0)))
    assert found <= best.primal * (1 + 1e-9)
    assert best.primal - found < 0.2 * (best.primal - here.found.dual)


def test_newton_out_of_core_step_that_made_things_worse_is_taken_back() -> None:
    here = reading_at(SquaredHinge(), np.zeros(COLUMNS + 1), 0.0, 600)[0]
    steps = start_sampled_steps(problem_of(SquaredHinge()), here.found, here.sample, here.point, 0.0)
    point, _ = steps.next_point(here, 0.24)
    before, damping = steps.center, steps.damping
    worse: PointEvaluation = here.found._replace(value=here.found.value * 1.1)
    assert not steps.accept(worse, point, 0.0)
    assert steps.center is before
    assert steps.damping > damping
    good = here.found._replace(value=steps.reference - 0.95 * steps.promised)
    assert steps.accept(good, point, 0.0)
    assert steps.center is point


@each_loss
def test_a_sample_of_a_fifth_certifies(loss: Any) -> None:
    solver, best = Newton(ROWS // 5), optimum(loss)
    state = solver.start(problem_of(loss))
    for _ in range(30):
        found = one_pass(solver, state)
        assert found.dual <= best.primal * (1 + 1e-9)
        if found.gap <= 1e-3:
            break
    assert found.gap <= 1e-3
    assert isinstance(state.steps, SampledSteps)
    assert found.primal == pytest.approx(explicit_primal(solver.solution(state).w, loss), rel=1e-9)


@each_loss
def test_newton_out_of_core_what_is_saved_between_readings_and_what_workers_share_go_on_to_the_same(loss: Any) -> None:
    solver, problem = Newton(ROWS // 5), problem_of(loss)
    straight, saved, shared = solver.start(problem), solver.start(problem), solver.start(problem)
    for _ in range(4):
        found, copies = one_pass(solver, straight), [deepcopy(shared), deepcopy(shared)]
        for k, block in enumerate(blocks()):
            solver.visit(saved, block)
            solver.visit(copies[k % 2], block)
            if k == 2:
                encoder = Encoder()
                tree = encoder.encode(saved)
                saved = Decoder(encoder.tensors.__getitem__).decode(tree)
        again, shared = solver.finish(saved), solver.merge(copies)
        joined = solver.finish(shared)
        assert (again.primal, again.dual) == (found.primal, found.dual)
        assert joined.primal == pytest.approx(found.primal, rel=1e-6)
    np.testing.assert_array_equal(straight.point, saved.point)


# -- through a fit -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide") / "t.zarr"
    synth(SynthJob("table", str(path), rows=20_000, columns=2_000, chunk_bytes=1 << 17))
    return path


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_newton_out_of_core_auto_takes_a_sample_as_large_as_fits_and_certifies(
    loss: str, store: Path, tmp_path: Path
) -> None:
    job = FitJob(str(store), str(tmp_path / "m"), loss=loss, memory=4 << 30, threads=1)  # else threads are given up
    ample = {term.name: term.nbytes for term in make_plan(job, open_store(store)).memory.terms}
    limit = sum(ample.values()) - ample.get("all rows", 0) - ample["solver"] // 3
    job = replace(job, memory=limit)
    plan = make_plan(job, open_store(store))
    assert plan.solver_name == "newton"
    assert plan.memory.total <= plan.memory.limit
    assert isinstance(plan.solver, Newton)
    assert 0 < (plan.solver.sample or 0) < 20_000
    found = fit(job)
    certificate = found.training.runs[0].certificate
    assert certificate is not None
    assert (
        certificate.primal - certificate.dual <= 1e-3 * certificate.primal
    )  # what rounding may add is not of the solver
    assert found.training.passes <= 25
