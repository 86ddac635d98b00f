"""Rows times the sign of their class, whatever the form."""

from __future__ import annotations

import numpy as np

from streamsvm.compute.blocks.operators import Factored, Operand
from streamsvm.errors import DefectError
from streamsvm.rows import CSR, Dense, Targets


def signed_rows(X: Operand, y: Targets, columns: int, constant: float) -> Dense | CSR:
    """Return the rows y_i x_i, copied; y (n,) is +1 or -1.

    The constant feature of X becomes a column more, after all ``columns``, where it is not 0; ``constant`` is the value of the new one.
    """
    if isinstance(X, Factored):
        raise DefectError("kernel features have no sign of their own", hint="this is a defect of streamsvm: report it")
    more = X.bias != 0.0
    if isinstance(X, Dense):
        values = np.empty((len(y), columns + more), np.float32)
        np.multiply(X.values, y[:, None], out=values[:, :columns])
        values[:, columns:] = X.bias * y[:, None]
        return Dense(values, constant)
    data = X.data * np.repeat(y, np.diff(X.indptr)).astype(np.float32)
    if not more:
        return CSR(data, X.indices, X.indptr, constant)
    ends = X.indptr[1:]
    data = np.insert(data, ends, (X.bias * y).astype(np.float32))
    indices = np.insert(X.indices, ends, np.int32(columns))
    return CSR(data, indices, X.indptr + np.arange(len(y) + 1), constant)
