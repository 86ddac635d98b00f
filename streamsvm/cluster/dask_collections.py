"""Dask arrays and data frames: write them to a store, or apply a model to them.

To write a store, tasks write the blocks to files, which are then ingested like other files. Only these files pass
through the calling program, some rows at a time; the collection is never assembled. Each task costs some milliseconds,
and without a cluster the graph of the whole collection is traversed for every task. Therefore the calling program
inspects the blocks once, and groups small ones into one task.

A model is applied lazily: nothing is computed before the caller computes the result. Each block is a task of the
caller's graph, run by the caller's scheduler. The model is one value in the graph, shared by all tasks.
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

from streamsvm.cluster.connection import default_client, using
from streamsvm.config.options import options_of
from streamsvm.durable import remove_stale_scratch, scratch_beside
from streamsvm.engine.executor import Task
from streamsvm.engine.join_tree import tree_reduce
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.jobs.apply.measures import (
    Accumulator,
    accumulate,
    empty_accumulator,
    make_accumulator,
    merge_accumulators,
)
from streamsvm.jobs.apply.rows import FileRequest, RowBatches, rows_of_source, source_options
from streamsvm.jobs.ingest.frames_and_arrays import SEPARATE_COLUMNS, column_of
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import IngestResult, ingest_from
from streamsvm.model import Model, find_model, load
from streamsvm.registry import did_you_mean
from streamsvm.store.sources import Source, SourceOptions
from streamsvm.store.sources.dask_blocks import array_source, write_arrays, write_frames
from streamsvm.store.sources.data_frames import BlocksPart, frame_source
from streamsvm.type_aliases import Array
from streamsvm.types import Report, silent

GROUP_BYTES = 32 << 20
"""Approximate size up to which blocks are grouped."""
MAX_GROUP_BLOCKS = 64
"""Largest number of blocks in a group, however small they seem: their size is estimated from a few blocks."""


@runtime_checkable
class DelayedArray(Protocol):
    """The attributes and methods of a ``dask.array`` that this module uses."""

    ndim: int
    shape: tuple[float, ...]
    """Unknown lengths are nan."""
    dtype: np.dtype[Any]
    numblocks: tuple[int, ...]
    """Number of blocks along each dimension."""
    chunks: tuple[tuple[float, ...], ...]
    """Lengths of the blocks along each dimension; unknown lengths are nan."""

    def ravel(self) -> Any:
        """Return the values in one dimension."""
        ...

    def rechunk(self, chunks: dict[int, Any]) -> Any:
        """Return the same array divided into other blocks."""
        ...

    def to_delayed(self) -> Any:
        """Return the blocks as an array of delayed values."""
        ...


@runtime_checkable
class DelayedFrame(Protocol):
    """The attributes and methods of a ``dask.dataframe`` that this module uses."""

    columns: Iterable[str]
    npartitions: int

    def to_delayed(self) -> Any:
        """Return the partitions as a list of delayed data frames."""
        ...


Collection: TypeAlias = Any
"""A dask array or data frame, or one of their blocks."""


Compute: TypeAlias = Callable[[list[Any]], list[Any]]
"""A function that computes delayed values."""


class BlockGroup(NamedTuple):
    """Neighboring blocks that one task processes."""

    number: int
    """Position of the group among all groups."""
    first: int
    """Number of the first block."""
    blocks: Sequence[tuple[Collection, ...]]
    """The rows of each block, followed by its labels and weights if they are separate."""


def frame_names(X: DelayedFrame) -> list[str]:
    """Return the column names of a data frame. Raises DataError E-HEADER for duplicates."""
    names = [str(name) for name in X.columns]
    if duplicates := sorted(name for name, times in Counter(names).items() if times > 1):
        message = f"the data frame has two columns named {quote(duplicates[0])}"
        raise DataError(message, code="E-HEADER", hint="rename a column")
    return names


def frame_blocks(X: DelayedFrame, *row_arrays: Collection) -> list[tuple[Collection, ...]]:
    """Return the partitions of a data frame, each with its part of the separate arrays (n,) ``row_arrays``
    (``to_row_array``).
    """
    parts = X.to_delayed()
    return list(zip(parts, *(array.to_delayed().ravel().tolist() for array in row_arrays), strict=True))


def to_row_array(X: Collection, values: Any, compute: Compute) -> Collection:
    """Return separate labels or weights as a dask array (n,), in the blocks of ``X`` or in blocks that can be
    rearranged to them.

    ``values``: a dask array or series, a frame with one column, or values in memory, one per row. Rows are matched by
    their order. Raises DataError E-ROWS, UsageError.
    """
    import dask.array as da

    if isinstance(values, DelayedFrame):
        pieces = [delayed(column_of)(part) for part in values.to_delayed()]
        values = da.concatenate([da.from_delayed(piece, (np.nan,), object) for piece in pieces])
    if isinstance(values, DelayedArray):
        values = values.ravel() if values.ndim == 2 and values.shape[1] == 1 else values
        blocks = X.npartitions if isinstance(X, DelayedFrame) else X.numblocks[0]
        lengths_known = not isinstance(X, DelayedFrame) and np.isfinite([X.shape[0], values.shape[0]]).all()
        same_blocks = values.numblocks[0] == blocks and not np.isfinite(values.shape[0])
        if values.ndim != 1 or same_blocks or lengths_known:
            return values  # ``array_blocks`` checks the shapes
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


def array_blocks(X: Collection, *row_arrays: Collection) -> list[tuple[Collection, ...]]:
    """Return the blocks of rows (n, d), each with its blocks of the separate arrays (n,).

    Raises UsageError, and DataError E-ROWS unless the arrays have one value per row.
    """
    if not all(isinstance(array, DelayedArray) for array in (X, *row_arrays)):
        raise UsageError("rows (n, d) and labels (n,) are needed, as dask arrays", hint="ingest_dask(X, y, store)")
    if X.ndim != 2 or any(array.ndim != 1 for array in row_arrays):
        shapes = " and ".join(str(array.shape) for array in (X, *row_arrays))
        raise UsageError(f"rows (n, d) and labels (n,) are needed, not {shapes}", hint="ingest_dask(X, y, store)")
    for array in row_arrays:
        _check_rows(X, array)
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    aligned = [array.rechunk({0: X.chunks[0]}) if _are_cut_differently(X, array) else array for array in row_arrays]
    return list(zip(*(array.to_delayed().ravel().tolist() for array in (X, *aligned)), strict=True))


def _check_rows(X: DelayedArray, other: DelayedArray) -> None:
    """Raise DataError E-ROWS if two arrays have different lengths, or different numbers of blocks of unknown
    lengths.
    """
    if np.isfinite([X.shape[0], other.shape[0]]).all():
        if X.shape[0] != other.shape[0]:
            message = f"there are {X.shape[0]} rows, and {other.shape[0]} labels or weights"
            raise DataError(message, code="E-ROWS", hint="one a row")
    elif X.numblocks[0] != other.numblocks[0]:
        message = (
            f"rows of unknown number are in {X.numblocks[0]} blocks, their labels or weights in {other.numblocks[0]}"
        )
        raise DataError(message, code="E-ROWS", hint="call compute_chunk_sizes() of both arrays first")


def _are_cut_differently(X: DelayedArray, other: DelayedArray) -> bool:
    """Return whether two arrays are divided into blocks differently. Unknown lengths (nan) are compared later, on
    workers.
    """
    if X.numblocks[0] != other.numblocks[0]:
        return True
    lengths = np.array([X.chunks[0], other.chunks[0]], np.float64)
    return bool(np.any((lengths[0] != lengths[1]) & np.isfinite(lengths).all(axis=0)))


def group_blocks(blocks: Sequence[tuple[Collection, ...]], largest_bytes: float, compute: Compute) -> list[BlockGroup]:
    """Join neighboring blocks to groups of about ``GROUP_BYTES``.

    ``largest_bytes``: bytes of the largest block; nan: a few blocks are measured.
    """
    if len(blocks) > 1 and not np.isfinite(largest_bytes):
        measured = sorted({0, len(blocks) // 2, len(blocks) - 1})
        largest_bytes = max(compute([delayed(measure_block)(*blocks[number]) for number in measured]))
    count = (
        int(np.clip(GROUP_BYTES // max(largest_bytes, 1.0), 1, MAX_GROUP_BLOCKS)) if np.isfinite(largest_bytes) else 1
    )
    starts = range(0, len(blocks), count)
    return [BlockGroup(number, start, blocks[start : start + count]) for number, start in enumerate(starts)]


def estimate_block_bytes(X: DelayedArray) -> float:
    """Return the bytes of the largest block of an array if it is dense float64; nan if lengths are unknown."""
    return float(np.max(np.array(X.chunks[0], np.float64)) * float(X.shape[1]) * 8.0)


def is_frame(block: Collection) -> bool:
    """Return whether a computed block is a data frame; otherwise it is an array or a sparse matrix."""
    return not isinstance(block, np.ndarray) and not scipy.sparse.issparse(block)


def measure_block(*parts: Collection) -> int:
    """Return the bytes of a block. Run as a task."""
    rows = parts[0]
    if is_frame(rows):
        return int(rows.memory_usage(deep=True).sum())
    return int(rows.data.nbytes + rows.indices.nbytes if scipy.sparse.issparse(rows) else rows.nbytes)


FILE_OPTIONS = ("sources", "store", "repair", "cluster", "insecure_network", "format", "labels", "label", "weight")
"""Options of ``ingest`` that are separate parameters of ``ingest_dask``, or that apply only to files."""


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
    """Write a dask.array (n, d) or a dask.dataframe to a store, with labels ``y`` (n,), or those of the frame's column
    ``label``.

    ``y``: a dask array or series, or labels in memory, one per row in the order of the rows. ``weight``: row weights,
    either the name of a column or values like ``y``. Blocks may be scipy.sparse matrices. ``options`` are those of
    ``streamsvm ingest``, by their names in a job file (``test_fraction``, ``missing``, ``categorical``, ``hash_bits``,
    ``chunk_bytes``, ``overwrite``, ...). Rows are treated like rows of files, and errors name the block and the row.
    Without ``client`` and without a default client of Dask, the blocks are computed in this process, one after the
    other. Returns the path of the store. Raises UsageError, DataError, ExistsError, StorageError, ClusterError.
    """
    job = _job(X, y, store, {"label": label, **({"weight": weight} if isinstance(weight, str) else {}), **options})
    return Path(ingest_collection(job, X, y, weight, client=client).store)


def ingest_collection(
    job: IngestJob,
    X: Collection,
    y: Collection,
    weight: Collection,
    *,
    report: Report = silent,
    client: Client | None = None,
) -> IngestResult:
    """Ingest a collection as ``ingest_dask`` does, with the store and the options of a job."""
    arrays = {"label": y, "weight": None if isinstance(weight, str) else weight}
    row_arrays = {option: values for option, values in arrays.items() if values is not None}
    if isinstance(X, DelayedFrame):
        duplicates = sorted({SEPARATE_COLUMNS[option] for option in row_arrays} & set(frame_names(X)))
        if duplicates:
            message = (
                f"the data frame has a column {quote(duplicates[0])}, which is the name of separate labels or weights"
            )
            hint = f"name the column, y={duplicates[0]!r}, or rename the column"
            raise DataError(message, code="E-HEADER", hint=hint)
        label = SEPARATE_COLUMNS["label"] if y is not None else job.label
        job = replace(job, label=label, weight=SEPARATE_COLUMNS["weight"] if "weight" in row_arrays else job.weight)
    with ExitStack() as stack:
        return ingest_from(job, _CollectionFiles(X, row_arrays, job, client or default_client(), stack).source, report)


def _job(X: Collection, y: Collection, store: Path | str, options: dict[str, Any]) -> IngestJob:
    """Return the ingest job with these options. Raises UsageError, DataError."""
    if not Path(store).name:
        frame = isinstance(X, DelayedFrame)
        example = "ingest_dask(frame, store='train.zarr', label='y')" if frame else "ingest_dask(X, y, 'train.zarr')"
        raise UsageError("where is the store to be?", hint=example)
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
    """Temporary files with the rows of a collection, written by the tasks that compute its blocks."""

    X: Collection
    row_arrays: Mapping[str, Collection]
    """Separate labels and weights, by option."""
    job: IngestJob
    client: Client | None
    stack: ExitStack
    """Removes the files when it is closed, after they have been read."""

    def source(self, options: SourceOptions) -> Source:
        """Write the files and return them as a source."""
        # a name of their own: the ingest removes stale scratch files of the store
        base = self.job.store.with_name(f"{self.job.store.name}.blocks")
        remove_stale_scratch(base)
        directory = self.stack.enter_context(scratch_beside(base))
        columns = [to_row_array(self.X, values, self._compute) for values in self.row_arrays.values()]
        if isinstance(self.X, DelayedFrame):
            names = [SEPARATE_COLUMNS[option] for option in self.row_arrays]
            groups = group_blocks(frame_blocks(self.X, *columns), float("nan"), self._compute)
            tasks = [delayed(write_frames)(directory, *group, names) for group in groups]
            return frame_source(self._write(tasks), options)
        groups = group_blocks(array_blocks(self.X, *columns), estimate_block_bytes(self.X), self._compute)
        missing = self.job.missing != "error"
        return array_source(
            self._write([delayed(write_arrays)(directory, *group, missing) for group in groups]), options
        )

    def _write(self, tasks: Sequence[Collection]) -> list[BlocksPart]:
        """Run the tasks and return the parts that have rows. Raises DataError E-EMPTY if there are none."""
        parts = [part for part in self._compute(tasks) if sum(part.rows)]
        if not parts:
            raise DataError("the collection holds no rows", code="E-EMPTY", hint="check how it was made")
        return parts

    def _compute(self, tasks: Sequence[Collection]) -> list[Any]:
        """Return the results of tasks in order. Without a client, the tasks run one after the other, because memory
        may suffice for one block only.
        """
        if self.client is None:
            return [task.compute(scheduler="synchronous") for task in tasks]
        executor = self.stack.enter_context(using(self.client))
        return list(executor.iterate_results(self.client.compute(list(tasks)), Task("ingest", write_frames)))


LABEL, DECISION = "label", "decision"


def predict_dask(model: Any, X: Collection, *, output: str = LABEL) -> Collection:
    """Return predictions for a dask.array (n, d) or a dask.dataframe, as a lazy dask.array in the order of the rows.

    ``output``: 'label', as returned by ``Model.predict`` (n,), or 'decision', float64 (n,) for two classes and
    (n, classes) for more. Columns of a data frame are matched by name and encoded as in training. Raises UsageError,
    and MissingError or DataError for the model; errors in rows are raised when the result is computed.
    """
    if output not in (LABEL, DECISION):
        raise UsageError(f"output cannot be '{output}'", hint=f"choose from {LABEL}, {DECISION}")
    loaded = _load_model(model)
    width = () if output == LABEL or len(loaded.weights) == 1 else (len(loaded.weights),)
    empty = np.empty((0, *width), loaded.labels.dtype if output == LABEL else np.float64)
    shared, blocks = delayed(loaded), _blocks(X)
    lengths = (np.nan,) * len(blocks) if isinstance(X, DelayedFrame) else X.chunks[0]
    parts = [
        da.from_delayed(delayed(_predict_block)(shared, k, block, output), (rows, *width), meta=empty)
        for k, (block, rows) in enumerate(zip(blocks, lengths, strict=True))
    ]
    return da.concatenate(parts)


def evaluate_dask(model: Any, X: Collection, y: Collection = None, *, label: str | None = None) -> Collection:
    """Evaluate a model on labeled rows; return a lazy value whose ``.compute()`` returns a ``ModelEvaluation``.

    The labels are ``y`` (n,), of any type that ``ingest_dask`` accepts, or a column of a data frame: ``label``, by
    default the label column of the model's training data. Raises the errors of ``predict_dask``.
    """
    row_arrays = [] if y is None else [to_row_array(X, y, lambda tasks: list(dask.compute(*tasks)))]
    if row_arrays and isinstance(X, DelayedFrame):
        label = SEPARATE_COLUMNS["label"]
    shared, blocks = delayed(_load_model(model)), _blocks(X, *row_arrays)
    accumulators = (delayed(_evaluate_block)(shared, k, block, label) for k, block in enumerate(blocks))
    return delayed(_result)(tree_reduce(accumulators, len(blocks), delayed(merge_accumulators)))


def _load_model(model: Any) -> Model:
    """Return the model: ``model`` itself, that of a fit's result or of a fitted estimator, or that of a file."""
    loaded = find_model(model)
    return load(Path(model)) if loaded is None else loaded


def _blocks(X: Collection, *row_arrays: Collection) -> list[tuple[Collection, ...]]:
    """Return the blocks of rows, each with its labels if they are separate. Raises UsageError."""
    if isinstance(X, DelayedFrame):
        if row_arrays and SEPARATE_COLUMNS["label"] in frame_names(X):
            hint = f"pass label={SEPARATE_COLUMNS['label']!r}, or rename the column"
            raise UsageError(
                f"the data frame has a column {SEPARATE_COLUMNS['label']!r} and labels beside it", hint=hint
            )
        return frame_blocks(X, *row_arrays)
    return array_blocks(X, *row_arrays)


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
    """Evaluate a block: the task of ``evaluate_dask``. Raises DataError naming block and row, E-LABEL for rows without
    labels.
    """
    with _rows(model, number, block, {} if label is None else {"label": label}) as rows, threadpool_limits(1):
        if rows is None:
            return empty_accumulator(model)
        return accumulate(model, rows, make_accumulator(model, rows))


def _result(accumulator: Accumulator) -> Any:
    return accumulator.result()


@contextmanager
def _rows(
    model: Model, number: int, block: tuple[Collection, ...], file_options: dict[str, Any]
) -> Iterator[RowBatches | None]:
    """Yield the rows of a block, encoded as in training; None if the block has no rows."""
    options = source_options(model, FileRequest(file_options))
    with tempfile.TemporaryDirectory(prefix="streamsvm-block-") as directory:
        frame = is_frame(block[0])
        names = (SEPARATE_COLUMNS["label"],)[: len(block) - 1]
        write = (
            partial(write_frames, beside=names) if frame else partial(write_arrays, missing=options.missing != "error")
        )
        part = write(Path(directory), 0, number, [block])
        if sum(part.rows):
            source = (frame_source if frame else array_source)([part], options)
            yield rows_of_source(model, source, f"{'partition' if frame else 'block'} {number}", options.rejects)
        else:
            yield None
