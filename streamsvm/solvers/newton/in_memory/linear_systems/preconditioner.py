"""A preconditioner that knows the arrow shape of encoded tables: a block of dense columns, and rare ones beside it.

The Hessian I + X' diag(h) X of a table is nearly an arrow. Numeric columns and frequent levels meet each other in many
rows; two levels of one variable never meet, and two rare ones hardly ever. So the exact block of the densest columns,
factorized, beside the diagonal of all others is close to the Hessian, whatever the scales: both parts are invariant to the scaling
of columns. Where all columns are in the block it is the Hessian itself, and conjugate gradients need one or two steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.sums import column_counts
from streamsvm.compute.passes.newton import squares
from streamsvm.rows import CSR, Dense, Float64, Int64, Rows, row_count
from streamsvm.solvers.newton.explicit import factorized, most_explicit
from streamsvm.solvers.newton.in_memory.linear_systems.block_matrix import BlockMatrix

LEAST_BLOCK, LARGEST_BLOCK = 64, 1000
BLOCK_SHARE = 20.0
"""Else its factorization may cost as much as visiting every entry so many times."""
WIDE = 4
"""Of dense rows a block of more than LARGEST_BLOCK columns is affordable only where columns are at most so many times the rows: it is factorized
in a third of columns^3 operations, and conjugate gradients end in about as many steps as there are rows."""
JITTER = 1e-13
"""Added to the diagonal of the block, which is scaled to 1: what rounding makes indefinite stays positive."""


class ArrowPreconditioner:
    """Of G + X' diag(h) X at one h after another; ``columns`` is what a CSR record cannot know, G diagonal (p,)."""

    def __init__(self, X: Rows, columns: int, outer: Float64) -> None:
        self._X, self._columns, self._outer = X, columns, outer
        self.chosen = densest(X, columns)
        """The components of the block, rising."""
        self._block = BlockMatrix(X, columns, self.chosen)
        self._diagonal: Float64 = np.ones(columns + 1)
        self._scale: Float64 = np.empty(0)
        self._solve: Callable[[Float64], Float64] | None = None

    @property
    def whole(self) -> bool:
        """Whether all columns are in the block."""
        return len(self.chosen) > self._columns

    @property
    def exact(self) -> bool:
        """Whether the block is that of all rows, not of a draw."""
        return self._block.exact

    def update(self, h: Float64, *, estimated: bool = False) -> None:
        """Make it that of second derivatives h (n,) >= 0; an estimate will do where that is said."""
        self._solve = None  # before, to make room
        if not self.whole:
            self._diagonal = self._outer + squares(self._X, h, self._columns)
        block = self._block.at(h, estimated=estimated)
        block[np.diag_indices_from(block)] += self._outer[self.chosen]
        self._scale = 1.0 / np.sqrt(np.diagonal(block))
        block *= self._scale
        block *= self._scale[:, None]
        self._solve = _factorized(block)

    def __call__(self, residual: Float64) -> Float64:
        """M^-1 residual (p,)."""
        result = residual / self._diagonal
        result[self.chosen] = self._solved(residual)
        return result

    def block_step(self, residual: Float64) -> Float64:
        """The step (p,) of the dense columns alone that takes their part of a residual away; 0 for all others.

        A column of scale 10^6 makes an error of 10^-6 in a margin an error of 1 in the gradient. This removes it, at the
        cost of a change in the margins that is as small as the error was.
        """
        step = np.zeros_like(residual)
        step[self.chosen] = self._solved(residual)
        return step

    def outside(self, residual: Float64) -> float:
        """Half the squared norm of the part of a residual that ``block_step`` leaves."""
        return 0.5 * float(residual @ residual) - 0.5 * float(np.square(residual[self.chosen]).sum())

    def _solved(self, residual: Float64) -> Float64:
        assert self._solve is not None  # ``update`` comes first
        return self._scale * self._solve(self._scale * residual[self.chosen])


def densest(X: Rows, columns: int) -> Int64:
    """The columns of the block, the constant included, by how many rows have them; of dense rows by their squares."""
    size = block_size(columns, sum_entries(X), dense=isinstance(X, Dense))
    if size > columns:
        return np.arange(columns + 1)
    if isinstance(X, CSR):
        weight = column_counts(X, columns).astype(np.float64)
    else:
        weight = squares(X, np.ones(row_count(X)), columns)[:-1]
    return np.append(np.sort(np.argsort(-weight, kind="stable")[: size - 1]), columns)


def sum_entries(X: Rows) -> int:
    """Stored entries."""
    return len(X.data) if isinstance(X, CSR) else X.values.size


def block_size(columns: int, entries: int, *, dense: bool) -> int:
    """How many components are in the block: all where that is affordable."""
    p = columns + 1
    affordable = p <= LARGEST_BLOCK or p <= WIDE * (entries // max(1, columns))
    if p <= most_explicit(dense=dense) and (affordable or not dense):
        return p
    return min(p, int(np.clip((BLOCK_SHARE * entries) ** (1 / 3), LEAST_BLOCK, LARGEST_BLOCK)))


def block_bytes(size: int, entry: int = 4) -> int:
    """What a block holds while it is made and factorized; ``entry``: bytes of an entry of a row."""
    return 24 * size * size + operators.gram_bytes(size, entry=entry)


def _factorized(block: Float64) -> Callable[[Float64], Float64]:
    """What solves a scaled block, a little more on its diagonal wherever rounding asks for it. Changes the block."""
    jitter, diagonal = JITTER, np.diagonal(block).copy()
    while True:
        block[np.diag_indices_from(block)] = diagonal + jitter
        try:
            return factorized(block)
        except np.linalg.LinAlgError:
            if jitter > 1.0:
                raise
            jitter *= 100.0
