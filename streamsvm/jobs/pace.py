"""The time a job has taken, and whether to tell of it again while rows go by."""

from __future__ import annotations

import time

REPORT_SECONDS = 0.2


class Pace:
    """Begins when it is made."""

    def __init__(self) -> None:
        self.began = self._told = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def due(self) -> bool:
        """Whether REPORT_SECONDS have passed since this was last so."""
        now = time.perf_counter()
        if now - self._told < REPORT_SECONDS:
            return False
        self._told = now
        return True
