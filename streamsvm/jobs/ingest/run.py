"""ingest: convert files, or rows of a program, to a store, and optionally to a test store beside it.

A thread reads batches from the source; labels are encoded as class codes, rows are converted to the layout of the
store, and each row is written to the store or the test store. The stores are committed at the end; before that, nothing
on disk can be mistaken for a complete store. Memory and disk space are checked before they are used.
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

from streamsvm.bfloat16 import BFLOAT16
from streamsvm.compute import threading
from streamsvm.config.command_table import format_command
from streamsvm.config.options import options_of
from streamsvm.config.units import mib, seconds_text
from streamsvm.durable import remove_stale_scratch
from streamsvm.engine.executor import Executor, executor_for
from streamsvm.engine.progress import Stopwatch
from streamsvm.engine.signals import defer_signals, interruption
from streamsvm.errors import DataError, InterruptedRun, StorageError, UsageError, quote
from streamsvm.input_files import find_url
from streamsvm.jobs import JobResult, format_value
from streamsvm.jobs.ingest.distributed import DistributedSource, parts_beside, parts_path, source_for
from streamsvm.jobs.ingest.hold_out import HoldOut, check_split
from streamsvm.jobs.ingest.notices import drift_warning, idle_options, precision_notices
from streamsvm.jobs.ingest.options import CacheIngestJob, IngestJob
from streamsvm.jobs.without_effect import notices_on_unused_options
from streamsvm.outputs import PARTS, REJECTS, Output, check_writable, output_path
from streamsvm.rows import CSR, Dense, Float32, Rows, density, in_layout, row_count, row_where
from streamsvm.schedule import budget
from streamsvm.schedule.machine import count_wanted_threads
from streamsvm.store import create
from streamsvm.store.format import manifest
from streamsvm.store.format.arrays import FLOAT16, FLOAT32, INT8, UINT8, Encoding, ScaleFinder
from streamsvm.store.format.labels import (
    TARGET,
    ClassCoder,
    LabelCoder,
    NumberCoder,
    add_counts,
    check_codings,
    collect_distinct_labels,
    label_coder,
    label_type,
    record_label_type,
    similar_texts,
)
from streamsvm.store.format.manifest import Manifest
from streamsvm.store.sources import Source, SourceFile, SourceOptions, table_width
from streamsvm.store.sources.byte_stream import source_name, standard_input
from streamsvm.store.sources.files import expand, files_read, table_of
from streamsvm.store.sources.hdf5_zarr import size_of
from streamsvm.store.sources.offsets import offsets_from
from streamsvm.store.sources.partitions import name_in_table
from streamsvm.store.sources.read_ahead import read_ahead
from streamsvm.store.sources.rejects import Rejects
from streamsvm.store.sources.remote_files import file_facts
from streamsvm.store.sources.schema import NO_TABLE, TableWidth, schema_from
from streamsvm.store.sources.source import BaseSource
from streamsvm.store.write.resume import (
    Opener,
    lock_all,
    open_for_repair,
    open_resumable_builds,
    require_space,
    store_outputs,
)
from streamsvm.store.write.shuffle import SHUFFLE_BYTES, ShufflingWriter
from streamsvm.store.write.writer import Background, StoreWriter
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Batch, Report, Term, silent
from streamsvm.types.data import BYTES_OF_TYPE

SOURCE_BYTES = 64 << 20
"""Bytes counted for the parser, its text and the rows in flight. The largest measured use is 60 MiB, for a Parquet file
with one-hot columns."""
CHUNKS_PER_WRITER = 3
"""Number of chunks that a writer holds at the same time: the chunk that is being filled, the rows from which it is
joined, and the storage unit that is being written. A writer with a background thread holds no more, because it joins
the next chunk only after the previous one was written."""
PARSER_BYTES = 16 << 20
"""Bytes for each additional parser thread: text, parsed arrays and rows (measured: 9 MiB with short rows)."""
AUTO = "auto"
RANGES = {
    FLOAT16: "numbers up to 65504",
    BFLOAT16: "numbers up to 3.39e38",
    UINT8: "whole numbers from 0 to 255",
}
"""The numbers that a type of stored numbers can represent; int8 represents all, since its scale follows from them."""
CACHE = "cache"
"""The key in the manifest of a store that a fit has made from files; its value says from what the store was made."""
DENSE_FROM = 0.5
"""Share of nonzero entries from which dense rows (4 bytes per entry) take fewer bytes than CSR rows (8 bytes)."""
SETTINGS_WITHOUT_CONTENT = (
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
    "table_version",
)
"""The fields of a job that do not affect the content of the store, or whose effect is in the description of the sources."""


class Stores:
    """The store that is being written and, if rows are held out, the test store; counts the rows written."""

    def __init__(self, job: IngestJob, opener: Opener, coder: LabelCoder, form: StoreForm) -> None:
        self.coder = coder
        """Encodes labels as class codes."""
        self.rows = self.test_rows = 0
        """Number of rows written in both stores, and in the test store."""
        self.counts: list[int] = []
        """Number of rows of each class."""
        self.labels: dict[int, set[str]] = {}
        """The distinct labels in each file, by the position of the file; at most three per file are kept."""
        self._sparse, self._columns = form.sparse, form.columns
        self.encoding = form.encoding
        """The encoding of dense rows; None for float32."""
        self._rounds = not form.is_exact
        self._split = HoldOut(job.seed, job.test_fraction, job.stratify)
        writers = [opener(path, form.sparse, job.chunk_bytes) for path in job.targets()]
        for writer in writers:
            if writer.repairs is None:
                writer.encoding = form.encoding
            else:  # as it was written
                self.encoding, self._rounds = writer.encoding, True
        if threading.threads() > 1:
            for writer in writers:
                writer.background = Background()
        self._writers: list[StoreWriter | ShufflingWriter] = list(writers)
        if job.shuffle:
            self._writers = [ShufflingWriter(writer, job.seed) for writer in writers]

    def append(self, batch: Batch, file: int) -> None:
        """Write the rows of a batch of the file at position ``file``. Raises DataError E-ROWS, E-LABEL,
        StorageError.
        """
        rows = row_count(batch.X)
        if len(batch.labels) != rows:
            raise DataError(
                f"{rows} rows have {len(batch.labels)} labels", code="E-ROWS", hint="check the label source"
            )
        codes = self.coder.codes(batch.labels)
        X = in_layout(batch.X, sparse=self._sparse, columns=self._columns)
        if self.encoding is not None and self._rounds:
            X = self._round(X, self.encoding)
        if len(self._writers) == 1:
            self._writers[0].append(X, codes, batch.weight, batch.ids)
        else:
            chosen = self._split.choose(self.rows, codes, batch.split)
            for writer, mask in zip(self._writers, (~chosen, chosen), strict=True):
                if mask.any():
                    weight, ids = (None if values is None else values[mask] for values in (batch.weight, batch.ids))
                    writer.append(row_where(X, mask), codes[mask], weight, ids)
            self.test_rows += int(np.count_nonzero(chosen))
        self.rows += rows
        self.counts = add_counts(self.counts, codes)
        collect_distinct_labels(batch.labels, self.labels.setdefault(file, set()))

    def _round(self, X: Rows, encoding: Encoding) -> Dense:
        """Return rows rounded to the type in which they are stored. Raises DataError E-RANGE for a number that the type
        cannot represent.
        """
        assert isinstance(X, Dense)
        rounded, does_not_fit = encoding.round(X.values)
        if does_not_fit.any():
            row, column = np.argwhere(does_not_fit)[0].tolist()
            place = f"row {self.rows + row + 1}, feature {column + 1}"
            message = f"{place}: {X.values[row, column]:g} does not fit {encoding.dtype}, which holds {RANGES[encoding.dtype]}"
            raise DataError(message, code="E-RANGE", hint="pass --store-dtype float32, or scale the numbers")
        return Dense(rounded)

    def commit(self, columns: int, facts: JsonObject) -> Manifest:
        """Commit the test store and then the store, whose existence says that both are complete; return the manifest of
        the store.
        """
        classes = self.coder.table()
        return [writer.commit(classes, columns, facts) for writer in reversed(self._writers)][-1]

    def on_exit(self, _: object, error: BaseException | None, __: object) -> None:
        """Keep unfinished stores if the next run can continue from them, else remove them.

        This is a callback of an exit stack.
        """
        if isinstance(error, InterruptedRun | StorageError | KeyboardInterrupt):
            safe = sum(writer.suspend() for writer in self._writers)
            if isinstance(error, InterruptedRun | StorageError):
                error.hint = f"{safe} chunks are safe; run the same command again to go on"
        elif error is not None:
            for writer in self._writers:
                writer.abort()


class StoreForm(NamedTuple):
    """The layout, the width and the encoding of the stored rows."""

    sparse: bool
    """Whether the rows are stored as CSR."""
    columns: int | None
    """The number of features; None if it is known only after the last row."""
    encoding: Encoding | None
    """The encoding of dense rows; None for float32."""
    is_exact: bool
    """Whether the encoding changes no number."""


@dataclass(frozen=True, slots=True, repr=False)
class IngestResult(JobResult):
    """The result of an ingest: the stores, and the numbers of rows and columns in them."""

    store: Path | str
    """The path of the store; a text for a URL."""
    test_store: Path | str | None
    """The path of the test store; None if no rows were held out."""
    rows: int
    """Number of rows in the store."""
    test_rows: int
    """Number of rows in the test store."""
    columns: int
    """The number of features."""
    sparse: bool
    """Whether the rows are stored as CSR."""
    store_dtype: str
    """The type of the stored numbers."""
    classes: tuple[str, ...]
    """The label of each class code."""
    counts: tuple[int, ...]
    """Number of rows of each class, in both stores."""
    bytes_read: int
    """Bytes read from the sources."""
    seconds: float
    """Wall-clock time."""
    target: JsonObject | None = None
    """For regression, ``mean``, ``spread`` (standard deviation), ``least`` and ``most`` of the numbers to predict; None
    for classes."""

    def summary(self) -> dict[str, str]:
        """Return the paths of the stores, the numbers of rows and columns, and the classes, as texts by name."""
        classes = (
            [f"{name} {count}" for name, count in zip(self.classes, self.counts, strict=True)] if self.classes else []
        )
        texts = {
            "store": str(self.store),
            "rows": str(self.rows),
            "columns": str(self.columns),
            "layout": "csr" if self.sparse else "dense" if self.store_dtype == FLOAT32 else f"dense {self.store_dtype}",
            "classes": format_value(", ".join(classes)),
            "test store": "" if self.test_store is None else f"{self.test_store} ({self.test_rows} rows)",
            "time": seconds_text(self.seconds),
        }
        return {name: text for name, text in texts.items() if text}


def ingest(job: IngestJob, report: Report = silent, executor: Executor | None = None) -> IngestResult:
    """Read the sources once and commit the store and the test store; in case of an error neither is committed.

    An error for a bad value also lists all other problems of the table, and the command that ingests the table in spite
    of them. If a run was interrupted, or stopped because the disk was full, the next run of the same job continues it.

    Raises the errors of ``open_source`` and of reading, ExistsError, StorageError, BudgetError, DataError E-LABEL,
    ConfigError if an ingest with other settings was interrupted at this path, InterruptedRun.
    """
    try:
        return ingest_sources(job, report, executor)
    except DataError as error:
        from streamsvm.jobs.ingest.describe import add_problems

        add_problems(error, job, report, partial(format_command, "ingest", job))
        raise


def ingest_sources(job: IngestJob, report: Report = silent, executor: Executor | None = None) -> IngestResult:
    """Do the work of ``ingest``; an error names only the first bad value."""
    files = expand(job.sources, job.table_version)
    job = replace(job.with_schema(), sources=files, store=output_path(job.store))
    thread_count = count_wanted_threads(job.threads)
    memory = memory_for_source(
        job.memory,
        job.chunk_bytes,
        job.targets(),
        shuffle=job.shuffle,
        threads=thread_count,
        files=files_read(files),
        width=partial(table_width, files, job.options()),
    )
    with executor_for(job, executor) as connected, lock_all(job.targets()), threading.use_threads(memory.threads):
        check_writable(_outputs(job), [*job.sources, job.labels, job.schema], overwrite=job.overwrite or job.repair)
        with standard_input(job.sources, find_kept_input(job.store), cluster=connected is not None) as sources:
            job = replace(job, sources=files.replace_paths(map(Path, sources)))
            result = _ingest_files(job, memory.limit, report, connected)
            return replace(result, notices=(*memory.notices, *result.notices))


def find_kept_input(store: Path) -> Path:
    """Return the path beside which standard input is kept in a scratch file. It is not the path of the store, because
    files beside the store are removed during the ingest.
    """
    beside = store.with_name(f"{store.name}.input")
    remove_stale_scratch(beside)
    return beside


def ingest_from(
    job: IngestJob, open_rows: Callable[[SourceOptions], Source], report: Report = silent, classes: Sequence[str] = ()
) -> IngestResult:
    """Ingest rows of a program. ``open_rows`` returns their source; it is called after the outputs were locked.

    ``classes``: labels that are known beforehand, so that all rows may be of one class.

    An interrupted run is not continued. Raises the errors of ``ingest``.
    """
    job = replace(job, store=output_path(job.store))
    thread_count = count_wanted_threads(job.threads)
    memory = memory_for_source(job.memory, job.chunk_bytes, job.targets(), shuffle=job.shuffle, threads=thread_count)

    def opener(path: Path, sparse: bool, chunk_bytes: int) -> StoreWriter:
        size, form, packed = chunk_bytes, job.store_format, job.compression
        return create(path, sparse=sparse, chunk_bytes=size, overwrite=True, store_format=form, compression=packed)

    with lock_all(job.targets()), threading.use_threads(memory.threads):
        check_writable(store_outputs(job.targets(), may_exist=False), overwrite=job.overwrite)
        for target in job.targets():
            remove_stale_scratch(target)
        options = replace(job.options(), memory_limit=memory.limit)
        return _fill_stores(job, report, opener, open_rows(options), options.rejects, classes)


def _outputs(job: IngestJob) -> list[Output]:
    """Return all outputs of an ingest. The journal of an unfinished store decides whether it is continued
    (``open_resumable_builds``).
    """
    outputs = store_outputs(job.targets(), may_exist=True)
    outputs.append(Output(parts_path(job.store), PARTS, may_exist=True))
    return (
        outputs if job.on_bad_line == "error" else [*outputs, Output(rejects_path(job.store), REJECTS, may_exist=True)]
    )


def _ingest_files(job: IngestJob, memory_limit: int, report: Report, executor: Executor | None) -> IngestResult:
    """Open the files as one source and fill the stores: new ones, those of an interrupted run, or those to repair."""
    form = {"store_format": job.store_format, "compression": job.compression}
    with parts_beside(job.store, executor) as parts:
        options = replace(job.options(), memory_limit=memory_limit)
        if job.repair:  # only the manifest is read, because files of rows are damaged
            offsets = offsets_from(manifest.read(Path(job.store)).facts.get("encoding"))
            options = replace(options, offsets=offsets.to_json())
        source = source_for(job, options, executor, parts)
        if job.repair:
            return _fill_stores(job, report, open_for_repair(files_read(job.sources)), source, options.rejects)
        opener = open_resumable_builds(
            job.targets(), settings_of(job), default_settings(), overwrite=job.overwrite, **form
        )
        return _fill_stores(job, report, opener, source, options.rejects)


def _fill_stores(  # noqa: PLR0917
    job: IngestJob, report: Report, opener: Opener, source: Source, rejects: Rejects, classes: Sequence[str] = ()
) -> IngestResult:
    """Write all rows of a source to the stores of a job, which ``opener`` opens, and commit the stores.

    ``classes``: labels that are known beforehand.

    Raises the errors of reading, DataError E-EMPTY, E-LABEL, E-ROWS, E-SPLIT, StorageError, InterruptedRun.
    """
    coder, total = label_coder(job.positive, job.label_threshold, job.task), _bytes_of(job.sources)
    if isinstance(coder, ClassCoder):
        coder.classes, coder.counts = list(classes), [0] * len(classes)
    stopwatch = Stopwatch()
    if source.proposals:
        report({"event": "columns", "decided": source.proposals})
    scale = find_scale(source) if job.store_dtype == INT8 and not job.repair else None
    columns = source.columns  # read here, because the reading thread may change it at any time
    numbered = ((len(source.sources) - 1, batch) for batch in source.batches())  # each with the position of its file
    with closing(read_ahead(numbered)) as batches, ExitStack() as on_failure, defer_signals():
        first = next(batches, None)
        if first is None or not len(first[1].labels):
            raise _no_rows_error(job, first)
        form = _choose_form(job, source, columns, first[1], scale)
        check_disk(job.store, total, source, first[1], form)
        stores = Stores(job, opener, coder, form)
        on_failure.push(stores.on_exit)
        for file, batch in chain((first,), batches):
            if interruption.name:
                raise interruption.error("ingest is stopped")
            stores.append(batch, file)
            if stopwatch.due():
                report(_progress(stores, source, total, stopwatch))
        notices = _commit(job, source, stores, rejects.count) + _write_rejects(job, rejects)
        notices += [
            *precision_notices(job.store, source, first[1].X),
            *notices_on_unused_options(job, idle_options(job, source)),
        ]
        on_failure.pop_all()
    report(_progress(stores, source, total, stopwatch) | {"done": True})
    assert source.columns is not None
    return IngestResult(
        store=job.store,
        test_store=job.test_path() if job.holds_out else None,
        rows=stores.rows - stores.test_rows,
        test_rows=stores.test_rows,
        columns=source.columns,
        sparse=form.sparse,
        store_dtype=FLOAT32 if stores.encoding is None else stores.encoding.dtype,
        classes=coder.table(),
        counts=tuple(stores.counts),
        bytes_read=sum(f.read for f in source.sources),
        seconds=stopwatch.seconds,
        target=coder.facts() if isinstance(coder, NumberCoder) else None,
        notices=tuple(notices),
    )


def _bytes_of(sources: Sequence[Path]) -> int:
    """Return the bytes of all files of the sources."""
    table = table_of(sources)
    return sum(map(size_of, sources)) if table is None else table.bytes


def _progress(stores: Stores, source: Source, total: int, stopwatch: Stopwatch) -> JsonObject:
    """Return the progress event: bytes read, of ``total`` bytes, and rows written."""
    read = sum(file.read for file in source.sources)
    event = {"event": "ingest", "rows": stores.rows, "bytes": read, "seconds": stopwatch.seconds}
    return event | {"total_bytes": total, "done": False}


class SourceMemory(NamedTuple):
    """The memory limit of a source, and the number of threads for which memory suffices."""

    limit: int
    """Bytes that a table may use; one thread reads it."""
    threads: int
    """Number of threads, at least 1."""
    notices: tuple[str, ...]
    """One line if there are fewer threads than wanted."""


def memory_for_source(
    stated: int | None,
    chunk_bytes: int,
    targets: Sequence[Path],
    *,
    shuffle: bool,
    threads: int = 1,
    files: Sequence[Path] = (),
    width: Callable[[], TableWidth] = lambda: NO_TABLE,
) -> SourceMemory:
    """Return the memory limit of a source, given the paths of the stores, and the number of threads, up to ``threads``, for
    which memory suffices.

    ``files``: the paths that are read. ``width`` returns the memory that the columns of a table take. Raises
    BudgetError, with a sufficient limit, if memory does not suffice for one thread.
    """
    limit, stores = budget.memory_limit(stated), len(targets)
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
            *budget.upload_terms(targets, chunk_bytes),
            *([Term("shuffle", SHUFFLE_BYTES * stores, "a run or a bucket of rows")] if shuffle else []),
        )
        return budget.MemoryPlan(terms, limit, resident=True, cached=False, retain=True, threads=count)

    plan, single_thread_bytes = budget.with_most_threads(plan_with, threads), plan_with(1).total
    # only tables use the limit, and they are parsed by one thread
    left, table = limit - single_thread_bytes + SOURCE_BYTES, width()
    wide = plan_with(1, max(0, table.nbytes - SOURCE_BYTES))
    if single_thread_bytes > min(limit, budget.machine_bytes()):
        wide.check(", or smaller chunks: --chunk")
    if table.nbytes > left:
        raise table.refusal(left, wide.total)
    return SourceMemory(left, plan.threads, plan.notices_of_missing_threads(threads))


def check_disk(target: Path, total: int, read: Source, first: Batch, form: StoreForm) -> None:
    """Raise StorageError E-NOSPACE if the disk has too little space for the store, as estimated from the first rows.

    ``total``: bytes of all sources.
    """
    if form.columns and not form.sparse:
        entries: float = BYTES_OF_TYPE[FLOAT32 if form.encoding is None else form.encoding.dtype] * form.columns
    else:
        entries_read = first.X.data if isinstance(first.X, CSR) else first.X.values
        entries = 8 + 8 * np.count_nonzero(entries_read) / row_count(first.X)
    per_row = entries + 4 + 4 * (first.weight is not None)
    known, nbytes = sum(file.rows for file in read.sources), sum(file.read for file in read.sources)
    if known and nbytes:
        require_space(target, per_row * known / nbytes * total)


def default_settings() -> JsonObject:
    """Return the default values of the optional settings that affect the store, as plain JSON."""
    defaults = {option.name: option.default for option in options_of(IngestJob) if not option.required}
    plain: JsonObject = json.loads(msgspec.json.encode(defaults, enc_hook=str))
    return {name: value for name, value in plain.items() if name not in SETTINGS_WITHOUT_CONTENT}


def settings_of(job: IngestJob) -> JsonObject:
    """Return everything that determines the bytes of the store, as plain JSON: settings, and names, sizes and times of
    the sources.
    """
    plain: JsonObject = json.loads(json.dumps(msgspec.to_builtins(job, enc_hook=str)))
    settings = {name: value for name, value in plain.items() if name not in SETTINGS_WITHOUT_CONTENT}
    if (table := table_of(job.sources)) is not None:
        return settings | {"sources": [table.facts()]}
    settings["sources"] = [
        [name_in_table(path), status.st_size, status.st_mtime_ns]
        for path in job.sources
        if find_url(path) is None and path.exists()
        for status in [path.stat()]
    ]
    settings["sources"] += [[url, *file_facts(url)] for path in job.sources if (url := find_url(path)) is not None]
    return settings


def manifest_facts(job: IngestJob, source: Source, rejected: int, coder: LabelCoder) -> JsonObject:
    """Return the facts about a source for the manifest, as plain JSON, after all of it was read.

    ``rejected``: number of lines that were skipped.
    """
    encoding = source.encoding()
    kind = encoding.pop("label_type", "")  # only tables have it, whose columns have types
    if isinstance(coder, ClassCoder) and "schema" not in encoding and encoding["format"] != "svmlight":
        kind = label_type(next(iter(coder.kinds))) if len(coder.kinds) == 1 else ""
    type_of_labels = record_label_type(coder.table(), kind) if isinstance(coder, ClassCoder) else {}
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
    if (table := table_of(job.sources)) is not None:
        facts["table"] = table.facts()
    if isinstance(job, CacheIngestJob):
        facts[CACHE] = job.contents
    if source.id_column is not None:
        facts["ids"] = {"column": source.id_column}
    return facts


def _test_facts(job: IngestJob) -> JsonObject:
    """Return the settings by which rows were held out."""
    asked = {"stratify": job.stratify, "by": job.split_by, "after": job.split_after}
    return {"fraction": job.test_fraction, "seed": job.seed, **{name: value for name, value in asked.items() if value}}


def _describe_source(file: SourceFile) -> JsonObject:
    """Return the facts about one source file for the manifest."""
    facts = {name: value for name, value in asdict(file).items() if name not in ("read", "text_notices")}
    if (url := find_url(file.name)) is not None:
        facts["etag"] = file_facts(url).etag
    return facts | {"name": source_name(file.name)}


def rejects_path(store: Path) -> Path:
    """Return the path of the list of lines that were skipped."""
    return store.with_name(f"{store.name}.rejects")


def _notice_lines(notices: Mapping[str, int]) -> list[str]:
    """Return notices with their counts, as lines of text."""
    return [f"{count} {what}" for what, count in notices.items() if count]


def _no_rows_error(job: IngestJob, first: object) -> DataError:
    if first is None:
        return DataError(f"{job.sources[0]} holds no rows", code="E-EMPTY", hint="check the source")
    return DataError(f"{job.sources[0]} holds no labels", code="E-LABEL", hint="name their column: --label")


def find_scale(source: Source) -> Float32 | None:
    """Read all rows and return the scale factor of each column for int8, (columns,); None for sparse rows whose number of
    columns is unknown.
    """
    if isinstance(source, DistributedSource):
        return source.find_scale()
    assert isinstance(source, BaseSource)
    finder, columns = ScaleFinder(), source.columns
    with source.looking_ahead():
        for batch in source.batches():
            if isinstance(batch.X, CSR) and columns is None:
                return None
            finder.add(batch.X, columns)
    return finder.find()


def _choose_form(job: IngestJob, source: Source, columns: int | None, first: Batch, scale: Float32 | None) -> StoreForm:
    """Return the form in which the rows of a source are stored. Raises UsageError for a type that CSR rows cannot have."""
    sparse = _is_sparse(job.layout, source.sparse, columns, first)
    if job.store_dtype == AUTO and not sparse and source.dtype != FLOAT32:
        return StoreForm(sparse, columns, Encoding(source.dtype), is_exact=True)
    if job.store_dtype in (AUTO, FLOAT32):
        return StoreForm(sparse, columns, None, is_exact=True)
    if sparse:
        raise UsageError(
            f"--store-dtype {job.store_dtype} is for dense rows, and these rows are stored as CSR",
            hint="leave it out, or pass --layout dense",
        )
    is_exact = job.store_dtype == source.dtype
    encoding = Encoding(job.store_dtype) if scale is None else Encoding(job.store_dtype, scale)
    return StoreForm(sparse, columns, encoding, is_exact=is_exact)


def _is_sparse(layout: str, sparse: bool, columns: int | None, first: Batch) -> bool:
    if layout == "dense" and sparse and columns is None:
        raise UsageError("a dense store needs the number of columns before the first row", hint="pass --features N")
    if layout != "auto":
        return layout == "csr"
    return sparse and (columns is None or density(first.X, columns) < DENSE_FROM)


def _commit(job: IngestJob, source: Source, stores: Stores, rejected: int) -> list[str]:
    """Check the rows written, commit the stores, and return notices about the rows.

    Raises DataError E-ROWS, E-SPLIT, E-LABEL.
    """
    _check_rows(stores.rows, job.expect_rows)
    if job.split_by or job.split_after:
        check_split(stores.rows, stores.test_rows, "--split-by" if job.split_by else "--split-after")
    if not isinstance(stores.coder, NumberCoder):
        check_codings({source.sources[file].name: labels for file, labels in stores.labels.items()})
    columns = source.columns
    assert columns is not None
    facts = manifest_facts(job, source, rejected, stores.coder)
    if isinstance(stores.coder, NumberCoder):
        facts[TARGET] = stores.coder.facts()
    if stores.encoding is not None and len(stores.encoding.scale):
        facts["scale"] = stores.encoding.scale.tolist()
    committed = stores.commit(columns, facts)
    similar = similar_texts(getattr(stores.coder, "classes", ()))
    shown = ", ".join(quote(text, 24) for text in similar[:6])
    notice = [f"labels that differ only by case or spaces are treated as different classes: {shown}"] if similar else []
    return [*notice, *_notice_lines(source.notices), *drift_warning(committed)]


def _check_rows(rows: int, expected: int | None) -> None:
    """Raise DataError E-ROWS if the number of rows differs from --expect-rows."""
    if expected is not None and rows != expected:
        message = f"the sources hold {rows} rows, {expected} are expected"
        raise DataError(
            message, code="E-ROWS", hint="a compressed file may be cut between two of its members: get it again"
        )


def _write_rejects(job: IngestJob, rejects: Rejects) -> list[str]:
    """Write the list of the lines that were skipped; return a notice if there are any."""
    if job.on_bad_line == "error" or job.repair:  # a repair leaves the list of its ingest
        return []
    return rejects.write(rejects_path(job.store))
