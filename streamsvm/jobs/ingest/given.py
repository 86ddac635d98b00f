"""Rows that a program has, to a store: one door for tables (``table_source``), one for arrays (``open_array_source``).

They become the store that the same rows in a file become. Nothing is pulled into memory whole: a frame in memory and an
array are read in slices, a table that may give its rows only once passes through a file beside the store.
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
from streamsvm.kinds_of_rows import ARRAYS, DASK, TABLES, FrameInMemory, is_lazy, kind_of
from streamsvm.locks import scratch_beside, sweep_beside
from streamsvm.store.sources.arrow import one_column, table_source
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
    if kind_of(given.X) not in ARRAYS:
        return _table(job, given, report)
    if given.y is None and job.label is None:
        raise UsageError("there are no labels", hint="pass y=LABELS, one a row")
    labels = job.label if given.y is None else given.y
    weight = job.weight if given.weight is None else given.weight
    labels, weight = (column_of(what) if is_lazy(what) else what for what in (labels, weight))
    rows = label_array(given.X, labels, weight)
    return ingest_from(job, lambda options: open_array_source(rows, options), report)


def _table(job: IngestJob, given: GivenRows, report: Report) -> IngestResult:
    """Write a table, with what is given beside it as columns."""
    said = {"label": given.y, "weight": given.weight}
    names = {option: value for option, value in said.items() if isinstance(value, str)}
    arrays = {
        BESIDE[option]: column_of(value) for option, value in said.items() if value is not None and option not in names
    }
    names |= {option: name for option, name in BESIDE.items() if name in arrays}
    job = replace(job, label=names.get("label", job.label), weight=names.get("weight", job.weight))
    with ExitStack() as stack:

        def make_directory() -> Path:
            beside = job.store.with_name(f"{job.store.name}.rows")  # of the store itself leftovers are swept
            sweep_beside(beside)
            return stack.enter_context(scratch_beside(beside))

        return ingest_from(job, lambda options: table_source(given.X, options, make_directory, arrays), report)


def column_of(values: Any) -> Array:
    """Return labels or weights of any kind, also lazy ones and tables of one column, as an array (n,). Raises
    UsageError.
    """
    kind = kind_of(values)
    if kind in DASK:
        values = values.compute()
    elif kind in TABLES and not isinstance(values, FrameInMemory):
        values = np.concatenate([np.asarray(batch.column(0)) for batch in one_column(values)] or [np.empty(0)])
    found = np.asarray(values)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise UsageError(f"labels and weights are one a row, not {found.shape}", hint="pass an array (n,)")
    return found
