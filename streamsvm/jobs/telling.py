"""What a training tells while it goes on; every event carries the seconds since it began and the memory held."""

from __future__ import annotations

from typing import Any

from streamsvm.jobs.pace import Pace
from streamsvm.jobs.runs import Run, Training
from streamsvm.schedule.budget import anonymous_bytes
from streamsvm.types import Report


class Teller:
    """Tells ``report`` of ``training``, and notes the training's peak of memory by the way."""

    def __init__(self, training: Training, report: Report) -> None:
        self._training, self._report = training, report
        self.pace = Pace()

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
