"""Rows that are there several times as one row with its weight, in an order that their contents decide.

A weight of k means k copies: P is the same, and so is its optimum. What is drawn or rounded on the way there is not: landmarks by row numbers,
folds, the order of coordinate descent, products in float32. So rows that fit into one chunk are brought into one form before anything is made
of them: each once, with the sum of the weights of its copies, sorted by a hash. Copies and weights, in any order, are
then one store to the last bit, and whatever is fitted to it is one model.

The hash of a row is that of the sum of its numbers' bits times odd multipliers, one for each column, modulo 2^64 (Dietzfelbinger, Hagerup, Katajainen,
Penttonen, "A reliable randomized algorithm for the closest-pair problem", J. Algorithms 1997). Rows are merged only where they are equal.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.random import STEP, mix_bits
from streamsvm.rows import CSR, Dense, Float64, Rows

Hashes: TypeAlias = NDArray[np.uint64]
MOST_BYTES = 4 << 20
"""Of numbers that are merged: as many as a chunk has, and sorting them takes about as long as a reading."""


def is_small(X: Rows) -> bool:
    """Return whether rows are so few that they are merged."""
    return (X.values.nbytes if isinstance(X, Dense) else X.data.nbytes + X.indices.nbytes) <= MOST_BYTES


def merged(X: Rows, y: Array, weights: Float64 | None, columns: int) -> tuple[Rows, Array, Float64]:
    """Return the distinct rows of X (n, columns) with their labels y (n,), and what each counts (k,), in the order of their hashes, those
    of one row by label.

    ``weights`` (n,): what each row counts; None: once.
    """
    keys = _hashes(X, columns)
    order = np.lexsort((y, keys))
    X, y, keys = take_rows(X, order), y[order], keys[order]
    counts = np.ones(len(y)) if weights is None else weights[order]
    again = np.flatnonzero((keys[1:] == keys[:-1]) & (y[1:] == y[:-1]))
    again = again[_equal(X, again)] + 1
    if not len(again):
        return X, y, counts
    first = np.ones(len(y), bool)
    first[again] = False
    starts = np.flatnonzero(first)
    return take_rows(X, starts), y[starts], np.add.reduceat(counts, starts)


def _hashes(X: Rows, columns: int) -> Hashes:
    """A hash of each row (n,). Labels have no part in it, so that rows without any are in the same order."""
    factors = mix_bits(np.arange(1, columns + 1, dtype=np.uint64) * STEP) | np.uint64(1)
    if isinstance(X, Dense):
        return mix_bits(X.values.view(np.uint32).astype(np.uint64) @ factors + STEP)
    terms = X.data.view(np.uint32).astype(np.uint64) * factors[X.indices]
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms)])[X.indptr]
    return mix_bits(before[1:] - before[:-1] + STEP)


def _equal(X: Rows, rows: Array) -> NDArray[np.bool_]:
    """Whether each of these rows (k,) is the one after it, number by number."""
    if isinstance(X, Dense):
        return np.all(X.values[rows] == X.values[rows + 1], axis=1)
    lengths = np.diff(X.indptr)
    found = lengths[rows] == lengths[rows + 1]
    one, other = take_rows(X, rows[found]), take_rows(X, rows[found] + 1)
    assert isinstance(one, CSR)  # as X is
    assert isinstance(other, CSR)
    differing = np.cumsum((one.data != other.data) | (one.indices != other.indices))
    before = np.concatenate([np.zeros(1, np.int64), differing])[one.indptr]
    found[found] = before[1:] == before[:-1]
    return found
