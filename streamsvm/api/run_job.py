"""Run a job for a Python caller: progress, callbacks with a record of each pass, and interruption by Ctrl-C.

The process belongs to the caller, such as a notebook. Therefore only Ctrl-C is handled, only in the main thread and only while the job
runs: the job saves its state and raises InterruptedRun, and the previous signal handler is restored.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamsvm.api.callbacks import OnEvent, OnPass, open_job_report, report_passes
from streamsvm.api.wording import to_python
from streamsvm.config.options import Checked
from streamsvm.engine.signals import allow_interrupt
from streamsvm.errors import StreamSVMWarning
from streamsvm.jobs import JobResult
from streamsvm.types import Report
from streamsvm.working_copies import run_with_copies


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
