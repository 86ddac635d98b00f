"""predict: a model and rows in, one line or number a row out, in the order of the rows."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import durable
from streamsvm import model as models
from streamsvm.engine.executor import Executor, executor_for, task_limit
from streamsvm.engine.progress import Stopwatch
from streamsvm.errors import DataError
from streamsvm.jobs.apply.distributed import Written, slices_of, work_of, written
from streamsvm.jobs.apply.options import STDOUT, PredictJob
from streamsvm.jobs.apply.row_batches import RowBatches, request_of, row_batches
from streamsvm.locks import locked
from streamsvm.model import Model
from streamsvm.outputs import Output, claim
from streamsvm.outputs.kinds import PREDICTIONS, REJECTS
from streamsvm.rows import row_count
from streamsvm.scratch import scratch_beside, sweep_beside
from streamsvm.types import Report, silent

BYTES_A_ROW = 200
"""Bytes for each row of a block: the decision, its text as Python objects and as bytes."""


@dataclass(frozen=True, slots=True)
class PredictResult:
    """What was written."""

    out: str
    """Where the predictions are."""
    rows: int
    """The number of rows."""
    seconds: float
    """How long it took."""
    notices: tuple[str, ...]
    """What a user should know, as lines of text."""


def predict(job: PredictJob, report: Report = silent, executor: Executor | None = None) -> PredictResult:
    """Write one prediction for each row, all of them or none. Raises MissingError, BudgetError, DataError,
    StorageError, ExistsError, ClusterError.
    """
    with ExitStack() as stack:
        if job.out != STDOUT:
            claim(_outputs(job), [job.model, *job.data], overwrite=job.overwrite)
            stack.enter_context(locked(Path(job.out)))
            sweep_beside(Path(job.out))
        found = stack.enter_context(executor_for(job, executor))
        stack.enter_context(threadpool_limits(1))
        return _predicted(job, report, found)


def rejects_path(job: PredictJob) -> Path:
    """Where lines are listed that could not be read: beside the predictions."""
    return Path(job.out).with_name(f"{Path(job.out).name}.rejects")


def _outputs(job: PredictJob) -> list[Output]:
    found = [Output(Path(job.out), PREDICTIONS)]
    return found if job.on_bad_line == "error" else [*found, Output(rejects_path(job), REJECTS, continues=True)]


def _predicted(job: PredictJob, report: Report, executor: Executor | None) -> PredictResult:
    model = models.load(Path(job.model))
    request = request_of(job, job.memory, unlabeled=True)
    rows = row_batches(model, job.data, request)
    memory = job.memory if executor is None else task_limit(executor, job.memory)
    needs = rows.check_memory(memory, BYTES_A_ROW * (1 if job.output == "label" else len(model.weights)))
    counted = _Predictions(rows, model, report)
    if executor is None:
        with closing(encoded(job, model, decision) for decision in counted) as pieces:  # a full disk ends its reader
            _write(job, model, pieces, counted)
    else:
        with scratch_beside(Path("predictions" if job.out == STDOUT else job.out)) as scratch:
            work, parts = work_of(job, request, scratch), slices_of(job.data)
            _write(job, model, counted.fetched(written(work, parts, executor, needs)), counted)
    counted.check()
    if rows.rejects.count:
        to_file = job.out != STDOUT
        rows.notices.append(rows.rejects.write(rejects_path(job)) if to_file else rows.rejects.summary())
    report(
        {"event": "predict", "rows": counted.rows, "of": rows.total, "seconds": counted.stopwatch.seconds, "done": True}
    )
    return PredictResult(job.out, counted.rows, counted.stopwatch.seconds, tuple(rows.notices))


class _Predictions:
    """Decision values (n, k) of block after block, counted and reported."""

    def __init__(self, rows: RowBatches, model: Model, report: Report) -> None:
        self._batches, self._model, self._report = rows, model, report
        self.rows, self.stopwatch = 0, Stopwatch()

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            decision = self._model.decision(batch.X)
            self.rows += row_count(batch.X)
            yield decision
            self._tell()

    def fetched(self, slices: Iterator[Written]) -> Iterator[bytes]:
        """What workers have written, instead."""
        for found in slices:
            yield from _pieces(found.path)
            found.path.unlink()
            self.rows += found.rows
            self._batches.notices += [n for n in found.notices if n not in self._batches.notices]
            self._tell()

    def _tell(self) -> None:
        if self.stopwatch.due():
            seconds = self.stopwatch.seconds
            self._report({"event": "predict", "rows": self.rows, "of": self._batches.total, "seconds": seconds})

    def check(self) -> None:
        """Raise DataError when rows are missing: the file must have as many as the store."""
        if self._batches.total not in (None, self.rows):
            raise DataError(f"{self.rows} of {self._batches.total} rows were predicted", code="E-ROWS")


def _write(job: PredictJob, model: Model, pieces: Iterable[Any], counted: _Predictions) -> None:
    """Write what ``encoded`` made of all rows; ``counted`` knows afterwards how many they are."""
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


def _write_npy(out: Path, job: PredictJob, model: Model, pieces: Iterable[Any], counted: _Predictions) -> None:
    """The array's length goes before its numbers, so they wait in a file beside the output until it is known."""
    dtype = np.dtype("<f8") if job.output == "decision" else np.array(model.classes).dtype
    with scratch_beside(out) as scratch:
        spool = scratch / "numbers"
        durable.write_stream(spool, pieces)
        wide = job.output == "decision" and len(model.weights) > 1
        shape = (counted.rows, len(model.weights)) if wide else (counted.rows,)
        durable.write_stream(out, chain([durable.npy_header(dtype, shape)], _pieces(spool)))


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece
