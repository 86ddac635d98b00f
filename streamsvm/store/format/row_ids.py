"""The names of the rows of a store: ``ids.parquet`` beside its arrays, one column, in the order of the rows.

pyarrow is imported by those who use ids, because it takes memory that a fit has other uses for. The file belongs to a
store whose manifest has a fact ``ids``; programs that do not know of it pass it over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm import durable
from streamsvm.aliases import Array
from streamsvm.errors import DataError

FILE = "ids.parquet"
COLUMN = "id"
GROUP_ROWS = 1 << 16


class IdWriter:
    """Writes the ids of rows as they come, into the directory of a store that is being built."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._writer: Any = None

    def append(self, ids: Array) -> None:
        """Add the ids of some rows: integers, or text as an array of objects. Raises StorageError."""
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
    """Reads the ids of a store forward."""

    def __init__(self, store: Path) -> None:
        self._path = store / FILE
        self._rows = 0
        self._batches: Iterator[Any] = iter(())
        self._waiting: Array = np.empty(0, np.int64)

    def between(self, start: int, stop: int) -> Array:
        """Return the ids of rows [start, stop), which must not lie before those that were read.

        Raises DataError when the file is missing, damaged or too short.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        found: list[Array] = []
        try:
            if self._rows == 0 and not len(self._waiting):
                file = pq.ParquetFile(self._path, page_checksum_verification=True)
                self._batches = file.iter_batches(GROUP_ROWS, use_threads=False)
            while start < stop:
                if not len(self._waiting):
                    self._waiting = next(self._batches).column(0).to_numpy(zero_copy_only=False)
                skipped = min(max(start - self._rows, 0), len(self._waiting))
                self._rows, self._waiting = self._rows + skipped, self._waiting[skipped:]
                taken = self._waiting[: stop - start] if self._rows == start else self._waiting[:0]
                found.append(taken)
                start += len(taken)
                self._rows, self._waiting = self._rows + len(taken), self._waiting[len(taken) :]
        except (StopIteration, OSError, pa.ArrowException) as error:
            hint = "ingest again, or predict from the files"
            raise DataError(f"the ids in {self._path} cannot be read", code="E-CRC", hint=hint) from error
        return np.concatenate(found) if len(found) != 1 else found[0]
