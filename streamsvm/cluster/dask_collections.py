"""Dask arrays and data frames: to a store, and a model applied to them.

To a store: workers write their blocks to files, which are ingested like others. Only these files pass through the calling program, some rows at a time; the collection is never assembled. A task costs some milliseconds
whatever it does, and without a cluster the graph of the whole collection is traversed for each. So blocks are inspected once, in the calling
program, and small ones are grouped into one task.

A model is applied lazily: nothing is computed until it is asked for. Each block is a task, on whatever computes the rest of the graph; the
model is one value of the graph that all tasks share.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import dask
import dask.array as da
import numpy as np
import scipy.sparse
from dask.delayed import delayed
from distributed import Client
from threadpoolctl import threadpool_limits

from streamsvm.aliases import Array
from streamsvm.cluster.connection import default_client, using
from streamsvm.config.options import options_of
from streamsvm.engine.executor import Task
from streamsvm.engine.join_tree import tree_reduce
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.jobs.apply.metrics import (
    Accumulator,
    accumulate,
    empty_accumulator,
    make_accumulator,
    merge_accumulators,
)
from streamsvm.jobs.apply.rows import FileRequest, RowBatches, rows_of_source, source_options
from streamsvm.jobs.ingest.frames_and_arrays import BESIDE, column_of
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import IngestResult, ingest_from
from streamsvm.locks import scratch_beside, sweep_beside
from streamsvm.model import Model, find_model, load
from streamsvm.registry import did_you_mean
from streamsvm.store.sources import Source, SourceOptions
from streamsvm.store.sources.dask_blocks import array_source, write_arrays, write_frames
from streamsvm.store.sources.data_frames import BlocksPart, frame_source
from streamsvm.types import Report, silent

GROUP_BYTES = 32 << 20
"""Blocks are grouped up to this size, by estimate."""
MAX_GROUP_BLOCKS = 64
"""Largest group, however small its blocks are: their size is estimated from a few."""


@runtime_checkable
class DelayedArray(Protocol):
    """The methods of a ``dask.array`` that are used."""

    ndim: int
    shape: tuple[float, ...]
    """nan where unknown."""
    dtype: np.dtype[Any]
    numblocks: tuple[int, ...]
    """Blocks along each dimension."""
    chunks: tuple[tuple[float, ...], ...]
    """Lengths of the blocks along each dimension; nan where unknown."""

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
    """The methods of a ``dask.dataframe`` that are used."""

    columns: Iterable[str]
    npartitions: int

    def to_delayed(self) -> Any:
        """Return the partitions as a list of delayed data frames."""
        ...


Collection: TypeAlias = Any
"""A dask array or data frame, or one of their blocks."""


Compute: TypeAlias = Callable[[list[Any]], list[Any]]
"""Computes delayed values."""


class BlockGroup(NamedTuple):
    """Neighboring blocks that one task takes."""

    number: int
    first: int
    """Number of its first block."""
    blocks: Sequence[tuple[Collection, ...]]
    """The rows of each block, and its labels and weights where they are separate."""


def frame_names(X: DelayedFrame) -> list[str]:
    """Return the column names of a data frame. Raises DataError E-HEADER for duplicates."""
    names = [str(name) for name in X.columns]
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise DataError(
            f"the data frame has two columns named {quote(twice[0])}", code="E-HEADER", hint="rename a column"
        )
    return names


def frame_blocks(X: DelayedFrame, *beside: Collection) -> list[tuple[Collection, ...]]:
    """Return the partitions of a data frame, each with its part of the arrays (n,) beside it (``column_beside``)."""
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
            lengths = compute([delayed(_count_rows)(piece) for piece in pieces])
            known = zip(pieces, lengths, strict=True)
            values = da.concatenate([da.from_delayed(piece, (length,), values.dtype) for piece, length in known])
        return values.rechunk({0: _block_lengths(X, int(values.shape[0]), compute)})
    values = column_of(values)
    return da.from_array(values, chunks=(_block_lengths(X, len(values), compute),))


def _block_lengths(X: Collection, rows: int, compute: Compute) -> tuple[int, ...]:
    """Return the number of rows of each block. Raises DataError E-ROWS unless they add up to ``rows``."""
    if isinstance(X, DelayedFrame):
        lengths = compute([delayed(len)(part) for part in X.to_delayed()])
    elif np.isfinite(X.shape[0]):
        lengths = list(X.chunks[0])
    else:
        lengths = compute([delayed(_count_rows)(block) for block in X.to_delayed()[:, 0]])
    if sum(lengths) != rows:
        raise DataError(f"there are {sum(lengths)} rows, and {rows} labels or weights", code="E-ROWS", hint="one a row")
    return tuple(map(int, lengths))


def _count_rows(block: Collection) -> int:
    return int(block.shape[0])


def array_blocks(X: Collection, *beside: Collection) -> list[tuple[Collection, ...]]:
    """Return the blocks of rows (n, d) with those of the arrays (n,) beside them.

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
    aligned = [array.rechunk({0: X.chunks[0]}) if _are_cut_differently(X, array) else array for array in beside]
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


def _are_cut_differently(X: DelayedArray, other: DelayedArray) -> bool:
    """Return whether two divisions into blocks differ; unknown lengths (nan) are compared later, on workers."""
    if X.numblocks[0] != other.numblocks[0]:
        return True
    lengths = np.array([X.chunks[0], other.chunks[0]], np.float64)
    return bool(np.any((lengths[0] != lengths[1]) & np.isfinite(lengths).all(axis=0)))


def group_blocks(blocks: Sequence[tuple[Collection, ...]], largest: float, compute: Compute) -> list[BlockGroup]:
    """Group blocks to about ``GROUP_BYTES``. ``largest``: the largest block in bytes; nan: measure a few."""
    if len(blocks) > 1 and not np.isfinite(largest):
        few = sorted({0, len(blocks) // 2, len(blocks) - 1})
        largest = max(compute([delayed(measure_block)(*blocks[number]) for number in few]))
    together = int(np.clip(GROUP_BYTES // max(largest, 1.0), 1, MAX_GROUP_BLOCKS)) if np.isfinite(largest) else 1
    starts = range(0, len(blocks), together)
    return [BlockGroup(number, start, blocks[start : start + together]) for number, start in enumerate(starts)]


def estimate_block_bytes(X: DelayedArray) -> float:
    """Bytes of the largest block of an array as float64, were it dense; nan where nobody knows."""
    return float(np.max(np.array(X.chunks[0], np.float64)) * float(X.shape[1]) * 8.0)


def is_frame(block: Collection) -> bool:
    """Return whether a computed block is a data frame, and neither an array nor a sparse matrix."""
    return not isinstance(block, np.ndarray) and not scipy.sparse.issparse(block)


def measure_block(*parts: Collection) -> int:
    """Return the bytes of a block; this is a task."""
    rows = parts[0]
    if is_frame(rows):
        return int(rows.memory_usage(deep=True).sum())
    return int(rows.data.nbytes + rows.indices.nbytes if scipy.sparse.issparse(rows) else rows.nbytes)


FILE_OPTIONS = ("sources", "store", "repair", "cluster", "insecure_network", "format", "labels", "label", "weight")
"""Options that are given otherwise here, or apply to files only."""


def ingest_dask(
    X: Collection,
    y: Collection = None,
    store: Path | str = "",
    *,
    label: str | None = None,
    weight: Collection = None,
    client: Client | None = None,
    **options: Any,
) -> Path:
    """Write a dask.array (n, d) or a dask.dataframe to a store, with labels ``y`` (n,), or those of the frame's column ``label``.

    ``y``: a dask array or series, or labels in memory, one a row in the order of the rows. ``weight``: a weight a row, the name of a column or as ``y``. Blocks may be scipy.sparse matrices. ``options`` are
    those of ``streamsvm ingest`` by their names in a job file (``test_fraction``, ``missing``, ``categorical``,
    ``hash_bits``, ``chunk_bytes``, ``overwrite``, ...): rows obey the same rules as those of files, and errors say the same of
    block and row. Without a client, and without one that Dask has as its default, the blocks are computed here, one after
    the other. Returns the path of the store. Raises UsageError, DataError, ExistsError, StorageError, ClusterError.
    """
    job = _job(X, y, store, {"label": label, **({"weight": weight} if isinstance(weight, str) else {}), **options})
    return ingest_collection(job, X, y, weight, client=client).store


def ingest_collection(
    job: IngestJob,
    X: Collection,
    y: Collection,
    weight: Collection,
    *,
    report: Report = silent,
    client: Client | None = None,
) -> IngestResult:
    """Ingest a collection with the options of a job, which names the store; as ``ingest_dask`` otherwise."""
    given = {"label": y, "weight": None if isinstance(weight, str) else weight}
    beside = {option: values for option, values in given.items() if values is not None}
    if isinstance(X, DelayedFrame):
        taken = sorted({BESIDE[option] for option in beside} & set(frame_names(X)))
        if taken:
            message = f"the data frame has a column {quote(taken[0])}, and so would labels or weights be called that are given beside it"
            raise DataError(message, code="E-HEADER", hint=f"name the column, y={taken[0]!r}, or rename it")
        label = BESIDE["label"] if y is not None else job.label
        job = replace(job, label=label, weight=BESIDE["weight"] if "weight" in beside else job.weight)
    with ExitStack() as stack:
        return ingest_from(job, _CollectionFiles(X, beside, job, client or default_client(), stack).source, report)


def _job(X: Collection, y: Collection, store: Path | str, options: dict[str, Any]) -> IngestJob:
    """Return the job of these options. Raises UsageError, DataError."""
    if not Path(store).name:
        frame = isinstance(X, DelayedFrame)
        written = "ingest_dask(frame, store='train.zarr', label='y')" if frame else "ingest_dask(X, y, 'train.zarr')"
        raise UsageError("where is the store to be?", hint=written)
    known = {option.name for option in options_of(IngestJob)} - set(FILE_OPTIONS) | {"label", "weight"}
    for name in options:
        if name not in known:
            raise UsageError(f"ingest_dask has no option '{name}'{did_you_mean(name, known)}")
    if isinstance(X, DelayedFrame):
        names = frame_names(X)
        if y is None and options["label"] is None:
            hint = "pass label=NAME, or y=LABELS, one a row"
            raise UsageError(f"which of the columns {', '.join(names[:12])} is the label?", hint=hint)
        if y is not None and options["label"] is not None:
            raise UsageError("labels are given twice", hint="pass label=NAME, or y=LABELS, one a row")
    elif y is None:
        raise UsageError("rows (n, d) and labels (n,) are needed, as dask arrays", hint="ingest_dask(X, y, store)")
    return IngestJob(sources=(), store=Path(store), **options)


@dataclass(frozen=True, slots=True)
class _CollectionFiles:
    """Files of a collection, written by its workers."""

    X: Collection
    beside: Mapping[str, Collection]
    """Labels and weights that are not columns of it, by option."""
    job: IngestJob
    client: Client | None
    stack: ExitStack
    """Closed when the files have been read."""

    def source(self, options: SourceOptions) -> Source:
        """Write the files and return them as a source."""
        beside = self.job.store.with_name(f"{self.job.store.name}.blocks")  # leftovers of the store itself are swept
        sweep_beside(beside)
        directory = self.stack.enter_context(scratch_beside(beside))
        columns = [column_beside(self.X, values, self._compute) for values in self.beside.values()]
        if isinstance(self.X, DelayedFrame):
            names = [BESIDE[option] for option in self.beside]
            groups = group_blocks(frame_blocks(self.X, *columns), float("nan"), self._compute)
            tasks = [delayed(write_frames)(directory, *group, names) for group in groups]
            return frame_source(self._write(tasks), options)
        groups = group_blocks(array_blocks(self.X, *columns), estimate_block_bytes(self.X), self._compute)
        missing = self.job.missing != "error"
        return array_source(
            self._write([delayed(write_arrays)(directory, *group, missing) for group in groups]), options
        )

    def _write(self, tasks: Sequence[Collection]) -> list[BlocksPart]:
        """Return the parts with rows. Raises DataError E-EMPTY where there are none."""
        parts = [part for part in self._compute(tasks) if sum(part.rows)]
        if not parts:
            raise DataError("the collection holds no rows", code="E-EMPTY", hint="check what it was made of")
        return parts

    def _compute(self, tasks: Sequence[Collection]) -> list[Any]:
        """Return the results of tasks in order: all at once on a cluster, one by one here, where memory is for one."""
        if self.client is None:
            return [task.compute(scheduler="synchronous") for task in tasks]
        executor = self.stack.enter_context(using(self.client))
        return list(executor.take(self.client.compute(list(tasks)), Task("ingest", write_frames)))


LABEL, DECISION = "label", "decision"


def predict_dask(model: Any, X: Collection, *, output: str = LABEL) -> Collection:
    """Return predictions for a dask.array (n, d) or a dask.dataframe, as a lazy dask.array in the order of the rows.

    ``output``: 'label', as ``Model.predict`` returns it (n,), or 'decision', float64 (n,) for two classes and (n, classes) for more. Columns of a data
    frame are found by name and read as those the model was trained on. Raises UsageError, and MissingError or DataError for
    the model; rows are looked at when they are computed.
    """
    if output not in (LABEL, DECISION):
        raise UsageError(f"output cannot be '{output}'", hint=f"choose from {LABEL}, {DECISION}")
    found = _model(model)
    width = () if output == LABEL or len(found.weights) == 1 else (len(found.weights),)
    empty = np.empty((0, *width), found.labels.dtype if output == LABEL else np.float64)
    shared, blocks = delayed(found), _blocks(X)
    lengths = (np.nan,) * len(blocks) if isinstance(X, DelayedFrame) else X.chunks[0]
    parts = [
        da.from_delayed(delayed(_predict_block)(shared, k, block, output), (rows, *width), meta=empty)
        for k, (block, rows) in enumerate(zip(blocks, lengths, strict=True))
    ]
    return da.concatenate(parts)


def evaluate_dask(model: Any, X: Collection, y: Collection = None, *, label: str | None = None) -> Collection:
    """Evaluate a model on labeled rows, as a lazy value: ``.compute()`` gives a ``ModelEvaluation``.

    Labels ``y`` (n,) stand beside the rows, as of ``ingest_dask``, or are a column of a data frame: ``label``, or the one the model was trained
    with. Raises as ``predict_dask`` does.
    """
    beside = [] if y is None else [column_beside(X, y, lambda tasks: list(dask.compute(*tasks)))]
    if beside and isinstance(X, DelayedFrame):
        label = BESIDE["label"]
    shared, blocks = delayed(_model(model)), _blocks(X, *beside)
    counted = (delayed(_evaluate_block)(shared, k, block, label) for k, block in enumerate(blocks))
    return delayed(_result)(tree_reduce(counted, len(blocks), delayed(merge_accumulators)))


def _model(model: Any) -> Model:
    """Return the model of an object, also of the result of a fit or of a fitted estimator, or of a file."""
    found = find_model(model)
    return load(Path(model)) if found is None else found


def _blocks(X: Collection, *beside: Collection) -> list[tuple[Collection, ...]]:
    """Return blocks of rows and labels. Raises UsageError."""
    if isinstance(X, DelayedFrame):
        if beside and BESIDE["label"] in frame_names(X):
            hint = f"pass label={BESIDE['label']!r}, or rename the column"
            raise UsageError(f"the data frame has a column {BESIDE['label']!r} and labels beside it", hint=hint)
        return frame_blocks(X, *beside)
    return array_blocks(X, *beside)


def _predict_block(model: Model, number: int, block: tuple[Collection, ...], output: str) -> Array:
    """Predict a block: the task of ``predict_dask``. Raises DataError naming block and row."""
    decisions = [np.empty((0, len(model.weights)))]
    with _rows(model, number, block, {"unlabeled": True}) as rows, threadpool_limits(1):
        decisions += [model.decision(batch.X) for batch in rows or ()]
    decision = np.concatenate(decisions)
    if output == LABEL and not model.numeric:
        return model.labels[model.codes(decision)]
    return decision[:, 0] if len(model.weights) == 1 else decision


def _evaluate_block(model: Model, number: int, block: tuple[Collection, ...], label: str | None) -> Accumulator:
    """Evaluate a block: the task of ``evaluate_dask``. Raises DataError naming block and row, E-LABEL for rows without labels."""
    with _rows(model, number, block, {} if label is None else {"label": label}) as rows, threadpool_limits(1):
        if rows is None:
            return empty_accumulator(model)
        return accumulate(model, rows, make_accumulator(model, rows))


def _result(found: Accumulator) -> Any:
    return found.result()


@contextmanager
def _rows(
    model: Model, number: int, block: tuple[Collection, ...], stated: dict[str, Any]
) -> Iterator[RowBatches | None]:
    """Provide the rows of a block, read as those the model was trained on; None where it has none."""
    options = source_options(model, FileRequest(stated))
    with tempfile.TemporaryDirectory(prefix="streamsvm-block-") as place:
        frame = is_frame(block[0])
        names = (BESIDE["label"],)[: len(block) - 1]
        write = (
            partial(write_frames, beside=names) if frame else partial(write_arrays, missing=options.missing != "error")
        )
        part = write(Path(place), 0, number, [block])
        if sum(part.rows):
            source = (frame_source if frame else array_source)([part], options)
            yield rows_of_source(model, source, f"{'partition' if frame else 'block'} {number}", options.rejects)
        else:
            yield None
