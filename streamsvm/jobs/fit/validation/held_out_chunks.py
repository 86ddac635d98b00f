"""Which chunks of a store are held out: a share of them, drawn by seed; the others are trained on."""

from __future__ import annotations

import numpy as np

from streamsvm.errors import UsageError
from streamsvm.jobs.embed import kernel_request
from streamsvm.jobs.fit.options import FitJob
from streamsvm.schedule import budget
from streamsvm.store import open_store
from streamsvm.store.views import Section
from streamsvm.types import (
    Store,
    StoredFiles,
)


def opened(job: FitJob) -> tuple[Store, Store | None]:
    """The store to train on, and the part of it that is held out, or None. Raises UsageError and what opening raises."""
    limit = budget.memory_limit(job.memory)
    store = open_store(job.store, features_key=job.features_key, labels_key=job.labels_key, memory_limit=limit)
    if job.validation is None and job.patience is not None:
        raise UsageError("--patience waits for the error on held-out rows", hint="give --validation too")
    if job.validation is not None and store.facts.get("map") is not None:
        raise UsageError("rows of an embedding are not held out", hint="fit the rows it was made of, with --landmarks")
    if not isinstance(job.validation, float | int):
        return store, None
    if kernel_request.wanted(job):
        raise UsageError("chunks are held out of linear fits only", hint="give --validation a store of its own")
    training, held = drawn(len(store.layout.chunks), float(job.validation), job.seed)
    parts = [Section(store, chunks, census_of(store, chunks)) for chunks in (training, held)]
    if min(parts[0].layout.counts) == 0:
        raise UsageError(
            "the chunks that are not held out lack a class: classes are not spread over the store",
            hint="ingest with --shuffle, or give --validation a store of its own",
        )
    return parts[0], parts[1]


def drawn(chunks: int, share: float, seed: int) -> tuple[list[int], list[int]]:
    """The chunks to train on and those held out, at least one of each. Raises UsageError."""
    if not 0.0 < share < 1.0:
        raise UsageError(f"--validation {share:g} is no part of the rows", hint="between 0 and 1, or a store")
    if chunks < 2:
        raise UsageError(
            "the store has one chunk, none can be held out",
            hint="ingest with smaller chunks (--chunk 256KiB), or give --validation a store",
        )
    count = min(chunks - 1, max(1, round(share * chunks)))
    order = np.random.default_rng((seed, chunks)).permutation(chunks).tolist()
    return sorted(order[count:]), sorted(order[:count])


def census_of(store: StoredFiles, chunks: list[int]) -> tuple[int, ...]:
    """Rows of each class in some chunks; of numbers all rows in them."""
    table = np.zeros((len(chunks), len(store.layout.counts)), np.int64)
    for row, chunk in zip(table, chunks, strict=True):
        row[: len(store.census[chunk])] = store.census[chunk]
    return tuple(table.sum(axis=0).tolist())
