"""Dask arrays and data frames to a store: workers write what they have to files, which are ingested like others.

Only these files pass through the program that calls, some rows at a time; the collection is never put together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dask.delayed import delayed
from distributed import Client

from streamsvm.cluster.connection import default_client, using
from streamsvm.cluster.dask_blocks import (
    Collection,
    DelayedFrame,
    array_blocks,
    column_beside,
    frame_blocks,
    frame_names,
    grouped,
    largest_block,
)
from streamsvm.config.fields import options_of
from streamsvm.engine.executors.executor import Task
from streamsvm.errors import DataError, UsageError, quote
from streamsvm.jobs.ingest.given import BESIDE
from streamsvm.jobs.ingest.job import IngestJob
from streamsvm.jobs.ingest.run import IngestResult, ingest_from
from streamsvm.locks import scratch_beside, sweep_beside
from streamsvm.registry import did_you_mean
from streamsvm.store.sources import Source, SourceOptions
from streamsvm.store.sources.arrow import BlocksPart
from streamsvm.store.sources.blocks import array_source, frame_source, write_arrays, write_frames
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
    """Write a dask.array (n, d) or a dask.dataframe to a store, with labels ``y`` (n,), or those of the frame's column ``label``.

    ``y``: a dask array or series, or labels in memory, one a row in the order of the rows. ``weight``: a weight a row, the name of a column or as ``y``. Blocks may be scipy.sparse matrices. ``options`` are
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
    given = {"label": y, "weight": None if isinstance(weight, str) else weight}
    beside = {option: values for option, values in given.items() if values is not None}
    if isinstance(X, DelayedFrame):
        taken = sorted({BESIDE[option] for option in beside} & set(frame_names(X)))
        if taken:
            found = f"the data frame has a column {quote(taken[0])}, and so would labels or weights be called that are given beside it"
            raise DataError(found, code="E-HEADER", hint=f"name the column, y={taken[0]!r}, or rename it")
        label = BESIDE["label"] if y is not None else job.label
        job = replace(job, label=label, weight=BESIDE["weight"] if "weight" in beside else job.weight)
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
        if y is None and options["label"] is None:
            hint = "pass label=NAME, or y=LABELS, one a row"
            raise UsageError(f"which of the columns {', '.join(names[:12])} is the label?", hint=hint)
        if y is not None and options["label"] is not None:
            raise UsageError("labels are given twice", hint="pass label=NAME, or y=LABELS, one a row")
    elif y is None:
        raise UsageError("rows (n, d) and labels (n,) are needed, as dask arrays", hint="ingest_dask(X, y, store)")
    return IngestJob(sources=(), store=Path(store), **options)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A collection on its way to files."""

    X: Collection
    beside: Mapping[str, Collection]
    """Labels and weights that are no column of it, by option."""
    job: IngestJob
    client: Client | None
    stack: ExitStack
    """Closed when the files have been read."""

    def source(self, options: SourceOptions) -> Source:
        """Have the files written, and open them."""
        beside = self.job.store.with_name(f"{self.job.store.name}.blocks")  # of the store itself leftovers are swept
        sweep_beside(beside)
        directory = self.stack.enter_context(scratch_beside(beside))
        columns = [column_beside(self.X, values, self._computed) for values in self.beside.values()]
        if isinstance(self.X, DelayedFrame):
            names = [BESIDE[option] for option in self.beside]
            groups = grouped(frame_blocks(self.X, *columns), float("nan"), self._computed)
            tasks = [delayed(write_frames)(directory, *group, names) for group in groups]
            return frame_source(self._written(tasks), options)
        groups = grouped(array_blocks(self.X, *columns), largest_block(self.X), self._computed)
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
