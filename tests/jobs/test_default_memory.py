"""A fit without --memory: small data has one plan on every machine, and what a machine decides is printed and recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
from scipy import sparse

import streamsvm as sv

MIB = 1 << 20


class Memory(NamedTuple):
    """What psutil tells of the memory of a machine, as far as it is looked at."""

    available: int
    total: int


def machine(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    """Have the machine report so many bytes of memory as available."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(available, 1 << 40))


def small_store(place: Path) -> str:
    """Rows of which second order on all of them takes some 100 MiB beside the process."""
    draw = np.random.default_rng(0)
    X = draw.normal(size=(40_000, 60)).astype(np.float32)
    sv.ingest(X, str(place / "small.zarr"), y=(X[:, 0] > 0).astype(int))
    return str(place / "small.zarr")


def wide_store(place: Path) -> str:
    """A hundred classes of many columns: second order takes more than a gigabyte."""
    X = sparse.random(300, 60_000, 0.001, "csr", np.float32, random_state=0)
    sv.ingest(X, str(place / "wide.zarr"), y=np.arange(300) % 100)
    return str(place / "wide.zarr")


def test_small_data_has_the_same_plan_on_machines_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, found = small_store(tmp_path), []
    needed = sv.plan(store).memory.total
    for available in (2 * needed // 3, 64 << 30):  # a limit of little more than is needed, and of much more
        machine(monkeypatch, available + needed // 10)
        plan = sv.plan(store)
        found.append((plan.solver_name, plan.solver, plan.why, plan.memory.cached, plan.memory.total))
        assert not plan.facts()["limit_taken"]
    assert found[0] == found[1]


@pytest.mark.parametrize("command", ["fit", "tune"])
def test_a_limit_that_decides_is_printed_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    store = wide_store(tmp_path)
    solvers: list[str] = []
    found: Any = None
    for available in (600 * MIB, 64 << 30):
        machine(monkeypatch, available)
        solvers.append(sv.plan(store).solver_name)
    assert solvers == ["dcd", "newton"]
    machine(monkeypatch, 600 * MIB)
    options: Any = {"max_passes": 1, "threads": 1}
    if command == "fit":
        with pytest.warns(sv.StreamSVMWarning, match="not certified"):
            found = sv.fit(store, str(tmp_path / "m.ssvm"), **options)
        taken = f"--memory {found.plan.memory.limit // MIB}MiB"
        events = (tmp_path / "m.ssvm.run" / "events.jsonl").read_text().splitlines()
        assert taken in json.loads(events[0])["command"]
    else:
        found = sv.tune(store, str(tmp_path / "t"), folds=2, **options)
        taken = "--memory "
    assert sum(taken in line for line in found.notices) == 1
