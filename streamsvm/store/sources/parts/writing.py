"""Blocks of rows that a program has in memory, written to files by one process and read from them by another.

Tables become record batches of Arrow, which are read by the rules of files; arrays become .npy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import scipy.sparse

from streamsvm import durable
from streamsvm.aliases import Array
from streamsvm.errors import DataError, quote
from streamsvm.rows import CSR, Dense, row_count, row_stack
from streamsvm.store.format.labels import as_labels
from streamsvm.store.sources.array.given import rows_of
from streamsvm.store.sources.array.stream import KINDS, as_numbers
from streamsvm.store.sources.parts.record_batches import written

ROWS, ENTRIES, COLUMNS, STARTS, LABELS, WEIGHTS = "X", "data", "indices", "indptr", "y", "weight"
"""Names of the arrays of a part."""
HINT_WEIGHT = "weights are 0 or more"
HINT_TYPES = "give every column values of one type"
HINT_SPARSE = "make it dense with .sparse.to_dense(), or all columns one matrix with .sparse.to_coo().tocsr()"
ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)


Block: TypeAlias = Any
"""A block as a program has it: a pandas data frame, or an array, sparse matrix, labels or weights as arrays."""


class BlocksPart(NamedTuple):
    """What a worker made of a group of blocks."""

    path: Path
    """Where it is: a file of record batches, or a folder of arrays."""
    first: int
    """The number of the first block."""
    rows: tuple[int, ...]
    """Rows of each block; a block may be empty."""
    sparse: bool = False
    """Whether the rows are CSR."""
    columns: int = 0
    """The number of columns of an array."""

    def place(self, row: int) -> tuple[int, int]:
        """The block that row ``row`` of the part is in, and which of its rows it is, from 0."""
        ends = np.cumsum(self.rows)
        block = int(np.searchsorted(ends, row, side="right"))
        return self.first + block, row - int(ends[block] - self.rows[block])


def write_frames(
    directory: Path, number: int, first: int, blocks: Sequence[tuple[Block, ...]], beside: Sequence[str] = ()
) -> BlocksPart:
    """Write the data frames of a group to one file. Raises DataError naming partition and column.

    ``beside``: what the columns (n,) are called that each block has beside its frame.
    """
    import pandas as pd

    frames = [_joined(block, beside, f"partition {k}") for k, block in enumerate(blocks, first)]
    _check_columns(frames, first)
    for k, frame in enumerate(frames, first):
        check_frame(frame, f"partition {k}, ")
    try:  # all at once: Arrow takes milliseconds for each
        table = _table(pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0])
    except ARROW_ERRORS as error:
        raise _told(frames, first) from error
    path = directory / f"{number:06d}.arrow"
    durable.write_stream(path, written(table.schema, table.to_batches()))
    return BlocksPart(path, first, tuple(map(len, frames)))


def _joined(block: tuple[Block, ...], names: Sequence[str], place: str) -> Block:
    """The frame of a block with the columns beside it; rows are matched by their order. Raises DataError E-ROWS."""
    frame, *columns = block
    for name, values in zip(names, columns, strict=True):
        if len(values) != len(frame):
            noun = "weights" if name == WEIGHTS else "labels"
            raise DataError(f"{place} has {len(frame)} rows and {len(values)} {noun}", code="E-ROWS", hint="one a row")
        frame = frame.assign(**{name: np.asarray(values)})
    return frame


def _table(frame: Block) -> Any:
    """A data frame as an Arrow table; a column of objects that are all missing is one of text."""
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    table = table.rename_columns([str(name) for name in frame.columns])
    for k, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            table = table.set_column(k, field.name, table.column(k).cast(pa.string()))
    return table


def _check_columns(frames: Sequence[Block], first: int) -> None:
    """Raise DataError E-SCHEMA for a partition that has other columns than the first: pandas would fill in missing values."""
    expected = set(map(str, frames[0].columns))
    for k, frame in enumerate(frames[1:], first + 1):
        if other := expected.symmetric_difference(map(str, frame.columns)):
            name = min(other)
            has, lacks = (first, k) if name in expected else (k, first)
            found = f"partition {has} has a column {quote(name)}, and partition {lacks} has none"
            raise DataError(found, code="E-SCHEMA", hint="give every partition the columns of the first")


def check_frame(frame: Block, place: str) -> None:
    """Raise DataError E-HEADER for a name that is there twice, E-DTYPE for columns that Arrow has no types for."""
    import pandas as pd

    if not frame.columns.is_unique:
        twice = quote(str(frame.columns[frame.columns.duplicated()][0]))
        raise DataError(f"{place}the data frame names {twice} twice", code="E-HEADER", hint="rename a column")
    for name, kind in frame.dtypes.items():
        sparse = isinstance(kind, pd.SparseDtype)
        if sparse or kind.kind == "c":
            hint = HINT_SPARSE if sparse else "give real and imaginary parts as two columns"
            raise DataError(f"{place}column {quote(str(name))}: holds {kind}", code="E-DTYPE", hint=hint)


def check_values(frame: Block) -> None:
    """Raise DataError E-DTYPE naming the first column whose values Arrow does not take."""
    for name in frame.columns:
        if said := _unreadable([frame[name]]):
            raise DataError(f"column {quote(str(name))}: {said}", code="E-DTYPE", hint=HINT_TYPES)


def _told(frames: Sequence[Block], first: int) -> DataError:
    """What is wrong with a column, in the first partition where it is: it has no type, or another than before."""
    for k, frame in enumerate(frames):
        for name in frame.columns:
            said = _unreadable([frame[name]])
            if said is None and _unreadable([before[name] for before in frames[: k + 1]]) is not None:
                said = f"holds {frame[name].dtype}, and {frames[0][name].dtype} in partition {first}"
            if said is not None:
                found = f"partition {first + k}, column {quote(str(name))}: {said}"
                return DataError(found, code="E-DTYPE", hint=HINT_TYPES)
    return DataError(f"a column of partitions {first} and on has several types", code="E-DTYPE", hint=HINT_TYPES)


def _unreadable(parts: Sequence[Block]) -> str | None:
    """What Arrow says of a column that it does not take, in parts."""
    import pandas as pd

    try:
        pa.array(pd.concat(parts, ignore_index=True), from_pandas=True)
    except ARROW_ERRORS as error:
        return quote(str(error), 120)
    return None


def write_arrays(
    directory: Path, number: int, first: int, blocks: Sequence[tuple[Block, ...]], missing: bool
) -> BlocksPart:
    """Write the arrays of a group to a folder. ``missing``: NaN stands for a missing value. Raises DataError."""
    folder = directory / f"{number:06d}"
    folder.mkdir(exist_ok=True)
    rows = [rows_of(block[0], f"block {first + k}", missing=missing, exact=True) for k, block in enumerate(blocks)]
    for k, (X, *_) in enumerate(blocks[1:], first + 1):
        _check_alike(blocks[0][0], X, f"block {first}", f"block {k}")
    counts = tuple(row_count(X) for X in rows)
    for place, name in enumerate((LABELS, WEIGHTS)[: len(blocks[0]) - 1], 1):
        read = labels_of if name == LABELS else weights_of
        beside = [
            of_rows(read(block[place], f"block {first + k}"), counts[k], f"block {first + k}", name)
            for k, block in enumerate(blocks)
        ]
        _save(folder / f"{name}.npy", np.concatenate(beside))
    whole = row_stack(rows)
    arrays = {ROWS: whole.values} if isinstance(whole, Dense) else _csr(whole)
    for name, values in arrays.items():
        _save(folder / f"{name}.npy", values)
    return BlocksPart(folder, first, counts, isinstance(whole, CSR), int(blocks[0][0].shape[1]))


def _check_alike(one: Block, other: Block, name: str, noun: str) -> None:
    """Raise DataError E-SCHEMA for two blocks that no array can have: of other widths, or only one of them sparse."""
    sparse = scipy.sparse.issparse(one), scipy.sparse.issparse(other)
    if sparse[0] != sparse[1]:
        kinds = ["sparse" if found else "dense" for found in sparse]
        raise DataError(
            f"{noun} is {kinds[1]}, and {name} is {kinds[0]}", code="E-SCHEMA", hint="make all blocks alike"
        )
    if one.shape[1] != other.shape[1]:
        found = f"{noun} has {other.shape[1]} columns, and {name} has {one.shape[1]}"
        raise DataError(found, code="E-SCHEMA", hint="give all blocks as many columns")


def _save(path: Path, values: Array) -> None:
    durable.write_stream(path, [durable.npy_header(values.dtype, values.shape), np.ascontiguousarray(values)])


def _csr(X: CSR) -> dict[str, Array]:
    return {ENTRIES: X.data, COLUMNS: X.indices, STARTS: X.indptr}


def labels_of(values: Block, name: str) -> Array:
    """Return the labels of a block (n,). Raises DataError E-LABEL for one that is missing, as for files."""
    labels = np.asarray(values)
    if labels.dtype.kind in "Of":
        try:
            read = pa.array(labels, from_pandas=True)
        except ARROW_ERRORS as error:
            found = f"{name} of the labels: {quote(str(error), 120)}"
            raise DataError(found, code="E-LABEL", hint="labels are numbers or text, of one type") from error
        if read.null_count:
            row = int(np.argmax(read.is_null().to_numpy(zero_copy_only=False))) + 1
            raise DataError(f"{name} row {row}: the label is missing", code="E-LABEL", hint="leave such rows out")
        if pa.types.is_nested(read.type):
            found = f"{name} of the labels holds {read.type}"
            raise DataError(found, code="E-LABEL", hint="labels are numbers or text, one a row")
        labels = np.array(read.to_pylist()) if labels.dtype.kind == "O" else labels
    return as_labels(labels, f"{name} of the labels")


def weights_of(values: Block, name: str) -> Array:
    """Return the weights of the rows of a block (n,). Raises DataError E-NONFINITE, E-RANGE."""
    values = np.asarray(values)
    if values.dtype.kind not in KINDS:
        found = f"{name} of the weights holds {values.dtype}, not numbers"
        raise DataError(found, code="E-DTYPE", hint=HINT_WEIGHT)
    weight = as_numbers(values.reshape(-1, 1), f"{name} of the weights,", 0).ravel()
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise DataError(f"{name} row {row + 1}: the weight {weight[row]} is negative", code="E-RANGE", hint=HINT_WEIGHT)
    return weight


def of_rows(values: Array, rows: int, name: str, what: str) -> Array:
    """Return labels or weights, of which there must be one a row. Raises DataError E-ROWS."""
    if values.shape != (rows,):
        noun = "labels" if what == LABELS else "weights"
        raise DataError(f"{name} has {rows} rows and {len(values)} {noun}", code="E-ROWS", hint="one a row")
    return values
