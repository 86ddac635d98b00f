"""What an explanation of a linear model tells of: the names of its columns, and what each adds to the decision values of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamsvm.aliases import JsonMapping
from streamsvm.config.units import mib
from streamsvm.errors import UsageError
from streamsvm.jobs.apply.given_rows import stored_rows
from streamsvm.model import Model
from streamsvm.rows import Dense, Float64, Rows, row_count
from streamsvm.store.sources.centering.offsets import offsets_from
from streamsvm.store.sources.table.layout.schema import schema_from

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


def names_of(model: Model) -> tuple[str, ...]:
    """Return the names of the model's columns, (d,); their numbers where they have none.

    Hashed columns are called by what is hashed to them and their number among those.
    """
    name_of = name_by_number(model.names, model.provenance.get("encoding"), model.columns, "{}")
    return tuple(map(name_of, range(model.columns)))


def name_by_number(
    names: Sequence[str] | None, encoding: JsonMapping | None, columns: int, otherwise: str
) -> Callable[[int], str]:
    """Return what tells the name of a column by its number, from what is recorded of a store; ``otherwise`` formats the number."""
    if names:
        return lambda j: str(names[j])
    recorded = (encoding or {}).get("schema")
    schema = schema_from({**recorded, "documents": {}}) if recorded else None
    if schema is not None and schema.width == columns:
        return schema.feature_name
    return otherwise.format
