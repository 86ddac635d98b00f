"""Fits that go on otherwise than they began: from coordinate descent to Newton, from features in float32 to float64."""

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
from streamsvm.jobs.common_options import SynthJob
from streamsvm.jobs.fit import solver_choice
from streamsvm.jobs.fit.driver import FitResult, fit, fit_in_memory
from streamsvm.jobs.fit.fallback import STALL_PASSES, plan_fallback, plan_float64_fallback
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.synth import synth
from streamsvm.rows import Dense
from streamsvm.store import create, open_store
from streamsvm.types import Status


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("leaving") / "t.zarr"
    synth(SynthJob("table", str(path), rows=1_500, columns=200, chunk_bytes=1 << 16))
    return path


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Auto takes second order for too much of the memory, though it would fit: descent is what it begins with."""
    monkeypatch.setattr(solver_choice, "SAMPLE_SHARE", 0.0)
    monkeypatch.setattr(solver_choice, "WHOLE_SHARE", 0.0)


def job_of(store: Path, folder: Path, **more: Any) -> FitJob:
    folder.mkdir(exist_ok=True)
    return FitJob(str(store), str(folder / "m"), memory=4 << 30, **more)


def stop_after(name: str, job: FitJob) -> None:
    """Fit, and ask for the end in the first pass after the event ``name``."""
    met: list[Any] = []

    def stopping(event: Any) -> None:
        if event["event"] == name:
            met.append(event)
        elif event["event"] == "pass" and met:
            signals.interruption.name = "SIGTEST"

    try:
        with pytest.raises(InterruptedRun):
            fit(job, stopping)
    finally:
        signals.interruption.name = ""


def ended(found: FitResult) -> tuple[str, float]:
    certificate = found.training.runs[0].certificate
    assert certificate is not None
    return found.plan.solver_name, certificate.gap


@pytest.mark.usefixtures("short_memory")
def test_auto_falls_back_to_newton_where_dcd_stalls(store: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    job = job_of(store, tmp_path)
    assert make_plan(job, open_store(store)).solver_name == "dcd"
    found = fit(job, events.append)
    solver, gap = ended(found)
    assert (solver, found.training.status) == ("newton", Status.CONVERGED)
    assert gap <= 1e-3
    (left,) = [event for event in events if event["event"] == "left"]
    assert (left["solver"], left["next"]) == ("dcd", "newton")
    passes = [event["pass"] for event in events if event["event"] == "pass"]
    assert left["pass"] >= STALL_PASSES + 1
    assert passes == list(range(1, found.training.passes + 1)), "passes are counted on"
    written = io.StringIO()
    Lines(written)(left)
    assert written.getvalue().startswith(f"solver dcd stalled: its gap is {left['why'].split()[3]}")
    assert written.getvalue().endswith("going on with newton\n")


@pytest.mark.usefixtures("short_memory")
@pytest.mark.parametrize("more", [{"solver": "dcd"}, {"dual": "a.npy"}, {"validation": 0.5}])
def test_auto_does_not_fall_back_from_a_solver_asked_for(store: Path, tmp_path: Path, more: Any) -> None:
    job, opened = job_of(store, tmp_path, **more), open_store(store)
    assert plan_fallback(job, opened, make_plan(job, opened)) is None


@pytest.mark.usefixtures("short_memory")
def test_resume_after_the_fallback_goes_on_with_newton(store: Path, tmp_path: Path) -> None:
    """The first pass of second order is done when the signal comes; the resumed run makes the same model."""
    straight = fit(job_of(store, tmp_path / "a"))
    stop_after("left", job_of(store, tmp_path / "b"))
    events: list[Any] = []
    found = fit(job_of(store, tmp_path / "b", resume=True), events.append)
    assert not [event for event in events if event["event"] == "left"]
    assert ended(found) == ended(straight)
    assert found.training.passes == straight.training.passes
    one, other = (result.training.runs[0].certificate for result in (found, straight))
    assert one is not None
    assert other is not None
    assert (one.primal, one.dual) == (other.primal, other.dual)


# -- from features in float32 to float64 -------------------------------------------------------------------------------

FEW, MANY = 60, 100
"""Rows of a fit that closes on features in float32 on disk, which is not true of the model, or stalls on the fly; and of one on pairs."""


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


def precision_job_of(store: Path, folder: Path, **more: Any) -> FitJob:
    folder.mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "kernel": "rbf",
        "gamma": 0.5,
        "C": 1e6,
        "landmarks": 30,
        "loss": "hinge",
        "memory": 2 << 30,
        "embedding": "fly",
        "solver": "newton",
    }
    return FitJob(str(store), str(folder / "m"), **(given | more))


def fitted(job: FitJob) -> tuple[FitResult, list[Any]]:
    events: list[Any] = []
    return fit(job, events.append), events


def precision_ended(found: Any) -> tuple[Any, Any, int]:
    certificate = found.training.runs[0].certificate
    return found.training.status, (certificate.primal, certificate.dual, certificate.rounding), found.training.passes


@pytest.mark.parametrize(
    ("rows", "where", "why"), [(FEW, "disk", "with features in float32"), (FEW, "fly", "newton stalls")]
)
def test_precision_fit_whose_features_are_too_coarse_is_certified_on_finer_ones(
    stores: dict[int, Path], tmp_path: Path, rows: int, where: str, why: str
) -> None:
    """So is one in memory, and of tasks; the passes are counted on, and what is said of it is one line."""
    found, events = fitted(precision_job_of(stores[rows], tmp_path / "a", embedding=where))
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
    tasks = fit(precision_job_of(stores[rows], tmp_path / "b", embedding=where), executor=SerialExecutor())
    assert precision_ended(tasks) == precision_ended(found)
    assert (tmp_path / "b" / "m").read_bytes() == (tmp_path / "a" / "m").read_bytes()
    if where == "fly":
        inside = fit_in_memory(precision_job_of(stores[rows], tmp_path), open_store(stores[rows]))
        np.testing.assert_array_equal(inside.model.weights, found.model.weights)


def test_precision_run_that_is_stopped_on_finer_features_goes_on_with_them(
    stores: dict[int, Path], tmp_path: Path
) -> None:
    straight, _ = fitted(precision_job_of(stores[FEW], tmp_path / "a", embedding="disk"))
    stop_after("features", precision_job_of(stores[FEW], tmp_path / "b", embedding="disk"))
    found, events = fitted(precision_job_of(stores[FEW], tmp_path / "b", embedding="disk", resume=True))
    assert not [event for event in events if event["event"] == "features"]
    assert precision_ended(found) == precision_ended(straight)
    assert (tmp_path / "b" / "m").read_bytes() == (tmp_path / "a" / "m").read_bytes()
    told = json.loads((tmp_path / "b" / "m.run" / "certificate.json").read_text(encoding="utf-8"))
    assert told["status"] == "converged"


@pytest.mark.parametrize(
    "more",
    [{"validation": 0.3}, {"embedding": "disk", "embedding_dtype": "int8"}, {"landmarks": None, "kernel": "linear"}],
)
def test_precision_stays_where_it_was_asked_for(stores: dict[int, Path], tmp_path: Path, more: Any) -> None:
    job, store = precision_job_of(stores[MANY], tmp_path, **more), open_store(stores[MANY])
    assert plan_float64_fallback(job, store, make_plan(job, store)) is None
