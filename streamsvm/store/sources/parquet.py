"""Parquet files, read by pyarrow in batches of bounded size, with their page checksums verified.

pyarrow holds a reader for each column that it reads, a buffer, and the pages it is in. Of a wide table these are many
times its rows: then row groups are read as wholes, some columns at a time. Which of the two takes less memory follows
from the footer.
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
from streamsvm.input_files import open_regular
from streamsvm.store.sources.cell_parsing import as_stored, stored_type
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.schema import TableWidth, check_width, shell_word, width_bytes
from streamsvm.store.sources.schema_inference import named_columns, stated_columns
from streamsvm.store.sources.source import SourceFile
from streamsvm.store.sources.table import TableSource

SAMPLE_BYTES = 16 << 20
"""The most bytes to read the first values of some columns together."""
ENCODING_BYTES = 24 << 20
"""Bytes of a few batches of rows between the table and the store."""
LARGEST_FOOTER = 1 << 30
"""A footer that takes more bytes in memory is not read to say how much memory its table takes."""
FOOTER_FACTOR = 13
"""Bytes in memory for each byte of a footer (measured: 12)."""
COLUMN_BYTES = 8 << 10
"""Bytes for each column that is being read, beside its buffer and its pages (measured: 7 KiB)."""
BUFFER = 16 << 10
"""Bytes of the buffer of a column, through which pages are read instead of a whole column chunk."""
PAGE = 1 << 20
"""Bytes of a page as writers usually cut them; the footer does not say it."""
PLAIN_PAGES = 1.25
"""Pages in memory of a column without dictionary: the one that is read (measured: 1.03)."""
NUMBER_PAGES = 2.5
"""Pages in memory of a column with a dictionary of numbers: dictionary, page and values (measured: 2.4)."""
TEXT_PAGES = 4.25
"""Pages in memory of text with a dictionary or in DELTA encoding: 16 bytes for each text beside it (measured: 4.0)."""
DICTIONARY = 64 << 10
"""The largest stored dictionary with which text is read as codes: in memory it takes 15 times its bytes."""
GROUP = 512
"""Columns that are read at a time where row groups are read as wholes."""
VALUE_BYTES = 10
"""Bytes of a value in memory, with what the allocator adds."""
ARRAY_BYTES = 1 << 10
"""Bytes of a column of a table beside its values."""
UNIT_BYTES = 8 << 20
"""Bytes of row groups that are read together where they are small."""


class ParquetSource(TableSource):
    """Parquet files."""

    form = "parquet"

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        self._footer: tuple[Path, Any] | None = None
        self._largest: tuple[Path, int, RowGroups] | None = None
        super().__init__(paths, options)
        if options.encoding is None:
            self._note_named_index({*named_columns(options), *stated_columns(options)})

    def _note_named_index(self, asked: set[str | None]) -> None:
        """Count the columns that were a named index of the data frame that pandas wrote: they are features."""
        recorded = (self._metadata(self._paths[0]).metadata or {}).get(b"pandas", b"{}")
        index = [name for name in json.loads(recorded).get("index_columns", ()) if isinstance(name, str)]
        features = {column.name for column in self.schema.columns}
        for name in index:
            if name in features and name not in asked:
                left = f"--column {shell_word(f'{name}=drop')} leaves it out"
                self.notices[f"column that was the index of the data frame is a feature: {quote(name)}; {left}"] = 1

    def _types(self, path: Path) -> dict[str, pa.DataType]:
        metadata = self._metadata(path)
        groups, nbytes = row_groups(metadata), FOOTER_FACTOR * metadata.serialized_size
        needed = nbytes + groups.bytes_to_read(groups.columns)
        if self._largest is None or needed > self._largest[1] + self._largest[2].bytes_to_read(groups.columns):
            self._largest = path, nbytes, groups
        with _explain_errors(path):
            return {field.name: stored_type(field.type) for field in metadata.schema.to_arrow_schema()}

    def _check_memory(self, types: Mapping[str, pa.DataType]) -> None:
        assert self._largest is not None
        path, footer, groups = self._largest
        reading = footer + groups.bytes_to_read(len(types)) + ENCODING_BYTES
        where = f" in row groups of up to {max(groups.rows, default=0)} rows"
        check_width(str(path), types, self._options.memory_limit, reading, where)

    def _columns_sampled_together(self, path: Path) -> int:
        groups, columns = row_groups(self._metadata(path)), GROUP
        while columns > 1 and groups.bytes_to_read(columns) > SAMPLE_BYTES:
            columns //= 2
        return columns

    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        metadata = self._metadata(path)
        with _explain_errors(path), _open_file(path, metadata) as opened:
            for batch in read(opened, rows, columns):
                yield as_stored(batch)
                file.read = int(file.size * file.position / metadata.num_rows)

    def _metadata(self, path: Path) -> Any:
        """The footer of a file; that of one file is kept, because it is large where there are many columns."""
        if self._footer is None or self._footer[0] != path:
            self._footer = None  # before the next is made
            _check_footer(path, self._options.memory_limit)
            with _explain_errors(path):
                self._footer = path, pq.read_metadata(path)
        return self._footer[1]


def table_width(path: Path) -> TableWidth:
    """Return the columns of a file with the bytes that they take, by its footer."""
    footer = _footer_bytes(path)
    if footer > LARGEST_FOOTER:
        return TableWidth(str(path), 0, footer)
    metadata = pq.read_metadata(path)
    names = metadata.schema.to_arrow_schema().names
    reading = row_groups(metadata).bytes_to_read(len(names)) + ENCODING_BYTES
    return TableWidth(str(path), len(names), footer + reading + width_bytes(names))


def _open_file(path: Path, metadata: Any) -> Any:
    return pq.ParquetFile(
        path,
        metadata=metadata,
        read_dictionary=encode_columns(metadata),
        buffer_size=BUFFER,
        pre_buffer=False,
        page_checksum_verification=True,
    )


def _check_footer(path: Path, memory_limit: int | None) -> None:
    """Raise BudgetError when there is no memory for the footer, which describes each column of each row group."""
    needed = _footer_bytes(path)
    if memory_limit is not None and needed > memory_limit:
        found = f"the footer of {path} has {needed // FOOTER_FACTOR} bytes: about {needed >> 20}MiB are needed to know its columns and row groups"
        hint = f"write it with larger row groups, or give {(needed - memory_limit >> 20) + 1}MiB more with --memory"
        raise BudgetError(f"{found}, {memory_limit >> 20}MiB are left", hint=hint)


def _footer_bytes(path: Path) -> int:
    """Bytes that pyarrow makes of the footer of a file."""
    with open(open_regular(path, follow=True), "rb") as file:
        file.seek(-min(8, path.stat().st_size), os.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
    return FOOTER_FACTOR * min(size, path.stat().st_size)


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow into errors that name the file."""
    try:
        yield
    except pa.ArrowInvalid as error:
        cut = "magic bytes" in str(error) or "footer" in str(error).lower()
        raise DataError(
            f"{path} is not a complete Parquet file: {quote(str(error), 160)}",
            code="E-TRUNCATED" if cut else "E-PARSE",
            hint="get the file again",
        ) from error
    except (OSError, pa.ArrowException) as error:
        if "crc" in str(error).lower() or "checksum" in str(error).lower():
            raise DataError(f"a page of {path} is corrupt: {quote(str(error), 160)}", code="E-CRC") from error
        raise StorageError(f"reading {path} failed: {quote(str(error), 160)}", hint="check the file") from error


def read(opened: Any, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of an open file, at most so many rows at a time."""
    groups = row_groups(opened.metadata)
    if groups.forward_bytes(len(columns)) <= groups.whole_bytes(len(columns)):
        yield from opened.iter_batches(rows, columns=list(columns), use_threads=False)
        return
    for unit in groups.units(len(columns)):
        yield from _whole(opened, unit, columns).to_batches(max_chunksize=rows)


def _whole(opened: Any, unit: list[int], columns: Sequence[str]) -> pa.Table:
    """Some row groups, ``GROUP`` columns at a time."""
    pieces = [
        opened.read_row_groups(unit, columns=list(columns[start : start + GROUP]), use_threads=False)
        for start in range(0, len(columns), GROUP)
    ]
    values = [column for piece in pieces for column in piece.columns]
    return pa.table(values, names=[name for piece in pieces for name in piece.column_names])


class RowGroups(NamedTuple):
    """The row groups of a file by its footer."""

    columns: int
    rows: tuple[int, ...]
    bytes: tuple[int, ...]
    """Bytes of the pages of each, not compressed."""
    pages: float = NUMBER_PAGES
    """The most pages in memory for a column that is read, on average over the columns."""

    def forward_bytes(self, columns: int) -> int:
        """Return the most bytes to read so many columns forward, beside the rows that are asked for."""
        pages = self._share(columns)
        return columns * COLUMN_BYTES + min(pages, columns * BUFFER) + int(self.pages * min(pages, columns * PAGE))

    def whole_bytes(self, columns: int) -> int:
        """Return the most bytes to read so many columns of whole row groups."""
        values = max((self._values(rows, columns) for rows in self.rows), default=0)
        return max(values, min(UNIT_BYTES, self._values(sum(self.rows), columns))) + self.forward_bytes(
            min(columns, GROUP)
        )

    def bytes_to_read(self, columns: int) -> int:
        """Return the most bytes to read so many columns."""
        return min(self.forward_bytes(columns), self.whole_bytes(columns))

    def units(self, columns: int) -> Iterator[list[int]]:
        """Yield numbers of row groups to be read together."""
        unit, rows = list[int](), 0
        for number, more in enumerate(self.rows):
            if unit and self._values(rows + more, columns) > UNIT_BYTES:
                yield unit
                unit, rows = [], 0
            unit.append(number)
            rows += more
        if unit:
            yield unit

    def _values(self, rows: int, columns: int) -> int:
        """Bytes of so many rows as a table; text may be as long as its pages."""
        of_text = self._share(columns)
        return columns * (ARRAY_BYTES + VALUE_BYTES * rows) + of_text

    def _share(self, columns: int) -> int:
        """Bytes of the pages of so many columns of a row group, at most, where all columns are alike."""
        return max(self.bytes, default=0) * columns // max(1, self.columns)


def row_groups(metadata: Any) -> RowGroups:
    """Return the row groups of a file by its footer."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return RowGroups(
        metadata.num_columns,
        tuple(group.num_rows for group in groups),
        tuple(group.total_byte_size for group in groups),
        _pages(max(groups, key=lambda group: int(group.total_byte_size))) if groups else NUMBER_PAGES,
    )


def _pages(group: Any) -> float:
    """Pages that reading a column of a row group holds at most, on average: writers write all row groups alike."""
    held = [_pages_of(group.column(number)) for number in range(group.num_columns)]
    return sum(held) / max(1, len(held))


def _pages_of(column: Any) -> float:
    """What the footer tells of one column of a row group."""
    text = column.physical_type == "BYTE_ARRAY"
    if text and any("DELTA" in encoding for encoding in column.encodings):
        return TEXT_PAGES
    if not column.has_dictionary_page:
        return PLAIN_PAGES
    return TEXT_PAGES if text else NUMBER_PAGES


def encode_columns(metadata: Any) -> list[str]:
    """Return the columns of text to be read as dictionaries: by the footer all they hold is in small ones.

    Of text that is cut into differences, also after a dictionary that became too large, pyarrow makes none.
    """
    schema = metadata.schema.to_arrow_schema()
    text = {f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)}
    names = {number: metadata.schema.column(number).path for number in range(metadata.num_columns)}
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        name
        for number, name in names.items()
        if name in text and all(_small_dictionary(group.column(number)) for group in groups)
    ]


def _small_dictionary(column: Any) -> bool:
    """Whether a column of a row group has a dictionary that is small, and nothing of another encoding."""
    if not column.has_dictionary_page or any("DELTA" in encoding for encoding in column.encodings):
        return False
    return bool(column.data_page_offset - column.dictionary_page_offset <= DICTIONARY)
