"""Kernel values that are wanted more than once: a cache of the columns of a pool's matrix, and values shared by
problems.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamsvm.aliases import Array
from streamsvm.class_tags import saved_as
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.kernel_values.expansion import expand_all
from streamsvm.compute.kernel_values.kernel_matrix import diagonal, kernel_block, points_of
from streamsvm.compute.kernel_values.rounding import DIFFERENCES, dtype_of
from streamsvm.rows import Dense, Float64, Rows, row_count, row_stack, to_matrix
from streamsvm.solvers.kernel.pool import Form, Pool

COLUMNS_AT_ONCE = 8
"""Columns that are computed together: the rows are read once for all of them, and those near the minimum are wanted
next."""
WEIGHING_COST = 16
"""The cost of picking a value out and adding it up, in entries of the product that makes one."""


@saved_as("kernel.columns")
@dataclass(slots=True)
class KernelCache:
    """The least recently used columns z_i z (k(., x_i) + constant) + ridge_i e_i, (m,) in the arithmetic of the form,
    go first.
    """

    pool: Pool
    """The m rows whose matrix it is."""
    form: Form
    capacity: int
    """Columns that are kept at most, each of m values."""
    diagonal: Float64 = field(default_factory=lambda: np.empty(0))
    """(m,) k(x_i, x_i) + constant + ridge_i."""
    _kept: dict[int, Array] = field(default_factory=dict)
    """The columns at hand, the least recently used first. A checkpoint has them too, because their last bits depend on
    which were computed together."""

    def __post_init__(self) -> None:
        dtype = dtype_of(self.form.arithmetic)
        plain = diagonal(self.pool.X, self.form.kernel, dtype).astype(np.float64)
        self.diagonal = plain + self.form.constant + self.pool.ridge

    def column(self, i: int, g: Float64) -> Array:
        """Return column i (m,); if it is computed, so are those of the rows whose g is smallest."""
        if i not in self._kept:
            near = np.argpartition(g, COLUMNS_AT_ONCE)[:COLUMNS_AT_ONCE].tolist() if len(g) > COLUMNS_AT_ONCE else []
            self._compute([i, *(j for j in near if j != i and j not in self._kept)])
        self._kept[i] = found = self._kept.pop(i)
        return found

    def _compute(self, wanted: list[int]) -> None:
        pool = self.pool
        rows = to_matrix(take_rows(pool.X, np.array(wanted)), self.form.columns)
        dtype, by_differences = dtype_of(self.form.arithmetic), self.form.arithmetic == DIFFERENCES
        block = np.empty((pool.size, len(wanted)), dtype)
        kernel_block(pool.X, points_of(rows, dtype), self.form.kernel, block, by_differences=by_differences)
        while len(self._kept) > max(self.capacity - len(wanted), 0):
            del self._kept[next(iter(self._kept))]
        sign = pool.sign.astype(dtype)
        for k, i in enumerate(wanted):
            column = (block[:, k] + block.dtype.type(self.form.constant)) * (sign * sign[i])
            column[i] = self.diagonal[i]
            self._kept[i] = column


def is_sharing_worthwhile(supports: list[Pool], X: Rows) -> bool:
    """Return whether one evaluation for all supports is less work than one each: rows are wide, or supports overlap
    enough.
    """
    entries = X.values.shape[1] if isinstance(X, Dense) else len(X.data) / row_count(X)
    each = sum(s.size for s in supports)
    return len(np.unique(np.concatenate([s.index for s in supports]))) * entries + each * WEIGHING_COST < each * entries


def evaluate_shared(supports: list[Pool], form: Form, X: Rows) -> Float64:
    """Return f of every problem at the rows X, without the constant, (problems, n): each support row is
    evaluated once.
    """
    index = np.unique(np.concatenate([s.index for s in supports]))
    coefficients = np.zeros((len(supports), len(index)))
    fresh, known = [], np.empty(0, np.int64)
    for k, s in enumerate(supports):
        coefficients[k, np.searchsorted(index, s.index)] = s.sign * s.x
        new = ~np.isin(s.index, known)
        fresh.append(take_rows(s.X, np.flatnonzero(new)))
        known = np.concatenate([known, s.index[new]])
    return expand_all(
        X, take_rows(row_stack(fresh), np.argsort(known)), coefficients, form.kernel, form.columns, form.arithmetic
    )
