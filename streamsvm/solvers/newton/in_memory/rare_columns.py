"""The weights of rare columns at their best, whatever the others are: what lets Newton's method take full steps.

A column that is in few rows and large in them - one value of a category, standardized - has a curvature of 10^5 where one of its rows is
in the corner of the loss, and of 1 where none is. A full step then sends rows far in, or far out, and a line search
for all columns at once stops after a hundredth of it. So a step is followed by coordinate descent on these columns alone
(``compute.passes.in_memory.column_descent``), and judged by where that ends: Newton's method on the function that is left when they are
eliminated, which bends on the scale of margins. On 100,000 rows x 70,000 standardized columns that takes 7 full steps and 33
products where an interior point takes 15 steps and 303.

Reference: Cai and Keyes, SIAM J. Sci. Comput. 2002 (Newton's method preconditioned by nonlinear elimination).
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.passes.in_memory.column_descent import Outside, column_sweep, columns_of
from streamsvm.rows import CSR, Float64
from streamsvm.solvers.newton.in_memory.linear_systems.preconditioner import ArrowPreconditioner
from streamsvm.solvers.newton.in_memory.memory_rows import MemoryRows
from streamsvm.types import Loss

SWEEPS = 20
"""At most, after a step."""
SQUARES = 0.02
"""Sweeps end where half the squared slopes, which are what D lacks, are this share of the gap allowed."""
NEGLIGIBLE = 0.1
"""Slopes that sum up to this share of those, all columns together, are left."""


class RareColumns:
    """Those of sparse rows that are not in the block of a preconditioner, stored by column."""

    def __init__(self, rows: MemoryRows, arrow: ArrowPreconditioner, X: CSR) -> None:
        self._rows, columns = rows, rows.problem.columns
        self._columns = columns_of(X, np.setdiff1d(np.arange(columns), arrow.chosen), columns)
        self._outside = Outside(rows.outer.diagonal, rows.outer.linear)

    def settle(self, w: Float64, f: Float64, smooth: Loss, allowed: float) -> None:
        """Changes w (p,), and f = X w (n,) with it, so that no rare column alone would gain much."""
        rows, terms, enough = self._rows, self._rows.terms._replace(loss=smooth), SQUARES * allowed
        negligible = 2.0 * NEGLIGIBLE * enough / max(1, len(self._columns.number))
        for _ in range(SWEEPS):
            squares = column_sweep(self._columns, terms, self._outside, negligible, w, f)
            rows.visited(2 * len(self._columns.data))
            if squares <= enough or rows.late:
                return


def rare_columns(rows: MemoryRows, arrow: ArrowPreconditioner) -> RareColumns | None:
    """Of sparse rows that are all there are, if some columns are outside the block; else None."""
    return RareColumns(rows, arrow, rows.X) if isinstance(rows.X, CSR) and not arrow.whole else None
