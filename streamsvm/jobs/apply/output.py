"""What predictions look like in a file: lines of CSV or text, a Parquet table, or an array."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np

from streamsvm import durable
from streamsvm.aliases import Array, DType
from streamsvm.errors import printable
from streamsvm.jobs.apply.options import PredictJob
from streamsvm.locks import scratch_beside
from streamsvm.model import Model
from streamsvm.rows import Float64
from streamsvm.store.format.line_text import Texts, joined, line_bytes, quoted, texts_of
from streamsvm.store.format.row_ids import parquet_pieces

PREDICTED = "predicted_label"
"""The name of the column of labels."""
PREDICTED_NUMBER = "prediction"
"""The name of the column of numbers."""
ROW = "row"
"""The name of the column of row numbers."""


Table: TypeAlias = Mapping[str, Array]
"""Predictions of some rows: columns (n,) by name, in their order."""
Piece: TypeAlias = Table | bytes
"""What goes to a file of some rows: columns, or where that is text the lines themselves."""


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

    @property
    def textual(self) -> bool:
        """Whether the job's file is one of lines."""
        return self.job.to_stdout or Path(self.job.out).suffix not in (".npy", ".parquet")

    def of(self, decision: Float64, ids: Array | None, start: int) -> Table:
        """Return the columns of rows with decision values (n, k) and ids (n,); ``start`` is the number of the first."""
        return self._named([*self._first(len(decision), ids, start), *self._outputs(decision)])

    def prepared(self, decision: Float64) -> list[Array] | Texts:
        """Return of decision values (n, k) what ``finished`` makes the rest of: any thread may do this."""
        columns = self._outputs(decision)
        return joined([texts_of(column) for column in columns]) if self.textual else columns

    def finished(self, prepared: list[Array] | Texts, ids: Array | None, start: int) -> Piece:
        """Return what is written of rows that were prepared, with their ids (n,), or from the number ``start`` on."""
        if not self.textual:
            return self._named([*self._first(len(prepared[0]), ids, start), *prepared])
        first = [texts_of(column) for column in self._first(len(prepared), ids, start)]
        return line_bytes(joined([*first, prepared]))

    def _named(self, columns: list[Array]) -> Table:
        return dict(zip(self.names, columns, strict=True))

    def _first(self, rows: int, ids: Array | None, start: int) -> list[Array]:
        """The column of ids or of row numbers, if there is one."""
        if not (self.job.named and (ids is not None or self.numbered)):
            return []
        return [np.arange(start, start + rows) if ids is None else ids]

    def _outputs(self, decision: Float64) -> list[Array]:
        """The other columns."""
        columns: list[Array] = []
        for output in self.job.outputs:
            if output == "label" and self.model.numeric:
                columns.append(decision[:, 0])
            elif output == "label":
                columns.append(np.array(self.model.classes, dtype=object)[self.model.codes(decision)])
            else:
                columns += list((decision if output == "decision" else self.model.probabilities(decision)).T)
        return columns

    def renumbered(self, table: Table, start: int) -> Table:
        """Return the columns of rows that were numbered from 0 as those of rows from ``start`` on."""
        return {**table, ROW: table[ROW] + start} if self.numbered else table

    def lines_of(self, table: Table) -> Piece:
        """Return a table as it is written: as lines where the job's file is one of lines."""
        return line_bytes(joined([texts_of(column) for column in table.values()])) if self.textual else table

    def write(self, pieces: Iterable[Piece]) -> None:
        """Write all pieces to the job's file, or nothing; to standard output, one after the other. Raises StorageError."""
        out, tables = Path(self.job.out), cast(Iterable[Table], pieces)
        lines = cast(Iterable[bytes], pieces)
        header = (",".join(map(quoted, self.names)) + "\n").encode()
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


def _shown(lines: bytes) -> bytes:
    """Lines as a terminal may have them: what would move its cursor is spelled out."""
    return "\n".join(map(printable, lines.decode().split("\n"))).encode()


def file_pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, a MiB at a time."""
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece
