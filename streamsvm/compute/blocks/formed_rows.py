"""Rows of several blocks as one matrix of features: kept in memory, in the order of their numbers.

They are of the type of the kernel values. The product K W of these and the projection is formed tile by tile, by idle threads side by side; which rows make a tile is decided
by the blocks alone, and so the features do not depend on who was idle.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute import freed_memory, threading
from streamsvm.compute.blocks.operators import TILE, Factored, Operand, entry_type, shape, stack
from streamsvm.compute.blocks.row_selection import take
from streamsvm.rows import CSR, Dense, Int64, Rows, row_count


def formed(parts: list[Operand], order: Int64) -> Rows:
    """Return the rows of all parts as features, in this order (n,). ``parts`` are used up: there are never two copies."""
    first = parts[0]
    if isinstance(first, CSR):
        joined = _joined(parts)
        return joined if np.array_equal(order, np.arange(len(order))) else take(joined, order)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    components, bias = shape(first, 0)[1] - 1, first.bias
    given = first.projection.shape[0] if isinstance(first, Factored) else components
    dtype = entry_type(first)
    lanes = threading.lanes(dtype.itemsize * TILE * (given + components))
    values, at, freed = np.empty((len(order), components), dtype), 0, 0
    del first
    while parts:
        tiles = [_taken(parts) for _ in range(lanes)]
        edges = at + np.cumsum([0, *(sum(shape(part, 0)[0] for part in tile) for tile in tiles)])
        _form(tiles, [place[start:stop] for start, stop in pairwise(edges.tolist())], values)
        freed, at = freed + int(edges[-1] - at) * values.itemsize * components, int(edges[-1])
        if freed > freed_memory.STEP:
            freed_memory.give_back()
            freed = 0
    if freed > freed_memory.LEAST:  # of many small matrices, one after the other, as much would stay as of a large one
        freed_memory.give_back()
    return Dense(values, bias)


def _form(tiles: list[list[Operand]], places: list[Int64], values: Array) -> None:
    """Write the features of tiles, some of which may be empty, to their places; the tiles are used up."""

    def work(start: int, stop: int) -> None:
        for number in range(start, stop):
            if tiles[number]:
                rows = stack(tiles[number])
                tiles[number] = []
                values[places[number]] = _features(rows)

    threading.in_strips(work, len(tiles), 1, least=1)


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


def _features(X: Any) -> Array:
    return X.kernel_values @ X.projection if isinstance(X, Factored) else X.values
