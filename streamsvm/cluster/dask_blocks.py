"""Dask arrays and data frames as groups of blocks: what one task takes.

A task costs some milliseconds, whatever is in it, and where there is no cluster the graph of the whole collection is gone
through for each. So blocks are looked at once, in the program that calls, and small ones are put into one task together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import scipy.sparse
from dask.delayed import delayed

from streamsvm.errors import DataError, UsageError, quote
from streamsvm.jobs.ingest.given import column_of

GROUP_BYTES = 32 << 20
"""Blocks are put together until they are this large, by estimate."""
MOST_BLOCKS = 64
"""In a group, however small they are: the estimate is of a few of them."""


@runtime_checkable
class DelayedArray(Protocol):
    """What is asked of a ``dask.array``."""

    ndim: int
    """Its dimensions."""
    shape: tuple[float, ...]
    """Its lengths; nan where nobody knows."""
    dtype: np.dtype[Any]
    """The type of its items."""
    numblocks: tuple[int, ...]
    """Blocks along each dimension."""
    chunks: tuple[tuple[float, ...], ...]
    """Lengths of the blocks along each dimension; nan where nobody knows."""

    def ravel(self) -> Any:
        """Return the values in one dimension."""
        ...

    def rechunk(self, chunks: dict[int, Any]) -> Any:
        """Return the same array in other blocks."""
        ...

    def to_delayed(self) -> Any:
        """Return the blocks as an array of delayed values."""
        ...


@runtime_checkable
class DelayedFrame(Protocol):
    """What is asked of a ``dask.dataframe``."""

    columns: Iterable[str]
    """The names of the columns."""

    npartitions: int
    """The number of its partitions."""

    def to_delayed(self) -> Any:
        """Return the partitions as a list of delayed data frames."""
        ...


Collection: TypeAlias = Any
"""What a program hands over, and what dask makes of it: an array, a data frame, or one of their blocks."""


Compute: TypeAlias = Callable[[list[Any]], list[Any]]
"""Computes delayed values."""


class BlockGroup(NamedTuple):
    """Blocks that one task takes, which lie next to each other."""

    number: int
    """Its place among the groups."""
    first: int
    """The number of its first block."""
    blocks: Sequence[tuple[Collection, ...]]
    """Of each block: its rows, and where labels and weights are apart these."""


def frame_names(X: DelayedFrame) -> list[str]:
    """The names of the columns of a data frame. Raises DataError E-HEADER for one that is there twice."""
    names = [str(name) for name in X.columns]
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise DataError(f"the data frame names {quote(twice[0])} twice", code="E-HEADER", hint="rename a column")
    return names


def frame_blocks(X: DelayedFrame, *beside: Collection) -> list[tuple[Collection, ...]]:
    """The partitions of a data frame, each with its part of what stands beside it, dask arrays (n,) of as many blocks (``column_beside``)."""
    parts = X.to_delayed()
    return list(zip(parts, *(array.to_delayed().ravel().tolist() for array in beside), strict=True))


def column_beside(X: Collection, values: Any, compute: Compute) -> Collection:
    """Return labels or weights beside a collection, of any kind, as a dask array (n,) in blocks that are those of ``X``, or can be made so.

    ``values``: a dask array or series, a frame of one column, or one value a row in memory. Rows are matched by their order. Raises DataError
    E-ROWS, UsageError.
    """
    import dask.array as da

    if isinstance(values, DelayedFrame):
        pieces = [delayed(column_of)(part) for part in values.to_delayed()]
        values = da.concatenate([da.from_delayed(piece, (np.nan,), object) for piece in pieces])
    if isinstance(values, DelayedArray):
        values = values.ravel() if values.ndim == 2 and values.shape[1] == 1 else values
        blocks = X.npartitions if isinstance(X, DelayedFrame) else X.numblocks[0]
        both_known = not isinstance(X, DelayedFrame) and np.isfinite([X.shape[0], values.shape[0]]).all()
        side_by_side = values.numblocks[0] == blocks and not np.isfinite(values.shape[0])
        if values.ndim != 1 or side_by_side or both_known:
            return values  # ``array_blocks`` looks at the shapes
        if not np.isfinite(values.shape[0]):
            pieces = values.to_delayed().ravel().tolist()
            lengths = compute([delayed(_rows_of)(piece) for piece in pieces])
            known = zip(pieces, lengths, strict=True)
            values = da.concatenate([da.from_delayed(piece, (length,), values.dtype) for piece, length in known])
        return values.rechunk({0: _lengths_for(X, int(values.shape[0]), compute)})
    values = column_of(values)
    return da.from_array(values, chunks=(_lengths_for(X, len(values), compute),))


def _lengths_for(X: Collection, rows: int, compute: Compute) -> tuple[int, ...]:
    """The rows of each block of a collection. Raises DataError E-ROWS unless they are so many together."""
    if isinstance(X, DelayedFrame):
        lengths = compute([delayed(len)(part) for part in X.to_delayed()])
    elif np.isfinite(X.shape[0]):
        lengths = list(X.chunks[0])
    else:
        lengths = compute([delayed(_rows_of)(block) for block in X.to_delayed()[:, 0]])
    if sum(lengths) != rows:
        raise DataError(f"there are {sum(lengths)} rows, and {rows} labels or weights", code="E-ROWS", hint="one a row")
    return tuple(map(int, lengths))


def _rows_of(block: Collection) -> int:
    return int(block.shape[0])


def array_blocks(X: Collection, *beside: Collection) -> list[tuple[Collection, ...]]:
    """The blocks of rows (n, d) and of what stands beside them, arrays (n,).

    Raises UsageError; DataError E-ROWS where there is not one value a row.
    """
    if not all(isinstance(array, DelayedArray) for array in (X, *beside)):
        raise UsageError("rows (n, d) and labels (n,) are needed, as dask arrays", hint="ingest_dask(X, y, store)")
    if X.ndim != 2 or any(array.ndim != 1 for array in beside):
        shapes = " and ".join(str(array.shape) for array in (X, *beside))
        raise UsageError(f"rows (n, d) and labels (n,) are needed, not {shapes}", hint="ingest_dask(X, y, store)")
    for array in beside:
        _check_rows(X, array)
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    aligned = [array.rechunk({0: X.chunks[0]}) if _differ(X, array) else array for array in beside]
    return list(zip(*(array.to_delayed().ravel().tolist() for array in (X, *aligned)), strict=True))


def _check_rows(X: DelayedArray, other: DelayedArray) -> None:
    """Raise DataError E-ROWS for two arrays of which it is known that they are of other lengths, or that are cut otherwise and
    nobody knows how.
    """
    if np.isfinite([X.shape[0], other.shape[0]]).all():
        if X.shape[0] != other.shape[0]:
            found = f"there are {X.shape[0]} rows, and {other.shape[0]} labels or weights"
            raise DataError(found, code="E-ROWS", hint="one a row")
    elif X.numblocks[0] != other.numblocks[0]:
        found = (
            f"rows of unknown number are in {X.numblocks[0]} blocks, their labels or weights in {other.numblocks[0]}"
        )
        raise DataError(found, code="E-ROWS", hint="call compute_chunk_sizes() of both arrays first")


def _differ(X: DelayedArray, other: DelayedArray) -> bool:
    """Whether two divisions of rows differ; lengths that are unknown (nan) are compared block by block, on workers."""
    if X.numblocks[0] != other.numblocks[0]:
        return True
    lengths = np.array([X.chunks[0], other.chunks[0]], np.float64)
    return bool(np.any((lengths[0] != lengths[1]) & np.isfinite(lengths).all(axis=0)))


def grouped(blocks: Sequence[tuple[Collection, ...]], largest: float, compute: Compute) -> list[BlockGroup]:
    """Blocks in groups of about ``GROUP_BYTES``. ``largest``: bytes of a block at most, nan to have some measured."""
    if len(blocks) > 1 and not np.isfinite(largest):
        few = sorted({0, len(blocks) // 2, len(blocks) - 1})
        largest = max(compute([delayed(block_bytes)(*blocks[number]) for number in few]))
    together = int(np.clip(GROUP_BYTES // max(largest, 1.0), 1, MOST_BLOCKS)) if np.isfinite(largest) else 1
    starts = range(0, len(blocks), together)
    return [BlockGroup(number, start, blocks[start : start + together]) for number, start in enumerate(starts)]


def largest_block(X: DelayedArray) -> float:
    """Bytes of the largest block of an array as float64, were it dense; nan where nobody knows."""
    return float(np.max(np.array(X.chunks[0], np.float64)) * float(X.shape[1]) * 8.0)


def is_frame(block: Collection) -> bool:
    """Return whether a block, as a worker has it, is a data frame, and neither an array nor a sparse matrix."""
    return not isinstance(block, np.ndarray) and not scipy.sparse.issparse(block)


def block_bytes(*parts: Collection) -> int:
    """Bytes of a block; this is a task."""
    rows = parts[0]
    if is_frame(rows):
        return int(rows.memory_usage(deep=True).sum())
    return int(rows.data.nbytes + rows.indices.nbytes if scipy.sparse.issparse(rows) else rows.nbytes)
