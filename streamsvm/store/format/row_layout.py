"""Rows from one layout, dense or CSR, to the other."""

from __future__ import annotations

import numpy as np

from streamsvm.rows import CSR, Dense, Rows

DENSE_FROM = 0.5
"""From this share of entries on dense rows are smaller: 4 bytes for each against 8."""


def to_dense(X: CSR, columns: int) -> Dense:
    """Return CSR rows as dense ones, (n, columns) float32."""
    values = np.zeros((len(X.indptr) - 1, columns), np.float32)
    values[np.repeat(np.arange(len(values)), np.diff(X.indptr)), X.indices] = X.data
    return Dense(values, X.bias)


def to_csr(X: Dense) -> CSR:
    """Return dense rows as CSR, without their zeros."""
    filled = X.values != 0
    indptr = np.zeros(len(X.values) + 1, np.int64)
    np.cumsum(np.count_nonzero(filled, axis=1), out=indptr[1:])
    return CSR(X.values[filled], np.nonzero(filled)[1].astype(np.int32), indptr, X.bias)


def in_layout(X: Rows, *, sparse: bool, columns: int | None) -> Rows:
    """Return the rows as CSR if ``sparse``, else dense with ``columns`` columns."""
    if sparse:
        return to_csr(X) if isinstance(X, Dense) else X
    if isinstance(X, Dense):
        return X
    assert columns is not None
    return to_dense(X, columns)


def density(X: Rows, columns: int) -> float:
    """Return the share of entries that are stored."""
    if isinstance(X, Dense):
        return 1.0
    return len(X.data) / max(1, columns * (len(X.indptr) - 1))
