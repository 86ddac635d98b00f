"""Standardization of a block, in place.  x_j <- (x_j - shift_j) * scale_j; of a CSR block, stored entries only."""

from __future__ import annotations

from streamsvm.compute.compiled import compiled
from streamsvm.rows import Float32, Int32


@compiled()
def scale_dense(values: Float32, shift: Float32, scale: Float32) -> None:
    """Changes ``values`` (n, d)."""
    n, d = values.shape
    for i in range(n):
        for j in range(d):
            values[i, j] = (values[i, j] - shift[j]) * scale[j]


@compiled()
def scale_sparse(data: Float32, indices: Int32, shift: Float32, scale: Float32) -> None:
    """Changes ``data``. A shift is right only for columns that every row stores (``features.scaling.filled``)."""
    for p in range(data.size):
        j = indices[p]
        data[p] = (data[p] - shift[j]) * scale[j]
