"""fit of files: train a certified model on a raw table, and evaluate it, in one command.

The files are ingested into a store, which is kept for later runs (``jobs.file_cache``). The model is evaluated on
held-out rows, and the page of the run is written.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from streamsvm.engine.checkpoint import CheckpointDirectory
from streamsvm.engine.executor import Executor
from streamsvm.errors import ConfigError, StreamSVMError, UsageError
from streamsvm.jobs.default_decisions import describe_decisions
from streamsvm.jobs.file_cache import (
    CachedRows,
    IngestRows,
    cache_files,
    caches_of,
    describe_change,
    ingest_given_rows,
    notices_on_store,
    plan_ingest,
    read_cache,
)
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.options import FitFilesJob, FitJob
from streamsvm.jobs.fit.outputs import paths_by_C, run_folder
from streamsvm.jobs.fit.validate import open_training_store
from streamsvm.outputs import MODEL, PAGE, Output, check_writable, output_path
from streamsvm.types import Report, silent

ON_STORE = "the fit is on a store, whose rows were ingested before"
"""The reason why options for files have no effect in a fit on a store."""


def fit_files(job: FitFilesJob, report: Report = silent, executor: Executor | None = None) -> FitResult:
    """Fit a model to a store, or to files. Files are ingested, unless their store exists already, and the model is
    evaluated on held-out rows.

    Raises the errors of ``ingest``, ``fit`` and ``evaluate``, UsageError for tables without a label, and ConfigError if
    the interrupted run to resume had other rows.
    """
    if not job.is_of_files:
        result = fit(job.store_job(job.store), report, executor)
        return replace(result, notices=(*result.notices, *notices_on_store(job, FitJob, ON_STORE)))
    _check_outputs(job)
    if job.resume:
        _check_rows_of_run(job)
    return fit_cached(job, cache_files("fit", job, report, executor, resume=True), report, executor)


def fit_cached(
    asked: FitFilesJob, cached: CachedRows, report: Report = silent, executor: Executor | None = None
) -> FitResult:
    """Fit a model to the store made from files, and evaluate it on the held-out rows."""
    report({"event": "files", "decided": list(describe_decisions(asked, cached))})
    job = replace(asked, report=asked.page) if cached.kept else asked
    job_to_repeat = job if cached.kept else None  # a command cannot repeat the ingest of rows of a program
    of_store = job_of_cache(job, cached)
    result = fit(of_store, report, executor, job_to_repeat, find_rows_to_choose_C(asked, cached))
    notices = [*cached.other_notices(), *result.notices]
    if cached.test_store is not None and not job.one_class:
        from streamsvm.jobs.apply.evaluate import evaluate  # needed where rows are held out only
        from streamsvm.jobs.apply.options import EvaluateJob

        data = (str(cached.test_store),)
        evaluation = EvaluateJob(model=job.model, data=data, memory=job.memory, threads=job.threads)
        evaluated = evaluate(evaluation, report)
        report({"event": "evaluation", **evaluated.facts()})
        result = replace(result, evaluation=evaluated)
        notices += evaluated.notices
        if of_store.report is not None:  # the page was written before the evaluation
            from streamsvm.jobs.report import write_page

            write_page([Path(result.run)], output_path(of_store.report))
    return replace(result, notices=tuple(notices))


def find_rows_to_choose_C(job: FitFilesJob, cached: CachedRows) -> Path | None:
    """Return the store of held-out rows on which the best of several C is chosen; None if it is not chosen on them."""
    chooses = isinstance(job.C, tuple) and len(set(job.C)) > 1 and job.validation is None and not job.one_class
    return cached.test_store if chooses else None


def fit_rows(
    job: FitFilesJob, ingest_rows: IngestRows, report: Report = silent, *, table: bool, given_bytes: int | None
) -> FitResult:
    """Fit a model to rows of a program, which ``ingest_rows`` writes to the store that the job names.

    ``table``: whether the rows are a raw table, of which a part is held out, and not arrays. ``given_bytes``: their
    size; None if it is unknown.
    """
    return fit_cached(job, ingest_given_rows(job, ingest_rows, report, table=table, given_bytes=given_bytes), report)


def job_of_store(job: FitFilesJob) -> FitJob:
    """Return the fit job on the store that a job names, or on the store made from its files. Raises UsageError if there
    is no such store yet.
    """
    if not job.is_of_files:
        return job.store_job(job.store)
    asked, table = plan_ingest("fit", job)
    return job_of_cache(job, read_cache(asked, table=table))


def job_of_cache(job: FitFilesJob, cached: CachedRows | None) -> FitJob:
    """Return the fit job on the store made from the files of a job. Raises UsageError if there is none."""
    if cached is None:
        raise UsageError(
            f"{job.store} is not ingested yet, and a plan depends on its rows",
            hint="fit it, or ingest it and plan the fit of the store",
        )
    return job.store_job(cached.job.store, table=cached.table)


def _check_outputs(job: FitFilesJob) -> None:
    """Raise ExistsError, before the files are read, if the model must not be replaced, or if there is an interrupted
    run.
    """
    if job.resume:
        return
    target, costs = output_path(job.model), list(job.C) if isinstance(job.C, tuple) else [1.0]
    if not job.overwrite:
        _checkpoints(job).check_absent()
    outputs = [Output(path, MODEL) for path in {target, *paths_by_C(target, costs).values()}]
    outputs += [] if job.page is None else [Output(Path(job.page), PAGE)]
    check_writable(outputs, overwrite=job.overwrite)


def _checkpoints(job: FitFilesJob) -> CheckpointDirectory:
    return CheckpointDirectory(run_folder(output_path(job.model)) / "checkpoint")


def _check_rows_of_run(job: FitFilesJob) -> None:
    """Raise ConfigError, before anything is ingested, if files or options have changed since the interrupted run.

    If another run has replaced the store, the rows are ingested again; when the fit begins, they are compared with
    those of the checkpoint.
    """
    saved = _checkpoints(job).read()
    if not saved:
        return
    for asked in caches_of(job):
        try:
            digest = open_training_store(job.store_job(asked.store))[0].digest
        except StreamSVMError:
            continue
        if digest == saved[0].identity["store"]:
            if change := describe_change(asked):
                hint = "resume with the old files and options, or start again with --overwrite in place of --resume"
                raise ConfigError(f"the interrupted fit was made with other rows: {change}", hint=hint)
            return
