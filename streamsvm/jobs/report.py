"""report: what runs have recorded in, a page to show out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamsvm import durable
from streamsvm.display.page import build_page
from streamsvm.display.read_record import read_run
from streamsvm.errors import UsageError
from streamsvm.jobs import JobResult
from streamsvm.jobs.common_options import ReportJob
from streamsvm.outputs import PAGE, Output, claim, output_path
from streamsvm.types import Report, silent


@dataclass(frozen=True, slots=True, repr=False)
class ReportResult(JobResult):
    """A page, and how large it is."""

    out: Path
    """Where it lies."""
    runs: int
    """How many runs it tells of."""
    bytes: int
    """Its size."""


def report(job: ReportJob, _report: Report = silent) -> ReportResult:
    """Draw what runs have left. Raises MissingError, DataError for what is no run, UsageError, ExistsError,
    StorageError.
    """
    if not job.runs:
        raise UsageError("there is no run to report on", hint="name a model and the page: report model.ssvm page.html")
    out = output_path(job.out)
    claim([Output(out, PAGE)], job.runs, overwrite=job.overwrite)
    return write_page(list(map(Path, job.runs)), out)


def write_page(runs: list[Path], out: Path) -> ReportResult:
    """Write the page of these runs, whatever lies at ``out``; see ``report``."""
    page = build_page([read_run(run) for run in runs]).encode()
    durable.write_file(out, page)
    return ReportResult(out, len(runs), len(page))
