"""Bad lines of CSV: describe the fault of the first one, or leave all of them out.

``find_fault`` reads line by line from where parsing by blocks has failed, and returns the error for the first bad line.
``BadLineFilter`` leaves bad lines out. It parses whole blocks. If that fails, all values of the block are parsed as
text, and the columns are checked as a whole for lines that may be bad; these lines are checked one by one. If the block
still has bad lines without them, it is halved until the halves have none.
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
from streamsvm.store.sources.cell_parsing import (
    MISSING_HINT,
    MISSING_LABEL,
    MISSING_LABEL_HINT,
    MISSING_TEXT,
    WRITTEN_HINT,
    Arrow,
    BadCell,
    MissingWords,
)
from streamsvm.store.sources.csv_dialect import COMMENT_MARKS, QUOTE, Dialect, decode_line, split, without_comments
from streamsvm.store.sources.csv_parsing import TEXT, Conversion, group_conversions, parse_block, parsing_options
from streamsvm.store.sources.encoding import check_text, unreadable_rows
from streamsvm.store.sources.rejects import Rejects
from streamsvm.store.sources.schema import CATEGORY, NUMBER, Column, shell_word
from streamsvm.store.sources.svmlight import NOT_FINITE, NUMBER_PATTERN

LOOK_AHEAD = LINE_LIMIT
"""The most bytes of a row of several lines."""
LINE_HINT = "correct it, or pass --on-bad-line skip to leave such lines out"
OR_SAY_THE_KIND = ", or say what the column holds"
"""The beginning of the part of a hint that does not apply to rows for a model, whose columns are known."""
FEW_LINES = 32
"""The number of lines that can be checked one by one in the time of parsing them twice as a block."""


class ExpectedColumns(NamedTuple):
    """The values that the columns of a table must hold."""

    numbers: frozenset[str]
    """The columns that must hold numbers."""
    text: frozenset[str]
    """The columns that may hold any text."""
    label: str | None
    missing: bool = False
    """Whether values other than the label may be missing."""
    multiline: bool = False
    """Whether values in quotes may hold line feeds."""
    skip_unlabeled: bool = False
    """Whether the label may be missing."""
    words: MissingWords = MissingWords()
    read: Mapping[str, Column] = MappingProxyType({})
    """The columns of amounts, dates, yes and no, by name."""
    comment: str | None = None
    """The mark with which comment lines begin."""
    weight: str | None = None
    """The column of row weights, which is one of ``numbers``."""


def find_fault(
    stream: Input, dialect: Dialect, columns: ExpectedColumns, rows: int, *, last_line: bool
) -> DataError | None:
    """Return the error for the first bad line after ``rows`` good rows; None if no line is bad."""
    lines = _lines_after(stream, rows + dialect.skipped, last_line, columns.comment)
    for number, line in _rows_after(stream, dialect, rows, last_line, columns.comment) if columns.multiline else lines:
        where = f"{stream.name} line {number}"
        try:
            check_line(line.removesuffix(b"\r"), where, dialect, columns)
        except DataError as error:
            return error
    return None


def _lines_after(stream: Input, skipped: int, last_line: bool, comment: str | None) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each line after the first ``skipped`` that is not empty."""
    number = 0
    for raw_block in line_blocks(stream, allow_no_final_newline=last_line):
        block = without_comments(raw_block, comment)
        lines = block.count(b"\n")
        if number + lines > skipped:
            for offset, line in enumerate(block.split(b"\n")[:-1], 1):
                if number + offset > skipped and line.strip(b"\r"):
                    yield number + offset, line
        number += lines


def _rows_after(
    stream: Input, dialect: Dialect, rows: int, last_line: bool, comment: str | None
) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the first line and the content of each row after the first ``rows``; a row may span lines."""
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
    """Raise DataError for a bad line; ``where``: the file and the number of the line."""
    text = decode_line(line, where)
    if text.count(QUOTE) % 2:
        message = f"{where}: a quote is opened and not closed on the line"
        raise DataError(message, code="E-QUOTE", hint=f"if values hold line feeds, pass --multiline; else {LINE_HINT}")
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
        check_field(field.strip(), name, where, columns)


def _hint_about_length(text: str, fields: list[str]) -> str:
    if mark := next((mark for mark in COMMENT_MARKS if text.startswith(mark)), None):
        return f"pass --comment {shell_word(mark)} if such lines are comments; else {LINE_HINT}"
    if fields and not fields[-1]:
        return f"the line ends with a delimiter: {LINE_HINT}; 'sed s/,$//' takes one off every line"
    return f"every line has one value a column: {LINE_HINT}"


def check_field(field: str, name: str, where: str, columns: ExpectedColumns) -> None:
    place = f"{where}, column {quote(name)}"
    is_number = name in columns.numbers
    missing = columns.words.has(field, number=is_number or name in columns.read)
    if name == columns.label and missing:
        if columns.skip_unlabeled:
            return
        raise DataError(f"{place}: {MISSING_LABEL}", code="E-LABEL", hint=MISSING_LABEL_HINT)
    if missing and (is_number or name in columns.text):
        if columns.missing:
            return
        raise DataError(f"{place}: {MISSING_TEXT} ({quote(field)})", code="E-MISSING", hint=MISSING_HINT)
    if is_number:
        _check_number(field, name, place, is_label=name == columns.label)
        if name == columns.weight and float(field) < 0:
            raise DataError(f"{place}: the weight {field} is negative", code="E-RANGE", hint=LINE_HINT)
    elif name in columns.read and not missing and (fault := _find_text_fault(field, columns.read[name])):
        code, text, hint = fault
        raise DataError(f"{place}: {text}", code=code, hint=hint)


@lru_cache(10_000)
def _find_text_fault(field: str, column: Column) -> tuple[str, str, str] | None:
    """Return code, text and hint of the error for an amount, a date, yes or no; None if it can be parsed."""
    try:
        check_text(field, column)
    except BadCell as cell:
        kind = f"{OR_SAY_THE_KIND}: --column {shell_word(column.name)}=category"
        return cell.code, cell.text, f"{LINE_HINT}{kind}" if cell.hint == WRITTEN_HINT else cell.hint
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
    """Return whether the installed version of pyarrow reads '+1' as a number; older ones do not."""
    try:
        pa.scalar("+1").cast(pa.float32())
    except pa.ArrowInvalid:
        return False
    return True


class BadLineFilter:
    """Yields the good lines of a stream in blocks, and lists the bad lines in ``rejects``."""

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
        self._header = _header_pattern(dialect, columns)
        self._parsed: pa.Table | None = None
        """The rows of the last block without a bad line."""

    def blocks(self) -> Generator[bytes | pa.Table]:
        """Yield the good lines in blocks, those of a block without a bad line as they were parsed to find that out. Raises
        DataError for text that cannot be split into lines.
        """
        number = 0
        raw_blocks = line_blocks(self._stream)
        for raw_block in whole_rows(raw_blocks, self._stream.name) if self._columns.multiline else raw_blocks:
            block = without_comments(raw_block, self._columns.comment)
            lines = block.count(b"\n")
            self._rejects.lines_read += lines
            parts = [part for part in self._good_parts(block, number) if part]
            number += lines
            if len(parts) == 1 and parts[0] is block and self._parsed is not None:
                parsed, self._parsed = self._parsed, None
                yield parsed
                del parsed
            elif parts:
                yield b"".join(parts)

    def _has_no_bad_line(self, block: bytes) -> bool:
        """Return whether ``check_line`` would accept each line of a block."""
        if not self._is_plain(block):
            return False
        try:
            table = parse_block(block, self._options, self._converting)
        except pa.ArrowInvalid:
            return False
        columns = zip(table.column_names, table.columns, strict=True)
        complete = all(_is_complete(column, missing=self._may_miss(name)) for name, column in columns)
        is_good = complete and not self._has_bad_text(table)
        self._parsed = table if is_good else None
        return is_good

    def _has_bad_text(self, table: Arrow) -> bool:
        """Return whether an amount, date, yes or no cannot be parsed, or a weight is negative."""
        weight = self._columns.weight
        columns = [c for name, c in self._columns.read.items() if name in table.column_names]
        weights = table.column(weight) if weight in table.column_names else None
        if weights is not None and pa.types.is_floating(weights.type) and (pc.min(weights).as_py() or 0) < 0:
            return True
        return bool(unreadable_rows(table, columns, self._columns.words, missing=True).any())

    def _may_miss(self, name: str) -> bool:
        """Return whether a column may have missing values."""
        if name == self._columns.label:
            return self._columns.skip_unlabeled
        if name == self._columns.weight:
            return False
        return self._columns.missing or name not in self._columns.numbers | self._columns.text

    def _good_parts(self, block: bytes, before: int) -> Iterator[bytes]:
        """Yield the good lines of a block that follows ``before`` lines; lines that the dialect skips are kept."""
        start = 0
        while before < self._dialect.skipped and start < len(block):
            start, before = block.index(b"\n", start) + 1, before + 1
        yield block[:start]
        yield from self._bisect(block[start:], before)

    def _bisect(self, block: bytes, before: int) -> Iterator[bytes]:
        """Yield the good lines of a block: the whole block if no line is bad, else those of its halves; few lines are
        checked one by one.
        """
        if self._has_no_bad_line(block):
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
        """Return a block without the bad lines that checks of whole columns find; None if it still has bad lines."""
        lines = self._rows(block)
        numbers = self._numbers(lines, before)
        suspects = self._irregular_lines(lines)
        plain = [k for k, line in enumerate(lines) if k not in suspects and line.strip(b"\r")]
        parsed = self._parse_as_text(b"".join(lines[k] + b"\n" for k in plain), len(plain))
        if parsed is None:
            return None
        table, has_right_length = parsed
        suspects.update(plain[k] for k in np.flatnonzero(~has_right_length))
        rows = np.flatnonzero(has_right_length)
        wrong = {plain[rows[k]]: name for k, name in self._first_unreadable(table).items()}
        suspects.update(wrong)
        checked = ((k, self._find_fault(lines[k], numbers[k], wrong.get(k))) for k in sorted(suspects))
        faults = {k: error for k, error in checked if error is not None}
        good = b"".join(line + b"\n" for k, line in enumerate(lines) if k not in faults)
        if good and not self._has_no_bad_line(good):
            return None
        for k, error in faults.items():
            self._rejects.add(self._stream.name, numbers[k], error)
        return good

    def _rows(self, block: bytes) -> list[bytes]:
        """Return the rows of a block; a line that begins inside quotes is joined to the previous one."""
        lines = block.split(b"\n")[:-1]
        if not self._columns.multiline:
            return lines
        rows, row, in_quotes = list[bytes](), list[bytes](), False
        for line in lines:
            row.append(line)
            in_quotes ^= bool(line.count(b'"') % 2)
            if not in_quotes:
                rows.append(b"\n".join(row))
                row = []
        return [*rows, b"\n".join(row)] if row else rows

    @staticmethod
    def _numbers(rows: list[bytes], before: int) -> list[int]:
        """Return the number of the first line of each row; ``before``: the lines before the block."""
        return [before + 1 + n for n in np.cumsum([0, *(row.count(b"\n") + 1 for row in rows)])[:-1].tolist()]

    def _irregular_lines(self, lines: list[bytes]) -> set[int]:
        """Return the indices of lines that pyarrow may not parse as one row each, or that repeat the header."""
        irregular = {k for k, line in enumerate(lines) if line.count(b'"') % 2 or b"\0" in line or b"\r" in line[:-1]}
        header = self._header
        for k, line in enumerate(lines):
            try:
                text = line if header is None and line.isascii() else line.decode()
            except UnicodeDecodeError:
                irregular.add(k)
                continue
            if header is not None and header.search(str(text).removesuffix("\r")):
                irregular.add(k)
        return irregular

    def _parse_as_text(self, block: bytes, lines: int) -> tuple[Arrow, NDArray[np.bool_]] | None:
        """Return the lines with the right number of values as a table of text, and whether each line is one of them;
        None if pyarrow does not parse every such line as one row.
        """
        if not lines:
            return None
        names = [name for group in self._converting for name in group.options.include_columns]
        texts = group_conversions(names, dict.fromkeys(names, TEXT), self._columns.words)
        has_right_length = np.ones(lines, np.bool_)
        parsing = copy(self._options["parse_options"])

        def skip(row: Arrow) -> str:
            if row.number is not None and row.number <= lines:
                has_right_length[row.number - 1] = False
            return "skip"

        parsing.invalid_row_handler = skip
        try:
            table = parse_block(block, {**self._options, "parse_options": parsing}, texts)
        except pa.ArrowInvalid:
            return None
        return (table, has_right_length) if table.num_rows == np.count_nonzero(has_right_length) else None

    def _first_unreadable(self, table: Arrow) -> dict[int, str]:
        """Return the rows of a table of text with a value that is not in order, as far as can be told at once, and the first
        column of the file in which each has one.
        """
        first_columns, columns = dict[int, str](), self._columns
        for name in reversed([name for name in self._dialect.names if name in table.column_names]):
            column = columns.read.get(name) or Column(name, NUMBER if name in columns.numbers else CATEGORY)
            wrong = unreadable_rows(table, [column], columns.words, missing=self._may_miss(name))
            if name == columns.weight:
                wrong |= pc.starts_with(table.column(name).cast(pa.string()), "-").fill_null(False).to_numpy()
            first_columns |= dict.fromkeys(np.flatnonzero(wrong).tolist(), name)
        return first_columns

    def _find_fault(self, line: bytes, number: int, column: str | None = None) -> DataError | None:
        """Return the error for a line; None if it is good. ``column``: where it is expected, which is looked at first."""
        if line.strip(b"\r"):
            where = f"{self._stream.name} line {number}"
            try:
                if column is not None:
                    self._check_value(line.removesuffix(b"\r"), column, where)
                check_line(line.removesuffix(b"\r"), where, self._dialect, self._columns)
            except DataError as error:
                return error
        return None

    def _check_value(self, line: bytes, column: str, where: str) -> None:
        """Raise DataError for the value of a line in a column; ``check_line`` would look at all those before it."""
        fields = split(line.decode(errors="replace"), self._dialect.delimiter)
        if len(fields) == len(self._dialect.names):
            check_field(fields[self._dialect.names.index(column)].strip(), column, where, self._columns)

    def _is_plain(self, block: bytes) -> bool:
        """Return whether pyarrow parses every line of a block as one row, and none repeats the header."""
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
        """Return the good lines of a block, which are checked one by one, and list the bad ones."""
        good_lines = []
        lines = self._rows(block)
        for number, line in zip(self._numbers(lines, before), lines, strict=True):
            if (error := self._find_fault(line, number)) is not None:
                self._rejects.add(self._stream.name, number, error)
            else:
                good_lines.append(line + b"\n")
        return b"".join(good_lines)


def _header_pattern(dialect: Dialect, columns: ExpectedColumns) -> re.Pattern[str] | None:
    """Return a pattern that matches the header line; None if a repeated header is found otherwise, because its name for
    a column of numbers is not a number.
    """
    if not dialect.header or any(not NUMBER_PATTERN.fullmatch(name) for name in columns.numbers):
        return None
    names = (rf"[\"\s]*{re.escape(name).replace(QUOTE, QUOTE + '+')}[\"\s]*" for name in dialect.names)
    return re.compile("^" + re.escape(dialect.delimiter).join(names) + "$", re.MULTILINE)


def _is_complete(column: Arrow, *, missing: bool) -> bool:
    """Return whether all numbers of a column are finite; ``missing``: whether they may be missing."""
    if column.null_count and not missing:
        return False
    if not pa.types.is_floating(column.type):
        return True
    values = column.to_numpy()
    return not np.isinf(values).any() if missing else bool(np.isfinite(values).all())
