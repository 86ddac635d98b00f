"""How long a job may take beyond its limit, and how long before it a loop of passes stops, by numbers."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm as sv
from streamsvm.engine import signals
from streamsvm.engine.signals import current


@pytest.mark.parametrize(
    ("limit", "spent", "finish", "seconds", "patience"),
    [
        (5.0, 1.0, False, 4.0, 3.0),  # two seconds to finish and one to end
        (30.0, 0.0, False, 30.0, 3.0),
        (40.0, 0.0, False, 40.0, 4.0),
        (100.0, 10.0, False, 90.0, 4.5),
        (5.0, 1.0, True, 6.0, 1.0),
        (10.0, 0.0, True, 14.0, 1.0),
        (20.0, 0.0, True, 28.0, 2.0),
        (100.0, 10.0, True, 130.0, 4.5),
    ],
)
def test_time_limit_command_has_a_moment_beyond_its_limit(
    limit: float, spent: float, finish: bool, seconds: float, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(current, "wakeup_socket", object())

    def expiring(*wanted: float) -> AbstractContextManager[None]:
        given.append(wanted)
        return nullcontext()

    monkeypatch.setattr(signals, "expire_after", expiring)
    with signals.limit_time(limit, spent, finish=finish):
        assert given == [(pytest.approx(seconds), pytest.approx(patience))]
    with signals.limit_time(math.inf, spent, finish=finish):
        assert len(given) == 1


def test_time_limit_fit_says_that_its_time_was_over_only_where_it_was(tmp_path: Path) -> None:
    """A pass is made slow by who is told of it: two more do not fit the limit, which is then far from being reached."""
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(500, 5)).astype(np.float32), draw.integers(0, 2, 500)
    sv.ingest(X, str(tmp_path / "s.zarr"), y=y)
    asked: Any = {"solver": "dcd", "tolerance": 1e-12, "C": 100, "overwrite": True}

    def slow(_: Any) -> None:
        time.sleep(1.0)

    sv.fit(str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), **{**asked, "tolerance": 0.5})  # compiled from here on
    with pytest.warns(
        sv.StreamSVMWarning, match=r"of the time limit of 2.9 s \d\.\d s were left, .* take about \d\.\d s"
    ):
        sv.fit(str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), time_limit=2.9, on_pass=slow, **asked)
    with pytest.warns(sv.StreamSVMWarning, match=r"the time limit of 0.001 s was reached"):
        sv.fit(str(tmp_path / "s.zarr"), str(tmp_path / "m.ssvm"), time_limit=0.001, **asked)
