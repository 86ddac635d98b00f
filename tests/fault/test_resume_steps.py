"""A fit that is stopped at any step between two passes goes on there, and ends with the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamsvm.errors import InterruptedRun
from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.job import FitJob
from streamsvm.solvers import SOLVERS
from streamsvm.solvers.kernel import frank_wolfe, working_set
from streamsvm.solvers.newton import rows_in_memory
from tests.fault.golden import fitted, ingested
from tests.stopping import stopping

RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.2, "standardize": True, "tolerance": 1e-3, "checkpoint_every": 0.0}
SQUARED = {"loss": "squared_hinge", "C": 1.0, "tolerance": 5e-2}
CASES: dict[str, dict[str, Any]] = {
    "levels": {"solver": "decomposition", "loss": "hinge", "options": {"working": 64}},
    "pools": {"solver": "decomposition", "loss": "huber", "options": {"working": 64, "pool": 120}},
    "blended": {"solver": "blended", **SQUARED, "options": {"working": 64, "pool": 100}},
    "lightened": {"solver": "blended", **SQUARED, "C": 0.1, "max_passes": 3, "options": {"working": 64, "keep": 60}},
    "cache": {"solver": "swap", **SQUARED, "tolerance": 0.3, "options": {"epsilon": 1e-3, "cache": 20_000}},
    "all rows": {"solver": "newton", "kernel": "linear", "gamma": None, "loss": "hinge", "tolerance": 1e-5},
    "sampled": {"solver": "partan", **SQUARED, "options": {"epsilon": 1e-3, "sample": 40}},
}
"""Every kind of work that is done between two passes."""


def stepped(job: FitJob, stop: int = 0) -> int:
    """Fit until its solver has made ``stop`` steps, 0: to the end; how many were."""
    with stopping(SOLVERS[job.solver], "proceed", stop) as calls:
        fit(job)
    return calls.made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ingested(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("name", CASES)
def test_resume_stop_at_any_step_between_passes(
    name: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_set, "LEVEL_RATIO", 3)
    monkeypatch.setattr(frank_wolfe, "ITERATIONS_IN_STEP", 5)
    monkeypatch.setattr(rows_in_memory, "WORK", 1)
    monkeypatch.setattr(rows_in_memory, "PRODUCTS", 2)
    settings = {**RBF, **CASES[name]}
    job = FitJob(str(store), str(tmp_path / "m"), **settings)
    reference = fitted(replace(job, model=job.model + ".whole"))
    total = stepped(replace(job, model=job.model + ".counted"))
    assert total > 8
    for k in range(1, total + 1, max(1, total // 3)):
        this = replace(job, model=f"{job.model}.{k}")
        with pytest.raises(InterruptedRun, match=r"checkpoint saved at epoch \d+, chunk 0 "):
            stepped(this, k)
        assert k + stepped(replace(this, resume=True)) == total
        assert Path(this.model).read_bytes() == reference, f"stopped after {k} of {total} steps"


def test_resume_run_stopped_again_and_again_within_one_pass(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FitJob(str(store), str(tmp_path / "m"), **{**RBF, **CASES["levels"]})
    reference = fitted(replace(job, model=job.model + ".whole"))
    stops = 0
    while True:
        try:
            stepped(replace(job, resume=True), 3)
            break
        except InterruptedRun:
            stops += 1
    assert stops > 5
    assert Path(job.model).read_bytes() == reference
