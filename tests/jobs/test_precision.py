"""Kernel features go over to float64 where those in float32 are too coarse: when, what is said, and that a resumed run goes on so."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.display.terminal import Lines
from streamsvm.engine import signals
from streamsvm.engine.executor import SerialExecutor
from streamsvm.errors import InterruptedRun
from streamsvm.jobs.fit.driver import FitResult, fit, fit_in_memory
from streamsvm.jobs.fit.fallback import (
    plan_finer_features,
)
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.rows import Dense
from streamsvm.store import create, open_store
from streamsvm.types import Status

FEW, MANY = 60, 100
"""Rows of a fit that closes on features in float32 on disk, which is not true of the model, and of one that stalls on pairs."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A circle in two of three columns, one label in ten wrong."""
    found = {}
    for rows in (FEW, MANY):
        rng = np.random.default_rng(1)
        X = rng.uniform(-1.0, 1.0, (rows, 3))
        y = (np.square(X[:, :2]).sum(1) < 0.6) ^ (rng.random(rows) < 0.1)
        found[rows] = tmp_path_factory.mktemp("precision") / f"{rows}.zarr"
        writer = create(found[rows], sparse=False, chunk_bytes=1 << 10)
        writer.append(Dense(X.astype(np.float32)), y.astype(np.int32), None)
        writer.commit(("a", "b"), 3, {"names": None})
    return found


def job_of(store: Path, folder: Path, **more: Any) -> FitJob:
    folder.mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "kernel": "rbf",
        "gamma": 0.5,
        "C": 1e6,
        "landmarks": 30,
        "loss": "hinge",
        "memory": 2 << 30,
    }
    given["embedding"] = "fly"
    return FitJob(str(store), str(folder / "m"), **(given | {"solver": "newton"} | more))


def fitted(job: FitJob) -> tuple[FitResult, list[Any]]:
    events: list[Any] = []
    return fit(job, events.append), events


def ended(found: Any) -> tuple[Any, Any, int]:
    certificate = found.training.runs[0].certificate
    return found.training.status, (certificate.primal, certificate.dual, certificate.rounding), found.training.passes


@pytest.mark.parametrize(
    ("rows", "where", "why"), [(FEW, "disk", "of features in float32"), (MANY, "fly", "newton stalls")]
)
def test_precision_fit_whose_features_are_too_coarse_is_certified_on_finer_ones(
    stores: dict[int, Path], tmp_path: Path, rows: int, where: str, why: str
) -> None:
    """So is one in memory, and of tasks; the passes are counted on, and what is said of it is one line."""
    found, events = fitted(job_of(stores[rows], tmp_path / "a", embedding=where))
    assert found.training.status == Status.CONVERGED
    certificate = found.training.runs[0].certificate
    assert certificate is not None
    assert certificate.gap <= 1e-3
    (told,) = [event for event in events if event["event"] == "features"]
    assert told["arithmetic"] == "float64"
    assert why in told["why"]
    passes = [event["pass"] for event in events if event["event"] == "pass"]
    assert told["pass"] in passes
    assert passes == list(range(1, found.training.passes + 1))
    written = io.StringIO()
    Lines(written)(told)
    assert written.getvalue() == f"going on with kernel features in float64: {told['why']}\n"
    assert found.plan.request is not None
    assert found.plan.request.exact
    assert found.plan.embedding is not None
    assert found.plan.embedding.where == "fly"
    tasks = fit(job_of(stores[rows], tmp_path / "b", embedding=where), executor=SerialExecutor())
    assert ended(tasks) == ended(found)
    assert (tmp_path / "b" / "m").read_bytes() == (tmp_path / "a" / "m").read_bytes()
    if where == "fly":
        inside = fit_in_memory(job_of(stores[rows], tmp_path), open_store(stores[rows]))
        np.testing.assert_array_equal(inside.model.weights, found.model.weights)


def test_precision_run_that_is_stopped_on_finer_features_goes_on_with_them(
    stores: dict[int, Path], tmp_path: Path
) -> None:
    straight, _ = fitted(job_of(stores[FEW], tmp_path / "a", embedding="disk"))
    told = []

    def stopping(event: Any) -> None:
        if event["event"] == "features":
            told.append(event)
        elif event["event"] == "pass" and told:
            signals.current.name = "SIGTEST"

    try:
        with pytest.raises(InterruptedRun):
            fit(job_of(stores[FEW], tmp_path / "b", embedding="disk"), stopping)
    finally:
        signals.current.name = ""
    found, events = fitted(job_of(stores[FEW], tmp_path / "b", embedding="disk", resume=True))
    assert not [event for event in events if event["event"] == "features"]
    assert ended(found) == ended(straight)
    assert (tmp_path / "b" / "m").read_bytes() == (tmp_path / "a" / "m").read_bytes()
    told = json.loads((tmp_path / "b" / "m.run" / "certificate.json").read_text(encoding="utf-8"))
    assert told["status"] == "converged"


@pytest.mark.parametrize(
    "more",
    [{"validation": 0.3}, {"embedding": "disk", "embedding_dtype": "int8"}, {"landmarks": None, "kernel": "linear"}],
)
def test_precision_stays_where_it_was_asked_for(stores: dict[int, Path], tmp_path: Path, more: Any) -> None:
    job, store = job_of(stores[MANY], tmp_path, **more), open_store(stores[MANY])
    assert plan_finer_features(job, store, make_plan(job, store)) is None
