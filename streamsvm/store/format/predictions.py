"""Format predictions as lines of CSV, which several threads can do at once, or as Parquet.

Columns of at least ``MIN_ROWS_FOR_PYARROW`` rows are formatted by pyarrow, which releases the interpreter's lock and takes a sixth of
the time of ``repr``. For fewer rows, importing it would cost more than it saves. The text is the same either way.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from io import RawIOBase
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from streamsvm import durable
from streamsvm.store.format.row_ids import GROUP_ROWS
from streamsvm.type_aliases import Array, JsonMapping

MIN_ROWS_FOR_PYARROW = 1 << 15
"""Columns of at least so many rows are formatted by pyarrow."""
PREDICTIONS = b"streamsvm.predictions"
"""The metadata key that marks a Parquet file as predictions."""
Texts: TypeAlias = Any
"""One text per row: a list of str or, of at least ``MIN_ROWS_FOR_PYARROW`` rows, a pyarrow array of strings."""
MIN_ALIKE, MAX_ALIKE = 1e-4, 1e10
"""Python and pyarrow write a number alike if its absolute value is in this range and it is not a whole number."""


def format_column(column: Array) -> Texts:
    """Return the CSV fields of a column (n,): numbers as ``repr`` writes them, objects as text, quoted if necessary."""
    if column.dtype == object:
        return _format_objects(column)
    if len(column) < MIN_ROWS_FOR_PYARROW:
        return list(map(repr, column.tolist()))
    return _format_numbers(column)


def join_columns(columns: Sequence[Texts]) -> Texts:
    """Return the fields of each row, joined by commas, (n,)."""
    if len(columns) == 1:
        return columns[0]
    if isinstance(columns[0], list):
        return [",".join(row) for row in zip(*columns, strict=True)]
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*columns, ",")


def encode_lines(rows: Texts) -> bytes:
    r"""Return rows as lines of UTF-8, each ended by ``\n``."""
    if isinstance(rows, list):
        return "".join([f"{row}\n" for row in rows]).encode()
    import pyarrow.compute as pc

    lines = pc.binary_join_element_wise(rows, "", "\n")
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return bytes(memoryview(data)[ends[0] : ends[-1]])


def quote_field(text: str) -> str:
    """Return a text as a field of CSV, quoted if necessary."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


def _format_objects(column: Array) -> Texts:
    values = column.tolist()
    fields = {value: quote_field(str(value)) for value in set(values)}
    texts = list(map(fields.__getitem__, values))
    if len(texts) < MIN_ROWS_FOR_PYARROW:
        return texts
    import pyarrow as pa

    return pa.array(texts, pa.string())


def _format_numbers(column: Array) -> Texts:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.dtype.kind != "f":
        return pa.array(column).cast(pa.string())
    values = np.ascontiguousarray(column, np.float64)
    size = np.abs(values)
    with np.errstate(invalid="ignore"):
        may_differ = ~((size >= MIN_ALIKE) & (size < MAX_ALIKE) & (values != np.trunc(values)))
    texts = pa.array(values).cast(pa.string())
    if not may_differ.any():
        return texts
    as_python = pa.array(list(map(repr, values[may_differ].tolist())), pa.string())
    return pc.replace_with_mask(texts, pa.array(may_differ), as_python)


class GrowingFile(RawIOBase):
    """A stream in memory; what was written can be taken out at any time, while writing goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.content, self._position = bytearray(), 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Append bytes and return their number."""
        self.content += data
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._position

    def take_content(self) -> bytes:
        """Return the bytes written since the last call."""
        taken, self.content = bytes(self.content), bytearray()
        return taken


def encode_parquet(tables: Iterator[JsonMapping]) -> Iterator[bytes]:
    """Yield the bytes of a Parquet file of predictions, piece by piece. ``tables``: batches of rows, as columns by name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink, writer = GrowingFile(), None
    for columns in tables:
        table = pa.table({name: pa.array(values) for name, values in columns.items()})
        if writer is None:
            writer = pq.ParquetWriter(sink, table.schema.with_metadata({PREDICTIONS: b"1"}), write_page_checksum=True)
        writer.write_table(table.cast(writer.schema), row_group_size=GROUP_ROWS)
        yield sink.take_content()
    if writer is not None:
        writer.close()
        yield sink.take_content()


def read_parquet_tables(path: Path) -> Iterator[dict[str, Array]]:
    """Yield the row groups of a file of ``encode_parquet``, as columns by name; an empty file has none.

    Raises StorageError if the file cannot be read.
    """
    import pyarrow.parquet as pq

    if path.stat().st_size == 0:
        return
    with durable.explain_errors("reading", path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, use_threads=False)
            yield {name: table.column(name).to_numpy() for name in table.schema.names}
