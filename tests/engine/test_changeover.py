"""A run that was stopped in one process goes on on a cluster, and the other way round, to the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.engine.executor import SerialExecutor
from streamsvm.errors import ClusterError, DataError, InterruptedRun
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.options import FitJob
from tests.stopping import stopping

KINDS: dict[str, dict[str, Any]] = {
    "sample": {"solver": "newton", "options": {"sample": 500}},
    "all rows": {"solver": "newton"},
    "planes": {"solver": "cutting_plane", "loss": "hinge"},
    "rows in groups": {"solver": "dcd", "groups": 2},
    "classes together": {"solver": "dcd", "groups": 2, "multi_class": "crammer_singer"},
    "kernel": {"solver": "decomposition", "kernel": "rbf", "gamma": 0.1, "options": {"pool": 150}},
}
PASSES = dict.fromkeys(KINDS, 2) | {"all rows": 1}
"""Made before the first stop."""
CARRIED = ("sample", "all rows", "planes")
"""The kinds whose pass may begin anew: nothing of it belongs to rows."""


def job_of(store: Path, model: Path, kind: str) -> FitJob:
    settings = {"loss": "squared_hinge", "C": 0.05, "tolerance": 1e-12, "max_passes": 6, **KINDS[kind]}
    return FitJob(str(store), str(model), **settings)


class Loses(SerialExecutor):
    """Loses the cluster after some rounds."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds + 2  # the work is shared, and the state of each round

    def share(self, value: Any) -> Any:
        self.left -= 1
        if not self.left:
            raise ClusterError("the scheduler is gone", hint="start it")
        return value


@pytest.fixture(autouse=True)
def groups_of_two_chunks() -> Iterator[None]:
    """A store this small would be one group."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvm.engine.partition.PASS_GROUP_BYTES", 32_000)
        yield


def resumed(job: FitJob, executor: SerialExecutor | None = None) -> FitResult:
    return fit(replace(job, resume=True), executor=executor)


def same(found: FitResult, whole: FitResult) -> None:
    np.testing.assert_array_equal(found.model.weights, whole.model.weights)
    assert found.training.passes == whole.training.passes
    assert [run.certificate for run in found.training.runs] == [run.certificate for run in whole.training.runs]


@pytest.mark.parametrize("kind", KINDS)
def test_resume_on_a_cluster_has_the_same_bits(store: Path, tmp_path: Path, kind: str) -> None:
    job = job_of(store, tmp_path / "m", kind)
    whole = fit(replace(job, model=str(tmp_path / "whole")))
    with (
        stopping(BlockVisitor, "finish", PASSES[kind]),
        pytest.raises(InterruptedRun, match=f"epoch {PASSES[kind] + 1}, chunk 0"),
    ):
        fit(job)
    same(resumed(job, SerialExecutor()), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_resume_without_the_cluster_has_the_same_bits(store: Path, tmp_path: Path, kind: str) -> None:
    job = job_of(store, tmp_path / "m", kind)
    whole = fit(replace(job, model=str(tmp_path / "whole")))
    with pytest.raises(ClusterError, match="gone"):
        fit(job, executor=Loses(PASSES[kind]))
    same(resumed(job), whole)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "all rows"])
def test_resume_to_one_process_and_back_has_the_same_bits(store: Path, tmp_path: Path, kind: str) -> None:
    job = job_of(store, tmp_path / "m", kind)
    whole = fit(replace(job, model=str(tmp_path / "whole")))
    with pytest.raises(ClusterError, match="gone"):
        fit(job, executor=Loses(PASSES[kind]))
    with stopping(BlockVisitor, "finish", 1), pytest.raises(InterruptedRun, match=f"epoch {PASSES[kind] + 2}, chunk 0"):
        resumed(job)
    same(resumed(job, SerialExecutor()), whole)


@pytest.mark.parametrize("kind", CARRIED)
def test_resume_pass_that_was_under_way_begins_anew_and_the_limit_holds(store: Path, tmp_path: Path, kind: str) -> None:
    job = job_of(store, tmp_path / "m", kind)
    whole = fit(replace(job, model=str(tmp_path / "whole")))
    with stopping(BlockVisitor, "visit", 18), pytest.raises(InterruptedRun, match=r"epoch 2, chunk [56]"):
        fit(replace(job, threads=1))
    same(resumed(job, SerialExecutor()), whole)


def test_resume_pass_that_has_changed_row_state_is_not_begun_anew(store: Path, tmp_path: Path) -> None:
    job = job_of(store, tmp_path / "m", "kernel")
    with stopping(BlockVisitor, "visit", 30), pytest.raises(InterruptedRun):
        fit(job)
    with pytest.raises(DataError, match="made in pass 3, and") as caught:
        resumed(job, SerialExecutor())
    assert "without --cluster" in caught.value.hint
    resumed(job)
