"""Facts about the machine: control groups (v2, v1), usable cores, the anonymous memory of this process, and the speed of a disk."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import threading
import time
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, Self

from threadpoolctl import ThreadpoolController

from streamsvm import durable
from streamsvm.compute.threading import end_all, start_all

ROOT = Path("/sys/fs/cgroup")


def groups_of(controller: str) -> list[tuple[Path, bool]]:
    """Return the directories of this process's control groups for a controller ("memory", "cpu"), the innermost first.

    Each comes with whether it is a group of version 2.
    """
    return _find_groups(controller, ROOT, text_of(Path("/proc/self/cgroup")))


@cache
def _find_groups(controller: str, top: Path, membership: str) -> list[tuple[Path, bool]]:
    """Return the groups below the directory ``top``. ``membership``: the content of /proc/self/cgroup."""
    groups = []
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            root = top / controller
        elif controllers == "":
            root = top
        else:
            continue
        innermost = root / path.lstrip("/")
        groups += [(group, root == top) for group in (innermost, *innermost.parents) if group.is_relative_to(root)]
    return groups


def text_of(path: Path) -> str:
    """Return the content of a file of the kernel; an empty string if the file does not exist."""
    try:
        with open(path, "rb", buffering=0) as file:  # a plan reads some of them
            return file.read().decode("ascii")
    except OSError:
        return ""


def available_bytes() -> int:
    """Return the bytes of memory that processes can get without swapping."""
    _, found, after = text_of(Path("/proc/meminfo")).partition("MemAvailable:")
    if found:
        return int(after.split(maxsplit=1)[0]) << 10
    import psutil

    return int(psutil.virtual_memory().available)


def usable_cores() -> int:
    """Return the number of processors in the affinity mask, or the quota of a control group if that is smaller; at
    least 1.
    """
    quotas = [quota for quota in _quotas() if quota > 0]
    return max(1, min([len(os.sched_getaffinity(0)), *(int(quota) for quota in quotas)]))


def count_wanted_threads(stated: int | None) -> int:
    """Return the number of threads that a job wants: the stated one, else all usable cores."""
    return stated or usable_cores()


def count_jobs(n_jobs: int) -> int:
    """Return the number of threads for scikit-learn's ``n_jobs``: -1 means all processors, -2 all but one, ..., but at
    least 1.

    joblib counts in the same way; it is not imported, because it can execute code from files that it reads.
    """
    return n_jobs if n_jobs >= 0 else max(1, usable_cores() + 1 + n_jobs)


def limit_blas_threads() -> AbstractContextManager[Any]:
    """Return a context in which products of numpy use one thread. The threads of BLAS would compete with ours for cores."""
    limited: AbstractContextManager[Any] = _find_blas("scipy.linalg" in sys.modules).limit(limits=1)
    return limited


@cache
def _find_blas(with_scipy: bool) -> ThreadpoolController:
    """Return the controller of the loaded BLAS libraries. The search takes milliseconds, so that its result is kept.

    ``with_scipy``: whether the BLAS that comes with scipy is loaded as well.
    """
    del with_scipy  # a key of the cache only
    return ThreadpoolController()


def _quotas() -> list[float]:
    """Return the quotas of the control groups, in processors."""
    quotas = []
    for group, unified in groups_of("cpu"):
        if unified:
            quota, _, period = text_of(group / "cpu.max").strip().partition(" ")
        else:
            quota, period = (text_of(group / f"cpu.cfs_{what}_us").strip() for what in ("quota", "period"))
        if quota.isdigit() and period.isdigit() and int(period):
            quotas.append(int(quota) / int(period))
    return quotas


MEASURE_SECONDS = 0.02
"""Seconds between two measurements, each of which takes some ten microseconds."""


def anonymous_bytes() -> int:
    """Return the bytes of anonymous memory of this process: resident pages that belong to no file
    (/proc/self/statm).
    """
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            _, resident, shared = file.read().split()[:3]
        return (int(resident) - int(shared)) * resource.getpagesize()
    except OSError:
        import psutil

        return int(psutil.Process().memory_info().rss)


class PeakWatch:
    """A context that measures the peak of anonymous memory inside it. Several contexts may be active at the same time.

    The measurement has a thread of its own, because unpacked blocks are allocated and freed between any two moments at
    which the measured code itself could look. The peak of resident pages that Linux records (VmHWM) would count mapped
    files.
    """

    def __init__(self) -> None:
        self._peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="streamsvm-peak", daemon=True)

    @property
    def peak(self) -> int:
        """The peak so far, in bytes."""
        self._peak = max(self._peak, anonymous_bytes())
        return self._peak

    def __enter__(self) -> Self:
        start_all([self._thread], self._ended.set)
        return self

    def __exit__(self, *outcome: object) -> None:
        end_all([self._thread], self._ended.set)

    def _measure(self) -> None:
        while not self._ended.wait(MEASURE_SECONDS):
            self._peak = self.peak


PROBE_BYTES = 64 << 20
"""Bytes that are written and read to measure a disk."""


def disk_speed(directory: Path) -> dict[str, float]:
    """Return the rates in bytes per second of durable writing and of reading, without the page cache if the system
    allows it.
    """
    block = os.urandom(1 << 20)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".streamsvm-") as scratch:
        path = Path(scratch) / "probe"
        began = time.perf_counter()
        durable.write_file(path, *[block] * (PROBE_BYTES >> 20))
        written = time.perf_counter() - began
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.perf_counter()
            while file.read(1 << 20):
                pass
            read = time.perf_counter() - began
    return {"write": PROBE_BYTES / written, "read": PROBE_BYTES / read}
