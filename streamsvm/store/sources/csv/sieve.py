"""CSV text with the lines left out that cannot be read.

Blocks are looked at whole. One that is not in order is halved until the halves are, and few lines are looked at one by one: a
bad line costs some parsing of its block, not a look at each of its lines.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamsvm.errors import DataError
from streamsvm.rows import Float64
from streamsvm.store.sources.csv.blocks import Conversion, parse, reading
from streamsvm.store.sources.csv.dialect import QUOTE, Dialect, decoded
from streamsvm.store.sources.csv.faults import Columns, check_line
from streamsvm.store.sources.reading.input import Input
from streamsvm.store.sources.reading.lines import line_blocks
from streamsvm.store.sources.rejects import Rejects
from streamsvm.store.sources.svmlight.faults import NUMBER
from streamsvm.store.sources.table.cells import Arrow

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
        self._options = reading(dialect, 1, multiline=False)
        self._options["read_options"].skip_rows = 0
        self._header = _header_again(dialect, columns)

    def blocks(self) -> Generator[bytes]:
        """Yield blocks of whole lines. Raises DataError where more lines are bad than are allowed."""
        number = 0
        for block in line_blocks(self._stream):
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
        return all(
            _whole(column, missing=self._may_miss(name))
            for name, column in zip(table.column_names, table.columns, strict=True)
        )

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
        else:
            middle = block.rfind(b"\n", 0, len(block) // 2) + 1 or block.index(b"\n") + 1
            yield from self._sifted(block[:middle], before)
            yield from self._sifted(block[middle:], before + block.count(b"\n", 0, middle))

    def _is_plain(self, block: bytes) -> bool:
        """Whether nothing is in a block that pyarrow may read in another way than line by line."""
        try:
            text = decoded(block, self._stream.name)
        except DataError:
            return False
        if self._header is not None and self._header.search(text):
            return False
        return QUOTE not in text or not any(line.count(QUOTE) % 2 for line in text.split("\n"))

    def _good_lines(self, block: bytes, before: int) -> bytes:
        good_lines = []
        for number, line in enumerate(block.split(b"\n")[:-1], before + 1):
            if line.strip(b"\r"):
                try:
                    check_line(
                        line.removesuffix(b"\r"), f"{self._stream.name} line {number}", self._dialect, self._columns
                    )
                except DataError as error:
                    self._rejects.add(self._stream.name, number, error)
                    continue
            good_lines.append(line + b"\n")
        return b"".join(good_lines)


def _header_again(dialect: Dialect, columns: Columns) -> re.Pattern[str] | None:
    """What finds the header line among the lines; None where no line can be taken for it, as numbers stand there."""
    if not dialect.header or any(not NUMBER.fullmatch(name) for name in columns.numbers):
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
    return np.array([float(text) for text in texts if NUMBER.fullmatch(text)], np.float64)


def _whole(column: Arrow, *, missing: bool) -> bool:
    """Whether nothing is missing from a column that may not be, and all numbers that are there are finite."""
    if column.null_count and not missing:
        return False
    if not pa.types.is_floating(column.type):
        return True
    values = column.to_numpy()
    return not np.isinf(values).any() if missing else bool(np.isfinite(values).all())
