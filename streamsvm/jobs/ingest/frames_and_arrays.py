"""Ingest rows of a program: data frames and other tables (``table_opener``), and arrays (``open_array_source``).

The resulting store is the same as from a file with the same rows. No copy of all rows is made in memory: frames and
arrays are read in slices; a table whose rows can be read only once is written to a scratch file beside the store.
pyarrow is imported only for tables, because estimators import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.durable import remove_stale_scratch, scratch_beside
from streamsvm.errors import DataError, UsageError
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.jobs.ingest.run import IngestResult, ingest_from
from streamsvm.kinds_of_rows import ARRAYS, DASK, TABLES, FrameInMemory, is_lazy, kind_of
from streamsvm.type_aliases import Array, ValuesByName
from streamsvm.types import Report, silent

SEPARATE_COLUMNS = {"label": "y", "weight": "weight"}
"""Names given to columns of labels and weights that were passed separately from a table, by the option that names
them."""
NO_LABEL = "none"
"""The value of ``label`` for rows without labels."""


def ingest_given(
    X: Any,
    y: Any,
    weight: Any,
    job: IngestJob,
    report: Report = silent,
    *,
    call: Callable[..., str] | None = None,
    classes: Sequence[str] = (),
) -> IngestResult:
    """Write rows X of a program, a table or an array, to the store of ``job``; its other options apply as for files.

    ``y`` and ``weight``: labels and weights (n,), or names of columns; None: the columns that the job names, or no
    weights. ``call`` returns the Python call of a job with some changed options; with it, an error for a bad value of a
    table lists all other problems, too. ``classes``: labels of an array that are known beforehand. Raises UsageError for rows without labels, and the errors of ``ingest``.
    """
    if y is None and job.label == NO_LABEL:
        raise UsageError(
            "a store needs a label for each row",
            hint="pass y=LABELS, one per row; for one-class problems any two labels will do",
        )
    if kind_of(X) not in ARRAYS:
        return _ingest_table(X, {"label": y, "weight": weight}, job, report, call)
    if y is None and job.label is None:
        raise UsageError("there are no labels", hint="pass y=LABELS, one per row")
    from streamsvm.store.sources.arrays import label_array, open_array_source

    labels, weight = job.label if y is None else y, job.weight if weight is None else weight
    labels, weight = (column_of(values) if is_lazy(values) else values for values in (labels, weight))
    rows = label_array(X, labels, weight)
    return ingest_from(job, lambda options: open_array_source(rows, options), report, classes)


def _ingest_table(
    X: Any, beside: ValuesByName, job: IngestJob, report: Report, call: Callable[..., str] | None
) -> IngestResult:
    """Write a table to the store of ``job``. ``beside``: labels and weights, or names of columns, by option."""
    from streamsvm.store.sources.data_frames import table_opener

    names = {option: value for option, value in beside.items() if isinstance(value, str)}
    columns = {
        SEPARATE_COLUMNS[option]: column_of(value)
        for option, value in beside.items()
        if value is not None and option not in names
    }
    names |= {option: name for option, name in SEPARATE_COLUMNS.items() if name in columns}
    job = replace(job, label=names.get("label", job.label), weight=names.get("weight", job.weight))
    with ExitStack() as stack:

        def make_directory() -> Path:
            place = job.store.with_name(f"{job.store.name}.rows")  # scratch files beside the store itself are removed
            remove_stale_scratch(place)
            return stack.enter_context(scratch_beside(place))

        open_rows = table_opener(X, make_directory, columns)
        try:
            return ingest_from(job, open_rows, report)
        except DataError as error:
            if call is not None:
                from streamsvm.jobs.ingest.describe import add_problems

                add_problems(error, job, report, partial(call, job), open_rows)
            raise


def column_of(values: Any) -> Array:
    """Return labels or weights of any kind (also lazy collections, and tables of one column) as an array (n,). Raises
    UsageError.
    """
    kind = kind_of(values)
    if kind in DASK:
        values = values.compute()
    elif kind in TABLES and not isinstance(values, FrameInMemory):
        from streamsvm.store.sources.data_frames import one_column

        values = np.concatenate([np.asarray(batch.column(0)) for batch in one_column(values)] or [np.empty(0)])
    column = np.asarray(values)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise UsageError(f"labels and weights must have shape (n,), not {column.shape}", hint="pass an array (n,)")
    return column
