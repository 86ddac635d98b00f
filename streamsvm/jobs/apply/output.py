"""What predictions look like in a file: lines of CSV or text, a Parquet table, or an array."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np

from streamsvm import durable
from streamsvm.aliases import Array, DType
from streamsvm.errors import printable
from streamsvm.jobs.apply.options import PredictJob
from streamsvm.model import Model
from streamsvm.rows import Float64
from streamsvm.scratch import scratch_beside
from streamsvm.store.format.row_ids import parquet_pieces

PREDICTED = "predicted_label"
"""The name of the column of labels."""
PREDICTED_NUMBER = "prediction"
"""The name of the column of numbers."""
ROW = "row"
"""The name of the column of row numbers."""


Table: TypeAlias = Mapping[str, Array]
"""Predictions of some rows: columns (n,) by name, in their order."""


@dataclass(frozen=True, slots=True)
class PredictionTable:
    """Which columns the predictions of a job have, and what they look like in its file."""

    job: PredictJob
    """What is asked for."""
    model: Model
    """The model whose predictions they are."""
    id_column: str | None
    """The column that ids come from; None where rows have none."""

    @property
    def numbered(self) -> bool:
        """Whether rows are numbered, for want of ids."""
        return self.job.numbered and self.id_column is None

    @property
    def names(self) -> list[str]:
        """The names of the columns: that of the ids, or of the row numbers, is the first."""
        first = self.id_column or (ROW if self.numbered else None)
        names = [first] if first is not None and self.job.named else []
        beside = {
            "label": [PREDICTED_NUMBER if self.model.numeric else PREDICTED],
            "decision": [f"decision_{name}" for name in self.model.outcomes],
            "probability": [f"probability_{name}" for name in self.model.classes],
        }
        return names + [name for output in self.job.outputs for name in beside[output]]

    def of(self, decision: Float64, ids: Array | None, start: int) -> Table:
        """Return the columns of rows with decision values (n, k) and ids (n,); ``start`` is the number of the first."""
        columns: list[Array] = []
        if self.job.named and (ids is not None or self.numbered):
            columns.append(np.arange(start, start + len(decision)) if ids is None else ids)
        for output in self.job.outputs:
            if output == "label" and self.model.numeric:
                columns.append(decision[:, 0])
            elif output == "label":
                columns.append(np.array(self.model.classes, dtype=object)[self.model.codes(decision)])
            else:
                columns += list((decision if output == "decision" else self.model.probabilities(decision)).T)
        return dict(zip(self.names, columns, strict=True))

    def renumbered(self, table: Table, start: int) -> Table:
        """Return the columns of rows that were numbered from 0 as those of rows from ``start`` on."""
        return {**table, ROW: table[ROW] + start} if self.numbered else table

    def write(self, tables: Iterable[Table]) -> None:
        """Write all tables to the job's file, or nothing; to standard output, one after the other. Raises StorageError."""
        out, lines = Path(self.job.out), map(_lines, tables)
        header = (",".join(map(_quoted, self.names)) + "\n").encode()
        if self.job.to_stdout:
            for piece in chain([header], lines):
                sys.stdout.buffer.write(_shown(piece) if sys.stdout.isatty() else piece)
        elif out.suffix == ".npy":
            self._write_array(out, tables)
        elif out.suffix == ".parquet":
            durable.write_stream(out, parquet_pieces(iter(tables)))
        else:
            durable.write_stream(out, chain([header] if out.suffix == ".csv" else [], lines))

    def _write_array(self, out: Path, tables: Iterable[Table]) -> None:
        """The array's length goes before its numbers, so they wait in a file beside the output until it is known."""
        labels = self.job.outputs == ("label",) and not self.model.numeric
        dtype = np.array(self.model.classes).dtype if labels else np.dtype("<f8")
        with scratch_beside(out) as scratch:
            spool = scratch / "numbers"
            durable.write_stream(spool, (_rows(table, dtype) for table in tables))
            wide = len(self.names)
            rows = spool.stat().st_size // (dtype.itemsize * wide)
            header = durable.npy_header(dtype, (rows, wide) if wide > 1 else (rows,))
            durable.write_stream(out, chain([header], file_pieces(spool)))


def _rows(table: Table, dtype: DType) -> Array:
    """The bytes of an array of rows: labels as text of one width, or decision values."""
    return np.ascontiguousarray(np.stack(list(table.values()), axis=1).astype(dtype)).view(np.uint8)


def _lines(table: Table) -> bytes:
    """The rows as lines of CSV."""
    texts = [_texts(column) for column in table.values()]
    lines = texts[0] if len(texts) == 1 else (",".join(row) for row in zip(*texts, strict=True))
    return ("\n".join(lines) + "\n").encode()


def _shown(lines: bytes) -> bytes:
    """Lines as a terminal may have them: what would move its cursor is spelled out."""
    return "\n".join(map(printable, lines.decode().split("\n"))).encode()


def _texts(column: Array) -> list[str]:
    """A column as CSV fields: numbers as they are told apart, text in quotes where it needs them."""
    if column.dtype != object:
        return list(map(repr, column.tolist()))
    values, places = np.unique(column.astype(np.str_), return_inverse=True)
    return np.array([_quoted(value) for value in values.tolist()], dtype=object)[places].tolist()


def _quoted(text: str) -> str:
    """A CSV field."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


def file_pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, a MiB at a time."""
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece
