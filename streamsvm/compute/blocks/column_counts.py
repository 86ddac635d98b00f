"""How many rows have each column of sparse rows, counted in little memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamsvm.rows import CSR, Int64

PIECE = 1 << 20
"""Entries that are counted at a time: numpy makes int64 of them first, which of all rows in memory is as much as the rows."""


def column_counts(X: CSR, columns: int, chosen: NDArray[np.bool_] | None = None) -> Int64:
    """Return the entries (columns,) of each column, in the ``chosen`` (n,) rows or in all."""
    counts, row, rows = np.zeros(columns, np.int64), 0, len(X.indptr) - 1
    while row < rows:
        stop = max(row + 1, int(np.searchsorted(X.indptr, X.indptr[row] + PIECE, side="right")) - 1)
        indices = X.indices[X.indptr[row] : X.indptr[stop]]
        if chosen is not None:
            indices = indices[np.repeat(chosen[row:stop], np.diff(X.indptr[row : stop + 1]))]
        counts += np.bincount(indices, minlength=columns)
        row = stop
    return counts
