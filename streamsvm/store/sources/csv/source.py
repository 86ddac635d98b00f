"""CSV and TSV text as rows: what becomes of the columns, decided by the first lines or as recorded, and the batches.

pyarrow decides quickly whether a block is in order; when it is not, ``csv.faults`` reads on from there slowly and says
what is wrong with which line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from streamsvm.aliases import JsonMapping, JsonObject
from streamsvm.errors import DataError
from streamsvm.store.sources.csv.blocks import TEXT
from streamsvm.store.sources.csv.dialect import Dialect, dialect_of, without_comments
from streamsvm.store.sources.csv.faults import LINE_HINT, Columns
from streamsvm.store.sources.csv.head import Head, head_of
from streamsvm.store.sources.csv.reader import CSVReader, fault_in, unexplained
from streamsvm.store.sources.options import bad_share
from streamsvm.store.sources.reading.input import Input
from streamsvm.store.sources.reading.lakes import refuse_partitions
from streamsvm.store.sources.reading.lines import BYTE_ORDER_MARK, note_form
from streamsvm.store.sources.source import FILES_SAMPLED, SourceFile
from streamsvm.store.sources.source_options import SourceOptions
from streamsvm.store.sources.table.cells import BadCell
from streamsvm.store.sources.table.census import census_of, note_alike
from streamsvm.store.sources.table.encoder import TableEncoder
from streamsvm.store.sources.table.layout.columns import NUMBER
from streamsvm.store.sources.table.layout.planning import plan_schema, same_columns, stated_columns
from streamsvm.store.sources.table.layout.proposals import proposals
from streamsvm.store.sources.table.layout.schema import ALL_TEXT, Schema, label_of, schema_from
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
                note_form(stream, self.notices)
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
