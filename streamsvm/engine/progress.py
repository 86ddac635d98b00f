"""How long a job has taken, and when it is time to report again."""

from __future__ import annotations

import time

REPORT_SECONDS = 0.2
"""Between two reports of progress, at least."""


class Stopwatch:
    """Counts seconds from the moment it is made, and says when it is time to report again."""

    def __init__(self) -> None:
        self.began = self._last = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self.began

    def due(self) -> bool:
        """Whether REPORT_SECONDS have passed since this was last true."""
        now = time.perf_counter()
        if now - self._last < REPORT_SECONDS:
            return False
        self._last = now
        return True
