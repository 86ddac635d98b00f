"""Inner products of the rows of a problem in memory: of the rows themselves, or a kernel's."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.selection import row_squares, take_rows
from streamsvm.rows import Float64, Int64, Rows, row_count


class Space(Protocol):
    """What an active set asks of K, K_ij = k(x_i, x_j), n rows."""

    diagonal: Float64
    """(n,) K_ii."""

    def column(self, row: int) -> Float64:
        """Return K[:, row], (n,)."""
        ...

    def values(self, rows: Int64, coefficients: Float64) -> Float64:
        """Return sum_j coefficients_j K[:, rows_j], (n,)."""
        ...


class GramSpace:
    """K as it is given: (n, n) float64, symmetric."""

    def __init__(self, K: Float64) -> None:
        self._K, self.diagonal = K, np.ascontiguousarray(np.diagonal(K))

    def column(self, row: int) -> Float64:
        """See ``Space``."""
        return self._K[row]

    def values(self, rows: Int64, coefficients: Float64) -> Float64:
        """See ``Space``."""
        found: Float64 = coefficients @ self._K[rows]
        return found


class RowSpace:
    """K = X X', the constant feature included: nothing of the size of K is ever made."""

    def __init__(self, X: Rows, columns: int) -> None:
        self._X, self._columns = X, columns
        self.diagonal = np.empty(row_count(X))
        row_squares(X, self.diagonal)

    def column(self, row: int) -> Float64:
        """See ``Space``."""
        return self.values(np.array([row]), np.ones(1))

    def weights(self, rows: Int64, coefficients: Float64) -> Float64:
        """Return sum_j coefficients_j x_j (columns + 1,)."""
        return operators.adjoint(take_rows(self._X, rows), coefficients, self._columns)

    def values(self, rows: Int64, coefficients: Float64) -> Float64:
        """See ``Space``."""
        return operators.margins(self._X, self.weights(rows, coefficients))
