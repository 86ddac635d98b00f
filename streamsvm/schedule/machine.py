"""Facts about the machine and this process: control groups (v2, v1), usable cores, anonymous memory and its peak, threads that hang."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

from streamsvm.compute.threading import end_all, start_all

ROOT = Path("/sys/fs/cgroup")

RUNNABLE = "R"
"""State of a thread that runs or waits for a processor."""
LOOK_SECONDS = 0.02
"""Seconds between two measurements, each of which takes some ten microseconds."""


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


def wanted_threads(stated: int | None) -> int:
    """Return the number of threads that a job wants: the stated one, else all usable cores."""
    return stated or usable_cores()


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


class ThreadActivity:
    """Tells threads that hang from threads that wait for a processor, by the nanoseconds that the kernel counts.

    A clock cannot tell them apart on a busy machine, or after the process was stopped for a while. A thread that hangs sleeps, and
    its processor time does not change. A thread unknown to the kernel counts as one that does nothing.
    """

    def __init__(self, threads: Iterable[threading.Thread]) -> None:
        self._threads = list(threads)
        self._seen: dict[int, str] = {}

    def has_run(self) -> bool:
        """Return whether one of the threads has run, or is runnable, since the last call."""
        states = {
            thread.native_id: _state(thread.native_id) for thread in self._threads if thread.native_id is not None
        }
        runnable = any(state == RUNNABLE for state, _ in states.values())
        before, self._seen = self._seen, {number: spent for number, (_, spent) in states.items()}
        return runnable or before != self._seen


def _state(number: int) -> tuple[str, str]:
    """Return the state of a thread and its scheduler statistics; both empty if the kernel has none."""
    with suppress(OSError):
        place = Path(f"/proc/self/task/{number}")
        return place.joinpath("stat").read_text().rpartition(") ")[2][:1], place.joinpath("schedstat").read_text()
    return "", ""


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
