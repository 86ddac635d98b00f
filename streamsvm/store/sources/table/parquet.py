"""Parquet files, read by pyarrow in batches of bounded size with their page checksums verified."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.aliases import JsonObject
from streamsvm.errors import BudgetError, DataError, StorageError, quote
from streamsvm.regular import open_regular
from streamsvm.store.sources.decompression import digest_of
from streamsvm.store.sources.options import SourceFile, SourceOptions, check_width
from streamsvm.store.sources.table.cells import BadCell
from streamsvm.store.sources.table.encoder import TableEncoder, batch_rows, count_values
from streamsvm.store.sources.table.schema import ValueCensus, plan_schema, same_columns, schema_from
from streamsvm.types import Batch

BUFFERS, LARGEST_BUFFER, LEAST_BUFFER = 16 << 20, 1 << 20, 16 << 10
"""Pages are read through a buffer a column instead of a whole column chunk at a time: of all columns, of one."""
CENSUS_ROWS = 65_536
SAMPLE_ROWS = 5000
"""Rows by which it is told what a column holds."""
FOOTER_FACTOR = 13
"""Bytes that pyarrow makes of a byte of a footer (measured: 12)."""


class ParquetSource:
    """Parquet files; see ``Source``. Files of one table are matched by column name."""

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        self.sources: list[SourceFile] = []
        self.notices: dict[str, int] = Counter()
        self.proposals: list[str] = []
        self._paths = paths
        self._options = options
        for path in paths:
            _check_footer(path, options.memory_limit)
        types = _types(paths[0])
        check_width(str(paths[0]), len(types), options.memory_limit)
        for other in paths[1:]:
            same_columns(types, _types(other), (str(paths[0]), str(other)))
        if options.encoding is not None:
            self._recorded = schema_from(options.encoding["schema"])
            self._schema = self._recorded.found_in(list(types), options, str(paths[0]))
            self._recorded.note_extra(list(types), options.label, self.notices)
        else:
            samples = self._samples(paths[0]) if options.recognize else None
            planned = plan_schema(types, options, str(paths[0]), "E-DTYPE", samples)
            found = self._census(planned.censuses())
            self._schema = self._recorded = planned.with_categories(found, options)
            self.proposals = self._schema.proposals(found)
        self.columns = self._schema.width
        self.names = self._schema.names
        self.id_column = self._schema.id_column
        self.sparse = self._schema.sparse

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; see ``Source.batches``."""
        encoder = TableEncoder(self._schema, self.notices, self._options)
        for path in self._paths:
            file = SourceFile(str(path), path.stat().st_size)
            self.sources.append(file)
            total = _rows(path)
            for batch in self._read(path, batch_rows(self._schema), self._schema.needed):
                try:
                    made = encoder.batch(batch)
                except BadCell as cell:
                    raise cell.error(str(path), file.position) from cell
                if file.take(made, batch.num_rows, self.notices):
                    yield made
                file.read = int(file.size * file.position / total)
            if file.rows == 0:
                raise DataError(f"{path} holds no rows", code="E-EMPTY", hint="check that it is the right file")
            file.sha256 = digest_of(path)

    def encoding(self) -> JsonObject:
        """Return what other files must be read by to give the same columns, as plain JSON; see ``Source.encoding``."""
        return {"format": "parquet", "schema": self._recorded.to_json()}

    def _census(self, found: dict[str, ValueCensus]) -> dict[str, ValueCensus]:
        """The distinct values of categorical columns over all files."""
        for path in self._paths if found else ():
            count_values(self._read(path, CENSUS_ROWS, list(found)), found, str(path))
        return found

    def _samples(self, path: Path) -> JsonObject:
        """The values of each column in the first rows of a file."""
        first = next(self._read(path, SAMPLE_ROWS, list(_types(path))), None)
        return {} if first is None else dict(zip(first.schema.names, first.columns, strict=True))

    def _read(self, path: Path, rows: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with _explained(path), _open(path) as file:
            yield from file.iter_batches(rows, columns=columns, use_threads=False)


def _open(path: Path) -> Any:
    types = pq.read_schema(path)
    text = [f.name for f in types if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    size = max(LEAST_BUFFER, min(LARGEST_BUFFER, BUFFERS // max(1, len(types))))
    return pq.ParquetFile(
        path, read_dictionary=text, buffer_size=size, pre_buffer=False, page_checksum_verification=True
    )


def _types(path: Path) -> dict[str, pa.DataType]:
    with _explained(path):
        return {field.name: field.type for field in pq.read_schema(path)}


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
