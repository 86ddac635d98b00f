"""CSV text with the lines left out that cannot be read.

Blocks are looked at whole. Of one that is not in order the values are read as text, and a look at all values of a column at
once tells which lines may be bad; these are looked at one by one. Where what is left is not in order either, the block is
halved until the halves are.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from copy import copy

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.errors import DataError
from streamsvm.rows import Float64
from streamsvm.store.sources.csv.blocks import TEXT, Conversion, conversions, parse, reading
from streamsvm.store.sources.csv.dialect import QUOTE, Dialect, decoded, without_comments
from streamsvm.store.sources.csv.faults import Columns, check_line
from streamsvm.store.sources.reading.input import Input
from streamsvm.store.sources.reading.lines import line_blocks, rows_end, whole_rows
from streamsvm.store.sources.rejects import Rejects
from streamsvm.store.sources.svmlight import faults as svmlight_faults
from streamsvm.store.sources.table.cells import Arrow
from streamsvm.store.sources.table.layout.columns import CATEGORY, NUMBER, Column
from streamsvm.store.sources.table.missing_words import NUMBER_WORDS
from streamsvm.store.sources.table.unreadable import unreadable_rows

FEW_LINES = 32
"""Lines that are looked at one by one in the time it takes to parse them twice."""
LOOKED_AT = 1000
NUMBERS_SHARE = 0.9
"""The share of values that must be numbers for a column to be one of numbers."""


class Sieve:
    """Blocks of the good lines of a stream; the others are noted in ``rejects``."""

    def __init__(
        self, stream: Input, dialect: Dialect, columns: Columns, converting: Sequence[Conversion], rejects: Rejects
    ) -> None:
        self._stream, self._dialect, self._columns = stream, dialect, columns
        self._converting, self._rejects = converting, rejects
        self._options = reading(dialect, 1, multiline=columns.multiline)
        self._options["read_options"].skip_rows = 0
        self._header = _header_again(dialect, columns)

    def blocks(self) -> Generator[bytes]:
        """Yield blocks of whole lines. Raises DataError where more lines are bad than are allowed."""
        number = 0
        read_blocks = line_blocks(self._stream)
        for read in whole_rows(read_blocks, self._stream.name) if self._columns.multiline else read_blocks:
            block = without_comments(read, self._columns.comment)
            lines = block.count(b"\n")
            self._rejects.read += lines
            content = b"".join(self._good_parts(block, number))
            number += lines
            if content:
                yield content

    def _in_order(self, block: bytes) -> bool:
        """Whether ``check_line`` would let each line of a block pass."""
        if not self._is_plain(block):
            return False
        try:
            table = parse(block, self._options, self._converting)
        except pa.ArrowInvalid:
            return False
        columns = zip(table.column_names, table.columns, strict=True)
        return all(_whole(column, missing=self._may_miss(name)) for name, column in columns) and not self._misread(
            table
        )

    def _misread(self, table: Arrow) -> bool:
        """Whether a text of a column of amounts, dates, yes or no means nothing, or a weight is negative."""
        weight, columns = (
            self._columns.weight,
            [c for name, c in self._columns.read.items() if name in table.column_names],
        )
        if weight in table.column_names and (pc.min(table.column(weight)).as_py() or 0) < 0:
            return True
        return bool(unreadable_rows(table, columns, self._columns.words, missing=True).any())

    def _may_miss(self, name: str) -> bool:
        if name == self._columns.label:
            return self._columns.skip_unlabeled
        return self._columns.missing or name not in self._columns.numbers | self._columns.text

    def _good_parts(self, block: bytes, before: int) -> Iterator[bytes]:
        """The good lines of a block after ``before`` lines of the file, whose first may be those that are skipped."""
        start = 0
        while before < self._dialect.skipped and start < len(block):
            start, before = block.index(b"\n", start) + 1, before + 1
        yield block[:start]
        yield from self._sifted(block[start:], before)

    def _sifted(self, block: bytes, before: int) -> Iterator[bytes]:
        """The good lines of some: all where they are in order, else of one half and then the other; of few one by one."""
        if self._in_order(block):
            yield block
        elif block.count(b"\n") <= FEW_LINES:
            yield self._good_lines(block, before)
        elif (good := self._without_suspects(block, before)) is not None:
            yield good
        else:
            half = block[: len(block) // 2]
            middle = rows_end(half) if self._columns.multiline else half.rfind(b"\n") + 1
            middle = middle or len(self._rows(block)[0]) + 1
            yield from self._sifted(block[:middle], before)
            yield from self._sifted(block[middle:], before + block.count(b"\n", 0, middle))

    def _without_suspects(self, block: bytes, before: int) -> bytes | None:
        """The good lines of a block in which bad ones can be told by a look at all values of a column at once; None where
        that leaves bad ones.
        """
        lines = self._rows(block)
        numbers = self._numbers(lines, before)
        suspects = self._odd_lines(lines)
        plain = [k for k, line in enumerate(lines) if k not in suspects and line.strip(b"\r")]
        read = self._as_text(b"".join(lines[k] + b"\n" for k in plain), len(plain))
        if read is None:
            return None
        table, whole = read
        suspects.update(plain[k] for k in np.flatnonzero(~whole))
        rows = np.flatnonzero(whole)
        suspects.update(plain[rows[k]] for k in np.flatnonzero(self._unreadable(table)))
        faults = {k: error for k in sorted(suspects) if (error := self._fault(lines[k], numbers[k])) is not None}
        good = b"".join(line + b"\n" for k, line in enumerate(lines) if k not in faults)
        if good and not self._in_order(good):
            return None
        for k, error in faults.items():
            self._rejects.add(self._stream.name, numbers[k], error)
        return good

    def _rows(self, block: bytes) -> list[bytes]:
        """The lines of a block, each that begins in a value joined to the one before."""
        lines = block.split(b"\n")[:-1]
        if not self._columns.multiline:
            return lines
        rows, row, inside = list[bytes](), list[bytes](), False
        for line in lines:
            row.append(line)
            inside ^= bool(line.count(b'"') % 2)
            if not inside:
                rows.append(b"\n".join(row))
                row = []
        return [*rows, b"\n".join(row)] if row else rows

    @staticmethod
    def _numbers(rows: list[bytes], before: int) -> list[int]:
        """The number of the first line of each row, after ``before`` lines."""
        return [before + 1 + n for n in np.cumsum([0, *(row.count(b"\n") + 1 for row in rows)])[:-1].tolist()]

    def _odd_lines(self, lines: list[bytes]) -> set[int]:
        """The lines that pyarrow may read in another way than line by line."""
        odd = {k for k, line in enumerate(lines) if line.count(b'"') % 2 or b"\0" in line or b"\r" in line[:-1]}
        header = self._header
        for k, line in enumerate(lines):
            try:
                text = line if header is None and line.isascii() else line.decode()
            except UnicodeDecodeError:
                odd.add(k)
                continue
            if header is not None and header.search(str(text).removesuffix("\r")):
                odd.add(k)
        return odd

    def _as_text(self, block: bytes, lines: int) -> tuple[Arrow, NDArray[np.bool_]] | None:
        """The columns of the lines of the right length, as text, and which lines these are; None where pyarrow does not
        read a row a line.
        """
        if not lines:
            return None
        names = [name for group in self._converting for name in group.options.include_columns]
        texts = conversions(names, dict.fromkeys(names, TEXT), self._columns.words)
        whole = np.ones(lines, np.bool_)
        parsing = copy(self._options["parse_options"])

        def skip(row: Arrow) -> str:
            if row.number is not None and row.number <= lines:
                whole[row.number - 1] = False
            return "skip"

        parsing.invalid_row_handler = skip
        try:
            table = parse(block, {**self._options, "parse_options": parsing}, texts)
        except pa.ArrowInvalid:
            return None
        return (table, whole) if table.num_rows == np.count_nonzero(whole) else None

    def _unreadable(self, table: Arrow) -> NDArray[np.bool_]:
        """Which rows of a table of text have a value that is not in order, as far as can be told at once."""
        found, columns = np.zeros(table.num_rows, np.bool_), self._columns
        for name in table.column_names:
            column = columns.read.get(name) or Column(name, NUMBER if name in columns.numbers else CATEGORY)
            found |= unreadable_rows(table, [column], columns.words, missing=self._may_miss(name))
            if name == columns.weight:
                found |= pc.starts_with(table.column(name).cast(pa.string()), "-").fill_null(False).to_numpy()
        return found

    def _fault(self, line: bytes, number: int) -> DataError | None:
        """What is wrong with a line; None where nothing is."""
        if line.strip(b"\r"):
            try:
                check_line(line.removesuffix(b"\r"), f"{self._stream.name} line {number}", self._dialect, self._columns)
            except DataError as error:
                return error
        return None

    def _is_plain(self, block: bytes) -> bool:
        """Whether nothing is in a block that pyarrow may read in another way than line by line."""
        try:
            text = decoded(block, self._stream.name)
        except DataError:
            return False
        if self._header is not None and self._header.search(text):
            return False
        return (
            self._columns.multiline or QUOTE not in text or not any(line.count(QUOTE) % 2 for line in text.split("\n"))
        )

    def _good_lines(self, block: bytes, before: int) -> bytes:
        good_lines = []
        lines = self._rows(block)
        for number, line in zip(self._numbers(lines, before), lines, strict=True):
            if (error := self._fault(line, number)) is not None:
                self._rejects.add(self._stream.name, number, error)
            else:
                good_lines.append(line + b"\n")
        return b"".join(good_lines)


def _header_again(dialect: Dialect, columns: Columns) -> re.Pattern[str] | None:
    """What finds the header line among the lines; None where no line can be taken for it, as numbers stand there."""
    if not dialect.header or any(not svmlight_faults.NUMBER.fullmatch(name) for name in columns.numbers):
        return None
    names = (rf"[\"\s]*{re.escape(name).replace(QUOTE, QUOTE + '+')}[\"\s]*" for name in dialect.names)
    return re.compile("^" + re.escape(dialect.delimiter).join(names) + "$", re.MULTILINE)


def most_types(table: Arrow) -> dict[str, pa.DataType]:
    """Return the types of a table's columns: a number where nearly all values are, although pyarrow takes them for
    text.
    """
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.slice(0, LOOKED_AT).drop_null()
        if pa.types.is_string(values.type):
            values = values.filter(pc.invert(pc.is_in(values, value_set=pa.array(NUMBER_WORDS))))
        mostly = pa.types.is_null(column.type) or (pa.types.is_string(column.type) and _numbers(values) > NUMBERS_SHARE)
        found[name] = pa.float64() if mostly else column.type
    return found


def _numbers(values: Arrow) -> float:
    """The share that are numbers."""
    return len(numbers_among(values)) / max(1, len(values))


def numbers_among(values: Arrow) -> Float64:
    """Return the values that are numbers as float64; a column of which most are may have words in it, and is text then."""
    if not pa.types.is_string(values.type):
        return values.to_numpy().astype(np.float64)
    texts = (text.strip() for text in values.to_pylist())
    return np.array([float(text) for text in texts if svmlight_faults.NUMBER.fullmatch(text)], np.float64)


def _whole(column: Arrow, *, missing: bool) -> bool:
    """Whether nothing is missing from a column that may not be, and all numbers that are there are finite."""
    if column.null_count and not missing:
        return False
    if not pa.types.is_floating(column.type):
        return True
    values = column.to_numpy()
    return not np.isinf(values).any() if missing else bool(np.isfinite(values).all())
