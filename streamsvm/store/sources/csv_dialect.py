"""Detect the dialect of a CSV file from its first lines: delimiter, header, names of columns, lines above the table."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice

from streamsvm.errors import DataError, quote
from streamsvm.store.sources.byte_stream import CHARSET_HINT, HINT_NO_NEWLINE, check_encoding, check_line_length
from streamsvm.store.sources.options import SourceOptions

COMMENT_MARKS = ("#", "%", "|", "//")
"""The marks with which comment lines above a table begin."""
COMMENT_SEARCH_LINES = 20
"""The number of lines that are searched for comments and titles above a table."""
DELIMITERS = (",", "\t", ";", "|")
QUOTE = '"'


@dataclass(frozen=True, slots=True)
class Dialect:
    """The dialect of one file."""

    delimiter: str
    header: bool
    names: tuple[str, ...]
    """The names of the columns, in the order of the file."""
    skipped: int = 0
    """The lines before the first row: the header, and empty lines, comment lines and skipped lines above it."""
    comments: int = 0
    """The comment lines above the header, or above the first row, that were detected and not given by an option."""


def detect_dialect(name: str, head: bytes, options: SourceOptions) -> Dialect:
    """Detect the dialect of the file ``name`` from its first bytes. Raises DataError E-HEADER, E-DIALECT, E-ENCODING,
    E-EMPTY.
    """
    head = without_comments(check_encoding(name, head), options.comment)
    comments = 0 if options.skip_lines is not None else _count_comment_lines(name, head, options)
    lines_above, line = _first_line(name, head, options.skip_lines or comments)
    _check_title(name, _texts(head, lines_above), lines_above, options)
    delimiter = options.delimiter or _guess_delimiter(line)
    _check_delimiter(name, line, delimiter)
    fields = [field.strip() for field in split(line, delimiter)]
    if not fields:
        message = f"line {lines_above + 1} of {name} begins with a carriage return (CR)"
        raise DataError(message, code="E-PARSE", hint="convert the line ends: tr '\\r' '\\n'")
    if not options.header:
        return Dialect(delimiter, False, tuple(f"f{i}" for i in range(1, len(fields) + 1)), lines_above, comments)
    _check_header(name, fields)
    return Dialect(delimiter, True, tuple(fields), lines_above + 1, comments)


def split(line: str, delimiter: str) -> list[str]:
    """Return the values of one row; a value in quotes may hold line feeds."""
    limit = csv.field_size_limit()
    if len(line) > limit:  # the limit is global, and less than the allowed length of a line
        csv.field_size_limit(len(line))
    try:  # not str.splitlines, which would also split at form feeds and U+2028
        return next(csv.reader(io.StringIO(line, newline=""), delimiter=delimiter), [])
    finally:
        csv.field_size_limit(limit)


def is_number(text: str) -> bool:
    """Return whether Python converts the text to a float."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def without_comments(text: bytes, mark: str | None) -> bytes:
    """Return the text with lines that begin with ``mark`` emptied."""
    if not mark:
        return text
    return re.sub(rb"(?m)^" + re.escape(mark.encode()) + rb"[^\n]*", b"", text)


def _texts(head: bytes, start: int) -> list[str]:
    """Return the whole, nonempty lines among ``COMMENT_SEARCH_LINES`` lines from line ``start`` on, as text."""
    lines = (
        line.removesuffix(b"\r")
        for line in head[: head.rfind(b"\n") + 1].split(b"\n")[start : start + COMMENT_SEARCH_LINES]
    )
    return [line.decode(errors="replace") for line in lines if line.strip()]


def _count_comment_lines(name: str, head: bytes, options: SourceOptions) -> int:
    """Return the number of comment lines above the header, or above the first row.

    Comment lines begin with one of ``COMMENT_MARKS``; they have another number of values than the lines below, or are
    followed by a line that is a header. Raises DataError E-HEADER if comments and header cannot be distinguished.
    """
    texts = _texts(head, 0)
    marked = next((k for k, text in enumerate(texts) if not text.lstrip().startswith(COMMENT_MARKS)), 0)
    if not marked:
        return 0
    body = texts[marked:]
    delimiter = options.delimiter or _guess_delimiter(body[0])
    if texts[0].lstrip().startswith(delimiter):
        return 0
    fields = split(body[0], delimiter)
    numbers = _line_numbers(head, marked)
    if len(split(texts[marked - 1], delimiter)) != len(fields):
        return numbers[-1]
    if not options.header or not _may_be_header(fields):
        return numbers[-2] if marked > 1 else 0  # the last one is a row, or a header that begins with a comment mark
    if any(map(is_number, split(body[1], delimiter) if len(body) > 1 else ())):
        return numbers[-1]
    message = f"line {numbers[-1]} of {name} begins as a comment and has as many values as the lines below"
    hint = f"pass --skip-lines {numbers[-1]} if it is a comment, --skip-lines {numbers[-1] - 1} if it is the header"
    raise DataError(message, code="E-HEADER", hint=hint)


def _may_be_header(fields: list[str]) -> bool:
    """Return whether values can be the names of columns: distinct, not empty, and not numbers."""
    names = {field.strip() for field in fields}
    return len(names) == len(fields) and all(name and not is_number(name) for name in names)


def _line_numbers(head: bytes, count: int) -> list[int]:
    """Return the numbers, from 1, of the first ``count`` lines that are not empty."""
    lines = (number for number, line in enumerate(head.split(b"\n"), 1) if line.strip())
    return list(islice(lines, count))


def _check_title(name: str, texts: list[str], above: int, options: SourceOptions) -> None:
    """Raise DataError E-DIALECT for titles: lines of one value above lines of several values.

    ``texts``: the first lines; ``above``: the number of lines before them.
    """
    if not texts or len(split(texts[0], _delimiter_of(texts[0], options))) > 1:
        return
    titles = next(
        (k for k in range(1, len(texts) - 1) if len(split(texts[k], _delimiter_of(texts[k], options))) > 1), 0
    )
    if not titles:
        return
    body = texts[titles:]
    delimiter = _delimiter_of(body[0], options)
    widths = {len(split(text, delimiter)) for text in body}
    if len(widths) > 1 or any(len(split(text, delimiter)) > 1 for text in texts[:titles]):
        return
    line = f"line {above + 1} of {name} has 1 value with the delimiter {delimiter!r}"
    message = f"{line}, and the lines below have {max(widths)}"
    raise DataError(message, code="E-DIALECT", hint=f"pass --skip-lines {above + titles} if it is a title or a comment")


def _delimiter_of(text: str, options: SourceOptions) -> str:
    return options.delimiter or _guess_delimiter(text)


def _first_line(name: str, head: bytes, skipped: int) -> tuple[int, str]:
    """Find the first nonempty line after ``skipped`` lines. Return the number of lines above it, and the line."""
    lines = head.split(b"\n")
    candidates = ((i, line) for i, line in enumerate(lines) if i >= skipped and line.strip())
    lines_above, line = next(candidates, (0, None))
    if line is None:
        raise DataError(f"{name} is empty", code="E-EMPTY", hint="check that it is the right file")
    check_line_length(name, len(line))
    if b"\n" not in head and b"\r" in head.rstrip(b"\r"):
        hint = "convert the line ends: tr '\\r' '\\n'"
        raise DataError(f"the lines of {name} end with CR alone (old Mac line ends)", code="E-PARSE", hint=hint)
    if b"\n" not in head:
        raise DataError(f"the first line of {name} has no line feed", code="E-TRUNCATED", hint=HINT_NO_NEWLINE)
    return lines_above, decode_line(line.removesuffix(b"\r"), f"{name} line {lines_above + 1}")


def decode_line(line: bytes, where: str) -> str:
    """Return a line as text. Raises DataError E-ENCODING, and E-PARSE for a NUL byte."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{where}: byte 0x{line[error.start]:02X} at column {error.start + 1} is not UTF-8"
        raise DataError(message, code="E-ENCODING", hint=CHARSET_HINT) from error
    if "\0" in text:
        raise DataError(f"{where}: a NUL byte", code="E-PARSE", hint="the file is damaged or is not text")
    return text


def _guess_delimiter(line: str) -> str:
    """Return the first of ``DELIMITERS`` that occurs in a line, so that 'a b;c,d' is split at the comma."""
    return next((d for d in DELIMITERS if d in line), ",")


def _check_delimiter(name: str, line: str, delimiter: str) -> None:
    """Raise DataError E-DIALECT if the delimiter gives one column, and another one would give several."""
    if len(split(line, delimiter)) > 1:
        return
    counts = {d: len(split(line, d)) for d in DELIMITERS}
    best = max(counts, key=lambda d: counts[d])
    if counts[best] > 1:
        message = f"{name} has 1 column with the delimiter {delimiter!r}; {best!r} would give {counts[best]}"
        raise DataError(message, code="E-DIALECT", hint=f"pass --delimiter {best!r}")
    if delimiter != " " and len(line.split()) > 1:
        message = f"{name} has 1 column with the delimiter {delimiter!r}; spaces would give {len(line.split())}"
        hint = "pass --delimiter ' '"
        if "  " in line or line != line.strip():
            hint = f"make one space of several with tr -s ' ' < {name} > spaced.txt, then {hint}"
        raise DataError(message, code="E-DIALECT", hint=hint)


def _check_header(name: str, fields: list[str]) -> None:
    """Raise DataError E-HEADER for a header of numbers, and for one that names a column twice."""
    if all(is_number(field) for field in fields):
        message = f"all header names of {name} are numbers ({quote(fields[0], 24)}, ...)"
        raise DataError(message, code="E-HEADER", hint="pass --no-header if the first line is a row")
    if repeated := sorted(field for field, times in Counter(fields).items() if times > 1):
        numbers = sum(is_number(field) for field in fields)
        hint = "pass --no-header if the first line is a row" if numbers else "rename a column"
        raise DataError(f"the header of {name} names {quote(repeated[0])} twice", code="E-HEADER", hint=hint)
