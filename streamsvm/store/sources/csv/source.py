"""CSV and TSV text, read by pyarrow block by block.

pyarrow decides quickly whether a block is in order; when it is not, ``csv.faults`` reads on from there slowly and says
what is wrong with which line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from streamsvm.aliases import JsonMapping, JsonObject
from streamsvm.errors import DataError, quote
from streamsvm.store.sources.csv.blocks import GROUP, TEXT, conversions, parsed, reading
from streamsvm.store.sources.csv.dialect import Dialect, dialect_of
from streamsvm.store.sources.csv.faults import LINE_HINT, Columns, find_fault
from streamsvm.store.sources.csv.head import BLOCK, Head, block_bytes, head_of
from streamsvm.store.sources.csv.sieve import Sieve
from streamsvm.store.sources.options import bad_share
from streamsvm.store.sources.reading.ahead import ahead
from streamsvm.store.sources.reading.input import Input
from streamsvm.store.sources.reading.lines import line_blocks, note_form, whole_rows
from streamsvm.store.sources.source import SourceFile
from streamsvm.store.sources.source_options import SourceOptions
from streamsvm.store.sources.table.cells import BadCell
from streamsvm.store.sources.table.census import census_of
from streamsvm.store.sources.table.encoder import TableEncoder, batch_rows
from streamsvm.store.sources.table.layout.columns import SINGLE, WRITTEN
from streamsvm.store.sources.table.layout.crosses import with_crosses
from streamsvm.store.sources.table.layout.planning import plan_schema, same_columns, stated_columns
from streamsvm.store.sources.table.layout.proposals import proposals
from streamsvm.store.sources.table.layout.schema import ALL_TEXT, Schema, label_of, schema_from
from streamsvm.store.sources.table.values import MISSING_HINT, RECORDED_MISSING_HINT
from streamsvm.store.sources.table.width import check_width
from streamsvm.types import Batch


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
        content = head_of(paths[0])
        self._head = Head(content, dialect_of(str(paths[0]), content, options), options.multiline)
        check_width(str(paths[0]), self._names, options.memory_limit)
        self._dialects = dict.fromkeys(paths, self._head.dialect)
        for other in paths[1:]:
            self._dialects[other] = self._dialect_like_first(other)
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
                for table in self._tables(stream, self.schema.needed, file):
                    batch = self._encoded(encoder, table, path, file.position)
                    file.read = stream.disk_position
                    rejects.check(share)
                    if file.take(batch, table.num_rows, self.notices):
                        yield batch
                rejects.check(share, last=True)
                note_form(stream, self.notices)
                file.sha256 = stream.sha256
            if file.rows == 0:
                raise DataError(f"{path} holds no rows", code="E-EMPTY", hint="check that it is the right file")

    def encoding(self) -> JsonObject:
        """Return what other files must be read by to give the same columns, as plain JSON; see ``Source.encoding``."""
        first = self._head.dialect
        options = {"header": first.header, "delimiter": first.delimiter, "multiline": self._options.multiline}
        return {"format": "csv", "options": options, "names": list(first.names), "schema": self._recorded.to_json()}

    def tables(self, columns: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some columns of the table, by default of all, as they are written."""
        known = self._types
        self._types = dict.fromkeys(self._names, TEXT)
        try:
            for path in self._paths:
                with Input(path) as stream:
                    yield from self._tables(stream, list(columns) or list(self._names), SourceFile(str(path)))
        finally:
            self._types = known

    @property
    def _names(self) -> tuple[str, ...]:
        """The columns of the first file."""
        return self._head.dialect.names

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
                census.take(self._tables(stream, list(census.names), SourceFile(str(path))), str(path))
        census.close()
        planned = self.schema
        self._recorded = self.schema = planned.completed(census, self._options)
        self.proposals = proposals(self.schema, planned, census, self._samples)

    def _encoded(self, encoder: TableEncoder, table: pa.RecordBatch, path: Path, rows_before: int) -> Batch:
        try:
            return encoder.batch(table)
        except BadCell as cell:
            fault = self._fault(path, rows_before, self._expected)
            raise fault or cell.error(str(path), rows_before) from cell

    def _plan(self, samples: JsonMapping | None) -> Schema:
        path = self._paths[0]
        types = self._inferred()
        try:
            return plan_schema(types, self._options, str(path), "E-PARSE", samples)
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
        return self._fault(path, 0, Columns(numbers, frozenset(), None, missing=missing, multiline=options.multiline))

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
        return Dialect(dialect.delimiter, False, names)

    def _inferred(self) -> dict[str, pa.DataType]:
        """What pyarrow takes the columns for, judging by the head of the first file."""
        try:
            if self._types_told is None:
                self._types_told = self._head.types(skip=self._options.on_bad_line == "skip")
        except pa.ArrowInvalid as error:
            path, nothing = self._paths[0], Columns(frozenset(), frozenset(), None, multiline=self._options.multiline)
            raise self._fault(path, 0, nothing) or _unexplained(path, error) from error
        return self._types_told

    def _column_types(self) -> dict[str, pa.DataType]:
        """The type every column that is needed is read as: float32, float64 for labels, else text."""
        schema = self.schema
        types = dict.fromkeys(schema.needed, TEXT)
        for column in schema.columns:
            if column.kind not in WRITTEN and not column.form:
                types[column.name] = pa.float32() if column.kind in SINGLE else pa.timestamp("us")
        if (label := schema.label) is not None:
            self._inferred()  # which says what is wrong with the first lines, if anything is
            types[label] = self._head.label_type(label, skip=self._options.on_bad_line == "skip")
        if schema.id_column is not None:
            types[schema.id_column] = pa.string()
        if schema.weight is not None:
            types[schema.weight] = pa.float32()
        return types

    def _type(self, name: str) -> pa.DataType:
        """The type a column is read as now."""
        kind = self._types[name]
        return pa.float64() if self.exact and pa.types.is_float32(kind) else kind

    def _tables(self, stream: Input, needed: list[str], file: SourceFile) -> Iterator[pa.RecordBatch]:
        """Batches of the needed columns and of crosses of them; ``file.position`` must count those that were taken."""
        converting = conversions(needed, {name: self._type(name) for name in needed})
        options = reading(self._dialects[stream.path], BLOCK, multiline=self._options.multiline)
        tables = parsed(self._blocks(stream, converting), options, converting)
        try:
            alone = stream.size <= BLOCK or len(needed) > GROUP  # one block, or blocks whose tables are large
            with closing(tables if alone else ahead(tables)) as tables:
                for table in tables:
                    yield from self._cut(table)
        except pa.ArrowInvalid as error:
            raise self._fault(stream.path, file.position, self._expected) or _unexplained(stream.path, error) from error

    def _blocks(self, stream: Input, converting: Sequence[pacsv.ConvertOptions]) -> Generator[bytes]:
        """The text in blocks of whole rows, or what is good of it."""
        options = self._options
        if options.on_bad_line != "error":
            return Sieve(stream, self._dialects[stream.path], self._expected, converting, options.rejects).blocks()
        block = block_bytes(len(self._names))
        lines = line_blocks(stream, block, allow_no_final_newline=options.allow_no_final_newline)
        if options.multiline:
            lines = whole_rows(lines, stream.name)
        return ahead(lines) if stream.compression else lines

    def _cut(self, table: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of a block, where a row has many entries a few at a time."""
        rows = batch_rows(self.schema) if self.schema.has_text else max(1, table.num_rows)
        for start in range(0, table.num_rows, rows):
            yield with_crosses(table.slice(start, rows), self.schema.crosses)

    def _fault(self, path: Path, rows: int, columns: Columns) -> DataError | None:
        """What is wrong after ``rows`` good rows, as far as reading line by line can tell."""
        with Input(path) as stream:
            try:
                last_line = self._options.allow_no_final_newline
                found = find_fault(stream, self._dialects[path], columns, rows, last_line=last_line)
            except DataError as error:
                return error
        if found is not None and found.hint == MISSING_HINT and self._options.encoding is not None:
            found.hint = RECORDED_MISSING_HINT
        return found

    @property
    def _expected(self) -> Columns:
        numbers = frozenset(name for name, kind in self._types.items() if pa.types.is_floating(kind))
        return Columns(
            numbers,
            frozenset(name for c in self.schema.columns if c.needs_value for name in c.sources),
            self.schema.label,
            missing=self._options.missing != "error",
            multiline=self._options.multiline,
            skip_unlabeled=self._options.missing_label == "skip",
        )


def _unexplained(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} cannot be read: {quote(str(error), 160)}", code="E-PARSE", hint="check it near that place"
    )
