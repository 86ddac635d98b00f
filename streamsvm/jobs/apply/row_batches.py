"""The rows a model is applied to - a store or files - in order, in bounded memory, checked against the model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from streamsvm.aliases import Array, JsonMapping
from streamsvm.config.units import mib
from streamsvm.engine.partition import Group, contiguous
from streamsvm.engine.thread_executor import AHEAD
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.features.expansion import WORKING_BYTES
from streamsvm.model import Model
from streamsvm.rows import CSR, Int32, Rows, row_count
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MIB, MemoryPlan
from streamsvm.schedule.stream import Stream
from streamsvm.store import open_store
from streamsvm.store.foreign import foreign_format
from streamsvm.store.format.labels import REST, label_text
from streamsvm.store.format.manifest import FILE as MANIFEST
from streamsvm.store.format.row_ids import IdReader
from streamsvm.store.sources import Source, SourceOptions, open_source, options_from
from streamsvm.store.sources.centering import Offsets, offsets_from
from streamsvm.store.sources.expand import expand
from streamsvm.store.sources.options import NewRowOptions
from streamsvm.store.sources.rejects import Rejects
from streamsvm.store.write.journal import FILE as JOURNAL
from streamsvm.types import Layout, Term, Visit

STORE_FILES = (MANIFEST, JOURNAL, "zarr.json", "part-00000.h5")
"""Files of which a store of ours has one from the beginning of its ingest to the end, and when its manifest is lost."""
DEPTH = 1
"""Blocks read ahead: one is enough to hide reading, and memory is better spent elsewhere."""
SOURCE_TERM = Term("source", 96 * MIB, "text, parser and rows of one batch, at most (measured: 20 to 70 MiB)")
"""What parsing a source may hold."""
BATCH_BYTES = 8 * MIB
"""Rows of a source that a thread works on, at most (measured: 2 to 6 MiB)."""


class RowBatch(NamedTuple):
    """Some rows, and which class each is in truth."""

    X: Rows
    """The rows."""
    truth: Int32 | None
    """Indices into ``RowBatches.truths`` (n,); None when the rows have no labels."""
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
    _store: Any = None
    _source: Source | None = None
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
        classes = () if self._store is None else self._store.layout.classes
        self._codes = np.array([self._truth(name) for name in classes], np.int32)

    def fitted(self, memory: int | None, per_row: int, threads: int = 1) -> MemoryPlan:
        """Return what applying the model holds, ``per_row`` bytes for each row of a block, on as many of ``threads`` as
        there is memory for. Raises BudgetError.
        """
        plan = budget.with_most_threads(partial(self._planned, memory, per_row), threads)
        plan.check("")
        self.notices += plan.short_of(threads)
        return plan

    def _planned(self, memory: int | None, per_row: int, threads: int) -> MemoryPlan:
        rows = 65_536 if self._store is None else self._store.layout.largest_chunk
        waiting = AHEAD * threads if threads > 1 else 0
        terms = [
            *budget.base_terms(),
            *model_terms(self.model, threads),
            *self.terms,
            Term("results", per_row * rows, f"{per_row} bytes a row of a block"),
            Term("results in their order", 8 * waiting * len(self.model.weights) * rows, f"{waiting} decision values"),
        ]
        if threads > 1:
            each = BATCH_BYTES if self._store is None else sum(term.nbytes for term in self.terms)
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
        """Return what the rows can be shared out in, in order: chunks of a store, or batches of files as they are read."""
        if self._source is not None:
            return self._of_source(self._source)
        return range(len(self._store.layout.chunks)) if self.chunks is None else sorted(self.chunks)

    def groups(self) -> list[Group] | None:
        """Return the groups of chunks in which sums over all rows of a store are taken; None for files."""
        return None if self._source is not None else contiguous(self._store.layout)

    def read(self, parts: Iterator[RowPart]) -> Generator[RowBatch]:
        """Yield the rows of parts, in their order; each batch is valid until the next is asked for. Any thread may do so."""
        if self._source is not None:
            yield from cast(Iterator[RowBatch], parts)
            return
        layout = self._store.layout
        retain = layout.bytes_per_pass <= budget.page_cache_bytes(0)
        starts = np.append(0, np.cumsum(layout.chunks)).tolist()
        visits = (Visit(0, chunk, 0, shuffled=False, last=False) for chunk in cast(Iterator[int], parts))
        with Stream(self._store, visits, depth=DEPTH, retain=retain) as stream:
            for loaded in stream:
                truth = self._codes[loaded.chunk.codes]
                yield RowBatch(self.offsets.applied(loaded.chunk.X), truth, None, starts[loaded.visit.chunk])

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
        """The index of a label's class; labels that are no class are 'rest' if the model has that, else new."""
        if label not in self.truths:
            if REST in self.truths:
                return self.truths.index(REST)
            self.notices.append(f"the model does not know the label {quote(label)}: its rows count as errors")
            self.truths.append(label)
        return self.truths.index(label)

    def _truths_of(self, labels: Array) -> Int32:
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
            raise _width_error("the source", found, columns)


def model_terms(model: Model, threads: int = 1) -> list[Term]:
    """Return the memory of a model and of applying it on so many threads."""
    if model.expansion is None:
        return [Term("model", model.weights.nbytes, "weights")]
    nbytes = model.weights.nbytes + sum(array.nbytes for array in model.expansion.tensors().values())
    return [
        Term("model", nbytes, "points and weights"),
        Term("kernel values", threads * WORKING_BYTES, "of a tile of rows"),
    ]


def held_out_terms(validation: float | str | None, layout: Layout, models: int) -> list[Term]:
    """Return the memory of evaluating on held-out rows after each pass: part of a store of this layout, or another
    store.
    """
    if validation is None:
        return []
    seen = (
        layout
        if isinstance(validation, float | int) or not Path(validation).is_dir()
        else open_store(validation).layout
    )
    blocks, answers = sum(t.nbytes for t in budget.block_terms(seen, DEPTH)), 16 * models * seen.largest_chunk
    return [Term("held-out rows", blocks + answers, f"{DEPTH + 1} blocks, decision values")]


def is_store(path: Path) -> bool:
    """Return whether a path is a store of ours, perhaps one whose ingest has not ended, and not files to read."""
    return path.is_dir() and foreign_format(path) is None and any((path / name).exists() for name in STORE_FILES)


def located(data: Sequence[str]) -> tuple[str, ...]:
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


def row_batches(model: Model, data: Sequence[str], request: FileRequest) -> RowBatches:
    """Open the rows of one store, or of files (``located``). Raises MissingError, DataError E-SCHEMA, UsageError."""
    paths = [Path(d) for d in data]
    if is_store(paths[0]):
        return _store_rows(model, paths[0], request.memory_limit)
    if request.bytes_a_row:  # before anything else is asked of memory, so that what is asked for now is enough
        RowBatches(model, [], None, [SOURCE_TERM]).fitted(request.memory, request.bytes_a_row)
    options = source_options(model, request)
    return rows_of_source(model, open_source(paths, options), str(paths[0]), options.rejects)


def rows_of_source(model: Model, source: Source, where: str, rejects: Rejects) -> RowBatches:
    """Return the rows of a source that is open; ``where`` is what errors call it. Raises DataError E-SCHEMA."""
    if source.columns is not None and not source.sparse and source.columns != model.columns:
        raise _width_error(where, source.columns, model.columns)
    return RowBatches(
        model, list(model.classes), None, [SOURCE_TERM], _source=source, rejects=rejects, id_column=source.id_column
    )


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


def request_of(job: NewRowOptions, memory: int | None, bytes_a_row: int, *, unlabeled: bool = False) -> FileRequest:
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
    check_names(model.provenance.get("names"), store.facts.get("names"), path)
    if layout.columns > model.columns or (layout.dense and layout.columns != model.columns):
        raise _width_error(f"store '{path}'", layout.columns, model.columns)
    terms = budget.block_terms(layout, DEPTH, store.buffers().nbytes)
    moved = moved_from(model, store.facts)
    if len(moved.columns):
        terms.append(Term("another zero", 3 * layout.block_bytes, "a block in float64, and in float32 again"))
    found = RowBatches(model, list(model.classes), layout.rows, terms, _store=store, offsets=moved)
    if ids := store.facts.get("ids"):
        found.id_column, found.id_reader = str(ids.get("column")), partial(IdReader, path)
    if layout.columns < model.columns:
        found.notices.append(f"{path} has {layout.columns} of the model's {model.columns} columns; the rest count as 0")
    return found


def moved_from(model: Model, facts: JsonMapping) -> Offsets:
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


def _width_error(what: str, found: int, expected: int) -> DataError:
    return DataError(
        f"{what} has {found} columns, the model {expected}",
        code="E-SCHEMA",
        hint="apply the model to data with the columns it was trained on",
    )
