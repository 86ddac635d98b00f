"""What a training tells while it goes on; every event carries the seconds since it began and the memory held."""

from __future__ import annotations

import time
from typing import Any

from streamsvm.engine.training import Run, Training
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.types import Report

REPORT_SECONDS = 0.2


class Stopwatch:
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


class ProgressReporter:
    """Tells ``report`` of ``training``, and notes the training's peak of memory by the way."""

    def __init__(self, training: Training, report: Report) -> None:
        self._training, self._report = training, report
        self.pace = Stopwatch()

    def rows(self, seen: int, of: int) -> None:
        """So many rows of this pass are done; told when it is time."""
        if self.pace.due():
            self._tell("progress", {"pass": self._training.passes + 1, "rows": seen, "of": of})

    def certificate(self, k: int, run: Run) -> None:
        """The certificate of problem ``k``, fresh from a closed pass."""
        found = run.certificate
        assert found is not None
        values = {"primal": found.primal, "dual": found.dual, "gap": found.gap, "exact": found.exact}
        self._tell("pass", {"pass": self._training.passes, "problem": k, **values, "facts": found.facts})

    def _tell(self, event: str, facts: dict[str, Any]) -> None:
        memory = anonymous_bytes()
        self._training.peak = max(self._training.peak, memory)
        self._report({"event": event, **facts, "seconds": self.pace.seconds, "memory": memory})
