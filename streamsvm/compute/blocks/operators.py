"""A block as a linear operator: all that a batch solver sees of it.

With rows x_i (n), each extended by its constant feature, and p = columns + 1:

    margins(X, w)           = X w            (n,) or (n, q) for several w
    adjoint(X, a, columns)  = X' a           (p,) or (p, q)
    gram(X, a, columns)     = X' diag(a) X   (p, p), a >= 0; rows with a = 0 cost nothing

``columns`` is said because a CSR record does not know it.

A Nystrom block is a factored pair, x_i = W' k_i: K W is formed in ``gram`` alone, and there only for the rows that count.
Margins and adjoints are float64 sums of float32 entries. Gram matrices are float32 products over tiles of a fixed
number of rows, added up in float64: the result depends on the block and on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.compute import freed_memory
from streamsvm.compute.blocks.margins import decision_values
from streamsvm.compute.blocks.row_selection import take
from streamsvm.compute.numba_bridge import FAST
from streamsvm.rows import CSR, Dense, Float32, Float64, Int32, Int64, Rows, row_count, row_stack, row_where
from streamsvm.tags import saved_as

TILE = 2048
"""Rows of a float32 product: its error grows with them, the cost of adding products up falls with them."""

PRECISE = 256
"""Up to as many components products are float64: raw columns may be nearly dependent, whitened ones are not."""


@saved_as("rows.factored")
class Factored(NamedTuple):
    """Rows W' k_i without forming them: kernel values (n, m) float32, or float64; projection (m, r) float32."""

    kernel_values: Array
    """The kernel values k_i, (n, m) float32, or float64."""
    projection: Float32
    """The matrix W, (m, r) float32."""
    bias: float = 0.0
    """The value of the constant feature."""


Operand: TypeAlias = Rows | Factored


def shape(X: Operand, columns: int) -> tuple[int, int]:
    """Return (rows, components); ``columns`` is what a CSR record cannot know."""
    if isinstance(X, Factored):
        return len(X.kernel_values), X.projection.shape[1] + 1
    return row_count(X), (X.values.shape[1] if isinstance(X, Dense) else columns) + 1


def margins(X: Operand, w: Float64) -> Float64:
    """Return X w: (n,) for w (p,), (n, q) for w (p, q)."""
    W = np.ascontiguousarray(np.atleast_2d(w.T))
    if isinstance(X, Factored):
        W, X = _lifted(X, W), Dense(X.kernel_values, 1.0)
    values = np.empty((row_count(X), len(W)))
    decision_values(X, W, values)
    return values if w.ndim == 2 else values[:, 0]


def _lifted(X: Factored, W: Float64) -> Float64:
    """Weights (q, m + 1) on kernel values for weights (q, r + 1) on features; the constant is folded in."""
    lifted = np.empty((len(X.projection), len(W)))
    decision_values(Dense(X.projection, 0.0), W, lifted)
    return np.ascontiguousarray(np.concatenate([lifted.T, X.bias * W[:, -1:]], axis=1))


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
        out, low = np.zeros((2, len(A), shape(X, columns)[1]))
        sum_rows(X, A, out, low)
        out += low
    return out.T if a.ndim == 2 else out[0]


def gram(X: Operand, a: Float32 | Float64, columns: int) -> Float64:
    """Return X' diag(a) X, (p, p)."""
    _, p = shape(X, columns)
    total = np.zeros((p, p))
    if isinstance(X, CSR):
        sparse_gram(X.data, X.indices, X.indptr, X.bias, a, total)
        return total + np.tril(total, -1).T
    rows = np.flatnonzero(a)
    buffer = np.empty((min(TILE, len(rows)), p), np.float64 if p <= PRECISE else np.float32)
    for start in range(0, len(rows), TILE):
        part = rows[start : start + TILE]
        tile = buffer[: len(part)]
        _scaled_rows(X, part, np.sqrt(a[part]).astype(tile.dtype, copy=False), tile)
        total += tile.T @ tile
    return total


def where(X: Operand, chosen: NDArray[np.bool_]) -> Operand:
    """Return the rows where ``chosen`` (n,) is true, copied."""
    if isinstance(X, Factored):
        return Factored(X.kernel_values[chosen], X.projection, X.bias)
    return row_where(X, chosen)


def copied(X: Operand) -> Operand:
    """All rows, copied."""
    if isinstance(X, Factored):
        return Factored(X.kernel_values.copy(), X.projection, X.bias)
    if isinstance(X, Dense):
        return Dense(X.values.copy(), X.bias)
    return CSR(X.data.copy(), X.indices.copy(), X.indptr.copy(), X.bias)


def stack(parts: Sequence[Operand]) -> Operand:
    """Return rows of several blocks of one kind as one."""
    first = parts[0]
    if isinstance(first, Factored):
        values = [part.kernel_values for part in parts if isinstance(part, Factored)]
        return Factored(np.concatenate(values), first.projection, first.bias)
    return row_stack([part for part in parts if not isinstance(part, Factored)])


def formed(parts: list[Operand], order: Int64) -> Rows:
    """Return the rows of all parts as features, in this order (n,). ``parts`` are used up: there are never two copies."""
    first = parts[0]
    if isinstance(first, CSR):
        joined = _joined(parts)
        return joined if np.array_equal(order, np.arange(len(order))) else take(joined, order)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    values, at, freed = np.empty((len(order), shape(first, 0)[1] - 1), np.float32), 0, 0
    bias = first.bias
    del first
    while parts:
        tile = _features(stack(_taken(parts)))
        values[place[at : at + len(tile)]] = tile
        at, freed = at + len(tile), freed + tile.nbytes
        if freed > freed_memory.STEP:
            freed_memory.give_back()
            freed = 0
    return Dense(values, bias)


def _joined(parts: list[Any]) -> CSR:
    """Sparse parts one after the other; each is given up as soon as it is copied."""
    counts = [(row_count(part), len(part.data)) for part in parts]
    rows, entries, bias = sum(n for n, _ in counts), sum(m for _, m in counts), parts[0].bias
    data, indices, indptr = np.empty(entries, np.float32), np.empty(entries, np.int32), np.zeros(rows + 1, np.int64)
    row = at = 0
    for n, m in counts:
        part = parts.pop(0)
        data[at : at + m], indices[at : at + m] = part.data, part.indices
        indptr[row + 1 : row + n + 1] = part.indptr[1:] + at
        row, at = row + n, at + m
    return CSR(data, indices, indptr, bias)


def _taken(parts: list[Operand]) -> list[Operand]:
    """The first parts, off the list, until there are TILE rows: products of a few rows are slow."""
    taken, rows = [], 0
    while parts and rows < TILE:
        taken.append(parts.pop(0))
        rows += shape(taken[-1], 0)[0]
    return taken


def _features(X: Any) -> Float32:
    return X.kernel_values @ X.projection if isinstance(X, Factored) else X.values


def gram_bytes(components: int, kernel_values: int = 0) -> int:
    """Return the bytes ``gram`` holds at its height: two products, the tile and, for a factored block, its kernel
    values.
    """
    return 12 * components * components + 4 * TILE * (components + kernel_values)


def _scaled_rows(X: Dense | Factored, rows: Int64, factors: Array, out: Array) -> None:
    """Fills ``out`` (k, p): the chosen rows, constant feature included, each times its factor."""
    if isinstance(X, Factored):
        chosen = X.kernel_values[rows]
        chosen *= factors[:, None]
        np.matmul(chosen, X.projection, out=out[:, :-1])
    else:
        np.multiply(X.values[rows], factors[:, None], out=out[:, :-1])
    out[:, -1] = X.bias * factors


@njit(cache=True, nogil=True, fastmath=FAST)
def add_rows(X: Rows, A: Float64, out: Float64) -> None:
    """Adds to ``out`` (q, p): sum_i A[k, i] x_i. Given: X (n rows), A (q, n)."""
    for i in range(A.shape[1]):
        for k in range(A.shape[0]):
            if A[k, i] != 0.0:
                X.axpy(i, A[k, i], out[k])


@njit(cache=True, nogil=True, fastmath=FAST)
def sum_rows(X: Rows, A: Float64, out: Float64, low: Float64) -> None:
    """The same, added to ``out`` + ``low`` (q, p): rounding loses nothing but what it takes from each product."""
    for i in range(A.shape[1]):
        for k in range(A.shape[0]):
            if A[k, i] != 0.0:
                X.add_row(i, A[k, i], out[k], low[k])


@njit(cache=True, nogil=True, fastmath=FAST)
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
