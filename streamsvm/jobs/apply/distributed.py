"""A model applied by many workers: each writes the output of some rows to a file, the driver puts the files together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from streamsvm import durable
from streamsvm import model as models
from streamsvm.engine.executors.executor import Executor, Joins, Task, ignore_progress
from streamsvm.engine.partition import contiguous
from streamsvm.errors import UsageError
from streamsvm.jobs.apply.metrics.accumulate import Accumulator, accumulate, accumulator_for, joined
from streamsvm.jobs.apply.opening import FileRequest, is_store, row_batches
from streamsvm.jobs.apply.options import EvaluateJob, PredictJob
from streamsvm.jobs.apply.output import PredictionTable, Table
from streamsvm.jobs.apply.row_batches import RowBatches
from streamsvm.model import Model
from streamsvm.rows import row_count
from streamsvm.store import open_store
from streamsvm.store.format.row_ids import parquet_pieces
from streamsvm.store.sources.files import with_rows


class Slice(NamedTuple):
    """Some of the rows: chunks of a store, or one of the files."""

    number: int
    """The place of the slice among all slices."""
    chunks: tuple[int, ...]
    """The numbers of the chunks of a store."""
    file: str | None = None
    """The file; None for chunks of a store."""


@dataclass(frozen=True, slots=True)
class ApplyWork:
    """What is applied to what."""

    model: str
    """The path of the model."""
    data: tuple[str, ...]
    """A store, or files."""
    request: FileRequest
    """How the files are read."""
    job: PredictJob | EvaluateJob
    """The job of predict or evaluate."""
    directory: Path | None = None
    """Where outputs go; None where there are none."""


class Written(NamedTuple):
    """The output of a slice."""

    path: Path
    """The Parquet file that holds its predictions, rows numbered from 0."""
    rows: int
    """The number of rows."""
    notices: list[str]
    """What a user should know."""


class Counts(NamedTuple):
    """What evaluating a slice found."""

    accumulator: Accumulator
    """The accumulator of its rows."""
    rows: int
    """The number of rows."""
    notices: list[str]
    """What a user should know."""


def slices_of(data: Sequence[str]) -> list[Slice]:
    """Return the slices of the data: a store in groups of chunks, files one by one."""
    if is_store(Path(data[0])):
        return [Slice(group.number, group.chunks) for group in contiguous(open_store(data[0]).layout)]
    return [
        Slice(k, (), str(path.resolve())) for k, path in enumerate(with_rows([Path(name) for name in data], "auto"))
    ]


def work_of(job: PredictJob | EvaluateJob, request: FileRequest, directory: Path | None = None) -> ApplyWork:
    """Return the work with paths that mean the same on a worker."""
    if job.on_bad_line != "error":
        raise UsageError("lines are skipped only where they are read here", hint="leave out --cluster")
    data = tuple(str(Path(path).resolve()) for path in job.data)
    return ApplyWork(str(Path(job.model).resolve()), data, replace(request, bytes_a_row=0), job, directory)


def rows_of(part: Slice, work: ApplyWork) -> tuple[Model, RowBatches]:
    """Open the model and the rows of a slice. Raises MissingError, DataError."""
    model = models.load(Path(work.model))
    rows = row_batches(model, work.data if part.file is None else (part.file,), work.request)
    if part.file is None:
        rows.chunks = part.chunks
    return model, rows


def written(work: ApplyWork, parts: Sequence[Slice], executor: Executor, needs: int) -> Iterator[Written]:
    """Yield the outputs of all slices in order. Raises what a task raises, ClusterError."""
    yield from executor.map(Task("predict", predict_slice, needs), parts, (executor.share(work),))


def predict_slice(part: Slice, work: ApplyWork) -> Written:
    """Write the predictions of a slice; this is the task of predict. Raises DataError, StorageError."""
    assert work.directory is not None
    model, rows = rows_of(part, work)
    job = work.job
    assert isinstance(job, PredictJob)
    path, count = work.directory / f"{part.number:06d}.parquet", 0
    form = PredictionTable(job, model, rows.id_column)

    def tables() -> Iterator[Table]:
        nonlocal count
        for batch in rows:
            yield form.of(model.decision(batch.X), batch.ids, count)
            count += row_count(batch.X)

    durable.write_stream(path, parquet_pieces(tables()))
    return Written(path, count, rows.notices)


def counted(work: ApplyWork, parts: Sequence[Slice], executor: Executor, needs: int) -> Counts:
    """Return the accumulator of all slices. Raises what a task raises, ClusterError."""
    task = Task("evaluate", evaluate_slice, needs)
    found: Counts = executor.reduce(task, parts, Joins(_join), (executor.share(work),), ignore_progress)
    return found


def evaluate_slice(part: Slice, work: ApplyWork) -> Counts:
    """Count the rows of a slice; this is the task of evaluate. Raises DataError E-LABEL for rows without labels."""
    model, rows = rows_of(part, work)
    assert isinstance(work.job, EvaluateJob)
    accumulator = accumulate(model, rows, accumulator_for(model, rows, work.job.threshold))
    return Counts(accumulator, accumulator.rows, rows.notices)


def _join(one: Counts, other: Counts) -> Counts:
    notices = [*one.notices, *(n for n in other.notices if n not in one.notices)]
    return Counts(joined(one.accumulator, other.accumulator), one.rows + other.rows, notices)
