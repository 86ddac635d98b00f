"""Selection of rows of a block by number, the size of copied rows, and squared norms of rows."""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import CSR, Dense, Rows
from streamsvm.type_aliases import Array


def take_rows(X: Rows, chosen: Array) -> Rows:
    """Return copies of the rows with the numbers ``chosen``, in that order."""
    if isinstance(X, Dense):
        return Dense(X.values[chosen], X.bias)
    lengths = np.diff(X.indptr)[chosen]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.repeat(X.indptr[:-1][chosen] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return CSR(X.data[places], X.indices[places], indptr, X.bias)


def bytes_per_row(columns: int, rows: int, nonzeros: tuple[int, ...] | None, entry: int = 4) -> int:
    """Return the average bytes of a copied row; ``entry``: bytes of an entry of a dense row."""
    return entry * columns if nonzeros is None else 8 + -(-8 * sum(nonzeros) // max(rows, 1))


@compiled(fastmath=FAST)
def row_squares(X: Rows, out: Array) -> None:
    """Set ``out`` (n,) to ||x_i||^2, summed in float64."""
    for i in range(out.size):
        out[i] = X.sqnorm(i)
