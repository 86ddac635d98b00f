"""Products of a block's rows with the weights of many decision functions, as matrix products where rows are dense.

With rows x_i (n), each extended by its constant feature, W (q, p) and A (q, n):

    multiply(X, W)              = W X'     (q, n), class by class, so that what follows works on contiguous rows
    sum_products(X, A, columns) = A X      (q, p)
    add_products(X, A, sums)    adds A X to sums

Products have the dtype of the entries (float32), or are float64 (``precise``); rows are then converted a few at a time.
The order of the sums depends only on the block. Rows that are not dense are multiplied by ``operators``, always in
float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from threading import local
from typing import Any

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.rows import Dense, Float64
from streamsvm.type_aliases import Array

ROWS_PER_PRODUCT = 2048
"""Number of rows that are converted to float64 at the same time."""


class Workspace(local):
    """Arrays of a thread that are used again. Arrays of a megabyte and more get fresh pages from the system each time, which may
    take as long as what is computed in them.
    """

    def __init__(self) -> None:
        self._bytes: dict[str, Array] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an array with any content, which is valid until the thread asks for this name again."""
        size = prod(shape) * np.dtype(dtype).itemsize
        held = self._bytes.get(name)
        if held is None or held.nbytes < size:
            held = self._bytes[name] = np.empty(size, np.uint8)
        return held[:size].view(dtype).reshape(shape)


WORKSPACE = Workspace()


def multiply(X: operators.Operand, W: Array, *, precise: bool, name: str = "") -> Array:
    """Return the decision values W X' (q, n) for weights W (q, p); float64 if ``precise``.

    ``name``: that of the array of the workspace that may hold them; by default the array is a new one.
    """
    if not isinstance(X, Dense):
        return np.ascontiguousarray(operators.margins(X, W.T).T)
    values = X.values
    dtype = np.float64 if precise else values.dtype
    shape = (len(W), len(values))
    product = WORKSPACE.array(name, shape, dtype) if name else np.empty(shape, dtype)
    if not W.any():
        product[:] = 0.0
        return product
    weights = W[:, :-1].astype(dtype, copy=False)
    for part in _parts(values, dtype):
        np.matmul(weights, values[part].astype(dtype, copy=False).T, out=product[:, part])
    if X.bias:
        product += (X.bias * W[:, -1:]).astype(dtype)
    return product


def sum_products(X: operators.Operand, A: Array, columns: int, *, precise: bool) -> Float64:
    """Return A X (q, p), the sums of the rows weighted by A (q, n); the products are float64 if ``precise``."""
    if not isinstance(X, Dense):
        return operators.adjoint(X, A.T.astype(np.float64), columns).T
    values = X.values
    dtype = np.float64 if precise else values.dtype
    sums = np.zeros((len(A), columns + 1))
    for part in _parts(values, dtype):
        sums[:, :-1] += A[:, part].astype(dtype, copy=False) @ values[part].astype(dtype, copy=False)
    if X.bias:
        sums[:, -1] = X.bias * A.sum(axis=1, dtype=np.float64)
    return sums


def add_products(X: operators.Operand, A: Array, sums: Float64, *, precise: bool) -> None:
    """Add A X to ``sums`` (q, p), as ``sum_products`` computes it. Changes ``sums``."""
    if not isinstance(X, Dense):
        sums += operators.adjoint(X, A.T.astype(np.float64), sums.shape[1] - 1).T
        return
    values = X.values
    dtype = np.float64 if precise else values.dtype
    product = WORKSPACE.array("product", (len(A), values.shape[1]), dtype)
    for part in _parts(values, dtype):
        np.matmul(A[:, part].astype(dtype, copy=False), values[part].astype(dtype, copy=False), out=product)
        sums[:, :-1] += product
    if X.bias:
        sums[:, -1] += X.bias * A.sum(axis=1, dtype=np.float64)


def _parts(values: Array, dtype: Any) -> Sequence[slice]:
    """Return the parts of the rows that are multiplied at a time: all, or ROWS_PER_PRODUCT if they are converted."""
    if values.dtype == dtype:
        return [slice(0, len(values))]
    return [slice(start, start + ROWS_PER_PRODUCT) for start in range(0, len(values), ROWS_PER_PRODUCT)]
