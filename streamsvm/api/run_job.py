"""Run jobs of a program: silently unless asked, ended by Ctrl-C with a way to resume, with one record per pass for callbacks.

A notebook's process belongs to its user. So only Ctrl-C is handled, only in the main thread and only while the job runs; the job saves
its state and raises InterruptedRun, and the former handler is restored.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from streamsvm.aliases import JsonObject
from streamsvm.api.wording import to_python
from streamsvm.config.options import Checked
from streamsvm.display.terminal import open_notebook_report
from streamsvm.engine.loop import end_fit
from streamsvm.engine.signals import allow_interrupt
from streamsvm.errors import StreamSVMWarning
from streamsvm.jobs import JobResult
from streamsvm.types import Report, silent

OnPass = Callable[[JsonObject], object]
"""Takes the record of a pass. If it returns True the fit ends after one more pass, which certifies; other values have no effect."""
WORST_GAP_FIELDS = ("problem", "primal", "dual", "gap", "rounding")
"""Fields of a record that are those of the problem with the largest gap."""
LAST_FIELDS = ("seconds", "waited", "memory", "bytes_read")
"""Fields of a record that are those of the last problem: seconds and bytes spent so far."""


class PassRecords:
    """Collects the events of a fit into one record per pass, which ``on_pass`` gets as soon as the last problem is closed.

    A record is plain JSON: ``pass`` (from 1), ``problems`` (how many were open), ``problem``, ``primal``, ``dual``, ``gap``
    and ``rounding`` of the one with the largest gap, ``exact`` (whether all gaps are proved), ``seconds``, ``waited``,
    ``memory`` and ``bytes_read``.
    """

    def __init__(self, on_pass: OnPass) -> None:
        self._on_pass = on_pass
        self._closed: list[JsonObject] = []
        self._open = 0
        """Problems of this pass that are not closed yet, without the current one."""

    def __call__(self, event: JsonObject) -> None:
        """Process an event of a fit."""
        if "closing" in event:
            self._open = event["problems"] - event["closing"]
        elif event["event"] == "pass":
            self._closed.append(event)
            if not self._open:
                record, self._closed = merge_events(self._closed), []
                if self._on_pass(record) is True:
                    end_fit()


def merge_events(closed: list[JsonObject]) -> JsonObject:
    """Return the record of a pass from the events of its problems."""
    worst, last = max(closed, key=lambda event: event["gap"]), closed[-1]
    found = {"pass": last["pass"], "problems": len(closed), "exact": all(event["exact"] for event in closed)}
    return found | {name: worst[name] for name in WORST_GAP_FIELDS} | {name: last[name] for name in LAST_FIELDS}


def report_passes(report: Report, on_pass: OnPass) -> Report:
    """Return a report that also calls ``on_pass`` with the record of each pass."""
    records = PassRecords(on_pass)

    def both(event: JsonObject) -> None:
        report(event)
        records(event)

    return both


OnEvent = Callable[[JsonObject], object]
"""Takes the events of a job; its return value is ignored."""


def run_job(
    action: Callable[[Any, Report], JobResult],
    job: Checked,
    step: str,
    *,
    progress: bool,
    on_event: OnEvent | None,
    on_pass: OnPass | None = None,
) -> Any:
    """Run a job of a command as the command does. Raises and warns as it does, in words of Python."""
    from streamsvm.schedule.budget import check_addresses, check_groups

    check_addresses()
    if hasattr(job, "memory"):
        check_groups()
    with open_job_report(progress=progress, on_event=on_event) as report, allow_interrupt():
        result = action(job, report if on_pass is None else report_passes(report, on_pass))
    if result.failure is not None:
        raise result.failure
    result = replace(
        result,
        warnings=tuple(to_python(text, step) for text in result.warnings),
        notices=tuple(to_python(text, step) for text in result.notices),
    )
    for warning in result.warnings:
        warnings.warn(warning, StreamSVMWarning, stacklevel=3)
    return result


@contextmanager
def open_job_report(*, progress: bool, on_event: OnEvent | None) -> Iterator[Report]:
    """Provide the report of a job: a bar, a caller's function, both, or none."""
    with open_notebook_report() if progress else _open_silent_report() as shown:
        if on_event is None:
            yield shown
            return

        def both(event: JsonObject) -> None:
            shown(event)
            on_event(event)

        yield both


@contextmanager
def _open_silent_report() -> Iterator[Report]:
    yield silent
