"""Reports of progress: the events of a fit, and how often they are sent. Also the stopwatch of all jobs."""

from __future__ import annotations

import time

from streamsvm.engine.fit_state import ProblemRun, Training
from streamsvm.schedule.machine import anonymous_bytes
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Report

REPORT_SECONDS = 0.2
"""Minimum seconds between two reports of progress."""


class Stopwatch:
    """Measures seconds since its creation, and limits how often progress is reported."""

    def __init__(self) -> None:
        self.began = self._last = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since creation."""
        return time.perf_counter() - self.began

    def due(self) -> bool:
        """Return whether REPORT_SECONDS have passed since the last call that returned True."""
        now = time.perf_counter()
        if now - self._last < REPORT_SECONDS:
            return False
        self._last = now
        return True


class ProgressReporter:
    """Reports on a training, and updates its peak of memory at every report."""

    def __init__(self, training: Training, report: Report) -> None:
        self._training, self._report = training, report
        self.stopwatch = Stopwatch()

    def report_rows(self, visited: int, total: int) -> None:
        """Report the number of rows visited in the current pass, unless the last report was sent shortly before."""
        if self.stopwatch.due():
            self._event("progress", {"pass": self._training.passes + 1, "rows": visited, "of": total})

    def report_problem(self, position: int, total: int) -> None:
        """Report that, at the end of a pass, work on problem number ``position`` (from 1) of ``total`` begins.

        This work may take longer than reading the rows. No report is sent for a single problem.
        """
        if total > 1:
            self._event("progress", {"pass": self._training.passes, "closing": position, "problems": total})

    def report_certificate(self, k: int, run: ProblemRun) -> None:
        """Report the certificate of problem ``k`` after a pass was closed."""
        certificate = run.certificate
        assert certificate is not None
        values = {
            "primal": certificate.primal,
            "dual": certificate.dual,
            "gap": certificate.gap,
            "exact": certificate.exact,
            "rounding": certificate.rounding,
        }
        self._event("pass", {"pass": self._training.passes, "problem": k, **values, "facts": certificate.facts})

    def _event(self, event: str, facts: JsonObject) -> None:
        memory = anonymous_bytes()
        self._training.peak = max(self._training.peak, memory)
        costs = {"waited": self._training.read_wait_seconds, "bytes_read": self._training.bytes_read}
        self._report({"event": event, **facts, "seconds": self.stopwatch.seconds, "memory": memory, **costs})
