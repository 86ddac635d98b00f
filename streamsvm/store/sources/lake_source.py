"""Tables of data lakes as a source: their Parquet files are read as any, in bounded memory, and their rows become those of the table.

Of each batch, deleted rows are left out; columns are renamed, and cast to the type that they have now; columns that the file does not have are
missing values, or the value that the log of the table tells for the file.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streamsvm.errors import DataError, MissingError, quote
from streamsvm.input_files import find_url
from streamsvm.store.sources.cell_parsing import Arrow, is_text, storage_type
from streamsvm.store.sources.files import InputFiles
from streamsvm.store.sources.lakes import DeletedValues, LakeTable, TableFile, unreadable
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.parquet import ParquetSource, explain_parquet_errors
from streamsvm.store.sources.partitions import repeat_value
from streamsvm.store.sources.remote_files import open_ranges
from streamsvm.store.sources.source import SourceFile

ID_KEY = b"PARQUET:field_id"
LARGEST_NUMBER = 1 << 62
"""The largest number that may stand for the values of a row."""


class LakeSource(ParquetSource):
    """One version of a table of a data lake."""

    reads_partitions = False

    def __init__(self, paths: InputFiles, options: SourceOptions) -> None:
        assert paths.table is not None
        self._table: LakeTable = paths.table
        self._files: dict[Path, TableFile] = {file.path: file for file in self._table.files}
        self._names: dict[Path, dict[str, str]] = {}
        if not self._files:
            raise DataError(f"{self._table.location} holds no rows", code="E-EMPTY", hint="check its version")
        if len(self._files) < len(self._table.files):
            raise unreadable(self._table.kind, self._table.location, "with a file that it names twice")
        super().__init__(tuple(self._files), options)

    def _types(self, path: Path) -> dict[str, pa.DataType]:
        if find_url(path) is None and not path.is_file():
            hint = "restore it, or read a version whose files were not removed: --table-version"
            raise MissingError(f"{path}, a file of the {self._table.kind} table, does not exist", hint=hint)
        in_file, names = super()._types(path), self._names_in(path)
        return {
            name: storage_type(in_file.get(names.get(name, ""), pa.null()) if kind is None else kind)
            for name, kind in self._table.types.items()
        }

    def _names_in(self, path: Path) -> dict[str, str]:
        """Return the name in a file of each column of the table that it has."""
        if path not in self._names:
            schema = self._metadata(path).schema.to_arrow_schema()
            ids: dict[str | int, str] = {
                int(field.metadata[ID_KEY]): field.name for field in schema if ID_KEY in (field.metadata or {})
            }
            columns = self._files[path].columns
            if not ids:
                known = self._table.ids_of_names
                ids = {known[field.name]: field.name for field in schema if field.name in known}
            if not ids and any(isinstance(place, int) for place in columns.values()):
                message = f"{find_url(path) or path} has no ids of its columns, by which the {self._table.kind} table finds them"
                raise DataError(message, code="E-FORMAT", hint="write the file again with the program of the table")
            places = {field.name: field.name for field in schema} | ids
            self._names[path] = {name: places[place] for name, place in columns.items() if place in places}
        return self._names[path]

    def _check_files(self, types: Mapping[str, pa.DataType]) -> None:
        self._check_memory(types)

    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        table_file, names, metadata = self._files[path], self._names_in(path), self._metadata(path)
        deleted = [self._find_deleted_rows(one) for one in table_file.deleted_values]
        compared = [name for rows_deleted in deleted for name in rows_deleted]
        in_file = [names[name] for name in dict.fromkeys([*columns, *compared]) if name in names]
        if not in_file:  # any column tells the number of rows
            in_file = metadata.schema.to_arrow_schema().names[:1]
        kept = None if table_file.find_kept_rows is None else table_file.find_kept_rows(metadata.num_rows)
        first = 0
        for batch in super()._read(path, rows, in_file, file):
            count = batch.num_rows
            live = batch if kept is None else batch.filter(kept.slice(first, count))
            first += count
            for rows_deleted in deleted:
                values = [self._column(live, name, table_file, names) for name in rows_deleted]
                live = live.filter(pa.array(~_are_among(values, list(rows_deleted.values()))))
            if live.num_rows:
                values = [self._column(live, name, table_file, names) for name in columns]
                yield pa.RecordBatch.from_arrays(values, names=columns)
        file.read = file.size

    def _find_deleted_rows(self, deletes: DeletedValues) -> dict[str, Arrow]:
        """Return the values by which rows are deleted: by column of the table, an array."""
        with (
            explain_parquet_errors(deletes.path),
            pq.ParquetFile(open_ranges(deletes.path), page_checksum_verification=True) as opened,
        ):
            table = opened.read(use_threads=False).combine_chunks()
        ids = {int(field.metadata[ID_KEY]): field.name for field in table.schema if ID_KEY in (field.metadata or {})}
        found: dict[str, Arrow] = {}
        for name, number in deletes.ids.items():
            kind = self._table.types[name]
            if number not in ids or kind is None:
                why = f"with deletes in {find_url(deletes.path) or deletes.path}, which has no column with the id {number}"
                raise unreadable(self._table.kind, self._table.location, why)
            values = self._cast(pa.array(table.column(ids[number])), storage_type(kind), name, deletes.path)
            found[name] = _decode(values)
        return found

    def _column(self, batch: pa.RecordBatch, name: str, file: TableFile, names: Mapping[str, str]) -> Arrow:
        """Return a column of the table, of the rows of a batch of the file."""
        kind = self._table.types[name]
        if name in names:
            values = batch.column(names[name])
            return values if kind is None else self._cast(values, storage_type(kind), name, file.path)
        value = file.constants.get(name)
        if value is None:
            return pa.nulls(batch.num_rows, kind or pa.null())
        return repeat_value(value if kind is None else value.cast(kind), batch.num_rows)

    def _cast(self, values: Arrow, kind: pa.DataType, name: str, path: Path) -> Arrow:
        """Return values of a file in the type that the column has in the table."""
        if values.type == kind or (is_text(values.type) and is_text(kind)):
            return values
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        try:
            return pc.cast(values, options=pc.CastOptions(kind, allow_time_truncate=True))
        except pa.ArrowException as error:
            where = f"column {quote(name)} of {find_url(path) or path}"
            message = f"{where} holds {values.type}, which does not fit {kind}, its type in the table"
            raise DataError(message, code="E-DTYPE", hint="rewrite the file with the type of the table") from error


def _are_among(values: Sequence[Arrow], deleted: Sequence[Arrow]) -> NDArray[np.bool_]:
    """Return which rows of some columns are among the rows of the columns ``deleted``; missing values are equal.

    Each row becomes a number whose digits are the places of its values among the distinct deleted ones.
    """
    rows, deleted_rows, largest = np.zeros(len(values[0]), np.int64), np.zeros(len(deleted[0]), np.int64), 1
    is_known = np.ones(len(rows), np.bool_)
    for column, of_deleted in zip(values, deleted, strict=True):
        distinct = of_deleted.unique()
        largest *= len(distinct)
        if largest > LARGEST_NUMBER:
            both = np.unique(np.concatenate([rows, deleted_rows]), return_inverse=True)[1]
            rows, deleted_rows, largest = both[: len(rows)], both[len(rows) :], len(both) * len(distinct)
        places = pc.index_in(_decode(column).cast(distinct.type), value_set=distinct)
        places = pc.fill_null(places, -1).to_numpy(zero_copy_only=False)
        is_known &= places >= 0
        rows = rows * len(distinct) + places
        deleted_rows = deleted_rows * len(distinct) + pc.index_in(of_deleted, value_set=distinct).to_numpy()
    return is_known & np.isin(rows, deleted_rows)


def _decode(values: Arrow) -> Arrow:
    """Return values that are not a dictionary."""
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


class IcebergSource(LakeSource):
    """A snapshot of an Iceberg table."""

    format_name = "iceberg"


class DeltaSource(LakeSource):
    """A version of a Delta table."""

    format_name = "delta"
