"""The log of a run, ``events.jsonl``: what happened when, in so few lines that a week of it can be read and drawn.

Every event is written as it comes but for those of progress, which come five times a second: of these, one is written when
a hundredth of the time that the run has taken has passed since the last one. So n lines reach over a time that grows
like 1.01^n: a thousand or two for a week.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from streamsvm import __version__, durable
from streamsvm.aliases import JsonObject
from streamsvm.errors import StreamSVMError
from streamsvm.types import Report

SHARE = 0.01
"""Of the time that has passed: less than this after one event of progress, the next one is not written."""


class Thinning:
    """Chooses which events of progress are written."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def keeps(self, event: JsonObject) -> bool:
        """Whether the event is to be written; of those without seconds, all are."""
        seconds = event.get("seconds")
        if event["event"] != "progress" or seconds is None:
            return True
        if 0 <= seconds - self._last < SHARE * seconds:
            return False
        self._last = seconds
        return True


@contextmanager
def run_log(report: Report, path: Path, began: JsonObject) -> Iterator[Callable[[JsonObject], None]]:
    """Send every event to the caller and to the run's log, which begins with ``began`` and says how a run was cut short."""
    thinning = Thinning()
    with durable.open_log(path) as log:

        def record(event: JsonObject) -> None:
            if thinning.keeps(event):
                log.write(json.dumps(event) + "\n")
            report(event)

        log.write(json.dumps({"event": "began", "at": now(), **began, "machine": machine()}) + "\n")
        try:
            yield record
        except StreamSVMError as error:
            stopped = {"event": "stopped", "code": error.code, "message": error.message, "hint": error.hint}
            log.write(json.dumps(stopped) + "\n")
            raise


def now() -> str:
    """The time by the clock on the wall, UTC: '2026-11-22 15:50:07'."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")


def machine() -> JsonObject:
    """What a run was made with, as plain JSON: version, Python, processor and how many of them."""
    return {
        "streamsvm": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)),
    }
