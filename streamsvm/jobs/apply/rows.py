"""Read the rows to which a model is applied, from a store or from files, and compute their decision values.

Rows are read in order and in bounded memory, and their columns are checked against the model. Files are read with the
options and the encoding of the model's training data. Each thread reads chunks of a store by itself; files are parsed in
batches by whichever thread is free. On a cluster each task gets a slice: a group of chunks, or one file. Results do not
depend on the number of threads or workers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from streamsvm import model as models
from streamsvm.config.units import mib
from streamsvm.engine.executor import RESULTS_AHEAD_PER_THREAD, Task, local_executor
from streamsvm.engine.partition import Group, contiguous_groups
from streamsvm.errors import BudgetError, DataError, UsageError, quote
from streamsvm.features.curves import Hats
from streamsvm.features.expansion import WORKING_BYTES
from streamsvm.input_files import find_url, is_folder
from streamsvm.jobs.without_effect import STORE
from streamsvm.model import Model
from streamsvm.object_store import is_object
from streamsvm.proofs.kept import TILE_BYTES
from streamsvm.rows import CSR, Float64, Int32, Rows, row_count
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MIB, MemoryPlan
from streamsvm.schedule.stream import Stream
from streamsvm.store import open_store
from streamsvm.store.foreign import foreign_format
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.labels import REST, NumberCoder, label_text
from streamsvm.store.format.manifest import FILE as MANIFEST
from streamsvm.store.format.manifest import JOURNAL_FILE as JOURNAL
from streamsvm.store.format.row_ids import IdReader
from streamsvm.store.sources import Source, SourceOptions, open_source, options_from, table_width
from streamsvm.store.sources.files import expand, files_read, with_rows
from streamsvm.store.sources.offsets import Offsets, offsets_from
from streamsvm.store.sources.options import NewRowOptions
from streamsvm.store.sources.rejects import Rejects
from streamsvm.type_aliases import Array, JsonMapping
from streamsvm.types import Layout, Term, Visit

if TYPE_CHECKING:
    from streamsvm.jobs.apply.options import EvaluateJob, PredictJob

DEPTH, REMOTE_DEPTH = 1, 4
"""Blocks read ahead, of a disk and of an object store. One is enough to hide the time of a disk; memory is better spent elsewhere."""
SOURCE_TERM = Term("source", 96 * MIB, "text, parser and rows of one batch, at most (measured: 20 to 70 MiB)")
"""Memory of reading files."""
BATCH_BYTES = 8 * MIB
"""Bytes, at most, of the batch of a source that one thread works on (measured: 2 to 6 MiB)."""
WIDE_BYTES = 32 << 20
"""Descriptions of a table's columns get a term of their own in the plan if they take more bytes than this."""
STORE_FILES = (MANIFEST, JOURNAL, "zarr.json", "part-00000.h5")
"""Names of which a store of ours contains at least one, also during its ingest and after its manifest was lost."""


class RowBatch(NamedTuple):
    """Some rows with their true labels."""

    X: Rows
    truth: Array | None
    """(n,) int32 indices into ``RowBatches.truths``, or (n,) float64 targets in regression; None if rows are not labeled."""
    ids: Array | None = None
    """(n,) row ids, integers or text; None if rows have none, or if ids are read from a store separately."""
    first: int = 0
    """Number of the first row in the store; 0 for files."""
    weight: Array | None = None
    """(n,) row weights; None if rows have none."""


Prepare: TypeAlias = Callable[[Float64, RowBatch], Any]
"""Returns what the caller needs of decision values (n, k) and their rows; called in the thread that computed them."""
RowPart: TypeAlias = int | RowBatch
"""The unit of work of a thread: the number of a chunk, or rows parsed from files."""


@dataclass(slots=True)
class RowBatches:
    """An iterator over the rows of a store or of files, in order."""

    model: Model
    truths: list[str]
    """The model's classes, followed by labels in the data that are no class of the model (it grows while rows are read)."""
    total: int | None
    """Number of rows; None if unknown before reading."""
    terms: list[Term]
    """Memory that reading takes."""
    store: Any = None
    """The store; None for files."""
    source: Source | None = None
    """The files; None for a store."""
    notices: list[str] = field(default_factory=list)
    """Notices for the user, as lines of text."""
    chunks: tuple[int, ...] | None = None
    """Chunks of the store to read; None for all."""
    id_column: str | None = None
    """Column of the row ids; None if rows have none."""
    id_reader: Callable[[], IdReader] | None = None
    """Opens the row ids of a store; None if it has none."""
    rejects: Rejects = field(default_factory=Rejects)
    """Bad lines of the files that were skipped."""
    offsets: Offsets = field(default_factory=lambda: offsets_from(None))
    """Offsets to subtract from columns of a store that was centered differently from the model's training data."""
    _codes: Int32 = field(init=False)
    """Index in ``truths`` of each class of the store."""

    def __post_init__(self) -> None:
        classes = () if self.store is None or self.model.numeric else self.store.layout.classes
        self._codes = np.array([self._truth(name) for name in classes], np.int32)

    @property
    def form(self) -> str:
        """The format of the files; ``STORE`` for a store."""
        return STORE if self.source is None else self.source.encoding()["format"]

    def plan_within(self, memory: int | None, per_row: int, threads: int = 1) -> MemoryPlan:
        """Return the memory plan with the most threads, up to ``threads``, that fit the limit.

        ``memory``: the limit in bytes; None: the default. ``per_row``: bytes of results for each row of a block. Raises
        BudgetError if not even one thread fits.
        """
        plan = budget.with_most_threads(partial(self.plan_on, memory, per_row), threads)
        plan.check("")
        self.notices += plan.notices_of_missing_threads(threads)
        return plan

    def plan_on(self, memory: int | None, per_row: int, threads: int = 1) -> MemoryPlan:
        """Return the memory plan for exactly ``threads`` threads, whether it fits or not."""
        rows = 65_536 if self.store is None else self.store.layout.largest_chunk
        block_bytes = BATCH_BYTES if self.store is None else self.store.layout.block_bytes
        waiting = RESULTS_AHEAD_PER_THREAD * threads if threads > 1 else 0
        wide = 8 * len(self.model.weights) + per_row // 8  # decision values, and what was made of them
        terms = [
            *budget.base_terms(),
            *model_terms(self.model, threads, block_bytes),
            *self.terms,
            Term("results", per_row * rows * (threads + 1) // 2, f"{per_row} bytes a row of a block"),
            Term("results in their order", waiting * wide * rows, f"{waiting} x {wide} bytes a row"),
        ]
        if threads > 1:
            each = BATCH_BYTES if self.store is None else sum(term.nbytes for term in self.terms)
            terms.append(Term("rows of other threads", (threads - 1) * each, f"{threads - 1} x {mib(each)}"))
        limit = budget.memory_limit(memory)
        return MemoryPlan(tuple(terms), limit, resident=True, cached=False, retain=True, threads=threads)

    def __iter__(self) -> Iterator[RowBatch]:
        names = self.names()
        for batch in self.read(self.parts()):
            yield batch._replace(ids=names(batch.ids, batch.first, row_count(batch.X)))

    def names(self) -> Callable[[Array | None, int, int], Array | None]:
        """Return a function of (ids, first, count) that gives the ids of a batch: its own, or ``count`` of the store from ``first`` on."""
        if self.id_reader is None:
            return lambda ids, _first, _count: ids
        reader = self.id_reader()
        return lambda _ids, first, count: reader.read(first, first + count)

    def parts(self) -> Iterator[RowPart]:
        """Yield the units of work in order: numbers of chunks, or batches of files as they are parsed."""
        if self.source is None:
            yield from range(len(self.store.layout.chunks)) if self.chunks is None else sorted(self.chunks)
            return
        rows = 0
        for batch in self.source.batches():
            rows += row_count(batch.X)
            self._check_width(batch.X)
            truth = self._truths_of(batch.labels) if len(batch.labels) else None
            yield RowBatch(batch.X, truth, batch.ids, weight=batch.weight)
        counted = sum(file.rows for file in self.source.sources)
        if rows != counted:
            raise DataError(f"{rows} rows were read of {counted}", code="E-ROWS", hint="run it again")
        self.notices += [f"{count} {what}" for what, count in self.source.notices.items() if count]

    def groups(self) -> list[Group] | None:
        """Return the groups of chunks over which sums are taken, which the store alone decides; None for files."""
        return None if self.source is not None else contiguous_groups(self.store.layout)

    def read(self, parts: Iterator[RowPart]) -> Generator[RowBatch]:
        """Yield the rows of parts in order; a batch is valid until the next one is requested. Any thread may call it."""
        if self.source is not None:
            yield from cast(Iterator[RowBatch], parts)
            return
        layout = self.store.layout
        retain = layout.bytes_per_pass <= budget.page_cache_bytes(0)
        starts = layout.starts
        visits = (Visit(0, chunk, 0, shuffled=False, last=False) for chunk in cast(Iterator[int], parts))
        with Stream(self.store, visits, depth=read_depth(layout), retain=retain) as stream:
            for loaded in stream:
                truth = self._truth_of(loaded.chunk.codes)
                X, first = self.offsets.apply(loaded.chunk.X), starts[loaded.visit.chunk]
                yield RowBatch(X, truth, None, first, loaded.chunk.weight)

    def _truth_of(self, codes: Array) -> Array | None:
        """Return the true labels of rows of a store; None if the store has classes and the model predicts numbers, or
        vice versa.
        """
        if self.model.numeric != self.store.layout.numeric:
            return None
        return codes.copy() if self.model.numeric else self._codes[codes]

    def _truth(self, label: str) -> int:
        """Return the index of a label in ``truths``. An unknown label is the class 'rest' if the model has one, else appended."""
        if label not in self.truths:
            trimmed = [k for k, truth in enumerate(self.truths) if truth.strip() == label.strip()]
            if len(trimmed) == 1:
                return trimmed[0]
            if REST in self.truths:
                return self.truths.index(REST)
            self.notices.append(f"the model does not know the label {quote(label)}: its rows count as errors")
            self.truths.append(label)
        return self.truths.index(label)

    def _truths_of(self, labels: Array) -> Array:
        if self.model.numeric:
            return NumberCoder().codes(labels)
        threshold = (self.model.provenance.get("labels") or {}).get("threshold")
        if threshold is not None:
            return (labels >= threshold).astype(np.int32)
        values, inverse = np.unique(labels, return_inverse=True)
        codes = np.array([self._truth(label_text(value)) for value in values.tolist()], np.int32)
        return codes[inverse]

    def _check_width(self, X: Rows) -> None:
        columns = self.model.columns
        if isinstance(X, CSR):
            width = int(X.indices.max(initial=-1)) + 1
            wrong = width > columns
        else:
            width = X.values.shape[1]
            wrong = width != columns
        if wrong:
            raise width_error("the source", width, columns)


def model_terms(model: Model, threads: int, block_bytes: int) -> list[Term]:
    """Return the memory of a model, and of applying it on ``threads`` threads to blocks of ``block_bytes`` bytes."""
    if model.expansion is None:
        terms = [Term("model", model.weights.nbytes, "weights")]
        if model.enclosures is not None:
            nbytes = model.enclosures.nbytes + 3 * threads * TILE_BYTES
            terms.append(Term("enclosures", nbytes, "what proves answers, and rows in float64"))
        return terms
    nbytes = model.weights.nbytes + sum(array.nbytes for array in model.expansion.tensors().values())
    if isinstance(model.expansion, Hats):
        rows = Term("rows of hats", threads * model.expansion.part_bytes(block_bytes), "of a part of a block")
        return [Term("model", nbytes, "knots and weights"), rows]
    return [
        Term("model", nbytes, "points and weights"),
        Term("kernel values", threads * WORKING_BYTES, "of a tile of rows"),
    ]


def width_error(what: str, width: int, expected: int) -> DataError:
    """Return the error for rows whose number of columns is not the model's."""
    return DataError(
        f"{what} has {width} columns, the model {expected}",
        code="E-SCHEMA",
        hint="apply the model to data with the columns it was trained on",
    )


def is_store(path: Path) -> bool:
    """Return whether a path is a store of ours, complete or not, rather than files of rows; at a URL, a complete store."""
    if (url := find_url(path)) is not None:
        return is_object(f"{url}/{manifests.FILE}")
    return is_folder(path) and foreign_format(path) is None and any((path / name).exists() for name in STORE_FILES)


def locate_data(data: Sequence[str]) -> tuple[str, ...]:
    """Return the name of a store, or the files that names, directories and patterns stand for.

    Raises MissingError; UsageError for no data or several stores.
    """
    if not data:
        raise UsageError("there is no data", hint="name a store, or files")
    if any(is_store(Path(name)) for name in data):
        if len(data) > 1:
            raise UsageError("one store at a time", hint="run the command once for each")
        return tuple(data)
    return tuple(map(str, expand(data)))


def open_rows(model: Model, data: Sequence[str], request: FileRequest) -> RowBatches:
    """Open one store, or files (as ``locate_data`` returns them). Raises MissingError, DataError E-SCHEMA, UsageError."""
    first = Path(data[0])
    if is_store(first):
        return _store_rows(model, first, request.memory_limit)
    options = source_options(model, request)
    paths = expand(data, options.table_version)
    if request.bytes_a_row:  # before any other check of memory, so that the limit it suggests is enough for all
        _check_memory(model, paths, options, request)
    return rows_of_source(model, open_source(paths, options), find_url(first) or str(first), options.rejects)


def _check_memory(model: Model, paths: Sequence[Path], options: SourceOptions, request: FileRequest) -> None:
    """Raise BudgetError if files cannot be read within the limit; it names a limit that suffices for the whole job."""
    terms, failure = [SOURCE_TERM, budget.files_term(files_read(paths))], None
    try:
        RowBatches(model, [], None, terms).plan_within(request.memory, request.bytes_a_row)
    except BudgetError as error:
        failure = error
    table, left = table_width(paths, options), request.memory_limit or 0
    if failure is None and table.nbytes <= left:
        return
    if table.nbytes > WIDE_BYTES:  # descriptions of columns are part of this process when memory is checked again
        terms.append(Term("columns", table.nbytes, "names and kinds of the columns of a wide table"))
    plan = RowBatches(model, [], None, terms).plan_on(request.memory, request.bytes_a_row)
    if failure is None:
        raise table.refusal(left, plan.total)
    plan.check("")


def rows_of_source(model: Model, source: Source, where: str, rejects: Rejects) -> RowBatches:
    """Return the rows of an open source; ``where``: its name in errors. Raises DataError E-SCHEMA."""
    if source.columns is not None and not source.sparse and source.columns != model.columns:
        raise width_error(where, source.columns, model.columns)
    terms, classes = [SOURCE_TERM, budget.files_term([one.name for one in source.sources])], list(model.classes)
    return RowBatches(model, classes, None, terms, source=source, rejects=rejects, id_column=source.id_column)


@dataclass(frozen=True, slots=True)
class FileRequest:
    """How predict, evaluate and others read files."""

    stated: JsonMapping = field(default_factory=dict)
    """Options the user gave, as fields of ``SourceOptions`` by name; all others are as recorded in the model."""
    memory_limit: int | None = None
    """Bytes that descriptions of a table's columns may take; None: no limit."""
    memory: int | None = None
    """The memory limit the user gave, in bytes; None: the default."""
    bytes_a_row: int = 0
    """Bytes of results for each row of a block; 0 if memory was checked before."""


def build_file_request(
    job: NewRowOptions, memory: int | None, bytes_a_row: int, *, unlabeled: bool = False
) -> FileRequest:
    """Return how a job reads its files, with the memory that is left for descriptions of their columns.

    ``memory``: the limit in bytes; None: the default. ``bytes_a_row``: bytes of results for each row of a block.
    ``unlabeled``: the job does not use labels.
    """
    left = budget.memory_limit(memory) - sum(term.nbytes for term in budget.base_terms())
    stated = job.find_given_options() | ({"unlabeled": True} if unlabeled else {})
    return FileRequest(stated, max(0, left), memory, bytes_a_row)


def source_options(model: Model, request: FileRequest) -> SourceOptions:
    """Return options that read files as the model's training data were read, with the options the user gave."""
    recorded = model.provenance.get("encoding")
    if recorded:
        return options_from(recorded, memory_limit=request.memory_limit, **request.stated)
    plain = {"label": "none", "features": model.columns, **request.stated}
    return SourceOptions(**plain, memory_limit=request.memory_limit)


def _store_rows(model: Model, path: Path, memory_limit: int | None) -> RowBatches:
    store = open_store(path, memory_limit=memory_limit)
    layout = store.layout
    if store.facts.get("map") is not None:
        raise DataError(
            f"store '{path}' is an embedding: its columns are kernel features, and a model is applied to rows",
            code="E-SCHEMA",
            hint="name the store or the files that the embedding was made from",
        )
    check_names(model.provenance.get("names"), store.facts.get("names"), path)
    if layout.columns > model.columns or (layout.dense and layout.columns != model.columns):
        raise width_error(f"store '{path}'", layout.columns, model.columns)
    terms = budget.block_terms(layout, read_depth(layout), store.buffers().nbytes)
    moved = find_moved_offsets(model, store.facts)
    if len(moved.columns):
        terms.append(Term("shifted block", 3 * layout.block_bytes, "a block in float64, and in float32 again"))
    batches = RowBatches(model, list(model.classes), layout.rows, terms, store=store, offsets=moved)
    if ids := store.facts.get("ids"):
        batches.id_column, batches.id_reader = str(ids.get("column")), partial(IdReader, store.folder_of_ids())
    if layout.columns < model.columns:
        batches.notices.append(
            f"{path} has {layout.columns} of the model's {model.columns} columns; the rest count as 0"
        )
    return batches


def read_depth(layout: Layout) -> int:
    """Return the number of chunks that a thread reads ahead."""
    return REMOTE_DEPTH if layout.remote else DEPTH


def find_moved_offsets(model: Model, facts: JsonMapping) -> Offsets:
    """Return the offsets to subtract from rows of a store with these facts, so that they are centered as the model expects."""
    return offsets_from(model.provenance.get("encoding")).difference_from(offsets_from(facts.get("encoding")))


def check_names(model: Sequence[str] | None, store: Sequence[str] | None, path: Path | str) -> None:
    """Raise DataError E-SCHEMA for the first column whose name differs."""
    if not model or not store or list(model) == list(store):
        return
    for number, (expected, actual) in enumerate(zip(model, store, strict=False)):
        if expected != actual:
            raise DataError(
                f"column {number + 1} of store '{path}' is {quote(actual)}, the model expects {quote(expected)}",
                code="E-SCHEMA",
                hint="ingest the same columns in the same order",
            )


class Slice(NamedTuple):
    """The rows of one task on a cluster: some chunks of a store, or one file."""

    number: int
    """Position among all slices."""
    chunks: tuple[int, ...]
    """Numbers of the chunks; empty for a file."""
    file: str | None = None
    """Path of the file; None for chunks of a store."""


@dataclass(frozen=True, slots=True)
class ApplyWork:
    """A prediction or evaluation as workers get it."""

    model: str
    """Path of the model."""
    data: tuple[str, ...]
    """Path of a store, or of files."""
    request: FileRequest
    job: PredictJob | EvaluateJob
    directory: Path | None = None
    """Directory for the output of tasks; None if they have none."""


def cut_slices(data: Sequence[str]) -> list[Slice]:
    """Divide the data into slices: groups of chunks of a store, or single files."""
    if is_store(Path(data[0])):
        return [Slice(group.number, group.chunks) for group in contiguous_groups(open_store(data[0]).layout)]
    return [
        Slice(k, (), find_url(path) or str(path.resolve())) for k, path in enumerate(with_rows(expand(data), "auto"))
    ]


def describe_work(job: PredictJob | EvaluateJob, request: FileRequest, directory: Path | None = None) -> ApplyWork:
    """Return the work of a job with absolute paths. Raises UsageError for options that need all lines in one process."""
    if job.on_bad_line != "error":
        raise UsageError("--on-bad-line skip cannot be combined with --cluster", hint="leave out one of them")
    if job.labels is not None and len(job.data) > 1:
        raise UsageError("--labels of several arrays cannot be combined with --cluster", hint="leave out one of them")
    data = tuple(find_url(path) or str(Path(path).resolve()) for path in job.data)
    return ApplyWork(str(Path(job.model).resolve()), data, replace(request, bytes_a_row=0), job, directory)


def open_slice(part: Slice, work: ApplyWork) -> tuple[Model, RowBatches]:
    """Open the model and the rows of a slice. Raises MissingError, DataError."""
    model = models.load(Path(work.model))
    rows = open_rows(model, work.data if part.file is None else (part.file,), work.request)
    if part.file is None:
        rows.chunks = part.chunks
    return model, rows


class RowDecisions(NamedTuple):
    """Decision values of some rows, with their true labels."""

    decision: Float64
    """(n, k) decision values."""
    truth: Array | None
    """(n,) true labels as in ``RowBatch``; None if rows are not labeled."""
    ids: Array | None
    """(n,) row ids; None if rows have none."""
    first: int = 0
    """Number of the first row in the store; 0 for files."""
    prepared: Any = None
    """Result of ``Prepare``; None without one."""


def compute_decisions(
    model: Model, rows: RowBatches, threads: int, prepare: Prepare | None = None
) -> Generator[RowDecisions]:
    """Yield the decisions on all rows, in order, computed on ``threads`` threads. Raises what reading raises."""
    names, task = rows.names(), Task("apply", decide_part, function_of_parts=_decisions)
    with closing(local_executor(threads).map(task, rows.parts(), (model, rows, prepare))) as decisions:
        for one in decisions:
            yield one._replace(ids=names(one.ids, one.first, len(one.decision)))


def decide_part(part: RowPart, model: Model, rows: RowBatches, prepare: Prepare | None) -> RowDecisions:
    """Apply the model to one part."""
    with closing(_decisions(iter([part]), model, rows, prepare)) as decisions:
        return next(decisions)


def _decisions(
    parts: Iterator[RowPart], model: Model, rows: RowBatches, prepare: Prepare | None
) -> Generator[RowDecisions]:
    """Apply the model to part after part, while the next one is read ahead."""
    with closing(rows.read(parts)) as batches:
        for batch in batches:
            decision = model.decision(batch.X)
            prepared = None if prepare is None else prepare(decision, batch)
            yield RowDecisions(decision, batch.truth, batch.ids, batch.first, prepared)
