"""The one door for tables that a program has: anything that gives Arrow record batches, one at a time.

An object with ``__arrow_c_stream__`` (the Arrow PyCapsule interface: polars, pandas, pyarrow, DuckDB, ibis, narwhals, ADBC) may
give them once only, and what becomes of text columns wants all rows before the first is stored. So they are written to one
file, and read from it by the rules of files: the store is that of the same table in a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pd

from streamsvm import durable
from streamsvm.aliases import Array
from streamsvm.errors import DataError, quote
from streamsvm.kinds_of_rows import (
    FormerRelation,
    FrameInBatches,
    Relation,
    is_dask_frame,
    is_lazy_frame,
    is_stored_table,
)
from streamsvm.store.sources.array.stream import KINDS
from streamsvm.store.sources.parts.record_batches import as_parquet, batch_rows, written
from streamsvm.store.sources.parts.writing import ARROW_ERRORS, HINT_TYPES, BlocksPart, check_frame, check_values


def spilled(X: Any, directory: Path, beside: dict[str, Array] | None = None) -> BlocksPart:
    """Write all rows of a table to a file in ``directory``, with columns (n,) more of what lies ``beside`` it.

    Raises DataError for columns of several types, E-ROWS for another number of values beside; StorageError.
    """
    path, rows = directory / "000000.arrow", _Rows(beside or {})
    try:
        durable.write_stream(path, rows.pieces(reader_of(X if _gives_batches(X) else _sunk(X, directory))))
    except ARROW_ERRORS as error:
        raise DataError(
            f"the table cannot be read: {quote(str(error), 160)}", code="E-DTYPE", hint=HINT_TYPES
        ) from error
    rows.check()
    return BlocksPart(path, 0, (rows.count,))


def parquet_file(X: Any, directory: Path, beside: dict[str, Array] | None = None) -> Path:
    """The same as a Parquet file, for what reads files by their names. Raises what ``spilled`` raises."""
    path = directory / "rows.parquet"
    durable.write_stream(path, as_parquet(spilled(X, directory, beside).path))
    return path


def reader_of(X: Any) -> pa.RecordBatchReader:
    """Return the record batches of a table in order, made as they are asked for."""
    X = _of_stored_table(X) if is_stored_table(X) else X
    if isinstance(X, pa.RecordBatchReader):
        return X
    if isinstance(X, pd.Dataset):
        X = X.scanner(batch_size=batch_rows(len(X.schema)), batch_readahead=1, fragment_readahead=1, use_threads=False)
    if isinstance(X, pd.Scanner):
        return X.to_reader()
    if isinstance(X, pa.Table):
        return X.to_reader(batch_rows(X.num_columns))
    if is_lazy_frame(X) or type(X).__module__.partition(".")[0] == "pandas":
        return _of_lazy(X) if is_lazy_frame(X) else _of_pandas(X)
    if isinstance(X, Relation | FormerRelation) or is_dask_frame(X):
        return _of_dask(X) if is_dask_frame(X) else _of_duckdb(X)
    return pa.RecordBatchReader.from_stream(X)


def one_column(X: Any) -> Iterator[pa.RecordBatch]:
    """Yield a table of one column, some rows at a time. Raises DataError for another number of columns."""
    reader = reader_of(X if _gives_batches(X) else X.collect())
    if len(reader.schema) != 1:
        found = f"labels and weights are one column, not {len(reader.schema)}"
        raise DataError(found, code="E-SCHEMA", hint="select the column")
    yield from reader


def numbers_of(X: Any) -> Iterator[Array]:
    """Yield the columns of a table as numbers (n, d), some rows at a time. Raises DataError for columns that are none."""
    for batch in reader_of(X if _gives_batches(X) else X.collect()):
        yield np.column_stack([_numbers(name, batch.column(k)) for k, name in enumerate(batch.schema.names)])


def _numbers(name: str, values: pa.Array) -> Array:
    found = values.to_numpy(zero_copy_only=False)
    if found.dtype.kind not in KINDS:
        raise DataError(f"column {quote(name)} holds {values.type}, not numbers", code="E-DTYPE", hint=HINT_TYPES)
    return found


def _gives_batches(X: Any) -> bool:
    """Whether it is anything but a lazy frame of an earlier polars, which gives all of its rows at once, or to a file."""
    return not is_lazy_frame(X) or isinstance(X, FrameInBatches)


def _of_duckdb(X: Relation | FormerRelation) -> pa.RecordBatchReader:
    """The rows of a relation as they are computed."""
    rows = batch_rows(len(X.columns))
    return X.to_arrow_reader(rows) if isinstance(X, Relation) else X.fetch_arrow_reader(rows)


def dask_blocks_of(X: Any) -> Iterator[Any]:
    """Yield the partitions of a dask data frame, or the blocks of rows of a dask array, computed one by one."""
    if not is_dask_frame(X):
        X = X if X.ndim != 2 or X.numblocks[1] == 1 else X.rechunk({1: -1})
    for block in np.ravel(X.to_delayed()):
        yield block.compute()


def _of_dask(X: Any) -> pa.RecordBatchReader:
    """The rows of a data frame of dask, partition by partition; the types of its columns are those of the first that has rows."""
    parts = (part for part in dask_blocks_of(X) if len(part))
    first = next(parts, None)
    if first is None:
        raise DataError("the data frame holds no rows", code="E-EMPTY", hint="check what it was made of")
    schema = reader_of(first).schema
    tables = (_of_pandas(part, schema) for part in chain([first], parts))
    return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table))


def _of_stored_table(X: Any) -> Any:
    """The rows of a table in files of its own, as Arrow has them: a data set, or a reader of record batches."""
    if hasattr(X, "to_pyarrow_dataset"):  # Delta Lake
        return X.to_pyarrow_dataset()
    if hasattr(X, "scan") or hasattr(X, "to_arrow_batch_reader"):  # Iceberg: a table, or a scan of one
        return (X.scan() if hasattr(X, "scan") else X).to_arrow_batch_reader()
    if hasattr(X, "to_batches"):  # Lance
        return pa.RecordBatchReader.from_batches(X.schema, X.to_batches(batch_size=batch_rows(len(X.schema))))
    tables = iter(X.with_format("arrow").iter(batch_size=batch_rows(len(X.column_names or ()))))  # Hugging Face
    first = next(tables, None)
    if first is None:
        raise DataError("the data set holds no rows", code="E-EMPTY", hint="check what it was made of")
    schema = first.schema.remove_metadata()
    batches = (batch for table in chain([first], tables) for batch in table.cast(schema).to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


def _of_lazy(X: Any) -> pa.RecordBatchReader:
    """The rows of a lazy frame of polars as they are computed.

    What polars writes to a file it holds as row groups first, which of 100 columns is 0.3 GB more than batches of rows are.
    """
    schema = reader_of(X.head(0).collect()).schema
    frames = X.collect_batches(chunk_size=batch_rows(len(schema)), maintain_order=True)
    return pa.RecordBatchReader.from_batches(schema, (batch for frame in frames for batch in reader_of(frame)))


def _sunk(X: Any, directory: Path) -> pd.Dataset:
    """A lazy frame by way of a file."""
    X.sink_parquet(directory / "lazy.parquet", row_group_size=batch_rows(1))
    return pd.dataset(directory / "lazy.parquet")


def _of_pandas(frame: Any, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """A data frame of pandas, some rows at a time, without its index, with types of its own or those of ``schema``. Raises DataError E-DTYPE."""
    check_frame(frame, "")
    frame = frame.rename(columns=str)
    try:
        schema = schema or pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
    except ARROW_ERRORS:
        check_values(frame)
        raise
    rows = batch_rows(len(schema))
    batches = (
        pa.RecordBatch.from_pandas(frame.iloc[start : start + rows], schema, preserve_index=False)
        for start in range(0, len(frame), rows)
    )
    return pa.RecordBatchReader.from_batches(schema, (batch.replace_schema_metadata(None) for batch in batches))


def _values(name: str, values: Array) -> pa.Array:
    """Labels or weights as Arrow has them. Raises DataError E-DTYPE."""
    try:
        return pa.array(values, from_pandas=True)
    except ARROW_ERRORS as error:
        found = f"the values of {name}: {quote(str(error), 120)}"
        raise DataError(found, code="E-DTYPE", hint="give numbers or text, of one type") from error


class _Rows:
    """Record batches on their way to a file, counted, with columns beside them."""

    def __init__(self, beside: dict[str, Array]) -> None:
        self.count = 0
        self._beside = {name: _values(name, values) for name, values in beside.items()}

    def pieces(self, reader: pa.RecordBatchReader) -> Iterator[bytes]:
        """The bytes of the file."""
        schema = self._schema(reader.schema)
        yield from written(schema, (self._stored(batch, schema) for batch in reader))

    def check(self) -> None:
        """Raise DataError unless there is one value beside for every row, and any row."""
        if not self.count:
            raise DataError("the table holds no rows", code="E-EMPTY", hint="check what it was made of")
        for name, values in self._beside.items():
            if len(values) != self.count:
                found = f"there are {self.count} rows and {len(values)} values of {name}"
                raise DataError(found, code="E-ROWS", hint="one a row")

    def _schema(self, given: pa.Schema) -> pa.Schema:
        fields = [pa.field(str(field.name), _stored(field.type)) for field in given]
        return pa.schema(fields + [pa.field(name, values.type) for name, values in self._beside.items()])

    def _stored(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        beside = [values.slice(self.count, batch.num_rows) for values in self._beside.values()]
        self.count += batch.num_rows
        short = [batch.num_rows - len(column) for column in beside]  # told of when all rows are counted
        columns = [*batch.columns, *(_filled(column, by) for column, by in zip(beside, short, strict=True))]
        stored = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.record_batch(stored, schema)


def _filled(values: pa.Array, by: int) -> pa.Array:
    """The values and so many missing ones."""
    return pa.concat_arrays([values, pa.nulls(by, values.type)]) if by else values


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type a column has in the file: views are what no encoder of ours reads, columns of nothing are of text."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
        return pa.dictionary(kind.index_type, pa.large_string(), kind.ordered)
    return kind
