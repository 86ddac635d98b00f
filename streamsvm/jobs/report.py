"""Write the page of recorded runs (``report``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamsvm import durable
from streamsvm.display.page import build_page
from streamsvm.display.read_record import read_run
from streamsvm.errors import UsageError
from streamsvm.jobs import JobResult
from streamsvm.jobs.common_options import ReportJob
from streamsvm.outputs import PAGE, Output, check_writable, output_path
from streamsvm.types import Report, silent


@dataclass(frozen=True, slots=True, repr=False)
class ReportResult(JobResult):
    """The result of ``report``."""

    out: Path | str
    """The path of the page; a text for a URL."""
    runs: int
    """The number of runs on the page."""
    bytes: int
    """The size of the page in bytes."""


def report(job: ReportJob, _report: Report = silent) -> ReportResult:
    """Write the page of the given runs. Raises MissingError, DataError for a path that is not a run, UsageError,
    ExistsError, StorageError.
    """
    if not job.runs:
        raise UsageError("there is no run to report on", hint="name a model and the page: report model.ssvm page.html")
    out = output_path(job.out)
    check_writable([Output(out, PAGE)], job.runs, overwrite=job.overwrite)
    return write_page(list(map(Path, job.runs)), out)


def write_page(runs: list[Path], out: Path) -> ReportResult:
    """Write the page of these runs, and replace the file ``out`` if it exists. Raises the errors of ``report``."""
    page = build_page([read_run(run) for run in runs]).encode()
    durable.write_file(out, page)
    return ReportResult(out, len(runs), len(page))
