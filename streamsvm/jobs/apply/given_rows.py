"""Rows that a program hands to a model: arrays and sparse matrices as they are, stores and files by their path."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from streamsvm.errors import DataError
from streamsvm.jobs.apply.row_batches import FileRequest, located, row_batches
from streamsvm.model import Model
from streamsvm.rows import CSR, Float64, Rows
from streamsvm.store.sources.array.given import rows_of
from streamsvm.store.sources.centering import offsets_from


def decisions_of(model: Model, X: Any) -> Float64:
    """Return the decision values (n, k) of rows of any kind. Raises DataError, UsageError, MissingError."""
    if isinstance(X, str | PathLike):
        places = located([str(X)])
        batches = row_batches(model, places, FileRequest({"unlabeled": True}))
        return np.concatenate([model.decision(batch.X) for batch in batches])
    return model.decision(offsets_from(model.provenance.get("encoding")).applied(checked_rows(model, X)))


def parts_of(model: Model, X: Any) -> Float64:
    """Return what each column adds to the decision values of rows in memory, (n, k, d) float64."""
    X = checked_rows(model, X)
    if isinstance(X, CSR):
        values = np.zeros((len(X.indptr) - 1, model.columns))
        values[np.repeat(np.arange(len(values)), np.diff(X.indptr)), X.indices] = X.data
    else:
        values = X.values.astype(np.float64)
    return values[:, None, :] * model.coef[None, :, :]


def checked_rows(model: Model, X: Any) -> Rows:
    """Return rows in memory as a record, exact where the model takes offsets from them. Raises DataError E-SCHEMA for another number of columns."""
    rows = rows_of(X, "X", exact=bool(model.offsets))
    found = X.shape[1] if isinstance(rows, CSR) else rows.values.shape[1]
    if found != model.columns:
        raise DataError(
            f"X has {found} columns, the model {model.columns}",
            code="E-SCHEMA",
            hint="apply the model to data with the columns it was trained on",
        )
    return rows
