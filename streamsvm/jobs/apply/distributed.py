"""A model applied by many workers: each writes the output of some rows to a file, the driver puts the files together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm import durable
from streamsvm import model as models
from streamsvm.engine.executor import Executor, Joins, Task, ignore_progress
from streamsvm.engine.partition import contiguous
from streamsvm.jobs.apply.metrics import MetricAccumulator
from streamsvm.jobs.apply.row_batches import RowBatches, row_batches
from streamsvm.model import Model
from streamsvm.rows import row_count
from streamsvm.store import open_store
from streamsvm.store.sources import SourceOptions


class Slice(NamedTuple):
    """Some of the rows: chunks of a store, or one of the files."""

    number: int
    chunks: tuple[int, ...]
    file: str | None = None


@dataclass(frozen=True, slots=True)
class ApplyWork:
    """What is applied to what. ``job``: that of predict or evaluate."""

    model: str
    data: tuple[str, ...]
    asked: SourceOptions
    job: Any
    directory: Path | None = None
    """Where outputs go."""


class Written(NamedTuple):
    """The output of a slice."""

    path: Path
    rows: int
    notices: list[str]


class Counts(NamedTuple):
    """The accumulator of some slices and what else was met."""

    accumulator: MetricAccumulator
    rows: int
    notices: list[str]


def slices_of(data: Sequence[str]) -> list[Slice]:
    """A store in groups of chunks, files one by one."""
    if Path(data[0]).is_dir():
        return [Slice(group.number, group.chunks) for group in contiguous(open_store(data[0]).layout)]
    return [Slice(k, (), str(Path(path).resolve())) for k, path in enumerate(data)]


def work_of(job: Any, asked: SourceOptions, directory: Path | None = None) -> ApplyWork:
    """With paths that mean the same on a worker."""
    data = tuple(str(Path(path).resolve()) for path in job.data)
    return ApplyWork(str(Path(job.model).resolve()), data, asked, job, directory)


def rows_of(part: Slice, work: ApplyWork) -> tuple[Model, RowBatches]:
    """The model and the rows of a slice."""
    model = models.load(Path(work.model))
    rows = row_batches(model, work.data if part.file is None else (part.file,), work.asked)
    if part.file is None:
        rows.chunks = part.chunks
    return model, rows


def written(work: ApplyWork, parts: Sequence[Slice], executor: Executor, needs: int) -> Iterator[Written]:
    """The outputs in order."""
    yield from executor.map(Task("predict", predict_slice, needs), parts, (executor.share(work),))


def predict_slice(part: Slice, work: ApplyWork) -> Written:
    """The task of predict. Raises DataError, StorageError."""
    from streamsvm.jobs.apply.predict import encoded

    assert work.directory is not None
    model, rows = rows_of(part, work)
    path, count = work.directory / f"{part.number:06d}", 0

    def pieces() -> Iterator[Any]:
        nonlocal count
        for portion in rows:
            count += row_count(portion.X)
            yield encoded(work.job, model, model.decision(portion.X))

    durable.write_stream(path, pieces())
    return Written(path, count, rows.notices)


def counted(work: ApplyWork, parts: Sequence[Slice], executor: Executor, needs: int) -> Counts:
    """The accumulator of all slices."""
    task = Task("evaluate", tally_slice, needs)
    found: Counts = executor.reduce(task, parts, Joins(_join), (executor.share(work),), ignore_progress)
    return found


def tally_slice(part: Slice, work: ApplyWork) -> Counts:
    """The task of evaluate. Raises DataError E-LABEL for rows without labels."""
    from streamsvm.jobs.apply.evaluate import accumulate

    model, rows = rows_of(part, work)
    accumulator = accumulate(model, rows, lambda done: None)
    return Counts(accumulator, int(accumulator.confusion.sum()), rows.notices)


def _join(one: Counts, other: Counts) -> Counts:
    notices = [*one.notices, *(n for n in other.notices if n not in one.notices)]
    return Counts(one.accumulator.joined(other.accumulator), one.rows + other.rows, notices)
