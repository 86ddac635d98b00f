"""tune of files: the rows of a raw table, as ``fit`` reads and keeps them, and a search on those that are not held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from streamsvm.config.options import options_of
from streamsvm.engine.executor import Executor
from streamsvm.jobs.file_cache import CachedRows, IngestRows, cache_files, describe_decisions
from streamsvm.jobs.ingest.options import HELD_OUT, NO_PAGE
from streamsvm.jobs.tune.options import TuneFilesJob, TuneJob
from streamsvm.jobs.tune.run import TuneResult, tune
from streamsvm.jobs.without_effect import without_effect
from streamsvm.outputs import PAGE, SEARCH, Output, claim, output_path
from streamsvm.store.format import manifest as manifests
from streamsvm.types import Report, silent


def tune_files(job: TuneFilesJob, report: Report = silent, executor: Executor | None = None) -> TuneResult:
    """Search on a store, or on files: these are ingested, unless a store of them is there.

    The rows that ``fit`` holds out of the same files have no part in the search, so that they say how good the model
    of its best settings is. Raises what ``ingest`` and ``tune`` raise, UsageError for tables without a label.
    """
    if not job.is_of_files:
        result = tune(job.store_job(job.store), report, executor)
        return replace(result, notices=(*result.notices, *without_effect(job, _idle_on_stores())))
    page = page_of(job)
    outputs = [Output(output_path(job.out), SEARCH, continues=True)]
    outputs += [] if page is None else [Output(output_path(page), PAGE, continues=True)]
    claim(outputs, overwrite=job.overwrite)
    return _tune_cached(job, cache_files("tune", job, report, executor), report, executor)


def tune_rows(job: TuneFilesJob, ingest_rows: IngestRows, report: Report = silent, *, table: bool) -> TuneResult:
    """Search on rows of a program, which ``ingest_rows`` writes to the store that the job names; see ``fit_rows``."""
    asked = job.ingest_job((), Path(job.store), table=table, held_out=HELD_OUT if table else 0.0)
    made = ingest_rows(asked, report)
    there = manifests.read(asked.store)
    cached = CachedRows(asked, table, there.facts, there.layout().rows, made.notices, kept=False)
    return _tune_cached(job, cached, report)


def _tune_cached(
    asked: TuneFilesJob, cached: CachedRows, report: Report, executor: Executor | None = None
) -> TuneResult:
    """Search on the rows of files, which lie in a store."""
    decided = list(describe_decisions(asked, cached))
    if asked.report is None and cached.kept:
        decided.append(f"page: drawn in {page_of(asked)}; --report none draws none")
    report({"event": "files", "decided": decided})
    job = replace(asked, report=page_of(asked)) if cached.kept else asked
    of_store = job.store_job(cached.job.store, table=cached.table)
    result = tune(of_store, report, executor, job if cached.kept else None)
    return replace(result, notices=(*cached.other_notices(), *result.notices))


def page_of(job: TuneFilesJob) -> str | None:
    """Return where the page of a search on files is drawn; None where it is not."""
    if job.report is None:
        return f"{job.out}.html"
    return None if job.report == NO_PAGE else job.report


def _idle_on_stores() -> Mapping[str, Sequence[str]]:
    """The options that say how files are read, by the reason why they have no effect."""
    of_files = {field.name for field in options_of(TuneFilesJob)} - {field.name for field in options_of(TuneJob)}
    return {"a store is searched, whose rows are as they were ingested": sorted(of_files)}
