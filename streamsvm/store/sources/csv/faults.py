"""Finds what is wrong with a CSV file, in words: reads on from where the fast reader stopped, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamsvm.errors import DataError, quote
from streamsvm.store.sources.csv.dialect import COMMENT_MARKS, QUOTE, Dialect, decoded, split, without_comments
from streamsvm.store.sources.reading.input import Input
from streamsvm.store.sources.reading.lines import LINE_LIMIT, line_blocks
from streamsvm.store.sources.svmlight.faults import NOT_FINITE, NUMBER
from streamsvm.store.sources.table.cells import WRITTEN_HINT, BadCell
from streamsvm.store.sources.table.layout.columns import Column
from streamsvm.store.sources.table.layout.schema import shell_word
from streamsvm.store.sources.table.missing_words import MissingWords
from streamsvm.store.sources.table.unreadable import read_text
from streamsvm.store.sources.table.values import MISSING_HINT

LOOK_AHEAD = LINE_LIMIT
"""The most bytes of one row that runs over several lines."""
LINE_HINT = "correct it, or pass --on-bad-line skip to leave such lines out"
"""What helps where a line is wrong and the others are not."""


class Columns(NamedTuple):
    """Which columns of a table must hold what."""

    numbers: frozenset[str]
    """The columns that must hold numbers."""
    text: frozenset[str]
    """The columns that may hold any text."""
    label: str | None
    """The column of labels; None where there is none."""
    missing: bool = False
    """Whether values may be missing, the label apart."""
    multiline: bool = False
    """Whether values in quotes may hold line feeds."""
    skip_unlabeled: bool = False
    """Whether the label may be missing."""
    words: MissingWords = MissingWords()
    """The words for a missing value."""
    read: Mapping[str, Column] = MappingProxyType({})
    """By name, the columns of amounts, dates, yes and no."""
    comment: str | None = None
    """What comment lines begin with; None where there are none."""
    weight: str | None = None
    """The column of the weights of rows, among the numbers."""


def find_fault(stream: Input, dialect: Dialect, columns: Columns, rows: int, *, last_line: bool) -> DataError | None:
    """Return the first fault after ``rows`` good rows; None when every line to the end is in order."""
    lines = _lines_after(stream, rows + dialect.skipped, last_line, columns.comment)
    for number, line in _joined(stream, dialect, rows, last_line, columns.comment) if columns.multiline else lines:
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


def _joined(
    stream: Input, dialect: Dialect, rows: int, last_line: bool, comment: str | None
) -> Iterator[tuple[int, bytes]]:
    """As ``_lines_after``, the lines of one row as one; the row is numbered by its first."""
    begun: list[bytes] = []
    first = found = length = quotes = 0
    for number, line in _lines_after(stream, dialect.skipped, last_line, comment):
        first = first if begun else number
        begun.append(line)
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
            found += 1
            if found > rows:
                yield first, b"\n".join(begun)
            begun, length = [], 0
    if begun:
        where = f"{stream.name} line {first}"
        raise DataError(f"{where}: a quote is opened and never closed", code="E-QUOTE", hint="close it")


def check_line(line: bytes, where: str, dialect: Dialect, columns: Columns) -> None:
    """Raise DataError for a line that is not in order."""
    text = decoded(line, where)
    if text.count(QUOTE) % 2:
        found = f"{where}: a quote is opened and not closed on the line"
        raise DataError(found, code="E-QUOTE", hint=f"if values hold line feeds, pass --multiline; else {LINE_HINT}")
    fields = split(text, dialect.delimiter)
    if len(fields) != len(dialect.names):
        raise DataError(
            f"{where}: expected {len(dialect.names)} values, got {len(fields)}",
            code="E-ROWLEN",
            hint=_hint(text, fields),
        )
    if dialect.header and tuple(f.strip() for f in fields) == dialect.names:
        raise DataError(
            f"{where}: the header line again", code="E-PARSE", hint=f"files were joined with it: {LINE_HINT}"
        )
    for name, field in zip(dialect.names, fields, strict=True):
        _check_field(field.strip(), name, where, columns)


def _hint(text: str, fields: list[str]) -> str:
    if mark := next((mark for mark in COMMENT_MARKS if text.startswith(mark)), None):
        return f"pass --comment {shell_word(mark)} if such lines are comments; else {LINE_HINT}"
    if fields and not fields[-1]:
        return f"the line ends with a delimiter: {LINE_HINT}; 'sed s/,$//' takes one off every line"
    return f"every line has one value a column: {LINE_HINT}"


def _check_field(field: str, name: str, where: str, columns: Columns) -> None:
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
    if not NUMBER.fullmatch(field) or (field.startswith("+") and not _reads_plus()):
        comma = "," in field and NUMBER.fullmatch(field.replace(",", ".", 1))
        hint = f"write a decimal point, or pass --column {shell_word(name)}=decimal-comma" if comma else LINE_HINT
        raise DataError(f"{place}: expected a number, found {quote(field)}", code="E-PARSE", hint=hint)
    with np.errstate(over="ignore"):
        if not is_label and not np.isfinite(np.float32(float(field))):
            raise DataError(f"{place}: {quote(field)} does not fit float32", code="E-RANGE", hint=LINE_HINT)


@cache
def _reads_plus() -> bool:
    """Whether the pyarrow that is installed takes '+1' for a number: earlier ones do not."""
    try:
        pa.scalar("+1").cast(pa.float32())
    except pa.ArrowInvalid:
        return False
    return True
