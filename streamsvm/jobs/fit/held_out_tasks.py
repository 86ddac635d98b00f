"""Held-out rows looked at by many workers: each counts the mistakes on some chunks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamsvm.engine.executor import Executor, Task
from streamsvm.engine.partition import Group, contiguous
from streamsvm.engine.task import known_part
from streamsvm.jobs.apply.metrics import Mistakes, mistakes
from streamsvm.jobs.apply.row_batches import RowBatches
from streamsvm.model import Model
from streamsvm.types import Store


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Where the rows are: some chunks of a store, or all of it (None)."""

    store: str
    digest: str
    chunks: tuple[int, ...] | None


class DistributedMistakes:
    """``mistakes`` through an executor: the same counts. Raises ClusterError and what the tasks raise."""

    def __init__(self, store: Store, executor: Executor) -> None:
        self._executor, self._groups = executor, contiguous(store.layout)
        self._where = HeldOut(str(Path(store.name).resolve()), store.digest, store.selection)

    def __call__(self, model: Model, models: int) -> Mistakes:
        given = self._executor.share((self._where, model, models))
        found = list(self._executor.map(Task("validation", mistakes_in), self._groups, (given,)))
        return Mistakes(np.sum([part.wrong for part in found], axis=0), sum(part.rows for part in found))


def mistakes_in(group: Group, given: tuple[HeldOut, Model, int]) -> Mistakes:
    """The task. Raises DataError, StorageError."""
    where, model, models = given
    store = known_part(where.store, where.digest, where.chunks)
    rows = RowBatches(model, list(model.classes), group.rows, [], _store=store, chunks=group.chunks)
    return mistakes(rows, model, models)
