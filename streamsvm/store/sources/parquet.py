"""Parquet files, read by pyarrow in batches of bounded size with their page checksums verified."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.errors import BudgetError, DataError, StorageError, quote
from streamsvm.regular import open_regular
from streamsvm.store.sources.source import SourceFile
from streamsvm.store.sources.table.source import TableSource

BUFFERS, LARGEST_BUFFER, LEAST_BUFFER = 16 << 20, 1 << 20, 16 << 10
"""Pages are read through a buffer a column instead of a whole column chunk at a time: of all columns, of one."""
FOOTER_FACTOR = 13
"""Bytes that pyarrow makes of a byte of a footer (measured: 12)."""


class ParquetSource(TableSource):
    """Parquet files; see ``Source``."""

    form = "parquet"

    def _types(self, path: Path) -> dict[str, pa.DataType]:
        _check_footer(path, self._options.memory_limit)
        with _explained(path):
            return {field.name: field.type for field in pq.read_schema(path)}

    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Iterator[pa.RecordBatch]:
        total = _rows(path)
        with _explained(path), _open(path) as opened:
            for batch in opened.iter_batches(rows, columns=columns, use_threads=False):
                yield batch
                file.read = int(file.size * file.position / total)


def _open(path: Path) -> Any:
    types = pq.read_schema(path)
    text = [f.name for f in types if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    size = max(LEAST_BUFFER, min(LARGEST_BUFFER, BUFFERS // max(1, len(types))))
    return pq.ParquetFile(
        path, read_dictionary=text, buffer_size=size, pre_buffer=False, page_checksum_verification=True
    )


def _check_footer(path: Path, memory_limit: int | None) -> None:
    """Raise BudgetError when there is no memory for the footer, which describes each column of each row group."""
    with open(open_regular(path, follow=True), "rb") as file:
        file.seek(-min(8, path.stat().st_size), os.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
    needed = FOOTER_FACTOR * min(size, path.stat().st_size)
    if memory_limit is not None and needed > memory_limit:
        found = f"the footer of {path} has {size} bytes: about {needed >> 20}MiB are needed to know its columns and row groups"
        hint = f"write it with larger row groups, or give {(needed - memory_limit >> 20) + 1}MiB more with --memory"
        raise BudgetError(f"{found}, {memory_limit >> 20}MiB are left", hint=hint)


def _rows(path: Path) -> int:
    with _explained(path):
        return int(pq.read_metadata(path).num_rows)


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
