"""CSV files of one table as record batches, block by block; where one cannot be read, what is wrong with which line."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streamsvm.errors import DataError, quote
from streamsvm.store.sources.csv.blocks import GROUP, Conversion, conversions, parsed, reading
from streamsvm.store.sources.csv.dialect import Dialect, without_comments
from streamsvm.store.sources.csv.faults import Columns, find_fault
from streamsvm.store.sources.csv.head import BLOCK, block_bytes
from streamsvm.store.sources.csv.sieve import Sieve
from streamsvm.store.sources.reading.ahead import ahead
from streamsvm.store.sources.reading.input import Input
from streamsvm.store.sources.reading.lines import line_blocks, whole_rows
from streamsvm.store.sources.source import SourceFile
from streamsvm.store.sources.source_options import SourceOptions
from streamsvm.store.sources.table.encoder import batch_rows
from streamsvm.store.sources.table.layout.crosses import with_crosses
from streamsvm.store.sources.table.layout.schema import Schema
from streamsvm.store.sources.table.missing_words import with_numbers_missing
from streamsvm.store.sources.table.unreadable import READ
from streamsvm.store.sources.table.values import MISSING_HINT, RECORDED_MISSING_HINT

NARROW = 512
"""Columns up to which several threads parse blocks: what a table of more holds is not worth another one (``GROUP``)."""


@dataclass(frozen=True, slots=True)
class CSVReader:
    """Reads columns of files as the types that are stated."""

    dialects: Mapping[Path, Dialect]
    """How the lines of each file are cut."""
    options: SourceOptions
    """How the files are read."""
    schema: Schema
    """What becomes of the columns."""
    types: Mapping[str, pa.DataType]
    """The type every column is read as."""
    exact: bool
    """Whether numbers are read in float64, where they would be in float32."""

    def _type(self, name: str) -> pa.DataType:
        """The type a column is read as now."""
        kind = self.types[name]
        return pa.float64() if self.exact and pa.types.is_float32(kind) else kind

    def tables(self, stream: Input, needed: list[str], file: SourceFile) -> Iterator[pa.RecordBatch]:
        """Yield batches of the needed columns and of crosses of them; ``file.position`` must count those that were taken.

        Raises DataError.
        """
        converting = conversions(needed, {name: self._type(name) for name in needed}, self.options.words)
        options = reading(self.dialects[stream.path], BLOCK, multiline=self.options.multiline)
        alone = stream.size <= BLOCK or len(needed) > GROUP  # one block, or blocks whose tables are large
        together = not alone and len(needed) <= NARROW
        tables = parsed(self._blocks(stream, converting), options, converting, together=together)
        try:
            with closing(tables if alone else ahead(tables)) as tables:
                for table in tables:
                    yield from self._cut(table)
        except pa.ArrowInvalid as error:
            raise self.fault(stream.path, file.position) or unexplained(stream.path, error) from error

    def _blocks(self, stream: Input, converting: Sequence[Conversion]) -> Generator[bytes]:
        """The text in blocks of whole rows, or what is good of it."""
        options = self.options
        if options.on_bad_line != "error":
            return Sieve(
                stream,
                self.dialects[stream.path],
                self.expected._replace(comment=options.comment),
                converting,
                options.rejects,
            ).blocks()
        block = block_bytes(len(self.dialects[stream.path].names))
        lines = line_blocks(stream, block, allow_no_final_newline=options.allow_no_final_newline)
        if options.comment:
            lines = _without_comments(lines, options.comment)
        if options.multiline:
            lines = whole_rows(lines, stream.name)
        return ahead(lines) if stream.compression else lines

    def _cut(self, table: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of a block, where a row has many entries a few at a time."""
        rows = batch_rows(self.schema) if self.schema.has_text else max(1, table.num_rows)
        table = with_numbers_missing(table, self.options.words, but=self.schema.weight)
        for start in range(0, table.num_rows, rows):
            yield with_crosses(table.slice(start, rows), self.schema.crosses)

    def fault(self, path: Path, rows: int) -> DataError | None:
        """Return what is wrong after ``rows`` good rows, as far as reading line by line can tell."""
        return fault_in(path, self.dialects[path], self.options, self.expected, rows)

    @property
    def expected(self) -> Columns:
        """What the columns must hold to be read as they are."""
        numbers = frozenset(name for name, kind in self.types.items() if pa.types.is_floating(kind))
        return Columns(
            numbers,
            frozenset(name for c in self.schema.columns if c.needs_value for name in c.sources),
            self.schema.label,
            missing=self.options.missing != "error",
            multiline=self.options.multiline,
            skip_unlabeled=self.options.missing_label == "skip",
            words=self.options.words,
            read={column.name: column for column in self.schema.columns if column.kind in READ},
            weight=self.schema.weight,
        )


def _without_comments(blocks: Generator[bytes], mark: str) -> Generator[bytes]:
    """Yield blocks of whole lines, with empty lines in place of comments."""
    with closing(blocks):
        for block in blocks:
            yield without_comments(block, mark)


def fault_in(path: Path, dialect: Dialect, options: SourceOptions, columns: Columns, rows: int = 0) -> DataError | None:
    """Return what is wrong after ``rows`` good rows where ``columns`` say what must stand; None where no line is."""
    with Input(path) as stream:
        try:
            columns = columns._replace(comment=options.comment)
            found = find_fault(stream, dialect, columns, rows, last_line=options.allow_no_final_newline)
        except DataError as error:
            return error
    if found is not None and found.hint == MISSING_HINT and options.encoding is not None:
        found.hint = RECORDED_MISSING_HINT
    return found


def unexplained(path: Path, error: Exception) -> DataError:
    """Return an error for a file that pyarrow cannot read and in which no line is wrong."""
    return DataError(
        f"{path} cannot be read: {quote(str(error), 160)}", code="E-PARSE", hint="check it near that place"
    )
