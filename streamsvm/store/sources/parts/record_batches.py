"""Tables of a program on their way to a store: files of record batches of Arrow, one after the other.

Unlike in Parquet nothing has to be known of all batches: a table of any width is written and read in the memory of one batch,
which is a few MiB of rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.store.format.row_ids import GrowingFile
from streamsvm.store.sources.source import SourceFile
from streamsvm.store.sources.table.cells import as_stored, stored_type
from streamsvm.store.sources.table.source import TableSource

BATCH_BYTES = 8 << 20
"""Bytes of a batch of numbers."""
MOST_ROWS = 65_536
"""Rows of a batch."""


def batch_rows(columns: int) -> int:
    """Return how many rows of so many columns are taken at a time."""
    return max(1, min(MOST_ROWS, BATCH_BYTES // (8 * max(1, columns))))


def written(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the bytes of a file of record batches."""
    sink, rows = GrowingFile(), batch_rows(len(schema))
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            for start in range(0, batch.num_rows, rows):
                writer.write_batch(batch.slice(start, rows))
                yield sink.taken()
    yield sink.taken()


def as_parquet(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a Parquet file of the same rows, a row group for each batch."""
    sink = GrowingFile()
    with _opened(path) as reader, pq.ParquetWriter(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


class RecordBatchSource(TableSource):
    """Such files; see ``Source``. To a model they are what the same table in Parquet is."""

    form = "parquet"

    def _types(self, path: Path) -> dict[str, pa.DataType]:
        with _opened(path) as reader:
            return {field.name: stored_type(field.type) for field in reader.schema}

    def _read(self, path: Path, rows: int, columns: list[str], file: SourceFile) -> Generator[pa.RecordBatch]:
        with _opened(path, columns) as reader:
            for batch in reader:
                for start in range(0, batch.num_rows, rows):
                    yield as_stored(batch.slice(start, rows))
        file.read = file.size


@contextmanager
def _opened(path: Path, columns: Iterable[str] | None = None) -> Iterator[pa.RecordBatchReader]:
    """Some columns of a file, mapped into memory instead of read."""
    with pa.memory_map(str(path)) as mapped:
        options = None
        if columns is not None:
            with pa.ipc.open_stream(mapped) as whole:
                wanted = set(columns)
                places = [k for k, name in enumerate(whole.schema.names) if name in wanted]
            options = pa.ipc.IpcReadOptions(included_fields=places)
            mapped.seek(0)
        with pa.ipc.open_stream(mapped, options=options) as reader:
            yield reader
