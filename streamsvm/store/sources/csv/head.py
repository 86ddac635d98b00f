"""What the head of a CSV file says of its columns: their types as pyarrow takes them, and their first values."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from streamsvm.aliases import JsonObject
from streamsvm.store.format.labels import LARGEST_LABEL
from streamsvm.store.sources.csv.blocks import reading
from streamsvm.store.sources.csv.dialect import Dialect
from streamsvm.store.sources.csv.faults import NULLS
from streamsvm.store.sources.csv.sieve import most_types
from streamsvm.store.sources.decompression import Input
from streamsvm.store.sources.lines import UTF16_MARKS

HEAD = 1 << 20
BLOCK = 1 << 20
"""Bytes of text pyarrow takes at a time: a batch is what they hold. It parses them in one thread of ours: two threads of
its own cost half as much time again."""
SAMPLE_ROWS = 5000
"""Rows by which it is told what a column holds."""
LONGEST_BLOCK = 64 << 20
"""The largest block, in bytes. A block must hold a whole line, so that wide tables get larger blocks."""


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file, at least a whole line unless that is too long. Raises what ``Input`` does."""
    with Input(path) as stream:
        head = stream.read(HEAD)
        while b"\n" not in head and not head.startswith(UTF16_MARKS) and (more := stream.read(HEAD)):
            head += more
            if len(head) > LONGEST_BLOCK:
                break
    return head


class Head(NamedTuple):
    """The first bytes of a file, and how its lines are cut."""

    content: bytes
    """The bytes."""
    dialect: Dialect
    """How the lines are cut."""
    multiline: bool
    """Whether values in quotes may hold line feeds."""

    def types(self, *, skip: bool) -> dict[str, pa.DataType]:
        """Return what pyarrow takes the columns for; ``skip``: as most values say. Raises pyarrow's ArrowInvalid."""
        if skip:
            return most_types(self._table())
        options = reading(self.dialect, max(BLOCK, len(self.content)), multiline=self.multiline)
        converting = pacsv.ConvertOptions(null_values=NULLS, strings_can_be_null=True)
        schema = pacsv.read_csv(self._lines(), convert_options=converting, **options).schema
        return {f.name: pa.float64() if f.type == pa.null() else f.type for f in schema}

    def samples(self) -> JsonObject:
        """Return the first values of each column, numbers and dates as pyarrow takes them for."""
        table = self._table()
        columns = zip(table.column_names, table.columns, strict=True)
        return {name: column.slice(0, SAMPLE_ROWS).combine_chunks() for name, column in columns}

    def label_type(self, label: str, inferred: pa.DataType) -> pa.DataType:
        """Return the type labels are read as: numbers as float64; whole numbers that float64 does not tell apart as
        text, in which they are exact.
        """
        if pa.types.is_floating(inferred) or (pa.types.is_integer(inferred) and self._largest(label) < LARGEST_LABEL):
            return pa.float64()
        return pa.dictionary(pa.int32(), pa.string())

    def _largest(self, column: str) -> float:
        """The largest absolute value of a column of whole numbers."""
        values = self._table(include_columns=[column]).column(0).drop_null()
        return float(np.abs(values.to_numpy().astype(np.float64)).max(initial=0.0))

    def _lines(self) -> pa.BufferReader:
        """The whole lines."""
        return pa.BufferReader(self.content[: self.content.rfind(b"\n") + 1])

    def _table(self, **converting: object) -> pa.Table:
        """The lines as far as they are in order."""
        options = reading(self.dialect, max(BLOCK, len(self.content)), multiline=self.multiline, skip=True)
        convert = pacsv.ConvertOptions(null_values=NULLS, strings_can_be_null=True, **converting)
        return pacsv.read_csv(self._lines(), convert_options=convert, **options)
