"""ingest: files, or what a program has, to a store and perhaps a test store beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from streamsvm.aliases import JsonObject
from streamsvm.compute import threading
from streamsvm.engine.executors.executor import Executor, executor_for
from streamsvm.jobs import JobResult
from streamsvm.jobs.ingest.distributed import parts_beside, parts_path, source_for
from streamsvm.jobs.ingest.fill import fill_stores, rejects_path
from streamsvm.jobs.ingest.identity import default_settings, settings_of
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.preflight import memory_for_source
from streamsvm.locks import sweep_beside
from streamsvm.outputs import PARTS, REJECTS, Output, claim, output_path
from streamsvm.schedule.cores import wanted_threads
from streamsvm.store import create
from streamsvm.store.format import manifest
from streamsvm.store.format.numbers import Numbers
from streamsvm.store.sources import Source, SourceOptions, table_width
from streamsvm.store.sources.files import expand
from streamsvm.store.sources.input import standard_input
from streamsvm.store.sources.offsets import offsets_from
from streamsvm.store.sources.source import Rejects
from streamsvm.store.write.building import Opener, all_locked, journaled, repairing, store_outputs
from streamsvm.store.write.writer import StoreWriter
from streamsvm.types import Report, silent


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
    memory = memory_for_source(
        job.memory,
        job.chunk_bytes,
        stores,
        shuffle=job.shuffle,
        threads=wanted,
        files=job.sources,
        width=partial(table_width, job.sources, job.options()),
    )
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
    stores, wanted = len(job.targets()), wanted_threads(job.threads)
    memory = memory_for_source(job.memory, job.chunk_bytes, stores, shuffle=job.shuffle, threads=wanted)

    def opener(path: Path, sparse: bool, chunk_bytes: int) -> StoreWriter:
        size, form, packed = chunk_bytes, job.store_format, job.compression
        return create(path, sparse=sparse, chunk_bytes=size, overwrite=True, store_format=form, compression=packed)

    with all_locked(job.targets()), threading.using(memory.threads):
        claim(store_outputs(job.targets(), continues=False), overwrite=job.overwrite)
        for target in job.targets():
            sweep_beside(target)
        options = replace(job.options(), memory_limit=memory.limit)
        return _filled(job, report, opener, opened(options), options.rejects)


def _outputs(job: IngestJob) -> list[Output]:
    """All an ingest writes. Whether a store that is there is gone on with is decided by its journal (``journaled``)."""
    found = store_outputs(job.targets(), continues=True)
    found.append(Output(parts_path(job.store), PARTS, continues=True))
    return found if job.on_bad_line == "error" else [*found, Output(rejects_path(job.store), REJECTS, continues=True)]


def _begun(job: IngestJob, memory_limit: int, report: Report, executor: Executor | None) -> IngestResult:
    form = {"store_format": job.store_format, "compression": job.compression}
    with parts_beside(job.store, executor) as parts:
        options = replace(job.options(), memory_limit=memory_limit)
        if job.repair:  # the manifest alone is asked: files of rows are damaged. Stores of before have no offsets
            known = offsets_from(manifest.read(Path(job.store)).facts.get("encoding"))
            options = replace(options, offsets=known.to_json())
        source = source_for(job, options, executor, parts)
        if job.repair:
            return _filled(job, report, repairing(job.sources), source, options.rejects)
        opener = journaled(job.targets(), settings_of(job), default_settings(), overwrite=job.overwrite, **form)
        return _filled(job, report, opener, source, options.rejects)


def _filled(job: IngestJob, report: Report, opener: Opener, source: Source, rejects: Rejects) -> IngestResult:
    counts, sparse, notices = fill_stores(job, report, opener, source, rejects)
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
        notices=tuple(notices),
    )
