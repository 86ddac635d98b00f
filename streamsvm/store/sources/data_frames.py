"""Table objects of a Python program as a source: any object that gives Arrow record batches is read as a file would be.

The encoding of a text column depends on all of its rows, so a table is read more than once. A data frame in memory is
read in place. Any other object with ``__arrow_c_stream__`` (the Arrow PyCapsule interface: DuckDB, ibis, narwhals,
ADBC, lazy frames of polars, readers of pyarrow) may give its rows only once: they are spilled to a file of record
batches. Unlike Parquet, such a file is written and read in the memory of one batch, a few MiB, even if the table is
wide. The store equals that of the same table in a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pd
import pyarrow.parquet as pq

from streamsvm import durable
from streamsvm.errors import DataError, StreamSVMError, quote
from streamsvm.kinds_of_rows import FormerRelation, FrameInBatches, Relation, RowKind, kind_of, package_of
from streamsvm.store.format.predictions import GrowingFile
from streamsvm.store.sources.array_rows import KINDS
from streamsvm.store.sources.cell_parsing import as_stored, readable_type, storage_type
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.preprocessing import choose_steps
from streamsvm.store.sources.source import Source, SourceFile
from streamsvm.store.sources.table import TableSource
from streamsvm.store.sources.vectors import is_vector_type, vector_size
from streamsvm.type_aliases import Array
from streamsvm.types import Batch

BATCH_BYTES = 8 << 20
"""Bytes of a batch, at 8 bytes per value."""
MOST_ROWS = 65_536
"""The most rows of a batch."""
VECTOR_NUMBERS = 1024
"""The assumed length of vectors whose column does not tell it."""
ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
HINT_TYPES = "give every column values of one type"
HINT_SPARSE = "make it dense with .sparse.to_dense(), or all columns one matrix with .sparse.to_coo().tocsr()"
FRAME, ARRAY = "partition", "block"
"""The names, in messages, of the pieces of a data frame and of an array."""
SPILLED = "rows.parquet"
"""The name of the file to which ``spill_to_parquet`` writes a table."""
TABLE = "the table"
"""The name, in messages, of a table that is one piece."""
Block: TypeAlias = Any
"""A piece of a Dask collection: a pandas data frame, an array, a sparse matrix, labels or weights."""


class BlocksPart(NamedTuple):
    """The file or folder to which consecutive blocks were written."""

    path: Path
    """A file of record batches, or a folder of arrays."""
    first: int
    """The number of the first block."""
    rows: tuple[int, ...]
    """The rows of each block; a block may be empty."""
    sparse: bool = False
    columns: int = 0
    """The number of columns of an array."""

    def place(self, row: int) -> tuple[int, int]:
        """Return the number of the block that contains a row of the part, and the number of the row in the block, from
        0.
        """
        ends = np.cumsum(self.rows)
        block = int(np.searchsorted(ends, row, side="right"))
        return self.first + block, row - int(ends[block] - self.rows[block])


class RecordBatchSource(TableSource):
    """Files of record batches. Their encoding is recorded as that of Parquet files of the same table."""

    format_name = "parquet"

    def __init__(self, parts: Sequence[BlocksPart], options: SourceOptions, noun: str) -> None:
        self._parts, self._noun = parts, noun
        super().__init__(tuple(part.path for part in parts), options)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; errors and the list of files name the blocks instead of the files."""
        yield from with_block_names(super().batches(), self.sources, self._parts, self._noun)

    def _types(self, path: Path) -> dict[str, pa.DataType]:
        with _open(path) as reader:
            return {field.name: storage_type(field.type) for field in reader.schema}

    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        with _open(path, columns) as reader:
            for batch in reader:
                yield from map(as_stored, slice_batch(batch, rows))
        file.read = file.size


class MemoryTableSource(TableSource):
    """A data frame in memory, with additional columns (n,) ``beside`` it.

    Its encoding is recorded as that of a Parquet file of the same table.
    """

    format_name = "parquet"
    hashes_as_it_reads = True  # there is no file to hash

    def __init__(self, X: Any, beside: Mapping[str, Array], options: SourceOptions) -> None:
        self._table, self._added = X, _AddedColumns(beside)
        with _explain_refusals():
            self._table_schema = reader_of(X).schema
        self._added.check(len(X))
        self._schema = self._added.schema_after_join(self._table_schema)
        super().__init__((Path(TABLE),), options)

    def _new_file(self, path: Path) -> SourceFile:
        return SourceFile(str(path))

    def _types(self, path: Path) -> dict[str, pa.DataType]:
        return {field.name: storage_type(field.type) for field in self._schema}

    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        names, step = set(columns), batch_rows(self._schema)
        places = [k for k, name in enumerate(self._table_schema.names) if name in names]
        schema = pa.schema([self._table_schema.field(k) for k in places])
        with _explain_refusals():
            reader = _memory_reader(self._table, places, schema, step)
            for joined in self._added.select(names).join(reader):
                for batch in slice_batch(joined, step):
                    for part in slice_batch(batch, rows):
                        file.read = file.size = file.size + part.nbytes
                        yield as_stored(part)


def table_opener(
    X: Any, directory: Callable[[], Path], beside: Mapping[str, Array] | None = None
) -> Callable[[SourceOptions], Source]:
    """Return a function that opens a table of a program, with columns (n,) ``beside`` it, as a source: read where it
    lies, or from a file. It may be called again.

    ``directory`` makes the folder for the rows of a table that may give them only once. The function raises what
    ``open_source`` raises, DataError E-ROWS for another number of values beside than there are rows.
    """
    parts: list[BlocksPart] = []

    def open_table(options: SourceOptions) -> Source:
        if kind_of(X) is RowKind.FRAME:
            source = MemoryTableSource(X, beside or {}, options)
            choose_steps(source, options)
            return source
        if not parts:
            parts.append(spill(X, directory(), beside))
        return frame_source(parts, options, TABLE)

    return open_table


def frame_source(parts: Sequence[BlocksPart], options: SourceOptions, noun: str = FRAME) -> Source:
    """Return a data frame that was written to files as a source; ``noun``: the name of its blocks in messages. Raises
    what ``open_source`` raises.
    """
    try:
        source = RecordBatchSource(parts, options, noun)
        choose_steps(source, options)
    except StreamSVMError as error:
        raise name_blocks(error, {str(part.path): part for part in parts}, noun) from error
    return source


def with_block_names(
    batches: Iterable[Batch], files: list[SourceFile], parts: Sequence[BlocksPart], noun: str
) -> Iterator[Batch]:
    """Yield the batches of parts; errors, and the ``files`` once all rows are read, name blocks instead of paths."""
    by_path = {str(part.path): part for part in parts}
    try:
        yield from batches
    except StreamSVMError as error:
        raise name_blocks(error, by_path, noun) from error
    for file in files:
        if file.name in by_path:
            file.name = _name_part(by_path[file.name], noun)


def name_blocks(error: StreamSVMError, parts: dict[str, BlocksPart], noun: str) -> StreamSVMError:
    """Return the error with paths and rows replaced by blocks, counted from 0, and their rows, counted from 1."""
    for path, part in parts.items():
        replacement = partial(_name_place, part, noun)
        error.message = re.sub(re.escape(path) + r"(?: row (\d+))?", replacement, error.message)
    error.args = (error.message,)
    return error


def _name_place(part: BlocksPart, noun: str, match: re.Match[str]) -> str:
    if match[1] is None:
        return _name_part(part, noun)
    if noun == TABLE:
        return f"{noun} row {match[1]}"
    block, row = part.place(int(match[1]) - 1)
    return f"{noun} {block} row {row + 1}"


def _name_part(part: BlocksPart, noun: str) -> str:
    if noun == TABLE:
        return noun
    last = part.first + len(part.rows) - 1
    return f"{noun} {part.first}" if last == part.first else f"{noun}s {part.first} to {last}"


@contextmanager
def _open(path: Path, columns: Iterable[str] | None = None) -> Iterator[pa.RecordBatchReader]:
    """Open some columns of a file of record batches, which is mapped into memory; None: all columns."""
    with pa.memory_map(str(path)) as mapped:
        options = None
        if columns is not None:
            with pa.ipc.open_stream(mapped) as all_columns:
                names = set(columns)
                places = [k for k, name in enumerate(all_columns.schema.names) if name in names]
            options = pa.ipc.IpcReadOptions(included_fields=places)
            mapped.seek(0)
        with pa.ipc.open_stream(mapped, options=options) as reader:
            yield reader


def spill(X: Any, directory: Path, beside: Mapping[str, Array] | None = None) -> BlocksPart:
    """Write all rows of a table, with additional columns (n,) ``beside`` it, to a file of record batches in
    ``directory``.

    Raises DataError E-DTYPE for columns of several types, E-ROWS if a column ``beside`` the table has another length;
    StorageError.
    """
    path, added = directory / "000000.arrow", _AddedColumns(beside or {})
    with _explain_refusals():
        reader = reader_of(X if _gives_batches(X) else _sink(X, directory))
        batches = added.join(reader)
        durable.write_stream(path, record_batch_file(added.schema_after_join(reader.schema), batches))
    added.check(added.rows)
    return BlocksPart(path, 0, (added.rows,))


def spill_to_parquet(X: Any, directory: Path, beside: Mapping[str, Array] | None = None) -> Path:
    """Write all rows of a table to a Parquet file, as ``spill`` does."""
    path = directory / SPILLED
    durable.write_stream(path, parquet_of(spill(X, directory, beside).path))
    return path


@contextmanager
def _explain_refusals() -> Iterator[None]:
    """Convert errors of Arrow about a table to DataError E-DTYPE."""
    try:
        yield
    except ARROW_ERRORS as error:
        raise DataError(
            f"the table cannot be read: {quote(str(error), 160)}", code="E-DTYPE", hint=HINT_TYPES
        ) from error


class _AddedColumns:
    """Columns (n,) that are given beside a table, such as labels; they become the last columns of its batches."""

    def __init__(self, columns: Mapping[str, Array]) -> None:
        self.rows = 0
        """The rows that the last ``join`` has yielded so far."""
        self._columns = {name: _values(name, values) for name, values in columns.items()}

    def select(self, names: Collection[str]) -> _AddedColumns:
        """Return the added columns whose names are in ``names``."""
        selected = _AddedColumns({})
        selected._columns = {name: values for name, values in self._columns.items() if name in names}
        return selected

    def schema_after_join(self, table: pa.Schema) -> pa.Schema:
        """Return the schema of the batches that ``join`` yields for a table. Raises DataError E-HEADER for a column of the same name."""
        if twice := set(map(str, table.names)) & self._columns.keys():
            (name, *_) = sorted(twice)
            message = f"the table has a column {quote(name)}, which is what the values given beside it are called"
            hint = f"pass {name}={name!r} if it holds them, else rename it"
            raise DataError(message, code="E-HEADER", hint=hint)
        fields = [pa.field(str(field.name), readable_type(field.type)) for field in table]
        return pa.schema(fields + [pa.field(name, values.type) for name, values in self._columns.items()])

    def join(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a table with the added columns, cast to ``schema_after_join``."""
        self.rows, schema = 0, self.schema_after_join(reader.schema)
        for batch in reader:
            pieces = [values.slice(self.rows, batch.num_rows) for values in self._columns.values()]
            self.rows += batch.num_rows
            # columns that are too short are padded here and refused by ``check``
            columns = [*batch.columns, *(_with_nulls(piece, batch.num_rows - len(piece)) for piece in pieces)]
            stored = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.record_batch(stored, schema)

    def check(self, rows: int) -> None:
        """Raise DataError E-EMPTY for a table without rows, E-ROWS for an added column of another length."""
        if not rows:
            raise DataError("the table holds no rows", code="E-EMPTY", hint="check what it was made of")
        for name, values in self._columns.items():
            if len(values) != rows:
                message = f"there are {rows} rows and {len(values)} values of {name}"
                raise DataError(message, code="E-ROWS", hint="give one value for each row")


def slice_batch(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of a batch, of ``rows`` rows each, without a copy."""
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _memory_reader(X: Any, places: list[int], schema: pa.Schema, rows: int) -> pa.RecordBatchReader:
    """Return the columns of a data frame at ``places``, of the types of ``schema``, about ``rows`` rows a batch."""
    if isinstance(X, pa.Table):
        return X.select(places).to_reader(rows)
    if package_of(X) == "pandas":
        return _pandas_reader(X.iloc[:, places], schema, rows)
    batches = (batch.select(places) for batch in pa.RecordBatchReader.from_stream(X))
    return pa.RecordBatchReader.from_batches(schema, batches)


def _with_nulls(values: pa.Array, count: int) -> pa.Array:
    """Return the values followed by ``count`` nulls."""
    return pa.concat_arrays([values, pa.nulls(count, values.type)]) if count else values


def _values(name: str, values: Array) -> pa.Array:
    """Return labels or weights as an Arrow array. Raises DataError E-DTYPE."""
    try:
        return pa.array(values, from_pandas=True)
    except ARROW_ERRORS as error:
        message = f"the values of {name}: {quote(str(error), 120)}"
        raise DataError(message, code="E-DTYPE", hint="give numbers or text, of one type") from error


def batch_rows(schema: pa.Schema) -> int:
    """Return the rows of a batch of a table, by the numbers of a row; a vector whose type does not tell its length is
    assumed to have ``VECTOR_NUMBERS``.
    """
    kinds = [storage_type(field.type) for field in schema]
    return _rows_of(sum(vector_size(kind) or VECTOR_NUMBERS if is_vector_type(kind) else 1 for kind in kinds))


def _rows_of(numbers: int) -> int:
    """Return the rows of a batch whose rows have so many numbers."""
    return max(1, min(MOST_ROWS, BATCH_BYTES // (8 * max(1, numbers))))


def record_batch_file(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the bytes of a file of record batches, piece by piece."""
    sink, rows = GrowingFile(), batch_rows(schema)
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            for part in slice_batch(batch, rows):
                writer.write_batch(part)
                yield sink.take_content()
    yield sink.take_content()


def parquet_of(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a Parquet file with the rows of a file of record batches; each batch becomes a row group."""
    sink = GrowingFile()
    with _open(path) as reader, pq.ParquetWriter(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            yield sink.take_content()
    yield sink.take_content()


def reader_of(X: Any) -> pa.RecordBatchReader:
    """Return a reader of the record batches of a table, which are computed lazily and in order."""
    kind = kind_of(X)
    X = _open_lake_table(X) if kind is RowKind.STORED_TABLE else X
    if isinstance(X, pa.RecordBatchReader):
        return X
    if isinstance(X, pd.Dataset):
        X = X.scanner(batch_size=batch_rows(X.schema), batch_readahead=1, fragment_readahead=1, use_threads=False)
    if isinstance(X, pd.Scanner):
        return X.to_reader()
    if isinstance(X, pa.Table):
        return X.to_reader(batch_rows(X.schema))
    open_reader: Callable[[Any], pa.RecordBatchReader] = pa.RecordBatchReader.from_stream
    if kind is RowKind.DASK_FRAME:
        open_reader = _dask_reader
    elif kind is RowKind.LAZY_FRAME:
        open_reader = _lazy_reader
    elif package_of(X) == "pandas":
        open_reader = _pandas_reader
    elif isinstance(X, Relation | FormerRelation):
        open_reader = _duckdb_reader
    return open_reader(X)


def one_column(X: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a table with one column. Raises DataError E-SCHEMA for another number of columns."""
    reader = reader_of(X if _gives_batches(X) else X.collect())
    if len(reader.schema) != 1:
        message = f"labels and weights are one column, not {len(reader.schema)}"
        raise DataError(message, code="E-SCHEMA", hint="select the column")
    yield from reader


def numbers_of(X: Any) -> Iterator[Array]:
    """Yield the batches of a table as arrays (n, d). Raises DataError E-DTYPE for columns that are not numbers."""
    for batch in reader_of(X if _gives_batches(X) else X.collect()):
        yield np.column_stack([_numbers(name, batch.column(k)) for k, name in enumerate(batch.schema.names)])


def _numbers(name: str, values: pa.Array) -> Array:
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind not in KINDS:
        raise DataError(f"column {quote(name)} holds {values.type}, not numbers", code="E-DTYPE", hint=HINT_TYPES)
    return numbers


def _gives_batches(X: Any) -> bool:
    """Return whether a table gives its rows in batches. Lazy frames of older versions of polars do not: they give all
    rows at once, or write a file.
    """
    return kind_of(X) is not RowKind.LAZY_FRAME or isinstance(X, FrameInBatches)


def _duckdb_reader(X: Relation | FormerRelation) -> pa.RecordBatchReader:
    """Return a reader of the rows of a DuckDB relation, computed lazily."""
    kinds = getattr(X, "types", X.columns)  # FLOAT[] and FLOAT[256] are vectors
    sizes = [re.search(r"\[(\d*)\]$", str(kind)) for kind in kinds]
    rows = _rows_of(sum(1 if size is None else int(size[1] or VECTOR_NUMBERS) for size in sizes))
    return X.to_arrow_reader(rows) if isinstance(X, Relation) else X.fetch_arrow_reader(rows)


def dask_blocks_of(X: Any) -> Iterator[Any]:
    """Compute and yield, one by one, the partitions of a Dask data frame or the blocks of rows of a Dask array."""
    if kind_of(X) is RowKind.DASK_ARRAY:
        X = X if X.ndim != 2 or X.numblocks[1] == 1 else X.rechunk({1: -1})
    for block in np.ravel(X.to_delayed()):
        yield block.compute()


def _dask_reader(X: Any) -> pa.RecordBatchReader:
    """Return a reader of the rows of a Dask data frame; the types are those of the first partition with rows."""
    parts = (part for part in dask_blocks_of(X) if len(part))
    first = next(parts, None)
    if first is None:
        raise DataError("the data frame holds no rows", code="E-EMPTY", hint="check what it was made of")
    schema = reader_of(first).schema
    tables = (_pandas_reader(part, schema) for part in chain([first], parts))
    return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table))


def _open_lake_table(X: Any) -> Any:
    """Return a Delta, Iceberg, Lance or Hugging Face table as an Arrow data set or a reader of record batches."""
    if hasattr(X, "to_pyarrow_dataset"):  # Delta Lake
        from deltalake.exceptions import DeltaProtocolError

        try:
            return X.to_pyarrow_dataset()
        except DeltaProtocolError as error:
            hint = f"name its folder in its place: {X.table_uri}; table_version={str(X.version())!r} is this version"
            message = f"deltalake does not read this table as Arrow: {quote(str(error), 160)}"
            raise DataError(message, code="E-FORMAT", hint=hint) from error
    if hasattr(X, "scan") or hasattr(X, "to_arrow_batch_reader"):  # Iceberg: a table, or a scan of one
        return (X.scan() if hasattr(X, "scan") else X).to_arrow_batch_reader()
    if hasattr(X, "to_batches"):  # Lance
        return pa.RecordBatchReader.from_batches(X.schema, X.to_batches(batch_size=batch_rows(X.schema)))
    features = getattr(X, "features", None)  # Hugging Face
    rows = _rows_of(len(X.column_names or ())) if features is None else batch_rows(features.arrow_schema)
    tables = iter(X.with_format("arrow").iter(batch_size=rows))
    first = next(tables, None)
    if first is None:
        raise DataError("the data set holds no rows", code="E-EMPTY", hint="check what it was made of")
    schema = first.schema.remove_metadata()
    batches = (batch for table in chain([first], tables) for batch in table.cast(schema).to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


def _lazy_reader(X: Any) -> pa.RecordBatchReader:
    """Return a reader of the rows of a lazy polars frame.

    Letting polars write a file would take more memory, because it keeps row groups in memory: 0.3 GB more for 100
    columns.
    """
    schema = reader_of(X.head(0).collect()).schema
    frames = X.collect_batches(chunk_size=batch_rows(schema), maintain_order=True)
    return pa.RecordBatchReader.from_batches(schema, (batch for frame in frames for batch in reader_of(frame)))


def _sink(X: Any, directory: Path) -> pd.Dataset:
    """Write a lazy polars frame to a Parquet file and return that as an Arrow data set."""
    X.sink_parquet(directory / "lazy.parquet", row_group_size=batch_rows(reader_of(X.head(0).collect()).schema))
    return pd.dataset(directory / "lazy.parquet")


def _pandas_reader(frame: Any, schema: pa.Schema | None = None, rows: int | None = None) -> pa.RecordBatchReader:
    """Return a reader of a pandas data frame without its index; ``schema``: types to use. Raises DataError."""
    check_frame(frame, "")
    names = list(map(str, frame.columns))
    if names != list(frame.columns):
        frame = frame.set_axis(names, axis=1)
    try:
        schema = schema or pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
    except ARROW_ERRORS:
        check_values(frame)
        raise
    rows = rows or batch_rows(schema)
    batches = (
        pa.RecordBatch.from_pandas(frame.iloc[start : start + rows], schema, preserve_index=False)
        for start in range(0, len(frame), rows)
    )
    return pa.RecordBatchReader.from_batches(schema, (batch.replace_schema_metadata(None) for batch in batches))


def check_frame(frame: Block, place: str) -> None:
    """Raise DataError E-HEADER for a name that occurs twice, E-DTYPE for sparse and complex columns."""
    import pandas as pd

    if not frame.columns.is_unique:
        name = quote(str(frame.columns[frame.columns.duplicated()][0]))
        message = f"{place}the data frame has two columns named {name}"
        raise DataError(message, code="E-HEADER", hint="rename one of them")
    for name, kind in frame.dtypes.items():
        sparse = isinstance(kind, pd.SparseDtype)
        if sparse or kind.kind == "c":
            hint = HINT_SPARSE if sparse else "give real and imaginary parts as two columns"
            raise DataError(f"{place}column {quote(str(name))}: holds {kind}", code="E-DTYPE", hint=hint)


def check_values(frame: Block) -> None:
    """Raise DataError E-DTYPE for the first column whose values Arrow cannot convert."""
    for name in frame.columns:
        if reason := arrow_refusal([frame[name]]):
            raise DataError(f"column {quote(str(name))}: {reason}", code="E-DTYPE", hint=HINT_TYPES)


def arrow_refusal(parts: Sequence[Block]) -> str | None:
    """Return the message of Arrow's error if it cannot convert a column, given in parts; None if it can."""
    import pandas as pd

    try:
        pa.array(pd.concat(parts, ignore_index=True), from_pandas=True)
    except ARROW_ERRORS as error:
        return quote(str(error), 120)
    return None
