"""Data on its way in: what a source yields, what a store is and hands out, and what files record of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from streamsvm.aliases import Array, Handle, JsonMapping
from streamsvm.rows import Float32, Float64, Rows
from streamsvm.tasks import CLASSIFICATION, REGRESSION

if TYPE_CHECKING:
    from streamsvm.errors import DataError


class Batch(NamedTuple):
    """What a source yields: rows, one label a row (float64 or str), perhaps a weight a row (float32).

    The arrays belong to whoever takes the batch: a source never writes into them again.
    """

    X: Rows
    """The features, (n, columns)."""
    labels: Array
    """(n,) numbers as float64, or text."""
    weight: Float32 | None = None
    """(n,) factors of C, one a row; None: 1 for all."""
    ids: Array | None = None
    """(n,) what the rows are called by, integers or objects of text; None where they have no names."""
    split: Array | None = None
    """(n,) hashes of the groups rows are of, uint64, or whether rows are for testing, bool; None: chance decides."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What is known of a store without reading its chunks."""

    columns: int
    """Features of a row, without the constant one."""
    chunks: tuple[int, ...]
    """Rows of each chunk."""
    nonzeros: tuple[int, ...] | None
    """Stored entries of each chunk; None when dense."""
    classes: tuple[str, ...]
    """The label each code stands for, as text; empty where the target is a number."""
    counts: tuple[int, ...]
    """Rows of each class; where the target is a number, of all rows."""
    weighted: bool = False
    """Whether every row has a weight of its own."""
    entry_bytes: int = 4
    """Bytes of an entry of a row: 8 of kernel features that are made in float64, and are in no store."""
    kept_bytes: int = 0
    """Bytes a solver keeps of a row, on average, until its features are formed; 0: as many as its entries take."""

    @property
    def numeric(self) -> bool:
        """Whether the target of a row is a number, and not a class."""
        return not self.classes

    @property
    def task(self) -> str:
        """What the target is for: ``CLASSIFICATION`` or ``REGRESSION``."""
        return REGRESSION if self.numeric else CLASSIFICATION

    @property
    def target_bytes(self) -> int:
        """Bytes of a row's target: a code of int32, or a number of float64."""
        return 8 if self.numeric else 4

    @property
    def rows(self) -> int:
        """Rows of all chunks together."""
        return sum(self.chunks)

    @property
    def starts(self) -> list[int]:
        """The number of the first row of each chunk, and the number of rows."""
        return list(accumulate(self.chunks, initial=0))

    @property
    def dense(self) -> bool:
        """Whether all entries are stored, zeros included."""
        return self.nonzeros is None

    @property
    def largest_chunk(self) -> int:
        """Rows of the chunk with the most rows."""
        return max(self.chunks)

    @property
    def block_bytes(self) -> int:
        """Bytes one block of any chunk needs in memory: entries, codes and weights."""
        per_row = self.target_bytes + 4 * self.weighted
        if self.nonzeros is None:
            return self.largest_chunk * (self.entry_bytes * self.columns + per_row)
        return max(self.nonzeros) * 8 + self.largest_chunk * (8 + per_row)

    @property
    def bytes_per_pass(self) -> int:
        """Bytes one reading of all chunks moves."""
        return sum(self.chunk_bytes(chunk) for chunk in range(len(self.chunks)))

    def chunk_bytes(self, chunk: int) -> int:
        """Return the bytes one reading of a chunk moves: entries, codes and weights."""
        rows, row = self.chunks[chunk], self.target_bytes + 4 * self.weighted
        return rows * (4 * self.columns + row) if self.nonzeros is None else self.nonzeros[chunk] * 8 + rows * (8 + row)


class Chunk(NamedTuple):
    """Rows with their classes and weights. What a store hands out are views into the buffer it was given, valid until it is read into again."""

    X: Rows
    """The features, (n, columns) float32, dense or CSR."""
    codes: Array
    """(n,) int32 class of each row, an index into ``Layout.classes``; float64 where the target is a number: the number itself."""
    weight: Float32 | None
    """(n,) float32 factors of C; None: 1 for all."""


class Buffers(Protocol):
    """Preallocated memory for one chunk: made by a store, handed back to the same store by the reader, chunk after chunk."""

    nbytes: int
    """Bytes the buffers take."""


class Store(Protocol):
    """Chunked data on disk or in memory, as everything above the store floor sees it.

    Chunks are numbered from 0, in the order of ``layout.chunks``. Nothing else may open a file that belongs to a store.
    ``StoredFiles`` is what a committed store on disk says beside this.
    """

    name: str
    """What messages call the store: the path it was opened by, or a word for data in memory."""
    layout: Layout
    """Columns, rows and stored entries of each chunk, and classes: all that is known without reading a chunk."""

    @property
    def digest(self) -> str:
        """The sha256 of the content as hex digits: equal for equal data, wherever it lies."""
        ...

    @property
    def facts(self) -> JsonMapping:
        """What is recorded of where the data came from, as plain JSON; empty where nothing is.

        Keys in use: ``names`` (of the columns), ``labels``, ``encoding`` (of the columns, for predict), ``notice`` (to be
        shown to the user), ``map`` and ``embedding`` (of a store of kernel features).
        """
        ...

    @property
    def selection(self) -> tuple[int, ...] | None:
        """The numbers these chunks have in the store called ``name``; None: the chunks are all of it, as they are there."""
        ...

    def buffers(self) -> Handle:
        """Return new memory for one chunk of any size: ``Buffers`` of the store's own kind."""
        ...

    def fetch(self, chunk: int, into: Handle) -> None:
        """Move the bytes of a chunk into buffers. Raises DataError, StorageError."""
        ...

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Verify what was fetched, once, and view it as rows; any thread may do it.

        Raises DataError naming the chunk when it is not what was written.
        """
        ...

    def expect(self, chunk: int) -> None:
        """Hint that ``chunk`` is read next; numbers beyond the last chunk are ignored."""
        ...

    def forget(self, chunk: int) -> None:
        """Hint that ``chunk`` is not needed soon: its pages may leave the cache."""
        ...

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows of the store called ``name``. Raises DataError, StorageError."""
        ...


@runtime_checkable
class StoredFiles(Store, Protocol):
    """A committed store on disk, or arrays others wrote: what ``open_store`` returns."""

    @property
    def root(self) -> Path:
        """The directory or file it lies in."""
        ...

    @property
    def census(self) -> list[list[int]]:
        """Rows of each class in each chunk; a chunk's list may end with its last class that occurs."""
        ...

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the programs that wrote it, by name; empty where nobody knows."""
        ...

    def faults(self) -> Iterator[DataError]:
        """Yield all that is wrong beside the chunks themselves, without raising it."""
        ...


class Statistics(NamedTuple):
    """Column statistics over all rows, absent entries of a CSR counted as 0. All float64 (d,)."""

    mean: Float64
    """The mean of each column."""
    M2: Float64
    """The sum of squared differences from the mean: rows times the variance."""
    minimum: Float64
    """The smallest value of each column; at most 0 where a CSR column lacks an entry."""
    maximum: Float64
    """The largest value of each column; at least 0 where a CSR column lacks an entry."""


class Visit(NamedTuple):
    """One chunk in one epoch; a pure function of layout, seed and epoch."""

    epoch: int
    """The number of the epoch, from 0."""
    chunk: int
    """The number of the chunk in what is read: in the store, or in the part of it that a worker has."""
    seed: int
    """The seed of the order of the chunk's rows, and of further draws of the solver in this visit."""
    shuffled: bool
    """Whether rows are visited in an order drawn from ``seed``; else as they lie."""
    last: bool
    """Whether this visit ends its epoch."""


class _Column(msgspec.Struct):
    name: str
    kind: str
    values: list[Any] = []
    form: str = ""
    parts: list[Any] = []
    text_bits: int = 0


class _Schema(msgspec.Struct):
    columns: list[_Column]
    label: str | None = None
    weight: str | None = None
    id: str | None = None
    hash_bits: int = 0
    dropped: list[str] = []
    documents: dict[str, dict[str, Any]] = {}


class _Encoding(msgspec.Struct):
    format: str | None = None
    options: dict[str, Any] = {}
    missing: dict[str, Any] = {}
    schema: _Schema | None = None
    offsets: list[tuple[int, float]] | None = None


class _Labels(msgspec.Struct):
    positive: Any = None
    negative: Any = None
    threshold: float | None = None


class _Target(msgspec.Struct):
    mean: float
    spread: float
    least: float
    most: float


class _Certificate(msgspec.Struct):
    primal: float
    dual: float
    rounding: float = 0.0
    C: float | None = None


class _RecordedFacts(msgspec.Struct):
    """The types that readers of ``facts`` of a store and ``provenance`` of a model rely on; other keys are for people to read."""

    names: list[str] | None = None
    encoding: _Encoding | None = None
    labels: _Labels | list[Any] | None = None
    """A list in a part that a worker made: the labels it met."""
    target: _Target | None = None
    ids: dict[str, Any] | None = None
    sources: list[dict[str, Any]] = []
    certificates: list[_Certificate] = []
    map: str | None = None
    """Only in an embedding: its columns are kernel features, and ``encoding`` is that of the rows they were made from."""
    settings: dict[str, Any] | None = None
    store: dict[str, Any] | None = None


def check_recorded(recorded: JsonMapping, columns: int) -> None:
    """Raise ValueError, with the place, for facts that cannot be those of ``columns`` columns.

    Whoever seals a manifest or a model again can write anything there: it is checked once, where the file is read.
    """
    found = msgspec.convert(recorded, _RecordedFacts)
    if found.names is not None and len(found.names) != columns:
        raise ValueError(f"{len(found.names)} names of columns, expected {columns}")
    for column, offset in (found.encoding and found.encoding.offsets) or ():
        exists = column >= 0 if found.map is not None else 0 <= column < columns
        if not exists or not math.isfinite(offset):
            raise ValueError(f"column {column} of {columns} has an offset of {offset}")
