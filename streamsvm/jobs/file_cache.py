"""The cache of ``fit`` and ``tune`` on files: a store with the rows of the files, which is kept between runs.

The files are ingested once, into a store beside the output, which later runs on the same files reuse. Raw tables have
special defaults, each of which is reported and can be undone by an option: missing values are filled and marked, rows
without a label are dropped and counted, numeric columns are standardized, and a tenth of the rows is held out to
evaluate the model. Arrays and svmlight files, which are written by programs, keep the strict defaults of ``ingest``,
because a missing number in them is probably a mistake.

**The cache is never silently out of date.** Before the first byte is read, it records its settings, the version of the
program, and the path, size and time of each file, the ETag of an object, or the version of a table. A file with the same path, size and time counts as unchanged, unless
it was written within CLOCK_NANOSECONDS before the cache, or is a folder of arrays. In these cases, and if only path or
time differ, the sha256 of its content decides. If anything else differs, the cache is made again.

**Its name** is FILE.zarr beside the output, or in the working directory if that is at a URL, or FILE.2.zarr, FILE.3.zarr and so on if the names before belong to a cache of other options
or other files, or to a store that is not a cache. Therefore runs with different options do not replace each other's
rows, and a store of the user is never replaced.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from streamsvm import __version__
from streamsvm.config.command_table import format_command
from streamsvm.config.options import OptionValue, field_values, options_of
from streamsvm.engine.executor import Executor
from streamsvm.engine.signals import describe_leftovers
from streamsvm.engine.time_limit import check_time
from streamsvm.errors import DataError, ExistsError, InterruptedRun, StreamSVMError, UsageError, quote
from streamsvm.input_files import find_url, is_folder, is_there
from streamsvm.jobs import JobResult
from streamsvm.jobs.apply.rows import is_store
from streamsvm.jobs.ingest.options import ERROR, HELD_OUT, SKIP, CacheIngestJob, IngestJob
from streamsvm.jobs.ingest.run import CACHE, ingest_sources, settings_of
from streamsvm.jobs.without_effect import notices_on_unused_options
from streamsvm.outputs import output_path
from streamsvm.store.format import manifest as manifests
from streamsvm.store.sources import form_of, open_source
from streamsvm.store.sources.byte_stream import STANDARD_INPUT
from streamsvm.store.sources.files import expand, table_of
from streamsvm.store.sources.hdf5_zarr import digest_of_tree
from streamsvm.store.sources.options import TABLES
from streamsvm.store.sources.partitions import values_above
from streamsvm.store.sources.preprocessing import FILLED
from streamsvm.store.sources.rejects import SKIPPED
from streamsvm.store.sources.remote_files import file_facts
from streamsvm.store.sources.source import UNLABELED
from streamsvm.tasks import REGRESSION
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Report, silent
from streamsvm.working_copies import find_working_folder

if TYPE_CHECKING:
    from streamsvm.jobs.fit.options import FitFilesJob
    from streamsvm.jobs.tune.options import TuneFilesJob

FilesJob: TypeAlias = "FitFilesJob | TuneFilesJob"
"""The jobs that train on files."""
CLOCK_NANOSECONDS = 2_000_000_000
"""Resolution that is assumed for file times: a file written within this time before it was read may have been changed
later without a change of its time."""
NO_LABEL = "none"
"""The value of --label for no label."""
LOCKED = "E-LOCKED"
"""The code of the error for a store that another process is writing."""
WAITING_SECONDS = 0.5
"""Seconds between two checks whether another process has finished writing the store."""
IngestRows = Callable[[IngestJob, Report], JobResult]
"""A function that writes rows of a program to the store of a job."""


class CachedRows(NamedTuple):
    """The store with the rows of files."""

    job: IngestJob
    """The ingest job that makes the store."""
    table: bool
    """Whether the files are tables."""
    facts: JsonObject
    """The facts in the manifest of the store."""
    rows: int
    notices: tuple[str, ...]
    """The notices of the ingest; empty if the store existed already."""
    kept: bool = True
    """Whether the store is kept after the run."""

    @property
    def test_store(self) -> Path | None:
        """The store with the held-out rows; None if no rows are held out."""
        return self.job.test_path() if self.job.holds_out else None

    def other_notices(self) -> list[str]:
        """Return the notices without those that ``describe_decisions`` reports."""
        reported = (UNLABELED, FILLED, SKIPPED)
        return [notice for notice in self.notices if not any(what in notice for what in reported)]


def cache_files(
    step: str, job: FilesJob, report: Report = silent, executor: Executor | None = None, **resume_options: OptionValue
) -> CachedRows:
    """Return the cache of the files of a job: the existing one if it is up to date, else a new one.

    ``step``: the command of the job. ``resume_options``: the options that continue it after an interruption. If another
    process is ingesting the same files, wait for it. Raises ExistsError if the store at --cache is not a cache, and the
    errors of ``ingest``.
    """
    has_reported = False
    while True:
        asked, table = plan_ingest(step, job)
        cached = read_cache(asked, table=table)
        if cached is not None:
            return cached
        try:
            return _ingest_anew(asked, report, executor, table=table)
        except DataError as error:
            from streamsvm.jobs.ingest.describe import add_problems

            add_problems(error, asked, report, partial(format_command, step, job))
            raise
        except InterruptedRun as error:
            reason, command = error.message.partition(":")[0], format_command(step, job, **resume_options)
            raise InterruptedRun(f"{reason}: {describe_leftovers(command)}") from error
        except ExistsError as error:
            if error.code != LOCKED:
                raise
            if not has_reported:
                report({"event": "files", "decided": [f"waiting: {error.message}"]})
            has_reported = True
            time.sleep(WAITING_SECONDS)
            check_time()


def ingest_given_rows(
    job: FilesJob, ingest_rows: IngestRows, report: Report, *, table: bool, given_bytes: int | None
) -> CachedRows:
    """Return the store with rows of a program, which ``ingest_rows`` writes to the store that the job names.

    ``table``: whether the rows are a raw table, of which a part is held out, and not arrays. ``given_bytes``: their
    size; None if it is unknown.
    """
    held_out = HELD_OUT if table else 0.0
    asked = job.ingest_job((), Path(job.store), table=table, held_out=held_out, given_bytes=given_bytes)
    ingested = ingest_rows(asked, report)
    manifest = manifests.read(asked.store)
    return CachedRows(asked, table, manifest.facts, manifest.layout().rows, ingested.notices, kept=False)


def _ingest_anew(asked: IngestJob, report: Report, executor: Executor | None, *, table: bool) -> CachedRows:
    for path in asked.targets():
        if is_there(path) and not _is_cache(path):
            message = f"{path} exists already, and is not the cache of a fit or a search"
            raise ExistsError(message, hint="pass another --cache PATH")
    values = field_values(asked, (field.name for field in options_of(IngestJob))) | {"overwrite": True}
    ingested = ingest_sources(CacheIngestJob(**values, contents=describe_contents(asked)), report, executor)
    manifest = manifests.read(asked.store)
    return CachedRows(asked, table, manifest.facts, ingested.rows, ingested.notices)


def plan_ingest(step: str, job: FilesJob) -> tuple[IngestJob, bool]:
    """Return the ingest job for the files of a job, and whether they are tables. Raises MissingError, DataError, and
    UsageError for a table without a label.
    """
    asked, table = _plan_first(job)
    if table and asked.label is None and STANDARD_INPUT not in map(str, asked.sources):
        raise UsageError(f"which column of {asked.sources[0]} is the label?", hint=propose_label(step, job, asked))
    return (asked if job.cache is not None else _choose_name(asked)), table


def _plan_first(job: FilesJob) -> tuple[IngestJob, bool]:
    """Return the ingest job with the first name that the cache may have, and whether the files are tables."""
    sources = expand((job.store, *job.more), job.table_version)
    piped = STANDARD_INPUT in map(str, sources)
    form = "csv" if piped and job.format == "auto" else form_of(sources, job.format)
    name = f"{'standard-input' if piped else sources[0].name}.zarr"
    output = Path(job.output or name)
    beside = Path(name) if find_working_folder(output) is not None else output.with_name(name)
    first = beside if job.cache is None else Path(job.cache)
    asked = job.ingest_job(sources, output_path(first), table=form in TABLES).with_schema()
    return asked, form in TABLES


def _choose_name(asked: IngestJob) -> IngestJob:
    """Return the ingest job with the first of the names FILE.zarr, FILE.2.zarr, ... that is free, or belongs to a cache
    of the same files and options, whether up to date or not.
    """
    for store in _names_from(asked.store):
        named = replace(asked, store=store)
        if all(not is_there(path) or _is_cache(path, named) for path in named.targets()):
            break
    return named


def _names_from(first: Path) -> Iterator[Path]:
    yield first
    for number in count(2):
        yield first.with_name(f"{first.stem}.{number}{first.suffix}")


def propose_label(step: str, job: FilesJob, asked: IngestJob) -> str:
    """Return a hint with the most likely label column of the files, and the command that uses it."""
    from streamsvm.store.sources.description import guess_label
    from streamsvm.store.sources.table import TableSource

    options = replace(asked.options(), label=NO_LABEL, missing=ERROR, on_bad_line=SKIP)
    options = replace(options, undecided={}, offsets=(), max_census_rows=0)
    source = open_source(asked.sources, options)
    assert isinstance(source, TableSource)
    guess = guess_label(source)
    shown = ", ".join(quote(value, 24) for value in guess.values)
    task = {"task": REGRESSION} if guess.regression else {}
    command = format_command(step, job, label=guess.name, **task)
    return f"perhaps {quote(guess.name)} ({shown}, ...): {command}"


def missing_output(step: str, job: FilesJob, what: str) -> UsageError:
    """Return the error for a command without the name of its output.

    ``what``: the kind of output. ``job``: the job with a proposed name, for the command in the hint.
    """
    if job.is_of_files:
        try:
            plan_ingest(step, job)
        except UsageError as error:
            return error
    return UsageError(f"no {what}", hint=format_command(step, job))


def describe_contents(job: IngestJob) -> JsonObject:
    """Return the description of a cache as plain JSON: settings, version, and path, size and time (or ETag) of the files, or the version of
    the table.
    """
    settings = {name: value for name, value in settings_of(job).items() if name != "sources"}
    files = [_describe_file(path) for path in _files(job)]
    contents = {"settings": settings, "version": __version__, "at": time.time_ns(), "files": files}
    table = table_of(job.sources)
    return contents if table is None else contents | {"table": table.facts()}


def _describe_file(path: Path) -> list[str | int | None]:
    """Return path, size and time of a file; of an object URL, size and ETag."""
    if (url := find_url(path)) is not None:
        facts = file_facts(url)
        return [url, facts.size, facts.etag]
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def read_cache(job: IngestJob, *, table: bool) -> CachedRows | None:
    """Return the existing cache if it was made from the same files with the same settings; else None."""
    try:
        cached_manifests = [manifests.read(path) for path in job.targets()]
    except StreamSVMError:
        return None
    then, now = cached_manifests[0].facts.get(CACHE), json.loads(json.dumps(describe_contents(job)))
    if then is None or any(other.facts.get(CACHE) != then for other in cached_manifests):
        return None
    if (then["settings"], then["version"]) != (now["settings"], now["version"]):
        return None
    is_known = table_of(job.sources) is not None or bool(_files(job))
    if not is_known or not _are_same_files(then, now, cached_manifests[0].facts["sources"]):
        return None
    return CachedRows(job, table, cached_manifests[0].facts, cached_manifests[0].layout().rows, ())


def _files(job: IngestJob) -> list[Path]:
    """Return the files of an ingest, without standard input, which cannot be read again; none for a table of a data lake, whose version
    tells its rows.
    """
    return [] if table_of(job.sources) else [path for path in job.sources if str(path) != STANDARD_INPUT]


def _are_same_files(then: JsonObject, now: JsonObject, recorded: Sequence[JsonObject]) -> bool:
    """Return whether the files are those from which a cache was made: same sizes, and same paths and times, or same contents and same
    values in the names of folders.

    ``then``: the description in the cache; ``now``: that of the files; ``recorded``: the sources in the cache's
    manifest.
    """
    if "table" in now or "table" in then:
        return then.get("table") == now.get("table")
    if [size for _, size, _ in then["files"]] != [size for _, size, _ in now["files"]]:
        return False
    times_tell = all(
        changed is not None
        if find_url(path)
        else changed < then["at"] - CLOCK_NANOSECONDS and not is_folder(Path(path))
        for path, _, changed in then["files"]
    )
    if times_tell and then["files"] == now["files"]:
        return True
    if any(find_url(path) for path, _, _ in now["files"]):  # its content is not read again to compare it
        return False
    digests = [source["sha256"] for source in recorded]
    values_then, values_now = ([values_above(Path(path)) for path, _, _ in files["files"]] for files in (then, now))
    return (
        all(digests)
        and values_then == values_now
        and digests == [digest_of_tree(Path(path)) for path, _, _ in now["files"]]
    )


def caches_of(job: FilesJob) -> Iterator[IngestJob]:
    """Yield the ingest job for the files of a job, with each existing store that may be their cache."""
    asked = _plan_first(job)[0]
    names = _names_from(asked.store) if job.cache is None else [asked.store]
    yield from (replace(asked, store=path) for path in takewhile(is_there, names))


def describe_change(job: IngestJob) -> str:
    """Return a description of the difference between the existing store and the one that an ingest would make now
    (options, version or files); empty if there is none.
    """
    facts = manifests.read(job.store).facts
    then, now = facts.get(CACHE), describe_contents(job)
    if then is None:
        return f"{job.store} was made by ingest"
    former, present = ({**recorded["settings"], "version": recorded["version"]} for recorded in (then, now))
    changed = [name for name in {**former, **present} if former.get(name) != present.get(name)]
    if changed:
        return ", ".join(
            f"{name} was {quote(former.get(name), 40)}, now {quote(present.get(name), 40)}" for name in changed
        )
    if _are_same_files(then, now, facts["sources"]):
        return ""
    if "table" in now and "table" in then:
        return f"{now['table']['location']} was at version {then['table']['version']}, now at {now['table']['version']}"
    files = [file[0] for file in now["files"] if file not in then["files"]]
    return f"{files[0] if files else 'a file'} has changed since"


def _is_cache(path: Path, asked: IngestJob | None = None) -> bool:
    """Return whether a path is a cache, or the unfinished store of an interrupted ingest.

    ``asked``: return False for a cache of other options or other files than those of this ingest job; the files may
    have been changed since.
    """
    try:
        facts = manifests.read(path).facts
    except StreamSVMError:
        return is_store(path) and not (path / manifests.FILE).exists()
    then = facts.get(CACHE)
    if then is None or asked is None:
        return then is not None
    now = describe_contents(asked)
    named_alike = _first_name(then) == _first_name(now)
    return then["settings"] == now["settings"] and (named_alike or _are_same_files(then, now, facts["sources"]))


def _first_name(contents: JsonObject) -> str | None:
    """Return the path of the first file, or the id of the table, of a cache; None for standard input."""
    if "table" in contents:
        return str(contents["table"]["id"])
    return next((path for path, *_ in contents["files"]), None)


def notices_on_store(job: FilesJob, on_store: type, reason: str) -> list[str]:
    """Return notices of options for files that were given together with a store, and therefore have no effect.

    ``on_store``: the class of the job on a store, which has no such options. ``reason``: the reason to state.
    """
    kind: type = type(job)
    of_files = {field.name for field in options_of(kind)} - {field.name for field in options_of(on_store)}
    return notices_on_unused_options(job, {reason: sorted(of_files)})


# -- what is reported --------------------------------------------------------------------------------------------------
