"""Entries of sparse rows in any order, put together as rows: what falls on the same column is added up."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.rows import CSR


class Entries(NamedTuple):
    """Entries of rows, in any order."""

    rows: NDArray[np.int64]
    """The row of each."""
    columns: NDArray[np.int64]
    """The feature column of each."""
    values: Array
    """The value of each, float32 or float64."""


def entries_of(indices: NDArray[np.int64], data: Array) -> Entries:
    """Return the entries of rows that are not 0: of ``data`` (n, k), in the feature columns ``indices`` (n, k)."""
    stored = data != 0
    return Entries(np.nonzero(stored)[0], indices[stored], data[stored])


def summed(parts: list[Entries], rows: int, width: int, dtype: type[np.floating[Any]] = np.float32) -> CSR:
    """Return entries as CSR rows of so many columns; what falls on the same column is added up, and rounded to a type."""
    keys, which = np.unique(np.concatenate([part.rows * width + part.columns for part in parts]), return_inverse=True)
    weights = np.concatenate([part.values for part in parts])
    sums = np.bincount(which, weights=weights, minlength=len(keys)).astype(dtype)
    row, column = np.divmod(keys[sums != 0], width)
    indptr = np.searchsorted(row, np.arange(rows + 1)).astype(np.int64)
    return CSR(sums[sums != 0], column.astype(np.int32), indptr)
