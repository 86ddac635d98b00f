"""Decision values of a block for several weight vectors at once, in float64, and sums of their squares."""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import CSR, Float64, Int64, Rows


@compiled(fastmath=FAST)
def decision_values(X: Rows, W: Float64, out: Float64) -> None:
    """out[i, k] = W[k].x_i. Given: X (n rows), W (k, d + 1). Changed: out (n, k)."""
    for i in range(out.shape[0]):
        for k in range(W.shape[0]):
            out[i, k] = X.dot(i, W[k])


@compiled(fastmath=FAST)
def projected_squares(X: CSR, chosen: Int64, W: Float64, out: Float64) -> None:
    """out[i] = ||W' x_c||^2, c = chosen[i]. Given: X, chosen (n,), W (d + 1, k), k contiguous. Changed: out (n,)."""
    found = np.empty(W.shape[1])
    for i in range(out.size):
        start, stop = X.indptr[chosen[i]], X.indptr[chosen[i] + 1]
        data, indices = X.data[start:stop], X.indices[start:stop]
        found[:] = X.bias * W[W.shape[0] - 1]
        for p in range(data.size):
            value, row = np.float64(data[p]), W[np.uint32(indices[p])]
            for k in range(found.size):
                found[k] += value * row[k]
        out[i] = (found * found).sum()
