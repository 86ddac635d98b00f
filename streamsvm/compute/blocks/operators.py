"""A block as a linear operator: all that a batch solver sees of it.

With rows x_i (n), each extended by its constant feature, and p = columns + 1:

    margins(X, w)           = X w            (n,) or (n, q) for several w
    adjoint(X, a, columns)  = X' a           (p,) or (p, q)
    gram(X, a, columns)     = X' diag(a) X   (p, p), a >= 0; rows with a = 0 cost nothing

``columns`` is said because a CSR record does not know it.

A Nystrom block is a factored pair, x_i = W' k_i: K W is formed in ``gram`` alone, and there only for the rows that count.
Margins and adjoints are float64 sums of float32 entries, or float64 ones where kernel features are made in that. Gram
matrices are products over tiles of rows in the type of the entries, added up in float64 in the order of the
tiles: the result depends on the block and on nothing else. Idle threads take strips of rows of margins, pieces of a sum,
and tiles of a Gram matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.compute import threading
from streamsvm.compute.blocks.lifted_weights import lifted
from streamsvm.compute.blocks.margins import decision_values
from streamsvm.compute.blocks.two_sum import two_sum
from streamsvm.compute.blocks.unformed_rows import UnformedRows, stacked
from streamsvm.compute.compiled import compiled
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import CSR, Dense, Float32, Float64, Int32, Int64, Rows, row_count, row_slice, row_stack, row_where
from streamsvm.tags import saved_as

TILE = 2048
"""Rows of a float32 product: its error grows with them, the cost of adding products up falls with them."""

STRIP = 2048
"""Rows of margins that a thread takes at least four of."""
PIECE_ENTRIES, MOST_PIECES = 1 << 18, 16
"""Entries of rows that are summed up by one thread, at least: some tenths of a millisecond's work; and pieces, at most."""
SUMS_BYTES = 4 << 20
"""What the sums of the pieces may take, unless one takes more."""
PRECISE = 256
"""Up to as many components products are float64: raw columns may be nearly dependent, whitened ones are not."""


@saved_as("rows.factored")
class Factored(NamedTuple):
    """Rows W' k_i without forming them: kernel values (n, m) and projection (m, r), float32 or float64."""

    kernel_values: Array
    """The kernel values k_i, (n, m) float32, or float64."""
    projection: Array
    """The matrix W, (m, r) float32, or float64."""
    bias: float = 0.0
    """The value of the constant feature."""
    origin: UnformedRows | None = None
    """The same rows without their kernel values, where these are better made anew than kept."""


Operand: TypeAlias = Rows | Factored
Kept: TypeAlias = Operand | UnformedRows
"""Rows that are held until their features are formed."""


def shape(X: Kept, columns: int) -> tuple[int, int]:
    """Return (rows, components); ``columns`` is what a CSR record cannot know."""
    if isinstance(X, UnformedRows):
        return row_count(X.rows), X.projection.shape[1] + 1
    if isinstance(X, Factored):
        return len(X.kernel_values), X.projection.shape[1] + 1
    return row_count(X), (X.values.shape[1] if isinstance(X, Dense) else columns) + 1


def entry_type(X: Kept) -> np.dtype[Any]:
    """Return the type of the entries of rows: float64 of features that are made in it, else float32."""
    if isinstance(X, UnformedRows):
        return X.points.columns.dtype
    if isinstance(X, Factored):
        return X.kernel_values.dtype
    return X.values.dtype if isinstance(X, Dense) else X.data.dtype


def formed_anew(X: Kept) -> bool:
    """Return whether a row that is formed is not quite the one the pair stands for, by what rounding in float32 does."""
    return isinstance(X, Factored | UnformedRows) and entry_type(X) == np.float32


def margins(X: Operand, w: Float64) -> Float64:
    """Return X w: (n,) for w (p,), (n, q) for w (p, q)."""
    W = np.ascontiguousarray(np.atleast_2d(w.T))
    if isinstance(X, Factored):
        W, X = lifted(X.projection, X.bias, W), Dense(X.kernel_values, 1.0)
    rows, count = X, row_count(X)
    values = np.empty((count, len(W)))

    def strip(start: int, stop: int) -> None:
        mine = rows if stop - start == count else row_slice(rows, start, stop)
        decision_values(mine, W, values[start:stop])

    threading.in_strips(strip, count, STRIP)
    return values if w.ndim == 2 else values[:, 0]


def adjoint(X: Operand, a: Float64, columns: int) -> Float64:
    """Return X' a: (p,) for a (n,), (p, q) for a (n, q); of rows that are formed, as if summed in twice the precision."""
    A = np.ascontiguousarray(np.atleast_2d(a.T), np.float64)
    if isinstance(X, Factored):
        sums = np.zeros((len(A), X.kernel_values.shape[1] + 1))
        add_rows(Dense(X.kernel_values, X.bias), A, sums)
        out = np.zeros((len(A), X.projection.shape[1] + 1))
        add_rows(Dense(X.projection, 0.0), np.ascontiguousarray(sums[:, :-1]), out)
        out[:, -1] = sums[:, -1]
    else:
        out = _summed(X, A, shape(X, columns)[1])
    return out.T if a.ndim == 2 else out[0]


def _summed(X: Rows, A: Float64, components: int) -> Float64:
    """Return sum_i A[k, i] x_i, (q, p) for A (q, n): in pieces of rows that the block alone decides, by idle threads side by side.

    Each piece has what rounding takes from its sum, and that of the pieces is kept as well, so that
    in how many pieces a sum is made hardly ever shows in it.
    """
    rows = row_count(X)
    entries = max(1, (X.values.size if isinstance(X, Dense) else len(X.data)) // max(1, rows))
    most = max(1, min(MOST_PIECES, SUMS_BYTES // (16 * len(A) * components)))
    edges = [*range(0, rows, max(PIECE_ENTRIES // entries, -(-rows // most), 1)), rows]
    sums = np.zeros((max(1, len(edges) - 1), 2, len(A), components))

    def add(first: int, last: int) -> None:
        for number, (start, stop) in enumerate(pairwise(edges[first : last + 1]), first):
            whole = stop - start == rows
            mine, factors = (X, A) if whole else (row_slice(X, start, stop), np.ascontiguousarray(A[:, start:stop]))
            sum_rows(mine, factors, sums[number, 0], sums[number, 1])

    threading.in_strips(add, len(edges) - 1, 1, least=1)
    (out, low), *others = sums
    for more, lost in others:
        out, taken = two_sum(out, more)
        low = low + (lost + taken)
    found: Float64 = out + low
    return found


def gram(X: Operand, a: Float32 | Float64, columns: int) -> Float64:
    """Return X' diag(a) X, (p, p)."""
    _, p = shape(X, columns)
    total = np.zeros((p, p))
    if isinstance(X, CSR):
        sparse_gram(X.data, X.indices, X.indptr, X.bias, a, total)
        return total + np.tril(total, -1).T
    rows = np.flatnonzero(a)
    size = _tile(len(rows))
    lanes = threading.lanes(tile_bytes(p, _kernel_values(X), entry_type(X).itemsize))
    dtype = np.float64 if p <= PRECISE else entry_type(X)
    buffers = np.empty((lanes, size, p), dtype)

    def product(number: int, lane: int) -> Array:
        part = rows[size * number : size * (number + 1)]
        tile = buffers[lane, : len(part)]
        _scaled_rows(X, part, np.sqrt(a[part]).astype(dtype, copy=False), tile)
        found: Array = tile.T @ tile
        return found

    def add(one: Array) -> None:
        np.add(total, one, out=total)

    threading.in_turn(product, add, -(-len(rows) // size), lanes)
    return total


def _tile(rows: int) -> int:
    """Rows of each tile of so many: TILE at most, and of more than one tile an even number of one size, of which two threads have as many."""
    count = -(-rows // TILE)
    return max(1, -(-rows // (count + count % 2 if count > 1 else 1)))


def where(X: Kept, chosen: NDArray[np.bool_]) -> Kept:
    """Return the rows where ``chosen`` (n,) is true, copied."""
    if isinstance(X, UnformedRows):
        return X.where(chosen)
    if isinstance(X, Factored):
        origin = None if X.origin is None else X.origin.where(chosen)
        return Factored(X.kernel_values[chosen], X.projection, X.bias, origin)
    return row_where(X, chosen)


def kept(X: Kept, chosen: NDArray[np.bool_]) -> Kept:
    """Return what is enough to form the rows where ``chosen`` (n,) is true, copied: kernel values only where they are not made anew."""
    if isinstance(X, Factored) and X.origin is not None:
        X = X.origin
    return copied(X) if chosen.all() and not isinstance(X, UnformedRows) else where(X, chosen)


def copied(X: Operand) -> Operand:
    """All rows, copied."""
    if isinstance(X, Factored):
        return Factored(X.kernel_values.copy(), X.projection, X.bias)
    if isinstance(X, Dense):
        return Dense(X.values.copy(), X.bias)
    return CSR(X.data.copy(), X.indices.copy(), X.indptr.copy(), X.bias)


def stack(parts: Sequence[Kept]) -> Kept:
    """Return rows of several blocks of one kind as one."""
    first = parts[0]
    if isinstance(first, UnformedRows):
        return stacked([part for part in parts if isinstance(part, UnformedRows)])
    if isinstance(first, Factored):
        values = [part.kernel_values for part in parts if isinstance(part, Factored)]
        return Factored(np.concatenate(values), first.projection, first.bias)
    return row_stack([part for part in parts if isinstance(part, Dense | CSR)])


def gram_bytes(components: int, kernel_values: int = 0, entry: int = 4) -> int:
    """Return the bytes ``gram`` holds at its height: the sum and, of each thread, a product, the tile and, for a factored
    block, its kernel values. ``entry``: bytes of an entry of a row.
    """
    each = tile_bytes(components, kernel_values, entry)
    return 8 * components * components + threading.lanes(each) * each


def tile_bytes(components: int, kernel_values: int, entry: int = 4) -> int:
    """Return the bytes of a tile of ``gram`` and of its product, of rows with so many bytes an ``entry``."""
    return entry * components * components + entry * TILE * (components + kernel_values)


def _kernel_values(X: Dense | Factored) -> int:
    return len(X.projection) if isinstance(X, Factored) else 0


def _scaled_rows(X: Dense | Factored, rows: Int64, factors: Array, out: Array) -> None:
    """Fills ``out`` (k, p): the chosen rows, constant feature included, each times its factor."""
    if isinstance(X, Factored):
        chosen = X.kernel_values[rows]
        chosen *= factors[:, None]
        np.matmul(chosen, X.projection, out=out[:, :-1])
    else:
        np.multiply(X.values[rows], factors[:, None], out=out[:, :-1])
    out[:, -1] = X.bias * factors


@compiled(fastmath=FAST)
def add_rows(X: Rows, A: Float64, out: Float64) -> None:
    """Adds to ``out`` (q, p): sum_i A[k, i] x_i. Given: X (n rows), A (q, n)."""
    for i in range(A.shape[1]):
        for k in range(A.shape[0]):
            if A[k, i] != 0.0:
                X.axpy(i, A[k, i], out[k])


@compiled(fastmath=FAST)
def sum_rows(X: Rows, A: Float64, out: Float64, low: Float64) -> None:
    """The same, added to ``out`` + ``low`` (q, p): rounding loses nothing but what it takes from each product."""
    for i in range(A.shape[1]):
        for k in range(A.shape[0]):
            if A[k, i] != 0.0:
                X.add_row(i, A[k, i], out[k], low[k])


@compiled(fastmath=FAST)
def sparse_gram(data: Float32, indices: Int32, indptr: Int64, bias: float, a: Float32 | Float64, out: Float64) -> None:
    """Adds to the lower triangle of ``out`` (p, p): sum_i a_i x_i x_i'. Indices rise within a row."""
    last = out.shape[0] - 1
    for i in range(a.size):
        if a[i] == 0.0:
            continue
        for p in range(indptr[i], indptr[i + 1]):
            scaled, j = a[i] * np.float64(data[p]), indices[p]
            for q in range(indptr[i], p + 1):
                out[j, indices[q]] += scaled * data[q]
            out[last, j] += scaled * bias
        out[last, last] += a[i] * bias * bias
