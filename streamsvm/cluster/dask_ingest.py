"""Dask arrays and data frames to a store: workers write what they have to files, which are ingested like others.

Only these files pass through the program that calls, some rows at a time; the collection is never put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dask.delayed import delayed
from distributed import Client

from streamsvm.cluster.connection import default_client, using
from streamsvm.cluster.dask_blocks import (
    Collection,
    DelayedFrame,
    array_blocks,
    frame_blocks,
    frame_names,
    grouped,
    largest_block,
)
from streamsvm.config.fields import options_of
from streamsvm.engine.executors.executor import Task
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import IngestResult, ingest_from
from streamsvm.registry import did_you_mean
from streamsvm.scratch import scratch_beside, sweep_beside
from streamsvm.store.sources import Source, SourceOptions
from streamsvm.store.sources.parts.source import array_source, frame_source
from streamsvm.store.sources.parts.writing import BlocksPart, write_arrays, write_frames
from streamsvm.types import Report, silent

OF_FILES = ("sources", "store", "repair", "cluster", "insecure_network", "format", "labels", "label", "weight")
"""Fields of a job that are said otherwise here, or of files only."""


def ingest_dask(
    X: Collection,
    y: Collection = None,
    store: Path | str = "",
    *,
    label: str | None = None,
    weight: Collection = None,
    client: Client | None = None,
    **options: Any,
) -> Path:
    """Write a dask.array (n, d) with labels ``y`` (n,), or a dask.dataframe with a column ``label``, to a store.

    ``weight``: a weight a row, the name of a column or an array (n,). Blocks may be scipy.sparse matrices. ``options`` are
    those of ``streamsvm ingest`` by their names in a job file (``test_fraction``, ``missing``, ``categorical``,
    ``hash_bits``, ``chunk_bytes``, ``overwrite``, ...): rows obey the same rules as those of files, and errors say the same of
    block and row. Without a client, and without one that Dask has as its default, the blocks are computed here, one after
    the other. Returns the path of the store. Raises UsageError, DataError, ExistsError, StorageError, ClusterError.
    """
    job = _job(X, y, store, {"label": label, **({"weight": weight} if isinstance(weight, str) else {}), **options})
    return ingest_collection(job, X, y, weight, client=client).store


def ingest_collection(
    job: IngestJob,
    X: Collection,
    y: Collection,
    weight: Collection,
    *,
    report: Report = silent,
    client: Client | None = None,
) -> IngestResult:
    """Ingest a collection with the options of a job, which names the store; as ``ingest_dask`` otherwise."""
    beside = [array for array in (y, None if isinstance(weight, str) else weight) if array is not None]
    with ExitStack() as stack:
        return ingest_from(job, _Parts(X, beside, job, client or default_client(), stack).source, report)


def _job(X: Collection, y: Collection, store: Path | str, options: dict[str, Any]) -> IngestJob:
    """What is asked for, as a job. Raises UsageError, DataError."""
    if not Path(store).name:
        frame = isinstance(X, DelayedFrame)
        written = "ingest_dask(frame, store='train.zarr', label='y')" if frame else "ingest_dask(X, y, 'train.zarr')"
        raise UsageError("where is the store to be?", hint=written)
    known = {option.name for option in options_of(IngestJob)} - set(OF_FILES) | {"label", "weight"}
    for name in options:
        if name not in known:
            raise UsageError(f"ingest_dask has no option '{name}'{did_you_mean(name, known)}")
    if isinstance(X, DelayedFrame):
        names = frame_names(X)
        if options["label"] is None:
            raise UsageError(f"which of the columns {', '.join(names[:12])} is the label?", hint="pass label=NAME")
        if y is not None:
            raise UsageError("the labels of a data frame are one of its columns", hint="pass label=NAME, and no y")
    elif y is None:
        raise UsageError("rows (n, d) and labels (n,) are needed, as dask arrays", hint="ingest_dask(X, y, store)")
    return IngestJob(sources=(), store=Path(store), **options)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A collection on its way to files."""

    X: Collection
    beside: Sequence[Collection]
    job: IngestJob
    client: Client | None
    stack: ExitStack
    """Closed when the files have been read."""

    def source(self, options: SourceOptions) -> Source:
        """Have the files written, and open them."""
        beside = self.job.store.with_name(f"{self.job.store.name}.blocks")  # of the store itself leftovers are swept
        sweep_beside(beside)
        directory = self.stack.enter_context(scratch_beside(beside))
        if isinstance(self.X, DelayedFrame):
            groups = grouped(frame_blocks(self.X), float("nan"), self._computed)
            return frame_source(self._written([delayed(write_frames)(directory, *group) for group in groups]), options)
        groups = grouped(array_blocks(self.X, *self.beside), largest_block(self.X), self._computed)
        missing = self.job.missing != "error"
        return array_source(
            self._written([delayed(write_arrays)(directory, *group, missing) for group in groups]), options
        )

    def _written(self, tasks: Sequence[Collection]) -> list[BlocksPart]:
        """The parts that hold rows. Raises DataError E-EMPTY where there is none."""
        parts = [part for part in self._computed(tasks) if sum(part.rows)]
        if not parts:
            raise DataError("the collection holds no rows", code="E-EMPTY", hint="check what it was made of")
        return parts

    def _computed(self, tasks: Sequence[Collection]) -> list[Any]:
        """The results in order: all at once on a cluster, one by one here, where memory is for one."""
        if self.client is None:
            return [task.compute(scheduler="synchronous") for task in tasks]
        executor = self.stack.enter_context(using(self.client))
        return list(executor.taken(self.client.compute(list(tasks)), Task("ingest", write_frames)))
