"""Tables: files whose columns have names, read as record batches of Arrow and encoded into rows.

CSV, JSON lines, Parquet and Arrow differ in how the columns and the rows of a file are read, nothing else. The columns
are matched by name over all files. What becomes of each is as recorded, or is planned by the options, the types and the
first values (``proposals``) and completed by a census of all rows where there are categories or words.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.aliases import JsonObject
from streamsvm.errors import DataError, quote
from streamsvm.store.sources.cell_parsing import Arrow, BadCell, to_canonical_text, with_words_missing
from streamsvm.store.sources.encoding import TableEncoder, batch_rows, find_bad_cells
from streamsvm.store.sources.files import refuse_partitions
from streamsvm.store.sources.options import SourceOptions, bad_share
from streamsvm.store.sources.read_ahead import BackgroundDigest
from streamsvm.store.sources.schema import Schema, check_width, schema_from
from streamsvm.store.sources.schema_inference import (
    Samples,
    describe_proposals,
    is_index_level,
    named_columns,
    plan_schema,
    same_columns,
    stated_columns,
)
from streamsvm.store.sources.source import FILES_SAMPLED, BaseSource, SourceFile
from streamsvm.store.sources.value_counts import new_census, note_similar_values
from streamsvm.types import Batch

CENSUS_ROWS = 65_536
"""Rows that are counted at a time."""
SAMPLE_ROWS = 5000
"""Rows that decide what a column holds."""
SAMPLE_BYTES = 1 << 20
"""Bytes of these rows beyond which no more batches are merged."""
SAMPLE_COLUMNS = 4096
"""Columns of a wide table whose first values are in memory together."""
NARROW = 512
"""Columns up to which several threads parse blocks of text: of a wider table a block takes too much memory."""
CROSSED = " x "
"""What stands between the values of a cross."""


class TableSource(BaseSource):
    """Files of one table whose columns have names; a ``Source``. Files are matched by the names of their columns."""

    form: ClassVar[str]
    counts_lines: ClassVar[bool] = False
    """Whether ``_read`` counts lines and leaves out those that cannot be read, where that is asked for."""
    leaves_out_bad_values: ClassVar[bool] = False
    """Whether it leaves out those with a feature that cannot be encoded, too."""
    hashes_as_it_reads: ClassVar[bool] = False
    """Whether ``_read`` notes the sha256 of the file."""

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        super().__init__()
        self._paths, self._options = paths, options
        self._agreed = self._types_of_all_files()
        self._check_files(self._agreed)
        if options.encoding is not None:
            self._recorded = schema_from(options.encoding["schema"])
            self.schema = self._recorded.for_columns(list(self._agreed), options, str(paths[0]))
            self._recorded.note_extra(list(self._agreed), options.label, self.notices)
        else:
            self.schema = self._recorded = self._plan_and_count(self._agreed)
        self.columns_read, self.names_read = self.schema.width, self.schema.names
        self.id_column = self.schema.id_column
        self.sparse = self.schema.sparse

    def read(self) -> Iterator[Batch]:
        """Yield all rows in order; see ``BaseSource.read``."""
        encoder = TableEncoder(self.schema, self.notices, self._options, exact=self.exact)
        rejects, share = self._options.rejects, bad_share(self._options.max_bad)
        rejects.clear()
        for path in self._paths:
            file = self._new_file(path)
            self.sources.append(file)
            read = self._rows(path, batch_rows(self.schema), self.schema.needed, file)
            with (
                nullcontext() if self.hashes_as_it_reads else BackgroundDigest(path) as digest,
                closing(read) as tables,
            ):
                for cells in tables:
                    table = with_crosses(cells, self.schema.crosses)
                    if self._options.on_bad_line == "skip":
                        table = self._leave_out_bad_rows(table, file)
                    try:
                        batch = encoder.encode(table)
                    except BadCell as cell:
                        raise self._explain(cell, encoder, table, file) from cell
                    rows = table.num_rows
                    del cells, table  # their memory is not held while the batch is worked on
                    rejects.check(share)
                    if file.take(batch, rows, self.notices):
                        yield batch
                rejects.check(share, last=True)
                file.sha256 = file.sha256 if digest is None else digest.result()
            for oddity in file.oddities:
                self.count(oddity)
        if not any(file.rows for file in self.sources):
            raise DataError(f"{self._paths[0]} holds no rows", code="E-EMPTY", hint="check that it is the right file")

    def read_encoding(self) -> JsonObject:
        """Return how to read other files into the same columns; see ``BaseSource.read_encoding``."""
        recorded: JsonObject = {"format": self.form, "schema": self._recorded.to_json()}
        if self._options.missing_words:
            recorded["options"] = {"missing_words": list(self._options.missing_words)}
        if self.schema.label is not None and (kind := _label_type(self._agreed[self.schema.label])):
            recorded["label_type"] = kind
        return recorded

    def tables(self, columns: Sequence[str] = ()) -> Generator[pa.RecordBatch]:
        """Yield the rows of some columns, by default of all, as they are written."""
        for path in self._paths:
            yield from self._rows(path, CENSUS_ROWS, list(columns) or list(self._types(path)), SourceFile(str(path)))

    def first_values(self) -> Mapping[str, Any]:
        """Return the values of each column in the first rows that have any, by name."""
        return self._samples(self._agreed)

    # The schema

    def _types_of_all_files(self) -> dict[str, pa.DataType]:
        """The columns with their types, by the first file that has values; a column that has none is one of numbers.
        Raises DataError, BudgetError.
        """
        first = self._paths[0]
        types = dict(self._types(first))
        self._check_memory(types)
        for other in self._paths[1:]:
            found = self._types(other)
            same_columns(self._columns_in_common(types), self._columns_in_common(found), (str(first), str(other)))
            types = {name: found.get(name, kind) if pa.types.is_null(kind) else kind for name, kind in types.items()}
        return {name: pa.float64() if pa.types.is_null(kind) else kind for name, kind in types.items()}

    def _check_files(self, types: Mapping[str, pa.DataType]) -> None:
        """Raise BudgetError or DataError where the files cannot be read as one table."""
        self._check_memory(types)  # now of all files
        refuse_partitions(self._paths, list(types))

    def _check_memory(self, types: Mapping[str, pa.DataType]) -> None:
        """Raise BudgetError where knowing and reading so many columns takes more memory than there is."""
        check_width(str(self._paths[0]), types, self._options.memory_limit)

    def _columns_in_common(self, names: Iterable[str]) -> list[str]:
        """The columns that all files must have: all but an index of pandas that no option names."""
        asked = named_columns(self._options) | set(stated_columns(self._options))
        return [name for name in names if name in asked or not is_index_level(name)]

    def _plan_and_count(self, types: Mapping[str, pa.DataType]) -> Schema:
        """The schema of files of which nothing is recorded, completed by a census where it needs one."""
        first, options = self._paths[0], self._options
        samples = self._samples(types) if options.recognize else {}
        planned = self._plan(types, samples or None)
        if options.most_counted == 0:
            return planned
        census = new_census(planned, options.memory_limit)
        if census.names:
            with closing(self._rows_to_count(census.names)) as counted:
                for path, table in counted:
                    census.count(with_crosses(table, planned.crosses), str(path))
        census.close()
        schema = planned.complete(census, options)
        if not schema.width:
            left = ", ".join(quote(name) for name in types if name in schema.dropped) or "the others are empty"
            found = f"{first} has no column but the label from which anything can be learned ({left})"
            raise DataError(
                found, code="E-SCHEMA", hint="say what a column holds: --column NAME=words, hash or category"
            )
        note_similar_values(schema, self.notices)
        self.proposals = describe_proposals(schema, planned, census, samples)
        return schema

    def _rows_to_count(self, columns: Sequence[str]) -> Generator[tuple[Path, pa.RecordBatch]]:
        """Yield the rows of some columns with their file: all, or as many of the first ones as the options allow."""
        rows, most = 0, self._options.most_counted
        for path in self._paths:
            with closing(self._rows(path, CENSUS_ROWS, list(columns), SourceFile(str(path)))) as read:
                for table in read:
                    yield path, table
                    rows += table.num_rows
                    if most is not None and rows >= most:
                        return

    def _plan(self, types: Mapping[str, pa.DataType], samples: Mapping[str, Any] | None) -> Schema:
        """The schema before any row is counted."""
        return plan_schema(types, self._options, str(self._paths[0]), "E-DTYPE", samples, notices=self.notices)

    def _samples(self, names: Iterable[str]) -> Samples:
        """The first values of each column."""
        return Samples(list(names), self._columns_sampled_together(self._paths[0]), self._first_values)

    def _columns_sampled_together(self, _path: Path) -> int:
        return SAMPLE_COLUMNS

    def _first_values(self, names: list[str]) -> dict[str, Any]:
        """The values of some columns in the first rows that have any, of the first batches and of the first files."""
        found: dict[str, Any] = dict.fromkeys(names, pa.nulls(0))
        without = list(names)
        for path in self._paths[:FILES_SAMPLED]:
            read = _merge_small_batches(self._rows(path, SAMPLE_ROWS, without, SourceFile(str(path))))
            for batch in islice(read, FILES_SAMPLED):
                for name, values in zip(batch.schema.names, batch.columns, strict=True):
                    if not len(found[name]) or values.null_count < len(values):
                        found[name] = values
                without = [name for name in without if found[name].null_count == len(found[name])]
                if not without:
                    return found
        return found

    # The rows

    def _rows(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        """Yield some columns of a file as ``_read`` does, with null for what the user says stands for a missing value.

        A column that has no values in this file has the type it has in other files.
        """
        words, but = self._options.words, (self._options.weight, self._options.id_column)
        with closing(self._read(path, rows, columns, file)) as read:
            for table in read:
                yield with_words_missing(self._with_agreed_types(table), words, but=but)

    def _with_agreed_types(self, table: pa.RecordBatch) -> pa.RecordBatch:
        kinds = [self._agreed.get(field.name, field.type) for field in table.schema]
        empty = [
            pa.types.is_null(field.type) and not pa.types.is_null(kind)
            for field, kind in zip(table.schema, kinds, strict=True)
        ]
        if not any(empty):
            return table
        columns = [
            pa.nulls(table.num_rows, kind) if none else column
            for none, kind, column in zip(empty, kinds, table.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=table.schema.names)

    def _leave_out_bad_rows(self, table: pa.RecordBatch, file: SourceFile) -> pa.RecordBatch:
        """The rows that can be encoded; the others are counted and listed."""
        rejects, options = self._options.rejects, self._options
        bad = find_bad_cells(table, self.schema, options, features=not self.leaves_out_bad_values)
        rejects.read += 0 if self.counts_lines else table.num_rows
        if not bad:
            return table
        for row, cell in sorted(bad.items()):
            rejects.add(file.name, file.position + row + 1, cell.error(file.name, file.position))
        kept = np.ones(table.num_rows, np.bool_)
        kept[list(bad)] = False
        file.skipped += len(bad)
        return table.filter(pa.array(kept))

    def _explain(self, cell: BadCell, encoder: TableEncoder, table: pa.RecordBatch, file: SourceFile) -> DataError:
        """The error for rows that cannot be encoded: of several bad values that of the first row, so that it does not
        depend on how many rows are encoded together.
        """
        first = _first_bad_cell(encoder, table, cell)
        if first.code == "E-MISSING":
            count = encoder.count_missing(table, first.column)
            first.text += f" ({count} missing among the {table.num_rows} rows read with it)"
        return first.error(file.name, file.position)

    # The form of a file

    def _new_file(self, path: Path) -> SourceFile:
        """Return the facts of a file before it is read."""
        return SourceFile(str(path), path.stat().st_size)

    @abstractmethod
    def _types(self, path: Path) -> dict[str, pa.DataType]:
        """The columns of a file with their types, in its order. Raises DataError."""

    @abstractmethod
    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        """Yield some columns of a file, about so many rows at a time, and note in ``file`` how far it was read;
        ``file.position`` counts the rows that were taken. Raises DataError, StorageError.
        """


def _merge_small_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows ``SAMPLE_ROWS`` or ``SAMPLE_BYTES`` at a time where they come in smaller batches, which writers cut as
    they like: what a column holds must not depend on that.
    """
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        if waiting and (rows + batch.num_rows > SAMPLE_ROWS or size + batch.nbytes > SAMPLE_BYTES):
            yield _merge_batches(waiting)
            waiting, rows, size = [], 0, 0
        if batch.num_rows or not waiting:
            waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if waiting:
        yield _merge_batches(waiting)


def _merge_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows in one batch; dictionaries, of which each batch has its own, are written out."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches)
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
    return table.combine_chunks().to_batches()[0]


def _first_bad_cell(encoder: TableEncoder, table: pa.RecordBatch, found: BadCell) -> BadCell:
    """The bad cell of the first row that has one: columns are encoded one after the other, and one that comes after the
    column of ``found`` may have a bad cell in an earlier row.
    """
    while found.row:
        try:
            encoder.encode(table.slice(0, found.row))
        except BadCell as earlier:
            found = earlier
        else:
            break
    return found


def _label_type(kind: pa.DataType) -> str:
    """The type of a label as it is recorded; empty for one that is neither text nor a number."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "bool"
    return "int" if pa.types.is_integer(kind) else "float" if pa.types.is_floating(kind) else ""


def with_crosses(table: pa.RecordBatch, crosses: Mapping[str, tuple[str, ...]]) -> pa.RecordBatch:
    """Return the table with a column more for each cross whose columns are there; null where a part has no value."""
    for name, parts in crosses.items():
        if name not in table.schema.names and set(parts) <= set(table.schema.names):
            joined = pc.binary_join_element_wise(*(_texts(table.column(part)) for part in parts), CROSSED)
            table = table.append_column(name, joined.dictionary_encode())
    return table


def _texts(values: Arrow) -> Arrow:
    if pa.types.is_dictionary(values.type):
        return to_canonical_text(values.dictionary).take(values.indices)
    return to_canonical_text(values)
