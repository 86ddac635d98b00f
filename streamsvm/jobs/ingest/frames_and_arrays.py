"""Rows that a program has, to a store: one door for tables (``table_opener``), one for arrays (``open_array_source``).

They become the store that the same rows in a file become. Nothing is pulled into memory whole: a frame in memory and an
array are read in slices, a table that may give its rows only once passes through a file beside the store. pyarrow is
imported where there is a table: estimators import this module.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.aliases import Array, ByName
from streamsvm.durable import scratch_beside, sweep_beside
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import IngestResult, ingest_from
from streamsvm.kinds_of_rows import ARRAYS, DASK, TABLES, FrameInMemory, is_lazy, kind_of
from streamsvm.types import Report, silent

BESIDE = {"label": "y", "weight": "weight"}
"""What columns are called that were given beside a table, by the option that then names them."""


NO_LABEL = "none"
"""What is given for ``label`` where rows have none."""


def ingest_given(
    X: Any, y: Any, weight: Any, job: IngestJob, report: Report = silent, *, call: Callable[..., str] | None = None
) -> IngestResult:
    """Write rows X of a program, a table or an array, to the store of ``job``, whose other options hold as for files.

    ``y`` and ``weight``: labels and weights (n,), or the names of columns; None: those that the job names, or no weights.
    ``call`` makes the call of a job with some changed options; with it an error for a value of a table names all others. Raises UsageError for rows without labels, and what ``ingest`` raises.
    """
    if y is None and job.label == NO_LABEL:
        raise UsageError("rows are stored with labels", hint="pass y=LABELS, one a row; for one class any two will do")
    if kind_of(X) not in ARRAYS:
        return _ingest_table(X, {"label": y, "weight": weight}, job, report, call)
    if y is None and job.label is None:
        raise UsageError("there are no labels", hint="pass y=LABELS, one a row")
    from streamsvm.store.sources.arrays import label_array, open_array_source

    labels, weight = job.label if y is None else y, job.weight if weight is None else weight
    labels, weight = (column_of(values) if is_lazy(values) else values for values in (labels, weight))
    rows = label_array(X, labels, weight)
    return ingest_from(job, lambda options: open_array_source(rows, options), report)


def _ingest_table(
    X: Any, beside: ByName, job: IngestJob, report: Report, call: Callable[..., str] | None
) -> IngestResult:
    """Write a table; ``beside``: labels and weights by the option that names their column, or the names of columns."""
    from streamsvm.store.sources.data_frames import table_opener

    names = {option: value for option, value in beside.items() if isinstance(value, str)}
    columns = {
        BESIDE[option]: column_of(value)
        for option, value in beside.items()
        if value is not None and option not in names
    }
    names |= {option: name for option, name in BESIDE.items() if name in columns}
    job = replace(job, label=names.get("label", job.label), weight=names.get("weight", job.weight))
    with ExitStack() as stack:

        def make_directory() -> Path:
            place = job.store.with_name(f"{job.store.name}.rows")  # of the store itself leftovers are swept
            sweep_beside(place)
            return stack.enter_context(scratch_beside(place))

        opened = table_opener(X, make_directory, columns)
        try:
            return ingest_from(job, opened, report)
        except DataError as error:
            if call is not None:
                from streamsvm.jobs.ingest.describe import add_problems

                add_problems(error, job, report, partial(call, job), opened)
            raise


def column_of(values: Any) -> Array:
    """Return labels or weights of any kind, also lazy ones and tables of one column, as an array (n,). Raises
    UsageError.
    """
    kind = kind_of(values)
    if kind in DASK:
        values = values.compute()
    elif kind in TABLES and not isinstance(values, FrameInMemory):
        from streamsvm.store.sources.data_frames import one_column

        values = np.concatenate([np.asarray(batch.column(0)) for batch in one_column(values)] or [np.empty(0)])
    found = np.asarray(values)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise UsageError(f"labels and weights are one a row, not {found.shape}", hint="pass an array (n,)")
    return found
