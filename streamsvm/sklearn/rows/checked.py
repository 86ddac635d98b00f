"""Rows, labels and weights of a program as a store in memory, and errors as scikit-learn has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse
from sklearn.utils.validation import validate_data

from streamsvm.aliases import Array, JsonObject
from streamsvm.errors import BudgetError, ConfigError, DataError, UsageError
from streamsvm.jobs.ingest.given import column_of
from streamsvm.kinds_of_rows import UNREADABLE, check_readable, is_frame, is_lazy, is_lazy_frame
from streamsvm.rows import Float64, Int32, Rows, row_slice
from streamsvm.sklearn.rows.merged import is_small, merged
from streamsvm.store.sources.arrays import rows_of
from streamsvm.store.sources.offsets import find_offsets, sample_rows
from streamsvm.store.views import MemoryStore

NUMBERS = (np.float64, np.float32)
"""The types of X that are taken as they are; others become the first."""


@runtime_checkable
class Tensor(Protocol):
    """An array of the array API, or a tensor: as much of it as is asked here."""

    device: Any
    """Where its memory is."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        """Return its memory as DLPack has it."""


def in_memory(X: Any) -> Any:
    """Return arrays of the array API and tensors as numpy sees them, without a copy; all else as it is. Raises ValueError.

    What is computed here is computed on processors: rows on an accelerator are for whoever has them to bring.
    """
    if isinstance(X, np.ndarray) or not isinstance(X, Tensor):
        return X
    try:
        return np.from_dlpack(X)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"X and y must lie in the memory of this machine, not on {X.device}: X.to('cpu'), or X.get()"
        ) from error


def labels_in_memory(X: Any, y: Any) -> Any:
    """Return labels in memory: lazy ones computed, of the name of a column of X the column, all else as it is."""
    if isinstance(y, str) and is_frame(X):
        y = X.select(y) if is_lazy_frame(X) else X[y]
    return column_of(y) if is_lazy(y) else y


def checked(estimator: Any, X: Any, *y: Any, **more: Any) -> Any:
    """Return rows X and labels y, if given, as scikit-learn checks them: float32 or float64, dense or CSR. Raises ValueError."""
    with as_value_errors():
        if type(X).__module__.partition(".")[0] in UNREADABLE.keys() - {"numpy", "builtins"}:
            check_readable(X)
    labels = [in_memory(labels_in_memory(X, one)) for one in y]
    return validate_data(
        estimator, in_memory(X), *labels, accept_sparse="csr", dtype=NUMBERS, accept_large_sparse=True, **more
    )


@contextmanager
def as_value_errors() -> Iterator[None]:
    """Make what is wrong with data or parameters a ValueError, which it is to scikit-learn."""
    try:
        yield
    except BudgetError:
        raise
    except (DataError, UsageError, ConfigError) as error:
        raise ValueError(f"{error.message}; {error.hint}") from error


def row_weights(sample_weight: Any, rows: int) -> Float64 | None:
    """Return weights (n,) float64; None where all rows count alike. Raises ValueError."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight)
    if weights.ndim == 0:  # one number stands for all rows
        weights = np.full(rows, weights)
    if weights.ndim != 1 or len(weights) != rows:
        raise ValueError(f"sample_weight has the shape {weights.shape}, expected ({rows},)")
    weights = weights.astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight must be finite and not negative: a weight is how often a row counts")
    if not weights.any():
        raise ValueError("sample_weight is zero for all rows: there is nothing to fit")
    return weights


def rows_counted(weights: Float64 | None, rows: int) -> int:
    """Return how many of ``rows`` rows have a weight (n,) above 0; all of them have one where there are no weights."""
    return rows if weights is None else int(np.count_nonzero(weights))


def store_of(
    X: Any, codes: Array, weights: Float64 | None, classes: int, *, ends: Sequence[int] | None = None, least: int = 2
) -> MemoryStore:
    """Return rows with their class codes (n,) int32, or numbers (n,) float64, and weights (n,) as a store; rows of weight 0 are left out, as if not there.

    A few rows are brought into one form, whether they are weighted or copied and in whatever order (``merged``). ``ends``: rows after which a
    chunk ends in any case; they stay as they are then, and no weight is 0. ``least``: of so many classes there must be rows.
    Raises ValueError where rows of too few classes are left, DataError for numbers that float32 cannot hold.
    """
    if weights is not None and (weights == 0).any():
        counted = weights > 0
        X, codes, weights = X[counted], codes[counted], weights[counted]
    present = np.unique(codes)
    if len(present) < least:
        raise ValueError(
            f"rows of {len(present)} class have a weight, the others are zero: at least {least} classes are needed"
        )
    rows, offsets = centered_rows(X)
    if ends is None and is_small(rows):
        rows, codes, weights = merged(rows, codes, weights, X.shape[1])
    kept = None if weights is None or (weights == 1).all() else weights.astype(np.float32)
    store = MemoryStore(name="X", facts=offsets, copies=True)
    for start, stop in pairwise((0, *(ends or ()), len(codes))):
        store.append(row_slice(rows, start, stop), codes[start:stop], None if kept is None else kept[start:stop])
        store.end_chunk()
    return store.commit(tuple(map(str, range(classes))), X.shape[1])


def centered_rows(X: Any) -> tuple[Rows, JsonObject]:
    """Return rows as an ingest has them, columns that float32 cannot hold less an offset, and what is recorded of that."""
    width = -(-X.nnz // max(1, X.shape[0])) if scipy.sparse.issparse(X) else X.shape[1]
    offsets = find_offsets(lambda exact: rows_of(X[: sample_rows(width)], "X", exact=exact))
    if offsets is None or not len(offsets.columns):
        return rows_of(X, "X"), {}
    return offsets.apply(rows_of(X, "X", exact=True)), {"encoding": {"offsets": offsets.to_json()}}


def balanced(codes: Int32, weights: Float64 | None, classes: int) -> Array:
    """Return the factor of each class (classes,) with which all classes that have weight weigh the same: n / (classes n_c); 1 for the others."""
    counts = np.bincount(codes, weights, minlength=classes)
    present = counts > 0
    found = np.ones(classes)
    found[present] = counts.sum() / (present.sum() * counts[present])
    return found
