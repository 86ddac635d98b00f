"""Reuse of kernel values: a cache of the columns of a pool's matrix, and evaluations shared by several problems."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.arithmetic import DIFFERENCES, dtype_of
from streamsvm.compute.kernel_values.kernel_matrix import diagonal, kernel_block, points_of
from streamsvm.compute.kernel_values.kernel_products import expand_all
from streamsvm.rows import Dense, Float64, Rows, row_count, row_stack, to_matrix
from streamsvm.solvers.kernel.pool import Form, Pool
from streamsvm.type_aliases import Array

COLUMNS_AT_ONCE = 8
"""Number of columns that are computed together. The rows are read once for all of them, and columns of rows with a
small g are likely to be needed next."""
WEIGHING_COST = 16
"""The cost of looking up a kernel value and adding it to a sum, in entries of the inner product that computes one."""


@saved_as("kernel.columns")
@dataclass(slots=True)
class KernelCache:
    """A least-recently-used cache of the columns z_i z (k(., x_i) + constant) + ridge_i e_i (m,), in the arithmetic of
    the form.
    """

    pool: Pool
    """The m rows of the matrix."""
    form: Form
    capacity: int
    """Maximum number of cached columns."""
    diagonal: Float64 = field(default_factory=lambda: np.empty(0))
    """(m,) k(x_i, x_i) + constant + ridge_i."""
    _cached: dict[int, Array] = field(default_factory=dict)
    """The cached columns, the least recently used first. They are part of checkpoints, because their last bits depend
    on which columns were computed together."""

    def __post_init__(self) -> None:
        dtype = dtype_of(self.form.arithmetic)
        plain = diagonal(self.pool.X, self.form.kernel, dtype).astype(np.float64)
        self.diagonal = plain + self.form.constant + self.pool.ridge

    def column(self, i: int, g: Float64) -> Array:
        """Return column i (m,). If it is not cached, also compute the columns of the rows with the smallest g."""
        if i not in self._cached:
            next_rows = (
                np.argpartition(g, COLUMNS_AT_ONCE)[:COLUMNS_AT_ONCE].tolist() if len(g) > COLUMNS_AT_ONCE else []
            )
            self._compute([i, *(j for j in next_rows if j != i and j not in self._cached)])
        self._cached[i] = column = self._cached.pop(i)
        return column

    def _compute(self, missing: list[int]) -> None:
        pool = self.pool
        rows = to_matrix(take_rows(pool.X, np.array(missing)), self.form.columns)
        dtype, by_differences = dtype_of(self.form.arithmetic), self.form.arithmetic == DIFFERENCES
        block = np.empty((pool.size, len(missing)), dtype)
        kernel_block(pool.X, points_of(rows, dtype), self.form.kernel, block, by_differences=by_differences)
        while len(self._cached) > max(self.capacity - len(missing), 0):
            del self._cached[next(iter(self._cached))]
        sign = pool.sign.astype(dtype)
        for k, i in enumerate(missing):
            column = (block[:, k] + block.dtype.type(self.form.constant)) * (sign * sign[i])
            column[i] = self.diagonal[i]
            self._cached[i] = column


def is_sharing_worthwhile(supports: list[Pool], X: Rows) -> bool:
    """Return whether one evaluation for all supports is less work than one for each. It is if rows are wide or supports
    overlap enough.
    """
    entries = X.values.shape[1] if isinstance(X, Dense) else len(X.data) / row_count(X)
    total = sum(s.size for s in supports)
    distinct = len(np.unique(np.concatenate([s.index for s in supports])))
    return distinct * entries + total * WEIGHING_COST < total * entries


def evaluate_shared(supports: list[Pool], form: Form, X: Rows) -> Float64:
    """Return f of every problem at the rows X, without the constant, (problems, n). Each distinct support row is
    evaluated once.
    """
    index = np.unique(np.concatenate([s.index for s in supports]))
    coefficients = np.zeros((len(supports), len(index)))
    parts, order = [], np.empty(0, np.int64)
    for k, s in enumerate(supports):
        coefficients[k, np.searchsorted(index, s.index)] = s.sign * s.x
        is_new = ~np.isin(s.index, order)
        parts.append(take_rows(s.X, np.flatnonzero(is_new)))
        order = np.concatenate([order, s.index[is_new]])
    return expand_all(
        X, take_rows(row_stack(parts), np.argsort(order)), coefficients, form.kernel, form.columns, form.arithmetic
    )
