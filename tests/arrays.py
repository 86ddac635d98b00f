"""Small arrays in the forms the package works on."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.rows import CSR


def csr_of(values: Any, bias: float = 0.0) -> CSR:
    """The entries of a matrix that are not 0."""
    rows, columns = np.nonzero(values)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(values)))]).astype(np.int64)
    return CSR(values[rows, columns], columns.astype(np.int32), indptr, bias)


def sparse_values(rng: np.random.Generator, n: int, d: int) -> Any:
    """A float32 matrix (n, d) with two entries of five."""
    values = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.4)
    return values.astype(np.float32)
