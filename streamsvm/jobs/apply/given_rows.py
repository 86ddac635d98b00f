"""Rows that a program hands to a model: arrays, tables read as the model's own was, stores and files by their path."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from streamsvm.errors import DataError
from streamsvm.jobs.apply.opening import FileRequest, located, row_batches, rows_of_source, source_options
from streamsvm.kinds_of_rows import gives_batches, is_annotated, is_array
from streamsvm.model import Model
from streamsvm.rows import CSR, Float64, Rows
from streamsvm.store.sources.array.given import rows_of
from streamsvm.store.sources.array.sliced import LabeledArray, SlicedArray
from streamsvm.store.sources.centering.offsets import offsets_from
from streamsvm.store.sources.parts.arrow_stream import numbers_of, spilled
from streamsvm.store.sources.parts.source import TABLE, frame_source

UNLABELED = FileRequest({"unlabeled": True})
"""New rows are read without a look at their labels."""


def decisions_of(model: Model, X: Any) -> Float64:
    """Return the decision values (n, k) of rows of any kind, which are read some at a time.

    Raises DataError, UsageError, MissingError.
    """
    given = not isinstance(X, str | PathLike)  # a store and a file are read in blocks of their own
    parts = [model.decision(rows, exact=given) for rows in _batches(model, X)]
    return np.concatenate(parts) if parts else np.empty((0, len(model.weights)))


def _batches(model: Model, X: Any) -> Iterator[Rows]:
    """The rows in order."""
    if isinstance(X, str | PathLike):
        yield from (batch.X for batch in row_batches(model, located([str(X)]), UNLABELED))
    elif is_table(X):
        yield from rows_of_table(model, X)
    elif is_array(X) and not isinstance(X, np.ndarray) and not scipy.sparse.issparse(X):
        X = X.X if is_annotated(X) else X
        _check_width(model, X.shape[1])
        source = SlicedArray(LabeledArray(X, None), missing=False, exact=bool(model.offsets))
        yield from (_centered(model, batch.X) for batch in source.batches())
    else:
        yield _centered(model, checked_rows(model, X))


def _centered(model: Model, X: Rows) -> Rows:
    """Rows as the model's store has them: some columns less an offset."""
    return offsets_from(model.provenance.get("encoding")).applied(X)


def is_table(X: Any) -> bool:
    """Return whether rows are a table of a program, whose columns are read as those of a file."""
    return gives_batches(X)


def rows_of_table(model: Model, X: Any) -> Iterator[Rows]:
    """Yield the rows of a table as the model's store has them: columns by name as in training, or all of them as numbers where the model
    knows no names. Raises DataError, UsageError.
    """
    if "schema" not in (model.provenance.get("encoding") or {}):
        yield from (_centered(model, checked_rows(model, values)) for values in numbers_of(X))
        return
    options = source_options(model, UNLABELED)
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as directory:
        source = frame_source([spilled(X, Path(directory))], options, TABLE)
        yield from (batch.X for batch in rows_of_source(model, source, "X", options.rejects))


def checked_rows(model: Model, X: Any) -> Rows:
    """Return rows in memory as a record, exact where the model takes offsets from them.

    Raises DataError E-SCHEMA for another number of columns.
    """
    rows = rows_of(X, "X", exact=bool(model.offsets))
    _check_width(model, X.shape[1] if isinstance(rows, CSR) else rows.values.shape[1])
    return rows


def _check_width(model: Model, found: int) -> None:
    if found != model.columns:
        raise DataError(
            f"X has {found} columns, the model {model.columns}",
            code="E-SCHEMA",
            hint="apply the model to data with the columns it was trained on",
        )
