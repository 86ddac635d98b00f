"""Rows of several blocks as one matrix of features: kept in memory, in the order of their numbers.

They are of the type of the kernel values. The product K W of these and the projection is formed tile by tile, by idle threads side by side; which rows make a tile is decided
by the blocks alone, and so the features do not depend on who was idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute import freed_memory, threading
from streamsvm.compute.blocks.operators import TILE, Factored, Kept, entry_type, shape, stack
from streamsvm.compute.blocks.row_selection import take
from streamsvm.compute.blocks.unformed_rows import UnformedRows
from streamsvm.rows import CSR, Dense, Int64, Rows, row_count


def formed(parts: list[Kept], order: Int64) -> Rows:
    """Return the rows of all parts as features, in this order (n,). ``parts`` are used up: there are never two copies."""
    first = parts[0]
    if isinstance(first, CSR):
        joined = _joined(parts)
        return joined if np.array_equal(order, np.arange(len(order))) else take(joined, order)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    components, bias = shape(first, 0)[1] - 1, first.bias
    given = first.projection.shape[0] if isinstance(first, Factored | UnformedRows) else components
    dtype = entry_type(first)
    lanes = threading.lanes(dtype.itemsize * TILE * (given + components))
    values = np.empty((len(order), components), dtype)
    freed = 0 if isinstance(first, UnformedRows) else values.itemsize * components
    del first

    def form(tile: tuple[list[Kept], Int64]) -> None:
        rows = stack(tile[0])
        tile[0].clear()
        _write(rows, tile[1], values)

    threading.shared_out(_tiles(parts, place, freed), form, lanes)
    # of many small matrices, one after the other, as much would stay as of a large one
    if values.nbytes > freed_memory.LEAST:
        freed_memory.give_back()
    return Dense(values, bias)


def _tiles(parts: list[Kept], place: Int64, row_bytes: int) -> Iterator[tuple[list[Kept], Int64]]:
    """Yield parts for some TILE rows, off the list, and the places of their rows; each row that was used up frees so many bytes."""
    at = freed = 0
    while parts:
        taken = _taken(parts)
        count = sum(shape(part, 0)[0] for part in taken)
        yield taken, place[at : at + count]
        at, freed = at + count, freed + count * row_bytes
        if freed > freed_memory.STEP:
            freed_memory.give_back()
            freed = 0


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


def _taken(parts: list[Kept]) -> list[Kept]:
    """The first parts, off the list, until there are TILE rows: products of a few rows are slow."""
    taken, rows = [], 0
    while parts and rows < TILE:
        taken.append(parts.pop(0))
        rows += shape(taken[-1], 0)[0]
    return taken


def _write(X: Any, places: Int64, values: Array) -> None:
    """Write the features of rows to their places; where these are one behind the other, as they usually are, without a copy."""
    if not isinstance(X, Factored | UnformedRows):
        values[places] = X.values
        return
    kernel_values = X.kernel_values if isinstance(X, Factored) else X.kernel_values()
    first, last = int(places[0]), int(places[-1])
    if last - first == len(places) - 1 and bool((np.diff(places) > 0).all()):
        np.matmul(kernel_values, X.projection, out=values[first : last + 1], casting="same_kind")
    else:
        values[places] = kernel_values @ X.projection
