"""Facts about the machine: control groups (v2, v1), usable cores, and the anonymous memory of this process."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path
from typing import Self

from streamsvm.compute.threading import end_all, start_all

ROOT = Path("/sys/fs/cgroup")


def groups_of(controller: str) -> list[tuple[Path, bool]]:
    """Return the directories of this process's groups of a controller ("memory", "cpu"), the innermost first, each with whether
    it is of version 2.
    """
    found = []
    for line in text_of(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            root = ROOT / controller
        elif controllers == "":
            root = ROOT
        else:
            continue
        own = root / path.lstrip("/")
        found += [(group, root == ROOT) for group in (own, *own.parents) if group.is_relative_to(root)]
    return found


def text_of(path: Path) -> str:
    """Return the content of a file of the kernel; empty if it does not exist."""
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def usable_cores() -> int:
    """Return the number of processors in the affinity mask, or the quota of a control group if that is smaller; at least 1."""
    quotas = [quota for quota in _quotas() if quota > 0]
    return max(1, min([len(os.sched_getaffinity(0)), *(int(quota) for quota in quotas)]))


def count_wanted_threads(stated: int | None) -> int:
    """Return the number of threads that a job wants: the stated one, else all usable cores."""
    return stated or usable_cores()


def count_jobs(n_jobs: int) -> int:
    """Return the threads that scikit-learn's ``n_jobs`` stands for: -1 all processors, -2 all but one, ..., but at least 1.

    joblib counts the same; it is not imported, because it can execute the files it reads.
    """
    return n_jobs if n_jobs >= 0 else max(1, usable_cores() + 1 + n_jobs)


def _quotas() -> list[float]:
    """Return the quotas of the control groups, in processors."""
    found = []
    for group, unified in groups_of("cpu"):
        if unified:
            quota, _, period = text_of(group / "cpu.max").strip().partition(" ")
        else:
            quota, period = (text_of(group / f"cpu.cfs_{what}_us").strip() for what in ("quota", "period"))
        if quota.isdigit() and period.isdigit() and int(period):
            found.append(int(quota) / int(period))
    return found


LOOK_SECONDS = 0.02
"""Seconds between two measurements, each of which takes some ten microseconds."""


def anonymous_bytes() -> int:
    """Return the bytes of anonymous memory of this process: resident pages that belong to no file (/proc/self/statm)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            _, resident, shared = file.read().split()[:3]
        return (int(resident) - int(shared)) * resource.getpagesize()
    except OSError:
        import psutil

        return int(psutil.Process().memory_info().rss)


class PeakWatch:
    """Measures the peak of anonymous memory while it is entered; several may do so at once.

    Unpacked blocks come and go between two moments at which the work itself could measure, so a thread does. Linux keeps a peak of
    resident pages (VmHWM), but that counts mapped files.
    """

    def __init__(self) -> None:
        self._most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="streamsvm-peak", daemon=True)

    @property
    def most(self) -> int:
        """The peak so far, in bytes."""
        self._most = max(self._most, anonymous_bytes())
        return self._most

    def __enter__(self) -> Self:
        start_all([self._thread], self._ended.set)
        return self

    def __exit__(self, *outcome: object) -> None:
        end_all([self._thread], self._ended.set)

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._most = self.most
