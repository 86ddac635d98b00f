"""Describe what ``fit`` and ``tune`` of files decide by default, a line for each decision, with the option that undoes it."""

from __future__ import annotations

from collections.abc import Iterator

from streamsvm.config.units import percent
from streamsvm.jobs.file_cache import CachedRows, FilesJob
from streamsvm.jobs.ingest.options import ERROR, INDICATOR, SKIP, IngestJob
from streamsvm.jobs.ingest.run import rejects_path
from streamsvm.store.format import manifest as manifests
from streamsvm.store.sources.preprocessing import FILLED
from streamsvm.store.sources.source import UNLABELED


def describe_decisions(job: FilesJob, cached: CachedRows) -> Iterator[str]:
    """Yield a line for each decision that was made by default, with the option that undoes it."""
    noticed, asked = cached.facts.get("notices", {}), cached.job
    if filled := noticed.get(FILLED):
        yield f"missing values: {filled} {_describe_filling(job, asked)}"
    if unlabeled := noticed.get(UNLABELED):
        yield f"labels: {unlabeled} rows without one are left out; {_describe_labels(asked)}"
    if rejected := cached.facts.get("rejected"):
        undo = "; --on-bad-line error refuses them" if job.on_bad_line is None else ""
        listed = f", listed in {rejects_path(asked.store)}" if cached.kept else ""
        yield f"bad lines: {rejected} are left out{listed}{undo}"
    if asked.holds_out:
        held = manifests.read(asked.test_path()).layout().rows
        yield f"held out: {held} of {held + cached.rows} rows, {_describe_hold_out(job)}"
    yield from _describe_fit(job, asked, table=cached.table, kept=cached.kept)


def describe_defaults(job: FilesJob, asked: IngestJob, *, table: bool) -> Iterator[str]:
    """Yield the lines of ``describe_decisions`` for a fit whose files have not been read yet."""
    if asked.missing != ERROR:
        yield f"missing values: {_describe_filling(job, asked)}"
    if table and asked.missing_label == SKIP:
        yield f"labels: rows without one are left out; {_describe_labels(asked)}"
    if asked.on_bad_line == SKIP:
        undo = "; --on-bad-line error refuses them" if job.on_bad_line is None else ""
        yield f"bad lines: up to {asked.max_bad} of all are left out, and listed in {rejects_path(asked.store)}{undo}"
    if asked.holds_out:
        share = percent(asked.test_fraction, 3) if asked.test_fraction else "some"
        yield f"held out: {share} of the rows, {_describe_hold_out(job)}"
    yield from _describe_fit(job, asked, table=table, kept=True)


def _describe_filling(job: FilesJob, asked: IngestJob) -> str:
    done = f"filled: {asked.missing}"
    if asked.missing == INDICATOR:
        done = "filled with 0 and marked by columns of their own"
    return done + ("; --missing error, mean or zero does otherwise" if job.missing is None else "")


def _describe_labels(asked: IngestJob) -> str:
    return "--missing-label error " + ("counts them as bad lines" if asked.on_bad_line == SKIP else "refuses them")


def _describe_hold_out(job: FilesJob) -> str:
    undo = "; --test-fraction 0 trains on all" if job.test_fraction is None and not job.split_after else ""
    chooses = isinstance(job.C, tuple) and len(job.C) > 1 and getattr(job, "validation", "of tune") is None
    return f"to {'choose C and ' if chooses else ''}evaluate the model on{undo}"


def _describe_fit(job: FilesJob, asked: IngestJob, *, table: bool, kept: bool) -> Iterator[str]:
    if table and job.standardize is None:
        yield "numbers: given mean 0 and standard deviation 1; --no-standardize leaves them as they are"
    if kept:
        first = f"{asked.sources[0].name}.zarr" if asked.sources else ""
        other = f" ({first} is of other options or files)" if job.cache is None and asked.store.name != first else ""
        elsewhere = "; --cache PATH keeps them elsewhere" if job.cache is None else ""
        yield f"rows: kept in {asked.store} for later runs on these files{other}{elsewhere}"
        if job.report is None:
            yield f"page: drawn in {job.page}; --report none draws none"
