"""Select rows of a block by number, make them dense, and take their norms."""

from __future__ import annotations

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import CSR, Dense, Rows


def take_rows(X: Rows, chosen: Array) -> Rows:
    """Return the rows whose numbers are ``chosen``, in that order, copied."""
    if isinstance(X, Dense):
        return Dense(X.values[chosen], X.bias)
    lengths = np.diff(X.indptr)[chosen]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.repeat(X.indptr[:-1][chosen] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return CSR(X.data[places], X.indices[places], indptr, X.bias)


def bytes_per_row(columns: int, rows: int, nonzeros: tuple[int, ...] | None, entry: int = 4) -> int:
    """Return the bytes a copied row takes on average; ``entry``: those of an entry of a dense one."""
    return entry * columns if nonzeros is None else 8 + -(-8 * sum(nonzeros) // max(rows, 1))


@compiled(fastmath=FAST)
def row_squares(X: Rows, out: Array) -> None:
    """Changes ``out`` (n,): ||x_i||^2, summed in float64."""
    for i in range(out.size):
        out[i] = X.sqnorm(i)
