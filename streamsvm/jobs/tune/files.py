"""tune of files: ingest them as ``fit`` does, then search on the rows that are not held out."""

from __future__ import annotations

from dataclasses import replace

from streamsvm.engine.executor import Executor
from streamsvm.jobs.default_decisions import describe_decisions
from streamsvm.jobs.file_cache import CachedRows, IngestRows, cache_files, ingest_given_rows, notices_on_store
from streamsvm.jobs.tune.options import TuneFilesJob, TuneJob
from streamsvm.jobs.tune.run import TuneResult, tune
from streamsvm.outputs import PAGE, SEARCH, Output, check_writable, output_path
from streamsvm.types import Report, silent

ON_STORE = "the search is on a store, whose rows were ingested before"
"""The reason why options for files have no effect in a search on a store."""


def tune_files(job: TuneFilesJob, report: Report = silent, executor: Executor | None = None) -> TuneResult:
    """Search on a store, or on files, which are ingested unless their store exists already.

    The search does not use the rows that ``fit`` would hold out from the same files, so that they can be used to
    evaluate the model with the best settings. Raises the errors of ``ingest`` and ``tune``, and UsageError for tables
    without a label.
    """
    if not job.is_of_files:
        result = tune(job.store_job(job.store), report, executor)
        return replace(result, notices=(*result.notices, *notices_on_store(job, TuneJob, ON_STORE)))
    outputs = [Output(output_path(job.out), SEARCH, may_exist=True)]
    outputs += [] if job.page is None else [Output(output_path(job.page), PAGE, may_exist=True)]
    check_writable(outputs, overwrite=job.overwrite)
    return _tune_cached(job, cache_files("tune", job, report, executor), report, executor)


def tune_rows(
    job: TuneFilesJob, ingest_rows: IngestRows, report: Report = silent, *, table: bool, given_bytes: int | None
) -> TuneResult:
    """Search on rows of a program, which ``ingest_rows`` writes to the store that the job names (as ``fit_rows``
    does).
    """
    return _tune_cached(job, ingest_given_rows(job, ingest_rows, report, table=table, given_bytes=given_bytes), report)


def _tune_cached(
    asked: TuneFilesJob, cached: CachedRows, report: Report, executor: Executor | None = None
) -> TuneResult:
    """Search on the store made from files. ``asked``: the job that the user gave."""
    report({"event": "files", "decided": list(describe_decisions(asked, cached))})
    job = replace(asked, report=asked.page) if cached.kept else asked
    of_store = job.store_job(cached.job.store, table=cached.table)
    result = tune(of_store, report, executor, job if cached.kept else None)
    return replace(result, notices=(*cached.other_notices(), *result.notices))
