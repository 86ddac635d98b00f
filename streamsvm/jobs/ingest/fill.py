"""The rows of a source written to the stores: to the commit, or nothing that could be taken for a store.

source -> ahead (a thread reads) -> labels to codes, rows to the layout of the store -> store or test store -> commit
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from streamsvm.engine.checkpoint.interruption import current
from streamsvm.engine.checkpoint.signals import deferred
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.jobs.ingest.notices.drift import drift_warning
from streamsvm.jobs.ingest.notices.idle_options import idle_options
from streamsvm.jobs.ingest.notices.precision import precision_notices
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.preflight import check_disk
from streamsvm.jobs.ingest.stores.counts import IngestCounts
from streamsvm.jobs.ingest.stores.hold_out import HoldOut, check_parts
from streamsvm.jobs.ingest.stores.manifest_facts import manifest_facts
from streamsvm.jobs.ingest.stores.train_and_test import Stores
from streamsvm.jobs.without_effect import without_effect
from streamsvm.store.format.labels import alike, check_codings, label_coder
from streamsvm.store.format.numbers import TARGET, Numbers
from streamsvm.store.format.row_layout import DENSE_FROM, density
from streamsvm.store.sources import Source
from streamsvm.store.sources.ahead import ahead
from streamsvm.store.sources.keyed import size_of
from streamsvm.store.sources.source import Rejects
from streamsvm.store.write.building import Opener
from streamsvm.types import Batch, Report


class Ingested(NamedTuple):
    """What was written, once it is committed."""

    counts: IngestCounts
    """The rows and their labels."""
    sparse: bool
    """Whether the rows are stored as CSR."""
    notices: list[str]
    """What is worth knowing of the rows and of the options."""


def fill_stores(job: IngestJob, report: Report, opener: Opener, source: Source, rejects: Rejects) -> Ingested:
    """Write all rows of a source to the stores of a job, which ``opener`` opens, and commit them.

    Raises what the batches of the source raise, DataError E-EMPTY, E-LABEL, E-ROWS, E-SPLIT, StorageError, InterruptedRun.
    """
    coder, total = label_coder(job.positive, job.label_threshold, job.task), sum(map(size_of, job.sources))
    counts = IngestCounts(coder)
    if source.proposals:
        report({"event": "columns", "decided": source.proposals})
    columns = source.columns  # asked before the thread begins, which may learn more at any time
    with closing(ahead(_with_file(source))) as batches, ExitStack() as on_failure, deferred():
        first = next(batches, None)
        if first is None or not len(first[1].labels):
            raise _nothing(job, first)
        sparse = _is_sparse(job.layout, source.sparse, columns, first[1])
        check_disk(job.store, total, source, first[1], None if sparse else columns)
        split = HoldOut(job.seed, job.test_fraction, job.stratify)
        stores = Stores(job.targets(), opener, sparse, job.chunk_bytes, split, shuffle=job.shuffle)
        on_failure.push(stores.on_exit)
        for file, batch in chain((first,), batches):
            if current.name:
                raise current.error("ingest is stopped")
            counts.store(batch, file, stores, columns)
            counts.report_progress(report, source.sources, total)
        notices = _commit(job, source, counts, stores, rejects.count) + _rejected(job, rejects)
        notices += [*precision_notices(job.store, source, first[1].X), *without_effect(job, idle_options(job, source))]
        on_failure.pop_all()
    counts.report_progress(report, source.sources, total, last=True)
    return Ingested(counts, sparse, notices)


def rejects_path(store: Path) -> Path:
    """Where the list of lines that were left out of a store goes."""
    return store.with_name(f"{store.name}.rejects")


def _notice_lines(notices: Mapping[str, int]) -> list[str]:
    """Return notices with their counts, as lines of text."""
    return [f"{count} {what}" for what, count in notices.items() if count]


def _with_file(source: Source) -> Generator[tuple[int, Batch]]:
    """The batches, each with the position of its file."""
    for batch in source.batches():
        yield len(source.sources) - 1, batch


def _nothing(job: IngestJob, first: object) -> DataError:
    if first is None:
        return DataError(f"{job.sources[0]} holds no rows", code="E-EMPTY", hint="check the source")
    return DataError(f"{job.sources[0]} holds no labels", code="E-LABEL", hint="say where they are: --label")


def _is_sparse(layout: str, sparse: bool, columns: int | None, first: Batch) -> bool:
    if layout == "dense" and sparse and columns is None:
        raise UsageError("a dense store needs the number of columns before the first row", hint="pass --features N")
    if layout != "auto":
        return layout == "csr"
    return sparse and (columns is None or density(first.X, columns) < DENSE_FROM)


def _commit(job: IngestJob, source: Source, counts: IngestCounts, stores: Stores, rejected: int) -> list[str]:
    """Returns what there is to say of the rows."""
    _check_rows(counts.rows, job.expect_rows)
    if job.split_by or job.split_after:
        check_parts(counts.rows, counts.test_rows, "--split-by" if job.split_by else "--split-after")
    if not isinstance(counts.coder, Numbers):
        check_codings({source.sources[file].name: found for file, found in counts.labels.items()})
    columns = source.columns
    assert columns is not None
    facts = manifest_facts(job, source, rejected, counts.coder)
    if isinstance(counts.coder, Numbers):
        facts[TARGET] = counts.coder.facts()
    committed = stores.commit(counts.coder.table(), columns, facts)
    same = alike(getattr(counts.coder, "classes", ()))
    shown = ", ".join(quote(text, 24) for text in same[:6])
    notice = [f"labels differ by case or blanks only, and are taken for different ones: {shown}"] if same else []
    return [*notice, *_notice_lines(source.notices), *drift_warning(committed)]


def _check_rows(found: int, expected: int | None) -> None:
    """Raise DataError E-ROWS when the sources did not hold as many rows as the user knows they should."""
    if expected is not None and found != expected:
        text = f"the sources hold {found} rows, {expected} are expected"
        raise DataError(
            text, code="E-ROWS", hint="a compressed file may be cut between two of its members: get it again"
        )


def _rejected(job: IngestJob, rejects: Rejects) -> list[str]:
    """Write the list of the lines that were left out, if there are any."""
    if not rejects.count:
        return []
    return [rejects.write(rejects_path(job.store))]
