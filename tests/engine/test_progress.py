"""What is told of a pass as it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streamsvm as sv
from streamsvm.engine.block_visitor import BlockVisitor
from streamsvm.errors import InterruptedRun
from tests.engine.conftest import rows_of
from tests.fault.golden import placed
from tests.stopping import stopping

"""What is told of each of two passes; several threads are looked at now and then, and at the end."""


@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("solver", ["sgd", "dcd"])
def test_rows_before_a_stop_are_counted_by_who_goes_on(
    solver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.engine.progress.REPORT_SECONDS", 0.0)
    placed(monkeypatch)
    X, codes = rows_of(3100)
    sv.ingest(X, str(tmp_path / "s"), y=codes, chunk=4096)
    chunks = sv.open_store(str(tmp_path / "s")).layout.chunks
    assert len(set(chunks)) > 1, "the order of chunks is to show"
    events: list[dict[str, Any]] = []
    asked: dict[str, Any] = {"solver": solver, "loss": "hinge", "max_passes": 2, "threads": 1}
    with pytest.raises(InterruptedRun), stopping(BlockVisitor, "visit", len(chunks) + 2):
        sv.fit(str(tmp_path / "s"), str(tmp_path / "m"), **asked)
    sv.fit(str(tmp_path / "s"), str(tmp_path / "m"), resume=True, on_event=events.append, **asked)
    seen = [event["rows"] for event in events if event["event"] == "progress" and event.get("rows")]
    assert seen[-1] == 3100
    assert len(seen) == len(chunks) - 2
