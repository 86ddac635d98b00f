"""What the first line of a CSV file says: delimiter, names of the columns, whether it is a header at all."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass

from streamsvm.errors import DataError, quote
from streamsvm.store.sources.reading.lines import NO_NEWLINE, check_encoding, check_line_length
from streamsvm.store.sources.source_options import SourceOptions

DELIMITERS = (",", "\t", ";", "|")
QUOTE = '"'


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the lines of one file are cut, and the names of its columns in file order."""

    delimiter: str
    """The character between two values."""
    header: bool
    """Whether the first line names the columns."""
    names: tuple[str, ...]
    """The names of the columns, in the order of the file."""
    skipped: int = 0
    """Lines before the first row: the header and empty lines above it."""


def dialect_of(name: str, head: bytes, options: SourceOptions) -> Dialect:
    """Return the dialect that the first line of ``head`` shows. Raises DataError E-HEADER, E-DIALECT, E-ENCODING,
    E-EMPTY.
    """
    blank, line = _first_line(name, head)
    delimiter = options.delimiter or _delimiter(line)
    _check_delimiter(name, line, delimiter)
    fields = [field.strip() for field in split(line, delimiter)]
    if not fields:
        found = f"line {blank + 1} of {name} begins with a line end of another kind"
        raise DataError(found, code="E-PARSE", hint="convert the line ends: tr '\\r' '\\n'")
    if not options.header:
        return Dialect(delimiter, False, tuple(f"f{i}" for i in range(1, len(fields) + 1)), blank)
    _check_header(name, fields)
    return Dialect(delimiter, True, tuple(fields), blank + 1)


def split(line: str, delimiter: str) -> list[str]:
    """Return the fields of one row; a value in quotes may hold line feeds."""
    # not str.splitlines: to a file's lines a form feed or U+2028 is text like any other
    return next(csv.reader(io.StringIO(line, newline=""), delimiter=delimiter), [])


def is_number(text: str) -> bool:
    """Return whether Python reads the text as a number, which for a header is all that is asked."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_line(name: str, head: bytes) -> tuple[int, str]:
    """The first line that is not empty, and how many are above it."""
    lines = check_encoding(name, head).split(b"\n")
    blank, line = next(((i, line) for i, line in enumerate(lines) if line.strip()), (0, None))
    if line is None:
        raise DataError(f"{name} is empty", code="E-EMPTY", hint="check that it is the right file")
    check_line_length(name, len(line))
    if b"\n" not in head and b"\r" in head.rstrip(b"\r"):
        hint = "convert the line ends: tr '\\r' '\\n'"
        raise DataError(f"the lines of {name} end with CR alone (old Mac line ends)", code="E-PARSE", hint=hint)
    if b"\n" not in head:
        raise DataError(f"the first line of {name} has no line feed", code="E-TRUNCATED", hint=NO_NEWLINE)
    return blank, decoded(line.removesuffix(b"\r"), f"{name} line {blank + 1}")


def decoded(line: bytes, where: str) -> str:
    """Return a line as text. Raises DataError E-ENCODING, E-PARSE for a NUL byte."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"{where}: byte 0x{line[error.start]:02X} at column {error.start + 1} is not UTF-8"
        raise DataError(found, code="E-ENCODING", hint="convert it: iconv -f LATIN1 -t UTF-8") from error
    if "\0" in text:
        raise DataError(f"{where}: a NUL byte", code="E-PARSE", hint="the file is damaged or is not text")
    return text


def _delimiter(line: str) -> str:
    """The first of the usual ones that occurs, so that 'a b;c,d' is cut at the comma."""
    return next((d for d in DELIMITERS if d in line), ",")


def _check_delimiter(name: str, line: str, delimiter: str) -> None:
    if len(split(line, delimiter)) > 1:
        return
    counts = {d: len(split(line, d)) for d in DELIMITERS}
    best = max(counts, key=lambda d: counts[d])
    if counts[best] > 1:
        found = f"{name} has 1 column with the delimiter {delimiter!r}; {best!r} would give {counts[best]}"
        raise DataError(found, code="E-DIALECT", hint=f"pass --delimiter {best!r}")
    if delimiter != " " and len(line.split()) > 1:
        found = f"{name} has 1 column with the delimiter {delimiter!r}; spaces would give {len(line.split())}"
        hint = "pass --delimiter ' '"
        if "  " in line or line != line.strip():
            hint = f"make one space of several with tr -s ' ' < {name} > spaced.txt, then {hint}"
        raise DataError(found, code="E-DIALECT", hint=hint)


def _check_header(name: str, fields: list[str]) -> None:
    if all(is_number(field) for field in fields):
        found = f"all header names of {name} are numbers ({quote(fields[0], 24)}, ...)"
        raise DataError(found, code="E-HEADER", hint="pass --no-header if the first line is a row")
    if twice := sorted(field for field, times in Counter(fields).items() if times > 1):
        raise DataError(f"the header of {name} names {quote(twice[0])} twice", code="E-HEADER", hint="rename a column")
