"""Anonymous memory of this process: how much it is now, and its peak."""

from __future__ import annotations

import resource
import threading
from typing import Self

from streamsvm.compute.threading import end_all, start_all

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
