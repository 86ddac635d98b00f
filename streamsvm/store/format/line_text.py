"""Columns as lines of text, by several threads at once.

pyarrow writes the columns of large blocks: it gives up the interpreter's lock, and numbers take a sixth of the time
that ``repr`` takes. Of few rows its import would cost more than it saves. The text is the same either way.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from streamsvm.aliases import Array

MANY = 1 << 15
"""From this number of rows on pyarrow is worth its import."""
Texts: TypeAlias = Any
"""The text of each of some rows: a list of str or, of many rows, an array of strings of pyarrow."""
LEAST, MOST = 1e-4, 1e10
"""Between these, numbers that are not whole look alike in Python and in pyarrow."""


def texts_of(column: Array) -> Texts:
    """Return a column (n,) as fields: numbers as ``repr`` writes them, objects as text, in quotes where needed."""
    if column.dtype == object:
        return _of_objects(column)
    if len(column) < MANY:
        return list(map(repr, column.tolist()))
    return _of_numbers(column)


def join_columns(columns: Sequence[Texts]) -> Texts:
    """Return the fields of each row with commas between them, (n,); all columns are of the same rows."""
    if len(columns) == 1:
        return columns[0]
    if isinstance(columns[0], list):
        return [",".join(row) for row in zip(*columns, strict=True)]
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*columns, ",")


def line_bytes(rows: Texts) -> bytes:
    """Return rows as lines of UTF-8, each with its end."""
    if isinstance(rows, list):
        return "".join([f"{row}\n" for row in rows]).encode()
    import pyarrow.compute as pc

    lines = pc.binary_join_element_wise(rows, "", "\n")
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return bytes(memoryview(data)[ends[0] : ends[-1]])


def quote_field(text: str) -> str:
    """Return a field of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


def _of_objects(column: Array) -> Texts:
    values = column.tolist()
    fields = {value: quote_field(str(value)) for value in set(values)}
    texts = list(map(fields.__getitem__, values))
    if len(texts) < MANY:
        return texts
    import pyarrow as pa

    return pa.array(texts, pa.string())


def _of_numbers(column: Array) -> Texts:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.dtype.kind != "f":
        return pa.array(column).cast(pa.string())
    values = np.ascontiguousarray(column, np.float64)
    size = np.abs(values)
    with np.errstate(invalid="ignore"):
        other = ~((size >= LEAST) & (size < MOST) & (values != np.trunc(values)))
    texts = pa.array(values).cast(pa.string())
    if not other.any():
        return texts
    return pc.replace_with_mask(texts, pa.array(other), pa.array(list(map(repr, values[other].tolist())), pa.string()))
