"""JSON lines as a source: each line is an object whose keys are the columns. pyarrow parses blocks of whole lines.

If pyarrow cannot parse a block, its lines are parsed and checked one by one, so that an error names the line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from streamsvm.errors import DataError, quote
from streamsvm.store.sources.byte_stream import CHARSET_HINT, Input, is_utf8, line_blocks, text_notices_of
from streamsvm.store.sources.cell_parsing import BadCell
from streamsvm.store.sources.csv_faults import LINE_HINT
from streamsvm.store.sources.encoding import TableEncoder, unreadable_rows
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.read_ahead import map_in_order
from streamsvm.store.sources.schema import Schema
from streamsvm.store.sources.source import SourceFile
from streamsvm.store.sources.table import NARROW, TableSource
from streamsvm.store.sources.vectors import is_vector_type
from streamsvm.type_aliases import JsonMapping, JsonObject

HEAD = 1 << 20
"""Bytes of whole lines from which the columns and their types are inferred."""
BLOCK = 1 << 20
"""Bytes of lines that are parsed at a time."""
SIGNED, UNSIGNED = np.iinfo(np.int64), np.iinfo(np.uint64)
MISSING_WORD, LARGE_WHOLE, VECTOR = "missing", "large", "vector"
"""Kinds of values that are counted in place of their Python type: a word for a missing number, an integer that only
uint64 can hold, and a list of numbers."""
HINT_LINE = f"every line is one JSON object: {LINE_HINT}"
HINT_ARRAY = "; jq -c '.[]' FILE > rows.jsonl makes lines of an array"


class JSONLinesSource(TableSource):
    """Files of JSON lines. The columns are the keys of the first rows; a key that a row lacks is a missing value."""

    format_name = "jsonl"
    counts_lines = True
    hashes_as_it_reads = True

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        self._keeps_bad_rows = False
        """Whether rows whose values have the types of their columns, but cannot be encoded, are kept."""
        self._file_types: dict[Path, dict[str, pa.DataType]] = {}
        recorded = ((options.encoding or {}).get("schema") or {}).get("label")
        self._exact_columns = {options.label or recorded, options.id_column}
        super().__init__(paths, options)

    def record_batches(self, columns: Sequence[str] = ()) -> Generator[pa.RecordBatch]:
        """Yield record batches of the given columns (default: all), including rows that cannot be encoded."""
        self._keeps_bad_rows = True
        try:
            yield from super().record_batches(columns)
        finally:
            self._keeps_bad_rows = False

    def read_encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, as plain JSON."""
        encoding = super().read_encoding()
        if self._options.charset is not None:
            encoding["options"] = {**encoding.get("options", {}), "charset": self._options.charset}
        return encoding

    def _types(self, path: Path) -> dict[str, pa.DataType]:
        if path not in self._file_types:
            self._file_types[path] = self._infer_types(path)
        return self._file_types[path]

    def _infer_types(self, path: Path) -> dict[str, pa.DataType]:
        """Return the types of the columns, inferred from the first lines."""
        with Input(path, self._options.charset) as stream:
            head = next(line_blocks(stream, HEAD, allow_no_final_newline=True), b"")
        rows = [row for _, row in _objects(head, str(path), 0, skip=self._options.on_bad_line == "skip")]
        if not rows:
            list(_objects(head, str(path), 0, skip=False))  # raises the error of the first line, if all are bad
            raise DataError(f"{path} holds no rows", code="E-EMPTY", hint="check that it is the right file")
        key_kinds: dict[str, Counter[type | str]] = {}
        for row in rows:
            for key, value in row.items():
                key_kinds.setdefault(key, Counter())[self._kind_of(value)] += 1
        return {key: _type_of(kinds, key, str(path)) for key, kinds in key_kinds.items()}

    def _kind_of(self, value: Any) -> type | str:
        """Return what a value counts as: its type, or a word that says more."""
        if self._is_missing(value):
            return MISSING_WORD
        if _is_unsigned(value):
            return LARGE_WHOLE
        return VECTOR if _is_vector(value) else type(value)

    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        types = self._table_types
        schema = pa.schema([(name, self._read_as(name, types[name])) for name in columns])
        number = 0
        with Input(path, self._options.charset) as stream:
            file.compression = stream.compression
            lines = line_blocks(stream, BLOCK, allow_no_final_newline=self._options.allow_no_final_newline)
            for block, parsed in self._parse_blocks(lines, schema):
                table = self._check_lines(block, schema, str(path), number) if parsed is None else parsed
                if parsed is not None and self._options.on_bad_line == "skip" and not self._keeps_bad_rows:
                    table = self._without_bad_rows(parsed, block, str(path), number)
                number += (lines_read := block.count(b"\n"))
                self._options.rejects.lines_read += lines_read
                yield from table.to_batches(max_chunksize=rows)
                file.read = stream.disk_position
            file.text_notices, file.sha256 = text_notices_of(stream), stream.sha256

    def _read_as(self, name: str, kind: pa.DataType) -> pa.DataType:
        """Return the type in which a column is parsed: float64 for integers, since later rows may have fractions,
        except for labels and ids, which must stay exact.
        """
        if is_vector_type(kind):  # of any length, so that the error for a wrong length can name the line
            return pa.list_(pa.float64())
        return pa.float64() if pa.types.is_integer(kind) and name not in self._exact_columns else kind

    def _parse_blocks(self, lines: Generator[bytes], schema: pa.Schema) -> Iterator[tuple[bytes, pa.Table | None]]:
        """Yield blocks with their rows, None for a block that cannot be parsed. Unless the table is wide, idle threads
        parse blocks in advance.
        """
        parse = partial(_parse_block, schema=schema)
        with closing(lines):
            yield from (
                map_in_order(parse, lines) if len(schema) <= NARROW else ((block, parse(block)) for block in lines)
            )

    def _check_lines(self, block: bytes, schema: pa.Schema, where: str, lines_before: int) -> pa.Table:
        """Return the rows of a block whose lines are parsed and checked one by one; ``lines_before``: the number of lines above it."""
        good: list[JsonMapping] = []
        columns = [field.name for field in schema if not pa.types.is_string(field.type)]
        for number, parsed in _objects(block, where, lines_before, skip=False, reject=self._reject):
            row = {**parsed, **{name: None for name in columns if self._is_missing(parsed.get(name))}}
            try:
                _check_row(row, schema, f"{where} line {number}")
                good.append({name: row.get(name) for name in schema.names})
            except DataError as error:
                self._reject(where, number, error)
        return pa.Table.from_pylist(good, schema)

    def _is_missing(self, value: Any) -> bool:
        """Return whether a value is a word that stands for a missing number or boolean."""
        return isinstance(value, str) and self._options.words.has(value.strip(), number=True)

    def _without_bad_rows(self, table: pa.Table, block: bytes, where: str, lines_before: int) -> pa.Table:
        """Return the rows of a parsed block that can be encoded, and reject the others; all rows if there is no schema
        yet.

        ``lines_before``: the number of lines above the block.
        """
        full_schema: Schema | None = getattr(self, "schema", None)
        if full_schema is None:
            return table
        columns = [c for c in full_schema.columns if not c.parts and c.name in table.column_names]
        missing, words = self._options.missing != "error", self._options.words
        label, weight = (
            name if name in table.column_names else None for name in (full_schema.label, full_schema.weight)
        )
        schema = Schema(tuple(columns), label, weight, documents=full_schema.documents)
        suspect = unreadable_rows(table, columns, words, missing=missing)
        if schema.label is not None and self._options.missing_label != "skip":
            suspect |= table.column(schema.label).is_null().to_numpy()
        if schema.weight is not None and not pa.types.is_string(table.schema.field(schema.weight).type):
            suspect |= ~(table.column(schema.weight).cast(pa.float64(), safe=False).to_numpy() >= 0)
        suspect_rows = np.flatnonzero(suspect)
        line_numbers = [number for number, line in enumerate(block.split(b"\n"), lines_before + 1) if line.strip()]
        if not len(suspect_rows) or len(line_numbers) != table.num_rows:
            return table
        bad = {
            int(row): fault for row in suspect_rows if (fault := self._find_fault(table, schema, int(row))) is not None
        }
        for row, cell in bad.items():
            place = f"{where} line {line_numbers[row]}, column {quote(cell.column)}: {cell.text}"
            self._reject(where, line_numbers[row], DataError(place, code=cell.code, hint=cell.hint))
        kept = [row for row in range(table.num_rows) if row not in bad]
        return table.take(pa.array(kept, pa.int64()))

    def _find_fault(self, table: pa.Table, schema: Schema, row: int) -> BadCell | None:
        """Return the bad value of one row of a table; None if the row can be encoded."""
        (batch,) = table.slice(row, 1).combine_chunks().to_batches()
        encoder = TableEncoder(schema, Counter(), self._options)
        try:
            encoder.encode(batch)
        except BadCell as cell:
            return cell
        return None

    def _reject(self, where: str, number: int, error: DataError) -> None:
        """Record a bad line as left out; raise its error if bad lines are not to be left out."""
        if self._options.on_bad_line != "skip":
            raise error
        self._options.rejects.add(where, number, error)


def first_keys(path: Path, charset: str | None = None) -> list[str]:
    """Return the keys of the first object of a file. ``charset``: the encoding of its text, if it is not UTF-8."""
    with Input(path, charset) as stream:
        head = next(line_blocks(stream, HEAD, allow_no_final_newline=True), b"")
    return list(next((row for _, row in _objects(head, str(path), 0, skip=True)), {}))


def _parse_block(block: bytes, schema: pa.Schema) -> pa.Table | None:
    """Return the rows of a block; None if pyarrow cannot parse it, or if it is not UTF-8, which pyarrow does not check."""
    if not is_utf8(block):
        return None
    parsing = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = pajson.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        return pajson.read_json(pa.BufferReader(block), reading, parsing).select(schema.names)
    except (pa.ArrowInvalid, KeyError):
        return None


def _objects(
    block: bytes, where: str, lines_before: int, *, skip: bool, reject: Any = None
) -> Iterator[tuple[int, JsonMapping]]:
    """Yield number and object of each line that is not empty; ``lines_before``: the number of lines above the block.

    A bad line is passed to ``reject`` if that is given, left out with ``skip``, else raises DataError E-PARSE,
    E-ENCODING.
    """
    for number, line in enumerate(block.split(b"\n"), lines_before + 1):
        if not line.strip():
            continue
        try:
            yield number, _object(line, f"{where} line {number}")
        except DataError as error:
            if reject is not None:
                reject(where, number, error)
            elif not skip:
                raise


def _object(line: bytes, place: str) -> JsonMapping:
    try:
        parsed = json.loads(line)
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not UTF-8", code="E-ENCODING", hint=CHARSET_HINT) from error
    except (ValueError, RecursionError) as error:
        spans_lines = line.lstrip().startswith(b"[") or line.strip() == b"{"
        hint = f"{HINT_LINE}{HINT_ARRAY if spans_lines else ''}"
        raise DataError(f"{place}: no JSON: {quote(str(error), 120)}", code="E-PARSE", hint=hint) from error
    if not isinstance(parsed, dict):
        hint = f"{HINT_LINE}{HINT_ARRAY if isinstance(parsed, list) else ''}"
        raise DataError(f"{place}: {quote(line.decode(errors='replace'), 40)} is no object", code="E-PARSE", hint=hint)
    return parsed


def _is_unsigned(value: Any) -> bool:
    return isinstance(value, int) and value > SIGNED.max


def _is_vector(value: Any) -> bool:
    """Return whether a value is a list of numbers, some of which may be null."""
    return isinstance(value, list) and all(
        number is None or (isinstance(number, int | float) and not isinstance(number, bool)) for number in value
    )


def _type_of(kinds: Counter[type | str], key: str, where: str) -> pa.DataType:
    """Return the type of most values of a column, where all numbers count as one type. Raises DataError E-DTYPE for
    objects and lists of other things than numbers.
    """
    numbers = kinds[int] + kinds[LARGE_WHOLE] + kinds[float]
    texts = kinds[str] + (kinds[MISSING_WORD] if kinds[str] or not (numbers or kinds[bool]) else 0)
    other = kinds[dict] + kinds[list]
    counts: dict[type, int] = {float: numbers, bool: kinds[bool], str: texts, list: kinds[VECTOR], dict: other}
    most = max(counts, key=lambda kind: counts[kind])
    if most is dict:
        what = "objects" if kinds[dict] else "lists that are no vectors of numbers"
        hint = "write one value per key: jq -c '{a: .a, b: .c.d}' FILE > rows.jsonl"
        raise DataError(f"column {quote(key)} of {where} holds {what}", code="E-DTYPE", hint=hint)
    if not any(counts.values()):
        return pa.null()
    if most is list:
        return pa.list_(pa.float64())
    if most is float:
        if kinds[float]:
            return pa.float64()
        return pa.uint64() if kinds[LARGE_WHOLE] else pa.int64()
    return pa.bool_() if most is bool else pa.string()


def _check_row(row: JsonMapping, schema: pa.Schema, place: str) -> None:
    """Raise DataError E-RANGE or E-PARSE for a value that is not of the type of its column."""
    for field in schema:
        value = row.get(field.name)
        expected = _python_types(field.type)
        if isinstance(value, int) and pa.types.is_integer(field.type):
            limits = UNSIGNED if pa.types.is_unsigned_integer(field.type) else SIGNED
            if not limits.min <= value <= limits.max:
                message = f"{place}, column {quote(field.name)}: {value} does not fit {field.type}, the type of the first rows"
                raise DataError(message, code="E-RANGE", hint="write such numbers as text")
        if value is not None and (
            not (_is_vector(value) if expected == (list,) else isinstance(value, expected))
            or (isinstance(value, bool) and bool not in expected)
        ):
            content = f"expected {_noun(field.type)}, found {quote(json.dumps(value), 40)}"
            raise DataError(f"{place}, column {quote(field.name)}: {content}", code="E-PARSE", hint=LINE_HINT)


def _python_types(kind: pa.DataType) -> tuple[type, ...]:
    if pa.types.is_string(kind):
        return (str,)
    if pa.types.is_boolean(kind):
        return (bool,)
    if is_vector_type(kind):
        return (list,)
    return (int,) if pa.types.is_integer(kind) else (int, float)


def _noun(kind: pa.DataType) -> str:
    if pa.types.is_string(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "true or false"
    if is_vector_type(kind):
        return "a vector of numbers"
    return "a whole number, as in the first rows" if pa.types.is_integer(kind) else "a number"
