"""CSV and TSV text, read by pyarrow block by block.

pyarrow decides quickly whether a block is in order; when it is not, ``csv_faults`` reads on from there slowly and says
what is wrong with which line.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from streamsvm.aliases import ByName, JsonObject
from streamsvm.errors import DataError, quote
from streamsvm.store.format.labels import LARGEST_LABEL
from streamsvm.store.sources.ahead import ahead
from streamsvm.store.sources.csv.dialect import Dialect, dialect_of
from streamsvm.store.sources.csv.faults import HINT_TEXT, NULLS, Columns, find_fault
from streamsvm.store.sources.csv.sieve import Sieve, most_types
from streamsvm.store.sources.decompression import Input
from streamsvm.store.sources.lines import NO_NEWLINE, UTF16_MARKS, note_form
from streamsvm.store.sources.options import SourceFile, SourceOptions, bad_share, check_width
from streamsvm.store.sources.table.cells import BadCell
from streamsvm.store.sources.table.encoder import TableEncoder, count_values
from streamsvm.store.sources.table.schema import (
    ALL_TEXT,
    AMOUNT,
    BOOLEAN,
    CATEGORY,
    HASHED,
    NUMBER,
    Schema,
    ValueCensus,
    label_of,
    plan_schema,
    same_columns,
    schema_from,
)
from streamsvm.types import Batch

HEAD = 1 << 20
BLOCK = 1 << 20
"""Bytes of text pyarrow takes at a time: a batch is what they hold. It parses them in one thread of ours: two threads of
its own cost half as much time again."""
SAMPLE_ROWS = 5000
"""Rows by which it is told what a column holds."""
LONGEST_BLOCK = 64 << 20
"""The largest block, in bytes. A block must hold a whole line, so that wide tables get larger blocks."""


class CSVSource:
    """CSV and TSV files; see ``Source``.

    Files of one table are matched by column name, or by position where they have no header.
    """

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        self.sources: list[SourceFile] = []
        self.notices: dict[str, int] = Counter()
        self.proposals: list[str] = []
        self._paths = paths
        self._options = options
        self._heads = {path: _head(path) for path in paths}
        self._dialects = {path: dialect_of(str(path), head, options) for path, head in self._heads.items()}
        check_width(str(paths[0]), len(self._dialects[paths[0]].names), options.memory_limit)
        self._recorded = self._schema = self._plan(paths)
        if options.encoding is not None:
            self._dialects = {path: self._without_label(d) for path, d in self._dialects.items()}
            self._schema = self._recorded.found_in(self._dialects[paths[0]].names, options, str(paths[0]))
            self._recorded.note_extra(self._dialects[paths[0]].names, options.label, self.notices)
        for other in paths[1:]:
            names = self._dialects[paths[0]].names, self._dialects[other].names
            same_columns(*names, (str(paths[0]), str(other)))
        self._types = self._column_types(paths[0])
        if options.encoding is None:
            found = self._census(paths)
            self._recorded = self._schema = self._schema.with_categories(found, options)
            self.proposals = self._schema.proposals(found)
            self._types = self._column_types(paths[0])
        self.columns = self._schema.width
        self.names = self._schema.names
        self.id_column = self._schema.id_column
        self.sparse = self._schema.sparse

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; see ``Source.batches``."""
        encoder = TableEncoder(self._schema, self.notices, self._options)
        rejects, share = self._options.rejects, bad_share(self._options.max_bad)
        rejects.clear()
        for path in self._paths:
            with Input(path) as stream:
                file = SourceFile(str(path), stream.size, compression=stream.compression)
                self.sources.append(file)
                for table in self._tables(stream, self._schema.needed, file):
                    try:
                        batch = encoder.batch(table)
                    except BadCell as cell:
                        fault = self._fault(path, file.position, self._expected)
                        raise fault or cell.error(str(path), file.position) from cell
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
        first = next(iter(self._dialects.values()))
        options = {"header": first.header, "delimiter": first.delimiter, "multiline": self._options.multiline}
        return {"format": "csv", "options": options, "names": list(first.names), "schema": self._recorded.to_json()}

    def _plan(self, paths: tuple[Path, ...]) -> Schema:
        if self._options.encoding is not None:
            return schema_from(self._options.encoding["schema"])
        path = paths[0]
        types = self._inferred(path)
        try:
            samples = self._samples(path) if self._options.recognize else None
            return plan_schema(types, self._options, str(path), "E-PARSE", samples)
        except DataError as error:
            if error.code != "E-PARSE":
                raise
            fault = self._not_a_number(path, types) or error
            hint = error.hint if fault.hint == HINT_TEXT else fault.hint
            raise DataError(fault.message, code=fault.code, hint=hint) from error

    def _not_a_number(self, path: Path, types: Mapping[str, pa.DataType]) -> DataError | None:
        """The first line with something else than a number in a column that should hold numbers."""
        options = self._options
        others = {
            *options.categorical,
            *options.calendar,
            *options.drop,
            *(said.rpartition("=")[0] for said in options.columns_as),
            options.id_column,
            label_of(list(types), options.label, str(path)),
        }
        if ALL_TEXT in others:
            return None
        return self._fault(
            path,
            0,
            Columns(
                frozenset(name for name in types if name not in others), frozenset(), None, multiline=options.multiline
            ),
        )

    def _without_label(self, dialect: Dialect) -> Dialect:
        """Names for a file without header: those recorded, less the label when there is one column fewer."""
        assert self._options.encoding is not None
        if dialect.header:
            return dialect
        names = tuple(self._options.encoding.get("names", ()))
        if len(dialect.names) == len(names) - 1:
            names = tuple(name for name in names if name != self._recorded.label)
        if len(dialect.names) != len(names):
            found = f"{len(dialect.names)} columns where {len(names)} are expected"
            raise DataError(found, code="E-SCHEMA", hint="read files with the columns the store was made of")
        return Dialect(dialect.delimiter, False, names)

    def _inferred(self, path: Path) -> dict[str, pa.DataType]:
        """What pyarrow takes the columns for, judging by the head of the file."""
        head = self._heads[path]
        whole_lines = head[: head.rfind(b"\n") + 1]
        options = self._reading(self._dialects[path], max(BLOCK, len(head)))
        converting = pacsv.ConvertOptions(null_values=NULLS, strings_can_be_null=True)
        if self._options.on_bad_line == "skip":
            options["parse_options"].invalid_row_handler = lambda row: "skip"
            return most_types(pacsv.read_csv(io.BytesIO(whole_lines), convert_options=converting, **options))
        try:
            with pacsv.open_csv(io.BytesIO(whole_lines), convert_options=converting, **options) as reader:
                return {f.name: pa.float64() if f.type == pa.null() else f.type for f in reader.schema}
        except pa.ArrowInvalid as error:
            nothing = Columns(frozenset(), frozenset(), None, multiline=self._options.multiline)
            raise self._fault(path, 0, nothing) or _unexplained(path, error) from error

    def _column_types(self, path: Path) -> dict[str, pa.DataType]:
        """The type every column that is needed is read as: float32, float64 for labels, else text."""
        inferred = {} if self._schema.label is None else self._inferred(path)
        types = {}
        for column in self._schema.columns:
            text = pa.dictionary(pa.int32(), pa.string())
            native = {NUMBER: pa.float32(), CATEGORY: text, HASHED: text, AMOUNT: text, BOOLEAN: text}
            types[column.name] = text if column.form else native.get(column.kind, pa.timestamp("us"))
        if (label := self._schema.label) is not None:
            kind = inferred.get(label, pa.string())
            types[label] = self._label_type(path, label, kind)
        if self._schema.id_column is not None:
            types[self._schema.id_column] = pa.string()
        if self._schema.weight is not None:
            types[self._schema.weight] = pa.float32()
        return types

    def _label_type(self, path: Path, label: str, inferred: pa.DataType) -> pa.DataType:
        """Numbers as float64; whole numbers that float64 does not tell apart as text, in which they are exact."""
        if not (pa.types.is_integer(inferred) or pa.types.is_floating(inferred)):
            return pa.dictionary(pa.int32(), pa.string())
        if pa.types.is_floating(inferred) or self._largest(path, label) < LARGEST_LABEL:
            return pa.float64()
        return pa.dictionary(pa.int32(), pa.string())

    def _largest(self, path: Path, column: str) -> float:
        """The largest absolute value of a column of whole numbers in the head of the file."""
        head = self._heads[path]
        whole_lines = io.BytesIO(head[: head.rfind(b"\n") + 1])
        converting = pacsv.ConvertOptions(null_values=NULLS, include_columns=[column])
        options = self._reading(self._dialects[path], max(BLOCK, len(head)))
        options["parse_options"].invalid_row_handler = lambda row: "skip"
        values = pacsv.read_csv(whole_lines, convert_options=converting, **options).column(0).drop_null()
        return float(np.abs(values.to_numpy().astype(np.float64)).max(initial=0.0))

    def _census(self, paths: tuple[Path, ...]) -> dict[str, ValueCensus]:
        """The distinct values of categorical columns over all files."""
        found = self._schema.censuses()
        for path in paths if found else ():
            with Input(path) as stream:
                count_values(self._tables(stream, list(found), SourceFile(str(path))), found, str(path))
        return found

    def _samples(self, path: Path) -> JsonObject:
        """The values of each column in the head of the file, numbers and dates as pyarrow takes them for."""
        head = self._heads[path]
        options = self._reading(self._dialects[path], max(BLOCK, len(head)))
        options["parse_options"].invalid_row_handler = lambda row: "skip"
        converting = pacsv.ConvertOptions(null_values=NULLS, strings_can_be_null=True)
        table = pacsv.read_csv(io.BytesIO(head[: head.rfind(b"\n") + 1]), convert_options=converting, **options)
        columns = zip(table.column_names, table.columns, strict=True)
        return {name: column.slice(0, SAMPLE_ROWS).combine_chunks() for name, column in columns}

    def _tables(self, stream: Input, needed: list[str], file: SourceFile) -> Iterator[pa.RecordBatch]:
        """Batches of the needed columns; ``file.position`` must count those that were taken."""
        converting = pacsv.ConvertOptions(
            include_columns=needed,
            column_types={name: self._types[name] for name in needed},
            null_values=NULLS,
            strings_can_be_null=True,
        )
        block = max(BLOCK, min(LONGEST_BLOCK, 4 * self._heads[stream.path].find(b"\n")))
        reading = self._reading(self._dialects[stream.path], block)
        source = pa.PythonFile(self._sifted(stream, converting), mode="r")
        try:
            with closing(pacsv.open_csv(source, convert_options=converting, **reading)) as reader:
                yield from ahead(reader)
        except pa.ArrowInvalid as error:
            if stream.failure is not None:
                raise stream.failure from error
            raise self._fault(stream.path, file.position, self._expected) or _unexplained(stream.path, error) from error
        if not stream.ends_line and not self._options.allow_no_final_newline:
            raise DataError(f"the last line of {stream.name} has no line feed", code="E-TRUNCATED", hint=NO_NEWLINE)

    def _sifted(self, stream: Input, converting: Any) -> Any:
        """The stream, or what is good of it."""
        if self._options.on_bad_line == "error":
            return stream
        return Sieve(stream, self._dialects[stream.path], self._expected, converting, self._options.rejects)

    def _reading(self, dialect: Dialect, block: int) -> ByName:
        return {
            "read_options": pacsv.ReadOptions(
                use_threads=False, block_size=block, skip_rows=dialect.skipped, column_names=list(dialect.names)
            ),
            "parse_options": pacsv.ParseOptions(
                delimiter=dialect.delimiter, newlines_in_values=self._options.multiline
            ),
        }

    def _fault(self, path: Path, rows: int, columns: Columns) -> DataError | None:
        """What is wrong after ``rows`` good rows, as far as reading line by line can tell."""
        with Input(path) as stream:
            try:
                last_line = self._options.allow_no_final_newline
                return find_fault(stream, self._dialects[path], columns, rows, last_line=last_line)
            except DataError as error:
                return error

    @property
    def _expected(self) -> Columns:
        numbers = frozenset(name for name, kind in self._types.items() if pa.types.is_floating(kind))
        text = frozenset(
            c.name for c in self._schema.columns if c.kind in (CATEGORY, HASHED, AMOUNT, BOOLEAN) or c.form
        )
        return Columns(
            numbers,
            text,
            self._schema.label,
            missing=self._options.missing != "error",
            multiline=self._options.multiline,
            skip_unlabeled=self._options.missing_label == "skip",
        )


def _head(path: Path) -> bytes:
    with Input(path) as stream:
        head = stream.read(HEAD)
        while b"\n" not in head and not head.startswith(UTF16_MARKS) and (more := stream.read(HEAD)):
            head += more
            if len(head) > LONGEST_BLOCK:
                break
    return head


def _unexplained(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} cannot be read: {quote(str(error), 160)}", code="E-PARSE", hint="check it near that place"
    )
