"""A model applied by the threads of this process: each takes the next part of the rows; what comes of them is in order.

Parts are chunks of a store, which each thread reads for itself, or batches of files, which are parsed one after the other
by whoever is free. Whatever the number of threads, what comes of a part is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

from streamsvm.aliases import Array
from streamsvm.engine.executors.executor import Joins, Task
from streamsvm.engine.executors.thread_executor import local_executor
from streamsvm.engine.partition import Group
from streamsvm.engine.progress import Stopwatch
from streamsvm.jobs.apply.metrics.accumulate import Accumulator, accumulate, accumulator_for, count_rows
from streamsvm.jobs.apply.row_batches import RowBatches, RowPart
from streamsvm.model import Model
from streamsvm.rows import Float64


class Decided(NamedTuple):
    """What a model says of some rows."""

    decision: Float64
    """(n, k) its decision values."""
    truth: Array | None
    """Indices into ``RowBatches.truths`` (n,); None where rows have no labels."""
    ids: Array | None
    """The ids of the rows (n,); None where they have none."""
    first: int = 0
    """Of rows of a store, the number of the first."""
    prepared: Any = None
    """What was made of the decision values in the same thread; None where nothing was asked for."""


Prepare: TypeAlias = Callable[[Float64], Any]
"""Makes something of the decision values (n, k) of some rows, in the thread that has found them."""


def decided(model: Model, rows: RowBatches, threads: int, prepare: Prepare | None = None) -> Generator[Decided]:
    """Yield what the model says of all rows, in their order. Raises what reading them raises."""
    names, task = rows.names(), Task("apply", decide_part, each=_decisions)
    with closing(local_executor(threads).map(task, rows.parts(), (model, rows, prepare))) as found:
        for one in found:
            yield one._replace(ids=names(one.ids, one.first, len(one.decision)))


def decide_part(part: RowPart, model: Model, rows: RowBatches, prepare: Prepare | None) -> Decided:
    """Apply the model to one part."""
    with closing(_decisions(iter([part]), model, rows, prepare)) as found:
        return next(found)


def _decisions(parts: Iterator[RowPart], model: Model, rows: RowBatches, prepare: Prepare | None) -> Generator[Decided]:
    """Apply the model to part after part; the next one is read meanwhile."""
    with closing(rows.read(parts)) as batches:
        for batch in batches:
            decision = model.decision(batch.X)
            prepared = None if prepare is None else prepare(decision)
            yield Decided(decision, batch.truth, batch.ids, batch.first, prepared)


def accumulated(
    model: Model, rows: RowBatches, threshold: float | None, threads: int, on_progress: Callable[[int], None]
) -> Accumulator:
    """Count all rows: of a store in the groups of its chunks, of files in their order; the sums are those of one thread.

    ``on_progress`` takes rows that were counted. Raises DataError E-LABEL for rows without labels.
    """
    stopwatch, empty = Stopwatch(), partial(accumulator_for, model, rows, threshold)
    if (groups := rows.groups()) is None:
        found = empty()
        for one in decided(model, rows, threads):
            count_rows(model, found, one.decision, one.truth)
            if stopwatch.due():
                on_progress(found.rows)
        return found
    before = [0, *itertools.accumulate(group.rows for group in groups)]

    def counted(done: int) -> None:
        if stopwatch.due():
            on_progress(before[done])

    task, joins = Task("evaluate", count_group), Joins(_joined)
    all_rows: Accumulator = local_executor(threads).reduce(task, groups, joins, (model, rows, empty), counted)
    return all_rows


def count_group(group: Group, model: Model, rows: RowBatches, empty: Callable[[], Accumulator]) -> Accumulator:
    """Count the rows of a group of chunks."""
    with closing(rows.read(iter(group.chunks))) as batches:
        return accumulate(model, batches, empty())


def _joined(one: Accumulator, other: Accumulator) -> Accumulator:
    one.count_in(cast(Any, other))
    return one
