"""Columns of the matrix a pool makes, computed a few at a time and kept as long as there is room."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from streamsvm.compute.gram import diagonal, kernel_block, points_of
from streamsvm.compute.subset import matrix_of, take
from streamsvm.rows import Float32, Float64
from streamsvm.solvers.pool import Form, Pool
from streamsvm.tags import saved_as

BATCH = 8
"""Columns computed together: the rows are read once for all of them, and those near the minimum are wanted next."""


@saved_as("kernel.columns")
@dataclass(slots=True)
class Columns:
    """Column i is z_i z (k(., x_i) + constant) + ridge_i e_i, float32 (m,). The least recently used one goes first."""

    pool: Pool
    form: Form
    capacity: int
    diagonal: Float64 = field(default_factory=lambda: np.empty(0))
    _kept: OrderedDict[int, Float32] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        plain = diagonal(self.pool.X, self.form.kernel).astype(np.float64)
        self.diagonal = plain + self.form.constant + self.pool.ridge

    def column(self, i: int, g: Float64) -> Float32:
        """One column; with it come those of the rows whose g is smallest."""
        if i not in self._kept:
            near = np.argpartition(g, BATCH)[:BATCH].tolist() if len(g) > BATCH else []
            self._compute([i, *(j for j in near if j != i and j not in self._kept)])
        self._kept.move_to_end(i)
        return self._kept[i]

    def _compute(self, wanted: list[int]) -> None:
        pool = self.pool
        rows = matrix_of(take(pool.X, np.array(wanted)), self.form.columns)
        block = np.empty((pool.size, len(wanted)), np.float32)
        kernel_block(pool.X, points_of(rows), self.form.kernel, block)
        while len(self._kept) > max(self.capacity - len(wanted), 0):
            self._kept.popitem(last=False)
        sign = pool.sign.astype(np.float32)
        for k, i in enumerate(wanted):
            column = (block[:, k] + np.float32(self.form.constant)) * (sign * sign[i])
            column[i] = self.diagonal[i]
            self._kept[i] = column
