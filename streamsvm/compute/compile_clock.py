"""The time that this process has spent compiling. It is not counted in estimates of the duration of the next pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CompileClock:
    """Counts the seconds in which at least one thread waits for the compiler or runs it; the compiler runs one thread
    at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant, because signal handlers read the clock too
        self._threads, self._began, self._seconds = 0, 0.0, 0.0
        self.announce: Callable[[], None] | None = None
        """Called once, before the first pass that is not cached is compiled, to explain why the job seems to stand
        still."""

    def enter(self) -> None:
        """Count a thread that enters the compiler."""
        with self._lock:
            if self._threads == 0:
                self._began = time.perf_counter()
            self._threads += 1

    def leave(self) -> None:
        """Count a thread that leaves the compiler."""
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                self._seconds += time.perf_counter() - self._began

    def announce_compilation(self) -> None:
        """Call ``announce`` before the first compilation; do nothing at later ones."""
        announce, self.announce = self.announce, None
        if announce is not None:
            announce()

    def seconds(self) -> float:
        """Return the seconds counted up to now."""
        with self._lock:
            running = time.perf_counter() - self._began if self._threads else 0.0
            return self._seconds + running


CLOCK = CompileClock()
