"""What is told of a pass as it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streamsvm as sv
from tests.engine.conftest import rows_of


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
