"""The rows of a Parquet file within bounded memory: forward through all columns, or row groups as wholes by groups of columns.

pyarrow holds a reader for each column it reads, a buffer, and the pages it is in. Of a wide table these are many times
its rows: then a row group is read as a whole, some columns at a time. Which of the two takes less follows from what
the footer tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

COLUMN_BYTES = 8 << 10
"""Bytes for each column that is being read, beside its buffer and its pages (measured: 7 KiB)."""
BUFFER = 16 << 10
"""Bytes: pages are read through a buffer a column instead of a whole column chunk at a time."""
PAGE = 1 << 20
"""Bytes of a page as writers cut them; that of a column chunk is told by its header only."""
PLAIN_PAGES = 1.25
"""Pages of a column in memory that has no dictionary: the one that is read (measured: 1.03)."""
NUMBER_PAGES = 2.5
"""Of one with a dictionary of numbers: that, the page and its values (measured: 2.4)."""
TEXT_PAGES = 4.25
"""Of one of text with a dictionary, or cut into differences: 16 bytes for each text beside it (measured: 4.0)."""
DICTIONARY = 64 << 10
"""Bytes of a dictionary, as it is stored, up to which text is read as numbers into it: that takes 15 times its bytes."""
GROUP = 512
"""Columns that are read at a time where row groups are read as wholes."""
VALUE_BYTES = 10
"""Bytes of a value that was read, with what the allocator adds."""
ARRAY_BYTES = 1 << 10
"""Bytes of a column of a table beside its values."""
UNIT_BYTES = 8 << 20
"""Bytes of row groups that are read together where they are small."""


class RowGroups(NamedTuple):
    """The row groups of a file, as its footer tells of them."""

    columns: int
    """Columns of the file."""
    rows: tuple[int, ...]
    """Rows of each."""
    bytes: tuple[int, ...]
    """Bytes of the pages of each, not compressed."""
    pages: float = NUMBER_PAGES
    """Pages that reading a column holds at most, on the average of the columns."""

    def forward_bytes(self, columns: int) -> int:
        """Return the bytes that reading so many columns forward takes at most, beside the rows that are asked for."""
        pages = self._share(columns)
        return columns * COLUMN_BYTES + min(pages, columns * BUFFER) + int(self.pages * min(pages, columns * PAGE))

    def whole_bytes(self, columns: int) -> int:
        """Return the bytes that reading so many columns of whole row groups takes at most."""
        values = max((self._values(rows, columns) for rows in self.rows), default=0)
        return max(values, min(UNIT_BYTES, self._values(sum(self.rows), columns))) + self.forward_bytes(
            min(columns, GROUP)
        )

    def needed(self, columns: int) -> int:
        """Return the bytes that reading so many columns takes at most."""
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


def encoded_columns(metadata: Any) -> list[str]:
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
