"""The rows a model is applied to - a store or files - in order, in bounded memory, checked against the model.

Files are read as those of the model's training were. A store is read by its chunks, which each thread reads for
itself; batches of files are parsed one after the other by whoever is free. On a cluster each task has a slice: a group
of chunks, or a file. Whatever the number of threads or workers, what comes of a part is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from streamsvm import model as models
from streamsvm.aliases import Array, JsonMapping
from streamsvm.config.units import mib
from streamsvm.engine.executor import AHEAD, Task, local_executor
from streamsvm.engine.partition import Group, contiguous_groups
from streamsvm.errors import BudgetError, DataError, UsageError, quote
from streamsvm.features.expansion import WORKING_BYTES
from streamsvm.jobs.apply.job import EvaluateJob, PredictJob
from streamsvm.jobs.without_effect import STORE
from streamsvm.model import Model
from streamsvm.regular import is_folder
from streamsvm.rows import CSR, Float64, Int32, Rows, row_count
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MIB, MemoryPlan
from streamsvm.schedule.stream import Stream
from streamsvm.store import open_store
from streamsvm.store.foreign import foreign_format
from streamsvm.store.format.labels import REST, Numbers, label_text
from streamsvm.store.format.manifest import FILE as MANIFEST
from streamsvm.store.format.manifest import JOURNAL_FILE as JOURNAL
from streamsvm.store.format.row_ids import IdReader
from streamsvm.store.sources import Source, SourceOptions, open_source, options_from, table_width
from streamsvm.store.sources.files import expand, with_rows
from streamsvm.store.sources.offsets import Offsets, offsets_from
from streamsvm.store.sources.options import NewRowOptions
from streamsvm.store.sources.source import Rejects
from streamsvm.types import Term, Visit

DEPTH = 1
"""Blocks read ahead: one is enough to hide reading, and memory is better spent elsewhere."""
SOURCE_TERM = Term("source", 96 * MIB, "text, parser and rows of one batch, at most (measured: 20 to 70 MiB)")
"""What parsing a source may hold."""
BATCH_BYTES = 8 * MIB
"""Rows of a source that a thread works on, at most (measured: 2 to 6 MiB)."""
WIDE_BYTES = 32 << 20
"""Bytes for the columns of a table from which on they are counted beside those of its rows."""
STORE_FILES = (MANIFEST, JOURNAL, "zarr.json", "part-00000.h5")
"""Files of which a store of ours has one from the beginning of its ingest to the end, and when its manifest is lost."""
Prepare: TypeAlias = Callable[[Float64], Any]
"""Makes something of the decision values (n, k) of some rows, in the thread that has found them."""


class RowBatch(NamedTuple):
    """Some rows, and which class each is in truth."""

    X: Rows
    """The rows."""
    truth: Array | None
    """Indices into ``RowBatches.truths`` (n,) int32, or numbers (n,) float64 where the model predicts such; None when
    the rows have none.
    """
    ids: Array | None = None
    """The ids of the rows (n,), integers or objects of text; None when they have none, or lie beside a store."""
    first: int = 0
    """Of rows of a store, the number of the first."""


RowPart: TypeAlias = int | RowBatch
"""What one thread works on: a chunk of a store by its number, or some rows of files."""


@dataclass(slots=True)
class RowBatches:
    """Iterates over rows in order. ``truths`` grows when labels turn up that are no class of the model."""

    model: Model
    """The model the rows are for."""
    truths: list[str]
    """The model's classes and, after them, other labels that were met."""
    total: int | None
    """The number of rows, where it is known beforehand."""
    terms: list[Term]
    """The memory that reading takes."""
    store: Any = None
    """The store the rows are of; None for files."""
    source: Source | None = None
    """The files the rows are of; None for a store."""
    notices: list[str] = field(default_factory=list)
    """What a user should know, as lines of text."""
    chunks: tuple[int, ...] | None = None
    """The chunks of the store that are wanted; None for all."""
    id_column: str | None = None
    """The column that the ids of the rows come from; None when they have none."""
    id_reader: Callable[[], IdReader] | None = None
    """Opens the ids of a store; None where it has none."""
    rejects: Rejects = field(default_factory=Rejects)
    """The lines of the files that could not be read and were left out."""
    offsets: Offsets = field(default_factory=lambda: offsets_from(None))
    """What is taken from the columns of a store that has them from another zero than the model."""
    _codes: Int32 = field(init=False)
    """Of the classes of a store, their places in ``truths``."""

    def __post_init__(self) -> None:
        classes = () if self.store is None or self.model.numeric else self.store.layout.classes
        self._codes = np.array([self._truth(name) for name in classes], np.int32)

    @property
    def form(self) -> str:
        """The format of the files the rows are of; that of no file for a store."""
        return STORE if self.source is None else self.source.encoding()["format"]

    def plan_within(self, memory: int | None, per_row: int, threads: int = 1) -> MemoryPlan:
        """Return what applying the model holds, ``per_row`` bytes for each row of a block, on as many of ``threads`` as
        there is memory for. Raises BudgetError.
        """
        plan = budget.with_most_threads(partial(self.plan_on, memory, per_row), threads)
        plan.check("")
        self.notices += plan.short_of(threads)
        return plan

    def plan_on(self, memory: int | None, per_row: int, threads: int = 1) -> MemoryPlan:
        """Return the same on so many threads, whether it fits or not."""
        rows = 65_536 if self.store is None else self.store.layout.largest_chunk
        waiting = AHEAD * threads if threads > 1 else 0
        wide = 8 * len(self.model.weights) + per_row // 8  # decision values, and what was made of them
        terms = [
            *budget.base_terms(),
            *model_terms(self.model, threads),
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
        for batch in self.read(iter(self.parts())):
            yield batch._replace(ids=names(batch.ids, batch.first, row_count(batch.X)))

    def names(self) -> Callable[[Array | None, int, int], Array | None]:
        """Return what says the ids of so many rows from a number on, block after block: those given, or a store's."""
        if self.id_reader is None:
            return lambda ids, _first, _count: ids
        reader = self.id_reader()
        return lambda _ids, first, count: reader.between(first, first + count)

    def parts(self) -> Iterable[RowPart]:
        """Return what the rows can be shared out in, in order: chunks of a store, or batches of files as they are
        read.
        """
        if self.source is not None:
            return self._of_source(self.source)
        return range(len(self.store.layout.chunks)) if self.chunks is None else sorted(self.chunks)

    def groups(self) -> list[Group] | None:
        """Return the groups of chunks in which sums over all rows of a store are taken; None for files."""
        return None if self.source is not None else contiguous_groups(self.store.layout)

    def read(self, parts: Iterator[RowPart]) -> Generator[RowBatch]:
        """Yield the rows of parts, in their order; each batch is valid until the next is asked for. Any thread may do
        so.
        """
        if self.source is not None:
            yield from cast(Iterator[RowBatch], parts)
            return
        layout = self.store.layout
        retain = layout.bytes_per_pass <= budget.page_cache_bytes(0)
        starts = np.append(0, np.cumsum(layout.chunks)).tolist()
        visits = (Visit(0, chunk, 0, shuffled=False, last=False) for chunk in cast(Iterator[int], parts))
        with Stream(self.store, visits, depth=DEPTH, retain=retain) as stream:
            for loaded in stream:
                truth = self._truth_of(loaded.chunk.codes)
                yield RowBatch(self.offsets.apply(loaded.chunk.X), truth, None, starts[loaded.visit.chunk])

    def _truth_of(self, codes: Array) -> Array | None:
        """Return what rows of a store are in truth; None where it holds classes and the model predicts numbers, or the
        other way round.
        """
        if self.model.numeric != self.store.layout.numeric:
            return None
        return codes.copy() if self.model.numeric else self._codes[codes]

    def _of_source(self, source: Source) -> Iterator[RowBatch]:
        rows = 0
        for batch in source.batches():
            rows += row_count(batch.X)
            self._check_width(batch.X)
            yield RowBatch(batch.X, self._truths_of(batch.labels) if len(batch.labels) else None, batch.ids)
        counted = sum(file.rows for file in source.sources)
        if rows != counted:
            raise DataError(f"{rows} rows were read of {counted}", code="E-ROWS", hint="run it again")
        self.notices += [f"{count} {what}" for what, count in source.notices.items() if count]

    def _truth(self, label: str) -> int:
        """Return the index of a label's class; labels that are no class are 'rest' if the model has that, else new."""
        if label not in self.truths:
            trimmed = [k for k, known in enumerate(self.truths) if known.strip() == label.strip()]
            if len(trimmed) == 1:
                return trimmed[0]
            if REST in self.truths:
                return self.truths.index(REST)
            self.notices.append(f"the model does not know the label {quote(label)}: its rows count as errors")
            self.truths.append(label)
        return self.truths.index(label)

    def _truths_of(self, labels: Array) -> Array:
        if self.model.numeric:
            return Numbers().codes(labels)
        threshold = (self.model.provenance.get("labels") or {}).get("threshold")
        if threshold is not None:
            return (labels >= threshold).astype(np.int32)
        values, inverse = np.unique(labels, return_inverse=True)
        known = np.array([self._truth(label_text(value)) for value in values.tolist()], np.int32)
        return known[inverse]

    def _check_width(self, X: Rows) -> None:
        columns = self.model.columns
        if isinstance(X, CSR):
            found = int(X.indices.max(initial=-1)) + 1
            wrong = found > columns
        else:
            found = X.values.shape[1]
            wrong = found != columns
        if wrong:
            raise width_error("the source", found, columns)


def model_terms(model: Model, threads: int = 1) -> list[Term]:
    """Return the memory of a model and of applying it on so many threads."""
    if model.expansion is None:
        return [Term("model", model.weights.nbytes, "weights")]
    nbytes = model.weights.nbytes + sum(array.nbytes for array in model.expansion.tensors().values())
    return [
        Term("model", nbytes, "points and weights"),
        Term("kernel values", threads * WORKING_BYTES, "of a tile of rows"),
    ]


def width_error(what: str, found: int, expected: int) -> DataError:
    """Return what is said of rows that have another number of columns than the model."""
    return DataError(
        f"{what} has {found} columns, the model {expected}",
        code="E-SCHEMA",
        hint="apply the model to data with the columns it was trained on",
    )


def is_store(path: Path) -> bool:
    """Return whether a path is a store of ours, perhaps one whose ingest has not ended, and not files to read."""
    return is_folder(path) and foreign_format(path) is None and any((path / name).exists() for name in STORE_FILES)


def locate_data(data: Sequence[str]) -> tuple[str, ...]:
    """Return a store as it is named, or the files that are meant: directories and patterns stand for those in them.

    Raises MissingError, and UsageError for several stores.
    """
    if not data:
        raise UsageError("there is no data", hint="name a store, or files")
    if any(is_store(Path(name)) for name in data):
        if len(data) > 1:
            raise UsageError("one store at a time", hint="run the command once for each")
        return tuple(data)
    return tuple(map(str, expand(data)))


def open_rows(model: Model, data: Sequence[str], request: FileRequest) -> RowBatches:
    """Open the rows of one store, or of files (``locate_data``). Raises MissingError, DataError E-SCHEMA, UsageError."""
    paths = [Path(d) for d in data]
    if is_store(paths[0]):
        return _store_rows(model, paths[0], request.memory_limit)
    options = source_options(model, request)
    if request.bytes_a_row:  # before anything else is asked of memory, so that what is asked for now is enough
        _check_memory(model, paths, options, request)
    return rows_of_source(model, open_source(paths, options), str(paths[0]), options.rejects)


def _check_memory(model: Model, paths: Sequence[Path], options: SourceOptions, request: FileRequest) -> None:
    """Raise BudgetError, with a limit that is enough for all, where files cannot be read in the memory there is."""
    terms, failure = [SOURCE_TERM, budget.files_term(paths)], None
    try:
        RowBatches(model, [], None, terms).plan_within(request.memory, request.bytes_a_row)
    except BudgetError as error:
        failure = error
    table, left = table_width(paths, options), request.memory_limit or 0
    if failure is None and table.nbytes <= left:
        return
    if table.nbytes > WIDE_BYTES:  # what is known of columns is part of this process when memory is asked for again
        terms.append(Term("columns", table.nbytes, "what is known of those of a wide table"))
    plan = RowBatches(model, [], None, terms).plan_on(request.memory, request.bytes_a_row)
    if failure is None:
        raise table.refusal(left, plan.total)
    plan.check("")


def rows_of_source(model: Model, source: Source, where: str, rejects: Rejects) -> RowBatches:
    """Return the rows of a source that is open; ``where`` is what errors call it. Raises DataError E-SCHEMA."""
    if source.columns is not None and not source.sparse and source.columns != model.columns:
        raise width_error(where, source.columns, model.columns)
    terms, classes = [SOURCE_TERM, budget.files_term([one.name for one in source.sources])], list(model.classes)
    return RowBatches(model, classes, None, terms, source=source, rejects=rejects, id_column=source.id_column)


@dataclass(frozen=True, slots=True)
class FileRequest:
    """What a job that applies a model says of its files."""

    stated: JsonMapping = field(default_factory=dict)
    """Fields of ``SourceOptions`` by name; what is not among them is as recorded in the model."""
    memory_limit: int | None = None
    """Bytes of memory for knowing the columns of a table; None asks nothing."""
    memory: int | None = None
    """What is said of memory, in bytes; None where nothing is."""
    bytes_a_row: int = 0
    """What a row of a block takes besides itself; 0 where memory has been checked."""


def build_file_request(
    job: NewRowOptions, memory: int | None, bytes_a_row: int, *, unlabeled: bool = False
) -> FileRequest:
    """Return what a job says of its files, and what memory there is for knowing their columns.

    ``bytes_a_row``: what a row of a block takes besides itself. ``unlabeled``: the job has no use for labels.
    """
    left = budget.memory_limit(memory) - sum(term.nbytes for term in budget.base_terms())
    stated = job.stated() | ({"unlabeled": True} if unlabeled else {})
    return FileRequest(stated, max(0, left), memory, bytes_a_row)


def source_options(model: Model, request: FileRequest) -> SourceOptions:
    """Return how to read files: like those the model was trained on, or as asked where nothing of them is known."""
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
    terms = budget.block_terms(layout, DEPTH, store.buffers().nbytes)
    moved = find_moved_offsets(model, store.facts)
    if len(moved.columns):
        terms.append(Term("another zero", 3 * layout.block_bytes, "a block in float64, and in float32 again"))
    found = RowBatches(model, list(model.classes), layout.rows, terms, store=store, offsets=moved)
    if ids := store.facts.get("ids"):
        found.id_column, found.id_reader = str(ids.get("column")), partial(IdReader, path)
    if layout.columns < model.columns:
        found.notices.append(f"{path} has {layout.columns} of the model's {model.columns} columns; the rest count as 0")
    return found


def find_moved_offsets(model: Model, facts: JsonMapping) -> Offsets:
    """Return what is to be taken from the rows of a store with these facts to have them from the zero of a model."""
    return offsets_from(model.provenance.get("encoding")).less(offsets_from(facts.get("encoding")))


def check_names(model: Sequence[str] | None, store: Sequence[str] | None, path: Path | str) -> None:
    """Raise DataError E-SCHEMA for the first column that has another name."""
    if not model or not store or list(model) == list(store):
        return
    for number, (expected, found) in enumerate(zip(model, store, strict=False)):
        if expected != found:
            raise DataError(
                f"column {number + 1} of store '{path}' is {quote(found)}, the model expects {quote(expected)}",
                code="E-SCHEMA",
                hint="ingest the same columns in the same order",
            )


class Slice(NamedTuple):
    """Some of the rows: chunks of a store, or one of the files."""

    number: int
    """The place of the slice among all slices."""
    chunks: tuple[int, ...]
    """The numbers of the chunks of a store."""
    file: str | None = None
    """The file; None for chunks of a store."""


@dataclass(frozen=True, slots=True)
class ApplyWork:
    """What is applied to what."""

    model: str
    """The path of the model."""
    data: tuple[str, ...]
    """A store, or files."""
    request: FileRequest
    """How the files are read."""
    job: PredictJob | EvaluateJob
    """The job of predict or evaluate."""
    directory: Path | None = None
    """Where outputs go; None where there are none."""


def cut_slices(data: Sequence[str]) -> list[Slice]:
    """Return the slices of the data: a store in groups of chunks, files one by one."""
    if is_store(Path(data[0])):
        return [Slice(group.number, group.chunks) for group in contiguous_groups(open_store(data[0]).layout)]
    return [
        Slice(k, (), str(path.resolve())) for k, path in enumerate(with_rows([Path(name) for name in data], "auto"))
    ]


def describe_work(job: PredictJob | EvaluateJob, request: FileRequest, directory: Path | None = None) -> ApplyWork:
    """Return the work with paths that mean the same on a worker."""
    if job.on_bad_line != "error":
        raise UsageError("lines are skipped only where they are read here", hint="leave out --cluster")
    data = tuple(str(Path(path).resolve()) for path in job.data)
    return ApplyWork(str(Path(job.model).resolve()), data, replace(request, bytes_a_row=0), job, directory)


def open_slice(part: Slice, work: ApplyWork) -> tuple[Model, RowBatches]:
    """Open the model and the rows of a slice. Raises MissingError, DataError."""
    model = models.load(Path(work.model))
    rows = open_rows(model, work.data if part.file is None else (part.file,), work.request)
    if part.file is None:
        rows.chunks = part.chunks
    return model, rows


class Decided(NamedTuple):
    """What a model says of some rows."""

    decision: Float64
    """(n, k) its decision values."""
    truth: Array | None
    """Indices into ``RowBatches.truths`` (n,); None where rows have no labels."""
    ids: Array | None
    """The ids of the rows (n,); None where they have none."""
    first: int = 0
    """Of rows of a store, the number of the first."""
    prepared: Any = None
    """What was made of the decision values in the same thread; None where nothing was asked for."""


def decide_rows(model: Model, rows: RowBatches, threads: int, prepare: Prepare | None = None) -> Generator[Decided]:
    """Yield what the model says of all rows, in their order. Raises what reading them raises."""
    names, task = rows.names(), Task("apply", decide_part, each=_decisions)
    with closing(local_executor(threads).map(task, rows.parts(), (model, rows, prepare))) as found:
        for one in found:
            yield one._replace(ids=names(one.ids, one.first, len(one.decision)))


def decide_part(part: RowPart, model: Model, rows: RowBatches, prepare: Prepare | None) -> Decided:
    """Apply the model to one part."""
    with closing(_decisions(iter([part]), model, rows, prepare)) as found:
        return next(found)


def _decisions(parts: Iterator[RowPart], model: Model, rows: RowBatches, prepare: Prepare | None) -> Generator[Decided]:
    """Apply the model to part after part; the next one is read meanwhile."""
    with closing(rows.read(parts)) as batches:
        for batch in batches:
            decision = model.decision(batch.X)
            prepared = None if prepare is None else prepare(decision)
            yield Decided(decision, batch.truth, batch.ids, batch.first, prepared)
