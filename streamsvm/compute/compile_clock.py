"""The time that this process has spent in the compiler: a pass that had to be compiled says little about the speed of the next one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CompileClock:
    """Counts the seconds in which at least one thread is in the compiler, which lets in one at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # handlers of signals read it, too
        self._threads, self._began, self._seconds = 0, 0.0, 0.0
        self.announce: Callable[[], None] | None = None
        """Called once, before the first pass that is in no cache is compiled: a job seems to stand still meanwhile."""

    def enter(self) -> None:
        """Note that a thread enters the compiler."""
        with self._lock:
            if self._threads == 0:
                self._began = time.perf_counter()
            self._threads += 1

    def leave(self) -> None:
        """Note that a thread leaves the compiler."""
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                self._seconds += time.perf_counter() - self._began

    def note_compilation(self) -> None:
        """Announce that a pass is about to be compiled, the first time."""
        announce, self.announce = self.announce, None
        if announce is not None:
            announce()

    def seconds(self) -> float:
        """Return the seconds up to now."""
        with self._lock:
            running = time.perf_counter() - self._began if self._threads else 0.0
            return self._seconds + running


CLOCK = CompileClock()
