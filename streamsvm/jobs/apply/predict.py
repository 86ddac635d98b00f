"""Write the predictions of a model for rows of a store or of files, in the order of the rows.

The output is CSV, text, a Parquet table or a .npy array. On a cluster each worker writes the predictions of its slice
to a Parquet file, and the driver joins these files.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import durable
from streamsvm import model as models
from streamsvm.compute import threading
from streamsvm.durable import remove_stale_scratch, scratch_beside
from streamsvm.engine.executor import Executor, Task, executor_for
from streamsvm.engine.progress import Stopwatch
from streamsvm.errors import DataError, printable
from streamsvm.jobs import JobResult
from streamsvm.jobs.apply.options import (
    HIGH,
    INTERVALS,
    LOW,
    PROBABILITIES,
    PROBABILITY_HIGH,
    PROBABILITY_LOW,
    PROVED,
    PredictJob,
)
from streamsvm.jobs.apply.rows import (
    ApplyWork,
    RowBatch,
    RowBatches,
    Slice,
    build_file_request,
    compute_decisions,
    cut_slices,
    describe_work,
    locate_data,
    open_rows,
    open_slice,
)
from streamsvm.jobs.without_effect import notices_on_unused_options, other_formats
from streamsvm.locks import hold_lock
from streamsvm.model import Model
from streamsvm.outputs import PREDICTIONS, REJECTS, Output, check_writable
from streamsvm.rows import Float64, Rows, row_count
from streamsvm.schedule import budget
from streamsvm.schedule.machine import count_wanted_threads
from streamsvm.store.format.predictions import (
    Texts,
    encode_lines,
    encode_parquet,
    format_column,
    join_columns,
    quote_field,
    read_parquet_tables,
)
from streamsvm.store.sources.byte_stream import standard_input
from streamsvm.type_aliases import Array, DType
from streamsvm.types import Report, silent

LABEL_COLUMN = "predicted_label"
"""The name of the column of labels."""
PREDICTION_COLUMN = "prediction"
"""The name of the column of a regression's predictions."""
ROW_COLUMN = "row"
"""The name of the column of row numbers."""
Table: TypeAlias = Mapping[str, Array]
"""Predictions of some rows: columns (n,) by name, in their order."""
Piece: TypeAlias = Table | bytes
"""The output for some rows: columns, or the lines of a text format."""
VERDICTS = ("open", "yes", "no")
"""Words for the verdicts of ``Model.prove``, which are their indices: OPEN = 0, PROVED = 1, DIFFERS = -1."""
BYTES_A_ROW = 200
"""Memory in bytes per row and output column: the decision value, its text as Python object and as bytes."""


@dataclass(frozen=True, slots=True, repr=False)
class PredictResult(JobResult):
    """The result of a prediction."""

    out: str
    """The path of the predictions; - for standard output."""
    rows: int
    """The number of rows."""
    seconds: float
    """The duration in seconds."""


def predict(job: PredictJob, report: Report = silent, executor: Executor | None = None) -> PredictResult:
    """Write the predictions for all rows; if an error occurs, no file is written.

    Raises MissingError, BudgetError, DataError, StorageError, ExistsError, ClusterError.
    """
    with ExitStack() as stack:
        if not job.to_stdout:
            check_writable(_outputs(job), [job.model, *job.data], overwrite=job.overwrite)
            stack.enter_context(hold_lock(Path(job.out)))
            remove_stale_scratch(Path(job.out))
        executor = stack.enter_context(executor_for(job, executor))
        stack.enter_context(threadpool_limits(1))
        data = stack.enter_context(standard_input(job.data, _scratch_anchor(job), cluster=executor is not None))
        job = replace(job, data=locate_data(data))
        model = models.load(Path(job.model))
        memory = job.memory if executor is None else budget.memory_limit(executor.memory_limit(job.memory))
        if set(PROBABILITIES) & set(job.outputs):
            model.check_probabilities()
        if set(INTERVALS) & set(job.outputs):
            model.check_enclosures()
        n_outcomes = len(model.weights)
        widths = {"label": 1, PROVED: 1, **dict.fromkeys(PROBABILITIES, len(model.classes))}
        widths |= dict.fromkeys(("decision", LOW, HIGH), n_outcomes)
        per_row = BYTES_A_ROW * max(widths[output] for output in job.outputs)
        request = build_file_request(job, memory, per_row, unlabeled=True)
        batches = open_rows(model, job.data, request)
        plan = batches.plan_within(memory, per_row, count_wanted_threads(job.threads) if executor is None else 1)
        predictions, table = _Predictions(batches, model, report), PredictionTable(job, model, batches.id_column)
        if executor is None:
            with (
                threading.use_threads(plan.threads),
                closing(predictions.iterate_pieces(table, plan.threads)) as pieces,
            ):
                table.write(pieces)  # closing the generator stops the readers if the disk is full
        else:
            with scratch_beside(_scratch_anchor(job)) as scratch:
                work, slices = describe_work(job, request, scratch), cut_slices(job.data)
                written = predict_slices(work, slices, executor, plan.total)
                table.write(predictions.iterate_slices(written, table))
        predictions.check()
        batches.notices += notices_on_unused_options(job, other_formats(job, batches.form))
        if job.on_bad_line != "error" and not job.to_stdout:
            batches.notices += batches.rejects.write(rejects_path(job))
        elif batches.rejects.count:
            batches.notices.append(batches.rejects.summary())
        report(
            {
                "event": "predict",
                "rows": predictions.rows,
                "of": batches.total,
                "seconds": predictions.stopwatch.seconds,
                "done": True,
            }
        )
        return PredictResult(job.out, predictions.rows, predictions.stopwatch.seconds, notices=tuple(batches.notices))


def rejects_path(job: PredictJob) -> Path:
    """Return the path of the list of lines that could not be read, beside the predictions."""
    return Path(job.out).with_name(f"{Path(job.out).name}.rejects")


def _outputs(job: PredictJob) -> list[Output]:
    outputs = [Output(Path(job.out), PREDICTIONS)]
    return outputs if job.on_bad_line == "error" else [*outputs, Output(rejects_path(job), REJECTS, may_exist=True)]


def _scratch_anchor(job: PredictJob) -> Path:
    """Return the path beside which temporary files are written: the output file, or a placeholder in the current directory."""
    return Path("predictions" if job.to_stdout else job.out)


class _Predictions:
    """Iterates over predictions, counts their rows and reports progress."""

    def __init__(self, batches: RowBatches, model: Model, report: Report) -> None:
        self._batches, self._model, self._report = batches, model, report
        self.rows, self.stopwatch = 0, Stopwatch()

    def iterate_pieces(self, table: PredictionTable, threads: int) -> Generator[Piece]:
        """Yield the output for all rows, block after block, computed in this process."""
        with closing(compute_decisions(self._model, self._batches, threads, table.prepare)) as blocks:
            for block in blocks:
                yield table.finish(block.prepared, block.ids, self.rows)
                self.rows += len(block.decision)
                self._report_progress()

    def iterate_slices(self, slices: Iterator[SlicePredictions], table: PredictionTable) -> Iterator[Piece]:
        """Yield the output for all rows from the files that workers have written, and delete these."""
        for part in slices:
            for columns in read_parquet_tables(part.path):
                yield table.to_piece(table.renumber(columns, self.rows))
            part.path.unlink()
            self.rows += part.rows
            self._batches.notices += [n for n in part.notices if n not in self._batches.notices]
            self._report_progress()

    def _report_progress(self) -> None:
        if self.stopwatch.due():
            seconds = self.stopwatch.seconds
            self._report({"event": "predict", "rows": self.rows, "of": self._batches.total, "seconds": seconds})

    def check(self) -> None:
        """Raise DataError if the number of predictions is not the number of rows of the store."""
        if self._batches.total not in (None, self.rows):
            raise DataError(f"{self.rows} of {self._batches.total} rows were predicted", code="E-ROWS")


@dataclass(frozen=True, slots=True)
class PredictionTable:
    """The columns of the predictions of a job, and their format in its file."""

    job: PredictJob
    model: Model
    id_column: str | None
    """The name of the column of ids; None if rows have no ids."""

    @property
    def numbers_rows(self) -> bool:
        """Whether a column of row numbers takes the place of the ids."""
        return self.job.numbers_rows and self.id_column is None

    @property
    def names(self) -> list[str]:
        """The names of the columns. The first column has the ids or the row numbers, if there are any."""
        first = self.id_column or (ROW_COLUMN if self.numbers_rows else None)
        names = [first] if first is not None and self.job.has_named_columns else []
        names_of_output = {
            "label": [PREDICTION_COLUMN if self.model.numeric else LABEL_COLUMN],
            "decision": [f"decision_{name}" for name in self.model.outcomes],
            **{kind: [f"{kind}_{name}" for name in self.model.classes] for kind in PROBABILITIES},
            **{end: [f"{end}_{name}" for name in self.model.outcomes] for end in (LOW, HIGH)},
            PROVED: [PROVED],
        }
        return names + [name for output in self.job.outputs for name in names_of_output[output]]

    @property
    def is_text(self) -> bool:
        """Whether the output is a text format: CSV or lines."""
        return self.job.to_stdout or Path(self.job.out).suffix not in (".npy", ".parquet")

    def columns_for(self, decision: Float64, batch: RowBatch, start: int) -> Table:
        """Return the columns of the rows of a batch with decision values (n, k); ``start`` is the number of the first."""
        return self._name_columns(
            [*self._id_columns(len(decision), batch.ids, start), *self._output_columns(decision, batch.X)]
        )

    def prepare(self, decision: Float64, batch: RowBatch) -> list[Array] | Texts:
        """Return the columns for decision values (n, k), or their text, as input of ``finish``. Any thread may call it."""
        columns = self._output_columns(decision, batch.X)
        return join_columns([format_column(column) for column in columns]) if self.is_text else columns

    def finish(self, prepared: list[Array] | Texts, ids: Array | None, start: int) -> Piece:
        """Return the output for prepared rows, with their ids (n,) or with numbers from ``start`` on."""
        if not self.is_text:
            return self._name_columns([*self._id_columns(len(prepared[0]), ids, start), *prepared])
        first = [format_column(column) for column in self._id_columns(len(prepared), ids, start)]
        return encode_lines(join_columns([*first, prepared]))

    def _name_columns(self, columns: list[Array]) -> Table:
        return dict(zip(self.names, columns, strict=True))

    def _id_columns(self, rows: int, ids: Array | None, start: int) -> list[Array]:
        """Return a list with the column of ids or of row numbers; empty if there is none."""
        if not (self.job.has_named_columns and (ids is not None or self.numbers_rows)):
            return []
        return [np.arange(start, start + rows) if ids is None else ids]

    def _output_columns(self, decision: Float64, X: Rows) -> list[Array]:
        """Return the columns of labels, decision values, probabilities and intervals."""
        columns: list[Array] = []
        low, high = self.model.intervals(X) if set(INTERVALS) & set(self.job.outputs) else (decision, decision)
        if {PROBABILITY_LOW, PROBABILITY_HIGH} & set(self.job.outputs):
            least, largest = self.model.check_probabilities().calibrator.probability_interval(low, high)
        for output in self.job.outputs:
            if output == "label" and self.model.numeric:
                columns.append(decision[:, 0])
            elif output == "label":
                columns.append(np.array(self.model.classes, dtype=object)[self.model.codes(decision)])
            elif output == PROVED:
                columns.append(self._verdicts(decision, low, high))
            elif output in {LOW, HIGH}:
                columns += list((low if output == LOW else high).T)
            elif output in {PROBABILITY_LOW, PROBABILITY_HIGH}:
                columns += list((least if output == PROBABILITY_LOW else largest).T)
            else:
                columns += list((decision if output == "decision" else self.model.probabilities(decision)).T)
        return columns

    def _verdicts(self, decision: Float64, low: Float64, high: Float64) -> Array:
        """Return 'yes', 'no' or 'open' per row (n,): whether the exactly optimal model provably predicts the same label. In
        a regression, 'yes' means that the interval of the prediction is finite.
        """
        if self.model.numeric:
            return np.where(np.isfinite(high - low)[:, 0], "yes", "open").astype(object)
        verdicts = self.model.prove(self.model.codes(decision), low, high)
        return np.array(VERDICTS, dtype=object)[verdicts]

    def renumber(self, table: Table, start: int) -> Table:
        """Return the columns with row numbers shifted from 0 to ``start``."""
        return {**table, ROW_COLUMN: table[ROW_COLUMN] + start} if self.numbers_rows else table

    def to_piece(self, table: Table) -> Piece:
        """Return the output for a table: lines for a text format, else the table."""
        return (
            encode_lines(join_columns([format_column(column) for column in table.values()])) if self.is_text else table
        )

    def write(self, pieces: Iterable[Piece]) -> None:
        """Write all pieces to the output; a file is complete or not written at all. Raises StorageError."""
        out, tables = Path(self.job.out), cast(Iterable[Table], pieces)
        lines = cast(Iterable[bytes], pieces)
        header = (",".join(map(quote_field, self.names)) + "\n").encode()
        if self.job.to_stdout:
            for piece in chain([header], lines):
                sys.stdout.buffer.write(_printable_lines(piece) if sys.stdout.isatty() else piece)
        elif out.suffix == ".npy":
            self._write_array(out, tables)
        elif out.suffix == ".parquet":
            durable.write_stream(out, encode_parquet(iter(tables)))
        else:
            durable.write_stream(out, chain([header] if out.suffix == ".csv" else [], lines))

    def _write_array(self, out: Path, tables: Iterable[Table]) -> None:
        """Write a .npy array. Its header needs the row count, which is known only at the end; so the values are spooled to
        a temporary file.
        """
        labels = self.job.outputs == ("label",) and not self.model.numeric
        texts = self.model.classes if labels else VERDICTS if self.job.outputs == (PROVED,) else None
        dtype = np.dtype("<f8") if texts is None else np.array(texts).dtype
        with scratch_beside(out) as scratch:
            spool = scratch / "numbers"
            durable.write_stream(spool, (_to_bytes(table, dtype) for table in tables))
            columns = len(self.names)
            rows = spool.stat().st_size // (dtype.itemsize * columns)
            header = durable.npy_header(dtype, (rows, columns) if columns > 1 else (rows,))
            durable.write_stream(out, chain([header], file_pieces(spool)))


def _to_bytes(table: Table, dtype: DType) -> Array:
    """Return the bytes of an array of rows: fixed-width strings, or float64."""
    return np.ascontiguousarray(np.stack(list(table.values()), axis=1).astype(dtype)).view(np.uint8)


def _printable_lines(lines: bytes) -> bytes:
    """Return lines for a terminal, with control characters escaped."""
    return "\n".join(map(printable, lines.decode().split("\n"))).encode()


def file_pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, a MiB at a time."""
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece


class SlicePredictions(NamedTuple):
    """The predictions that a worker has written for a slice."""

    path: Path
    """The Parquet file with the predictions; its rows are numbered from 0."""
    rows: int
    """The number of rows."""
    notices: list[str]
    """Notices for the user."""


def predict_slices(
    work: ApplyWork, slices: Sequence[Slice], executor: Executor, memory_bytes: int
) -> Iterator[SlicePredictions]:
    """Yield the outputs of all slices in order. Raises ClusterError and the errors of tasks."""
    yield from executor.map(Task("predict", predict_slice, memory_bytes), slices, (executor.share(work),))


def predict_slice(part: Slice, work: ApplyWork) -> SlicePredictions:
    """Write the predictions of a slice; the task of ``predict_slices``. Raises DataError, StorageError."""
    assert work.directory is not None
    model, rows = open_slice(part, work)
    job = work.job
    assert isinstance(job, PredictJob)
    path, count = work.directory / f"{part.number:06d}.parquet", 0
    table = PredictionTable(job, model, rows.id_column)

    def tables() -> Iterator[Table]:
        nonlocal count
        for batch in rows:
            yield table.columns_for(model.decision(batch.X), batch, count)
            count += row_count(batch.X)

    durable.write_stream(path, encode_parquet(tables()))
    return SlicePredictions(path, count, rows.notices)
