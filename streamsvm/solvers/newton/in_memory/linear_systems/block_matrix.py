"""X' diag(h) X for a choice of columns, at one h after another: what a preconditioner factorizes.

Making it costs entries^2 / 2 a row, as much as 4 to 20 products with X. It need not be made anew, nor of all rows:

- A loss that bends by pieces has h_i = 0 or one value: only rows that entered or left the corner change the matrix, so long as
  they are fewer than those that are in it.
- Elsewhere, where there are many more rows than columns, rows drawn with probability pi_i = min(1, h_i / t), each
  counted 1 / pi_i times, give the correlations between columns to some sqrt(columns / rows drawn); the diagonal is exact.
  Once h hardly changes any more the matrix is made of all rows after all: from there on it is changed row by row.

The draws are hashes of row numbers: what comes out is a function of the rows and of the h that were asked for.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.passes.in_memory.all_rows import sparse_block
from streamsvm.compute.passes.newton import keys_pass, squares
from streamsvm.rows import CSR, Dense, Float64, Int64, Rows

DRAWN_PER_COLUMN, LEAST_DRAWN = 100, 5_000
"""Rows that are drawn, at least."""
WORTH_DRAWING = 2
"""Rows are drawn where there are this many times as many."""
SETTLED = 0.1
"""Where no larger share of h changes from one call to the next, the matrix is made of all rows."""
STALE = 4.0
"""It is made anew when what was added and taken out is so many times what it is: float32 products leave traces."""
CANCELLED = 1e-6
"""It is made anew where less than this share of a diagonal element is left: what rows that were taken out leave is rounding."""
SAME = 1e-12
"""Differences below this share of h_i are rounding."""


class BlockMatrix:
    """Of the ``chosen`` components (k,), rising, the last of ``columns`` + 1 being the constant feature."""

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
            drawn = self._drawn(scaled) if estimated else None
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

    def _drawn(self, h: Float64) -> Float64 | None:
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
