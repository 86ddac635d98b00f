"""Data: the batches that sources yield, stores and their chunks, and the facts that files record about the data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np

from streamsvm.rows import Float32, Float64, Rows
from streamsvm.tasks import CLASSIFICATION, REGRESSION
from streamsvm.type_aliases import Array, Handle, JsonMapping

if TYPE_CHECKING:
    from streamsvm.errors import DataError


class Batch(NamedTuple):
    """Rows with labels, as yielded by a source.

    The arrays belong to the consumer of the batch: the source does not write to them again.
    """

    X: Rows
    """The features, (n, columns)."""
    labels: Array
    """(n,) numbers as float64, or text."""
    weight: Float32 | None = None
    """(n,) row weights, which multiply C; None: 1 for all rows."""
    ids: Array | None = None
    """(n,) identifiers of the rows, integers or text objects; None: rows have no identifiers."""
    split: Array | None = None
    """(n,) hashes of the rows' groups (uint64), or whether rows are for testing (bool); None: rows are split at
    random."""


BYTES_OF_TYPE = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1}
"""Bytes of a number of dense rows on disk, by its type."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The properties of a store that are known without reading its chunks."""

    columns: int
    """Number of features of a row, without the constant one."""
    chunks: tuple[int, ...]
    """Number of rows of each chunk."""
    nonzeros: tuple[int, ...] | None
    """Number of stored entries of each chunk; None: rows are dense."""
    classes: tuple[str, ...]
    """The label of each class code, as text; empty if the target is a number."""
    counts: tuple[int, ...]
    """Number of rows of each class; if the target is a number, the number of all rows."""
    weighted: bool = False
    """Whether every row has a weight of its own."""
    entry_bytes: int = 4
    """Bytes of an entry of a row; 8 for kernel features that are computed in float64 and not stored."""
    dtype: str = "float32"
    """The type of the numbers of dense rows on disk; in memory all are float32."""
    kept_bytes: int = 0
    """Average bytes that a solver keeps of a row until its features are formed; 0: the bytes of its entries."""
    share: float = 1.0
    """Number of rows divided by the number of rows that the column statistics cover: below 1 for a section of a store,
    whose statistics are those of the whole store."""
    remote: bool = False
    """Whether chunks are read over a network, so that many should be asked for at the same time."""

    @property
    def numeric(self) -> bool:
        """Whether the target of a row is a number and not a class."""
        return not self.classes

    @property
    def task(self) -> str:
        """The task of the target: ``CLASSIFICATION`` or ``REGRESSION``."""
        return REGRESSION if self.numeric else CLASSIFICATION

    @property
    def target_bytes(self) -> int:
        """Bytes of a row's target: an int32 code or a float64 number."""
        return 8 if self.numeric else 4

    @property
    def rows(self) -> int:
        """Number of rows of all chunks."""
        return sum(self.chunks)

    @property
    def starts(self) -> list[int]:
        """The number of the first row of each chunk; the last item is the number of all rows."""
        return list(accumulate(self.chunks, initial=0))

    @property
    def dense(self) -> bool:
        """Whether all entries are stored, zeros included."""
        return self.nonzeros is None

    @property
    def kind(self) -> str:
        """How rows are stored, in words: 'csr', 'dense', or 'dense float16'."""
        return "csr" if not self.dense else "dense" if self.dtype == "float32" else f"dense {self.dtype}"

    def spread_chunks(self, count: int) -> list[int]:
        """Return the numbers of at most ``count`` chunks at equal distances from the first to the last."""
        return np.unique(np.linspace(0, len(self.chunks) - 1, count).astype(int)).tolist()

    @property
    def largest_chunk(self) -> int:
        """Number of rows of the largest chunk."""
        return max(self.chunks)

    @property
    def block_bytes(self) -> int:
        """Bytes of memory that suffice for a block of any chunk: entries, targets and weights."""
        per_row = self.target_bytes + 4 * self.weighted
        if self.nonzeros is None:
            return self.largest_chunk * (self.entry_bytes * self.columns + per_row)
        return max(self.nonzeros) * 8 + self.largest_chunk * (8 + per_row)

    @property
    def bytes_per_pass(self) -> int:
        """Bytes that are read in one pass over all chunks."""
        return sum(self.chunk_bytes(chunk) for chunk in range(len(self.chunks)))

    def chunk_bytes(self, chunk: int) -> int:
        """Return the bytes that are read for a chunk: entries, targets and weights."""
        return self._chunk_bytes(chunk, BYTES_OF_TYPE[self.dtype])

    @property
    def bytes_in_memory(self) -> int:
        """Bytes of all rows in memory: entries (float32), targets and weights."""
        return sum(self._chunk_bytes(chunk, 4) for chunk in range(len(self.chunks)))

    def _chunk_bytes(self, chunk: int, entry: int) -> int:
        rows, row = self.chunks[chunk], self.target_bytes + 4 * self.weighted
        if self.nonzeros is None:
            return rows * (entry * self.columns + row)
        return self.nonzeros[chunk] * 8 + rows * (8 + row)


class Chunk(NamedTuple):
    """Rows of a store with their targets and weights.

    The arrays of a chunk that a store returns are views into a buffer of the reader, valid until that buffer is filled
    again.
    """

    X: Rows
    """The features, (n, columns) float32, dense or CSR."""
    codes: Array
    """(n,) int32 class of each row, an index into ``Layout.classes``; if the target is a number, the number itself as
    float64."""
    weight: Float32 | None
    """(n,) float32 row weights, which multiply C; None: 1 for all rows."""


class Buffers(Protocol):
    """Preallocated memory for one chunk: created by a store, and passed to the same store again for every chunk that is
    read.
    """

    nbytes: int
    """Bytes the buffers take."""


class Store(Protocol):
    """Chunked data on disk or in memory; the interface by which all code outside the package ``store`` reads data.

    Chunks are numbered from 0, in the order of ``layout.chunks``. Only a store may open its files. ``StoredFiles`` adds
    the properties of a committed store on disk.
    """

    name: str
    """The name of the store in messages: the path by which it was opened, or a word for data in memory."""
    layout: Layout
    """Columns, rows and stored entries of each chunk, and classes: all that is known without reading a chunk."""

    @property
    def digest(self) -> str:
        """The sha256 of the content as hex digits. Equal data have equal digests, wherever they are stored."""
        ...

    @property
    def facts(self) -> JsonMapping:
        """The recorded facts about the origin of the data, as plain JSON; empty if there are none.

        Keys in use: ``names`` (of the columns), ``labels``, ``encoding`` (of the columns, for predict), ``notice``
        (to be shown to the user), ``map`` and ``embedding`` (of a store of kernel features).
        """
        ...

    @property
    def selection(self) -> tuple[int, ...] | None:
        """The numbers of these chunks in the store called ``name``; None: these are all of its chunks."""
        ...

    def buffers(self) -> Handle:
        """Return new ``Buffers`` of the store's own type, which can hold any chunk."""
        ...

    def fetch(self, chunk: int, into: Handle) -> None:
        """Read the bytes of a chunk into buffers. Raises DataError, StorageError."""
        ...

    def check(self, chunk: int, into: Handle) -> Chunk:
        """Verify the bytes of a fetched chunk, and return it as a view of the buffers. Call it once per fetch, in any
        thread.

        Raises DataError, which names the chunk, if the bytes are not those that were written.
        """
        ...

    def expect(self, chunk: int) -> None:
        """Give the hint that ``chunk`` is read next; numbers after the last chunk are ignored."""
        ...

    def forget(self, chunk: int) -> None:
        """Give the hint that ``chunk`` is not needed soon, so that its pages may leave the page cache."""
        ...

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows of the store called ``name``. Raises DataError, StorageError."""
        ...


@runtime_checkable
class StoredFiles(Store, Protocol):
    """A committed store on disk, or an array file of another program, as returned by ``open_store``."""

    @property
    def root(self) -> Path:
        """The directory or file that holds the data."""
        ...

    @property
    def census(self) -> list[list[int]]:
        """Number of rows of each class in each chunk; the list of a chunk may end after the last class that occurs in
        it.
        """
        ...

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the programs that wrote the data, by name; empty if they are not known."""
        ...

    def folder_of_ids(self) -> Path:
        """Return the folder of this machine with the file of row ids, if the store has one. Raises StorageError."""
        ...

    def faults(self) -> Iterator[DataError]:
        """Yield an error, without raising it, for each fault of the files other than faults of chunks."""
        ...


class Statistics(NamedTuple):
    """Column statistics over all rows, float64 (d,). Absent entries of CSR rows count as 0."""

    mean: Float64
    """The mean of each column."""
    M2: Float64
    """The sum of squared differences from the mean: rows times the variance."""
    minimum: Float64
    """The smallest value of each column; at most 0 if entries of a CSR column are absent."""
    maximum: Float64
    """The largest value of each column; at least 0 if entries of a CSR column are absent."""


class Visit(NamedTuple):
    """The visit of one chunk in one pass. It depends only on the layout, the seed and the number of the pass."""

    epoch: int
    """The number of the pass, from 0."""
    chunk: int
    """The number of the chunk in the store that is read, which may be a section of a larger store."""
    seed: int
    """The seed of the order of the chunk's rows, and of further random numbers that the solver needs in this visit."""
    shuffled: bool
    """Whether rows are visited in an order drawn with ``seed``; False: in stored order."""
    last: bool
    """Whether this is the last visit of its pass, or of its group if a pass is made group by group."""


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
    """The keys of a store's ``facts`` and of a model's ``provenance`` that programs use, with their types. Other keys
    are for people.
    """

    names: list[str] | None = None
    encoding: _Encoding | None = None
    labels: _Labels | list[Any] | None = None
    """In a part that a worker wrote: the list of labels that occur in it."""
    target: _Target | None = None
    ids: dict[str, Any] | None = None
    sources: list[dict[str, Any]] = []
    certificates: list[_Certificate] = []
    map: str | None = None
    """Only in an embedding, whose columns are kernel features; ``encoding`` then belongs to the rows from which they
    were computed."""
    settings: dict[str, Any] | None = None
    store: dict[str, Any] | None = None


def check_recorded(recorded: JsonMapping, columns: int) -> None:
    """Raise ValueError, with the key, if recorded facts have wrong types or cannot belong to data with ``columns``
    columns.

    The facts are checked once, when a file is read, because a manifest or model with a valid checksum may still hold
    anything.
    """
    facts = msgspec.convert(recorded, _RecordedFacts)
    if facts.names is not None and len(facts.names) != columns:
        raise ValueError(f"{len(facts.names)} names of columns, expected {columns}")
    for column, offset in (facts.encoding and facts.encoding.offsets) or ():
        exists = column >= 0 if facts.map is not None else 0 <= column < columns
        if not exists or not math.isfinite(offset):
            raise ValueError(f"column {column} of {columns} has an offset of {offset}")
