"""ingest: files, or what a program has, to a store and perhaps a test store beside it.

source -> a thread reads ahead -> labels to codes, rows to the layout of the store -> store or test store -> commit; or
nothing that could be taken for a store. What is needed in memory and on disk is asked for before either is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.compute import threading
from streamsvm.config.command_table import format_command
from streamsvm.config.options import options_of
from streamsvm.config.units import mib, seconds_text
from streamsvm.durable import sweep_beside
from streamsvm.engine.cluster_schemes import executor_for
from streamsvm.engine.executor import Executor
from streamsvm.engine.progress import Stopwatch
from streamsvm.engine.signals import current, defer_signals
from streamsvm.errors import DataError, InterruptedRun, StorageError, UsageError, quote
from streamsvm.jobs import JobResult, format_value
from streamsvm.jobs.ingest.distributed import parts_beside, parts_path, source_for
from streamsvm.jobs.ingest.hold_out import HoldOut, check_parts
from streamsvm.jobs.ingest.notices import drift_warning, idle_options, precision_notices
from streamsvm.jobs.ingest.options import CacheIngestJob, IngestJob
from streamsvm.jobs.without_effect import without_effect
from streamsvm.outputs import PARTS, REJECTS, Output, claim, output_path
from streamsvm.rows import CSR, density, in_layout, row_count, row_where
from streamsvm.schedule import budget
from streamsvm.schedule.machine import count_wanted_threads
from streamsvm.store import create
from streamsvm.store.format import manifest
from streamsvm.store.format.labels import (
    TARGET,
    Census,
    Labels,
    Numbers,
    add_counts,
    check_codings,
    label_coder,
    label_type,
    note_labels,
    similar_texts,
    type_to_record,
)
from streamsvm.store.format.manifest import Manifest
from streamsvm.store.sources import Source, SourceFile, SourceOptions, table_width
from streamsvm.store.sources.byte_stream import source_name, standard_input
from streamsvm.store.sources.files import expand
from streamsvm.store.sources.hdf5_zarr import size_of
from streamsvm.store.sources.offsets import offsets_from
from streamsvm.store.sources.read_ahead import read_ahead
from streamsvm.store.sources.schema import NO_TABLE, TableWidth, schema_from
from streamsvm.store.sources.source import Rejects
from streamsvm.store.write.resume import Opener, lock_all, repairs, require_space, resumable_builds, store_outputs
from streamsvm.store.write.shuffle import SHUFFLE_BYTES, ShufflingWriter
from streamsvm.store.write.writer import Background, StoreWriter
from streamsvm.types import Batch, Report, Term, silent

SOURCE_BYTES = 64 << 20
"""Bytes for parser, text and rows in flight; the most is a Parquet file with one-hot columns (measured: 60 MiB with
pyarrow)."""
CHUNKS_PER_WRITER = 3
"""Chunks a writer holds at once: the one that fills, the rows it is joined from, the unit on its way to disk.
Where a thread writes a chunk while the next one fills, that one is joined when the other is written."""
PARSER_BYTES = 16 << 20
"""Bytes of each further thread that parses: text, arrays it is parsed into, rows (measured: 9 MiB with short rows)."""
CACHE = "cache"
"""The fact of a store that a fit has made of files: what it is made of."""
DENSE_FROM = 0.5
"""From this share of entries on dense rows are smaller: 4 bytes for each against 8."""
ELSEWHERE = (
    "store",
    "test_store",
    "overwrite",
    "repair",
    "memory",
    "threads",
    "sources",
    "schema",
    "cluster",
    "insecure_network",
    "contents",
)
"""The fields of a job that say nothing of what the store will hold."""


class Stores:
    """The store that is being written and, if rows are held out, the test store; what was written is counted."""

    def __init__(self, job: IngestJob, opener: Opener, coder: Labels, *, sparse: bool, columns: int | None) -> None:
        self.coder = coder
        """Turns labels into class codes."""
        self.rows = self.test_rows = 0
        """Rows written, those of the test store included, and those of the test store alone."""
        self.counts: list[int] = []
        """Rows of each class."""
        self.labels: dict[int, set[str]] = {}
        """The distinct labels of each file, by its position; a file's set stops growing at three."""
        self._sparse, self._columns = sparse, columns
        self._split = HoldOut(job.seed, job.test_fraction, job.stratify)
        writers = [opener(path, sparse, job.chunk_bytes) for path in job.targets()]
        if threading.threads() > 1:
            for writer in writers:
                writer.background = Background()
        self._writers: list[StoreWriter | ShufflingWriter] = list(writers)
        if job.shuffle:
            self._writers = [ShufflingWriter(writer, job.seed) for writer in writers]

    def append(self, batch: Batch, file: int) -> None:
        """Write the rows of a batch of the file at position ``file``. Raises DataError E-ROWS, E-LABEL, StorageError."""
        rows = row_count(batch.X)
        if len(batch.labels) != rows:
            raise DataError(
                f"{rows} rows have {len(batch.labels)} labels", code="E-ROWS", hint="check the label source"
            )
        codes = self.coder.codes(batch.labels)
        X = in_layout(batch.X, sparse=self._sparse, columns=self._columns)
        if len(self._writers) == 1:
            self._writers[0].append(X, codes, batch.weight, batch.ids)
        else:
            chosen = self._split.choose(self.rows, codes, batch.split)
            for writer, mask in zip(self._writers, (~chosen, chosen), strict=True):
                if mask.any():
                    weight, ids = (None if found is None else found[mask] for found in (batch.weight, batch.ids))
                    writer.append(row_where(X, mask), codes[mask], weight, ids)
            self.test_rows += int(np.count_nonzero(chosen))
        self.rows += rows
        self.counts = add_counts(self.counts, codes)
        note_labels(batch.labels, self.labels.setdefault(file, set()))

    def commit(self, columns: int, facts: JsonObject) -> Manifest:
        """Commit the test store, then the store, which is what people look for; return the manifest of the store."""
        classes = self.coder.table()
        return [writer.commit(classes, columns, facts) for writer in reversed(self._writers)][-1]

    def on_exit(self, _: object, error: BaseException | None, __: object) -> None:
        """Leave unfinished stores for the next run where it can go on from them, else remove them; a callback of an
        exit stack.
        """
        if isinstance(error, InterruptedRun | StorageError | KeyboardInterrupt):
            safe = sum(writer.suspend() for writer in self._writers)
            if isinstance(error, InterruptedRun | StorageError):
                error.hint = f"{safe} chunks are safe; run the same command again to go on"
        elif error is not None:
            for writer in self._writers:
                writer.abort()


@dataclass(frozen=True, slots=True, repr=False)
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

    def summary(self) -> dict[str, str]:
        """Return where the rows are, how many there are, and of which classes."""
        classes = (
            [f"{name} {count}" for name, count in zip(self.classes, self.counts, strict=True)] if self.classes else []
        )
        found = {
            "store": str(self.store),
            "rows": str(self.rows),
            "columns": str(self.columns),
            "layout": "csr" if self.sparse else "dense",
            "classes": format_value(", ".join(classes)),
            "test store": "" if self.test_store is None else f"{self.test_store} ({self.test_rows} rows)",
            "time": seconds_text(self.seconds),
        }
        return {name: text for name, text in found.items() if text}


def ingest(job: IngestJob, report: Report = silent, executor: Executor | None = None) -> IngestResult:
    """Read the sources once and commit the store (and the test store), or leave nothing that could be taken for one.

    An error for a value that is not in order names all others, too, and the command that takes them. A run that was
    stopped from outside, or by a disk that is full, is gone on with by the next one with the same job.
    Raises what ``open_source`` and its batches raise, ExistsError, StorageError, BudgetError, DataError E-LABEL,
    ConfigError when another job was stopped there, InterruptedRun.
    """
    try:
        return ingest_sources(job, report, executor)
    except DataError as error:
        from streamsvm.jobs.ingest.describe import add_problems

        add_problems(error, job, report, partial(format_command, "ingest", job))
        raise


def ingest_sources(job: IngestJob, report: Report = silent, executor: Executor | None = None) -> IngestResult:
    """Ingest, as ``ingest`` does; an error names the first value that is not in order."""
    job = replace(job.with_schema(), sources=expand(job.sources), store=output_path(job.store))
    stores = len(job.targets())
    wanted = count_wanted_threads(job.threads)
    memory = memory_for_source(
        job.memory,
        job.chunk_bytes,
        stores,
        shuffle=job.shuffle,
        threads=wanted,
        files=job.sources,
        width=partial(table_width, job.sources, job.options()),
    )
    with executor_for(job, executor) as found, lock_all(job.targets()), threading.use_threads(memory.threads):
        claim(_outputs(job), [*job.sources, job.labels, job.schema], overwrite=job.overwrite or job.repair)
        with standard_input(job.sources, find_kept_input(job.store), cluster=found is not None) as sources:
            result = _ingest_files(replace(job, sources=tuple(map(Path, sources))), memory.limit, report, found)
            return replace(result, notices=(*memory.notices, *result.notices))


def find_kept_input(store: Path) -> Path:
    """Return what the file that standard input is kept in lies beside: not the store, whose leftovers are removed on
    the way.
    """
    beside = store.with_name(f"{store.name}.input")
    sweep_beside(beside)
    return beside


def ingest_from(job: IngestJob, opened: Callable[[SourceOptions], Source], report: Report = silent) -> IngestResult:
    """Ingest what a program has instead of files: ``opened`` makes a source of it once the outputs are locked.

    A run that was stopped is not gone on with. Raises as ``ingest`` does.
    """
    job = replace(job, store=output_path(job.store))
    stores, wanted = len(job.targets()), count_wanted_threads(job.threads)
    memory = memory_for_source(job.memory, job.chunk_bytes, stores, shuffle=job.shuffle, threads=wanted)

    def opener(path: Path, sparse: bool, chunk_bytes: int) -> StoreWriter:
        size, form, packed = chunk_bytes, job.store_format, job.compression
        return create(path, sparse=sparse, chunk_bytes=size, overwrite=True, store_format=form, compression=packed)

    with lock_all(job.targets()), threading.use_threads(memory.threads):
        claim(store_outputs(job.targets(), continues=False), overwrite=job.overwrite)
        for target in job.targets():
            sweep_beside(target)
        options = replace(job.options(), memory_limit=memory.limit)
        return _fill_stores(job, report, opener, opened(options), options.rejects)


def _outputs(job: IngestJob) -> list[Output]:
    """Return all an ingest writes. Whether a store that is there is gone on with is decided by its journal
    (``resumable_builds``).
    """
    found = store_outputs(job.targets(), continues=True)
    found.append(Output(parts_path(job.store), PARTS, continues=True))
    return found if job.on_bad_line == "error" else [*found, Output(rejects_path(job.store), REJECTS, continues=True)]


def _ingest_files(job: IngestJob, memory_limit: int, report: Report, executor: Executor | None) -> IngestResult:
    """Open the files as one source and fill the stores, new ones, those of a stopped run, or ones to be repaired."""
    form = {"store_format": job.store_format, "compression": job.compression}
    with parts_beside(job.store, executor) as parts:
        options = replace(job.options(), memory_limit=memory_limit)
        if job.repair:  # the manifest alone is asked: files of rows are damaged. Stores of before have no offsets
            known = offsets_from(manifest.read(Path(job.store)).facts.get("encoding"))
            options = replace(options, offsets=known.to_json())
        source = source_for(job, options, executor, parts)
        if job.repair:
            return _fill_stores(job, report, repairs(job.sources), source, options.rejects)
        opener = resumable_builds(job.targets(), settings_of(job), default_settings(), overwrite=job.overwrite, **form)
        return _fill_stores(job, report, opener, source, options.rejects)


def _fill_stores(job: IngestJob, report: Report, opener: Opener, source: Source, rejects: Rejects) -> IngestResult:
    """Write all rows of a source to the stores of a job, which ``opener`` opens, and commit them.

    Raises what the batches of the source raise, DataError E-EMPTY, E-LABEL, E-ROWS, E-SPLIT, StorageError,
    InterruptedRun.
    """
    coder, total = label_coder(job.positive, job.label_threshold, job.task), sum(map(size_of, job.sources))
    stopwatch = Stopwatch()
    if source.proposals:
        report({"event": "columns", "decided": source.proposals})
    columns = source.columns  # asked before the thread begins, which may learn more at any time
    numbered = ((len(source.sources) - 1, batch) for batch in source.batches())  # with the position of their file
    with closing(read_ahead(numbered)) as batches, ExitStack() as on_failure, defer_signals():
        first = next(batches, None)
        if first is None or not len(first[1].labels):
            raise _nothing(job, first)
        sparse = _is_sparse(job.layout, source.sparse, columns, first[1])
        check_disk(job.store, total, source, first[1], None if sparse else columns)
        stores = Stores(job, opener, coder, sparse=sparse, columns=columns)
        on_failure.push(stores.on_exit)
        for file, batch in chain((first,), batches):
            if current.name:
                raise current.error("ingest is stopped")
            stores.append(batch, file)
            if stopwatch.due():
                report(_progress(stores, source, total, stopwatch))
        notices = _commit(job, source, stores, rejects.count) + _write_rejects(job, rejects)
        notices += [*precision_notices(job.store, source, first[1].X), *without_effect(job, idle_options(job, source))]
        on_failure.pop_all()
    report(_progress(stores, source, total, stopwatch) | {"done": True})
    assert source.columns is not None
    return IngestResult(
        store=job.store,
        test_store=job.test_path() if job.holds_out else None,
        rows=stores.rows - stores.test_rows,
        test_rows=stores.test_rows,
        columns=source.columns,
        sparse=sparse,
        classes=coder.table(),
        counts=tuple(stores.counts),
        bytes_read=sum(f.read for f in source.sources),
        seconds=stopwatch.seconds,
        target=coder.facts() if isinstance(coder, Numbers) else None,
        notices=tuple(notices),
    )


def _progress(stores: Stores, source: Source, total: int, stopwatch: Stopwatch) -> JsonObject:
    """Return the event that says how many of ``total`` bytes were read, and how many rows written."""
    read = sum(file.read for file in source.sources)
    event = {"event": "ingest", "rows": stores.rows, "bytes": read, "seconds": stopwatch.seconds}
    return event | {"total_bytes": total, "done": False}


class SourceMemory(NamedTuple):
    """What a source may take, and how many threads there is memory for."""

    limit: int
    """Bytes of a table, which one thread reads."""
    threads: int
    """Threads, one at least."""
    notices: tuple[str, ...]
    """A line where these are fewer than were wanted."""


def memory_for_source(
    stated: int | None,
    chunk_bytes: int,
    stores: int,
    *,
    shuffle: bool,
    threads: int = 1,
    files: Sequence[Path] = (),
    width: Callable[[], TableWidth] = lambda: NO_TABLE,
) -> SourceMemory:
    """Return what a source may take beside what ``stores`` writers hold, on as many of ``threads`` as there is memory
    for.

    ``files``: the paths that are read; ``width`` says what the columns of a table take. Raises BudgetError when not
    even the least fits, with a limit that is enough for all.
    """
    limit = budget.memory_limit(stated)
    names = budget.files_term(files)

    def plan_with(count: int, wide: int = 0) -> budget.MemoryPlan:
        terms = (
            *budget.base_terms(),
            Term("source", SOURCE_BYTES, "text, parser and rows in flight, at most"),
            names,
            *([Term("columns", wide, "more of a wide table")] if wide else []),
            Term("parsers", (count - 1) * PARSER_BYTES, f"{count - 1} more threads"),
            Term(
                "chunks",
                CHUNKS_PER_WRITER * chunk_bytes * stores,
                f"{CHUNKS_PER_WRITER} of {mib(chunk_bytes)} for each store",
            ),
            *([Term("shuffle", SHUFFLE_BYTES * stores, "a run or a bucket of rows")] if shuffle else []),
        )
        return budget.MemoryPlan(terms, limit, resident=True, cached=False, retain=True, threads=count)

    plan, alone = budget.with_most_threads(plan_with, threads), plan_with(1).total
    # tables, which ask for the limit, are not parsed by further threads
    left, table = limit - alone + SOURCE_BYTES, width()
    wide = plan_with(1, max(0, table.nbytes - SOURCE_BYTES))
    if alone > min(limit, budget.machine_bytes()):
        wide.check(", or smaller chunks: --chunk")
    if table.nbytes > left:
        raise table.refusal(left, wide.total)
    return SourceMemory(left, plan.threads, plan.short_of(threads))


def check_disk(target: Path, total: int, read: Source, first: Batch, columns: int | None) -> None:
    """Refuse what the disk has no room for, judging by the rows read first of sources of ``total`` bytes.

    ``columns`` is that of a dense store; None for CSR. Raises StorageError E-NOSPACE.
    """
    entries_read = first.X.data if isinstance(first.X, CSR) else first.X.values
    entries = 4 * columns if columns else 8 + 8 * np.count_nonzero(entries_read) / row_count(first.X)
    per_row = entries + 4 + 4 * (first.weight is not None)
    known, nbytes = sum(file.rows for file in read.sources), sum(file.read for file in read.sources)
    if known and nbytes:
        require_space(target, per_row * known / nbytes * total)


def default_settings() -> JsonObject:
    """Return the settings that need not be given, as plain JSON."""
    found = {option.name: option.default for option in options_of(IngestJob) if not option.required}
    plain: JsonObject = json.loads(msgspec.json.encode(found, enc_hook=str))
    return {name: value for name, value in plain.items() if name not in ELSEWHERE}


def settings_of(job: IngestJob) -> JsonObject:
    """Return all that decides the bytes of the store, as plain JSON: settings, and the sources as the disk knows them."""
    plain: JsonObject = json.loads(json.dumps(msgspec.to_builtins(job, enc_hook=str)))
    settings = {name: value for name, value in plain.items() if name not in ELSEWHERE}
    settings["sources"] = [
        [path.name, found.st_size, found.st_mtime_ns]
        for path in job.sources
        if path.exists()
        for found in [path.stat()]
    ]
    return settings


def manifest_facts(job: IngestJob, source: Source, rejected: int, coder: Labels) -> JsonObject:
    """Return the facts of a source that was read to its end, ``rejected`` lines of which were left out, as plain JSON."""
    encoding = source.encoding()
    kind = encoding.pop("label_type", "")  # of a table, whose column has a type
    if isinstance(coder, Census) and "schema" not in encoding and encoding["format"] != "svmlight":
        kind = label_type(next(iter(coder.kinds))) if len(coder.kinds) == 1 else ""
    type_of_labels = type_to_record(coder.table(), kind) if isinstance(coder, Census) else {}
    facts = {
        "names": None if source.names is None else list(source.names),
        "index_base": encoding.get("index_base"),
        "sources": [_describe_source(file) for file in source.sources],
        "encoding": encoding,
        "labels": {"positive": job.positive, "threshold": job.label_threshold} | type_of_labels,
        "test": _test_facts(job),
        "notices": dict(source.notices),
        "shuffled": job.shuffle,
        "rejected": rejected,
    }
    if "schema" in encoding:
        facts["indicators"] = schema_from(encoding["schema"]).indicators
    if isinstance(job, CacheIngestJob):
        facts[CACHE] = job.contents
    if source.id_column is not None:
        facts["ids"] = {"column": source.id_column}
    return facts


def _test_facts(job: IngestJob) -> JsonObject:
    """Return how rows were held out."""
    asked = {"stratify": job.stratify, "by": job.split_by, "after": job.split_after}
    return {"fraction": job.test_fraction, "seed": job.seed, **{name: value for name, value in asked.items() if value}}


def _describe_source(file: SourceFile) -> JsonObject:
    """Return a source as the manifest has it."""
    facts = {name: value for name, value in asdict(file).items() if name not in ("read", "text_notices")}
    return facts | {"name": source_name(file.name)}


def rejects_path(store: Path) -> Path:
    """Return where the list of lines that were left out of a store goes."""
    return store.with_name(f"{store.name}.rejects")


def _notice_lines(notices: Mapping[str, int]) -> list[str]:
    """Return notices with their counts, as lines of text."""
    return [f"{count} {what}" for what, count in notices.items() if count]


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


def _commit(job: IngestJob, source: Source, stores: Stores, rejected: int) -> list[str]:
    """Returns what there is to say of the rows."""
    _check_rows(stores.rows, job.expect_rows)
    if job.split_by or job.split_after:
        check_parts(stores.rows, stores.test_rows, "--split-by" if job.split_by else "--split-after")
    if not isinstance(stores.coder, Numbers):
        check_codings({source.sources[file].name: found for file, found in stores.labels.items()})
    columns = source.columns
    assert columns is not None
    facts = manifest_facts(job, source, rejected, stores.coder)
    if isinstance(stores.coder, Numbers):
        facts[TARGET] = stores.coder.facts()
    committed = stores.commit(columns, facts)
    same = similar_texts(getattr(stores.coder, "classes", ()))
    shown = ", ".join(quote(text, 24) for text in same[:6])
    notice = [f"labels that differ only by case or spaces are treated as different classes: {shown}"] if same else []
    return [*notice, *_notice_lines(source.notices), *drift_warning(committed)]


def _check_rows(found: int, expected: int | None) -> None:
    """Raise DataError E-ROWS when the sources did not hold as many rows as the user knows they should."""
    if expected is not None and found != expected:
        text = f"the sources hold {found} rows, {expected} are expected"
        raise DataError(
            text, code="E-ROWS", hint="a compressed file may be cut between two of its members: get it again"
        )


def _write_rejects(job: IngestJob, rejects: Rejects) -> list[str]:
    """Write the list of the lines that were left out, if there are any."""
    if not rejects.count:
        return []
    return [rejects.write(rejects_path(job.store))]
