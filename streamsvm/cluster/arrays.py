"""Dask arrays and data frames to a store, block by block: a worker that has a block writes it to a part of its own.

Only the parts pass through the program that calls, one chunk at a time; the collection is never put together.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import scipy.sparse
from dask.delayed import delayed
from distributed import Client

from streamsvm.aliases import JsonObject
from streamsvm.cluster.connection import using
from streamsvm.engine.executor import Task
from streamsvm.engine.part_stores import build_part, chunks_of, part_path
from streamsvm.errors import DataError, UsageError
from streamsvm.outputs import claim
from streamsvm.rows import CSR, Dense, Rows
from streamsvm.store import create
from streamsvm.store.format.labels import Census, as_labels, labels_from
from streamsvm.store.write.building import all_locked, store_outputs
from streamsvm.store.write.writer import StoreWriter

KEY = "block"


@runtime_checkable
class DelayedArray(Protocol):
    """What is asked of a ``dask.array``."""

    ndim: int
    """Its dimensions."""
    numblocks: tuple[int, ...]
    """Blocks along each of them."""
    chunks: tuple[tuple[float, ...], ...]
    """Lengths of the blocks along each of them; nan where nobody knows."""

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

    def to_delayed(self) -> Any:
        """Return the partitions as a list of delayed data frames."""
        ...


Collection: TypeAlias = Any
"""What a program hands over, and what dask makes of it: an array, a data frame, or one of their blocks."""


class BlockPart(NamedTuple):
    """What a worker made of a block."""

    number: int
    """Of the block, from 0."""
    rows: int
    """How many it has; a block may be empty."""
    labels: tuple[str, ...]
    """The labels that occur in it, as text; codes in the part are indices into them."""
    kind: str
    """``NUMBERS`` where labels are numbers, "U" where they are text."""


def ingest_dask(
    X: Collection,
    y: Collection = None,
    store: Path | str = "",
    *,
    label: str | None = None,
    client: Client | None = None,
    chunk_bytes: int = 4 << 20,
    overwrite: bool = False,
) -> Path:
    """Write a dask.array (n, d) with labels ``y`` (n,), or a dask.dataframe with a column ``label``, to a store.

    Without a client the blocks are computed here, one after the other. Blocks may be scipy.sparse matrices. Raises
    UsageError, DataError, ExistsError, StorageError, ClusterError.
    """
    target = Path(store)
    if not target.name:
        raise UsageError("where is the store to be?", hint="ingest_dask(X, y, 'train.zarr')")
    blocks, names = _blocks(X, y, label)
    coder = Census()
    with ExitStack() as stack:
        stack.enter_context(all_locked([target]))
        claim(store_outputs([target], continues=False), overwrite=overwrite)
        place = target.resolve().parent
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place, prefix=f".{target.name}.")))
        tasks = [delayed(write_block)(directory, k, *block, label) for k, block in enumerate(blocks)]
        writer: Any = None
        for found in _computed(tasks, client, stack):
            table = labels_from(found.labels, found.kind)
            for chunk in chunks_of(part_path(directory, found.number), KEY) if found.rows else ():
                if writer is None:
                    sparse = isinstance(chunk.X, CSR)
                    writer = create(target, sparse=sparse, chunk_bytes=chunk_bytes, overwrite=True)
                    undo = stack.enter_context(ExitStack())
                    undo.callback(writer.abort)
                writer.append(chunk.X, coder.codes(table[chunk.codes]), chunk.weight)
        if writer is None:
            raise DataError("the collection holds no rows", code="E-EMPTY")
        columns = len(names) if names else int(X.shape[1])
        writer.commit(coder.table(), columns, {"names": names, "labels": {"positive": None, "threshold": None}})
        undo.pop_all()
    return target


def _computed(tasks: Sequence[Collection], client: Client | None, stack: ExitStack) -> Iterator[BlockPart]:
    """The results in order: all blocks at once on a cluster, one by one here."""
    if client is None:
        for task in tasks:
            yield task.compute(scheduler="synchronous")
        return
    executor = stack.enter_context(using(client))
    yield from executor.taken(client.compute(list(tasks)), Task("ingest", write_block))


def _blocks(X: Collection, y: Collection, label: str | None) -> tuple[list[tuple[Any, ...]], list[str] | None]:
    """Delayed (rows, labels) blocks, and the names of the columns."""
    if isinstance(X, DelayedFrame):
        names = [str(name) for name in X.columns]
        if label is None or label not in names:
            raise UsageError(f"which of the columns {', '.join(names[:12])} is the label?", hint="pass label=NAME")
        names.remove(label)
        return [(part, None) for part in X.to_delayed()], names
    if not isinstance(X, DelayedArray) or not isinstance(y, DelayedArray) or (X.ndim, y.ndim) != (2, 1):
        raise UsageError("rows (n, d) and labels (n,) are needed, as dask arrays", hint="ingest_dask(X, y, store)")
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    if y.numblocks[0] != X.numblocks[0] or _differ(X.chunks[0], y.chunks[0]):
        y = y.rechunk({0: X.chunks[0]})
    return list(zip(X.to_delayed().ravel().tolist(), y.to_delayed().ravel().tolist(), strict=True)), None


def _differ(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two known divisions differ; what is unknown (nan) is found out block by block."""
    return any(a == a and b == b and a != b for a, b in zip(one, other, strict=True))  # noqa: PLR0124 (nan)


def write_block(directory: Path, index: int, X: Collection, y: Collection, label: str | None) -> BlockPart:
    """The task: a block as a part. Raises DataError naming the block."""
    if label is not None:
        X, y = X.drop(columns=[label]).to_numpy(np.float64), X[label].to_numpy()
    rows, labels = _rows_of(X, index), np.asarray(y)
    count = X.shape[0]
    if len(labels) != count:
        raise DataError(f"block {index} has {count} rows and {len(labels)} labels", code="E-ROWS")
    labels = as_labels(labels.astype(np.str_) if labels.dtype.kind == "O" else labels, f"block {index}")
    kind = labels.dtype.kind
    if not count:
        return BlockPart(index, 0, (), kind)
    coder = Census()
    codes = coder.codes(labels)

    def fill(writer: StoreWriter) -> tuple[tuple[str, ...], int, JsonObject]:
        writer.append(rows, codes)
        return tuple(coder.classes), X.shape[1], {}

    build_part(directory, index, KEY, sparse=isinstance(rows, CSR), fill=fill)
    return BlockPart(index, count, tuple(coder.classes), kind)


def _rows_of(X: Collection, index: int) -> Rows:
    """A block as rows. Raises DataError when a number is not finite as float32."""
    if scipy.sparse.issparse(X):
        X = scipy.sparse.csr_matrix(X)
        X.sum_duplicates()
        values = X.data.astype(np.float32)
        rows: Rows = CSR(values, X.indices.astype(np.int32), X.indptr.astype(np.int64))
    else:
        with np.errstate(over="ignore"):
            values = np.ascontiguousarray(X, np.float32)
        rows = Dense(values)
    if not np.isfinite(values).all():
        raise DataError(
            f"block {index} holds a number that is NaN, infinite or too large for float32",
            code="E-NONFINITE",
            hint="fill or drop such rows before they are ingested",
        )
    return rows
