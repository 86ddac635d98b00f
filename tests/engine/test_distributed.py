"""What the loop over groups promises, without a cluster: which bits, counted once, certified, resumable."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.engine import loop, progress, time_limit
from streamsvm.engine.executor import Joins, SerialExecutor, Task, ignore_progress
from streamsvm.engine.partition import contiguous_groups, round_robin_groups
from streamsvm.engine.row_state import GroupStateFiles, Versions
from streamsvm.errors import ClusterError, DataError, InterruptedRun
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.validate import open_training_store
from streamsvm.model import load
from streamsvm.rows import Dense
from streamsvm.store import open_store
from streamsvm.types import Layout, RowState, silent
from tests.engine.conftest import rows_of


class Fails(SerialExecutor):
    """Loses the cluster in one of its rounds."""

    def __init__(self, after: int) -> None:
        self.left = after

    def share(self, value: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ClusterError("the scheduler is gone", hint="start it")
        return value


SMALL: dict[str, dict[str, Any]] = {"dcd": {}, "newton": {"sample": 500}}
"""A sample of some rows only, so that the model of one round is worth having in the next."""


def job_of(store: Path, model: Path, solver: str, **more: Any) -> FitJob:
    loss = "hinge" if solver == "sgd" else "squared_hinge"
    return FitJob(str(store), str(model), solver=solver, loss=loss, C=0.05, **more)


def layout_of(chunks: list[int]) -> Layout:
    return Layout(1000, tuple(chunks), None, ("a", "b"), (1, 1))


@given(st.lists(st.integers(1, 9999), min_size=1, max_size=40), st.integers(1, 50))
def test_groups_have_every_chunk_once(chunks: list[int], count: int) -> None:
    layout = layout_of(chunks)
    for groups in (contiguous_groups(layout, count), contiguous_groups(layout), round_robin_groups(layout, count)):
        assert sorted(c for g in groups for c in g.chunks) == list(range(len(chunks)))
        assert all(g.chunks for g in groups)
        assert [g.number for g in groups] == list(range(len(groups)))
        assert sum(g.rows for g in groups) == sum(chunks)
        starts = np.cumsum([0, *chunks])
        assert all(start == starts[c] for g in groups for c, start in zip(g.chunks, g.starts, strict=True))


KINDS: dict[str, dict[str, Any]] = {
    "newton": {"solver": "newton"},
    "blended": {"solver": "blended", "kernel": "rbf", "gamma": 0.1, "max_passes": 4},
    "nystrom": {"solver": "newton", "kernel": "rbf", "landmarks": 30, "embedding": "fly", "max_passes": 4},
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_group_is_the_run_without_a_cluster_to_the_last_bit(
    store: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several are the same run up to rounding: sums are taken group by group."""
    monkeypatch.setattr("streamsvm.schedule.budget.MAX_CACHED_BYTES", 0)
    alone = fit(job_of(store, tmp_path / "alone", **KINDS[kind])).model
    for groups in (1, 5):
        spread = fit(
            job_of(store, tmp_path / f"{groups}", groups=groups, **KINDS[kind]), executor=SerialExecutor()
        ).model
        if groups == 1:
            np.testing.assert_array_equal(spread.weights, alone.weights)
        X = Dense(rows_of(6_000)[0])
        np.testing.assert_allclose(spread.decision(X), alone.decision(X), atol=1e-4)


@pytest.mark.parametrize("solver", ["dcd", "sgd", "blended"])
def test_groups_every_solver_that_joins_certifies(store: Path, tmp_path: Path, solver: str) -> None:
    result = fit(
        job_of(store, tmp_path / "m", solver, tolerance=0.05, groups=3, max_passes=60), executor=SerialExecutor()
    )
    certificate = result.training.runs[0].certificate
    assert certificate is not None
    assert certificate.exact
    assert certificate.gap <= 0.05


def test_groups_dual_variables_of_all_groups_prove_the_certificate(store: Path, tmp_path: Path) -> None:
    """P and D recomputed from the model and the variables on disk, in plain numpy."""
    job = job_of(store, tmp_path / "m", "dcd", groups=3, dual=str(tmp_path / "a.npy"), tolerance=1e-2)
    result = fit(job, executor=SerialExecutor())
    X, codes = rows_of(6_000)
    Z = np.hstack([X.astype(np.float64), np.ones((len(X), 1))]) * (2.0 * codes - 1.0)[:, None]
    a, C, certificate = np.load(tmp_path / "a.npy"), 0.05, result.training.runs[0].certificate
    assert certificate is not None
    v = a @ Z
    assert (a >= 0).all()
    assert certificate.dual == pytest.approx(a.sum() - (a @ a) / (4 * C) - 0.5 * v @ v, rel=1e-9)
    w = result.model.weights[0]
    slack = np.maximum(0.0, 1.0 - Z @ w)
    assert certificate.primal == pytest.approx(0.5 * w @ w + C * slack @ slack, rel=1e-6)
    assert certificate.gap <= 1e-2


def test_groups_bound_of_kernel_features_is_that_of_the_dual_variables(store: Path, tmp_path: Path) -> None:
    """The slopes at the weights prove less: the file of the model shows which it was."""
    features: dict[str, Any] = {"kernel": "rbf", "gamma": 0.1, "landmarks": 30, "embedding": "disk"}
    job = FitJob(str(store), str(tmp_path / "a"), solver="newton", tolerance=0.02, **features)
    fit(job)
    fit(replace(job, model=str(tmp_path / "b")), executor=SerialExecutor())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(("solver", "passes"), [("dcd", 6), ("newton", 5)])
def test_groups_resume_after_a_lost_cluster(store: Path, tmp_path: Path, solver: str, passes: int) -> None:
    """Killed in round 3, resumed: the same bits as without; what is on disk between the rounds and all."""
    job = job_of(store, tmp_path / "m", solver, groups=2, tolerance=1e-9, max_passes=passes, options=SMALL[solver])
    whole = fit(replace(job, model=str(tmp_path / "whole")), executor=SerialExecutor())
    with pytest.raises(ClusterError, match="gone") as caught:
        fit(job, executor=Fails(4))
    assert "--resume" in caught.value.hint
    again = fit(replace(job, resume=True), executor=SerialExecutor())
    np.testing.assert_array_equal(again.model.weights, whole.model.weights)
    assert again.training.passes == whole.training.passes == passes


HELD: dict[str, Any] = {"validation": 0.2, "patience": 3, "tolerance": 1e-12, "max_passes": 30, "C": (1e-4, 0.05)}


@pytest.mark.parametrize("solver", ["dcd", "newton"])
def test_groups_error_on_held_out_rows_is_that_of_the_model(store: Path, tmp_path: Path, solver: str) -> None:
    job = replace(job_of(store, tmp_path / "m", solver, groups=3), **HELD)
    said = fit(job, executor=SerialExecutor()).model.provenance["validation"]
    _, held = open_training_store(job)
    X, codes = rows_of(6_000)
    starts = np.cumsum([0, *open_store(store).layout.chunks])
    rows = np.concatenate([np.arange(starts[c], starts[c + 1]) for c in held.selection])
    model = load(tmp_path / "m")
    wrong = model.codes(model.decision(Dense(np.ascontiguousarray(X[rows])))) != codes[rows]
    assert said["error"] == pytest.approx(wrong.mean(), abs=1e-12)


@pytest.mark.parametrize("after", [4, 5])
def test_groups_cluster_lost_between_pass_and_look_is_gone_on_from(store: Path, tmp_path: Path, after: int) -> None:
    job = replace(job_of(store, tmp_path / "m", "dcd", groups=2), **HELD)
    whole = fit(replace(job, model=str(tmp_path / "whole")), executor=SerialExecutor())
    with pytest.raises(ClusterError, match="gone") as caught:
        fit(job, executor=Fails(after))
    assert "--resume" in caught.value.hint
    again = fit(replace(job, resume=True), executor=SerialExecutor())
    np.testing.assert_array_equal(again.model.weights, whole.model.weights)
    assert again.model.provenance["validation"] == whole.model.provenance["validation"]


class Twice(SerialExecutor):
    """Does every task twice, as a cluster may that takes a worker for lost."""

    def map(self, task: Task, parts: Any, shared: Any = (), tell: Any = ignore_progress) -> Any:
        for part in parts:
            task.function(part, *shared)
            yield task.function(part, *shared)

    def reduce(self, task: Task, parts: Any, joins: Joins, shared: Any, tell: Any) -> Any:
        def twice(call: Any) -> Any:
            return call and (lambda *given: (call(*given), call(*given))[1])

        return super().reduce(task, parts, Joins(twice(joins.join), twice(joins.finish)), shared, tell)


@pytest.mark.parametrize("solver", ["dcd", "newton", "blended"])
def test_groups_count_a_task_that_runs_twice_once(store: Path, tmp_path: Path, solver: str) -> None:
    more: dict[str, Any] = {"groups": 3, "tolerance": 1e-9, "max_passes": 5, "options": SMALL.get(solver, {})}
    once = fit(job_of(store, tmp_path / "once", solver, **more), executor=SerialExecutor())
    twice = fit(job_of(store, tmp_path / "twice", solver, **more), executor=Twice())
    certificates = [found.training.runs[0].certificate for found in (once, twice)]
    assert len({(c.primal, c.dual) for c in certificates if c is not None}) == 1
    np.testing.assert_array_equal(twice.model.weights, once.model.weights)


class Strangers(SerialExecutor):
    """Does every task where nothing is known of any other, as on a worker each."""

    def map(self, task: Task, parts: Any, shared: Any = (), tell: Any = ignore_progress) -> Any:
        return (task.function(part, *pickle.loads(pickle.dumps(shared))) for part in parts)


def test_groups_what_tasks_learn_from_each_other_changes_no_bit(store: Path, tmp_path: Path) -> None:
    job = job_of(store, tmp_path / "a", "newton", groups=6, tolerance=1e-9, max_passes=4, options={"sample": 500})
    together = fit(job, executor=SerialExecutor()).model.weights
    apart = fit(replace(job, model=str(tmp_path / "b")), executor=Strangers()).model.weights
    np.testing.assert_array_equal(apart, together)


def test_groups_damaged_version_is_noticed(tmp_path: Path) -> None:
    car, group = GroupStateFiles(tmp_path, RowState("alpha", "float64"), 1), round_robin_groups(layout_of([10]), 1)[0]
    car.save(group, 1, np.ones((1, 10)), ())
    raw = bytearray((tmp_path / car.name(group, 1)).read_bytes())
    raw[5] ^= 1
    (tmp_path / car.name(group, 1)).write_bytes(raw)
    with pytest.raises(DataError, match="missing or damaged"):
        car.load(group, 1)


def test_groups_checkpoint_keeps_its_version() -> None:
    versions = Versions()
    versions.advance()
    kept = versions.checkpoint()
    for _ in range(4):
        versions.advance()
        assert kept["version"] not in versions.drop()
    versions.restore(kept)
    assert versions.version == 1


class Threads(SerialExecutor):
    """Three at once, as a scheduler might say."""

    threads = 3


class Slow(SerialExecutor):
    """Every round takes its time, by the clock that a training looks at; that of the machine may stand for others meanwhile."""

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.rounds = seconds, 0
        for looks in (loop, progress):
            monkeypatch.setattr(looks, "time", self)

    def perf_counter(self) -> float:
        return self.seconds * self.rounds

    def map(self, task: Any, parts: Any, shared: Any = (), on_progress: Any = ignore_progress) -> Any:
        self.rounds += 1
        yield from super().map(task, parts, shared, on_progress)


def test_groups_time_limit_leaves_room_for_the_round_that_certifies(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of 600 s in 2000 s: two that train and one that certifies, instead of one or two more."""
    executor = Slow(600.0, monkeypatch)
    result = fit(job_of(store, tmp_path / "m", "dcd", tolerance=0.0, time_limit=2000.0), executor=executor)
    assert result.training.status.value == "time limit"
    assert 2 <= executor.rounds <= 3


@pytest.mark.parametrize("executor", [SerialExecutor(), None], ids=["groups", "chunks"])
def test_groups_time_limit_that_is_over_ends_a_pass_where_no_alarm_is_heard(
    store: Path, tmp_path: Path, executor: SerialExecutor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job in a thread of a program, or in a task: nobody sends it a signal, and between passes is too late."""
    monkeypatch.setattr(time_limit, "finishing_seconds", lambda limit: -limit - 1.0)
    job = job_of(store, tmp_path / "m", "dcd", tolerance=1e-9, max_passes=2, time_limit=1000.0)
    with ThreadPoolExecutor(1) as thread, pytest.raises(InterruptedRun, match=r"time limit: checkpoint .* epoch 1,"):
        thread.submit(fit, job, silent, executor).result()
    monkeypatch.undo()
    assert fit(replace(job, resume=True), executor=executor).training.passes == 2


def test_groups_resumed_run_has_the_groups_of_the_first_one(store: Path, tmp_path: Path) -> None:
    """More workers are there by then, or fewer."""
    job = job_of(store, tmp_path / "m", "dcd", tolerance=1e-9, max_passes=4)
    with pytest.raises(ClusterError):
        fit(job, executor=Fails(4))
    again = fit(replace(job, resume=True), executor=Threads())
    assert again.model.provenance["settings"]["groups"] == 2
