"""fit of files: a raw table in, a certified and evaluated model out, in one command.

The files are ingested once, into a store that is kept beside the model and used again by later fits of the same files:
the cache. Raw tables have defaults of their own, each of which is reported and can be undone by an option: missing
values are filled and marked, rows without a label are left out and counted, numbers are standardized, and a tenth of
the rows is held out to evaluate the model on. Arrays and svmlight, which programs have written, keep the strict
defaults of ``ingest``: a missing number there is more likely a mistake than a fact.

**The cache is never silently out of date.** It records what it was made of before the first byte was read: the settings,
the version of the program, and path, size and time of each file. A file that looks the same is taken to be the same,
unless it was written so shortly before that its time cannot tell, or is a folder of arrays; then, and where only path or
time differ, the sha256 of its bytes decides. Anything else makes the cache anew. A store that was not made by a fit is never replaced.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from streamsvm import __version__
from streamsvm.aliases import JsonObject
from streamsvm.config.options import field_values, options_of
from streamsvm.config.settings import format_command
from streamsvm.config.units import percent
from streamsvm.engine.executor import Executor
from streamsvm.errors import DataError, ExistsError, StreamSVMError, UsageError, quote
from streamsvm.input_files import is_folder, is_there
from streamsvm.jobs import JobResult
from streamsvm.jobs.apply.evaluate import evaluate
from streamsvm.jobs.apply.options import EvaluateJob
from streamsvm.jobs.apply.rows import is_store
from streamsvm.jobs.fit.driver import FitResult, fit
from streamsvm.jobs.fit.options import ERROR, HELD_OUT, INDICATOR, NO_PAGE, SKIP, FitFilesJob, FitJob
from streamsvm.jobs.fit.outputs import path_names
from streamsvm.jobs.ingest.options import CacheIngestJob, IngestJob
from streamsvm.jobs.ingest.run import CACHE, ingest_sources, rejects_path, settings_of
from streamsvm.jobs.without_effect import without_effect
from streamsvm.outputs import MODEL, PAGE, Output, claim, output_path
from streamsvm.store.format import manifest as manifests
from streamsvm.store.sources import form_of, open_source
from streamsvm.store.sources.bad_lines import SKIPPED
from streamsvm.store.sources.byte_stream import STANDARD_INPUT
from streamsvm.store.sources.description import guess_label
from streamsvm.store.sources.files import expand
from streamsvm.store.sources.hdf5_zarr import digest_of_tree
from streamsvm.store.sources.missing import FILLED
from streamsvm.store.sources.options import TABLES
from streamsvm.store.sources.source import UNLABELED
from streamsvm.store.sources.table import TableSource
from streamsvm.tasks import REGRESSION
from streamsvm.types import Report, silent

CLOCK_NANOSECONDS = 2_000_000_000
"""A file that was written so shortly before it was read may have been written again with the same time."""
NO_LABEL = "none"
"""The value of --label for no label."""
IngestRows = Callable[[IngestJob, Report], JobResult]
"""Writes rows of a program to the store of a job."""


class Cached(NamedTuple):
    """The rows of files as a store."""

    job: IngestJob
    """What the store is made by."""
    table: bool
    """Whether the files are tables."""
    facts: JsonObject
    """Of its manifest."""
    rows: int
    notices: tuple[str, ...]
    """Of its ingest; empty where it was there already."""
    kept: bool = True
    """Whether it is there after the fit."""

    @property
    def test_store(self) -> Path | None:
        """The store of the rows that are held out; None where none are."""
        return self.job.test_path() if self.job.holds_out else None


def fit_files(job: FitFilesJob, report: Report = silent, executor: Executor | None = None) -> FitResult:
    """Fit a store, or files: these are ingested, unless a store of them is there, and the model is evaluated on rows
    that were held out.

    Raises what ``ingest``, ``fit`` and ``evaluate`` raise, UsageError for tables without a label.
    """
    if not job.is_of_files:
        result = fit(job.store_job(job.store), report, executor)
        return replace(result, notices=(*result.notices, *without_effect(job, _idle_on_stores())))
    (asked, table), command = plan_ingest(job), partial(format_command, "fit", job)
    job = replace(job, report=page_of(job))
    _check_outputs(job)
    try:
        cached = cache_files(asked, report, executor, table=table)
    except DataError as error:
        from streamsvm.jobs.ingest.describe import add_problems

        add_problems(error, asked, report, command)
        raise
    return fit_cached(job, cached, report, executor)


def fit_cached(
    job: FitFilesJob, cached: Cached, report: Report = silent, executor: Executor | None = None
) -> FitResult:
    """Fit the rows of files, which lie in a store, and evaluate the model on those that were held out."""
    report({"event": "files", "decided": list(describe_decisions(job, cached))})
    given = job if cached.kept else None  # rows of a program are not there again
    of_store = job_of_cache(job, cached)
    result = fit(of_store, report, executor, given)
    reported = (UNLABELED, FILLED, SKIPPED)  # among the decisions
    notices = [*(notice for notice in cached.notices if not any(what in notice for what in reported)), *result.notices]
    if cached.test_store is not None and not job.one_class:
        model, data = str(_best_path(job, result)), (str(cached.test_store),)
        asked = EvaluateJob(model=model, data=data, memory=job.memory, threads=job.threads)
        evaluated = evaluate(asked, report)
        report({"event": "evaluation", **evaluated.facts()})
        result = replace(result, evaluation=evaluated)
        notices += evaluated.notices
        if of_store.report is not None:  # drawn before without these figures
            from streamsvm.jobs.report import write_page

            write_page([result.run], output_path(of_store.report))
    return replace(result, notices=tuple(notices))


def fit_rows(job: FitFilesJob, ingest_rows: IngestRows, report: Report = silent, *, table: bool) -> FitResult:
    """Fit rows of a program, which ``ingest_rows`` writes to the store that the job names; ``table``: as a raw table,
    of which a part is held out, and not as arrays.
    """
    asked = job.ingest_job((), Path(job.store), table=table, held_out=HELD_OUT if table else 0.0)
    made = ingest_rows(asked, report)
    there = manifests.read(asked.store)
    cached = Cached(asked, table, there.facts, there.layout().rows, made.notices, kept=False)
    return fit_cached(job, cached, report)


def job_of_store(job: FitFilesJob) -> FitJob:
    """Return the fit of the store of a job, or of the one that was made of its files. Raises UsageError where there is
    none yet.
    """
    if not job.is_of_files:
        return job.store_job(job.store)
    asked, table = plan_ingest(job)
    return job_of_cache(job, read_cache(asked, table=table))


def job_of_cache(job: FitFilesJob, cached: Cached | None) -> FitJob:
    """Return the fit of the store that was made of the files of a job. Raises UsageError where there is none."""
    if cached is None:
        raise UsageError(
            f"{job.store} is not ingested yet, and a plan needs to know its rows",
            hint="fit it, or ingest it and plan the fit of the store",
        )
    return job.store_job(cached.job.store, table=cached.table)


def page_of(job: FitFilesJob) -> str | None:
    """Return where the page of a fit of files is drawn; None where it is not."""
    if job.report is None:
        return str(Path(job.model).with_suffix(".html"))
    return None if job.report == NO_PAGE else job.report


def _idle_on_stores() -> Mapping[str, Sequence[str]]:
    """The options that say how files are read, by the reason why they have no effect."""
    of_files = {field.name for field in options_of(FitFilesJob)} - {field.name for field in options_of(FitJob)}
    return {"a store is fitted, whose rows are as they were ingested": sorted(of_files)}


def _check_outputs(job: FitFilesJob) -> None:
    """Raise ExistsError before the files are read for a model that must not be replaced."""
    costs = list(job.C) if isinstance(job.C, tuple) else [1.0]
    if not job.resume:
        outputs = [Output(path, MODEL) for path in path_names(Path(job.model), costs).values()]
        outputs += [] if job.report is None else [Output(Path(job.report), PAGE)]
        claim(outputs, overwrite=job.overwrite)


def _best_path(job: FitFilesJob, result: FitResult) -> Path:
    """The file of the model that the result is of."""
    paths = path_names(Path(job.model), list(result.models))
    return next(paths[C] for C, model in result.models.items() if model is result.model)


# -- the cache ---------------------------------------------------------------------------------------------------------


def cache_files(asked: IngestJob, report: Report = silent, executor: Executor | None = None, *, table: bool) -> Cached:
    """Return the store of an ingest: the one that is there, if it is of these files as they are now, or a new one.

    Raises ExistsError for a store that no fit has made, and what ``ingest`` raises.
    """
    found = read_cache(asked, table=table)
    if found is not None:
        return found
    for path in asked.targets():
        if is_there(path) and not _is_cache(path):
            raise ExistsError(f"{path} is there already, and no fit has made it", hint="pass --cache PATH")
    values = field_values(asked, (field.name for field in options_of(IngestJob))) | {"overwrite": True}
    made = ingest_sources(CacheIngestJob(**values, contents=describe_contents(asked)), report, executor)
    there = manifests.read(asked.store)
    return Cached(asked, table, there.facts, made.rows, made.notices)


def plan_ingest(job: FitFilesJob) -> tuple[IngestJob, bool]:
    """Return the ingest of the files of a job, and whether they are tables. Raises MissingError, DataError, UsageError
    for a table without a label.
    """
    sources = expand((job.store, *job.more))
    piped = STANDARD_INPUT in map(str, sources)
    form = "csv" if piped and job.format == "auto" else form_of(sources, job.format)
    name = "standard-input" if piped else sources[0].name
    place = Path(job.model or name).with_name(f"{name}.zarr") if job.cache is None else Path(job.cache)
    asked = job.ingest_job(sources, output_path(place), table=form in TABLES).with_schema()
    if form in TABLES and asked.label is None and not piped:
        raise UsageError(f"which column of {sources[0]} is the label?", hint=propose_label(job, asked))
    return asked, form in TABLES


def propose_label(job: FitFilesJob, asked: IngestJob) -> str:
    """Return the command that fits the files of a job with the label that they most likely have, for a hint."""
    options = replace(asked.options(), label=NO_LABEL, missing=ERROR, on_bad_line=SKIP)
    options = replace(options, undecided={}, offsets=(), most_counted=0)
    source = open_source(asked.sources, options)
    assert isinstance(source, TableSource)
    guess = guess_label(source)
    shown = ", ".join(quote(value, 24) for value in guess.values)
    task = {"task": REGRESSION} if guess.regression else {}
    command = format_command("fit", job, label=guess.name, **task)
    return f"perhaps {quote(guess.name)} ({shown}, ...): {command}"


def missing_model(job: FitFilesJob) -> UsageError:
    """Return the error for a fit of which no model is named, with the command for ``job``, which has a name for it."""
    if not job.is_of_files:
        return UsageError("no file is named for the model", hint=format_command("fit", job))
    try:
        plan_ingest(job)
    except UsageError as error:
        return error
    return UsageError("no file is named for the model", hint=format_command("fit", job))


def describe_contents(job: IngestJob) -> JsonObject:
    """Return what the store of an ingest is made of, as plain JSON: settings, version and files as the disk knows them."""
    settings = {name: value for name, value in settings_of(job).items() if name != "sources"}
    files = [[str(path.resolve()), found.st_size, found.st_mtime_ns] for path in _files(job) for found in [path.stat()]]
    return {"settings": settings, "version": __version__, "at": time.time_ns(), "files": files}


def read_cache(job: IngestJob, *, table: bool) -> Cached | None:
    """Return the store that is there if it is made of the same files by the same settings; None if not."""
    try:
        there = [manifests.read(path) for path in job.targets()]
    except StreamSVMError:
        return None
    then, now = there[0].facts.get(CACHE), json.loads(json.dumps(describe_contents(job)))
    if then is None or any(other.facts.get(CACHE) != then for other in there):
        return None
    if (then["settings"], then["version"]) != (now["settings"], now["version"]):
        return None
    if not _files(job) or not _are_same_files(then, now, there[0].facts["sources"]):
        return None
    return Cached(job, table, there[0].facts, there[0].layout().rows, ())


def _files(job: IngestJob) -> list[Path]:
    """The files of an ingest, without standard input, which cannot be read again."""
    return [path for path in job.sources if str(path) != STANDARD_INPUT]


def _are_same_files(then: JsonObject, now: JsonObject, recorded: Sequence[JsonObject]) -> bool:
    """Whether the files are those that a store is made of, by size, and by path and time or by their bytes."""
    if [size for _, size, _ in then["files"]] != [size for _, size, _ in now["files"]]:
        return False
    times_tell = all(
        changed < then["at"] - CLOCK_NANOSECONDS and not is_folder(Path(path)) for path, _, changed in then["files"]
    )
    if times_tell and then["files"] == now["files"]:
        return True
    digests = [source["sha256"] for source in recorded]
    return all(digests) and digests == [digest_of_tree(Path(path)) for path, _, _ in now["files"]]


def _is_cache(path: Path) -> bool:
    """Whether a path is a store that a fit has made of files, or what is left of one that was stopped."""
    try:
        return CACHE in manifests.read(path).facts
    except StreamSVMError:
        return is_store(path) and not (path / manifests.FILE).exists()


# -- what is reported --------------------------------------------------------------------------------------------------


def describe_decisions(job: FitFilesJob, cached: Cached) -> Iterator[str]:
    """Yield a line for each decision that a user has not made, with the option that undoes it."""
    noticed, asked = cached.facts.get("notices", {}), cached.job
    if filled := noticed.get(FILLED):
        yield f"missing values: {filled} {_describe_filling(job, asked)}"
    if unlabeled := noticed.get(UNLABELED):
        yield f"labels: {unlabeled} rows without one are left out; --missing-label error refuses them"
    if rejected := cached.facts.get("rejected"):
        undo = "; --on-bad-line error refuses them" if job.on_bad_line is None else ""
        yield f"bad lines: {rejected} are left out, listed in {rejects_path(asked.store)}{undo}"
    if asked.holds_out:
        held = manifests.read(asked.test_path()).layout().rows
        yield f"held out: {held} of {held + cached.rows} rows, {_describe_hold_out(job)}"
    yield from _describe_fit(job, asked, table=cached.table, kept=cached.kept)


def describe_defaults(job: FitFilesJob, asked: IngestJob, *, table: bool) -> Iterator[str]:
    """Yield the decisions of a fit of files that have not been read; see ``describe_decisions``."""
    if asked.missing != ERROR:
        yield f"missing values: {_describe_filling(job, asked)}"
    if table and asked.missing_label == SKIP:
        yield "labels: rows without one are left out; --missing-label error refuses them"
    if asked.on_bad_line == SKIP:
        undo = "; --on-bad-line error refuses them" if job.on_bad_line is None else ""
        yield f"bad lines: up to {asked.max_bad} of all are left out, and listed in {rejects_path(asked.store)}{undo}"
    if asked.holds_out:
        share = percent(asked.test_fraction, 3) if asked.test_fraction else "some"
        yield f"held out: {share} of the rows, {_describe_hold_out(job)}"
    yield from _describe_fit(job, asked, table=table, kept=True)


def _describe_filling(job: FitFilesJob, asked: IngestJob) -> str:
    done = f"filled: {asked.missing}"
    if asked.missing == INDICATOR:
        done = "filled with 0 and marked by columns of their own"
    return done + ("; --missing error, mean or zero does otherwise" if job.missing is None else "")


def _describe_hold_out(job: FitFilesJob) -> str:
    undo = "; --test-fraction 0 trains on all" if job.test_fraction is None and not job.split_after else ""
    return f"to evaluate the model on{undo}"


def _describe_fit(job: FitFilesJob, asked: IngestJob, *, table: bool, kept: bool) -> Iterator[str]:
    if table and job.standardize is None:
        yield "numbers: given mean 0 and standard deviation 1; --no-standardize leaves them as they are"
    if kept:
        elsewhere = "; --cache PATH keeps them elsewhere" if job.cache is None else ""
        yield f"rows: kept in {asked.store} for later fits of these files{elsewhere}"
