"""predict: a model and rows in, one line or number a row out, in the order of the rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from streamsvm import model as models
from streamsvm.compute import threading
from streamsvm.engine.executors.executor import Executor, executor_for, task_limit
from streamsvm.engine.progress import Stopwatch
from streamsvm.errors import DataError
from streamsvm.jobs import JobResult
from streamsvm.jobs.apply.distributed import Written, slices_of, work_of, written
from streamsvm.jobs.apply.on_threads import decided
from streamsvm.jobs.apply.opening import located, request_of, row_batches
from streamsvm.jobs.apply.options import PROBABILITY, PredictJob
from streamsvm.jobs.apply.output import Piece, PredictionTable
from streamsvm.jobs.apply.row_batches import RowBatches
from streamsvm.jobs.without_effect import other_formats, without_effect
from streamsvm.locks import locked, scratch_beside, sweep_beside
from streamsvm.model import Model
from streamsvm.outputs import PREDICTIONS, REJECTS, Output, claim
from streamsvm.schedule.cores import wanted_threads
from streamsvm.store.format.row_ids import parquet_tables
from streamsvm.store.sources.input import standard_input
from streamsvm.types import Report, silent

BYTES_A_ROW = 200
"""Bytes for each row of a block: the decision, its text as Python objects and as bytes."""


@dataclass(frozen=True, slots=True)
class PredictResult(JobResult):
    """What was written."""

    out: str
    """Where the predictions are."""
    rows: int
    """The number of rows."""
    seconds: float
    """How long it took."""


def predict(job: PredictJob, report: Report = silent, executor: Executor | None = None) -> PredictResult:
    """Write one prediction for each row, all of them or none. Raises MissingError, BudgetError, DataError,
    StorageError, ExistsError, ClusterError.
    """
    with ExitStack() as stack:
        if not job.to_stdout:
            claim(_outputs(job), [job.model, *job.data], overwrite=job.overwrite)
            stack.enter_context(locked(Path(job.out)))
            sweep_beside(Path(job.out))
        found = stack.enter_context(executor_for(job, executor))
        stack.enter_context(threadpool_limits(1))
        data = stack.enter_context(standard_input(job.data, _beside(job), cluster=found is not None))
        return _predicted(replace(job, data=located(data)), report, found)


def rejects_path(job: PredictJob) -> Path:
    """Where lines are listed that could not be read: beside the predictions."""
    return Path(job.out).with_name(f"{Path(job.out).name}.rejects")


def _outputs(job: PredictJob) -> list[Output]:
    found = [Output(Path(job.out), PREDICTIONS)]
    return found if job.on_bad_line == "error" else [*found, Output(rejects_path(job), REJECTS, continues=True)]


def _predicted(job: PredictJob, report: Report, executor: Executor | None) -> PredictResult:
    model = models.load(Path(job.model))
    memory = job.memory if executor is None else task_limit(executor, job.memory)
    if PROBABILITY in job.outputs:
        model.check_probabilities()
    widths = {"label": 1, "decision": len(model.weights), PROBABILITY: len(model.classes)}
    per_row = BYTES_A_ROW * max(widths[output] for output in job.outputs)
    request = request_of(job, memory, per_row, unlabeled=True)
    rows = row_batches(model, job.data, request)
    plan = rows.fitted(memory, per_row, wanted_threads(job.threads) if executor is None else 1)
    counted, form = _Predictions(rows, model, report), PredictionTable(job, model, rows.id_column)
    if executor is None:
        with threading.using(plan.threads), closing(counted.made(form, plan.threads)) as tables:
            form.write(tables)  # a full disk ends who reads
    else:
        with scratch_beside(_beside(job)) as scratch:
            work, parts = work_of(job, request, scratch), slices_of(job.data)
            form.write(counted.fetched(written(work, parts, executor, plan.total), form))
    counted.check()
    rows.notices += without_effect(job, other_formats(job, rows.form))
    if rows.rejects.count:
        rows.notices.append(rows.rejects.summary() if job.to_stdout else rows.rejects.write(rejects_path(job)))
    report(
        {"event": "predict", "rows": counted.rows, "of": rows.total, "seconds": counted.stopwatch.seconds, "done": True}
    )
    return PredictResult(job.out, counted.rows, counted.stopwatch.seconds, notices=tuple(rows.notices))


def _beside(job: PredictJob) -> Path:
    """What files that are only needed for a while lie beside: the output, or this directory for standard output."""
    return Path("predictions" if job.to_stdout else job.out)


class _Predictions:
    """The predictions of block after block, counted and reported."""

    def __init__(self, rows: RowBatches, model: Model, report: Report) -> None:
        self._batches, self._model, self._report = rows, model, report
        self.rows, self.stopwatch = 0, Stopwatch()

    def made(self, form: PredictionTable, threads: int) -> Generator[Piece]:
        """Yield what is written, block after block."""
        with closing(decided(self._model, self._batches, threads, form.prepared)) as found:
            for one in found:
                yield form.finished(one.prepared, one.ids, self.rows)
                self.rows += len(one.decision)
                self._tell()

    def fetched(self, slices: Iterator[Written], form: PredictionTable) -> Iterator[Piece]:
        """What workers have written, instead."""
        for found in slices:
            for table in parquet_tables(found.path):
                yield form.lines_of(form.renumbered(table, self.rows))
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
