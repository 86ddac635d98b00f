"""A job of a program's: checked as one of the command line, run silently unless asked, ended by Ctrl-C with a way to go on.

A notebook's process belongs to its user. So only Ctrl-C is listened to, only in the main thread and only while the job
runs; the job saves its state and raises InterruptedRun, and what listened before listens again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streamsvm.aliases import JsonObject
from streamsvm.api.passes import OnPass, told
from streamsvm.config.checks import Checked
from streamsvm.display.terminal import open_notebook_report
from streamsvm.engine.signals import interruptible
from streamsvm.errors import StreamSVMWarning
from streamsvm.jobs import JobResult
from streamsvm.types import Report, silent

OnEvent = Callable[[JsonObject], object]
"""Takes the events of a job; what it returns is not looked at."""


def run_job(
    action: Callable[[Any, Report], JobResult],
    job: Checked,
    *,
    progress: bool,
    on_event: OnEvent | None,
    on_pass: OnPass | None = None,
) -> Any:
    """Run a job as its command does. Raises what the command ends with; warns of what it warns of."""
    from streamsvm.schedule.budget import check_addresses, check_groups

    check_addresses()
    if hasattr(job, "memory"):
        check_groups()
    with reported(progress=progress, on_event=on_event) as report, interruptible():
        result = action(job, report if on_pass is None else told(report, on_pass))
    if result.failure is not None:
        raise result.failure
    for warning in result.warnings:
        warnings.warn(warning, StreamSVMWarning, stacklevel=3)
    return result


@contextmanager
def reported(*, progress: bool, on_event: OnEvent | None) -> Iterator[Report]:
    """Give the report of a job: a bar, a caller's function, both, or nobody."""
    with open_notebook_report() if progress else _nobody() as shown:
        if on_event is None:
            yield shown
            return

        def both(event: JsonObject) -> None:
            shown(event)
            on_event(event)

        yield both


@contextmanager
def _nobody() -> Iterator[Report]:
    yield silent
