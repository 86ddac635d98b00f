"""In which metric proximal descent holds columns near a center: kappa times the diagonal of C X' X, or its block of dense columns.

The few columns that most rows have - numbers, of any scale, and the constant - are tied to each other: M is kappa C sum s_i x_i x_i' among
them. Of the others M_jj = kappa C sum s_i x_ij^2, and 0 where that is little: those are best left to the rows that have them.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.blocks.sums import column_counts
from streamsvm.compute.passes.in_memory.all_rows import sparse_block
from streamsvm.compute.passes.in_memory.proximal_descent import MetricRows, metric_rows, row_squares
from streamsvm.compute.passes.newton import squares
from streamsvm.rows import CSR, Float64, Int32, Int64
from streamsvm.solvers.newton.in_memory.memory_rows import MemoryRows
from streamsvm.solvers.triangular import solve_lower

KAPPA = 0.05
"""Rows whose margins are near the corner are about so much of all rows: M is about the curvature of P."""
DENSE, MOST_FULL = 0.1, 24
"""Columns in this share of the rows are full, the densest so many of them, or as many as rows have entries."""
LEAST_HELD = 10.0
"""M_jj below it counts as 0: the regularizer is 1."""
LENGTHS_DIFFER = 100.0
"""Squared lengths of rows of one store: where they differ more, descent in the dual alone does not move."""
JITTER = 1e-10
"""Added to the diagonal of M, which is scaled to 1, where columns are copies of each other."""


class Metric:
    """The metric I + M of some sparse rows, and the rows in it."""

    def __init__(self, rows: MemoryRows, X: CSR) -> None:
        C, s, p = rows.problem.C, rows.terms.s, rows.problem.columns + 1
        self._full = full_columns(X, rows.problem.columns)
        place = np.full(p, -1, np.int32)
        place[self._full] = np.arange(len(self._full), dtype=np.int32)
        held = KAPPA * C * squares(X, s, p - 1)
        held[(held < LEAST_HELD) | (place >= 0)] = 0.0
        self._held, shrink = held, 1.0 / (1.0 + held)
        self._matrix, self._inverse = _factor(X, s * (KAPPA * C), place)
        self.rows: MetricRows = metric_rows(X, place, shrink, self._inverse)
        """The rows as a sweep wants them."""

    def weights(self, v: Float64, center: Float64) -> tuple[Float64, Float64]:
        """Return w = (I + M)^-1 (v + M center) (p,), and u (k,) of its full columns."""
        w = self.rows.shrink * (self._held * center + v)
        u = self._inverse @ (self._matrix @ center[self._full] + v[self._full])
        return self.joined(w, u), u

    def joined(self, w: Float64, u: Float64) -> Float64:
        """Changes w (p,): its full columns are those of u. Returns it."""
        w[self._full] = self._inverse.T @ u
        return w


def lengths_differ(X: CSR, columns: int) -> bool:
    """Whether some rows are much longer than others, as those of tables are and those of texts are not."""
    p, n = columns + 1, len(X.indptr) - 1
    found = row_squares(X, np.full(p, -1, np.int32), np.ones(p), np.empty((n, 0), np.float32)) + X.bias * X.bias
    return float(found.max(initial=0.0)) > LENGTHS_DIFFER * float(found.min(initial=np.inf))


def full_columns(X: CSR, columns: int) -> Int64:
    """The densest columns, rising, and the constant as the last."""
    counts = column_counts(X, columns)
    densest = np.argsort(-counts, kind="stable")[: most_full(len(X.data), len(X.indptr) - 1) - 1]
    dense = densest[counts[densest] >= DENSE * (len(X.indptr) - 1)]
    return np.append(np.sort(dense), columns)


def most_full(entries: int, rows: int) -> int:
    """How many columns are full at most, the constant included: rows are held a second time by them."""
    return min(MOST_FULL, 2 + entries // max(1, rows))


def _factor(X: CSR, weights: Float64, place: Int32) -> tuple[Float64, Float64]:
    """M among the full columns, and L^-1 of I + M = L L', both (k, k)."""
    k = int(place.max()) + 1
    lower = np.zeros((k, k))
    sparse_block(X.data, X.indices, X.indptr, X.bias, weights, place, lower)
    matrix = lower + np.tril(lower, -1).T
    scale = 1.0 / np.sqrt(1.0 + np.diagonal(matrix))
    scaled = (matrix + np.eye(k)) * scale * scale[:, None] + JITTER * np.eye(k)
    inverse = solve_lower(np.linalg.cholesky(scaled), np.diag(scale))
    return matrix, np.ascontiguousarray(inverse)
