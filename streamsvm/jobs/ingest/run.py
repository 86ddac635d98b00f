"""Files to a store: labels to codes, rows to the layout of the store, some rows to a test store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from streamsvm.aliases import JsonObject
from streamsvm.compute import threading
from streamsvm.engine.checkpoint.interruption import current
from streamsvm.engine.checkpoint.signals import deferred
from streamsvm.engine.executors.executor import Executor, executor_for
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs import JobResult
from streamsvm.jobs.ingest.counts import IngestCounts
from streamsvm.jobs.ingest.distributed import parts_beside, parts_path, source_for
from streamsvm.jobs.ingest.hold_out import HoldOut, check_parts
from streamsvm.jobs.ingest.identity import default_settings, settings_of
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.outputs import Stores, manifest_facts
from streamsvm.jobs.ingest.precision import looks_like_ids, precision_warnings
from streamsvm.jobs.ingest.preflight import check_disk, memory_for_source
from streamsvm.jobs.ingest.warnings import check_rows, drift_warning, notice_lines
from streamsvm.jobs.without_effect import other_formats, without_effect
from streamsvm.outputs import Output, claim, output_path
from streamsvm.outputs.kinds import PARTS, REJECTS
from streamsvm.rows import Rows
from streamsvm.schedule.cores import wanted_threads
from streamsvm.scratch import sweep_beside
from streamsvm.store import create, open_store
from streamsvm.store.format import manifest
from streamsvm.store.format.labels import check_codings, label_coder
from streamsvm.store.format.numbers import Numbers
from streamsvm.store.format.row_layout import DENSE_FROM, density
from streamsvm.store.sources import Source, SourceOptions
from streamsvm.store.sources.array.keyed import size_of
from streamsvm.store.sources.centering import offsets_from
from streamsvm.store.sources.reading.ahead import ahead
from streamsvm.store.sources.reading.expand import expand
from streamsvm.store.sources.reading.standard_input import standard_input
from streamsvm.store.sources.rejects import Rejects
from streamsvm.store.sources.table.layout.columns import CATEGORY, HASHED, TEXT
from streamsvm.store.write.building import Opener, all_locked, journaled, repairing, store_outputs
from streamsvm.store.write.writer import StoreWriter
from streamsvm.types import Batch, Report, silent


@dataclass(frozen=True, slots=True)
class IngestResult(JobResult):
    """What was stored."""

    store: Path
    """The path of the store."""
    test_store: Path | None
    """The path of the test store; None where no rows were held out."""
    rows: int
    """Rows read, those of the test store included."""
    test_rows: int
    """Rows of the test store."""
    columns: int
    """The number of features."""
    sparse: bool
    """Whether the rows are stored as CSR."""
    classes: tuple[str, ...]
    """The label each class code stands for."""
    counts: tuple[int, ...]
    """Rows of each class, those of the test store included."""
    bytes_read: int
    """Bytes of the sources on disk."""
    seconds: float
    """How long it took."""
    target: JsonObject | None = None
    """Of numbers to predict: their ``mean``, ``spread`` (standard deviation), ``least`` and ``most``; None of classes."""


def ingest(job: IngestJob, report: Report = silent, executor: Executor | None = None) -> IngestResult:
    """Read the sources once and commit the store (and the test store), or leave nothing that could be taken for one.

    A run that was stopped from outside, or by a disk that is full, is gone on with by the next one with the same job.
    Raises what ``open_source`` and its batches raise, ExistsError, StorageError, BudgetError, DataError E-LABEL,
    ConfigError when another job was stopped there, InterruptedRun.
    """
    job = replace(job.with_schema(), sources=expand(job.sources), store=output_path(job.store))
    stores = len(job.targets())
    wanted = wanted_threads(job.threads)
    memory = memory_for_source(job.memory, job.chunk_bytes, stores, shuffle=job.shuffle, threads=wanted)
    with executor_for(job, executor) as found, all_locked(job.targets()), threading.using(memory.threads):
        claim(_outputs(job), [*job.sources, job.labels, job.schema], overwrite=job.overwrite or job.repair)
        with standard_input(job.sources, kept_input(job.store), cluster=found is not None) as sources:
            result = _begun(replace(job, sources=tuple(map(Path, sources))), memory.limit, report, found)
            return replace(result, notices=(*memory.notices, *result.notices))


def kept_input(store: Path) -> Path:
    """What the file that standard input is kept in lies beside: not the store, whose leftovers are removed on the way."""
    beside = store.with_name(f"{store.name}.input")
    sweep_beside(beside)
    return beside


def ingest_from(job: IngestJob, opened: Callable[[SourceOptions], Source], report: Report = silent) -> IngestResult:
    """Ingest what a program has instead of files: ``opened`` makes a source of it once the outputs are locked.

    A run that was stopped is not gone on with. Raises as ``ingest`` does.
    """
    job = replace(job, store=output_path(job.store))
    memory = memory_for_source(job.memory, job.chunk_bytes, len(job.targets()), shuffle=job.shuffle)

    def opener(path: Path, sparse: bool, chunk_bytes: int) -> StoreWriter:
        size, form, packed = chunk_bytes, job.store_format, job.compression
        return create(path, sparse=sparse, chunk_bytes=size, overwrite=True, store_format=form, compression=packed)

    with all_locked(job.targets()):
        claim(store_outputs(job.targets(), continues=False), overwrite=job.overwrite)
        for target in job.targets():
            sweep_beside(target)
        options = replace(job.options(), memory_limit=memory.limit)
        return _ingest(job, report, opener, opened(options), options.rejects)


def _outputs(job: IngestJob) -> list[Output]:
    """All an ingest writes. Whether a store that is there is gone on with is decided by its journal (``journaled``)."""
    found = store_outputs(job.targets(), continues=True)
    found.append(Output(parts_path(job.store), PARTS, continues=True))
    return found if job.on_bad_line == "error" else [*found, Output(_rejects_path(job), REJECTS, continues=True)]


def _begun(job: IngestJob, memory_limit: int, report: Report, executor: Executor | None) -> IngestResult:
    form = {"store_format": job.store_format, "compression": job.compression}
    with parts_beside(job.store, executor) as parts:
        options = replace(job.options(), memory_limit=memory_limit)
        if job.repair:  # the manifest alone is asked: files of rows are damaged. Stores of before have no offsets
            known = offsets_from(manifest.read(Path(job.store)).facts.get("encoding"))
            options = replace(options, offsets=known.to_json())
        source = source_for(job, options, executor, parts)
        if job.repair:
            return _ingest(job, report, repairing(job.sources), source, options.rejects)
        opener = journaled(job.targets(), settings_of(job), default_settings(), overwrite=job.overwrite, **form)
        return _ingest(job, report, opener, source, options.rejects)


def _ingest(job: IngestJob, report: Report, opener: Opener, source: Source, rejects: Rejects) -> IngestResult:
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
        remarks = _commit(job, source, counts, stores, rejects.count) + _rejected(job, rejects)
        remarks += [*_precision(job, source, first[1].X), *without_effect(job, _idle(job, source))]
        on_failure.pop_all()
    counts.report_progress(report, source.sources, total, last=True)
    return _result(job, source, counts, sparse, remarks)


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
    check_rows(counts.rows, job.expect_rows)
    if job.split_by or job.split_after:
        check_parts(counts.rows, counts.test_rows, "--split-by" if job.split_by else "--split-after")
    if not isinstance(counts.coder, Numbers):
        check_codings({source.sources[file].name: found for file, found in counts.labels.items()})
    columns = source.columns
    assert columns is not None
    facts = manifest_facts(job, source, rejected)
    if isinstance(counts.coder, Numbers):
        facts["target"] = counts.coder.facts()
    committed = stores.commit(counts.coder.table(), columns, facts)
    return [*notice_lines(source.notices), *drift_warning(committed)]


def _precision(job: IngestJob, source: Source, first: Rows) -> list[str]:
    """What float32 has done to the columns that were stored; ``first``: the first rows."""
    store, offsets = open_store(job.store), offsets_from(source.encoding())
    ids = looks_like_ids(first, source.columns or 0, offsets)
    return precision_warnings(store.statistics(), store.layout.rows, source.names, offsets, ids)


def _idle(job: IngestJob, source: Source) -> dict[str, Sequence[str]]:
    """Which fields nothing looks at, by the reason."""
    beside = () if job.sources else ("label", "weight")  # which are given with arrays of a program
    encoding = source.encoding()
    schema = encoding.get("schema")
    kinds = None if schema is None else {column["kind"] for column in schema["columns"]}
    idle = {
        "no rows are held out": not job.holds_out and ("test_store",),
        "nothing is drawn": not (job.shuffle or job.test_fraction) and ("seed",),
        "no cluster is named": job.cluster is None and ("insecure_network",),
        "every line that cannot be read is an error": job.on_bad_line == "error" and ("max_bad",),
        "no column is a category": kinds is not None and CATEGORY not in kinds and ("min_count",),
        "no column is hashed": kinds is not None and HASHED not in kinds and ("hash_bits",),
        "no column is text": kinds is not None and TEXT not in kinds and ("text_bits",),
    }
    of_others = other_formats(job, encoding["format"]).items()
    told = {why: [name for name in names if name not in beside] for why, names in of_others}
    return told | {why: names for why, names in idle.items() if names}


def _rejected(job: IngestJob, rejects: Rejects) -> list[str]:
    """Write the list of the lines that were left out, if there are any."""
    if not rejects.count:
        return []
    return [rejects.write(_rejects_path(job))]


def _rejects_path(job: IngestJob) -> Path:
    return job.store.with_name(f"{job.store.name}.rejects")


def _result(job: IngestJob, source: Source, counts: IngestCounts, sparse: bool, remarks: list[str]) -> IngestResult:
    assert source.columns is not None
    return IngestResult(
        store=job.store,
        test_store=job.test_path() if job.holds_out else None,
        rows=counts.rows - counts.test_rows,
        test_rows=counts.test_rows,
        columns=source.columns,
        sparse=sparse,
        classes=counts.coder.table(),
        counts=tuple(counts.counts),
        bytes_read=sum(f.read for f in source.sources),
        seconds=counts.stopwatch.seconds,
        target=counts.coder.facts() if isinstance(counts.coder, Numbers) else None,
        notices=tuple(remarks),
    )
