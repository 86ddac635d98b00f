"""What the head of a CSV file says of its columns: their types as pyarrow takes them, and their first values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.aliases import ByName
from streamsvm.store.format.labels import LARGEST_LABEL
from streamsvm.store.sources.csv.blocks import GROUP, TEXT, Conversion, conversions, parse, reading
from streamsvm.store.sources.csv.dialect import Dialect
from streamsvm.store.sources.csv.sieve import most_types, numbers_among
from streamsvm.store.sources.reading.input import Input
from streamsvm.store.sources.reading.lines import UTF16_MARKS, rows_end
from streamsvm.store.sources.table.cells import Arrow
from streamsvm.store.sources.table.layout.samples import Samples
from streamsvm.store.sources.table.missing_words import NUMBER_WORDS, MissingWords

HEAD = 1 << 20
BLOCK = 1 << 20
"""Bytes of text pyarrow takes at a time: a batch is what they hold. It parses them in one thread of ours: two threads of
its own cost half as much time again."""
SAMPLE_ROWS = 5000
"""Rows by which it is told what a column holds."""
HEAD_LINES = 16
"""Lines of a wide table by which at least it is told what a column holds, as far as they are in ``LONGEST_HEAD``."""
LONGEST_HEAD, LONGEST_LINE = 4 << 20, 64 << 20
"""Bytes."""
BLOCK_COLUMN = 256
"""Bytes of a block for each column: of a wide table some tens of rows share what a block and a column cost."""


def head_of(path: Path, *, multiline: bool = False) -> bytes:
    """Return the first bytes of a file, at least a whole line unless that is too long; ``multiline``: whole rows, at
    least two, whose values in quotes may hold line feeds. Raises what ``Input`` does.
    """
    with Input(path) as stream:
        pieces = [stream.read(HEAD)]
        if pieces[0].startswith(UTF16_MARKS):
            return pieces[0]
        lines, length = pieces[0].count(b"\n"), len(pieces[0])
        while lines < HEAD_LINES and length <= (LONGEST_HEAD if lines else LONGEST_LINE) and pieces[-1]:
            pieces.append(stream.read(HEAD))
            lines, length = lines + pieces[-1].count(b"\n"), length + len(pieces[-1])
        content = b"".join(pieces)
        while (
            multiline and pieces[-1] and len(content) <= LONGEST_LINE and content.count(b"\n", 0, rows_end(content)) < 2
        ):
            pieces = [content, stream.read(max(HEAD, len(content)))]
            content = b"".join(pieces)
    return content


def block_bytes(columns: int) -> int:
    """Return how much text of so many columns is parsed at a time, in bytes."""
    return max(BLOCK, BLOCK_COLUMN * columns)


class Head(NamedTuple):
    """The first bytes of a file, and how its lines are cut."""

    content: bytes
    """The bytes."""
    dialect: Dialect
    """How the lines are cut."""
    multiline: bool
    """Whether values in quotes may hold line feeds."""
    words: MissingWords = MissingWords()
    """The words for a missing value."""

    @property
    def _lines(self) -> bytes:
        """The whole lines of the first bytes, or their whole rows."""
        return (
            self.content[: rows_end(self.content)] if self.multiline else self.content[: self.content.rfind(b"\n") + 1]
        )

    def types(self, *, skip: bool) -> dict[str, pa.DataType]:
        """Return what pyarrow takes the columns for; ``skip``: as most values say. Raises pyarrow's ArrowInvalid."""
        found: dict[str, pa.DataType] = {}
        for table in self._tables(self.dialect.names, skip=skip):
            found |= _types_of(table, skip=skip)
        return found

    def without_values(self) -> bool:
        """Return whether a column has no value in any of these lines."""
        try:
            return any(
                pa.types.is_null(kind)
                for table in self._tables(self.dialect.names, skip=True)
                for kind in table.schema.types
            )
        except pa.ArrowInvalid:  # it is said when the types are asked for
            return False

    def and_lines_of(self, content: bytes) -> Head:
        """Return these lines and those of another file of the same dialect, of which these are the first bytes."""
        mine, lines = self.content[: self.content.rfind(b"\n") + 1], content.split(b"\n")[self.dialect.skipped :]
        return self._replace(content=mine + b"\n".join(lines))

    def samples(self) -> Samples:
        """Return the first values of each column, numbers and dates as pyarrow takes them for."""
        return Samples(self.dialect.names, GROUP, self._first_values)

    def label_type(self, label: str, *, skip: bool) -> pa.DataType:
        """Return the type labels are read as: numbers as float64; whole numbers that float64 does not tell apart as
        text, in which they are exact. ``skip``: as most values say.
        """
        (table,) = self._tables([label], skip=True)
        inferred, values = _types_of(table, skip=skip)[label], table.column(0).drop_null()
        if not (pa.types.is_integer(inferred) or pa.types.is_floating(inferred)):
            return TEXT
        numbers = numbers_among(values) if len(values) else np.empty(0)
        if float(np.abs(numbers).max(initial=0.0)) < LARGEST_LABEL:
            return pa.float64()
        return TEXT if pa.types.is_integer(inferred) or self._whole(label) else pa.float64()

    def _whole(self, label: str) -> bool:
        """Whether all labels are written as whole numbers: those beyond 64 bits with a sign are told as fractions."""
        (told,) = conversions([label], {label: TEXT}, self.words)
        table = parse(self._lines, reading(self.dialect, BLOCK, multiline=self.multiline, skip=True), [told])
        texts = pc.unique(table.column(0).combine_chunks().dictionary_decode()).to_pylist()
        return all(text is None or text.lstrip("+-").isdigit() for text in texts)

    def _first_values(self, names: Sequence[str]) -> dict[str, Any]:
        """The first values of at most ``GROUP`` columns, by name."""
        (table,) = self._tables(names, skip=True)
        columns = zip(table.column_names, table.columns, strict=True)
        return {name: column.slice(0, SAMPLE_ROWS).combine_chunks() for name, column in columns}

    def _tables(self, names: Sequence[str], *, skip: bool) -> Iterator[pa.Table]:
        """Some columns of the whole lines, ``GROUP`` of them at a time; ``skip``: as far as they are in order."""
        options = reading(self.dialect, BLOCK, multiline=self.multiline, skip=skip)
        lines = self._lines
        numbers: list[Any] = [None]
        if len(names) > 1 and len(self.dialect.names) > GROUP:
            numbers = conversions(names, dict.fromkeys(names, pa.float64()), self.words)
        for telling, taking in zip_longest(conversions(names, words=self.words), numbers):
            yield _told(lines, options, telling, taking)


def _told(lines: bytes, options: ByName, telling: Conversion, numbers: Conversion | None) -> pa.Table:
    """Columns of the types that pyarrow tells. Where there may be only numbers these are tried first: telling that takes
    seven times as long.
    """
    if numbers is not None:
        try:
            return parse(lines, options, [numbers])
        except pa.ArrowInvalid:
            pass
    return parse(lines, options, [telling])


def _types_of(table: pa.Table, *, skip: bool) -> dict[str, pa.DataType]:
    """The types of columns; one without a value may be one of numbers. ``skip``: as most values say."""
    if skip:
        return most_types(table)
    columns = zip(table.schema, table.columns, strict=True)
    return {f.name: pa.float64() if f.type == pa.null() or _are_numbers(column) else f.type for f, column in columns}


def _are_numbers(column: Arrow) -> bool:
    """Whether all values of a column of text are numbers, but for words that stand for a missing one among numbers."""
    if not pa.types.is_string(column.type):
        return False
    distinct = column.unique().drop_null()
    others = distinct.filter(pc.invert(pc.is_in(distinct, value_set=pa.array(NUMBER_WORDS))))
    return len(distinct) > len(others) > 0 and len(numbers_among(others)) == len(others)
