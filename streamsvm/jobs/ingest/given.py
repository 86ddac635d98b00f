"""Rows that a program has, to a store: one door for tables (``parts.arrow_stream``), one for arrays (``array.sliced``).

They become the store that the same rows in a file become. Nothing is pulled into memory whole: a table passes through
one file beside the store, which is removed at the end, an array through slices.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.errors import UsageError
from streamsvm.jobs.ingest.job import IngestJob
from streamsvm.jobs.ingest.run import IngestResult, ingest_from
from streamsvm.kinds_of_rows import FrameInMemory, gives_batches, is_array, is_dask, is_lazy
from streamsvm.locks import scratch_beside, sweep_beside
from streamsvm.store.sources import Source, SourceOptions
from streamsvm.store.sources.arrow import one_column, spill
from streamsvm.store.sources.blocks import TABLE, frame_source
from streamsvm.store.sources.open_arrays import label_array, open_array_source
from streamsvm.types import Report, silent

BESIDE = {"label": "y", "weight": "weight"}
"""What columns are called that were given beside a table, by the option that then names them."""


NO_LABEL = "none"
"""What is given for ``label`` where rows have none."""


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows of a program, and labels and weights that lie beside them."""

    X: Any
    """A table or an array."""
    y: Any = None
    """Labels (n,), or the name of the column that has them."""
    weight: Any = None
    """Weights (n,), or the name of a column; None: every row counts once."""


def ingest_given(job: IngestJob, given: GivenRows, report: Report = silent) -> IngestResult:
    """Write rows of a program to the store of ``job``, whose other options hold as for files.

    Raises UsageError for rows without labels, and what ``ingest`` raises.
    """
    if given.y is None and job.label == NO_LABEL:
        raise UsageError("rows are stored with labels", hint="pass y=LABELS, one a row; for one class any two will do")
    if gives_batches(given.X) or not is_array(given.X):
        return _table(job, given, report)
    if given.y is None and job.label is None:
        raise UsageError("there are no labels", hint="pass y=LABELS, one a row")
    labels = job.label if given.y is None else given.y
    weight = job.weight if given.weight is None else given.weight
    labels, weight = (column_of(what) if is_lazy(what) else what for what in (labels, weight))
    rows = label_array(given.X, labels, weight)
    return ingest_from(job, lambda options: open_array_source(rows, options), report)


def _table(job: IngestJob, given: GivenRows, report: Report) -> IngestResult:
    """By way of a file, which is as large as the table."""
    said = {"label": given.y, "weight": given.weight}
    names = {option: value for option, value in said.items() if isinstance(value, str)}
    arrays = {
        BESIDE[option]: column_of(value) for option, value in said.items() if value is not None and option not in names
    }
    names |= {option: name for option, name in BESIDE.items() if name in arrays}
    job = replace(job, label=names.get("label", job.label), weight=names.get("weight", job.weight))
    with ExitStack() as stack:

        def opened(options: SourceOptions) -> Source:
            beside = job.store.with_name(f"{job.store.name}.rows")  # of the store itself leftovers are swept
            sweep_beside(beside)
            directory: Path = stack.enter_context(scratch_beside(beside))
            return frame_source([spill(given.X, directory, arrays)], options, TABLE)

        return ingest_from(job, opened, report)


def column_of(values: Any) -> Array:
    """Return labels or weights of any kind, also lazy ones and tables of one column, as an array (n,). Raises
    UsageError.
    """
    if is_dask(values):
        values = values.compute()
    elif gives_batches(values) and not isinstance(values, FrameInMemory):
        values = np.concatenate([np.asarray(batch.column(0)) for batch in one_column(values)] or [np.empty(0)])
    found = np.asarray(values)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise UsageError(f"labels and weights are one a row, not {found.shape}", hint="pass an array (n,)")
    return found
