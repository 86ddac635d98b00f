"""Rows from one layout to the other, and some rows out of many, all of it vectorized."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamsvm.rows import CSR, Dense, Rows

DENSE_FROM = 0.5
"""The share of filled places from which a matrix is smaller when all places are stored: 4 bytes against 8 an entry."""


def to_dense(X: CSR, columns: int) -> Dense:
    """Return the same rows with all places, (n, columns) float32."""
    values = np.zeros((len(X.indptr) - 1, columns), np.float32)
    values[np.repeat(np.arange(len(values)), np.diff(X.indptr)), X.indices] = X.data
    return Dense(values, X.bias)


def to_csr(X: Dense) -> CSR:
    """Return the same rows without their zeros."""
    filled = X.values != 0
    indptr = np.zeros(len(X.values) + 1, np.int64)
    np.cumsum(np.count_nonzero(filled, axis=1), out=indptr[1:])
    return CSR(X.values[filled], np.nonzero(filled)[1].astype(np.int32), indptr, X.bias)


def take(X: Rows, chosen: NDArray[np.bool_]) -> Rows:
    """Return the rows where ``chosen`` (n,) is true, in order, copied."""
    if isinstance(X, Dense):
        return Dense(X.values[chosen], X.bias)
    lengths = np.diff(X.indptr)
    entries = np.repeat(chosen, lengths)
    indptr = np.concatenate([[0], np.cumsum(lengths[chosen])]).astype(np.int64)
    return CSR(X.data[entries], X.indices[entries], indptr, X.bias)


def in_layout(X: Rows, *, sparse: bool, columns: int | None) -> Rows:
    """Return the rows as CSR if ``sparse``, else dense with ``columns`` columns."""
    if sparse:
        return to_csr(X) if isinstance(X, Dense) else X
    if isinstance(X, Dense):
        return X
    assert columns is not None
    return to_dense(X, columns)


def density(X: Rows, columns: int) -> float:
    """Return the share of places that are filled."""
    if isinstance(X, Dense):
        return 1.0
    return len(X.data) / max(1, columns * (len(X.indptr) - 1))
