"""A fit that came to its end is taken for what it is: only one that was asked to end, or may go farther now, goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamsvm.jobs.fit.driver import fit
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.outputs import CERTIFICATE, paths_by_C, run_folder
from streamsvm.model import load
from streamsvm.types import Status
from tools.fuzz.structures import small_store


def passes_of(job: FitJob) -> int:
    """How many passes a fit makes now."""
    events: list[dict[str, Any]] = []
    fit(job, events.append)
    return sum(event["event"] == "pass" for event in events)


@pytest.mark.parametrize(
    ("status", "more", "goes_on"),
    [
        (None, {}, False),
        (None, {"max_passes": 3}, True),
        (Status.ASKED, {}, True),
        (Status.TIME, {}, False),
        (Status.CONVERGED, {"max_passes": 3}, False),
        (Status.CONVERGED, {"dual": True}, True),
    ],
)
def test_resume_what_ended_goes_on_where_there_is_something_left_to_do(
    status: Status | None, more: dict[str, Any], goes_on: bool, tmp_path: Path
) -> None:
    store = small_store(tmp_path / "s.zarr", sparse=False)
    job = FitJob(store, str(tmp_path / "m"), solver="dcd", tolerance=1e-12, max_passes=2)
    assert passes_of(job) == 2
    if status is not None:
        record = run_folder(Path(job.model)) / CERTIFICATE
        found = json.loads(record.read_text(encoding="utf-8"))
        record.write_text(json.dumps(found | {"status": status.value}), encoding="utf-8")
    asked: dict[str, Any] = {name: str(tmp_path / "a.npy") if name == "dual" else value for name, value in more.items()}
    assert bool(passes_of(replace(job, resume=True, **asked))) == goes_on


def done(job: FitJob) -> tuple[dict[str, Any], bool]:
    """The last event of a fit, and whether a plan was told before it: one that answers with what there is makes none."""
    events: list[dict[str, Any]] = []
    fit(job, events.append)
    return events[-1], len(events) > 1


@pytest.mark.parametrize("lacks", [0.1, 1.0])
def test_resume_model_without_the_probabilities_that_were_asked_for_is_not_the_end(
    lacks: float, tmp_path: Path
) -> None:
    store = small_store(tmp_path / "s.zarr", sparse=False)
    job = FitJob(store, str(tmp_path / "m.ssvm"), C=(0.1, 1.0), calibrate="sigmoid")
    fit(job)
    path = paths_by_C(Path(job.model), [0.1, 1.0])[lacks]
    replace(load(path), calibration=None).save(path)
    assert done(replace(job, resume=True))[1]
    assert load(path).calibration is not None


@pytest.mark.parametrize("damage", ["gone", "another certificate", "a field less"])
def test_resume_record_that_does_not_tell_the_end_of_these_models_is_none(damage: str, tmp_path: Path) -> None:
    job = FitJob(small_store(tmp_path / "s.zarr", sparse=False), str(tmp_path / "m.ssvm"), C=(0.1, 1.0))
    fit(job)
    path = run_folder(Path(job.model)) / CERTIFICATE
    record = json.loads(path.read_text(encoding="utf-8"))
    if damage == "another certificate":
        record["problems"][1]["dual"] += 1.0
    elif damage == "a field less":
        del record["bytes_read"]
    path.write_text(json.dumps(record), encoding="utf-8")
    if damage == "gone":
        path.unlink()
    assert done(replace(job, resume=True))[1]


def test_resume_where_one_model_of_several_is_gone_it_is_made(tmp_path: Path) -> None:
    job = FitJob(small_store(tmp_path / "s.zarr", sparse=False), str(tmp_path / "m.ssvm"), C=(0.1, 1.0))
    fit(job)
    for path in paths_by_C(Path(job.model), [0.1, 1.0]).values():
        before = path.read_bytes()
        path.unlink()
        assert done(replace(job, resume=True))[1]
        assert path.read_bytes() == before
