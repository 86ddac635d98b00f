"""What each column of a linear model adds to the decision values of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.config.units import mib
from streamsvm.errors import UsageError
from streamsvm.jobs.apply.given_rows import stored_rows
from streamsvm.model import Model
from streamsvm.rows import Dense, Float64, Rows, row_count
from streamsvm.store.sources.offsets import offsets_from

MOST_BYTES = 1 << 30
"""Of parts, one number for each row, problem and column: explanations are for people, who look at a few rows."""


def parts_of(model: Model, X: Any) -> Float64:
    """Return what each column adds to the decision values of rows, (n, k, d) float64.

    ``X``: an array, a sparse matrix, or a table like the one the model's store was made of. Raises DataError, UsageError for
    rows too many to be told of one by one.
    """
    coef, found, size = model.coef, list[Float64](), 0
    for X_stored in stored_rows(model, X):
        size += row_count(X_stored)
        _check_size(size, coef)
        found.append(_values(X_stored, model.columns))
    values = np.concatenate(found) if found else np.empty((0, model.columns))
    offsets = offsets_from(model.provenance.get("encoding"))
    values[:, offsets.columns] += offsets.values
    return values[:, None, :] * coef[None, :, :]


def _check_size(rows: int, coef: Float64) -> None:
    """Raise UsageError where the parts of so many rows are too many."""
    if 8 * rows * coef.size > MOST_BYTES:
        most = max(1, MOST_BYTES // (8 * coef.size))
        found = f"the parts of {rows} rows in {coef.shape[1]} columns take {mib(8 * rows * coef.size)}"
        raise UsageError(found, hint=f"explain {most} rows at a time")


def _values(X: Rows, columns: int) -> Float64:
    """Rows in full, (n, columns)."""
    if isinstance(X, Dense):
        return X.values.astype(np.float64)
    values = np.zeros((row_count(X), columns))
    values[np.repeat(np.arange(len(values)), np.diff(X.indptr)), X.indices] = X.data
    return values
