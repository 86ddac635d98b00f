"""CSV files of one table as record batches, block by block; where one cannot be read, what is wrong with which line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from streamsvm.aliases import JsonMapping, JsonObject
from streamsvm.errors import DataError, quote
from streamsvm.store.sources.ahead import ahead
from streamsvm.store.sources.cells import MISSING_HINT, RECORDED_MISSING_HINT, BadCell
from streamsvm.store.sources.census import census_of, note_alike
from streamsvm.store.sources.csv_dialect import Dialect, dialect_of, without_comments
from streamsvm.store.sources.csv_faults import LINE_HINT, Columns, Sieve, find_fault
from streamsvm.store.sources.csv_parsing import (
    BLOCK,
    GROUP,
    TEXT,
    Conversion,
    Head,
    block_bytes,
    conversions,
    head_of,
    parsed,
    reading,
)
from streamsvm.store.sources.encoding import TableEncoder, batch_rows
from streamsvm.store.sources.files import refuse_partitions
from streamsvm.store.sources.input import BYTE_ORDER_MARK, Input, line_blocks, note_oddities, whole_rows
from streamsvm.store.sources.missing_words import with_numbers_missing
from streamsvm.store.sources.options import SourceOptions, bad_share
from streamsvm.store.sources.proposals import plan_schema, proposals, same_columns, stated_columns
from streamsvm.store.sources.schema import ALL_TEXT, NUMBER, Schema, check_width, label_of, schema_from
from streamsvm.store.sources.source import FILES_SAMPLED, SourceFile
from streamsvm.store.sources.table import READ, with_crosses
from streamsvm.types import Batch

NARROW = 512
"""Columns up to which several threads parse blocks: what a table of more holds is not worth another one (``GROUP``)."""


@dataclass(frozen=True, slots=True)
class CSVReader:
    """Reads columns of files as the types that are stated."""

    dialects: Mapping[Path, Dialect]
    """How the lines of each file are cut."""
    options: SourceOptions
    """How the files are read."""
    schema: Schema
    """What becomes of the columns."""
    types: Mapping[str, pa.DataType]
    """The type every column is read as."""
    exact: bool
    """Whether numbers are read in float64, where they would be in float32."""

    def _type(self, name: str) -> pa.DataType:
        """The type a column is read as now."""
        kind = self.types[name]
        return pa.float64() if self.exact and pa.types.is_float32(kind) else kind

    def tables(self, stream: Input, needed: list[str], file: SourceFile) -> Iterator[pa.RecordBatch]:
        """Yield batches of the needed columns and of crosses of them; ``file.position`` must count those that were taken.

        Raises DataError.
        """
        converting = conversions(needed, {name: self._type(name) for name in needed}, self.options.words)
        options = reading(self.dialects[stream.path], BLOCK, multiline=self.options.multiline)
        alone = stream.size <= BLOCK or len(needed) > GROUP  # one block, or blocks whose tables are large
        together = not alone and len(needed) <= NARROW
        tables = parsed(self._blocks(stream, converting), options, converting, together=together)
        try:
            with closing(tables if alone else ahead(tables)) as tables:
                for table in tables:
                    yield from self._cut(table)
        except pa.ArrowInvalid as error:
            raise self.fault(stream.path, file.position) or unexplained(stream.path, error) from error

    def _blocks(self, stream: Input, converting: Sequence[Conversion]) -> Generator[bytes]:
        """The text in blocks of whole rows, or what is good of it."""
        options = self.options
        if options.on_bad_line != "error":
            return Sieve(
                stream,
                self.dialects[stream.path],
                self.expected._replace(comment=options.comment),
                converting,
                options.rejects,
            ).blocks()
        block = block_bytes(len(self.dialects[stream.path].names))
        lines = line_blocks(stream, block, allow_no_final_newline=options.allow_no_final_newline)
        if options.comment:
            lines = _without_comments(lines, options.comment)
        if options.multiline:
            lines = whole_rows(lines, stream.name)
        return ahead(lines) if stream.compression else lines

    def _cut(self, table: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of a block, where a row has many entries a few at a time."""
        rows = batch_rows(self.schema) if self.schema.has_text else max(1, table.num_rows)
        table = with_numbers_missing(table, self.options.words, but=self.schema.weight)
        for start in range(0, table.num_rows, rows):
            yield with_crosses(table.slice(start, rows), self.schema.crosses)

    def fault(self, path: Path, rows: int) -> DataError | None:
        """Return what is wrong after ``rows`` good rows, as far as reading line by line can tell."""
        return fault_in(path, self.dialects[path], self.options, self.expected, rows)

    @property
    def expected(self) -> Columns:
        """What the columns must hold to be read as they are."""
        numbers = frozenset(name for name, kind in self.types.items() if pa.types.is_floating(kind))
        return Columns(
            numbers,
            frozenset(name for c in self.schema.columns if c.needs_value for name in c.sources),
            self.schema.label,
            missing=self.options.missing != "error",
            multiline=self.options.multiline,
            skip_unlabeled=self.options.missing_label == "skip",
            words=self.options.words,
            read={column.name: column for column in self.schema.columns if column.kind in READ},
            weight=self.schema.weight,
        )


def _without_comments(blocks: Generator[bytes], mark: str) -> Generator[bytes]:
    """Yield blocks of whole lines, with empty lines in place of comments."""
    with closing(blocks):
        for block in blocks:
            yield without_comments(block, mark)


def fault_in(path: Path, dialect: Dialect, options: SourceOptions, columns: Columns, rows: int = 0) -> DataError | None:
    """Return what is wrong after ``rows`` good rows where ``columns`` say what must stand; None where no line is."""
    with Input(path) as stream:
        try:
            columns = columns._replace(comment=options.comment)
            found = find_fault(stream, dialect, columns, rows, last_line=options.allow_no_final_newline)
        except DataError as error:
            return error
    if found is not None and found.hint == MISSING_HINT and options.encoding is not None:
        found.hint = RECORDED_MISSING_HINT
    return found


def unexplained(path: Path, error: Exception) -> DataError:
    """Return an error for a file that pyarrow cannot read and in which no line is wrong."""
    return DataError(
        f"{path} cannot be read: {quote(str(error), 160)}", code="E-PARSE", hint="check it near that place"
    )


class CSVSource:
    """CSV and TSV files; see ``Source``.

    Files of one table are matched by column name, or by position where they have no header.
    """

    exact = False

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        self.sources: list[SourceFile] = []
        self.notices: dict[str, int] = Counter()
        self.proposals: list[str] = []
        self._paths = paths
        self._options = options
        content = without_comments(
            head_of(paths[0], multiline=options.multiline).removeprefix(BYTE_ORDER_MARK), options.comment
        )
        self._head = Head(content, dialect_of(str(paths[0]), content, options), options.multiline, options.words)
        check_width(str(paths[0]), self._names, options.memory_limit)
        self._dialects = dict.fromkeys(paths, self._head.dialect)
        for other in paths[1:]:
            self._dialects[other] = self._dialect_like_first(other)
        refuse_partitions(paths, self._names)
        for other in paths[1:FILES_SAMPLED] if options.encoding is None else ():
            if self._head.without_values() and self._dialects[other] is self._head.dialect:
                self._head = self._head.and_lines_of(head_of(other))
        self._note_lines_above()
        self._types_told: dict[str, pa.DataType] | None = None
        if options.encoding is not None:
            self._reopen(schema_from(options.encoding["schema"]))
        else:
            self._samples: JsonMapping = self._head.samples() if options.recognize else {}
            self._recorded = self.schema = self._plan(self._samples or None)
        self._types = self._column_types()
        if options.encoding is None:
            self._count()
            self._types = self._column_types()
        self.columns = self.schema.width
        self.names = self.schema.names
        self.id_column = self.schema.id_column
        self.sparse = self.schema.sparse

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; see ``Source.batches``."""
        encoder = TableEncoder(self.schema, self.notices, self._options, exact=self.exact)
        rejects, share = self._options.rejects, bad_share(self._options.max_bad)
        rejects.clear()
        for path in self._paths:
            with Input(path) as stream:
                file = SourceFile(str(path), stream.size, compression=stream.compression)
                self.sources.append(file)
                for table in self._reader.tables(stream, self.schema.needed, file):
                    batch = self._encoded(encoder, table, path, file.position)
                    file.read = stream.disk_position
                    rejects.check(share)
                    if file.take(batch, table.num_rows, self.notices):
                        yield batch
                rejects.check(share, last=True)
                note_oddities(stream, self.notices)
                file.sha256 = stream.sha256
        if not any(file.rows for file in self.sources):
            raise DataError(f"{self._paths[0]} holds no rows", code="E-EMPTY", hint="check that it is the right file")

    def encoding(self) -> JsonObject:
        """Return what other files must be read by to give the same columns, as plain JSON; see ``Source.encoding``."""
        first = self._head.dialect
        options: JsonObject = {
            "header": first.header,
            "delimiter": first.delimiter,
            "multiline": self._options.multiline,
        }
        for name in ("skip_lines", "comment"):
            if (value := getattr(self._options, name)) is not None:
                options[name] = value
        if self._options.missing_words:
            options["missing_words"] = list(self._options.missing_words)
        return {"format": "csv", "options": options, "names": list(first.names), "schema": self._recorded.to_json()}

    def tables(self, columns: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some columns of the table, by default of all, as they are written."""
        reader = replace(self._reader, types=dict.fromkeys(self._names, TEXT))
        for path in self._paths:
            with Input(path) as stream:
                yield from reader.tables(stream, list(columns) or list(self._names), SourceFile(str(path)))

    @property
    def _reader(self) -> CSVReader:
        return CSVReader(self._dialects, self._options, self.schema, self._types, self.exact)

    @property
    def _names(self) -> tuple[str, ...]:
        """The columns of the first file."""
        return self._head.dialect.names

    def _note_lines_above(self) -> None:
        """Count the lines above the tables that are skipped and that nobody asked to skip now."""
        recorded = (self._options.skip_lines or 0) if self._options.encoding is not None else 0
        if skipped := sum(dialect.comments + recorded for dialect in self._dialects.values()):
            self.notices["comment lines, or others that are not of the table, were skipped above it"] = skipped

    def _dialect_like_first(self, path: Path) -> Dialect:
        """How the lines of another file are cut; where that is as in the first, it is the first's. Raises DataError."""
        first, found = self._head.dialect, dialect_of(str(path), head_of(path), self._options)
        if found == first:
            return first
        if self._options.encoding is None or found.header:
            same_columns(first.names, found.names, (str(self._paths[0]), str(path)))
        return found

    def _reopen(self, recorded: Schema) -> None:
        """Read as was recorded, with the label or without it."""
        named = {dialect: self._without_label(dialect, recorded) for dialect in set(self._dialects.values())}
        self._dialects = {path: named[dialect] for path, dialect in self._dialects.items()}
        self._head = self._head._replace(dialect=self._dialects[self._paths[0]])
        for path, dialect in self._dialects.items():
            if dialect.names is not self._names:
                same_columns(self._names, dialect.names, (str(self._paths[0]), str(path)))
        self._recorded = recorded
        self.schema = recorded.found_in(self._names, self._options, str(self._paths[0]))
        recorded.note_extra(self._names, self._options.label, self.notices)

    def _count(self) -> None:
        """Fill in what must be known of all rows."""
        census = census_of(self.schema, self._options.memory_limit)
        for path in self._paths if census.names else ():
            with Input(path) as stream:
                census.take(self._reader.tables(stream, list(census.names), SourceFile(str(path))), str(path))
        census.close()
        planned = self.schema
        self._recorded = self.schema = planned.completed(census, self._options)
        note_alike(self.schema, self.notices)
        self.proposals = proposals(self.schema, planned, census, self._samples)

    def _encoded(self, encoder: TableEncoder, table: pa.RecordBatch, path: Path, rows_before: int) -> Batch:
        try:
            return encoder.batch(table)
        except BadCell as cell:
            fault = self._reader.fault(path, rows_before)
            raise fault or cell.error(str(path), rows_before) from cell

    def _plan(self, samples: JsonMapping | None) -> Schema:
        path = self._paths[0]
        types = self._inferred()
        try:
            return plan_schema(types, self._options, str(path), "E-PARSE", samples, notices=self.notices)
        except DataError as error:
            if error.code != "E-PARSE":
                raise
            fault = self._not_a_number(path, types) or error
            hint = error.hint if fault.hint == LINE_HINT and not self._mostly_numbers() else fault.hint
            raise DataError(fault.message, code=fault.code, hint=hint) from error

    def _mostly_numbers(self) -> bool:
        """Whether a few lines are wrong, and not the kinds of columns."""
        path = self._paths[0]
        try:
            plan_schema(self._head.types(skip=True), self._options, str(path), "E-PARSE")
        except DataError:
            return False
        return True

    def _not_a_number(self, path: Path, types: Mapping[str, pa.DataType]) -> DataError | None:
        """The first line with something else than a number in a column that should hold numbers."""
        options = self._options
        label = label_of(list(types), options.label, str(path))
        others = {
            *options.categorical,
            *options.calendar,
            *options.drop,
            *stated_columns(options),
            options.id_column,
            label,
        }
        if ALL_TEXT in others:
            return None
        numbers = frozenset(name for name in types if name not in others)
        missing = options.missing != "error"
        columns = Columns(numbers, frozenset(), None, missing=missing, multiline=options.multiline, words=options.words)
        return fault_in(path, self._dialects[path], options, columns)

    def _without_label(self, dialect: Dialect, recorded: Schema) -> Dialect:
        """Names for a file without header: those recorded, less the label when there is one column fewer."""
        assert self._options.encoding is not None
        if dialect.header:
            return dialect
        names = tuple(self._options.encoding.get("names", ()))
        if len(dialect.names) == len(names) - 1:
            names = tuple(name for name in names if name != recorded.label)
        if len(dialect.names) != len(names):
            found = f"{len(dialect.names)} columns where {len(names)} are expected"
            raise DataError(found, code="E-SCHEMA", hint="read files with the columns the store was made of")
        return replace(dialect, names=names)

    def _inferred(self) -> dict[str, pa.DataType]:
        """What pyarrow takes the columns for, judging by the head of the first file."""
        try:
            if self._types_told is None:
                self._types_told = self._head.types(skip=self._options.on_bad_line == "skip")
        except pa.ArrowInvalid as error:
            path, nothing = self._paths[0], Columns(frozenset(), frozenset(), None, multiline=self._options.multiline)
            raise fault_in(path, self._dialects[path], self._options, nothing) or unexplained(path, error) from error
        return self._types_told

    def _column_types(self) -> dict[str, pa.DataType]:
        """The type every column that is needed is read as: float32, float64 for labels, else text."""
        schema = self.schema
        types = dict.fromkeys(schema.needed, TEXT)
        for column in schema.columns:
            if column.kind == NUMBER:
                types[column.name] = pa.float32()
        if (label := schema.label) is not None:
            self._inferred()  # which says what is wrong with the first lines, if anything is
            types[label] = self._head.label_type(label, skip=self._options.on_bad_line == "skip")
        if schema.id_column is not None:
            types[schema.id_column] = pa.string()
        if schema.weight is not None:
            types[schema.weight] = pa.float32()
        return types
