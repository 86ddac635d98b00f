"""What was written of blocks, as a source: read by the rules of files, told of by block."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from streamsvm.aliases import Array, DType, JsonObject
from streamsvm.errors import DataError, StreamSVMError
from streamsvm.rows import CSR, Dense, Rows
from streamsvm.store.sources import Source, SourceFile, SourceOptions
from streamsvm.store.sources.array.stream import SLICE_BYTES
from streamsvm.store.sources.centering.centered import at_same_offsets, centered
from streamsvm.store.sources.missing import filled
from streamsvm.store.sources.parts.record_batches import RecordBatchSource
from streamsvm.store.sources.parts.writing import COLUMNS, ENTRIES, LABELS, ROWS, STARTS, WEIGHTS, BlocksPart
from streamsvm.types import Batch

FRAME, ARRAY = "partition", "block"
"""What people call the pieces of a data frame, and of an array."""
TABLE = "the table"
"""What they call a table that is one piece; its rows are counted from its own first."""


class ArrayParts:
    """The rows of an array, from the parts that were written of it; see ``Source``."""

    exact = False

    def __init__(self, parts: Sequence[BlocksPart]) -> None:
        self.names: tuple[str, ...] | None = None
        self.id_column: str | None = None
        widths = {part.columns for part in parts}
        if len(widths) > 1:
            raise DataError(f"blocks have {min(widths)} to {max(widths)} columns", code="E-SCHEMA", hint="one array")
        if len({part.sparse for part in parts}) > 1:
            raise DataError("some blocks are sparse and some are not", code="E-SCHEMA", hint="make all of them alike")
        self._parts, self.sparse = parts, parts[0].sparse
        self.columns: int | None = parts[0].columns
        self.proposals: list[str] = []
        self.sources: list[SourceFile] = []
        self.notices: dict[str, int] = Counter()

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; see ``Source.batches``."""
        for part in self._parts:
            size = sum(path.stat().st_size for path in part.path.iterdir())
            file = SourceFile(str(part.path), size, read=size)
            self.sources.append(file)
            yield from _batches(part, np.dtype(np.float64 if self.exact else np.float32))
            file.rows = sum(part.rows)

    def encoding(self) -> JsonObject:
        """Return what other files must be read by to give the same columns, as plain JSON; see ``Source.encoding``."""
        return {"format": "npy", "options": {"label": None}, "columns": self.columns}


def _batches(part: BlocksPart, dtype: DType) -> Iterator[Batch]:
    """The rows of a part, some at a time, their numbers of a type."""
    rows, labels, weights = sum(part.rows), _beside(part, LABELS), _beside(part, WEIGHTS)
    row_bytes = 8 * len(_array(part, ENTRIES)) // rows if part.sparse else 4 * part.columns
    step = max(1, SLICE_BYTES // max(1, row_bytes))
    for start in range(0, rows, step):
        span = slice(start, min(start + step, rows))
        known = np.empty(0) if labels is None else np.array(labels[span])
        yield Batch(_span(part, span, dtype), known, None if weights is None else np.array(weights[span]))


def _span(part: BlocksPart, span: slice, dtype: DType) -> Rows:
    if not part.sparse:
        return Dense(_array(part, ROWS)[span].astype(dtype))
    starts = np.array(_array(part, STARTS)[span.start : span.stop + 1])
    entries = slice(int(starts[0]), int(starts[-1]))
    data, columns = _array(part, ENTRIES)[entries].astype(dtype), np.array(_array(part, COLUMNS)[entries])
    return CSR(data, columns, starts - starts[0])


def _beside(part: BlocksPart, name: str) -> Array | None:
    """Labels or weights, where there are any."""
    return _array(part, name) if (part.path / f"{name}.npy").exists() else None


def _array(part: BlocksPart, name: str) -> Array:
    return np.load(part.path / f"{name}.npy", mmap_mode="r", allow_pickle=False)


class ToldByBlock:
    """A source of parts whose errors, and whose list of files, name the blocks the rows are from; see ``Source``."""

    exact = False

    def __init__(self, source: Source, parts: Sequence[BlocksPart], noun: str) -> None:
        self._source, self._noun = source, noun
        self._parts = {str(part.path): part for part in parts}
        self.columns, self.names, self.sparse = source.columns, source.names, source.sparse
        self.proposals, self.notices, self.sources = source.proposals, source.notices, source.sources
        self.id_column = source.id_column

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; see ``Source.batches``."""
        try:
            yield from self._source.batches()
        except StreamSVMError as error:
            raise told_by_block(error, self._parts, self._noun) from error
        self.columns = self._source.columns
        for file in self.sources:
            file.name = _blocks(self._parts[file.name], self._noun)

    def encoding(self) -> JsonObject:
        """Return what other files must be read by to give the same columns, as plain JSON; see ``Source.encoding``."""
        return self._source.encoding()


def told_by_block(error: StreamSVMError, parts: dict[str, BlocksPart], noun: str) -> StreamSVMError:
    """The error in words of blocks and their rows, counted from 0 and from 1."""
    for path, part in parts.items():
        said = partial(_place, part, noun)
        error.message = re.sub(re.escape(path) + r"(?: row (\d+))?", said, error.message)
    error.args = (error.message,)
    return error


def _place(part: BlocksPart, noun: str, found: re.Match[str]) -> str:
    if found[1] is None:
        return _blocks(part, noun)
    if noun == TABLE:
        return f"{noun} row {found[1]}"
    block, within = part.place(int(found[1]) - 1)
    return f"{noun} {block} row {within + 1}"


def _blocks(part: BlocksPart, noun: str) -> str:
    if noun == TABLE:
        return noun
    last = part.first + len(part.rows) - 1
    return f"{noun} {part.first}" if last == part.first else f"{noun}s {part.first} to {last}"


def frame_source(parts: Sequence[BlocksPart], options: SourceOptions, noun: str = FRAME) -> Source:
    """The rows of a data frame, whose parts are called ``noun``. Raises what ``open_source`` raises."""
    by_path, paths = {str(part.path): part for part in parts}, tuple(part.path for part in parts)
    try:
        source = centered(RecordBatchSource(paths, options), options)
        if options.missing != "error":
            source = filled(source, lambda: at_same_offsets(source, RecordBatchSource(paths, options)), options)
    except StreamSVMError as error:
        raise told_by_block(error, by_path, noun) from error
    return ToldByBlock(source, parts, noun)


def array_source(parts: Sequence[BlocksPart], options: SourceOptions) -> Source:
    """The rows of an array. Raises DataError."""
    source = centered(ArrayParts(parts), options)
    if options.missing != "error":
        source = filled(source, lambda: at_same_offsets(source, ArrayParts(parts)), options)
    return ToldByBlock(source, parts, ARRAY)
