"""What predictions look like in a file: lines of CSV or text, a Parquet table, or an array."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from streamsvm import durable
from streamsvm.jobs.apply.options import STDOUT, PredictJob
from streamsvm.model import Model
from streamsvm.scratch import scratch_beside

PREDICTED = "predicted_label"
"""The name of the column of labels where there are others beside it."""


class Counted(Protocol):
    """Something that has counted the rows once all of them have been written."""

    @property
    def rows(self) -> int:
        """The number of rows so far."""
        ...


def write_predictions(
    job: PredictJob, model: Model, pieces: Iterable[Any], counted: Counted, id_column: str | None = None
) -> None:
    """Write what ``encoded`` made of all rows; ``counted`` knows afterwards how many they are. Raises StorageError."""
    out = Path(job.out)
    header = [_header(job, model, id_column)]
    if job.out == STDOUT:
        for piece in chain(header, pieces):
            sys.stdout.buffer.write(piece)
    elif out.suffix == ".npy":
        _write_npy(out, job, model, pieces, counted)
    elif out.suffix == ".parquet":
        from streamsvm.store.format.row_ids import parquet_pieces

        durable.write_stream(out, parquet_pieces(iter(pieces)))
    else:
        durable.write_stream(out, chain(header if out.suffix == ".csv" else [], pieces))


def column_names(job: PredictJob, model: Model, id_column: str | None) -> list[str]:
    """Return the names of the columns that are written, that of the ids first."""
    alone = id_column is None and job.outputs == ("label",)
    names = [] if id_column is None or not job.named else [id_column]
    for output in job.outputs:
        if output == "label":
            names.append("label" if alone else PREDICTED)
        else:
            names += [f"decision_{name}" for name in _classes(model)]
    return names


def _header(job: PredictJob, model: Model, id_column: str | None) -> bytes:
    return (",".join(map(_quoted, column_names(job, model, id_column))) + "\n").encode()


def encoded(job: PredictJob, model: Model, decision: Any, ids: Any = None, id_column: str | None = None) -> Any:
    """Return what is written of a block with decision values (n, k) and ids (n,), if its rows have any.

    Lines of text, the bytes of an array's rows, or for Parquet the columns by name.
    """
    suffix = Path(job.out).suffix
    if suffix == ".npy":
        values = decision if job.outputs == ("decision",) else np.array(model.classes)[model.codes(decision)]
        return np.ascontiguousarray(values).view(np.uint8)
    columns = [] if ids is None or not job.named else [ids]
    for output in job.outputs:
        if output == "label":
            columns.append(np.array(model.classes, dtype=object)[model.codes(decision)])
        else:
            columns += list(decision.T)
    if suffix == ".parquet":
        return dict(zip(column_names(job, model, id_column), columns, strict=True))
    texts = [_texts(column) for column in columns]
    lines = texts[0] if len(texts) == 1 else (",".join(row) for row in zip(*texts, strict=True))
    return ("\n".join(lines) + "\n").encode()


def _texts(column: Any) -> list[str]:
    """A column as CSV fields: numbers as they are told apart, text in quotes where it needs them."""
    if column.dtype != object:
        return list(map(repr, column.tolist()))
    values, places = np.unique(column.astype(np.str_), return_inverse=True)
    return np.array([_quoted(value) for value in values.tolist()], dtype=object)[places].tolist()


def _classes(model: Model) -> tuple[str, ...]:
    """The class each decision value speaks for."""
    return model.classes[1:] if len(model.weights) == 1 else model.classes


def _quoted(text: str) -> str:
    """A CSV field."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


def _write_npy(out: Path, job: PredictJob, model: Model, pieces: Iterable[Any], counted: Counted) -> None:
    """The array's length goes before its numbers, so they wait in a file beside the output until it is known."""
    decisions = job.outputs == ("decision",)
    dtype = np.dtype("<f8") if decisions else np.array(model.classes).dtype
    with scratch_beside(out) as scratch:
        spool = scratch / "numbers"
        durable.write_stream(spool, pieces)
        wide = decisions and len(model.weights) > 1
        shape = (counted.rows, len(model.weights)) if wide else (counted.rows,)
        durable.write_stream(out, chain([durable.npy_header(dtype, shape)], file_pieces(spool)))


def file_pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, a MiB at a time."""
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece
