"""Rows that a program hands to a model: arrays, tables read as the model's own was, stores and files by their path.

Their decision values, and what each column of a linear model adds to these.
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
from streamsvm.jobs.apply.rows import FileRequest, locate_data, open_rows, rows_of_source, source_options
from streamsvm.kinds_of_rows import ARRAYS, WITH_COLUMN_NAMES, RowKind, kind_of
from streamsvm.model import Model
from streamsvm.rows import Float32, Float64, Rows, row_count, to_matrix
from streamsvm.store.sources.array_rows import rows_of
from streamsvm.store.sources.arrays import LabeledArray, OpenArraySource
from streamsvm.store.sources.data_frames import dask_blocks_of, numbers_of, table_source
from streamsvm.store.sources.offsets import offsets_from
from streamsvm.store.sources.preprocessing import Filling, filling_from

UNLABELED = FileRequest({"unlabeled": True})
"""New rows are read without a look at their labels."""
MOST_BYTES = 1 << 30
"""Of parts, one number for each row, problem and column: explanations are for people, who look at a few rows."""


def decisions_of(model: Model, X: Any) -> Float64:
    """Return the decision values (n, k) of rows of any kind, which are read some at a time.

    Raises DataError, UsageError, MissingError.
    """
    given = not isinstance(X, str | PathLike)  # a store and a file are read in blocks of their own
    parts = [model.decision(rows, exact=given) for rows in iterate_stored_rows(model, X)]
    return np.concatenate(parts) if parts else np.empty((0, len(model.weights)))


def parts_of(model: Model, X: Any) -> Float64:
    """Return what each column adds to the decision values of rows, (n, k, d) float64.

    ``X``: an array, a sparse matrix, or a table like the one the model's store was made of. Raises DataError,
    UsageError for more rows than can be explained at a time.
    """
    coef, found, size = model.coef, list[Float32](), 0
    for X_stored in iterate_stored_rows(model, X):
        size += row_count(X_stored)
        _check_size(size, coef)
        found.append(to_matrix(X_stored, model.columns))
    values = np.concatenate(found).astype(np.float64) if found else np.empty((0, model.columns))
    offsets = offsets_from(model.provenance.get("encoding"))
    values[:, offsets.columns] += offsets.values
    return values[:, None, :] * coef[None, :, :]


def iterate_stored_rows(model: Model, X: Any) -> Iterator[Rows]:
    """Yield rows of any kind in order, some at a time, as the model's store has them: encoded, some columns less an
    offset, filled.

    Raises DataError, UsageError, MissingError.
    """
    kind = kind_of(X)
    if isinstance(X, str | PathLike):
        yield from (batch.X for batch in open_rows(model, locate_data([str(X)]), UNLABELED))
    elif kind in WITH_COLUMN_NAMES:
        yield from _of_table(model, X)
    elif kind is RowKind.DASK_ARRAY:
        yield from (_of_array(model, block) for block in dask_blocks_of(X) if block.shape[0])
    elif kind in ARRAYS and not isinstance(X, np.ndarray) and not scipy.sparse.issparse(X):
        yield from _of_slices(model, X.X if kind is RowKind.ANNOTATED else X)
    else:
        yield _of_array(model, X)


def _of_table(model: Model, X: Any) -> Iterator[Rows]:
    """Yield the rows of a table: columns by name as in training, or all of them as numbers where the model knows no
    names.
    """
    if "schema" not in (model.provenance.get("encoding") or {}):
        yield from (_of_array(model, values) for values in numbers_of(X))
        return
    options = source_options(model, UNLABELED)
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as directory:
        source = table_source(X, options, lambda: Path(directory))
        yield from (batch.X for batch in rows_of_source(model, source, "X", options.rejects))


def _of_slices(model: Model, X: Any) -> Iterator[Rows]:
    """Yield the rows of an array that is read in slices."""
    filling = _filling(model, X.shape[1])
    source = OpenArraySource(LabeledArray(X, None), missing=filling is not None, exact=bool(model.offsets))
    yield from (_to_stored(model, batch.X, filling) for batch in source.batches())


def _of_array(model: Model, X: Any) -> Rows:
    """Return the rows of an array in memory, exact where the model takes offsets from them. Raises DataError E-SCHEMA
    for another number of columns.
    """
    columns = X.shape[1] if scipy.sparse.issparse(X) else None
    X = X if columns is not None else np.asarray(X)
    filling = _filling(model, X.shape[1]) if X.ndim == 2 else None
    rows = rows_of(X, "X", exact=bool(model.offsets), missing=filling is not None)
    return _to_stored(model, rows, filling)


def _filling(model: Model, columns: int) -> Filling | None:
    """Return what stands for missing values in rows of so many columns; None where none may be missing. Raises
    DataError E-SCHEMA.

    Rows may have their indicator columns already.
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


def _to_stored(model: Model, X: Rows, filling: Filling | None) -> Rows:
    moved = offsets_from(model.provenance.get("encoding")).apply(X)
    return moved if filling is None else filling.apply(moved)


def _check_size(rows: int, coef: Float64) -> None:
    """Raise UsageError where the parts of so many rows are too many."""
    if 8 * rows * coef.size > MOST_BYTES:
        most = max(1, MOST_BYTES // (8 * coef.size))
        found = f"the parts of {rows} rows in {coef.shape[1]} columns take {mib(8 * rows * coef.size)}"
        raise UsageError(found, hint=f"explain {most} rows at a time")
