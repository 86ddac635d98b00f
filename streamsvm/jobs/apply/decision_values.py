"""Apply a model to rows given in Python: arrays, tables, and paths of stores and files.

``compute_decision_values`` returns decision values, ``compute_contributions`` the contribution of each column to them.
Tables and files are encoded as the training data of the model were.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from streamsvm.config.units import mib
from streamsvm.errors import DataError, UsageError
from streamsvm.features.curves import Hats
from streamsvm.jobs.apply.rows import FileRequest, locate_data, open_rows, rows_of_source, source_options
from streamsvm.kinds_of_rows import ARRAYS, WITH_COLUMN_NAMES, RowKind, kind_of
from streamsvm.model import Model
from streamsvm.rows import Float32, Float64, Rows, row_count, to_matrix
from streamsvm.store.sources.array_rows import rows_of
from streamsvm.store.sources.arrays import LabeledArray, OpenArraySource
from streamsvm.store.sources.data_frames import dask_blocks_of, numbers_of, table_opener
from streamsvm.store.sources.offsets import offsets_from
from streamsvm.store.sources.preprocessing import Filling, filling_from

UNLABELED = FileRequest({"unlabeled": True})
"""Read files without their labels."""
MAX_CONTRIBUTION_BYTES = 1 << 30
"""Maximum size of an array of contributions (rows, problems, columns). Explanations are for few rows."""


def compute_decision_values(model: Model, X: Any) -> Float64:
    """Return the decision values (n, k) of rows of any kind, read in batches.

    Raises DataError, UsageError, MissingError.
    """
    is_in_memory = not isinstance(X, str | PathLike)
    parts = [model.decision(rows, exact=is_in_memory) for rows in iterate_stored_rows(model, X)]
    return np.concatenate(parts) if parts else np.empty((0, len(model.weights)))


def compute_decision_intervals(model: Model, X: Any) -> tuple[Float64, Float64, Float64]:
    """Return the decision values (n, k) of rows of any kind, and the least and largest ones of the exact optima, in batches.

    Raises DataError, UsageError, MissingError.
    """
    is_in_memory = not isinstance(X, str | PathLike)
    parts = [
        (model.decision(rows, exact=is_in_memory), *model.intervals(rows)) for rows in iterate_stored_rows(model, X)
    ]
    empty = np.empty((0, len(model.weights)))
    decision, low, high = (
        (np.concatenate([empty, *values]) for values in zip(*parts, strict=True)) if parts else (empty,) * 3
    )
    return decision, low, high


def compute_contributions(model: Model, X: Any) -> Float64:
    """Return the contribution of each column to the decision values of rows, (n, k, d) float64.

    ``X``: an array, a sparse matrix, or a table with the columns of the model's training data. Raises DataError, and
    UsageError for too many rows at a time.
    """
    hats = model.expansion if isinstance(model.expansion, Hats) else None
    coef = model.coef if hats is None else np.zeros((len(model.weights), model.columns))
    batches, rows = list[Float32](), 0
    for X_stored in iterate_stored_rows(model, X):
        rows += row_count(X_stored)
        _check_contribution_bytes(rows, coef)
        batches.append(to_matrix(X_stored, model.columns))
    values = np.concatenate(batches).astype(np.float64) if batches else np.empty((0, model.columns))
    if hats is not None:
        return hats.contributions(values, model.weights[:, :-1])
    offsets = offsets_from(model.provenance.get("encoding"))
    values[:, offsets.columns] += offsets.values
    return values[:, None, :] * coef[None, :, :]


def iterate_stored_rows(model: Model, X: Any) -> Iterator[Rows]:
    """Yield rows of any kind in order, in batches, in the form of the model's training store: encoded, with offsets
    subtracted and missing values filled.

    Raises DataError, UsageError, MissingError.
    """
    kind = kind_of(X)
    if isinstance(X, str | PathLike):
        yield from (batch.X for batch in open_rows(model, locate_data([str(X)]), UNLABELED))
    elif kind in WITH_COLUMN_NAMES:
        yield from _iterate_table(model, X)
    elif kind is RowKind.DASK_ARRAY:
        yield from (_convert_array(model, block) for block in dask_blocks_of(X) if block.shape[0])
    elif kind in ARRAYS and not isinstance(X, np.ndarray) and not scipy.sparse.issparse(X):
        yield from _iterate_slices(model, X.X if kind is RowKind.ANNOTATED else X)
    else:
        yield _convert_array(model, X)


def _iterate_table(model: Model, X: Any) -> Iterator[Rows]:
    """Yield the rows of a table. Columns are encoded by name as in training; if the model has no schema of a table, all
    columns are numbers.
    """
    if "schema" not in (model.provenance.get("encoding") or {}):
        yield from (_convert_array(model, values) for values in numbers_of(X))
        return
    options = source_options(model, UNLABELED)
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as directory:
        source = table_opener(X, lambda: Path(directory))(options)
        yield from (batch.X for batch in rows_of_source(model, source, "X", options.rejects))


def _iterate_slices(model: Model, X: Any) -> Iterator[Rows]:
    """Yield the rows of an array on disk, which is read in slices."""
    filling = _read_filling(model, X.shape[1])
    source = OpenArraySource(LabeledArray(X, None), missing=filling is not None, exact=bool(model.offsets))
    yield from (_to_stored_form(model, batch.X, filling) for batch in source.batches())


def _convert_array(model: Model, X: Any) -> Rows:
    """Return the rows of an array in memory; in float64 if the model subtracts offsets from them. Raises DataError
    E-SCHEMA for a wrong number of columns.
    """
    columns = X.shape[1] if scipy.sparse.issparse(X) else None
    X = X if columns is not None else np.asarray(X)
    filling = _read_filling(model, X.shape[1]) if X.ndim == 2 else None
    rows = rows_of(X, "X", exact=bool(model.offsets), missing=filling is not None)
    return _to_stored_form(model, rows, filling)


def _read_filling(model: Model, columns: int) -> Filling | None:
    """Return the values by which missing entries of rows with ``columns`` columns are filled; None if the model has no
    such values, or if the rows already have the model's indicator columns.

    Raises DataError E-SCHEMA for a wrong number of columns.
    """
    filling = filling_from(model.provenance.get("encoding"))
    if filling is not None and columns == len(filling.values):
        return filling
    if columns != model.columns:
        raise DataError(
            f"X has {columns} columns, the model {model.columns}",
            code="E-SCHEMA",
            hint="apply the model to data with the columns it was trained on",
        )
    return None


def _to_stored_form(model: Model, X: Rows, filling: Filling | None) -> Rows:
    shifted = offsets_from(model.provenance.get("encoding")).apply(X)
    return shifted if filling is None else filling.apply(shifted)


def _check_contribution_bytes(rows: int, coef: Float64) -> None:
    """Raise UsageError if the contributions of the rows need too much memory."""
    if 8 * rows * coef.size > MAX_CONTRIBUTION_BYTES:
        max_rows = max(1, MAX_CONTRIBUTION_BYTES // (8 * coef.size))
        size = f"the contributions of {rows} rows in {coef.shape[1]} columns take {mib(8 * rows * coef.size)}"
        raise UsageError(size, hint=f"explain {max_rows} rows at a time")
