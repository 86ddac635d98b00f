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


@pytest.mark.parametrize(("costs", "told"), [([0.1], []), ([0.001, 0.01, 0.1], [(1, 3), (2, 3), (3, 3)])])
def test_problems_are_counted_as_a_pass_is_closed(tmp_path: Path, costs: list[float], told: list[Any]) -> None:
    """From 1, and not where there is one only."""
    X, codes = rows_of(300)
    sv.ingest(X, str(tmp_path / "s"), y=codes)
    events: list[dict[str, Any]] = []
    sv.fit(
        str(tmp_path / "s"),
        str(tmp_path / "m"),
        solver="dcd",
        C=costs,
        max_passes=100,
        threads=1,
        on_event=events.append,
    )
    closing = [(event["closing"], event["problems"]) for event in events if "closing" in event]
    assert closing[: len(told)] == told
    assert bool(closing) == bool(told)


SUMS = [1000, 2000, 3000, 3500, 4500, 5500, 6000]
KINDS: dict[str, tuple[list[int], dict[str, Any]]] = {
    "rows in memory": ([6000], {"solver": "dcd"}),
    "sums of groups": (SUMS, {"solver": "newton"}),
    "groups that move": ([2000, 4000, 6000], {"solver": "dcd", "groups": 3}),
    "threads": (SUMS, {"solver": "newton", "threads": 2}),
}
"""What is told of each of two passes; several threads are looked at now and then, and at the end."""


@pytest.mark.filterwarnings("ignore:not certified")
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_counted_from_the_first_group_to_the_last(
    kind: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.engine.progress.REPORT_SECONDS", 0.0)
    monkeypatch.setattr("streamsvm.engine.partition.PASS_GROUP_BYTES", 32_000)
    events: list[dict[str, Any]] = []
    expected, settings = KINDS[kind]
    asked = {"threads": 1, "loss": "squared_hinge", "C": 0.05, "max_passes": 2, **settings}
    sv.fit(str(store), str(tmp_path / "m"), on_event=events.append, **asked)
    told = [event for event in events if "rows" in event and event["event"] == "progress"]
    assert {event["of"] for event in told} == {6000}
    seen = [event["rows"] for event in told if event["rows"]]
    if kind == "threads":
        assert set(seen) <= set(expected)
        assert seen[-1] == 6000
    else:
        assert seen == 2 * expected


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
