"""Rows whose kernel features can still be made: what is kept of a factored block where that is much smaller than its kernel values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.rows import CSR, Dense, Rows, row_count, row_stack, row_where
from streamsvm.tags import saved_as

if TYPE_CHECKING:
    from streamsvm.compute.kernel_values.gram import Points


@saved_as("rows.unformed")
class UnformedRows(NamedTuple):
    """Rows x_i that stand for the features W' k(x_i); see ``compute.blocks.formed_rows``."""

    rows: Rows
    """The rows as the kernel sees them."""
    points: Points
    """The landmarks z_1 .. z_m, of the type that kernel values are to have."""
    kernel: Any
    """The kernel, a record of ``kernels.py``."""
    projection: Array
    """The matrix W, (m, r) float32, or float64."""
    bias: float
    """The value of the constant feature of the features."""
    by_differences: bool
    """Whether distances are summed from differences (``compute.kernel_values.gram.kernel_block``)."""

    def where(self, chosen: NDArray[np.bool_]) -> UnformedRows:
        """Return the rows where ``chosen`` (n,) is true, copied."""
        return self._replace(rows=row_where(self.rows, chosen))

    def kernel_values(self) -> Array:
        """Return k(x_i, z_j) of every row, (n, m), of the type of the landmarks."""
        from streamsvm.compute.kernel_values.gram import kernel_block  # who has no kernel does not load it

        values = np.empty((row_count(self.rows), self.points.size), self.points.columns.dtype)
        kernel_block(self.rows, self.points, self.kernel, values, by_differences=self.by_differences)
        return values


def stacked(parts: Sequence[UnformedRows]) -> UnformedRows:
    """Return the rows of several blocks of one map as one."""
    return parts[0]._replace(rows=row_stack([part.rows for part in parts]))


def arrays_of(X: Any) -> list[Array]:
    """Return the arrays that rows in memory lie in, of whatever form they are."""
    record: Dense | CSR | Any = X.rows if isinstance(X, UnformedRows) else X
    return [array for array in record if isinstance(array, np.ndarray)]
