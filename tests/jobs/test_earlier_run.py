"""A fit that came to its end is taken for what it is: only one that was asked to end, or may go farther now, goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.results.places import CERTIFICATE, run_folder
from streamsvm.jobs.fit.run import fit
from streamsvm.types import Status
from tools.fuzz.artifacts import small_store


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
def test_what_ended_goes_on_where_there_is_something_left_to_do(
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
