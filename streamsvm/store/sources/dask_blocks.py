"""Partitions of Dask data frames and blocks of Dask arrays: workers write them to files, and another process reads the
files as a source whose errors name the block.

Data frames become files of record batches (``data_frames.frame_source``), arrays become npy files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse

from streamsvm import durable
from streamsvm.errors import DataError, quote
from streamsvm.rows import CSR, Dense, Rows, row_count, row_stack
from streamsvm.store.format.labels import as_labels
from streamsvm.store.sources.array_rows import KINDS, SLICE_BYTES, as_numbers, rows_of
from streamsvm.store.sources.data_frames import (
    ARRAY,
    ARROW_ERRORS,
    HINT_TYPES,
    Block,
    BlocksPart,
    arrow_refusal,
    check_frame,
    record_batch_file,
    with_block_names,
)
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.preprocessing import choose_steps
from streamsvm.store.sources.source import BaseSource, Source, SourceFile
from streamsvm.type_aliases import Array, DType, JsonObject
from streamsvm.types import Batch

ROWS, ENTRIES, COLUMNS, STARTS, LABELS, WEIGHTS = "X", "data", "indices", "indptr", "y", "weight"
"""The names of the arrays of a part."""
HINT_WEIGHT = "weights are 0 or more"


def write_frames(
    directory: Path, number: int, first: int, blocks: Sequence[tuple[Block, ...]], beside: Sequence[str] = ()
) -> BlocksPart:
    """Write consecutive partitions to one file. Raises DataError naming partition and column.

    Each block is a data frame, followed by additional columns (n,), whose names are ``beside``.
    """
    import pandas as pd

    frames = [_with_columns(block, beside, f"partition {k}") for k, block in enumerate(blocks, first)]
    _check_columns(frames, first)
    for k, frame in enumerate(frames, first):
        check_frame(frame, f"partition {k}, ")
    try:  # one conversion for all frames: Arrow takes milliseconds per call
        table = _table(pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0])
    except ARROW_ERRORS as error:
        raise _name_column(frames, first) from error
    path = directory / f"{number:06d}.arrow"
    durable.write_stream(path, record_batch_file(table.schema, table.to_batches()))
    return BlocksPart(path, first, tuple(map(len, frames)))


def _with_columns(block: tuple[Block, ...], names: Sequence[str], place: str) -> Block:
    """Return the data frame of a block with its additional columns, matched by the order of rows. Raises DataError
    E-ROWS.
    """
    frame, *columns = block
    for name, values in zip(names, columns, strict=True):
        if len(values) != len(frame):
            noun = "weights" if name == WEIGHTS else "labels"
            raise DataError(f"{place} has {len(frame)} rows and {len(values)} {noun}", code="E-ROWS", hint="one a row")
        frame = frame.assign(**{name: np.asarray(values)})
    return frame


def _table(frame: Block) -> Any:
    """Return a data frame as an Arrow table; a column of objects that are all missing gets Arrow's null type."""
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    return table.rename_columns([str(name) for name in frame.columns])


def _check_columns(frames: Sequence[Block], first: int) -> None:
    """Raise DataError E-SCHEMA for partitions with different columns, which pandas would join with missing values."""
    expected = set(map(str, frames[0].columns))
    for k, frame in enumerate(frames[1:], first + 1):
        if other := expected.symmetric_difference(map(str, frame.columns)):
            name = min(other)
            has, lacks = (first, k) if name in expected else (k, first)
            message = f"partition {has} has a column {quote(name)}, and partition {lacks} has none"
            raise DataError(message, code="E-SCHEMA", hint="give every partition the columns of the first")


def _name_column(frames: Sequence[Block], first: int) -> DataError:
    """Return the error for the first partition with a column whose type Arrow cannot convert or that changes."""
    for k, frame in enumerate(frames):
        for name in frame.columns:
            reason = arrow_refusal([frame[name]])
            if reason is None and arrow_refusal([earlier[name] for earlier in frames[: k + 1]]) is not None:
                reason = f"holds {frame[name].dtype}, and {frames[0][name].dtype} in partition {first}"
            if reason is not None:
                message = f"partition {first + k}, column {quote(str(name))}: {reason}"
                return DataError(message, code="E-DTYPE", hint=HINT_TYPES)
    return DataError(f"a column of partitions {first} and on has several types", code="E-DTYPE", hint=HINT_TYPES)


def write_arrays(
    directory: Path, number: int, first: int, blocks: Sequence[tuple[Block, ...]], missing: bool
) -> BlocksPart:
    """Write consecutive blocks to a folder. ``missing``: whether NaN is allowed and means missing. Raises DataError."""
    folder = directory / f"{number:06d}"
    folder.mkdir(exist_ok=True)
    rows = [rows_of(block[0], f"block {first + k}", missing=missing, exact=True) for k, block in enumerate(blocks)]
    for k, (X, *_) in enumerate(blocks[1:], first + 1):
        _check_alike(blocks[0][0], X, f"block {first}", f"block {k}")
    counts = tuple(row_count(X) for X in rows)
    for place, name in enumerate((LABELS, WEIGHTS)[: len(blocks[0]) - 1], 1):
        read = labels_of if name == LABELS else weights_of
        columns = [
            check_one_per_row(read(block[place], f"block {first + k}"), counts[k], f"block {first + k}", name)
            for k, block in enumerate(blocks)
        ]
        _save(folder / f"{name}.npy", np.concatenate(columns))
    X_all = row_stack(rows)
    arrays = {ROWS: X_all.values} if isinstance(X_all, Dense) else _csr(X_all)
    for name, values in arrays.items():
        _save(folder / f"{name}.npy", values)
    return BlocksPart(folder, first, counts, isinstance(X_all, CSR), int(blocks[0][0].shape[1]))


def _check_alike(one: Block, other: Block, name: str, noun: str) -> None:
    """Raise DataError E-SCHEMA if two blocks have different widths or only one of them is sparse."""
    is_sparse = scipy.sparse.issparse(one), scipy.sparse.issparse(other)
    if is_sparse[0] != is_sparse[1]:
        kinds = ["sparse" if sparse else "dense" for sparse in is_sparse]
        raise DataError(
            f"{noun} is {kinds[1]}, and {name} is {kinds[0]}", code="E-SCHEMA", hint="make all blocks alike"
        )
    if one.shape[1] != other.shape[1]:
        message = f"{noun} has {other.shape[1]} columns, and {name} has {one.shape[1]}"
        raise DataError(message, code="E-SCHEMA", hint="give all blocks as many columns")


def _save(path: Path, values: Array) -> None:
    durable.write_stream(path, [durable.npy_header(values.dtype, values.shape), np.ascontiguousarray(values)])


def _csr(X: CSR) -> dict[str, Array]:
    return {ENTRIES: X.data, COLUMNS: X.indices, STARTS: X.indptr}


def labels_of(values: Block, name: str) -> Array:
    """Return the labels of a block (n,). Raises DataError E-LABEL for missing labels and unknown types."""
    labels = np.asarray(values)
    if labels.ndim == 0:
        raise DataError(f"{name} has one value for labels, {quote(str(labels), 40)}", code="E-ROWS", hint="one a row")
    if labels.dtype.kind in "Of":
        try:
            column = pa.array(labels, from_pandas=True)
        except ARROW_ERRORS as error:
            message = f"{name} of the labels: {quote(str(error), 120)}"
            raise DataError(message, code="E-LABEL", hint="labels are numbers or text, of one type") from error
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))) + 1
            raise DataError(f"{name} row {row}: the label is missing", code="E-LABEL", hint="leave such rows out")
        if pa.types.is_nested(column.type):
            message = f"{name} of the labels holds {column.type}"
            raise DataError(message, code="E-LABEL", hint="labels are numbers or text, one a row")
        labels = np.array(column.to_pylist()) if labels.dtype.kind == "O" else labels
    return as_labels(labels, f"{name} of the labels")


def weights_of(values: Block, name: str) -> Array:
    """Return the weights of the rows of a block (n,). Raises DataError E-NONFINITE, E-RANGE."""
    values = np.asarray(values)
    if values.dtype.kind not in KINDS:
        message = f"{name} of the weights holds {values.dtype}, not numbers"
        raise DataError(message, code="E-DTYPE", hint=HINT_WEIGHT)
    weight = as_numbers(values.reshape(-1, 1), f"{name} of the weights,", 0).ravel()
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise DataError(f"{name} row {row + 1}: the weight {weight[row]} is negative", code="E-RANGE", hint=HINT_WEIGHT)
    return weight


def check_one_per_row(values: Array, rows: int, name: str, kind: str) -> Array:
    """Return labels or weights (n,) unchanged. Raises DataError E-ROWS unless there is one value per row."""
    if values.shape != (rows,):
        noun = "labels" if kind == LABELS else "weights"
        raise DataError(f"{name} has {rows} rows and {len(values)} {noun}", code="E-ROWS", hint="one a row")
    return values


class ArrayPartSource(BaseSource):
    """An array that was written to parts, as a source."""

    def __init__(self, parts: Sequence[BlocksPart]) -> None:
        super().__init__()
        widths = {part.columns for part in parts}
        if len(widths) > 1:
            raise DataError(f"blocks have {min(widths)} to {max(widths)} columns", code="E-SCHEMA", hint="one array")
        if len({part.sparse for part in parts}) > 1:
            raise DataError("some blocks are sparse and some are not", code="E-SCHEMA", hint="make all of them alike")
        self._parts, self.sparse = parts, parts[0].sparse
        self.columns_read = parts[0].columns

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; errors and the list of files name the blocks instead of the files."""
        yield from with_block_names(super().batches(), self.sources, self._parts, ARRAY)

    def read(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        for part in self._parts:
            size = sum(path.stat().st_size for path in part.path.iterdir())
            file = SourceFile(str(part.path), size, read=size)
            self.sources.append(file)
            yield from _batches(part, np.dtype(np.float64 if self.exact else np.float32))
            file.rows = sum(part.rows)

    def read_encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, as plain JSON."""
        return {"format": "npy", "options": {"label": None}, "columns": self.columns_read}


def _batches(part: BlocksPart, dtype: DType) -> Iterator[Batch]:
    """Yield the rows of a part in batches, with features of type ``dtype``."""
    rows, labels, weights = sum(part.rows), _optional_array(part, LABELS), _optional_array(part, WEIGHTS)
    row_bytes = 8 * len(_array(part, ENTRIES)) // rows if part.sparse else 4 * part.columns
    step = max(1, SLICE_BYTES // max(1, row_bytes))
    for start in range(0, rows, step):
        span = slice(start, min(start + step, rows))
        span_labels = np.empty(0) if labels is None else np.array(labels[span])
        yield Batch(_rows_in(part, span, dtype), span_labels, None if weights is None else np.array(weights[span]))


def _rows_in(part: BlocksPart, span: slice, dtype: DType) -> Rows:
    if not part.sparse:
        return Dense(_array(part, ROWS)[span].astype(dtype))
    starts = np.array(_array(part, STARTS)[span.start : span.stop + 1])
    entries = slice(int(starts[0]), int(starts[-1]))
    data, columns = _array(part, ENTRIES)[entries].astype(dtype), np.array(_array(part, COLUMNS)[entries])
    return CSR(data, columns, starts - starts[0])


def _optional_array(part: BlocksPart, name: str) -> Array | None:
    """Return the labels or weights of a part; None if it has none."""
    return _array(part, name) if (part.path / f"{name}.npy").exists() else None


def _array(part: BlocksPart, name: str) -> Array:
    return np.load(part.path / f"{name}.npy", mmap_mode="r", allow_pickle=False)


def array_source(parts: Sequence[BlocksPart], options: SourceOptions) -> Source:
    """Return the rows of an array as a source. Raises DataError."""
    source = ArrayPartSource(parts)
    choose_steps(source, options)
    return source
