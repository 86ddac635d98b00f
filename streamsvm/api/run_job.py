"""Run a job for a Python caller: progress, callbacks with a record of each pass, and interruption by Ctrl-C.

The process belongs to the caller, such as a notebook. Therefore only Ctrl-C is handled, only in the main thread and only while the job
runs: the job saves its state and raises InterruptedRun, and the previous signal handler is restored.
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
from streamsvm.working_copies import run_with_copies

OnPass = Callable[[JsonObject], object]
"""A callback with the record of a pass. If it returns True, the fit ends after one more pass, which computes the certificate."""
WORST_GAP_FIELDS = ("problem", "primal", "dual", "gap", "rounding")
"""Fields of a record that are taken from the problem with the largest gap."""
LAST_FIELDS = ("seconds", "waited", "memory", "bytes_read")
"""Fields of a record that are taken from the last problem: totals so far."""


class PassRecords:
    """Merges the events of a pass, one for each problem, into one record, and calls ``on_pass`` with it after the last problem.

    A record is a JSON object: ``pass`` (from 1); ``problems``, the number of problems in the pass; ``problem``, ``primal``, ``dual``,
    ``gap`` and ``rounding`` of the problem with the largest gap; ``exact``, whether the gaps of all problems are certified;
    ``seconds``, ``waited`` (for reads), ``memory`` and ``bytes_read``.
    """

    def __init__(self, on_pass: OnPass) -> None:
        self._on_pass = on_pass
        self._events: list[JsonObject] = []
        """The events of the problems whose pass is closed."""
        self._problems_left = 0
        """Problems whose pass is not closed yet, after the current one."""

    def __call__(self, event: JsonObject) -> None:
        """Process an event of a fit."""
        if "closing" in event:
            self._problems_left = event["problems"] - event["closing"]
        elif event["event"] == "pass":
            self._events.append(event)
            if not self._problems_left:
                record, self._events = merge_events(self._events), []
                if self._on_pass(record) is True:
                    end_fit()


def merge_events(events: list[JsonObject]) -> JsonObject:
    """Return the record of a pass from the events of its problems."""
    worst, last = max(events, key=lambda event: event["gap"]), events[-1]
    record = {"pass": last["pass"], "problems": len(events), "exact": all(event["exact"] for event in events)}
    return record | {name: worst[name] for name in WORST_GAP_FIELDS} | {name: last[name] for name in LAST_FIELDS}


def report_passes(report: Report, on_pass: OnPass) -> Report:
    """Return a report that also calls ``on_pass`` with the record of each pass."""
    records = PassRecords(on_pass)

    def report_both(event: JsonObject) -> None:
        report(event)
        records(event)

    return report_both


OnEvent = Callable[[JsonObject], object]
"""A callback with each event of a job; its return value is ignored."""


def run_job(
    action: Callable[[Any, Report], JobResult],
    job: Checked,
    step: str,
    *,
    progress: bool,
    on_event: OnEvent | None,
    on_pass: OnPass | None = None,
) -> Any:
    """Run a job and return its result. Errors are raised and warnings are issued with options spelled as parameters.

    ``action`` runs the job; ``step`` is the name of its command.
    """
    from streamsvm.schedule.budget import check_addresses, check_groups

    check_addresses()
    if hasattr(job, "memory"):
        check_groups()
    with open_job_report(progress=progress, on_event=on_event) as report, allow_interrupt():
        result = run_with_copies(action, job, report if on_pass is None else report_passes(report, on_pass))
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
    """Provide the report to which a job sends its events: a progress bar, the callback ``on_event``, both, or neither."""
    with open_notebook_report() if progress else _open_silent_report() as bar:
        if on_event is None:
            yield bar
            return

        def report_both(event: JsonObject) -> None:
            bar(event)
            on_event(event)

        yield report_both


@contextmanager
def _open_silent_report() -> Iterator[Report]:
    yield silent
