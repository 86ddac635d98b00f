"""Decision values of a block for several weight vectors at once, in float64."""

from __future__ import annotations

from numba import njit

from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import Float64, Rows


@njit(cache=True, nogil=True, fastmath=FAST)
def decision_values(X: Rows, W: Float64, out: Float64) -> None:
    """out[i, k] = W[k].x_i. Given: X (n rows), W (k, d + 1). Changed: out (n, k)."""
    for i in range(out.shape[0]):
        for k in range(W.shape[0]):
            out[i, k] = X.dot(i, W[k])
