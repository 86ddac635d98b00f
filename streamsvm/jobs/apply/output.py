"""What predictions look like in a file: lines of CSV or text, or an array."""

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


class Counted(Protocol):
    """Something that has counted the rows once all of them have been written."""

    @property
    def rows(self) -> int:
        """The number of rows so far."""
        ...


def write_predictions(job: PredictJob, model: Model, pieces: Iterable[Any], counted: Counted) -> None:
    """Write what ``encoded`` made of all rows; ``counted`` knows afterwards how many they are. Raises StorageError."""
    out = Path(job.out)
    if job.out == STDOUT:
        for piece in chain([_header(job, model)], pieces):
            sys.stdout.buffer.write(piece)
    elif out.suffix == ".npy":
        _write_npy(out, job, model, pieces, counted)
    else:
        durable.write_stream(out, chain([_header(job, model)] if out.suffix == ".csv" else [], pieces))


def _header(job: PredictJob, model: Model) -> bytes:
    names = ["label"] if job.output == "label" else [f"decision_{name}" for name in _columns(model)]
    return (",".join(map(_quoted, names)) + "\n").encode()


def encoded(job: PredictJob, model: Model, decision: Any) -> Any:
    """Return what is written of a block with decision values (n, k): lines of text, or the bytes of an array's rows."""
    if Path(job.out).suffix == ".npy":
        values = decision if job.output == "decision" else np.array(model.classes)[model.codes(decision)]
        return np.ascontiguousarray(values).view(np.uint8)
    if job.output == "label":
        lines = np.array([_quoted(name) for name in model.classes], dtype=object)[model.codes(decision)].tolist()
    elif decision.shape[1] == 1:
        lines = map(repr, decision[:, 0].tolist())
    else:
        lines = (",".join(map(repr, row)) for row in decision.tolist())
    return ("\n".join(lines) + "\n").encode()


def _columns(model: Model) -> tuple[str, ...]:
    """The class each decision value speaks for."""
    return model.classes[1:] if len(model.weights) == 1 else model.classes


def _quoted(text: str) -> str:
    """A CSV field."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


def _write_npy(out: Path, job: PredictJob, model: Model, pieces: Iterable[Any], counted: Counted) -> None:
    """The array's length goes before its numbers, so they wait in a file beside the output until it is known."""
    dtype = np.dtype("<f8") if job.output == "decision" else np.array(model.classes).dtype
    with scratch_beside(out) as scratch:
        spool = scratch / "numbers"
        durable.write_stream(spool, pieces)
        wide = job.output == "decision" and len(model.weights) > 1
        shape = (counted.rows, len(model.weights)) if wide else (counted.rows,)
        durable.write_stream(out, chain([durable.npy_header(dtype, shape)], file_pieces(spool)))


def file_pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, a MiB at a time."""
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece
