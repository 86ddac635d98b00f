"""Values that many rows share: candidates in one pass, and sums of targets by value in the next.

**Candidates** (Misra and Gries 1982). A table has at most SLOTS values of a column with a counter each. A value that is in the table is
counted; one that is not takes a free place, or else all counters are lowered by 1 and those at 0 become free. After n rows every
value with more than n / (SLOTS + 1) rows is in the table. The table depends on the order of the rows; which of its values are frequent is
decided by exact counts in the next pass.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.blocks.curves import level_of
from streamsvm.compute.compiled import compiled
from streamsvm.rows import Dense, Float32, Int32, Int64, Rows, find_column_places
from streamsvm.type_aliases import Array

SLOTS, TABLE = 2048, 8192
"""Number of counters of a column, and number of places of its hash table, a power of 2."""
NEGATIVE_ZERO = 0x80000000
"""The bits of -0, which is counted as 0."""


def find_frequent(X: Rows, columns: Int64, keys: Array, counts: Int64, used: Int64) -> None:
    """Count the stored values of ``columns`` (q,), ascending, in tables of candidates; values of 0 are left out.

    ``keys`` (q, TABLE) uint32: the bits of the values; ``counts`` (q, TABLE): their counters, 0: a free place; ``used`` (q,): the
    number of values in each table. Changed: all three.
    """
    if isinstance(X, Dense):
        _find_dense(X.values.view(np.uint32), columns, keys, counts, used)
        return
    _find_sparse(X.data.view(np.uint32), X.indices, find_column_places(X, columns), keys, counts, used)


def candidates_of(keys: Array, counts: Int64) -> Float32:
    """Return the values in the table of a column, rising."""
    return np.sort(keys[counts > 0].view(np.float32))


@compiled()
def _place_of(bits: int, keys: Array, counts: Int64) -> int:
    """Return the place of a value in a table, or the free place where it belongs."""
    place = ((bits * 2654435761) & 0xFFFFFFFF) >> 19
    while counts[place] != 0 and keys[place] != bits:
        place = (place + 1) & (keys.size - 1)
    return place


@compiled()
def _count_value(bits: int, keys: Array, counts: Int64, used: int) -> int:
    """Count a value, and return the number of values in the table."""
    place = _place_of(bits, keys, counts)
    if counts[place] != 0:
        counts[place] += 1
        return used
    if used < SLOTS:
        keys[place], counts[place] = np.uint32(bits), 1
        return used + 1
    old_keys, old_counts = keys.copy(), counts.copy()
    counts[:] = 0
    used = 0
    for k in range(old_keys.size):
        if old_counts[k] > 1:
            place = _place_of(np.int64(old_keys[k]), keys, counts)
            keys[place], counts[place] = old_keys[k], old_counts[k] - 1
            used += 1
    return used


@compiled()
def _find_dense(bits: Array, columns: Int64, keys: Array, counts: Int64, used: Int64) -> None:
    for i in range(bits.shape[0]):
        for j in range(columns.size):
            b = np.int64(bits[i, columns[j]])
            if b not in (0, NEGATIVE_ZERO):
                used[j] = _count_value(b, keys[j], counts[j], used[j])


@compiled()
def _find_sparse(bits: Array, indices: Int32, places: Int32, keys: Array, counts: Int64, used: Int64) -> None:
    for p in range(bits.size):
        j, b = places[indices[p]], np.int64(bits[p])
        if j >= 0 and b not in (0, NEGATIVE_ZERO):
            used[j] = _count_value(b, keys[j], counts[j], used[j])


def sum_by_value(
    X: Rows, targets: Array, columns: Int64, candidates: Float32, starts: Int64, sums: Array, level_sums: Array
) -> None:
    """Sum targets by value.

    Given: stored rows, ``targets`` (n, m), the ``columns`` (q,), ascending, and their candidates, rising, those of column j from
    ``starts[j]`` on. Changed: ``sums`` (all candidates, m), for rows with the value of a candidate; ``level_sums`` (q, LEVELS, m), for
    all other rows, by the upper 16 bits of the value.
    """
    if isinstance(X, Dense):
        _sum_dense(X.values.view(np.uint32), X.values, targets, columns, candidates, starts, sums, level_sums)
        return
    places = find_column_places(X, columns)
    _sum_sparse(
        X.data.view(np.uint32), X.data, X.indices, X.indptr, targets, places, candidates, starts, sums, level_sums
    )


@compiled()
def _add_target(
    bits: int, x: float, targets: Array, j: int, candidates: Float32, starts: Int64, sums: Array, level_sums: Array
) -> None:
    """Add the targets (m,) of a row with the value x, which has these bits, to the sums of column j."""
    low, high = starts[j], starts[j + 1]
    while low < high:
        middle = (low + high) // 2
        if candidates[middle] < x:
            low = middle + 1
        else:
            high = middle
    if low < starts[j + 1] and candidates[low] == x:
        for k in range(targets.size):
            sums[low, k] += targets[k]
    else:
        level = level_of(bits)
        for k in range(targets.size):
            level_sums[j, level, k] += targets[k]


@compiled()
def _sum_dense(
    bits: Array,
    values: Float32,
    targets: Array,
    columns: Int64,
    candidates: Float32,
    starts: Int64,
    sums: Array,
    level_sums: Array,
) -> None:
    for i in range(values.shape[0]):
        for j in range(columns.size):
            c = columns[j]
            _add_target(np.int64(bits[i, c]), values[i, c], targets[i], j, candidates, starts, sums, level_sums)


@compiled()
def _sum_sparse(
    bits: Array,
    values: Float32,
    indices: Int32,
    indptr: Int64,
    targets: Array,
    places: Int32,
    candidates: Float32,
    starts: Int64,
    sums: Array,
    level_sums: Array,
) -> None:
    q = starts.size - 1
    stored = np.zeros(q, np.bool_)
    for i in range(indptr.size - 1):
        stored[:] = False
        for p in range(indptr[i], indptr[i + 1]):
            j = np.int64(places[indices[p]])
            if j >= 0:
                stored[j] = True
                _add_target(np.int64(bits[p]), values[p], targets[i], j, candidates, starts, sums, level_sums)
        for k in range(q):
            if not stored[k]:
                _add_target(0, 0.0, targets[i], k, candidates, starts, sums, level_sums)
