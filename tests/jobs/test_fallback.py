"""auto leaves coordinate descent that stalls for second order: when, what is said, and that a resumed run goes on with it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from streamsvm.display.terminal import Lines
from streamsvm.engine import signals
from streamsvm.errors import InterruptedRun
from streamsvm.jobs.fit import solver as solver_choice
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.fallback import STALL_PASSES, plan_fallback
from streamsvm.jobs.fit.job import FitJob
from streamsvm.jobs.fit.plan import make_plan
from streamsvm.jobs.options import SynthJob
from streamsvm.jobs.synth import synth
from streamsvm.store import open_store
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

    left = []

    def stopping(event: Any) -> None:
        if event["event"] == "left":
            left.append(event)
        elif event["event"] == "pass" and left:
            signals.current.name = "SIGTEST"

    try:
        with pytest.raises(InterruptedRun):
            fit(job_of(store, tmp_path / "b"), stopping)
    finally:
        signals.current.name = ""
    events: list[Any] = []
    found = fit(job_of(store, tmp_path / "b", resume=True), events.append)
    assert not [event for event in events if event["event"] == "left"]
    assert ended(found) == ended(straight)
    assert found.training.passes == straight.training.passes
    one, other = (result.training.runs[0].certificate for result in (found, straight))
    assert one is not None
    assert other is not None
    assert (one.primal, one.dual) == (other.primal, other.dual)
