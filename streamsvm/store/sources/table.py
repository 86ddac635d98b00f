"""How much memory the columns of a table take before any row is stored, and a refusal where there is not so much."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.aliases import JsonObject
from streamsvm.errors import DataError, quote
from streamsvm.store.sources.ahead import DigestBeside
from streamsvm.store.sources.cells import (
    EPOCH,
    FIRST_SECOND,
    ISO,
    LAST_SECOND,
    Arrow,
    amounts,
    amounts_of,
    booleans,
    booleans_of,
    by_value,
    dates,
    dates_of,
    has_other_zone,
    is_text,
)
from streamsvm.store.sources.census import census_of, note_alike
from streamsvm.store.sources.encoding import TableEncoder, batch_rows, encoded
from streamsvm.store.sources.files import refuse_partitions
from streamsvm.store.sources.missing_words import MissingWords, with_words_missing
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.proposals import (
    Samples,
    is_index_level,
    named_columns,
    plan_schema,
    proposals,
    same_columns,
    stated_columns,
)
from streamsvm.store.sources.schema import (
    AMOUNT,
    BOOLEAN,
    CALENDAR,
    NUMBER,
    TEXT,
    YEARS,
    Column,
    Schema,
    check_width,
    schema_from,
)
from streamsvm.store.sources.source import FILES_SAMPLED, SourceFile
from streamsvm.types import Batch

READ = (AMOUNT, BOOLEAN, YEARS, *CALENDAR)
"""The kinds of columns whose text has to mean something, and is no number."""
_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$"


def unreadable_rows(
    table: pa.RecordBatch | pa.Table, columns: Iterable[Column], words: MissingWords, *, missing: bool
) -> NDArray[np.bool_]:
    """Return the rows of a table some of whose values cannot become what their ``columns`` are, (n,); ``missing``: values
    may be missing.
    """
    found = np.zeros(table.num_rows, np.bool_)
    for column in columns:
        for name in column.sources:
            values = table.column(name)
            values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            found |= _unreadable(values, column, words, missing=missing)
    return found


def _unreadable(values: Arrow, column: Column, words: MissingWords, *, missing: bool) -> NDArray[np.bool_]:
    if column.kind == TEXT:
        return np.zeros(len(values), np.bool_)
    if column.kind == NUMBER or column.kind in READ:
        values = words.removed(values, number=True)
    absent = values.is_null().to_numpy(zero_copy_only=False)
    wrong = _without_meaning(values, column)
    if not missing:
        return wrong | absent
    return wrong & ~absent


def _without_meaning(values: Arrow, column: Column) -> NDArray[np.bool_]:
    """Which values mean nothing in a column; what is said of those that are missing does not matter."""
    if column.kind == NUMBER or column.kind in READ:
        if is_text(values.type):
            encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
            texts = pc.utf8_trim_whitespace(encoded.dictionary.cast(pa.string()))
            wrong = np.append(pc.is_null(_meaning(texts, column)).to_numpy(zero_copy_only=False), True)
            found: NDArray[np.bool_] = wrong[pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy()]
            return found
        if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
            given = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            if column.form == EPOCH:
                return ~((given >= FIRST_SECOND) & (given <= LAST_SECOND))
            with np.errstate(over="ignore"):
                return ~np.isfinite(given.astype(np.float32))
    return np.zeros(len(values), np.bool_)


def _meaning(texts: Arrow, column: Column) -> Any:
    """What texts mean in a column, null where that is nothing."""
    if column.kind == BOOLEAN:
        return booleans_of(texts)
    if column.kind in (NUMBER, AMOUNT) or column.form == EPOCH:
        found = amounts_of(texts, comma=bool(column.form)) if column.kind == AMOUNT else _numbers_of(texts)
        limit = float(LAST_SECOND) if column.form == EPOCH else float(np.finfo(np.float32).max)
        return pc.if_else(pc.less_equal(pc.abs(found), limit), found, pa.scalar(None, pa.float64()))
    found = dates_of(texts, column.form or ISO)
    if (column.form or ISO) == ISO:
        found = pc.if_else(has_other_zone(texts, column.zone), pa.scalar(None, found.type), found)
    return found


def _numbers_of(texts: Arrow) -> Any:
    plain = pc.if_else(pc.match_substring_regex(texts, _NUMBER), texts, pa.scalar(None, pa.string()))
    return pc.replace_substring_regex(plain, r"^\+", "").cast(pa.float64())


def read_text(text: str, column: Column) -> None:
    """Read one text of a column of ``READ``. Raises BadCell where it means nothing."""
    values = pa.array([text])
    if column.kind == AMOUNT:
        amounts(values, column.name, comma=bool(column.form))
    elif column.kind == BOOLEAN:
        booleans(values, column.name)
    else:
        dates(values, column.name, column.form or ISO, column.zone)


BETWEEN = " x "
"""What stands between two values."""


def with_crosses(table: pa.RecordBatch, crosses: Mapping[str, tuple[str, ...]]) -> pa.RecordBatch:
    """Return the table with a column more for each cross whose columns are there; null where a part has no value."""
    for name, parts in crosses.items():
        if name not in table.schema.names and set(parts) <= set(table.schema.names):
            joined = pc.binary_join_element_wise(*(_texts(table.column(part)) for part in parts), BETWEEN)
            table = table.append_column(name, joined.dictionary_encode())
    return table


def _texts(values: Arrow) -> Arrow:
    if pa.types.is_dictionary(values.type):
        return by_value(values.dictionary).take(values.indices)
    return by_value(values)


CENSUS_ROWS = 65_536
SAMPLE_ROWS = 5000
"""Rows by which it is told what a column holds."""
SAMPLE_BYTES = 1 << 20
"""Bytes of these rows beyond which no more are put together."""
GROUP = 4096
"""Columns of a wide table whose first values are in memory together."""


class TableSource(ABC):
    """Files of one table whose columns have names; see ``Source``. Files are matched by the names of their columns.

    A form says how the columns and the rows of a file are read.
    """

    form: ClassVar[str]
    """The name of the format."""
    hashes_as_it_reads: ClassVar[bool] = False
    """Whether reading a file notes its sha256."""
    without_values: ClassVar[pa.DataType] = pa.null()
    """The type of a column that has no value in any file."""
    exact = False

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        self.sources: list[SourceFile] = []
        self.notices: dict[str, int] = Counter()
        self.proposals: list[str] = []
        self._paths, self._options = paths, options
        types = dict(self._types(paths[0]))
        self._check_memory(types)
        for other in paths[1:]:
            found = self._types(other)
            same_columns(self._compared(types), self._compared(found), (str(paths[0]), str(other)))
            types = {name: found.get(name, kind) if pa.types.is_null(kind) else kind for name, kind in types.items()}
        types = {name: self.without_values if pa.types.is_null(kind) else kind for name, kind in types.items()}
        self._agreed = types
        self._check_memory(types)  # now of all files
        refuse_partitions(paths, list(types))
        if options.encoding is not None:
            self._recorded = schema_from(options.encoding["schema"])
            self.schema = self._recorded.found_in(list(types), options, str(paths[0]))
            self._recorded.note_extra(list(types), options.label, self.notices)
        else:
            self.schema = self._recorded = self._planned(types)
        self.columns: int | None = self.schema.width
        self.names: tuple[str, ...] | None = self.schema.names
        self.id_column = self.schema.id_column
        self.sparse = self.schema.sparse

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; see ``Source.batches``."""
        encoder = TableEncoder(self.schema, self.notices, self._options, exact=self.exact)
        for path in self._paths:
            file = SourceFile(str(path), path.stat().st_size)
            self.sources.append(file)
            read = self._rows(path, batch_rows(self.schema), self.schema.needed, file)
            with nullcontext() if self.hashes_as_it_reads else DigestBeside(path) as digest, closing(read) as tables:
                for made, rows in map(partial(self._encoded, encoder, file), tables):  # which keeps no table meanwhile
                    if file.take(made, rows, self.notices):
                        yield made
                file.sha256 = file.sha256 if digest is None else digest.result()
        if not any(file.rows for file in self.sources):
            raise DataError(f"{self._paths[0]} holds no rows", code="E-EMPTY", hint="check that it is the right file")

    def encoding(self) -> JsonObject:
        """Return what other files must be read by to give the same columns, as plain JSON; see ``Source.encoding``."""
        options = {"missing_words": list(self._options.missing_words)} if self._options.missing_words else {}
        found: JsonObject = {"format": self.form, "schema": self._recorded.to_json()}
        if options:
            found["options"] = options
        if kind := self._label_type():
            found["label_type"] = kind
        return found

    def tables(self, columns: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some columns of the table, by default of all, as they are written."""
        for path in self._paths:
            yield from self._rows(path, CENSUS_ROWS, list(columns) or list(self._types(path)), SourceFile(str(path)))

    def _compared(self, names: Iterable[str]) -> list[str]:
        """The columns that all files must have: an index of pandas that nobody asks for is not among them."""
        asked = named_columns(self._options) | set(stated_columns(self._options))
        return [name for name in names if name in asked or not is_index_level(name)]

    def _rows(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        """Yield some columns of a file as ``_read`` does, with null for what the user says stands for a missing value.

        A column that has no values in this file has the type it has in other files.
        """
        words, but = self._options.words, (self._options.weight, self._options.id_column)
        with closing(self._read(path, rows, columns, file)) as read:
            for table in read:
                yield with_words_missing(self._with_agreed_types(table), words, but=but)

    def _label_type(self) -> str:
        """The type of the label's column as ``label_type`` calls it; '' where the columns of the format have no types."""
        if self.form == "csv" or self.schema.label is None:
            return ""
        kind = self._agreed[self.schema.label]
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return "text"
        if pa.types.is_boolean(kind):
            return "bool"
        return "int" if pa.types.is_integer(kind) else "float" if pa.types.is_floating(kind) else ""

    def _encoded(self, encoder: TableEncoder, file: SourceFile, table: pa.RecordBatch) -> tuple[Batch, int]:
        """The rows of a table, and how many rows it has, those without a label included."""
        made = encoded(encoder, with_crosses(table, self.schema.crosses), file.name, file.position)
        return made, table.num_rows

    def _planned(self, types: dict[str, pa.DataType]) -> Schema:
        """The schema of files of which nothing is recorded, after all rows were counted where that is needed."""
        path, options = self._paths[0], self._options
        samples = self._samples(types) if options.recognize else {}
        planned = plan_schema(types, options, str(path), "E-DTYPE", samples or None, notices=self.notices)
        census = census_of(planned, options.memory_limit)
        for path in self._paths if census.names else ():
            with closing(self._rows(path, CENSUS_ROWS, list(census.names), SourceFile(str(path)))) as read:
                census.take(map(partial(with_crosses, crosses=planned.crosses), read), str(path))
        census.close()
        schema = planned.completed(census, options)
        if not schema.width:
            left = ", ".join(quote(name) for name in types if name in schema.dropped) or "the others are empty"
            found = f"{self._paths[0]} has no column but the label from which anything can be learned ({left})"
            raise DataError(
                found, code="E-SCHEMA", hint="say what a column holds: --column NAME=words, hash or category"
            )
        note_alike(schema, self.notices)
        self.proposals = proposals(schema, planned, census, samples)
        return schema

    def _samples(self, names: Iterable[str]) -> Samples:
        """The values of each column in the first rows that have any."""
        return Samples(list(names), self._together(self._paths[0]), self._first_values)

    def _first_values(self, names: list[str]) -> dict[str, Any]:
        """The values of some columns in the first rows that have any, of the first batches and of the first files."""
        found: dict[str, Any] = dict.fromkeys(names, pa.nulls(0))
        without = list(names)
        for path in self._paths[:FILES_SAMPLED]:
            read = _joined(self._rows(path, SAMPLE_ROWS, without, SourceFile(str(path))))
            for batch in islice(read, FILES_SAMPLED):
                for name, values in zip(batch.schema.names, batch.columns, strict=True):
                    if not len(found[name]) or values.null_count < len(values):
                        found[name] = values
                without = [name for name in without if found[name].null_count == len(found[name])]
                if not without:
                    return found
        return found

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

    def _check_memory(self, types: Mapping[str, pa.DataType]) -> None:
        """Raise BudgetError where knowing and reading so many columns takes more memory than there is."""
        check_width(str(self._paths[0]), types, self._options.memory_limit)

    def _together(self, _path: Path) -> int:
        """Columns whose first values are read together."""
        return GROUP

    @abstractmethod
    def _types(self, path: Path) -> dict[str, pa.DataType]:
        """The columns of a file with their types, in its order. Raises DataError."""

    @abstractmethod
    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        """Yield some columns of a file, about so many rows at a time, and note in ``file`` how far it was read;
        ``file.position`` counts the rows that were taken. Raises DataError, StorageError.
        """


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows ``SAMPLE_ROWS`` or ``SAMPLE_BYTES`` at a time where they come in smaller batches, which writers cut as
    they like: what a column holds must not depend on it.
    """
    waiting, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        if waiting and (rows + batch.num_rows > SAMPLE_ROWS or size + batch.nbytes > SAMPLE_BYTES):
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
        if batch.num_rows or not waiting:
            waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Rows side by side in one batch; dictionaries, of which each batch has its own, are written out."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches)
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
    return table.combine_chunks().to_batches()[0]
