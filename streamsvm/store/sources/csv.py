"""CSV and TSV text as a table.

pyarrow parses blocks of lines. If it cannot parse a block, ``csv_faults`` reads the file line by line from there, to
name the first bad line and its fault, or to leave bad lines out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamsvm.errors import DataError, quote
from streamsvm.store.sources.byte_stream import (
    BYTE_ORDER_MARK,
    Input,
    is_utf8,
    line_blocks,
    text_notices_of,
    whole_rows,
)
from streamsvm.store.sources.cell_parsing import MISSING_HINT, RECORDED_MISSING_HINT, BadCell
from streamsvm.store.sources.csv_dialect import Dialect, detect_dialect, without_comments
from streamsvm.store.sources.csv_faults import LINE_HINT, OR_SAY_THE_KIND, BadLineFilter, ExpectedColumns, find_fault
from streamsvm.store.sources.csv_parsing import (
    BLOCK,
    GROUP,
    TEXT,
    Conversion,
    Head,
    block_bytes,
    group_conversions,
    has_multiline_values,
    parse_blocks,
    parsing_options,
    read_head,
)
from streamsvm.store.sources.encoding import TEXT_WITH_MEANING, TableEncoder, batch_rows
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.read_ahead import read_ahead
from streamsvm.store.sources.schema import ALL_TEXT, AMOUNT, NUMBER, Column, Schema, label_of
from streamsvm.store.sources.schema_inference import Samples, column_kinds_in_options, plan_schema, recognize
from streamsvm.store.sources.source import FILES_SAMPLED, SourceFile
from streamsvm.store.sources.table import NARROW, TableSource
from streamsvm.type_aliases import JsonObject


class CSVSource(TableSource):
    """CSV and TSV files. The columns of files without a header are matched by position."""

    format_name = "csv"
    counts_lines = True
    leaves_out_bad_values = True
    hashes_as_it_reads = True

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        self._dialects: dict[Path, Dialect] = {}
        self._multiline = bool(options.multiline)
        """Whether values in quotes may hold line feeds."""
        self._head: Head
        """The first bytes of the first file, and of further files if a column has no value in them."""
        self._inferred_types: dict[str, pa.DataType] = {}
        self._column_types: dict[str, pa.DataType] = {}
        """The type as which each column is parsed; set once the schema is inferred."""
        super().__init__(paths, options)
        self._column_types = self._types_to_read(self.schema)

    def record_batches(self, columns: Sequence[str] = ()) -> Generator[pa.RecordBatch]:
        """Yield record batches of some columns, by default of all, as text."""
        types = self._types(self._paths[0])
        for path in self._paths:
            yield from self._read(path, 0, list(columns) or list(types), SourceFile(str(path)), types)

    def read_encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, as plain JSON."""
        first = self._head.dialect
        options: JsonObject = {
            "header": first.header,
            "delimiter": first.delimiter,
            "multiline": self._multiline,
        }
        for name in ("skip_lines", "comment", "charset"):
            if (value := getattr(self._options, name)) is not None:
                options[name] = value
        if self._options.missing_words:
            options["missing_words"] = list(self._options.missing_words)
        return {"format": "csv", "options": options, "names": list(first.names), "schema": self._full_schema.to_json()}

    def _types(self, path: Path) -> dict[str, pa.DataType]:
        """Return the columns of a file by name, all with the type of text, because the dialect does not tell types."""
        if path not in self._dialects:
            self._dialects[path] = self._read_dialect(path)
        return dict.fromkeys(self._dialects[path].names, TEXT)

    def _read_dialect(self, path: Path) -> Dialect:
        """Detect the dialect of a file; return the same object as for the first file if they are equal. Raises
        DataError.
        """
        if path != self._paths[0]:
            first = self._head.dialect
            dialect = self._with_recorded_names(
                detect_dialect(str(path), read_head(path, charset=self._options.charset), self._options)
            )
            return first if dialect == first else dialect
        content = self._read_first_head(path)
        dialect = self._with_recorded_names(detect_dialect(str(path), content, self._options))
        if self._options.multiline is None and has_multiline_values(content, dialect):
            self._multiline = True
            content = self._read_first_head(path)
            self.notices["file has values in quotes over several lines; --no-multiline takes each line for a row"] = 1
        self._options = replace(self._options, comma_first=dialect.delimiter == ";")
        if self._options.on_bad_line == "skip":
            content = content.decode(errors="replace").encode()
        self._head = Head(content, dialect, self._multiline, self._options.words)
        return dialect

    def _read_first_head(self, path: Path) -> bytes:
        content = read_head(path, multiline=self._multiline, charset=self._options.charset).removeprefix(
            BYTE_ORDER_MARK
        )
        return without_comments(content, self._options.comment)

    def _with_recorded_names(self, dialect: Dialect) -> Dialect:
        """Return the dialect with the recorded names of columns if the file has no header; if the file has one column
        less, the label is assumed to be missing.
        """
        encoding = self._options.encoding
        if dialect.header or encoding is None:
            return dialect
        names = tuple(encoding.get("names", ()))
        if len(dialect.names) == len(names) - 1:
            names = tuple(name for name in names if name != encoding["schema"].get("label"))
        if len(dialect.names) != len(names):
            message = f"{len(dialect.names)} columns where {len(names)} are expected"
            raise DataError(message, code="E-SCHEMA", hint="read files with the columns the store was made of")
        return replace(dialect, names=names)

    def _columns_in_common(self, names: Iterable[str]) -> list[str]:
        return list(names)

    def _check_files(self, types: Mapping[str, pa.DataType]) -> None:
        super()._check_files(types)
        recorded = (self._options.skip_lines or 0) if self._options.encoding is not None else 0
        for other in self._paths[1:FILES_SAMPLED] if self._options.encoding is None else ():
            if self._head.has_empty_column() and self._dialects[other] is self._head.dialect:
                self._head = self._head.append_lines(read_head(other, charset=self._options.charset))
        if skipped := sum(dialect.comments + recorded for dialect in self._dialects.values()):
            self.notices["comment lines, or others that are not of the table, were skipped above it"] = skipped

    def _samples(self, _names: Iterable[str]) -> Samples:
        return self._head.samples()

    def _plan(self, _types: Mapping[str, pa.DataType], samples: Mapping[str, Any] | None) -> Schema:
        """Infer the schema from the types that pyarrow infers; an error for a bad number names its line."""
        where, types = str(self._paths[0]), self._infer_types()
        try:
            self.schema = plan_schema(types, self._options, where, "E-PARSE", samples, notices=self.notices)
        except DataError as error:
            if error.code != "E-PARSE":
                raise
            fault = self._not_a_number(types, samples or {}) or error
            hint = error.hint if fault.hint == LINE_HINT and not self._is_mostly_numbers() else fault.hint
            raise DataError(fault.message, code=fault.code, hint=hint) from error
        self._column_types = self._types_to_read(self.schema)
        return self.schema

    def _infer_types(self) -> dict[str, pa.DataType]:
        """Return the types that pyarrow infers from the head. Raises DataError for bad lines in it."""
        if not self._inferred_types:
            try:
                self._inferred_types = self._head.types(skip=self._options.on_bad_line == "skip")
            except pa.ArrowInvalid as error:
                path = self._paths[0]
                raise self._find_fault(path, self._expect_text()) or _error_without_line(path, error) from error
            if not is_utf8(self._head.lines) and (fault := self._find_fault(self._paths[0], self._expect_text())):
                raise fault
        return self._inferred_types

    def _not_a_number(self, types: Mapping[str, pa.DataType], samples: Mapping[str, Any]) -> DataError | None:
        """Return the error for the first line with another value than a number in a column that should hold numbers."""
        options, path = self._options, self._paths[0]
        label = label_of(list(types), options.label, str(path))
        others = {
            *options.categorical,
            *options.calendar,
            *options.drop,
            *column_kinds_in_options(options),
            options.id_column,
            label,
        }
        if ALL_TEXT in others:
            return None
        recognized = {name for name in samples if recognize(name, samples[name], options)}
        numbers = frozenset(name for name in types if name not in others | recognized)
        missing = options.missing != "error"
        expected = ExpectedColumns(
            numbers, frozenset(), None, missing=missing, multiline=self._multiline, words=options.words
        )
        return self._find_fault(path, expected)

    def _is_mostly_numbers(self) -> bool:
        """Return whether the schema can be inferred if bad lines are left out, so that only a few lines are bad."""
        try:
            plan_schema(self._head.types(skip=True), self._options, str(self._paths[0]), "E-PARSE")
        except DataError:
            return False
        return True

    def _types_to_read(self, schema: Schema) -> dict[str, pa.DataType]:
        """Return the type as which each needed column is parsed: float32, float64 for labels that are numbers, else
        text.
        """
        types = dict.fromkeys(schema.needed, TEXT)
        for column in schema.columns:
            if column.kind == NUMBER:
                types[column.name] = pa.float32()
        if (label := schema.label) is not None:
            self._infer_types()  # raises the error for the first bad line
            types[label] = self._head.label_type(label, skip=self._options.on_bad_line == "skip")
        if schema.id_column is not None:
            types[schema.id_column] = pa.string()
        if schema.weight is not None:
            types[schema.weight] = pa.float32()
        return types

    def _read(
        self,
        path: Path,
        _rows: int,
        columns: list[str],
        file: SourceFile,
        types: Mapping[str, pa.DataType] | None = None,
    ) -> Generator[pa.RecordBatch]:
        """Yield some columns of a file, a block of lines at a time, or fewer rows if columns of text become many
        features.

        ``types``: the types as which the columns are parsed, by default those of the schema.
        """
        types = self._column_types if types is None else types
        kinds = {
            name: pa.float64() if self.exact and pa.types.is_float32(types[name]) else types[name] for name in columns
        }
        converting = group_conversions(columns, kinds, self._options.words)
        parsing = parsing_options(self._dialects[path], BLOCK, multiline=self._multiline)
        with Input(path, self._options.charset) as stream:
            file.compression = stream.compression
            in_this_thread = stream.size <= BLOCK or len(columns) > GROUP  # one block, or blocks whose tables are large
            in_parallel = not in_this_thread and len(columns) <= NARROW
            expected = self._expect_columns(types) if types is self._column_types else self._expect_text()
            blocks = self._blocks(stream, converting, expected)
            batches = parse_blocks(blocks, parsing, converting, together=in_parallel)
            try:
                with closing(batches if in_this_thread else read_ahead(batches)) as batches:
                    for batch in batches:
                        file.read = stream.disk_position
                        step = batch_rows(self.schema) if self.schema.has_text else max(1, batch.num_rows)
                        for start in range(0, batch.num_rows, step):
                            yield batch.slice(start, step)
            except pa.ArrowInvalid as error:
                raise self._find_fault(path, expected, file.position) or _error_without_line(path, error) from error
            file.text_notices, file.sha256 = text_notices_of(stream), stream.sha256

    def _blocks(
        self, stream: Input, converting: Sequence[Conversion], expected: ExpectedColumns
    ) -> Generator[bytes | pa.Table]:
        """Yield the text of a file in blocks of whole rows, without bad lines if options say so."""
        options, dialect = self._options, self._dialects[stream.path]
        if options.on_bad_line != "error":
            expected = expected._replace(comment=options.comment)
            return BadLineFilter(stream, dialect, expected, converting, options.rejects).blocks()
        blocks = line_blocks(
            stream, block_bytes(len(dialect.names)), allow_no_final_newline=options.allow_no_final_newline
        )
        if options.comment:
            blocks = _without_comments(blocks, options.comment)
        if self._multiline:
            blocks = whole_rows(blocks, stream.name)
        return read_ahead(blocks) if stream.compression else blocks

    def _expect_text(self) -> ExpectedColumns:
        """Return what the columns must hold to be read as text: any values."""
        return ExpectedColumns(frozenset(), frozenset(), None, multiline=self._multiline)

    def _expect_columns(self, types: Mapping[str, pa.DataType]) -> ExpectedColumns:
        """Return what the columns must hold to be parsed as ``types`` and encoded."""
        name, form = self.schema.label, self.schema.label_amount
        label = () if name is None or form is None else (Column(name, AMOUNT, form=form),)
        return ExpectedColumns(
            frozenset(name for name, kind in types.items() if pa.types.is_floating(kind)),
            frozenset(name for c in self.schema.columns if c.needs_value for name in c.sources),
            self.schema.label,
            missing=self._options.missing != "error",
            multiline=self._multiline,
            skip_unlabeled=self._options.missing_label == "skip",
            words=self._options.words,
            read={column.name: column for column in (*self.schema.columns, *label) if column.kind in TEXT_WITH_MEANING},
            weight=self.schema.weight,
        )

    def _explain(self, cell: BadCell, encoder: TableEncoder, table: pa.RecordBatch, file: SourceFile) -> DataError:
        """Return the error that names the bad line, or the row if no line is found to be bad."""
        fault = self._find_fault(Path(file.name), self._expect_columns(self._column_types), file.position)
        return fault or super()._explain(cell, encoder, table, file)

    def _find_fault(self, path: Path, expected: ExpectedColumns, rows: int = 0) -> DataError | None:
        """Return the error for the first bad line after ``rows`` good rows; None if no line is bad."""
        options = self._options
        with Input(path, self._options.charset) as stream:
            try:
                expected = expected._replace(comment=options.comment)
                dialect, last_line = self._dialects[path], options.allow_no_final_newline
                fault = find_fault(stream, dialect, expected, rows, last_line=last_line)
            except DataError as error:
                return error
        if fault is not None and fault.hint == MISSING_HINT and options.encoding is not None:
            fault.hint = RECORDED_MISSING_HINT
        elif fault is not None and options.encoding is not None:
            fault.hint = str(fault.hint).partition(OR_SAY_THE_KIND)[0]
        return fault


def _without_comments(blocks: Generator[bytes], mark: str) -> Generator[bytes]:
    """Yield blocks of whole lines with comment lines emptied."""
    with closing(blocks):
        for block in blocks:
            yield without_comments(block, mark)


def _error_without_line(path: Path, error: Exception) -> DataError:
    """Return the error for a file that pyarrow cannot parse although no line is found to be bad."""
    return DataError(
        f"{path} cannot be read: {quote(str(error), 160)}", code="E-PARSE", hint="check it near that place"
    )
