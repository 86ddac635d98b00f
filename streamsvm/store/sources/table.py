"""Tables: files whose columns have names, read as Arrow record batches and encoded as rows of features.

CSV, JSON lines, Parquet and Arrow differ only in how the columns and the rows of a file are read. The columns of
several files are matched by name. The encoding of each column is taken from a recorded schema, or inferred from the
options, the types and the first values (``proposals``); for categories and words it is completed by counts over all
rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.errors import DataError, quote
from streamsvm.input_files import find_url
from streamsvm.store.format.arrays import FLOAT16, FLOAT32
from streamsvm.store.sources.cell_parsing import Arrow, BadCell, null_out_added_words, to_canonical_text
from streamsvm.store.sources.encoding import BATCH_BYTES, TableEncoder, batch_rows, find_bad_cells
from streamsvm.store.sources.options import SourceOptions, bad_share
from streamsvm.store.sources.partitions import PartitionColumns, refuse_partitions, values_above
from streamsvm.store.sources.read_ahead import BackgroundDigest
from streamsvm.store.sources.remote_files import file_size
from streamsvm.store.sources.schema import NUMBER, SINGLE, VECTOR, Schema, check_width, schema_from
from streamsvm.store.sources.schema_inference import (
    Samples,
    check_same_columns,
    column_kinds_in_options,
    columns_named_in_options,
    describe_proposals,
    is_index_level,
    plan_schema,
)
from streamsvm.store.sources.source import FILES_SAMPLED, BaseSource, SourceFile
from streamsvm.store.sources.text_features import distinct_texts, to_hashed_text
from streamsvm.store.sources.value_counts import count_first_values, new_census, note_similar_values
from streamsvm.store.sources.vectors import first_size, is_vector_type, vector_size
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Batch

CENSUS_ROWS = 65_536
"""Rows that are counted at a time."""
SAMPLE_ROWS = 5000
"""Rows from whose values the kind of a column is inferred."""
SAMPLE_BYTES = 1 << 20
"""Bytes of such a sample from which on no more batches are merged into it."""
VECTOR_ROWS = 64
"""Rows in whose first vector the length of the vectors of a column is looked up."""
SAMPLE_COLUMNS = 4096
"""Columns of a wide table whose first values are in memory together."""
NARROW = 512
"""The most columns of a table whose blocks of text are parsed by several threads; wider ones would take too much
memory.
"""
CROSSED = " x "
"""The separator between the values of a cross."""


class TableSource(BaseSource):
    """The files of one table as a ``Source``. The columns of the files are matched by name."""

    format_name: ClassVar[str]
    counts_lines: ClassVar[bool] = False
    """Whether ``_read`` counts lines itself and, with --on-bad-line skip, leaves out those that cannot be parsed."""
    leaves_out_bad_values: ClassVar[bool] = False
    """Whether ``_read`` then also leaves out lines with a feature that cannot be encoded."""
    hashes_as_it_reads: ClassVar[bool] = False
    """Whether ``_read`` computes the sha256 of the file."""
    reads_partitions: ClassVar[bool] = False
    """Whether columns in the names of folders are added to those of the files."""

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        super().__init__()
        self._paths, self._options = paths, options
        self._reads_only_numbers = False
        self._partitions = self._find_partitions()
        self._in_folders: dict[Path, dict[str, pa.DataType]] = {}
        """The types of the columns that the folders of a file have, and not the file, as far as files were looked at."""
        self._table_types = self._types_of_all_files()
        self._table_types |= self._vector_types()
        self._check_files(self._table_types)
        if options.encoding is not None:
            self._full_schema = schema_from(options.encoding["schema"])
            self.schema = self._full_schema.for_columns(list(self._table_types), options, str(paths[0]))
            self._full_schema.note_extra(list(self._table_types), options.label, self.notices)
        else:
            self.schema = self._full_schema = self._infer_schema(self._table_types)
        self.columns_read, self.names_read = self.schema.width, self.schema.names
        self.vectors_read = self.schema.vectors
        self.dtype_read = FLOAT16 if self._has_float16_only() else FLOAT32
        self.id_column = self.schema.id_column
        self.sparse = self.schema.sparse

    def read(self) -> Iterator[Batch]:
        """Yield all rows in order. Raises DataError with file and line or row, StorageError."""
        encoder = TableEncoder(self._encoded_schema, self.notices, self._options, exact=self.exact)
        rejects, share = self._options.rejects, bad_share(self._options.max_bad)
        rejects.clear()
        for path in self._paths:
            file = self._new_file(path)
            self.sources.append(file)
            record_batches = self._read_columns(path, batch_rows(self.schema), self.schema.needed, file)
            with (
                nullcontext() if self.hashes_as_it_reads or find_url(path) else BackgroundDigest(path) as digest,
                closing(record_batches),
            ):
                for cells in record_batches:
                    table = with_crosses(cells, self.schema.crosses)
                    if self._options.on_bad_line == "skip":
                        table = self._leave_out_bad_rows(table, file)
                    try:
                        batch = encoder.encode(table)
                    except BadCell as cell:
                        raise self._explain(cell, encoder, table, file) from cell
                    rows = table.num_rows
                    del cells, table  # frees their memory while the consumer works on the batch
                    rejects.check(share)
                    if file.count_batch(batch, rows, self.notices):
                        yield batch
                rejects.check(share, last=True)
                file.sha256 = file.sha256 if digest is None else digest.result()
            for notice in file.text_notices:
                self.count(notice)
        if not any(file.rows for file in self.sources):
            raise DataError(f"{self._paths[0]} holds no rows", code="E-EMPTY", hint="check that it is the right file")

    @property
    def _encoded_schema(self) -> Schema:
        """The schema by which rows are encoded now."""
        if not self._reads_only_numbers:
            return self.schema
        numbers = tuple(column for column in self.schema.columns if column.kind in SINGLE)
        return replace(self.schema, columns=numbers, hash_bits=0, documents={})

    @contextmanager
    def only_numbers(self) -> Iterator[list[int] | None]:
        """Encode only the columns that become one number, of the same rows."""
        numbers = [column for column in self.schema.columns if column.kind in SINGLE]
        if self.schema.vectors or not numbers or len(numbers) == len(self.schema.columns):
            yield None
            return
        self._reads_only_numbers = True
        try:
            yield [self.schema.place(column) for column in numbers]
        finally:
            self._reads_only_numbers = False

    def read_encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, as plain JSON."""
        encoding: JsonObject = {"format": self.format_name, "schema": self._full_schema.to_json()}
        if self._options.missing_words:
            encoding["options"] = {"missing_words": list(self._options.missing_words)}
        if self.schema.label is not None and (kind := _label_type(self._table_types[self.schema.label])):
            encoding["label_type"] = kind
        return encoding

    def record_batches(self, columns: Sequence[str] = ()) -> Generator[pa.RecordBatch]:
        """Yield record batches of some columns, by default of all, before they are encoded."""
        for path in self._paths:
            names = list(columns) or list(self._columns_of(path))
            yield from self._read_columns(path, self._rows_to_describe(names), names, SourceFile(str(path)))

    def hashed_texts(self, columns: Sequence[str]) -> Generator[tuple[str, list[str]]]:
        """Yield the distinct texts of some columns in each batch, as they are hashed, after the name of the column."""
        for batch in self.record_batches(columns):
            for name, values in zip(batch.schema.names, batch.columns, strict=True):
                texts, _ = distinct_texts(values)
                yield name, to_hashed_text(texts.drop_null()).to_pylist()

    def first_values(self) -> Mapping[str, Any]:
        """Return the values of each column but vectors, by name, in the first rows in which it has a value."""
        return self._samples(self._table_types)

    def _rows_to_describe(self, names: Iterable[str]) -> int:
        """Return the rows of these columns that are read at a time to describe them; fewer if they have vectors."""
        numbers = sum(vector_size(self._table_types[name]) or 0 for name in names if name in self._table_types)
        return int(np.clip(BATCH_BYTES // (4 * max(1, numbers)), 256, CENSUS_ROWS))

    # The schema

    def _find_partitions(self) -> PartitionColumns:
        options = self._options
        if not self.reads_partitions or not any(map(values_above, self._paths)):
            return PartitionColumns()
        named = columns_named_in_options(options) | set(column_kinds_in_options(options))
        if options.encoding is not None:
            recorded = schema_from(options.encoding["schema"])
            named |= {*recorded.needed, recorded.label, recorded.id_column}
        return PartitionColumns(self._paths, options.partitions, named)

    def _columns_of(self, path: Path) -> dict[str, pa.DataType]:
        """Return the types of the columns of a file, followed by those of the columns that only its folders have."""
        types = self._types(path)
        in_folders = {name: kind for name, kind in self._partitions.types_of(path).items() if name not in types}
        self._in_folders[path] = in_folders
        return types | in_folders

    def _types_of_all_files(self) -> dict[str, pa.DataType]:
        """Return the type of each column in the first file in which it has values; float64 for a column without values.

        Raises DataError E-SCHEMA for files with different columns, BudgetError.
        """
        first = self._paths[0]
        types = dict(self._columns_of(first))
        self._check_memory(types)
        for other in self._paths[1:]:
            other_types = self._columns_of(other)
            check_same_columns(
                self._columns_in_common(types), self._columns_in_common(other_types), (str(first), str(other))
            )
            types = {
                name: other_types.get(name, kind) if pa.types.is_null(kind) else kind for name, kind in types.items()
            }
        return {name: pa.float64() if pa.types.is_null(kind) else kind for name, kind in types.items()}

    def _has_float16_only(self) -> bool:
        """Return whether every feature is a number, or part of a vector, that all files have in float16."""
        columns = self.schema.columns

        def is_float16(path: Path) -> bool:
            types = self._columns_of(path)
            kinds = [types.get(column.name, pa.null()) for column in columns]
            return all(pa.types.is_float16(kind.value_type if is_vector_type(kind) else kind) for kind in kinds)

        are_numbers = all(column.kind in (NUMBER, VECTOR) and not column.parts for column in columns)
        return are_numbers and all(map(is_float16, self._paths))

    def _vector_types(self) -> dict[str, pa.DataType]:
        """Return the types of the columns of vectors, with the length of the vectors, by name.

        Where the type of the column does not tell it, it is that of the first vector. A recorded schema has it already.
        """
        options = self._options
        unsized = [
            name
            for name, kind in self._table_types.items()
            if is_vector_type(kind) and vector_size(kind) is None and name not in options.drop
        ]
        sized: dict[str, pa.DataType] = {}
        for path in self._paths[:FILES_SAMPLED] if unsized and options.encoding is None else ():
            with closing(self._read_columns(path, VECTOR_ROWS, unsized, SourceFile(str(path)))) as batches:
                for batch in islice(batches, FILES_SAMPLED):
                    for name, values in zip(batch.schema.names, batch.columns, strict=True):
                        if name not in sized and is_vector_type(values.type) and (size := first_size(values)):
                            sized[name] = pa.list_(self._table_types[name].value_type, size)
            unsized = [name for name in unsized if name not in sized]
            if not unsized:
                break
        return sized

    def _check_files(self, types: Mapping[str, pa.DataType]) -> None:
        """Raise BudgetError or DataError if the files cannot be read as one table."""
        self._check_memory(types)  # again, because other files may take more memory than the first
        refuse_partitions(self._paths, self._options.partitions, types)

    def _check_memory(self, types: Mapping[str, pa.DataType]) -> None:
        """Raise BudgetError if the schema and one batch of these columns exceed the memory limit."""
        check_width(str(self._paths[0]), types, self._options.memory_limit)

    def _columns_in_common(self, names: Iterable[str]) -> list[str]:
        """Return the columns that all files must have: all except a pandas index that no option names."""
        named = columns_named_in_options(self._options) | set(column_kinds_in_options(self._options))
        return [name for name in names if name in named or not is_index_level(name)]

    def _infer_schema(self, types: Mapping[str, pa.DataType]) -> Schema:
        """Return the inferred schema, completed by counts over all rows if it has categories or words."""
        first, options = self._paths[0], self._options
        samples = self._samples(types) if options.recognize else {}
        planned = self._plan(types, samples or None)
        if options.max_census_rows == 0:
            return planned
        census = new_census(planned, options.memory_limit)
        if census.names:
            with closing(self._rows_to_count(census.names)) as batches:
                for path, batch in batches:
                    census.count(with_crosses(batch, planned.crosses), str(path))
        census.finish()
        schema = planned.complete(census, options, count_first_values(planned, samples))
        if not schema.width:
            dropped = ", ".join(quote(name) for name in types if name in schema.dropped) or "the others are empty"
            message = f"{first} has no column but the label from which anything can be learned ({dropped})"
            raise DataError(
                message, code="E-SCHEMA", hint="say what a column holds: --column NAME=words, hash or category"
            )
        note_similar_values(schema, self.notices)
        self.proposals = describe_proposals(schema, planned, census, samples)
        return schema

    def _rows_to_count(self, columns: Sequence[str]) -> Generator[tuple[Path, pa.RecordBatch]]:
        """Yield batches of some columns with their file: of all rows, or of the first ``max_census_rows``."""
        rows, most, options = 0, self._options.max_census_rows, self._options
        for path in self._paths:
            with closing(self._read_columns(path, CENSUS_ROWS, list(columns), SourceFile(str(path)))) as batches:
                for batch in batches:
                    if options.undecided is None:  # no description, which goes on to name all problems
                        options.rejects.check(bad_share(options.max_bad))
                    yield path, batch
                    rows += batch.num_rows
                    if most is not None and rows >= most:
                        return

    def _plan(self, types: Mapping[str, pa.DataType], samples: Mapping[str, Any] | None) -> Schema:
        """Return the schema before any row is counted."""
        return plan_schema(types, self._options, str(self._paths[0]), "E-DTYPE", samples, notices=self.notices)

    def _samples(self, names: Iterable[str]) -> Samples:
        """Return the first values of each column but vectors, which are read when they are used."""
        sampled = [name for name in names if not is_vector_type(self._table_types[name])]
        return Samples(sampled, self._columns_sampled_together(self._paths[0]), self._first_values)

    def _columns_sampled_together(self, _path: Path) -> int:
        return SAMPLE_COLUMNS

    def _first_values(self, names: list[str]) -> dict[str, Any]:
        """Return, for each column, its values in the first batch in which it has a value, among the first batches of
        the first files; of columns in names of folders, the value of each file.
        """
        samples: dict[str, Any] = dict.fromkeys(names, pa.nulls(0))
        in_folders = {name for columns in self._in_folders.values() for name in columns}
        unresolved = [name for name in names if name not in in_folders]
        samples |= {name: self._partitions.values(name) for name in names if name in in_folders}
        for path in self._paths[:FILES_SAMPLED]:
            if not unresolved:
                return samples
            file_batches = self._read_columns(path, SAMPLE_ROWS, unresolved, SourceFile(str(path)))
            for batch in islice(_merge_small_batches(file_batches), FILES_SAMPLED):
                for name, values in zip(batch.schema.names, batch.columns, strict=True):
                    if not len(samples[name]) or values.null_count < len(values):
                        samples[name] = values
                unresolved = [name for name in unresolved if samples[name].null_count == len(samples[name])]
                if not unresolved:
                    return samples
        return samples

    # The rows

    def _read_columns(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        """Yield some columns of a file and its folders as ``_read`` does, with null for the words that the user added for missing
        values.

        A column without values in this file gets the type that it has in other files.
        """
        words, exempt = self._options.words, (self._options.weight, self._options.id_column)
        in_folders = self._in_folders.get(path, {})
        in_file = [name for name in columns if name not in in_folders]
        if not in_file:  # the first column tells the number of rows
            in_file = list(self._types(path))[:1]
        with closing(self._read(path, rows, in_file, file)) as batches:
            for batch in batches:
                complete = self._with_partitions(batch, path, columns) if in_folders else batch
                yield null_out_added_words(self._with_table_types(complete), words, exempt=exempt)

    def _with_partitions(self, batch: pa.RecordBatch, path: Path, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the batch with some columns, those among them that are in the names of the folders of the file included."""
        rows, in_folders = batch.num_rows, self._in_folders[path]
        values = [
            self._partitions.column(path, name, rows) if name in in_folders else batch.column(name) for name in columns
        ]
        return pa.RecordBatch.from_arrays(values, names=list(columns))

    def _with_table_types(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with columns of Arrow's null type replaced by nulls of the type in other files."""
        kinds = [self._table_types.get(field.name, field.type) for field in batch.schema]
        is_untyped = [
            pa.types.is_null(field.type) and not pa.types.is_null(kind)
            for field, kind in zip(batch.schema, kinds, strict=True)
        ]
        if not any(is_untyped):
            return batch
        columns = [
            pa.nulls(batch.num_rows, kind) if untyped else column
            for untyped, kind, column in zip(is_untyped, kinds, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _leave_out_bad_rows(self, table: pa.RecordBatch, file: SourceFile) -> pa.RecordBatch:
        """Return the rows that can be encoded; count and list the others."""
        rejects, options = self._options.rejects, self._options
        bad = find_bad_cells(table, self.schema, options, features=not self.leaves_out_bad_values)
        rejects.lines_read += 0 if self.counts_lines else table.num_rows
        if not bad:
            return table
        for row, cell in sorted(bad.items()):
            rejects.add(file.name, file.position + row + 1, cell.error(file.name, file.position))
        kept = np.ones(table.num_rows, np.bool_)
        kept[list(bad)] = False
        file.skipped += len(bad)
        return table.filter(pa.array(kept))

    def _explain(self, cell: BadCell, encoder: TableEncoder, table: pa.RecordBatch, file: SourceFile) -> DataError:
        """Return the error for rows that cannot be encoded: that of the first row with a bad value, so that the message
        does not depend on the size of batches.
        """
        first = _first_bad_cell(encoder, table, cell)
        if first.code == "E-MISSING":
            count = encoder.count_missing(table, first.column)
            first.text += f" ({count} missing among the {table.num_rows} rows of this block)"
        return first.error(file.name, file.position)

    # The format of a file

    def _new_file(self, path: Path) -> SourceFile:
        """Return the facts of a file before it is read."""
        return SourceFile(find_url(path) or str(path), file_size(path))

    @abstractmethod
    def _types(self, path: Path) -> dict[str, pa.DataType]:
        """Return the types of the columns of a file, by name and in its order. Raises DataError."""

    @abstractmethod
    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        """Yield some columns of a file in batches of about ``rows`` rows, and keep ``file.read`` up to date.

        ``file.position`` is the number of rows that the caller has counted so far. Raises DataError, StorageError.
        """


def _merge_small_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge small batches up to ``SAMPLE_ROWS`` or ``SAMPLE_BYTES``, so that the inferred kind of a column does not
    depend on the size of the batches that a writer chose.
    """
    pending, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        if pending and (rows + batch.num_rows > SAMPLE_ROWS or size + batch.nbytes > SAMPLE_BYTES):
            yield _merge_batches(pending)
            pending, rows, size = [], 0, 0
        if batch.num_rows or not pending:
            pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if pending:
        yield _merge_batches(pending)


def _merge_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows in one batch; dictionary columns are decoded, because each batch has its own dictionary."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches)
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
    return table.combine_chunks().to_batches()[0]


def _first_bad_cell(encoder: TableEncoder, table: pa.RecordBatch, cell: BadCell) -> BadCell:
    """Return the bad cell of the first row that has one.

    ``cell`` is the one at which encoding stopped. Columns are encoded one after the other, so that a later column may
    have a bad cell in an earlier row.
    """
    while cell.row:
        try:
            encoder.encode(table.slice(0, cell.row))
        except BadCell as earlier:
            cell = earlier
        else:
            break
    return cell


def _label_type(kind: pa.DataType) -> str:
    """Return the recorded type of a label column; empty for a type that is neither text nor number nor boolean."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "bool"
    return "int" if pa.types.is_integer(kind) else "float" if pa.types.is_floating(kind) else ""


def with_crosses(table: pa.RecordBatch, crosses: Mapping[str, tuple[str, ...]]) -> pa.RecordBatch:
    """Return the table with a column added for each cross whose columns it has; null where one of them has no value."""
    for name, parts in crosses.items():
        if name not in table.schema.names and set(parts) <= set(table.schema.names):
            joined = pc.binary_join_element_wise(*(_texts(table.column(part)) for part in parts), CROSSED)
            table = table.append_column(name, joined.dictionary_encode())
    return table


def _texts(values: Arrow) -> Arrow:
    if pa.types.is_dictionary(values.type):
        return to_canonical_text(values.dictionary).take(values.indices)
    return to_canonical_text(values)
