"""Columns chosen from rows, whatever the form."""

from __future__ import annotations

import numpy as np

from streamsvm.compute.blocks.operators import Factored, Operand
from streamsvm.errors import DefectError
from streamsvm.rows import CSR, Dense, Int64


def columns_of(X: Operand, chosen: Int64, columns: int) -> Operand:
    """Return the rows with the ``chosen`` columns (k,) alone, rising, numbered from 0; the constant feature stays.

    All of them are the rows themselves, not copied. ``columns`` is how many there are.
    """
    if isinstance(X, Factored):
        raise DefectError(
            "columns of kernel features are not chosen from", hint="this is a defect of streamsvm: report it"
        )
    if len(chosen) == columns:
        return X
    if isinstance(X, Dense):
        return Dense(np.ascontiguousarray(X.values[:, chosen]), X.bias)
    place = np.full(columns, -1, np.int32)
    place[chosen] = np.arange(len(chosen), dtype=np.int32)
    found = place[X.indices]
    kept = found >= 0
    indptr = np.concatenate([[0], np.cumsum(kept)])[X.indptr].astype(np.int64)
    return CSR(X.data[kept], found[kept], indptr, X.bias)
