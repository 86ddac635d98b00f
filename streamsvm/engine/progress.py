"""What a training reports while it goes on; every event carries the seconds since it began and the memory in use."""

from __future__ import annotations

import time
from typing import Any

from streamsvm.engine.training import Run, Training
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.types import Report

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


class ProgressReporter:
    """Reports on a training, and notes the peak of its memory by the way."""

    def __init__(self, training: Training, report: Report) -> None:
        self._training, self._report = training, report
        self.stopwatch = Stopwatch()

    def rows(self, seen: int, of: int) -> None:
        """Report, when it is time, that so many rows of this pass are done."""
        if self.stopwatch.due():
            self._event("progress", {"pass": self._training.passes + 1, "rows": seen, "of": of})

    def certificate(self, k: int, run: Run) -> None:
        """Report the certificate of problem ``k``, fresh from a closed pass."""
        found = run.certificate
        assert found is not None
        values = {"primal": found.primal, "dual": found.dual, "gap": found.gap, "exact": found.exact}
        values["rounding"] = found.rounding
        self._event("pass", {"pass": self._training.passes, "problem": k, **values, "facts": found.facts})

    def _event(self, event: str, facts: dict[str, Any]) -> None:
        memory = anonymous_bytes()
        self._training.peak = max(self._training.peak, memory)
        self._report({"event": event, **facts, "seconds": self.stopwatch.seconds, "memory": memory})
