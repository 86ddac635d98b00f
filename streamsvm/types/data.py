"""Data on its way in: what a source yields, what a store is and hands out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from streamsvm.rows import Float32, Float64, Int32, Rows


class Batch(NamedTuple):
    """What a source yields: rows, one label a row (float64 or str), perhaps a weight a row (float32).

    The arrays belong to whoever takes the batch: a source never writes into them again.
    """

    X: Rows
    labels: NDArray[Any]
    weight: Float32 | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """What is known of a store without reading its chunks."""

    columns: int
    chunks: tuple[int, ...]
    """Rows of each chunk."""
    nonzeros: tuple[int, ...] | None
    """Stored entries of each chunk; None when dense."""
    classes: tuple[str, ...]
    """The label each code stands for, as text."""
    counts: tuple[int, ...]
    """Rows of each class."""
    weighted: bool = False

    @property
    def rows(self) -> int:
        return sum(self.chunks)

    @property
    def dense(self) -> bool:
        return self.nonzeros is None

    @property
    def largest_chunk(self) -> int:
        return max(self.chunks)

    @property
    def block_bytes(self) -> int:
        """Bytes one block of any chunk needs in memory: entries, codes and weights."""
        per_row = 4 + 4 * self.weighted
        if self.nonzeros is None:
            return self.largest_chunk * (4 * self.columns + per_row)
        return max(self.nonzeros) * 8 + self.largest_chunk * (8 + per_row)

    @property
    def bytes_per_pass(self) -> int:
        """Bytes one reading of all chunks moves."""
        entries = self.rows * self.columns * 4 if self.nonzeros is None else sum(self.nonzeros) * 8 + self.rows * 8
        return entries + self.rows * (4 + 4 * self.weighted)


class Chunk(NamedTuple):
    """What a store hands out: views into the buffer it was given, valid until that buffer is read into again."""

    X: Rows
    codes: Int32
    """Class of each row, an index into ``Layout.classes``."""
    weight: Float32 | None


class Buffers(Protocol):
    """Preallocated memory for one chunk; made by the store, reused by the reader."""

    nbytes: int


class Store(Protocol):
    """Chunked data on disk or in memory. The only thing that may open a file of it."""

    name: str
    layout: Layout
    digest: str
    """sha256 of the content: equal for equal data, wherever it lies."""

    def buffers(self) -> Any:
        """Memory for one chunk (``Buffers``), of the store's own kind."""
        ...

    def fetch(self, chunk: int, into: Any) -> None:
        """Move the bytes of a chunk into buffers. Raises DataError, StorageError."""
        ...

    def check(self, chunk: int, into: Any) -> Chunk:
        """Verify what was fetched, once, and view it as rows; whichever thread is idle does it.

        Raises DataError naming the chunk when it is not what was written.
        """
        ...

    def expect(self, chunk: int) -> None:
        """Hint that ``chunk`` is read next."""
        ...

    def forget(self, chunk: int) -> None:
        """Hint that ``chunk`` is not needed soon: its pages may leave the cache."""
        ...

    def statistics(self) -> Statistics: ...


class Statistics(NamedTuple):
    """Column statistics over all rows, absent entries of a CSR counted as 0. All float64 (d,)."""

    mean: Float64
    M2: Float64
    minimum: Float64
    maximum: Float64
