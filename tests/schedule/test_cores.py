"""How many processors there are to use: those of the affinity mask, or what a control group pays for."""

from __future__ import annotations

import os

import pytest

from streamsvm.schedule import machine
from streamsvm.schedule.machine import usable_cores

GROUP = "/sys/fs/cgroup"
V2, V1 = {"/proc/self/cgroup": "0::/a/b\n"}, {"/proc/self/cgroup": "4:cpu,cpuacct:/a\n"}


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        (V2 | {f"{GROUP}/a/b/cpu.max": "max 100000\n"}, 8),
        (V2 | {f"{GROUP}/a/b/cpu.max": "300000 100000\n"}, 3),
        (V2 | {f"{GROUP}/a/b/cpu.max": "300000 100000\n", f"{GROUP}/a/cpu.max": "150000 100000\n"}, 1),
        (V2 | {f"{GROUP}/cpu.max": "50000 100000\n"}, 1),
        (V2 | {f"{GROUP}/a/cpu.max": "6400000 100000\n"}, 8),
        (V2 | {f"{GROUP}/a/cpu.max": "0 100000\n"}, 8),
        (V1 | {f"{GROUP}/cpu/a/cpu.cfs_quota_us": "250000\n", f"{GROUP}/cpu/a/cpu.cfs_period_us": "100000\n"}, 2),
        (V1 | {f"{GROUP}/cpu/a/cpu.cfs_quota_us": "-1\n", f"{GROUP}/cpu/a/cpu.cfs_period_us": "100000\n"}, 8),
    ],
)
def test_cores_least_of_mask_and_quotas(files: dict[str, str], cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", {0: set(range(8))}.__getitem__)  # 0: this process
    monkeypatch.setattr(machine, "text_of", lambda path: files.get(str(path), ""))
    assert usable_cores() == cores
