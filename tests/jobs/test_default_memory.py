"""A fit without --memory: small data has one plan on every machine, and what a machine decides is printed and recorded."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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


def test_default_memory_small_data_has_the_same_plan_on_machines_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, found = small_store(tmp_path), []
    needed = sv.plan(store).memory.total
    for available in (2 * needed // 3, 64 << 30):  # a limit of little more than is needed, and of much more
        machine(monkeypatch, available + needed // 10)
        plan = sv.plan(store)
        found.append((plan.solver_name, plan.solver, plan.why, plan.memory.cached, plan.memory.total))
        assert not plan.facts()["limit_taken"]
    assert found[0] == found[1]


@pytest.mark.parametrize("command", ["fit", "tune"])
def test_default_memory_limit_that_decides_is_printed_and_recorded(
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


@pytest.mark.parametrize("options", [{"C": (1.0, 10.0)}, {"kernel": "rbf", "landmarks": (20, 400), "C": (1.0,)}])
@pytest.mark.filterwarnings("ignore")
def test_default_memory_limit_that_a_refused_search_is_told_will_do(tmp_path: Path, options: Any) -> None:
    draw = np.random.default_rng(0)
    X, store = draw.normal(size=(3000, 30)).astype(np.float32), str(tmp_path / "s.zarr")
    sv.ingest(X, store, y=draw.integers(0, 5, 3000))
    with pytest.raises(sv.StreamSVMError, match="is not enough") as refused:
        sv.tune(store, str(tmp_path / "t"), folds=3, max_passes=1, memory="60MiB", **options)
    told = re.search(r"use --memory (\d+MiB)", str(refused.value))
    assert told is not None
    assert sv.tune(store, str(tmp_path / "t"), folds=3, max_passes=1, memory=told[1], **options).scores


GROUPS = Path("/sys/fs/cgroup/memory")


def test_default_memory_group_below_what_is_imported_is_refused_before_anything_is(tmp_path: Path) -> None:
    """The kernel ended such a process without a word."""
    if not (GROUPS / "memory.limit_in_bytes").exists():
        pytest.skip("there is no control group (v1) that may be changed here")
    group = GROUPS / f"streamsvm-refused-{tmp_path.name}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group may be made here")
    try:
        (group / "memory.limit_in_bytes").write_text(str(100 * MIB))
        command = [sys.executable, "-m", "streamsvm", "fit", small_store(tmp_path), str(tmp_path / "m.ssvm")]
        join = ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *command]
        ran = subprocess.run(join, capture_output=True, text=True, check=False)
    finally:
        group.rmdir()
    assert ran.returncode == 78
    assert "limited to 100MiB, 144MiB are needed" in ran.stderr
