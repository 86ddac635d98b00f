"""Reports of progress: what the events of a fit hold, and how often they are sent; the stopwatch of all jobs."""

from __future__ import annotations

import time

from streamsvm.aliases import JsonObject
from streamsvm.engine.fit_state import ProblemRun, Training
from streamsvm.schedule.machine import anonymous_bytes
from streamsvm.types import Report

REPORT_SECONDS = 0.2
"""Least seconds between two reports of progress."""


class Stopwatch:
    """Measures seconds since its creation, and limits how often progress is reported."""

    def __init__(self) -> None:
        self.began = self._last = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since creation."""
        return time.perf_counter() - self.began

    def due(self) -> bool:
        """Return whether REPORT_SECONDS have passed since this last returned True."""
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

    def closing(self, number: int, of: int) -> None:
        """Report that a pass is being closed for problem ``number``, from 1, of several: that may take longer than to
        read.
        """
        if of > 1:
            self._event("progress", {"pass": self._training.passes, "closing": number, "problems": of})

    def certificate(self, k: int, run: ProblemRun) -> None:
        """Report the certificate of problem ``k``, fresh from a closed pass."""
        found = run.certificate
        assert found is not None
        values = {"primal": found.primal, "dual": found.dual, "gap": found.gap, "exact": found.exact}
        values["rounding"] = found.rounding
        self._event("pass", {"pass": self._training.passes, "problem": k, **values, "facts": found.facts})

    def _event(self, event: str, facts: JsonObject) -> None:
        memory = anonymous_bytes()
        self._training.peak = max(self._training.peak, memory)
        spent = {"waited": self._training.waited, "bytes_read": self._training.bytes_read}
        self._report({"event": event, **facts, "seconds": self.stopwatch.seconds, "memory": memory, **spent})
