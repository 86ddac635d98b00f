"""Newton's method where rows do not fit in memory, or features are made on the fly: the optimum, resumed states, and the same bits."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import streamsvm as sv
from streamsvm.engine.checkpoint import Decoder, Encoder
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.synth import synth
from streamsvm.losses import Hinge, Huber, SquaredHinge
from streamsvm.solvers.newton.in_memory import AllRows
from streamsvm.solvers.newton.priority_sampling import Sample
from streamsvm.solvers.newton.sampled_steps import SampledSteps
from streamsvm.solvers.newton.solver import Newton, NewtonState
from streamsvm.store import open_store
from streamsvm.types import Block, Problem
from tests.arrays import csr_of
from tests.solvers.problems import kind_of

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
    return Problem(
        loss, 1.0, ROWS, COLUMNS, kind_of(loss), tolerance=tolerance, nonzeros=int(np.count_nonzero(table()[0]))
    )


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


@each_loss
def test_newton_out_of_core_certifies_with_a_fifth_of_the_rows(loss: Any) -> None:
    solver, best = Newton(ROWS // 5), optimum(loss)
    state = solver.start(problem_of(loss))
    for _ in range(30):
        found = one_pass(solver, state)
        assert found.dual <= best.primal * (1 + 1e-9)
        if found.gap <= 1e-3:
            break
    assert found.gap <= 1e-3
    assert isinstance(state.sampled_steps, SampledSteps)
    assert found.primal == pytest.approx(explicit_primal(solver.solution(state).w, loss), rel=1e-9)


@each_loss
def test_newton_out_of_core_resumed_and_joined_states_go_on_to_the_same(loss: Any) -> None:
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


@pytest.fixture(scope="module")
def wide_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide") / "t.zarr"
    synth(SynthJob("table", str(path), rows=20_000, columns=2_000, chunk_bytes=1 << 17))
    return path


def test_newton_out_of_core_auto_takes_a_sample_as_large_as_fits_and_certifies(
    wide_store: Path, tmp_path: Path
) -> None:
    job = FitJob(
        str(wide_store), str(tmp_path / "m"), loss="hinge", memory=4 << 30, threads=1
    )  # else threads are given up
    ample = {term.name: term.nbytes for term in make_plan(job, open_store(wide_store)).memory.terms}
    limit = sum(ample.values()) - ample.get("all rows", 0) - ample["solver"] // 3
    job = replace(job, memory=limit)
    plan = make_plan(job, open_store(wide_store))
    assert plan.solver_name == "newton"
    assert plan.memory.total <= plan.memory.limit
    assert isinstance(plan.solver, Newton)
    assert 0 < (plan.solver.sample or 0) < 20_000
    found = fit(job)
    certificate = found.training.runs[0].certificate
    assert certificate is not None
    # what rounding may add is not of the solver
    assert certificate.primal - certificate.dual <= 1e-3 * certificate.primal
    assert found.training.passes <= 25


# -- features made on the fly: none are at w = 0, and classes have one copy of their rows --------------------------------


LANDMARKS: dict[str, Any] = {"kernel": "rbf", "gamma": 0.3, "landmarks": 60, "embedding": "fly", "solver": "newton"}
FORMS: dict[str, dict[str, Any]] = {
    "hinge": {"loss": "hinge"},
    "all rows": {"options": {}},
    "several values of C": {"C": [0.1, 1.0]},
    "pairs": {"y": "classes", "multi_class": "ovo"},
    "weights": {"y": "weighted", "class_weight": "balanced"},
    "numbers": {"y": "numbers", "loss": "epsilon_insensitive"},
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place, numbers = tmp_path_factory.mktemp("stores"), np.random.default_rng(4)
    X = numbers.normal(size=(900, 4)).astype(np.float32)
    plain = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * numbers.normal(size=len(X))
    two, classes = (plain > 0).astype(int), np.digitize(plain, [-0.7, 0.4])
    made: dict[str, tuple[Any, dict[str, Any]]] = {
        "two": (two, {}),
        "classes": (classes, {}),
        "weighted": (two, {"weight": numbers.integers(1, 4, len(X)).astype(float)}),
        "numbers": (plain, {"task": "regression"}),
    }
    for name, (y, more) in made.items():
        sv.ingest(X, str(place / name), y=y, chunk=4096, **more)
    return {name: str(place / name) for name in made}


def _fitted(
    stores: dict[str, str], asked: dict[str, Any], model: Path
) -> tuple[list[tuple[int, float, float]], list[bytes]]:
    """The number of each pass with P and D after it, of every problem, and the models."""
    seen: list[tuple[int, float, float]] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "pass":
            seen.append((int(event["pass"]), float(event["primal"]), float(event["dual"])))

    more = {"options": {"sample": 300}} | {name: value for name, value in asked.items() if name != "y"}
    sv.fit(stores[asked.get("y", "two")], str(model), on_event=note, overwrite=True, **LANDMARKS, **more)
    return seen, [
        path.read_bytes() for path in sorted(model.parent.rglob("m*")) if path.suffix != ".json" and path.is_file()
    ]


@pytest.mark.parametrize("form", FORMS)
def test_newton_without_features_at_zero_goes_the_same_way(
    form: str, stores: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without, model = _fitted(stores, FORMS[form], tmp_path / "m")
    monkeypatch.setattr(Newton, "needs_features", lambda *_: True)
    those, same = _fitted(stores, FORMS[form], tmp_path / "m")
    assert model == same
    assert [found[:2] for found in without] == [found[:2] for found in those]
    assert [found for found in without if found[0] > 1] == [found for found in those if found[0] > 1]
    assert {dual for number, _, dual in without if number == 1} == {0.0}, "that of no row"


def fitted(store: str, model: Path, **more: Any) -> FitResult:
    """Several groups of rows are gathered."""
    settings = LANDMARKS | {"C": 0.1, "tolerance": 1e-9, "max_passes": 6} | more
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvm.engine.partition.PASS_GROUP_BYTES", 8_000)
        return fit(FitJob(store, str(model), **settings))


def arrays(result: FitResult) -> list[Any]:
    states: list[Any] = [run.state for run in result.training.runs]
    found = [state.all_rows.sample if state.all_rows else state.trust_region.model.sample for state in states]
    assert all(sample.complete for sample in found)
    return [sample.X.values for sample in found]


@pytest.mark.parametrize("threads", [1, 3])
def test_newton_classes_share_the_rows_they_have_in_memory(
    threads: int, stores: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits are those of copies of their own."""
    shared = fitted(stores["classes"], tmp_path / "m", threads=threads)
    assert len({id(array) for array in arrays(shared)}) == 1
    monkeypatch.setattr(Newton, "share_between_problems", lambda *_: None)
    alone = fitted(stores["classes"], tmp_path / "n", threads=threads)
    assert len({id(array) for array in arrays(alone)}) == 3
    np.testing.assert_array_equal(shared.model.weights, alone.model.weights)
    assert [run.certificate for run in shared.training.runs] == [run.certificate for run in alone.training.runs]
