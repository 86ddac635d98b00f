"""A preconditioner for the Hessian I + X' diag(h) X at one h after another (``ArrowPreconditioner``), and the block of
it that is factorized (``BlockMatrix``); where all columns are in the block it solves with the Hessian itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.columns import column_counts
from streamsvm.compute.passes.newton import squares
from streamsvm.compute.passes.priority_sampling import keys_pass
from streamsvm.compute.passes.rows_in_memory import sparse_block
from streamsvm.rows import CSR, Dense, Float64, Int64, Rows, row_count
from streamsvm.solvers.cholesky import factorize

EXPLICIT, DENSE_EXPLICIT = 1500, 8000
"""Up to as many components the Hessian is a matrix, of sparse and of dense rows. A dense one costs no more than the
products, and its steps are exact."""
DRAWN_PER_COLUMN, LEAST_DRAWN = 100, 5_000
"""Rows drawn for an estimate of the matrix: the larger of the first number for each column and the second."""
WORTH_DRAWING = 2
"""Rows are drawn where there are this many times as many."""
SETTLED = 0.1
"""Where no larger share of h changes from one call to the next, the matrix is made of all rows."""
STALE = 4.0
"""The matrix is made anew when what was added and taken out is so many times what it is: float32 products leave
traces."""
CANCELLED = 1e-6
"""It is also made anew where less than this share of a diagonal element is left: what rows leave that were taken out is
rounding."""
SAME = 1e-12
"""Differences below this share of h_i are rounding."""
LEAST_BLOCK, LARGEST_BLOCK = 64, 1000
"""Components of the dense block at least and at most, where not all columns are in it."""
BLOCK_SHARE = 20.0
"""Between them the factorization of the block may cost as much as visiting every entry so many times."""
WIDE = 4
"""Of dense rows a block of more than LARGEST_BLOCK columns is affordable only where columns are at most so many times
the rows: it is factorized in a third of columns^3 operations, and conjugate gradients end in about as many steps as
there are rows."""
JITTER = 1e-13
"""Added to the diagonal of the block, which is scaled to 1: what rounding makes indefinite stays positive."""


def most_explicit(*, dense: bool) -> int:
    """Components up to which the Hessian is a matrix."""
    return DENSE_EXPLICIT if dense else EXPLICIT


def matrix_bytes(components: int, entry: int = 4) -> int:
    """What steps hold at their height: the matrix, and either products on the way into it or a copy and its factor.

    ``entry``: bytes of an entry of a row.
    """
    return max(32 * components**2, 16 * components**2 + operators.gram_bytes(components, entry=entry))


class BlockMatrix:
    """X' diag(h) X for a choice of columns, at one h after another: what a preconditioner factorizes.

    ``chosen`` (k,) are the components, rising, the last of ``columns`` + 1 being the constant feature.

    Making the matrix costs entries^2 / 2 a row, as much as 4 to 20 products with X. It need not be made anew, nor of
    all rows:

    - A loss that bends by pieces has h_i = 0 or one value: only rows that entered or left the corner change the matrix,
      so long as they are fewer than those that are in it.
    - Elsewhere, where there are many more rows than columns, rows drawn with probability pi_i = min(1, h_i / t), each
      counted 1 / pi_i times, give the correlations between columns to some sqrt(columns / rows drawn); the diagonal is
      exact. Once h hardly changes any more the matrix is made of all rows after all: from there on it is changed row by
      row.

    The draws are hashes of row numbers: what comes out is a function of the rows and of the h that were asked for.
    """

    def __init__(self, X: Rows, columns: int, chosen: Int64) -> None:
        self._X, self._columns, self._chosen = X, columns, chosen
        self._place = np.full(columns + 1, -1, np.int32)
        self._place[chosen] = np.arange(len(chosen))
        self._exact: Float64 | None = None
        """The matrix at ``_at``, in units of ``_unit``."""
        self._unit = 1.0
        self._at: Float64 = np.empty(0)
        self._moved = 0.0
        self._most: Float64 = np.empty(0)
        """(k,) The largest that each diagonal element was since the matrix was made."""

    @property
    def exact(self) -> bool:
        """Whether what ``at`` returned last was of all rows."""
        return self._exact is not None

    def at(self, h: Float64, *, estimated: bool) -> Float64:
        """The matrix (k, k) at h (n,) >= 0, a copy; ``estimated``: but for its diagonal it may be an estimate."""
        if self._change(h, self._unit):  # another row may have the largest h, all others being what they were
            return self._unit * self._matrix
        unit = float(h.max(initial=0.0)) or 1.0
        changed, self._unit = self._change(h, unit), unit
        if not changed:
            scaled = h / unit
            drawn = self._draw(scaled) if estimated else None
            if drawn is not None:
                return unit * self._with_diagonal(self._sum(drawn), squares(self._X, scaled, self._columns))
            self._exact = None  # before, to make room
            self._exact, self._moved, self._at = self._sum(scaled), 0.0, scaled
            self._most = np.diagonal(self._exact).copy()
        return unit * self._matrix

    @property
    def _matrix(self) -> Float64:
        assert self._exact is not None  # ``at`` has made it
        return self._exact

    def _change(self, h: Float64, unit: float) -> bool:
        """Bring rows into the matrix, and take rows out of it, where they are fewer than are in it."""
        if not len(self._at):
            return False
        h = h / unit
        change = h - self._at
        change[np.abs(change) <= SAME * h] = 0.0
        moved = self._moved + float(np.abs(change).sum())
        few = 2 * np.count_nonzero(change) < np.count_nonzero(h) and moved <= STALE * float(h.sum())
        if self._exact is None or not few:
            return False
        self._exact += self._sum(change)
        self._moved, self._at, own = moved, h, np.diagonal(self._exact)
        self._most = np.maximum(self._most, own)
        return not (own < CANCELLED * self._most).any()

    def _draw(self, h: Float64) -> Float64 | None:
        """h_i / pi_i of the rows drawn, 0 of all others; None where all are to be taken."""
        rows, count = max(LEAST_DRAWN, DRAWN_PER_COLUMN * len(self._chosen)), int(np.count_nonzero(h))
        settled = len(self._at) and float(np.abs(h - self._at).sum()) <= SETTLED * float(h.sum())
        self._exact = None
        self._at = h
        if settled or count < WORTH_DRAWING * rows:
            return None
        least, keys = _threshold(h, rows), np.empty(len(h))
        keys_pass(h, 0, 0, keys)
        return np.where(keys < 1.0 / least, np.maximum(h, least), 0.0)

    def _with_diagonal(self, matrix: Float64, diagonal: Float64) -> Float64:
        own = np.diagonal(matrix).copy()
        factor = np.sqrt(np.divide(diagonal[self._chosen], own, out=np.zeros_like(own), where=own > 0.0))
        matrix *= factor
        matrix *= factor[:, None]
        matrix[np.diag_indices_from(matrix)] = diagonal[self._chosen]
        return matrix

    def _sum(self, h: Float64) -> Float64:
        """sum_i h_i z_i z_i' (k, k), h_i of either sign."""
        if isinstance(self._X, CSR):
            return self._sparse_sum(self._X, h)
        total = self._dense_sum(np.maximum(h, 0.0))
        if (h < 0.0).any():
            total -= self._dense_sum(np.maximum(-h, 0.0))
        return total

    def _sparse_sum(self, X: CSR, h: Float64) -> Float64:
        if len(self._chosen) > self._columns:
            return operators.gram(X, h, self._columns)
        lower = np.zeros((len(self._chosen), len(self._chosen)))
        sparse_block(X.data, X.indices, X.indptr, X.bias, h, self._place, lower)
        return lower + np.tril(lower, -1).T

    def _dense_sum(self, h: Float64) -> Float64:
        assert isinstance(self._X, Dense)
        if len(self._chosen) > self._columns:
            return operators.gram(self._X, h, self._columns)
        total, rows = np.zeros((len(self._chosen), len(self._chosen))), np.flatnonzero(h)
        for start in range(0, len(rows), operators.TILE):
            part = rows[start : start + operators.TILE]
            tile = Dense(np.ascontiguousarray(self._X.values[part][:, self._chosen[:-1]]), self._X.bias)
            total += operators.gram(tile, h[part], len(self._chosen) - 1)
        return total


def _threshold(h: Float64, rows: int) -> float:
    """The t for which sum_i min(1, h_i / t) is about ``rows``, fewer than there are h_i > 0."""
    t = float(h.sum()) / rows
    for _ in range(8):
        certain = h > t
        count = int(np.count_nonzero(certain))
        rest = float(h[~certain].sum())
        following = rest / max(rows - count, 1)
        if following >= 0.999 * t:
            break
        t = following
    return t


class ArrowPreconditioner:
    """A preconditioner that knows the arrow shape of encoded tables: a block of dense columns, and rare ones beside it.

    It is of G + X' diag(h) X at one h after another, G = diag(``outer``) (p,); ``columns`` is what a CSR record cannot
    know.

    The Hessian I + X' diag(h) X of a table is nearly an arrow. Numeric columns and frequent levels meet each other in
    many rows; two levels of one variable never meet, and two rare ones hardly ever. So the exact block of the densest
    columns, factorized, beside the diagonal of all others is close to the Hessian, whatever the scales: both parts are
    invariant to the scaling of columns. Where all columns are in the block it is the Hessian itself, and conjugate
    gradients need one or two steps.
    """

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
        self._solve = _factorize_scaled(block)

    def __call__(self, residual: Float64) -> Float64:
        """M^-1 residual (p,)."""
        result = residual / self._diagonal
        result[self.chosen] = self._solve_scaled(residual)
        return result

    def block_step(self, residual: Float64) -> Float64:
        """The step (p,) of the dense columns alone that takes their part of a residual away; 0 for all others.

        A column of scale 10^6 makes an error of 10^-6 in a margin an error of 1 in the gradient. This removes it, at
        the cost of a change in the margins that is as small as the error was.
        """
        step = np.zeros_like(residual)
        step[self.chosen] = self._solve_scaled(residual)
        return step

    def outside(self, residual: Float64) -> float:
        """Half the squared norm of the part of a residual that ``block_step`` leaves."""
        return 0.5 * float(residual @ residual) - 0.5 * float(np.square(residual[self.chosen]).sum())

    def _solve_scaled(self, residual: Float64) -> Float64:
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


def _factorize_scaled(block: Float64) -> Callable[[Float64], Float64]:
    """What solves a scaled block, a little more on its diagonal wherever rounding asks for it. Changes the block."""
    jitter, diagonal = JITTER, np.diagonal(block).copy()
    while True:
        block[np.diag_indices_from(block)] = diagonal + jitter
        try:
            return factorize(block)
        except np.linalg.LinAlgError:
            if jitter > 1.0:
                raise
            jitter *= 100.0
