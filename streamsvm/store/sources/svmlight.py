"""svmlight (libsvm) text as a source: lines ``label index:value ...``, parsed by a compiled function.

Blocks of lines without faults are parsed by any thread. A block with a bad line is parsed by the main thread: it
repairs what options allow (labels that are words, entries that are unsorted or occur twice), or raises the error in
which ``explain`` describes the fault of the first bad line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.config.options import field_values
from streamsvm.errors import DataError, quote
from streamsvm.rows import CSR, Float64
from streamsvm.store.sources.byte_stream import BLOCK, Input, line_blocks, text_notices_of
from streamsvm.store.sources.options import SourceOptions, bad_share
from streamsvm.store.sources.read_ahead import map_in_order, read_ahead
from streamsvm.store.sources.source import BaseSource, SourceFile
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import Batch

if TYPE_CHECKING:
    from streamsvm.compute.svmlight_text import Parsed, Scratch

LARGEST_INDEX = 10**8
QUERY_ID = re.compile(rb"^([ \t]*[^ \t\n:]+)[ \t]+qid:[0-9]+(?=[ \t\r\n])", re.MULTILINE)
WITHOUT_QUERY_ID = rb"\1"
RECORDED_OPTIONS = ("ignore_qid", "sort", "on_duplicate", "text_labels")
"""The options that are recorded in the encoding."""
LABEL = re.compile(rb"^[ \t]*([^\s:#]+)(?=[ \t\r\n])", re.MULTILINE)
ENTRY = re.compile(rb"(\d+):(\S+)")
NUMBER_PATTERN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE | re.ASCII)
INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
HINT_LINE = "a line reads 'label index:value index:value ...'"


class SvmlightSource(BaseSource):
    """Svmlight files. ``columns`` is known once all rows are read, or from the start if ``features`` is given."""

    sparse = True

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        recorded = options.encoding or {}
        super().__init__()
        self.columns_read = recorded.get("columns", options.features)
        self._paths = paths
        self._options = options
        self._base: int | None = recorded.get("index_base", options.index_base)
        self._features = self.columns_read
        self._largest_column = -1
        self._scratch: Scratch | None = None
        self._parsed: Any = None
        self._spare: list[Scratch] = []
        """Arrays for parsing that no thread uses."""
        self._words = Words() if options.text_labels else None

    def read(self) -> Iterator[Batch]:
        """Yield all rows in order. Raises DataError with file and line, StorageError."""
        self._options.rejects.clear()
        for path in self._paths:
            with Input(path) as stream:
                file = SourceFile(str(path), stream.size, compression=stream.compression)
                self.sources.append(file)
                yield from self._batches_of(stream, file)
                file.sha256 = stream.sha256
        if not any(file.rows for file in self.sources):
            raise DataError(f"{self._paths[0]} holds no rows", code="E-EMPTY", hint="check that it is the right file")
        self.columns_read = self._features or self._largest_column + 1

    def read_encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, as plain JSON."""
        return {
            "format": "svmlight",
            "index_base": 1 if self._base is None else self._base,
            "columns": self.columns_read,
            "options": field_values(self._options, RECORDED_OPTIONS),
        }

    def _batches_of(self, stream: Input, file: SourceFile) -> Iterator[Batch]:
        allowed = self._options.allow_no_final_newline
        blocks = line_blocks(stream, allow_no_final_newline=allowed)
        blocks = read_ahead(blocks) if stream.compression else blocks
        lines = 0
        for block, clean in map_in_order(self._parse_clean, blocks):
            if clean is None:
                text = QUERY_ID.sub(WITHOUT_QUERY_ID, block) if self._options.ignore_qid else block
                batch, block_lines = self._parse_batch(text, stream.name, lines)
            else:
                batch, block_lines = self._count(clean, stream.name), clean.lines
            lines += block_lines
            file.read = stream.disk_position
            self._options.rejects.lines_read += block_lines
            self._options.rejects.check(bad_share(self._options.max_bad))
            if len(batch.labels) or batch.X.indptr.size > 1:  # type: ignore[union-attr]
                file.rows += len(batch.X.indptr) - 1  # type: ignore[union-attr]
                yield batch
        self._options.rejects.check(bad_share(self._options.max_bad), last=True)
        for notice in text_notices_of(stream):
            self.count(notice)

    def _parse_batch(self, text: bytes, name: str, lines: int) -> tuple[Batch, int]:
        """Parse a block that follows ``lines`` lines of the file; return its rows and its number of lines."""
        if self._words is not None:
            text = self._words.to_numbers(text)
        out, left_out, repaired = self._scratch_for(text), 0, False
        while (bad := self._parse(text, out)) is not None:
            if may_repair(self._options) and not repaired:
                text, repaired = text[:bad] + repair(text[bad:], self._options), True
                out = self._scratch_for(text)
                continue
            error = self._fault(text, bad, name, lines)
            if self._options.on_bad_line != "skip" or error.code == "E-INDEX":
                raise error
            self._options.rejects.add(name, lines + text.count(b"\n", 0, bad) + 1, error)
            end = text.index(b"\n", bad)
            text, left_out = text[:bad] + b"#" * (end - bad) + text[end:], left_out + 1
        self.notices["blank lines"] -= left_out
        parsed = _copy_rows(self._parsed, out)
        return self._count(parsed, name), parsed.lines

    def _parse_clean(self, text: bytes) -> _CleanRows | None:
        """Parse a block, on any thread; return None for the first block and for one with a bad line, which must be
        parsed in the order of the blocks.
        """
        if self._base is None or self._words is not None or len(text) > 2 * BLOCK:
            return None
        text = QUERY_ID.sub(WITHOUT_QUERY_ID, text) if self._options.ignore_qid else text
        with self._spare_scratch() as out:
            parsed = self._try_to_parse(text, out, self._base)
            return None if isinstance(parsed, int) else _copy_rows(parsed, out)

    @contextmanager
    def _spare_scratch(self) -> Iterator[Scratch]:
        """Give a thread arrays for parsing a block of the usual size; they are used again afterwards."""
        from streamsvm.compute.svmlight_text import scratch

        try:
            out = self._spare.pop()
        except IndexError:
            out = scratch(BLOCK, BLOCK // 2, exact=self.exact)
        yield out
        self._spare.append(out)

    def _parse(self, text: bytes, out: Scratch) -> int | None:
        """Parse a block into ``out``; return the start of the first bad line, None if there is none."""
        from streamsvm.compute.svmlight_text import parse

        if self._base is None:
            array = np.frombuffer(text, np.uint8)
            first: Parsed = parse(array, array.size, 0, LARGEST_INDEX, self._unlabeled, out)
            self._base = 0 if first.smallest == 0 else 1
        parsed = self._try_to_parse(text, out, self._base)
        if isinstance(parsed, int):
            return parsed
        self._parsed = parsed
        return None

    def _try_to_parse(self, text: bytes, out: Scratch, base: int) -> Parsed | int:
        """Parse a block into ``out`` with indices from ``base`` on; return the start of the first bad line if there is
        one.
        """
        from streamsvm.compute.svmlight_text import parse

        array = np.frombuffer(text, np.uint8)
        top = LARGEST_INDEX if self._features is None else base + self._features - 1
        parsed: Parsed = parse(array, array.size, base, top, self._unlabeled, out)
        if parsed.bad:
            return int(parsed.consumed)
        for entry, start, stop in out.unfinished[: parsed.unfinished].tolist():
            if not _convert_number(out, entry, text[start:stop]):
                return text.rfind(b"\n", 0, start) + 1
        return parsed

    def _count(self, rows: _CleanRows, name: str) -> Batch:
        """Return the rows as a batch, and count blank lines and empty rows in ``notices``."""
        self._largest_column = max(self._largest_column, rows.largest)
        self.notices["blank lines"] += rows.blank
        self.notices["empty rows"] += rows.empty
        return Batch(rows.X, self._labels(rows.labels, name))

    def _labels(self, labels: Float64, name: str) -> Array:
        missing = int(np.count_nonzero(np.isnan(labels))) if self._unlabeled else 0
        if 0 < missing < len(labels):
            raise DataError(f"only some rows of {name} have a label", code="E-LABEL", hint="label all rows or none")
        if missing:
            return labels[:0]
        return labels if self._words is None else self._words.to_words(labels)

    def _fault(self, text: bytes, start: int, name: str, lines: int) -> DataError:
        line = text[start : text.index(b"\n", start)]
        number = lines + text.count(b"\n", 0, start) + 1
        assert self._base is not None
        expected = Expected(self._base, self._features, self._options.index_base is not None)
        return explain(line, f"{name} line {number}", expected)

    @property
    def _unlabeled(self) -> bool:
        return self._options.encoding is not None

    def _scratch_for(self, text: bytes) -> Scratch:
        """Return arrays for parsing: shared ones for a block of usual size, new ones for one with a very long line."""
        from streamsvm.compute.svmlight_text import scratch

        if len(text) > 2 * BLOCK:
            self._scratch = None
            return scratch(text.count(b"\n"), text.count(b":"), exact=self.exact)
        if self._scratch is None or self._scratch.data.itemsize != (8 if self.exact else 4):
            self._scratch = scratch(BLOCK, BLOCK // 2, exact=self.exact)
        return self._scratch


class _CleanRows(NamedTuple):
    """The rows of a block without bad lines."""

    X: CSR
    labels: Float64
    lines: int
    blank: int
    """Lines without a row."""
    empty: int
    """Rows without an entry."""
    largest: int
    """The largest column; -1 if there is no entry."""


def _copy_rows(parsed: Parsed, out: Scratch) -> _CleanRows:
    """Return a copy of the rows that were parsed into ``out``."""
    rows, entries = parsed.rows, parsed.entries
    indptr, indices = out.indptr[: rows + 1].copy(), out.indices[:entries].copy()
    empty = int(np.count_nonzero(indptr[1:] == indptr[:-1]))
    X = CSR(out.data[:entries].copy(), indices, indptr)
    return _CleanRows(X, out.labels[:rows].copy(), parsed.lines, parsed.blank, empty, int(indices.max(initial=-1)))


def _convert_number(out: Scratch, entry: int, token: bytes) -> bool:
    """Store a number that the compiled parser left unconverted; return False if it does not fit float32.

    A negative ``entry`` is a label: -1 - row.
    """
    value = float(token)
    if entry < 0:
        out.labels[-1 - entry] = value
        return True
    with np.errstate(over="ignore"):
        out.data[entry], single = value, np.float32(value)
    return bool(np.isfinite(single))


@dataclass(slots=True)
class Words:
    """Numbers labels that are words, in the order of their first appearance."""

    numbers: dict[bytes, int] = field(default_factory=dict)

    def to_numbers(self, text: bytes) -> bytes:
        """Return the text with the label of every line replaced by its number."""
        return LABEL.sub(self._number, text)

    def _number(self, match: re.Match[bytes]) -> bytes:
        return b"%d" % self.numbers.setdefault(match[1], len(self.numbers))

    def to_words(self, labels: Any) -> NDArray[np.str_]:
        """Return the words of numbered labels (n,), (n,) str."""
        words = np.array([word.decode("utf-8", "replace") for word in self.numbers])
        return words[labels.astype(np.int64)]


def may_repair(options: SourceOptions) -> bool:
    """Return whether options allow entries that are out of order or occur twice."""
    return options.sort or options.on_duplicate != "error"


def repair(text: bytes, options: SourceOptions) -> bytes:
    """Return the lines with their entries sorted and merged, as the options ``sort`` and ``on_duplicate`` say."""
    return b"\n".join(_repair_line(line, options) for line in text.split(b"\n"))


def _repair_line(line: bytes, options: SourceOptions) -> bytes:
    label, *tokens = line.partition(b"#")[0].split() or [b""]
    entries: list[tuple[int, bytes]] = []
    for token in tokens:
        match = ENTRY.fullmatch(token)
        if match is None:
            return line  # the parser reports the fault
        entries.append((int(match[1]), match[2]))
    if options.sort:
        entries.sort(key=lambda entry: entry[0])
    if options.on_duplicate != "error":
        entries = _merge_duplicates(entries, options.on_duplicate)
    return b" ".join([label, *(b"%d:%b" % entry for entry in entries)])


def _merge_duplicates(entries: list[tuple[int, bytes]], policy: str) -> list[tuple[int, bytes]]:
    """Return the entries with every index once, where it first occurs; ``policy``: first, last or sum."""
    values: dict[int, bytes] = {}
    for index, value in entries:
        if index not in values or policy == "last":
            values[index] = value
        elif policy == "sum":
            values[index] = _sum(values[index], value)
    return list(values.items())


def _sum(a: bytes, b: bytes) -> bytes:
    try:
        return repr(float(a) + float(b)).encode()
    except ValueError:
        return a + b"+" + b  # one of them is not a number, and the parser reports the fault


class Expected(NamedTuple):
    """The indices that the parser accepts."""

    base: int
    """The index of the first column, 0 or 1."""
    features: int | None
    """The number of columns; None if any index is accepted."""
    base_was_given: bool = False
    """Whether the user gave ``base``; otherwise it was inferred from the first lines."""


class _BadLine(Exception):
    """The fault of a line, as code, text and hint."""


def explain(line: bytes, where: str, expected: Expected) -> DataError:
    """Return the error for a line that the parser refused; ``where``: the file and the line."""
    try:
        _check(line.removesuffix(b"\r"), expected)
    except _BadLine as bad:
        code, text, hint = bad.args
        return DataError(f"{where}: {text}", code=code, hint=hint)
    return DataError(f"{where}: cannot be read: {quote(line)}", code="E-PARSE", hint=HINT_LINE)


def _check(line: bytes, expected: Expected) -> None:
    content = line.partition(b"#")[0]
    _check_bytes(content)
    text = content.decode("ascii")
    tokens = re.split(r"[ \t]+", text.strip(" \t"))
    _check_format(text)
    _check_label(tokens[0])
    previous = expected.base - 1
    for token in tokens[1:]:
        previous = _check_entry(token, previous, expected)


def _check_bytes(content: bytes) -> None:
    if (position := content.find(b"\0")) >= 0:
        raise _BadLine("E-PARSE", f"a NUL byte at column {position + 1}", "the file is damaged or is not text")
    if b"\r" in content:
        raise _BadLine("E-PARSE", "a CR within a line (old Mac line ends)", "convert them: tr '\\r' '\\n'")
    if not content.isascii():
        position = next(i for i, byte in enumerate(content) if byte > 127)
        shown = quote(content[position : position + 8])
        fault = f"byte 0x{content[position]:02X} at column {position + 1} is not ASCII: {shown}"
        raise _BadLine("E-PARSE", fault, "labels, indices and values are plain ASCII numbers")


def _check_format(text: str) -> None:
    if "|" in text:
        raise _BadLine("E-FORMAT", "looks like Vowpal Wabbit text", "convert it to svmlight or CSV")
    if ":" not in text and "," in text:
        raise _BadLine("E-FORMAT", "looks like CSV", "pass --format csv")


def _check_label(token: str) -> None:
    if NUMBER_PATTERN.fullmatch(token):
        return
    if ":" in token:
        raise _BadLine("E-LABEL", f"no label before {quote(token)}", HINT_LINE)
    if "," in token:
        raise _BadLine("E-LABEL", f"several labels {quote(token)}", "one label a row: multi-label is not supported")
    raise _BadLine(
        "E-LABEL", f"the label {quote(token)} is not a finite number", "pass --text-labels if labels are words"
    )


def _check_entry(token: str, previous: int, expected: Expected) -> int:
    """Return the index of a token. Raises _BadLine unless it is 'index:value' with an index above ``previous``."""
    index, colon, value = token.partition(":")
    if index == "qid":
        raise _BadLine("E-QID", f"{quote(token)}: ranking groups are not supported", "pass --ignore-qid to skip them")
    if not colon:
        raise _BadLine("E-PARSE", f"expected 'index:value', found {quote(token)}", HINT_LINE)
    if not index:
        raise _BadLine("E-PARSE", f"the index is missing in {quote(token)}", HINT_LINE)
    if not value:
        raise _BadLine("E-PARSE", f"the value is missing in {quote(token)}", HINT_LINE)
    number = _check_index(index, token, expected)
    _check_value(value, token)
    if number == previous:
        raise _BadLine("E-DUP", f"index {number} appears twice", "pass --on-duplicate sum, first or last")
    if number < previous:
        raise _BadLine("E-ORDER", f"index {number} after {previous}", "pass --sort")
    return number


def _check_index(index: str, token: str, expected: Expected) -> int:
    if not INTEGER.fullmatch(index):
        raise _BadLine("E-PARSE", f"expected 'index:value' with a whole index, found {quote(token)}", HINT_LINE)
    if index.startswith("-"):
        raise _BadLine("E-INDEX", f"the index {quote(index)} is negative", "indices begin at 0 or 1")
    if len(index) > 1 and index[0] in "+0":
        raise _BadLine("E-PARSE", f"the index {quote(index)} has a sign or a leading zero", "write it without")
    number = int(index[:20])
    if number < expected.base:
        reason = "with --index-base 1" if expected.base_was_given else "in a file taken as 1-based"
        raise _BadLine("E-INDEX", f"index 0 {reason}", "pass --index-base 0")
    _check_range(number, quote(index), expected)
    return number


def _check_range(number: int, shown: str, expected: Expected) -> None:
    if expected.features is not None and number > expected.base + expected.features - 1:
        columns = f"{expected.features} columns with indices from {expected.base}"
        raise _BadLine("E-SCHEMA", f"index {shown} is beyond the {columns}", "check --features and --index-base")
    if number > LARGEST_INDEX:
        raise _BadLine("E-LIMIT", f"index {shown} is larger than {LARGEST_INDEX}", "hash or renumber the features")


def _check_value(value: str, token: str) -> None:
    if NOT_FINITE.fullmatch(value):
        raise _BadLine("E-NONFINITE", f"the value of {quote(token)} is not finite", "remove or replace such values")
    if not NUMBER_PATTERN.fullmatch(value):
        hint = "write a decimal point, not a comma" if re.fullmatch(r"[+-]?\d+,\d+", value, re.ASCII) else HINT_LINE
        raise _BadLine("E-PARSE", f"expected 'index:value', found {quote(token)}", hint)
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float32(float(value))):
            raise _BadLine("E-RANGE", f"the value of {quote(token)} does not fit float32", "scale the column")
