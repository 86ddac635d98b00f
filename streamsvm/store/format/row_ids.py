"""The ids of the rows of a store: ``ids.parquet`` in its directory, one column, in the order of the rows.

pyarrow is imported only when ids are read or written, because it takes memory that a fit can use otherwise. A store has
the file if its manifest has a fact ``ids``; programs that do not know the file ignore it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import durable
from streamsvm.errors import DataError
from streamsvm.type_aliases import Array

FILE = "ids.parquet"
COLUMN = "id"
GROUP_ROWS = 1 << 16


class IdWriter:
    """Writes the ids of rows, batch by batch, into the directory of a store that is being built."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._writer: Any = None

    def append(self, ids: Array) -> None:
        """Add the ids of a batch of rows: integers, or text as an array of objects. Raises StorageError."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        kind = pa.string() if ids.dtype == object else pa.int64()
        with durable.explain_errors("writing", self._path):
            if self._writer is None:
                schema = pa.schema([(COLUMN, kind)])
                self._writer = pq.ParquetWriter(self._path, schema, write_page_checksum=True)
            self._writer.write_table(pa.table({COLUMN: pa.array(ids, kind)}), row_group_size=GROUP_ROWS)

    def close(self) -> None:
        """End the file and make it durable. Raises StorageError."""
        if self._writer is not None:
            with durable.explain_errors("writing", self._path):
                self._writer.close()
            durable.sync([self._path])
            self._writer = None


class IdReader:
    """Reads the ids of a store in the order of its rows."""

    def __init__(self, store: Path) -> None:
        self._path = store / FILE
        self._next_row = 0
        """The row of the first id in ``_pending``."""
        self._batches: Iterator[Any] = iter(())
        self._pending: Array = np.empty(0, np.int64)
        """Ids of the current batch that were not returned or skipped yet."""

    def read(self, start: int, stop: int) -> Array:
        """Return the ids of rows [start, stop); ``start`` must not be less than the ``stop`` of the previous call.

        Raises DataError when the file is missing, damaged or too short.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts: list[Array] = []
        try:
            if self._next_row == 0 and not len(self._pending):
                file = pq.ParquetFile(self._path, page_checksum_verification=True)
                self._batches = file.iter_batches(GROUP_ROWS, use_threads=False)
            while start < stop:
                if not len(self._pending):
                    self._pending = next(self._batches).column(0).to_numpy(zero_copy_only=False)
                skipped = min(max(start - self._next_row, 0), len(self._pending))
                self._next_row, self._pending = self._next_row + skipped, self._pending[skipped:]
                taken = self._pending[: stop - start] if self._next_row == start else self._pending[:0]
                parts.append(taken)
                start += len(taken)
                self._next_row, self._pending = self._next_row + len(taken), self._pending[len(taken) :]
        except (StopIteration, OSError, pa.ArrowException) as error:
            hint = "ingest again, or predict from the files"
            raise DataError(f"the ids in {self._path} cannot be read", code="E-CRC", hint=hint) from error
        return np.concatenate(parts) if len(parts) != 1 else parts[0]
