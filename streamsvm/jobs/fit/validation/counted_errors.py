"""The errors of models on held-out rows, counted in one reading: here, by threads, or by many workers."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

from streamsvm.engine.executor import Executor, Task
from streamsvm.engine.partition import Group
from streamsvm.engine.stores import OpenedStore, StoreReference
from streamsvm.errors import UsageError
from streamsvm.jobs.apply.metrics import ErrorCounts
from streamsvm.jobs.apply.rows import FileRequest, RowBatches, row_batches
from streamsvm.jobs.fit.options import FitJob
from streamsvm.jobs.fit.planning.plan import Plan
from streamsvm.model import Model
from streamsvm.regular import is_folder, is_there
from streamsvm.store import open_store
from streamsvm.store.foreign import foreign_format
from streamsvm.store.sources.offsets import Offsets


def count_errors(rows: RowBatches, model: Model, models: int) -> ErrorCounts:
    """One reading for ``models`` models of the same classes, whose weights stand below each other in ``model``."""
    counts = ErrorCounts(models, len(model.classes) if model.pairs else 0)
    for batch in rows:
        assert batch.truth is not None
        for k, decision in enumerate(np.split(model.decision(batch.X), models, axis=1)):
            counts.add(k, decision, batch.truth)
    return counts


def count_errors_on(
    executor: Executor,
    store: tuple[StoreReference | OpenedStore, Offsets],
    groups: list[Group],
    model: Model,
    models: int,
) -> ErrorCounts:
    """``count_errors`` by many workers or threads: the same counts. Raises ClusterError and what the tasks raise."""
    given = executor.share((*store, model, models))
    return reduce(add, executor.map(Task("validation", count_errors_in), groups, (given,)))


def count_errors_in(group: Group, given: tuple[StoreReference | OpenedStore, Offsets, Model, int]) -> ErrorCounts:
    """The task: the errors on the chunks of a group. Raises DataError, StorageError."""
    store, offsets, model, models = given
    opened, classes = store.open(), list(model.classes)
    rows = RowBatches(model, classes, group.rows, [], store=opened, chunks=group.chunks, offsets=offsets)
    return count_errors(rows, model, models)


def rows_of_store(job: FitJob, plan: Plan) -> RowBatches:
    """The rows of the store --validation names, checked against what is fitted. Raises MissingError, DataError."""
    path = Path(str(job.validation))
    if is_there(path) and not (is_folder(path) and foreign_format(path) is None):
        raise UsageError(f"--validation {path} is no store", hint="ingest it with the options of the other one")
    facts = open_store(job.store, features_key=job.features_key, labels_key=job.labels_key).facts
    known = {name: facts.get(name) for name in ("names", "encoding")}
    rows = row_batches(replace(zero_model(plan), provenance=known), (str(path),), FileRequest())
    if rows.store.layout.numeric != plan.layout.numeric:
        held, fitted = ("numbers", "classes") if rows.store.layout.numeric else ("classes", "numbers")
        raise UsageError(
            f"--validation {path} holds {held}, this fit is of {fitted}",
            hint="ingest it with the options of the other one",
        )
    return rows


def zero_model(plan: Plan) -> Model:
    """A model of the fit's columns and classes, all zero."""
    values = sum(len(problem.positives) for problem in plan.problems) // len(plan.costs)
    pairs = plan.problems[0].negative is not None
    return Model(np.zeros((values, 1 + plan.layout.columns)), plan.class_names, pairs=pairs)
