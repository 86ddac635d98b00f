"""The rows a model is applied to - a store or files - in order, in bounded memory, checked against the model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from streamsvm.aliases import Array
from streamsvm.config.units import mib
from streamsvm.engine.executors.thread_executor import AHEAD
from streamsvm.engine.partition import Group, contiguous
from streamsvm.errors import DataError, quote
from streamsvm.features.expansion import WORKING_BYTES
from streamsvm.jobs.without_effect import STORE
from streamsvm.model import Model
from streamsvm.rows import CSR, Int32, Rows, row_count
from streamsvm.schedule import budget
from streamsvm.schedule.budget import MIB, MemoryPlan
from streamsvm.schedule.stream import Stream
from streamsvm.store.format.labels import REST, label_text
from streamsvm.store.format.numbers import Numbers
from streamsvm.store.format.row_ids import IdReader
from streamsvm.store.sources import Source
from streamsvm.store.sources.offsets import Offsets, offsets_from
from streamsvm.store.sources.source import Rejects
from streamsvm.types import Term, Visit

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
    truth: Array | None
    """Indices into ``RowBatches.truths`` (n,) int32, or numbers (n,) float64 where the model predicts such; None when the rows have none."""
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

    def fitted(self, memory: int | None, per_row: int, threads: int = 1) -> MemoryPlan:
        """Return what applying the model holds, ``per_row`` bytes for each row of a block, on as many of ``threads`` as
        there is memory for. Raises BudgetError.
        """
        plan = budget.with_most_threads(partial(self.planned, memory, per_row), threads)
        plan.check("")
        self.notices += plan.short_of(threads)
        return plan

    def planned(self, memory: int | None, per_row: int, threads: int = 1) -> MemoryPlan:
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
        """Return what the rows can be shared out in, in order: chunks of a store, or batches of files as they are read."""
        if self.source is not None:
            return self._of_source(self.source)
        return range(len(self.store.layout.chunks)) if self.chunks is None else sorted(self.chunks)

    def groups(self) -> list[Group] | None:
        """Return the groups of chunks in which sums over all rows of a store are taken; None for files."""
        return None if self.source is not None else contiguous(self.store.layout)

    def read(self, parts: Iterator[RowPart]) -> Generator[RowBatch]:
        """Yield the rows of parts, in their order; each batch is valid until the next is asked for. Any thread may do so."""
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
                yield RowBatch(self.offsets.applied(loaded.chunk.X), truth, None, starts[loaded.visit.chunk])

    def _truth_of(self, codes: Array) -> Array | None:
        """What rows of a store are in truth; None where it holds classes and the model predicts numbers, or the other way round."""
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
        """The index of a label's class; labels that are no class are 'rest' if the model has that, else new."""
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
