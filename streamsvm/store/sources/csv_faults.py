"""Lines of CSV that cannot be read: what is wrong with the first of them, or all others without them.

``find_fault`` reads on, line by line, from where the fast reader stopped, and says in words what is wrong.
``BadLineFilter`` leaves bad lines out. It parses blocks whole. Where a block is not in order its values are parsed as
text, and a look at all values of a column at once tells which lines may be bad; these are checked one by one. Where
that leaves bad lines the block is halved until the halves are in order.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from copy import copy
from functools import cache, lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamsvm.errors import DataError, quote
from streamsvm.store.sources.byte_stream import LINE_LIMIT, Input, end_of_last_row, line_blocks, whole_rows
from streamsvm.store.sources.cell_parsing import MISSING_HINT, WRITTEN_HINT, Arrow, BadCell, MissingWords
from streamsvm.store.sources.csv_dialect import COMMENT_MARKS, QUOTE, Dialect, decode_line, split, without_comments
from streamsvm.store.sources.csv_parsing import TEXT, Conversion, group_conversions, parse_block, parsing_options
from streamsvm.store.sources.encoding import read_text, unreadable_rows
from streamsvm.store.sources.schema import CATEGORY, NUMBER, Column, shell_word
from streamsvm.store.sources.source import Rejects
from streamsvm.store.sources.svmlight import NOT_FINITE, NUMBER_PATTERN

LOOK_AHEAD = LINE_LIMIT
"""The most bytes of a row of several lines."""
LINE_HINT = "correct it, or pass --on-bad-line skip to leave such lines out"
FEW_LINES = 32
"""Lines that are checked one by one in the time it takes to parse them twice."""


class ExpectedColumns(NamedTuple):
    """What the columns of a table must hold."""

    numbers: frozenset[str]
    """The columns that must hold numbers."""
    text: frozenset[str]
    """The columns that may hold any text."""
    label: str | None
    missing: bool = False
    """Whether values may be missing, the label apart."""
    multiline: bool = False
    """Whether values in quotes may hold line feeds."""
    skip_unlabeled: bool = False
    """Whether the label may be missing."""
    words: MissingWords = MissingWords()
    read: Mapping[str, Column] = MappingProxyType({})
    """By name, the columns of amounts, dates, yes and no."""
    comment: str | None = None
    """What comment lines begin with."""
    weight: str | None = None
    """The column of the weights of rows, among the numbers."""


def find_fault(
    stream: Input, dialect: Dialect, columns: ExpectedColumns, rows: int, *, last_line: bool
) -> DataError | None:
    """Return the first fault after ``rows`` good rows; None when every line to the end is in order."""
    lines = _lines_after(stream, rows + dialect.skipped, last_line, columns.comment)
    for number, line in _rows_after(stream, dialect, rows, last_line, columns.comment) if columns.multiline else lines:
        where = f"{stream.name} line {number}"
        try:
            check_line(line.removesuffix(b"\r"), where, dialect, columns)
        except DataError as error:
            return error
    return None


def _lines_after(stream: Input, skipped: int, last_line: bool, comment: str | None) -> Iterator[tuple[int, bytes]]:
    """Number and content of the lines after the first ``skipped``, without those that are empty."""
    number = 0
    for read in line_blocks(stream, allow_no_final_newline=last_line):
        block = without_comments(read, comment)
        lines = block.count(b"\n")
        if number + lines > skipped:
            for offset, line in enumerate(block.split(b"\n")[:-1], 1):
                if number + offset > skipped and line.strip(b"\r"):
                    yield number + offset, line
        number += lines


def _rows_after(
    stream: Input, dialect: Dialect, rows: int, last_line: bool, comment: str | None
) -> Iterator[tuple[int, bytes]]:
    """First line number and content of each row, perhaps of several lines, after the first ``rows``."""
    lines: list[bytes] = []
    first = count = length = quotes = 0
    for number, line in _lines_after(stream, dialect.skipped, last_line, comment):
        first = first if lines else number
        lines.append(line)
        length += len(line)
        quotes += line.count(QUOTE.encode())
        if length > LOOK_AHEAD:
            where = f"{stream.name} line {first}"
            raise DataError(
                f"{where}: a quote is opened and not closed within {LOOK_AHEAD >> 20} MiB",
                code="E-QUOTE",
                hint="close it",
            )
        if quotes % 2 == 0:
            count += 1
            if count > rows:
                yield first, b"\n".join(lines)
            lines, length = [], 0
    if lines:
        where = f"{stream.name} line {first}"
        raise DataError(f"{where}: a quote is opened and never closed", code="E-QUOTE", hint="close it")


def check_line(line: bytes, where: str, dialect: Dialect, columns: ExpectedColumns) -> None:
    """Raise DataError for a line that is not in order."""
    text = decode_line(line, where)
    if text.count(QUOTE) % 2:
        found = f"{where}: a quote is opened and not closed on the line"
        raise DataError(found, code="E-QUOTE", hint=f"if values hold line feeds, pass --multiline; else {LINE_HINT}")
    fields = split(text, dialect.delimiter)
    if len(fields) != len(dialect.names):
        raise DataError(
            f"{where}: expected {len(dialect.names)} values, got {len(fields)}",
            code="E-ROWLEN",
            hint=_hint_about_length(text, fields),
        )
    if dialect.header and tuple(f.strip() for f in fields) == dialect.names:
        raise DataError(
            f"{where}: the header line again", code="E-PARSE", hint=f"files were joined with it: {LINE_HINT}"
        )
    for name, field in zip(dialect.names, fields, strict=True):
        _check_field(field.strip(), name, where, columns)


def _hint_about_length(text: str, fields: list[str]) -> str:
    if mark := next((mark for mark in COMMENT_MARKS if text.startswith(mark)), None):
        return f"pass --comment {shell_word(mark)} if such lines are comments; else {LINE_HINT}"
    if fields and not fields[-1]:
        return f"the line ends with a delimiter: {LINE_HINT}; 'sed s/,$//' takes one off every line"
    return f"every line has one value a column: {LINE_HINT}"


def _check_field(field: str, name: str, where: str, columns: ExpectedColumns) -> None:
    place = f"{where}, column {quote(name)}"
    is_number = name in columns.numbers
    missing = columns.words.has(field, number=is_number or name in columns.read)
    if name == columns.label and missing:
        if columns.skip_unlabeled:
            return
        hint = "pass --missing-label skip to leave such rows out"
        raise DataError(f"{place}: the label is missing", code="E-LABEL", hint=hint)
    if missing and (is_number or name in columns.text):
        if columns.missing:
            return
        raise DataError(f"{place}: the value is missing ({quote(field)})", code="E-MISSING", hint=MISSING_HINT)
    if is_number:
        _check_number(field, name, place, is_label=name == columns.label)
        if name == columns.weight and float(field) < 0:
            raise DataError(f"{place}: the weight {field} is negative", code="E-RANGE", hint=LINE_HINT)
    elif name in columns.read and not missing and (found := _misread(field, columns.read[name])):
        code, text, hint = found
        raise DataError(f"{place}: {text}", code=code, hint=hint)


@lru_cache(10_000)
def _misread(field: str, column: Column) -> tuple[str, str, str] | None:
    """Code, text and hint of what is wrong with an amount, a date, yes or no; None where nothing is."""
    try:
        read_text(field, column)
    except BadCell as cell:
        kind = f"say what the column holds: --column {shell_word(column.name)}=category"
        return cell.code, cell.text, f"{LINE_HINT}, or {kind}" if cell.hint == WRITTEN_HINT else cell.hint
    return None


def _check_number(field: str, name: str, place: str, *, is_label: bool) -> None:
    if NOT_FINITE.fullmatch(field):
        code = "E-LABEL" if is_label else "E-NONFINITE"
        raise DataError(f"{place}: {quote(field)} is not finite", code=code, hint=LINE_HINT)
    if not NUMBER_PATTERN.fullmatch(field) or (field.startswith("+") and not _reads_plus()):
        comma = "," in field and NUMBER_PATTERN.fullmatch(field.replace(",", ".", 1))
        hint = f"write a decimal point, or pass --column {shell_word(name)}=decimal-comma" if comma else LINE_HINT
        raise DataError(f"{place}: expected a number, found {quote(field)}", code="E-PARSE", hint=hint)
    with np.errstate(over="ignore"):
        if not is_label and not np.isfinite(np.float32(float(field))):
            raise DataError(f"{place}: {quote(field)} does not fit float32", code="E-RANGE", hint=LINE_HINT)


@cache
def _reads_plus() -> bool:
    """Whether the installed pyarrow reads '+1' as a number: earlier versions do not."""
    try:
        pa.scalar("+1").cast(pa.float32())
    except pa.ArrowInvalid:
        return False
    return True


class BadLineFilter:
    """Yields the good lines of a stream in blocks; bad lines are listed in ``rejects``."""

    def __init__(
        self,
        stream: Input,
        dialect: Dialect,
        columns: ExpectedColumns,
        converting: Sequence[Conversion],
        rejects: Rejects,
    ) -> None:
        self._stream, self._dialect, self._columns = stream, dialect, columns
        self._converting, self._rejects = converting, rejects
        self._options = parsing_options(dialect, 1, multiline=columns.multiline)
        self._options["read_options"].skip_rows = 0
        self._header = _header_again(dialect, columns)

    def blocks(self) -> Generator[bytes]:
        """Yield the good lines in blocks. Raises DataError for text that has no lines to leave out."""
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

    def _is_in_order(self, block: bytes) -> bool:
        """Whether ``check_line`` would let each line of a block pass."""
        if not self._is_plain(block):
            return False
        try:
            table = parse_block(block, self._options, self._converting)
        except pa.ArrowInvalid:
            return False
        columns = zip(table.column_names, table.columns, strict=True)
        complete = all(_is_complete(column, missing=self._may_miss(name)) for name, column in columns)
        return complete and not self._has_misread(table)

    def _has_misread(self, table: Arrow) -> bool:
        """Whether an amount, date, yes or no cannot be read, or a weight is negative."""
        weight = self._columns.weight
        columns = [c for name, c in self._columns.read.items() if name in table.column_names]
        weights = table.column(weight) if weight in table.column_names else None
        if weights is not None and pa.types.is_floating(weights.type) and (pc.min(weights).as_py() or 0) < 0:
            return True
        return bool(unreadable_rows(table, columns, self._columns.words, missing=True).any())

    def _may_miss(self, name: str) -> bool:
        if name == self._columns.label:
            return self._columns.skip_unlabeled
        if name == self._columns.weight:
            return False
        return self._columns.missing or name not in self._columns.numbers | self._columns.text

    def _good_parts(self, block: bytes, before: int) -> Iterator[bytes]:
        """The good lines of a block after ``before`` lines of the file, whose first may be those that are skipped."""
        start = 0
        while before < self._dialect.skipped and start < len(block):
            start, before = block.index(b"\n", start) + 1, before + 1
        yield block[:start]
        yield from self._bisect(block[start:], before)

    def _bisect(self, block: bytes, before: int) -> Iterator[bytes]:
        """Yield the good lines: all of a block in order, else those of its halves; few are checked one by one."""
        if self._is_in_order(block):
            yield block
        elif block.count(b"\n") <= FEW_LINES:
            yield self._good_lines(block, before)
        elif (good := self._drop_suspects(block, before)) is not None:
            yield good
        else:
            half = block[: len(block) // 2]
            middle = end_of_last_row(half) if self._columns.multiline else half.rfind(b"\n") + 1
            middle = middle or len(self._rows(block)[0]) + 1
            yield from self._bisect(block[:middle], before)
            yield from self._bisect(block[middle:], before + block.count(b"\n", 0, middle))

    def _drop_suspects(self, block: bytes, before: int) -> bytes | None:
        """Return a block without the bad lines that its columns show; None where bad ones are left."""
        lines = self._rows(block)
        numbers = self._numbers(lines, before)
        suspects = self._odd_lines(lines)
        plain = [k for k, line in enumerate(lines) if k not in suspects and line.strip(b"\r")]
        read = self._parse_as_text(b"".join(lines[k] + b"\n" for k in plain), len(plain))
        if read is None:
            return None
        table, whole = read
        suspects.update(plain[k] for k in np.flatnonzero(~whole))
        rows = np.flatnonzero(whole)
        suspects.update(plain[rows[k]] for k in np.flatnonzero(self._unreadable(table)))
        faults = {k: error for k in sorted(suspects) if (error := self._fault(lines[k], numbers[k])) is not None}
        good = b"".join(line + b"\n" for k, line in enumerate(lines) if k not in faults)
        if good and not self._is_in_order(good):
            return None
        for k, error in faults.items():
            self._rejects.add(self._stream.name, numbers[k], error)
        return good

    def _rows(self, block: bytes) -> list[bytes]:
        """The rows of a block: a line that begins inside a value is joined to the one before."""
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
        """The numbers of lines that pyarrow may not read as one row each."""
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

    def _parse_as_text(self, block: bytes, lines: int) -> tuple[Arrow, NDArray[np.bool_]] | None:
        """The columns of the lines of the right length, as text, and which lines these are; None where pyarrow does not
        read a row a line.
        """
        if not lines:
            return None
        names = [name for group in self._converting for name in group.options.include_columns]
        texts = group_conversions(names, dict.fromkeys(names, TEXT), self._columns.words)
        whole = np.ones(lines, np.bool_)
        parsing = copy(self._options["parse_options"])

        def skip(row: Arrow) -> str:
            if row.number is not None and row.number <= lines:
                whole[row.number - 1] = False
            return "skip"

        parsing.invalid_row_handler = skip
        try:
            table = parse_block(block, {**self._options, "parse_options": parsing}, texts)
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
        """Whether pyarrow reads every line of a block as one row, and none is the header again."""
        try:
            text = decode_line(block, self._stream.name)
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


def _header_again(dialect: Dialect, columns: ExpectedColumns) -> re.Pattern[str] | None:
    """A pattern of the header line; None where no line can be taken for it, because some column holds numbers."""
    if not dialect.header or any(not NUMBER_PATTERN.fullmatch(name) for name in columns.numbers):
        return None
    names = (rf"[\"\s]*{re.escape(name).replace(QUOTE, QUOTE + '+')}[\"\s]*" for name in dialect.names)
    return re.compile("^" + re.escape(dialect.delimiter).join(names) + "$", re.MULTILINE)


def _is_complete(column: Arrow, *, missing: bool) -> bool:
    """Whether all numbers of a column are finite and, unless they may be ``missing``, there."""
    if column.null_count and not missing:
        return False
    if not pa.types.is_floating(column.type):
        return True
    values = column.to_numpy()
    return not np.isinf(values).any() if missing else bool(np.isfinite(values).all())
