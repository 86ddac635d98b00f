"""Parquet files, read by pyarrow in batches of bounded size with their page checksums verified."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.errors import BudgetError, DataError, StorageError, quote
from streamsvm.regular import open_regular
from streamsvm.store.sources.parquet.row_groups import BUFFER, GROUP, RowGroups, encoded_columns, read, row_groups
from streamsvm.store.sources.source import SourceFile
from streamsvm.store.sources.source_options import SourceOptions
from streamsvm.store.sources.table.cells import as_stored, stored_type
from streamsvm.store.sources.table.layout.planning import named_columns, stated_columns
from streamsvm.store.sources.table.layout.schema import shell_word
from streamsvm.store.sources.table.source import TableSource
from streamsvm.store.sources.table.width import TableWidth, check_width, width_bytes

SAMPLE_BYTES = 16 << 20
"""Bytes that reading the first values of some columns together takes at most."""
ENCODING_BYTES = 24 << 20
"""Bytes of rows on their way from a table to the batches of a store, a few batches of them."""
LARGEST_FOOTER = 1 << 30
"""Bytes made of a footer beyond which it is not read to say how much memory its table takes."""
FOOTER_FACTOR = 13
"""Bytes that pyarrow makes of a byte of a footer (measured: 12)."""


class ParquetSource(TableSource):
    """Parquet files; see ``Source``."""

    form = "parquet"

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        self._footer: tuple[Path, Any] | None = None
        self._largest: tuple[Path, int, RowGroups] | None = None
        super().__init__(paths, options)
        if options.encoding is None:
            self._note_named_index({*named_columns(options), *stated_columns(options)})

    def _note_named_index(self, asked: set[str | None]) -> None:
        """Count the columns that were the index of the data frame that pandas wrote, and had a name: they are features."""
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
        needed = nbytes + groups.needed(groups.columns)
        if self._largest is None or needed > self._largest[1] + self._largest[2].needed(groups.columns):
            self._largest = path, nbytes, groups
        with _explained(path):
            return {field.name: stored_type(field.type) for field in metadata.schema.to_arrow_schema()}

    def _check_memory(self, types: Mapping[str, pa.DataType]) -> None:
        assert self._largest is not None
        path, footer, groups = self._largest
        reading = footer + groups.needed(len(types)) + ENCODING_BYTES
        where = f" in row groups of up to {max(groups.rows, default=0)} rows"
        check_width(str(path), types, self._options.memory_limit, reading, where)

    def _together(self, path: Path) -> int:
        groups, columns = row_groups(self._metadata(path)), GROUP
        while columns > 1 and groups.needed(columns) > SAMPLE_BYTES:
            columns //= 2
        return columns

    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        metadata = self._metadata(path)
        with _explained(path), _open(path, metadata) as opened:
            for batch in read(opened, rows, columns):
                yield as_stored(batch)
                file.read = int(file.size * file.position / metadata.num_rows)

    def _metadata(self, path: Path) -> Any:
        """The footer of a file; that of one file is kept, because it is large where there are many columns."""
        if self._footer is None or self._footer[0] != path:
            self._footer = None  # before the next is made
            _check_footer(path, self._options.memory_limit)
            with _explained(path):
                self._footer = path, pq.read_metadata(path)
        return self._footer[1]


def table_width(path: Path) -> TableWidth:
    """Return the columns of a file with the bytes that they take, by its footer."""
    footer = _footer_bytes(path)
    if footer > LARGEST_FOOTER:
        return TableWidth(str(path), 0, footer)
    metadata = pq.read_metadata(path)
    names = metadata.schema.to_arrow_schema().names
    reading = row_groups(metadata).needed(len(names)) + ENCODING_BYTES
    return TableWidth(str(path), len(names), footer + reading + width_bytes(names))


def _open(path: Path, metadata: Any) -> Any:
    return pq.ParquetFile(
        path,
        metadata=metadata,
        read_dictionary=encoded_columns(metadata),
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
def _explained(path: Path) -> Iterator[None]:
    """Turn what pyarrow raises into an error that names the file."""
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
