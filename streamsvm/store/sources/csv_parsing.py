"""Parse CSV text with pyarrow: blocks of lines to record batches, and the types of columns from the head of a file.

pyarrow gets blocks of memory instead of files, because it reads files in threads of its own, and such a thread aborts
the program if it still calls Python code at exit. Wide tables are converted some columns at a time, because pyarrow
keeps, for each column, tables of all words for a missing value, some 5 KiB.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from streamsvm.rows import Float64
from streamsvm.store.format.labels import LARGEST_LABEL
from streamsvm.store.sources.byte_stream import UTF16_MARKS, Input, end_of_last_row
from streamsvm.store.sources.cell_parsing import NUMBER_WORDS, Arrow, MissingWords, is_text
from streamsvm.store.sources.csv_dialect import Dialect
from streamsvm.store.sources.read_ahead import map_in_order
from streamsvm.store.sources.schema_inference import LEADING_ZERO, Samples
from streamsvm.store.sources.svmlight import NUMBER_PATTERN
from streamsvm.type_aliases import ValuesByName

TEXT = pa.dictionary(pa.int32(), pa.string())
"""The type of a column of text."""
GROUP = 4096
"""The number of columns that are converted at a time."""


def parsing_options(dialect: Dialect, block: int, *, multiline: bool, skip: bool = False) -> ValuesByName:
    """Return pyarrow's options for a dialect; ``skip``: whether lines with another number of values are left out."""
    parsing = pacsv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=multiline)
    if skip:
        parsing.invalid_row_handler = lambda _: "skip"
    return {
        "read_options": pacsv.ReadOptions(
            use_threads=False, block_size=block, skip_rows=dialect.skipped, column_names=list(dialect.names)
        ),
        "parse_options": parsing,
    }


class Conversion(NamedTuple):
    """The conversion of a group of columns by pyarrow."""

    options: pacsv.ConvertOptions
    words: pa.Array
    """The words for a missing value in columns of text."""


def group_conversions(
    names: Sequence[str], types: Mapping[str, pa.DataType] | None = None, words: MissingWords | None = None
) -> list[Conversion]:
    """Return the conversions of columns, in groups of ``GROUP``; without ``types``, pyarrow infers them."""
    groups = [list(names[start : start + GROUP]) for start in range(0, len(names), GROUP)]
    words = words or MissingWords()
    in_text = pa.array(words.in_text, pa.string())
    return [
        Conversion(
            pacsv.ConvertOptions(
                include_columns=group,
                column_types=None if types is None else {name: types[name] for name in group},
                null_values=words.in_numbers,
                strings_can_be_null=False,  # words for missing numbers may be values of text
            ),
            in_text,
        )
        for group in groups
    ]


def parse_block(block: bytes, options: ValuesByName, converting: Sequence[Conversion]) -> pa.Table:
    """Return the rows of a block of whole rows, which may begin with the lines that ``options`` skip.

    Text is trimmed, and null if it is a word for a missing value. Raises pyarrow's ArrowInvalid.
    """
    shared = options["read_options"]
    block_options = pacsv.ReadOptions(  # a new object, because other threads parse other blocks
        use_threads=False, block_size=len(block) + 1, skip_rows=shared.skip_rows, column_names=shared.column_names
    )
    options, tables = {**options, "read_options": block_options}, []
    for group in converting:
        table = pacsv.read_csv(pa.BufferReader(block), convert_options=group.options, **options)
        for place, field in enumerate(table.schema):
            if is_text(field.type):
                column = table.column(place)
                trimmed = [_trim(chunk, group.words) for chunk in column.chunks]
                if any(new is not old for new, old in zip(trimmed, column.chunks, strict=True)):
                    table = table.set_column(place, field, pa.chunked_array(trimmed, field.type))
        tables.append(table)
    if len(tables) == 1:
        return tables[0]
    columns = [column for table in tables for column in table.columns]
    return pa.table(columns, names=[name for table in tables for name in table.column_names])


def _trim(values: Arrow, words: pa.Array) -> Arrow:
    """Return a column of text trimmed, with ``words`` replaced by null; the same object if nothing changes."""
    texts = values.dictionary if pa.types.is_dictionary(values.type) else values
    trimmed = pc.utf8_trim_whitespace(texts)
    missing = pc.is_in(trimmed, value_set=words)
    if trimmed.equals(texts) and not pc.any(missing).as_py():
        return values
    trimmed = pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)
    if texts is values:
        return trimmed
    distinct = trimmed.drop_null().unique()
    places = pc.index_in(trimmed, value_set=distinct, skip_nulls=True)
    return pa.DictionaryArray.from_arrays(places.take(values.indices), distinct)


def parse_blocks(
    blocks: Generator[bytes | pa.Table], options: ValuesByName, converting: Sequence[Conversion], *, together: bool
) -> Generator[pa.RecordBatch]:
    """Yield the rows of the blocks of a file, in order; blocks may be parsed already; ``together``: whether idle threads parse blocks in advance.

    Raises pyarrow's ArrowInvalid in the place of its block, and what the blocks raise.
    """
    skipped, multiline = options["read_options"].skip_rows, options["parse_options"].newlines_in_values
    later_options = {**options, "read_options": pacsv.ReadOptions(column_names=options["read_options"].column_names)}

    def parse(item: tuple[int, bytes | pa.Table]) -> pa.Table:
        number, block = item
        if not isinstance(block, bytes):
            return block
        table = parse_block(block, later_options if number else options, converting)
        if not multiline and b'"' in block:
            _check_lines(block, table.num_rows + (0 if number else skipped))
        return table

    with closing(blocks):
        numbered = enumerate(blocks)
        tables = map_in_order(parse, numbered) if together else ((item, parse(item)) for item in numbered)
        with closing(tables):
            for _, table in tables:
                yield from table.to_batches()


def _check_lines(block: bytes, rows: int) -> None:
    """Raise ArrowInvalid if a row spans several lines; pyarrow would notice it only at the end of a block."""
    if block.count(b"\n") == rows:
        return
    if sum(1 for line in block.split(b"\n") if line.strip(b"\r")) > rows:
        raise pa.ArrowInvalid("a value in quotes holds a line feed")


HEAD = 1 << 20
BLOCK = 1 << 20
"""Bytes of text that pyarrow parses at a time, in the calling thread; two threads of its own would take half as much
processor time again. Their rows are a batch.
"""
SAMPLE_ROWS = 5000
"""Rows from whose values the kind of a column is inferred."""
HEAD_LINES = 16
"""The least number of lines from which kinds are inferred in a wide table, unless they exceed ``LONGEST_HEAD``."""
LONGEST_HEAD, LONGEST_LINE = 4 << 20, 64 << 20
"""The most bytes of a head of several lines, and of one line."""
CHECKED_VALUES = 1000
"""The values of a column that are checked for being numbers."""
NUMBERS_SHARE = 0.9
"""The share of numbers above which a column of text counts as numbers."""
BYTES_PER_COLUMN = 256
"""The least bytes of a block per column, so that the cost of a block and a column is shared by tens of rows."""


def read_head(path: Path, *, multiline: bool = False, charset: str | None = None) -> bytes:
    """Return the first bytes of a file, with at least one whole line unless it is too long.

    ``multiline``: whether values in quotes may hold line feeds; the head then has at least two whole rows. Raises what
    ``Input`` raises.
    """
    with Input(path, charset) as stream:
        pieces = [stream.read(HEAD)]
        if pieces[0].startswith(UTF16_MARKS):
            return pieces[0]
        lines, length = pieces[0].count(b"\n"), len(pieces[0])
        while lines < HEAD_LINES and length <= (LONGEST_HEAD if lines else LONGEST_LINE) and pieces[-1]:
            pieces.append(stream.read(HEAD))
            lines, length = lines + pieces[-1].count(b"\n"), length + len(pieces[-1])
        content = b"".join(pieces)
        while (
            multiline
            and pieces[-1]
            and len(content) <= LONGEST_LINE
            and content.count(b"\n", 0, end_of_last_row(content)) < 2
        ):
            pieces = [content, stream.read(max(HEAD, len(content)))]
            content = b"".join(pieces)
    return content


def has_multiline_values(head: bytes, dialect: Dialect) -> bool:
    """Return whether values in quotes hold line feeds: those of the first rows that do have a value for each column."""
    rows = head[: end_of_last_row(head)]
    if not any(line.count(b'"') % 2 for line in rows.split(b"\n")):
        return False
    text = rows.decode(errors="replace").split("\n", dialect.skipped)[-1]
    try:
        read = csv.reader(io.StringIO(text, newline=""), delimiter=dialect.delimiter)
        widths = {len(row) for row in read if any("\n" in value for value in row)}
    except csv.Error:  # a value of more than 128 KiB
        return False
    return widths == {len(dialect.names)}


def block_bytes(columns: int) -> int:
    """Return the bytes of text that are parsed at a time for a table with ``columns`` columns."""
    return max(BLOCK, BYTES_PER_COLUMN * columns)


class Head(NamedTuple):
    """The first bytes of a file, from which the types of its columns are inferred."""

    content: bytes
    dialect: Dialect
    multiline: bool
    """Whether values in quotes may hold line feeds."""
    words: MissingWords = MissingWords()

    @property
    def lines(self) -> bytes:
        """The whole lines in the first bytes, or the whole rows if values may hold line feeds."""
        return (
            self.content[: end_of_last_row(self.content)]
            if self.multiline
            else self.content[: self.content.rfind(b"\n") + 1]
        )

    def types(self, *, skip: bool) -> dict[str, pa.DataType]:
        """Return the types of the columns that pyarrow infers; ``skip``: whether bad lines are left out, and the
        majority of the values decides. Raises pyarrow's ArrowInvalid.
        """
        types: dict[str, pa.DataType] = {}
        for table in self._tables(self.dialect.names, skip=skip):
            types |= _types_of(table, skip=skip)
        return types

    def has_empty_column(self) -> bool:
        """Return whether a column has no value in any of these lines."""
        try:
            return any(
                pa.types.is_null(kind)
                for table in self._tables(self.dialect.names, skip=True)
                for kind in table.schema.types
            )
        except pa.ArrowInvalid:  # ``types`` raises the error
            return False

    def append_lines(self, content: bytes) -> Head:
        """Return the head with the lines of ``content``, the head of another file of the same dialect, appended."""
        whole_lines = self.content[: self.content.rfind(b"\n") + 1]
        other_lines = content.split(b"\n")[self.dialect.skipped :]
        return self._replace(content=whole_lines + b"\n".join(other_lines))

    def samples(self) -> Samples:
        """Return the first values of each column, of the types that pyarrow infers."""
        return Samples(self.dialect.names, GROUP, self._first_values)

    def label_type(self, label: str, *, skip: bool) -> pa.DataType:
        """Return the type as which labels are parsed: float64 for numbers, but text for integers that float64 would
        round.

        ``skip``: whether bad lines are left out, and the majority of the values decides.
        """
        (table,) = self._tables([label], skip=True)
        inferred, values = _types_of(table, skip=skip)[label], table.column(0).drop_null()
        if not (pa.types.is_integer(inferred) or pa.types.is_floating(inferred)):
            return TEXT
        numbers = numbers_among(values) if len(values) else np.empty(0)
        if float(np.abs(numbers).max(initial=0.0)) < LARGEST_LABEL:
            return pa.float64()
        return TEXT if pa.types.is_integer(inferred) or self._are_integers(label) else pa.float64()

    def _are_integers(self, label: str) -> bool:
        """Return whether all labels are written as integers; pyarrow infers float64 for those that do not fit int64."""
        (conversion,) = group_conversions([label], {label: TEXT}, self.words)
        table = parse_block(
            self.lines, parsing_options(self.dialect, BLOCK, multiline=self.multiline, skip=True), [conversion]
        )
        texts = pc.unique(table.column(0).combine_chunks().dictionary_decode()).to_pylist()
        return all(text is None or text.lstrip("+-").isdigit() for text in texts)

    def _first_values(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the first values of at most ``GROUP`` columns, by name."""
        (table,) = self._tables(names, skip=True)
        columns = zip(table.column_names, table.columns, strict=True)
        return {name: column.slice(0, SAMPLE_ROWS).combine_chunks() for name, column in columns}

    def _tables(self, names: Sequence[str], *, skip: bool) -> Iterator[pa.Table]:
        """Yield some columns of the whole lines, ``GROUP`` at a time; ``skip``: whether bad lines are left out."""
        options = parsing_options(self.dialect, BLOCK, multiline=self.multiline, skip=skip)
        lines = self.lines
        numbers: list[Any] = [None]
        if len(names) > 1 and len(self.dialect.names) > GROUP:
            numbers = group_conversions(names, dict.fromkeys(names, pa.float64()), self.words)
        for inferring, as_numbers in zip_longest(group_conversions(names, words=self.words), numbers):
            yield _parse_inferring(lines, options, inferring, as_numbers)


def _parse_inferring(
    lines: bytes, options: ValuesByName, inferring: Conversion, numbers: Conversion | None
) -> pa.Table:
    """Parse columns with inferred types, codes such as 01234 as text.

    ``numbers``, the conversion of all columns to numbers, is tried first, because it is seven times as fast.
    """
    if numbers is not None:
        try:
            return parse_block(lines, options, [numbers])
        except pa.ArrowInvalid:
            pass
    table = parse_block(lines, options, [inferring])
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    delimiter = re.escape(options["parse_options"].delimiter.encode())
    if not integers or not re.search(rb'(?:^|["\s]|%b)0[0-9]' % delimiter, lines):
        return table
    (as_text,) = group_conversions(integers, dict.fromkeys(integers, TEXT))
    codes = parse_block(lines, options, [as_text])
    for name in integers:
        column = codes.column(name).combine_chunks()
        if pc.any(pc.match_substring_regex(column.dictionary, LEADING_ZERO)).as_py():
            table = table.set_column(table.column_names.index(name), name, codes.column(name))
    return table


def _types_of(table: pa.Table, *, skip: bool) -> dict[str, pa.DataType]:
    """Return the types of columns, float64 for one without a value; ``skip``: whether the majority of the values
    decides.
    """
    if skip:
        return majority_types(table)
    columns = zip(table.schema, table.columns, strict=True)
    return {f.name: pa.float64() if f.type == pa.null() or _are_numbers(column) else f.type for f, column in columns}


def _are_numbers(column: Arrow) -> bool:
    """Return whether all values of a column of text are numbers, or words that stand for a missing number."""
    if not pa.types.is_string(column.type):
        return False
    distinct = column.unique().drop_null()
    others = distinct.filter(pc.invert(pc.is_in(distinct, value_set=pa.array(NUMBER_WORDS))))
    return len(distinct) > len(others) > 0 and len(numbers_among(others)) == len(others)


def majority_types(table: Arrow) -> dict[str, pa.DataType]:
    """Return the types of the columns of a table; float64 for text of which nearly all values are numbers."""
    types = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.slice(0, CHECKED_VALUES).drop_null()
        if pa.types.is_string(values.type):
            values = values.filter(pc.invert(pc.is_in(values, value_set=pa.array(NUMBER_WORDS))))
        is_mostly_numbers = pa.types.is_null(column.type) or (
            pa.types.is_string(column.type) and _share_of_numbers(values) > NUMBERS_SHARE
        )
        types[name] = pa.float64() if is_mostly_numbers else column.type
    return types


def _share_of_numbers(values: Arrow) -> float:
    return len(numbers_among(values)) / max(1, len(values))


def numbers_among(values: Arrow) -> Float64:
    """Return the values of a column that are numbers as float64; text that is not a number is left out."""
    if not pa.types.is_string(values.type):
        return values.to_numpy().astype(np.float64)
    texts = (text.strip() for text in values.to_pylist())
    return np.array([float(text) for text in texts if NUMBER_PATTERN.fullmatch(text)], np.float64)
