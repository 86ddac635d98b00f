"""predict: a model and rows in, one line or number a row out, in the order of the rows."""

from __future__ import annotations

import csv
import io
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import durable
from streamsvm import model as models
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.portions import Portions, portions
from streamsvm.model import Model
from streamsvm.rows import row_count
from streamsvm.store.sources import SourceOptions
from streamsvm.types import Report, silent

OUTPUTS = ("label", "decision")
STDOUT = "-"
SUFFIXES = (".csv", ".npy", ".txt")
REPORT_SECONDS = 0.2
BYTES_A_ROW = 200
"""Of a block: the decision, its text as Python objects and as bytes."""


@dataclass(frozen=True, slots=True)
class PredictJob:
    """What ``streamsvm predict`` is asked for; the keys of a job file are these fields."""

    model: str
    data: tuple[str, ...]
    """A store, or files like those the model's store was made of, with or without labels."""
    out: str
    """NAME.csv, NAME.txt (without a header), NAME.npy, or - for CSV on standard output."""
    output: str = "label"
    """'label', or 'decision': the decision value of every problem, f > 0 for the positive class."""
    label: str | None = None
    """Which column of the files to skip as the label; None: as recorded in the model."""
    format: str = "auto"
    """Of the files, where the model does not record it."""
    allow_no_final_newline: bool = False
    """Take a last line without a line feed."""
    memory: int | None = None
    """Bytes of anonymous memory the process may use."""
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.output not in OUTPUTS:
            raise UsageError(f"there is no output '{self.output}'", hint=f"choose from {', '.join(OUTPUTS)}")
        if self.out != STDOUT and Path(self.out).suffix not in SUFFIXES:
            raise UsageError(f"{self.out} has none of the endings {', '.join(SUFFIXES)}", hint="or - for CSV on stdout")


@dataclass(frozen=True, slots=True)
class PredictResult:
    """What was written."""

    out: str
    rows: int
    seconds: float
    notices: tuple[str, ...]


def predict(job: PredictJob, report: Report = silent) -> PredictResult:
    """Write one prediction a row, all of them or none. Raises StreamSVMError of every kind."""
    model = models.load(Path(job.model))
    if job.out != STDOUT:
        durable.claim(Path(job.out), overwrite=job.overwrite)
    asked = SourceOptions(format=job.format, label=job.label, allow_no_final_newline=job.allow_no_final_newline)
    rows = portions(model, job.data, asked)
    rows.check_memory(job.memory, BYTES_A_ROW * (1 if job.output == "label" else len(model.weights)))
    counted = _Counted(rows, model, report)
    with threadpool_limits(1):
        _write(job, model, counted)
    counted.check()
    report({"event": "predict", "rows": counted.rows, "of": rows.total, "seconds": counted.seconds, "done": True})
    return PredictResult(job.out, counted.rows, counted.seconds, tuple(rows.notices))


class _Counted:
    """Decision values (n, k) of block after block, counted and reported."""

    def __init__(self, rows: Portions, model: Model, report: Report) -> None:
        self._portions, self._model, self._report = rows, model, report
        self.rows, self._began, self._told = 0, time.perf_counter(), 0.0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def __iter__(self) -> Iterator[Any]:
        for portion in self._portions:
            decision = self._model.decision(portion.X)
            self.rows += row_count(portion.X)
            yield decision
            if self.seconds - self._told >= REPORT_SECONDS:
                self._told = self.seconds
                self._report({"event": "predict", "rows": self.rows, "of": self._portions.total, "seconds": self._told})

    def check(self) -> None:
        """Raise DataError when rows are missing: the file must have as many as the store."""
        if self._portions.total not in (None, self.rows):
            raise DataError(f"{self.rows} of {self._portions.total} rows were predicted", code="E-ROWS")


def _write(job: PredictJob, model: Model, decisions: _Counted) -> None:
    out = Path(job.out)
    if job.out == STDOUT:
        for piece in _csv(job, model, decisions):
            sys.stdout.buffer.write(piece)
    elif out.suffix == ".npy":
        _write_npy(out, job, model, decisions)
    else:
        durable.write_stream(out, _csv(job, model, decisions, header=out.suffix == ".csv"))


def _csv(job: PredictJob, model: Model, decisions: _Counted, *, header: bool = True) -> Iterator[bytes]:
    """Lines of text, a block at a time."""
    if header:
        names = ["label"] if job.output == "label" else [f"decision_{name}" for name in _columns(model)]
        yield (",".join(map(_quoted, names)) + "\n").encode()
    written = np.array([_quoted(name) for name in model.classes], dtype=object)
    for decision in decisions:
        if job.output == "label":
            lines = written[model.codes(decision)].tolist()
        elif decision.shape[1] == 1:
            lines = map(repr, decision[:, 0].tolist())
        else:
            lines = (",".join(map(repr, row)) for row in decision.tolist())
        yield ("\n".join(lines) + "\n").encode()


def _columns(model: Model) -> tuple[str, ...]:
    """The class each decision value speaks for."""
    return model.classes[1:] if len(model.weights) == 1 else model.classes


def _quoted(text: str) -> str:
    """A CSV field."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


def _write_npy(out: Path, job: PredictJob, model: Model, decisions: _Counted) -> None:
    """The array's length goes before its numbers, so they wait in a file beside the output until it is known."""
    labels = np.array(model.classes) if job.output == "label" else None
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".predict-") as scratch:
        spool = Path(scratch) / "numbers"
        values = (d if labels is None else labels[model.codes(d)] for d in decisions)
        durable.write_stream(spool, (np.ascontiguousarray(v).view(np.uint8) for v in values))
        wide = labels is None and len(model.weights) > 1
        shape = (decisions.rows, len(model.weights)) if wide else (decisions.rows,)
        dtype = np.dtype("<f8") if labels is None else labels.dtype
        durable.write_stream(out, chain([_npy_header(dtype, shape)], _pieces(spool)))


def _npy_header(dtype: Any, shape: tuple[int, ...]) -> bytes:
    from numpy.lib import format as npy

    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": dtype.str, "fortran_order": False, "shape": shape})
    return header.getvalue()


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece
