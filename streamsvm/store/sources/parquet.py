"""Parquet files as a source, read by pyarrow in batches of bounded size, with their page checksums verified.

To read rows sequentially, pyarrow keeps a reader, a buffer and the current pages of every column in memory. In a wide
table these take many times the memory of a batch; then whole row groups are read, some columns at a time. The way that
takes less memory is chosen by the footer of the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.errors import BudgetError, DataError, StorageError, quote
from streamsvm.input_files import find_url
from streamsvm.store.sources.byte_stream import source_name
from streamsvm.store.sources.cell_parsing import as_readable, as_stored, readable_type, storage_type
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.remote_files import file_size, open_ranges, open_stream
from streamsvm.store.sources.schema import TableWidth, check_width, shell_word, width_bytes
from streamsvm.store.sources.schema_inference import column_kinds_in_options, columns_named_in_options
from streamsvm.store.sources.source import SourceFile
from streamsvm.store.sources.table import TableSource

SAMPLE_BYTES = 16 << 20
"""The most bytes that reading the first values of a group of columns may take."""
ENCODING_BYTES = 24 << 20
"""Bytes of the batches of rows that are encoded at the same time."""
LARGEST_FOOTER = 1 << 30
"""The most bytes in memory of a footer that is read to estimate the memory of its table."""
FOOTER_FACTOR = 13
"""Bytes in memory per byte of a footer (measured: 12)."""
COLUMN_BYTES = 8 << 10
"""Bytes per column that is being read, without its buffer and its pages (measured: 7 KiB)."""
BUFFER, REMOTE_BUFFER = 16 << 10, 1 << 20
"""Bytes of the buffer of a column; with a buffer, pyarrow reads page by page instead of a whole column chunk. Each
filling of the buffer of an object is a request."""
PAGE = 1 << 20
"""The usual bytes of a page; the footer does not tell them."""
PLAIN_PAGES = 1.25
"""The pages in memory per column without a dictionary: the current one (measured: 1.03)."""
NUMBER_PAGES = 2.5
"""The pages in memory per column with a dictionary of numbers: dictionary, current page and values (measured: 2.4)."""
TEXT_PAGES = 4.25
"""The pages in memory per column of text with a dictionary or DELTA encoding, with 16 bytes per text (measured: 4)."""
DICTIONARY = 64 << 10
"""The most bytes of a stored dictionary whose text is read as codes; in memory it takes 15 times its bytes."""
GROUP = 512
"""The number of columns that are read at a time from whole row groups."""
VALUE_BYTES = 10
"""Bytes of a value in memory, with the overhead of the allocator."""
ARRAY_BYTES = 1 << 10
"""Bytes of a column in memory without its values."""
UNIT_BYTES = 8 << 20
"""The most bytes of small row groups that are read together."""


class ParquetSource(TableSource):
    """Parquet files."""

    format_name = "parquet"
    reads_partitions = True

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        self._footer: tuple[Path, Any] | None = None
        self._largest: tuple[Path, int, RowGroups] | None = None
        super().__init__(paths, options)
        if options.encoding is None:
            self._note_named_index({*columns_named_in_options(options), *column_kinds_in_options(options)})

    def _note_named_index(self, named: set[str | None]) -> None:
        """Add a notice for each feature that was an index of the data frame pandas wrote, unless options name it."""
        recorded = (self._metadata(self._paths[0]).metadata or {}).get(b"pandas", b"{}")
        index = [name for name in json.loads(recorded).get("index_columns", ()) if isinstance(name, str)]
        features = {column.name for column in self.schema.columns}
        for name in index:
            if name in features and name not in named:
                advice = f"--column {shell_word(f'{name}=drop')} leaves it out"
                self.notices[f"column that was the index of the data frame is a feature: {quote(name)}; {advice}"] = 1

    def _types(self, path: Path) -> dict[str, pa.DataType]:
        metadata = self._metadata(path)
        groups, nbytes = row_groups(metadata, buffer_of(path)), FOOTER_FACTOR * metadata.serialized_size
        needed = nbytes + groups.bytes_to_read(groups.columns)
        if self._largest is None or needed > self._largest[1] + self._largest[2].bytes_to_read(groups.columns):
            self._largest = path, nbytes, groups
        with explain_parquet_errors(path):
            return {field.name: readable_type(storage_type(field.type)) for field in metadata.schema.to_arrow_schema()}

    def _check_memory(self, types: Mapping[str, pa.DataType]) -> None:
        assert self._largest is not None
        path, footer, groups = self._largest
        reading = footer + groups.bytes_to_read(len(types)) + ENCODING_BYTES
        where = f" in row groups of up to {max(groups.rows, default=0)} rows"
        check_width(source_name(str(path)), types, self._options.memory_limit, reading, where)

    def _columns_sampled_together(self, path: Path) -> int:
        groups, columns = row_groups(self._metadata(path), buffer_of(path)), GROUP
        while columns > 1 and groups.bytes_to_read(columns) > SAMPLE_BYTES:
            columns //= 2
        return columns

    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        metadata = self._metadata(path)
        with explain_parquet_errors(path), _open_file(path, metadata) as opened:
            for batch in read(opened, rows, columns, buffer_of(path)):
                yield as_readable(as_stored(batch))
                file.read = int(file.size * file.position / metadata.num_rows)

    def _metadata(self, path: Path) -> Any:
        """Return the footer of a file; only the last one is kept, because a footer of many columns is large."""
        if self._footer is None or self._footer[0] != path:
            self._footer = None  # freed before the next one is read
            _check_footer(path, self._options.memory_limit)
            with explain_parquet_errors(path):
                self._footer = path, pq.read_metadata(open_ranges(path))
        return self._footer[1]


def table_width(path: Path) -> TableWidth:
    """Return the number of columns of a file and the memory that reading it takes, by its footer."""
    footer = _footer_bytes(path)
    if footer > LARGEST_FOOTER:
        return TableWidth(source_name(str(path)), 0, footer)
    metadata = pq.read_metadata(open_ranges(path))
    names = metadata.schema.to_arrow_schema().names
    reading = row_groups(metadata, buffer_of(path)).bytes_to_read(len(names)) + ENCODING_BYTES
    return TableWidth(source_name(str(path)), len(names), footer + reading + width_bytes(names))


def _open_file(path: Path, metadata: Any) -> Any:
    return pq.ParquetFile(
        open_ranges(path),
        metadata=metadata,
        read_dictionary=find_dictionary_columns(metadata),
        buffer_size=buffer_of(path),
        pre_buffer=False,
        page_checksum_verification=True,
    )


def _check_footer(path: Path, memory_limit: int | None) -> None:
    """Raise BudgetError if the footer, which describes each column of each row group, does not fit in memory."""
    needed = _footer_bytes(path)
    if memory_limit is not None and needed > memory_limit:
        size = f"the footer of {source_name(str(path))} has {needed // FOOTER_FACTOR} bytes"
        message = f"{size}: about {needed >> 20}MiB are needed to know its columns and row groups"
        hint = f"write it with larger row groups, or give {(needed - memory_limit >> 20) + 1}MiB more with --memory"
        raise BudgetError(f"{message}, {memory_limit >> 20}MiB are left", hint=hint)


def _footer_bytes(path: Path) -> int:
    """Return the bytes that the footer of a file takes in memory."""
    file_bytes = file_size(path)
    with open_stream(path) as file:
        file.seek(-min(8, file_bytes), os.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
    return FOOTER_FACTOR * min(size, file_bytes)


def buffer_of(path: Path) -> int:
    """Return the bytes of the buffer of a column."""
    return BUFFER if find_url(path) is None else REMOTE_BUFFER


@contextmanager
def explain_parquet_errors(path: Path) -> Iterator[None]:
    """Convert errors of pyarrow to DataError and StorageError that name the file."""
    try:
        yield
    except pa.ArrowInvalid as error:
        cut = "magic bytes" in str(error) or "footer" in str(error).lower()
        raise DataError(
            f"{source_name(str(path))} is not a complete Parquet file: {quote(str(error), 160)}",
            code="E-TRUNCATED" if cut else "E-PARSE",
            hint="get the file again",
        ) from error
    except (OSError, pa.ArrowException) as error:
        if "crc" in str(error).lower() or "checksum" in str(error).lower():
            raise DataError(
                f"a page of {source_name(str(path))} is corrupt: {quote(str(error), 160)}", code="E-CRC"
            ) from error
        raise StorageError(
            f"reading {source_name(str(path))} failed: {quote(str(error), 160)}", hint="check the file"
        ) from error


def read(opened: Any, rows: int, columns: Sequence[str], buffer: int = BUFFER) -> Iterator[pa.RecordBatch]:
    """Yield some columns of an open file in batches of at most ``rows`` rows. ``buffer``: bytes of the buffer of a column."""
    groups = row_groups(opened.metadata, buffer)
    if groups.sequential_bytes(len(columns)) <= groups.whole_bytes(len(columns)):
        yield from opened.iter_batches(rows, columns=list(columns), use_threads=False)
        return
    for unit in groups.units(len(columns)):
        yield from _read_whole(opened, unit, columns).to_batches(max_chunksize=rows)


def _read_whole(opened: Any, unit: list[int], columns: Sequence[str]) -> pa.Table:
    """Return the row groups with the numbers ``unit``, read ``GROUP`` columns at a time."""
    pieces = [
        opened.read_row_groups(unit, columns=list(columns[start : start + GROUP]), use_threads=False)
        for start in range(0, len(columns), GROUP)
    ]
    values = [column for piece in pieces for column in piece.columns]
    return pa.table(values, names=[name for piece in pieces for name in piece.column_names])


class RowGroups(NamedTuple):
    """The row groups of a file, from its footer, and estimates of the memory that reading them takes."""

    columns: int
    rows: tuple[int, ...]
    bytes: tuple[int, ...]
    """The uncompressed bytes of the pages of each row group."""
    pages: float = NUMBER_PAGES
    """The most pages in memory per column that is read, as the mean over the columns."""
    buffer: int = BUFFER
    """Bytes of the buffer of a column."""

    def sequential_bytes(self, columns: int) -> int:
        """Return the most bytes that reading ``columns`` columns sequentially takes, without the batches returned."""
        pages = self._page_bytes(columns)
        return columns * COLUMN_BYTES + min(pages, columns * self.buffer) + int(self.pages * min(pages, columns * PAGE))

    def whole_bytes(self, columns: int) -> int:
        """Return the most bytes that reading ``columns`` columns of whole row groups takes."""
        values = max((self._table_bytes(rows, columns) for rows in self.rows), default=0)
        unit = max(values, min(UNIT_BYTES, self._table_bytes(sum(self.rows), columns)))
        return unit + self.sequential_bytes(min(columns, GROUP))

    def bytes_to_read(self, columns: int) -> int:
        """Return the most bytes that reading ``columns`` columns takes, in the way that takes less."""
        return min(self.sequential_bytes(columns), self.whole_bytes(columns))

    def units(self, columns: int) -> Iterator[list[int]]:
        """Yield the numbers of consecutive row groups that are read together."""
        unit, rows = list[int](), 0
        for number, group_rows in enumerate(self.rows):
            if unit and self._table_bytes(rows + group_rows, columns) > UNIT_BYTES:
                yield unit
                unit, rows = [], 0
            unit.append(number)
            rows += group_rows
        if unit:
            yield unit

    def _table_bytes(self, rows: int, columns: int) -> int:
        """Return the bytes of ``rows`` rows in memory; text is assumed to take the bytes of its pages."""
        text_bytes = self._page_bytes(columns)
        return columns * (ARRAY_BYTES + VALUE_BYTES * rows) + text_bytes

    def _page_bytes(self, columns: int) -> int:
        """Return the bytes of the pages of ``columns`` columns of the largest row group, if all columns are alike."""
        return max(self.bytes, default=0) * columns // max(1, self.columns)


def row_groups(metadata: Any, buffer: int = BUFFER) -> RowGroups:
    """Return the row groups that a footer describes. ``buffer``: bytes of the buffer of a column."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return RowGroups(
        metadata.num_columns,
        tuple(group.num_rows for group in groups),
        tuple(group.total_byte_size for group in groups),
        _mean_pages(max(groups, key=lambda group: int(group.total_byte_size))) if groups else NUMBER_PAGES,
        buffer,
    )


def _mean_pages(group: Any) -> float:
    """Return the mean over the columns of a row group of the pages that reading them keeps in memory."""
    pages = [_column_pages(group.column(number)) for number in range(group.num_columns)]
    return sum(pages) / max(1, len(pages))


def _column_pages(column: Any) -> float:
    """Return the pages in memory while a column of a row group is read."""
    is_text = column.physical_type == "BYTE_ARRAY"
    if is_text and any("DELTA" in encoding for encoding in column.encodings):
        return TEXT_PAGES
    if not column.has_dictionary_page:
        return PLAIN_PAGES
    return TEXT_PAGES if is_text else NUMBER_PAGES


def find_dictionary_columns(metadata: Any) -> list[str]:
    """Return the columns of text that are read as dictionaries: their dictionaries are small in all row groups.

    pyarrow cannot return a dictionary for text in DELTA encoding, which writers also use after a dictionary that became
    too large.
    """
    schema = metadata.schema.to_arrow_schema()
    text = {f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)}
    names = {number: metadata.schema.column(number).path for number in range(metadata.num_columns)}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        name
        for number, name in names.items()
        if name in text and all(_has_small_dictionary(group.column(number)) for group in groups)
    ]


def _has_small_dictionary(column: Any) -> bool:
    """Return whether a column of a row group has a small dictionary and no values in DELTA encoding."""
    if not column.has_dictionary_page or any("DELTA" in encoding for encoding in column.encodings):
        return False
    return bool(column.data_page_offset - column.dictionary_page_offset <= DICTIONARY)
