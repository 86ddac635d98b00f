"""What the loop over groups promises, without a cluster: which bits, counted once, certified, resumable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.errors import ClusterError, DataError, UsageError
from streamsvm.jobs.fit import fit
from streamsvm.jobs.planning import FitJob, make_plan
from streamsvm.jobs.spread.copies import Zeros, packed, unpacked
from streamsvm.jobs.spread.executor import Here, executor_for
from streamsvm.jobs.spread.groups import dealt, folded, neighbours
from streamsvm.jobs.spread.sidecar import GroupRows, Sidecar
from streamsvm.jobs.training import Course, Trainer
from streamsvm.store import open_store
from streamsvm.types import Layout, RowState, Stop
from tests.cluster.conftest import rows_of


class Fails(Here):
    """Loses the cluster in one of its rounds."""

    def __init__(self, after: int) -> None:
        self.left = after

    def share(self, value: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ClusterError("the scheduler is gone", hint="start it")
        return value


def job_of(store: Path, model: Path, solver: str, **more: Any) -> FitJob:
    loss = "hinge" if solver == "sgd" else "squared_hinge"
    return FitJob(str(store), str(model), solver=solver, loss=loss, C=0.05, **more)


def layout_of(chunks: list[int]) -> Layout:
    return Layout(1000, tuple(chunks), None, ("a", "b"), (1, 1))


@given(st.lists(st.integers(1, 9999), min_size=1, max_size=40), st.integers(1, 50))
def test_groups_have_every_chunk_once(chunks: list[int], count: int) -> None:
    layout = layout_of(chunks)
    for groups in (neighbours(layout, count), neighbours(layout), dealt(layout, count)):
        assert sorted(c for g in groups for c in g.chunks) == list(range(len(chunks)))
        assert all(g.chunks for g in groups)
        assert [g.number for g in groups] == list(range(len(groups)))
        assert sum(g.rows for g in groups) == sum(chunks)
        starts = np.cumsum([0, *chunks])
        assert all(start == starts[c] for g in groups for c, start in zip(g.chunks, g.starts, strict=True))


@given(st.integers(1, 40))
def test_joining_keeps_the_order_and_holds_few(count: int) -> None:
    held = most = 0

    def parts() -> Any:
        nonlocal held, most
        for k in range(count):
            held += 1
            most = max(most, held)
            yield (k,)

    def join(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
        nonlocal held
        held -= 1
        return one + other

    assert folded(parts(), count, join) == tuple(range(count))
    assert most <= count.bit_length() + 1


def test_a_packed_state_is_small_and_nobody_elses() -> None:
    state = {"w": np.zeros((50, 50)), "v": np.arange(100.0), "n": 3, "parts": [np.ones(3)]}
    sent = packed(state)
    assert sent["w"] == Zeros((50, 50), "<f8")
    got = unpacked(sent)
    np.testing.assert_array_equal(got["w"], state["w"])
    got["v"][:] = 0.0
    assert state["v"][7] == sent["v"][7] == 7.0


def test_one_group_is_the_run_without_a_cluster_to_the_last_bit(store: Path, tmp_path: Path) -> None:
    plan = make_plan(job_of(store, tmp_path / "a", "newton"), open_store(store))
    trainer = Trainer(open_store(store), plan.solver, plan.problems, plan.features, Course(), lambda event: None)
    alone = plan.solver.solution(trainer.train(Stop(20)).runs[0].state).w
    for groups in (1, 5):
        spread = fit(job_of(store, tmp_path / f"{groups}", "newton", groups=groups), executor=Here()).model.weights[0]
        if groups == 1:
            np.testing.assert_array_equal(spread, alone)
        np.testing.assert_allclose(spread, alone, rtol=1e-6)


@pytest.mark.parametrize("solver", ["dcd", "newton", "sgd", "assg", "blended"])
def test_every_solver_that_joins_certifies(store: Path, tmp_path: Path, solver: str) -> None:
    result = fit(job_of(store, tmp_path / "m", solver, tolerance=0.05, groups=3, max_passes=60), executor=Here())
    certificate = result.training.runs[0].certificate
    assert certificate is not None
    assert certificate.exact
    assert certificate.gap <= 0.05


@pytest.mark.parametrize("groups", [1, 3])
def test_the_dual_variables_of_all_groups_prove_the_certificate(store: Path, tmp_path: Path, groups: int) -> None:
    """P and D recomputed from the model and the variables on disk, in plain numpy."""
    job = job_of(store, tmp_path / "m", "dcd", groups=groups, dual=str(tmp_path / "a.npy"), tolerance=1e-2)
    result = fit(job, executor=Here())
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


def test_a_lost_cluster_is_gone_on_from(store: Path, tmp_path: Path) -> None:
    """Killed in round 3, resumed: the same bits as without; per-row state and all."""
    job = job_of(store, tmp_path / "m", "dcd", groups=2, tolerance=1e-5, max_passes=6)
    whole = fit(replace(job, model=str(tmp_path / "whole")), executor=Here())
    with pytest.raises(ClusterError, match="gone") as caught:
        fit(job, executor=Fails(4))
    assert "--resume" in caught.value.hint
    again = fit(replace(job, resume=True), executor=Here())
    np.testing.assert_array_equal(again.model.weights, whole.model.weights)
    assert again.training.passes == whole.training.passes


def test_a_version_that_is_written_twice_is_the_same(tmp_path: Path) -> None:
    layout = layout_of([10, 20])
    car = Sidecar(tmp_path, RowState("alpha", "float64"), 1)
    rows, group = GroupRows(car, layout, dealt(layout, 2)), dealt(layout, 2)[1]
    for version in (1, 2, 3):
        for _ in range(2):
            values = car.load(group, version - 1) + version
            car.save(group, version, values, rows.drop() if version > 1 else ())
        rows.advance()
    assert rows.load(1)[0, 0] == 6.0
    assert len(list(tmp_path.iterdir())) <= 2


def test_a_damaged_version_is_noticed(tmp_path: Path) -> None:
    car, group = Sidecar(tmp_path, RowState("alpha", "float64"), 1), dealt(layout_of([10]), 1)[0]
    car.save(group, 1, np.ones((1, 10)), ())
    raw = bytearray(car.path(group, 1).read_bytes())
    raw[5] ^= 1
    car.path(group, 1).write_bytes(raw)
    with pytest.raises(DataError, match="missing or damaged"):
        car.load(group, 1)


def test_a_checkpoint_keeps_its_version(tmp_path: Path) -> None:
    rows = GroupRows(Sidecar(tmp_path, RowState("alpha", "float64"), 1), layout_of([10]), dealt(layout_of([10]), 1))
    rows.advance()
    kept = rows.keep()
    for _ in range(4):
        rows.advance()
        assert kept["version"] not in rows.drop()
    rows.restore(kept)
    assert rows.version == 1


def test_no_cluster_is_no_cluster() -> None:
    with executor_for(FitJob("s", "m")) as found:
        assert found is None
    with pytest.raises(UsageError, match="is no cluster"), executor_for(FitJob("s", "m", cluster="there")):
        pass
