"""A preconditioner for the Hessian I + X' diag(h) X for changing h (``ArrowPreconditioner``).

It factorizes the block of the densest columns (``BlockMatrix``) and uses the diagonal for all others. If all columns
are in the block, it solves with the Hessian itself. Of rows of curves with too many components for that, it factorizes
the block of each curve, and approximately that of each pair of columns (``CurvePreconditioner``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamsvm.compute.blocks import operators
from streamsvm.compute.blocks.columns import column_counts
from streamsvm.compute.blocks.curves import Curved, curve_gram, curve_grams
from streamsvm.compute.passes.newton import squares
from streamsvm.compute.passes.priority_sampling import keys_pass
from streamsvm.compute.passes.rows_in_memory import sparse_block
from streamsvm.rows import CSR, Dense, Float64, Int64, Rows, row_count
from streamsvm.solvers.cholesky import factorize

MAX_EXPLICIT_SPARSE, MAX_EXPLICIT_DENSE = 1500, 8000
"""Maximum number of components (columns + 1) for an explicit Hessian of sparse and of dense rows. With dense rows it
costs no more than the products of conjugate gradients, and its steps are exact."""
DRAWN_PER_COLUMN, MIN_DRAWN = 100, 5_000
"""Number of rows drawn to estimate the matrix: the first number times the columns, or the second, whichever is
larger."""
MIN_ROWS_RATIO = 2
"""The matrix is estimated only if there are at least this many times as many rows as are drawn."""
SETTLED_SHARE = 0.1
"""If at most this fraction of h changes from one call to the next, the matrix is computed from all rows."""
MAX_UPDATES = 4.0
"""The matrix is recomputed when the sum of all updates exceeds this many times the matrix, since float32 products leave
rounding errors."""
MIN_DIAGONAL_SHARE = 1e-6
"""The matrix is also recomputed when updates have reduced a diagonal element below this fraction of its largest value,
since rounding errors then dominate it."""
EQUAL_TOLERANCE = 1e-12
"""Differences below this fraction of h_i are rounding errors."""
MIN_BLOCK, MAX_BLOCK = 64, 1000
"""Least and largest number of components of the dense block, if it does not have all columns."""
BLOCK_COST = 20.0
"""Between these bounds the factorization of the block may cost as much as this many products with X."""
MAX_COLUMNS_PER_ROW = 4
"""With dense rows, a block of more than MAX_BLOCK columns is used only if there are at most this many times as many
columns as rows. Its factorization takes columns^3 / 3 operations, while conjugate gradients converge in about as many
steps as there are rows."""
JITTER = 1e-13
"""Added to the diagonal of the block, which is scaled to 1, so that the block stays positive definite despite
rounding."""


def max_explicit_components(*, dense: bool) -> int:
    """Return the number of components (columns + 1) up to which the Hessian is formed explicitly."""
    return MAX_EXPLICIT_DENSE if dense else MAX_EXPLICIT_SPARSE


def matrix_bytes(components: int, entry: int = 4) -> int:
    """Return the peak bytes of a step with an explicit Hessian: the matrix, and either the products that are added to
    it or a copy and its factor.

    ``entry``: bytes of an entry of a row.
    """
    return max(32 * components**2, 16 * components**2 + operators.gram_bytes(components, entry=entry))


class BlockMatrix:
    """The matrix X' diag(h) X of selected columns, updated as h changes.

    ``chosen`` (k,) are the components, rising, of which ``columns`` is the constant feature.

    Computing the matrix costs entries^2 / 2 operations for each row, as much as 4 to 20 products with X. Often it can
    be updated, or estimated from fewer rows:

    - A piecewise quadratic loss has h_i = 0 or one positive value. Only rows that entered or left the kink change the
      matrix, and it is updated if they are fewer than the rows in it.
    - Otherwise, with many more rows than columns, rows are drawn with probability pi_i = min(1, h_i / t) and counted
      1 / pi_i times. This estimates the correlations between columns with an error of about sqrt(columns / rows drawn).
      The diagonal is computed exactly. Once h hardly changes any more, the matrix is computed from all rows, and
      updated from then on.

    The draws are hashes of row numbers, so the result is a function of the rows and the sequence of h.
    """

    def __init__(self, X: Rows | Curved, columns: int, chosen: Int64) -> None:
        self._X, self._columns, self._chosen = X, columns, chosen
        self._place = np.full(columns + 1, -1, np.int32)
        self._place[chosen] = np.arange(len(chosen))
        self._exact: Float64 | None = None
        """The matrix computed from all rows, for ``_h`` and in units of ``_unit``; None: the last one was an
        estimate."""
        self._unit = 1.0
        self._h: Float64 = np.empty(0)
        self._updates = 0.0
        """The sum of |changes of h| since the matrix was computed."""
        self._largest_diagonal: Float64 = np.empty(0)
        """(k,) The largest value of each diagonal element since the matrix was computed."""

    @property
    def exact(self) -> bool:
        """Whether the last matrix that ``compute`` returned was computed from all rows."""
        return self._exact is not None

    def compute(self, h: Float64, *, estimated: bool) -> Float64:
        """Return the matrix (k, k) for h (n,) >= 0, as a copy. ``estimated``: all but its diagonal may be an
        estimate.
        """
        if self._update(h, self._unit):  # keep the unit first: the largest h may have changed alone
            return self._unit * self._matrix
        unit = float(h.max(initial=0.0)) or 1.0
        changed, self._unit = self._update(h, unit), unit
        if not changed:
            scaled = h / unit
            drawn = self._draw(scaled) if estimated else None
            if drawn is not None:
                return unit * self._with_diagonal(self._sum(drawn), squares(self._X, scaled, self._columns))
            self._exact = None  # frees the old matrix before the new one is computed
            self._exact, self._updates, self._h = self._sum(scaled), 0.0, scaled
            self._largest_diagonal = np.diagonal(self._exact).copy()
        return unit * self._matrix

    @property
    def _matrix(self) -> Float64:
        assert self._exact is not None  # ``compute`` has computed it
        return self._exact

    def _update(self, h: Float64, unit: float) -> bool:
        """Update the matrix for the rows whose h has changed. Return False if it has to be recomputed instead."""
        if not len(self._h):
            return False
        h = h / unit
        change = h - self._h
        change[np.abs(change) <= EQUAL_TOLERANCE * h] = 0.0
        updates = self._updates + float(np.abs(change).sum())
        is_small = 2 * np.count_nonzero(change) < np.count_nonzero(h) and updates <= MAX_UPDATES * float(h.sum())
        if self._exact is None or not is_small:
            return False
        self._exact += self._sum(change)
        self._updates, self._h, diagonal = updates, h, np.diagonal(self._exact)
        self._largest_diagonal = np.maximum(self._largest_diagonal, diagonal)
        return not (diagonal < MIN_DIAGONAL_SHARE * self._largest_diagonal).any()

    def _draw(self, h: Float64) -> Float64 | None:
        """Return h_i / pi_i of the drawn rows and 0 for all others; None if all rows are to be used."""
        rows, count = max(MIN_DRAWN, DRAWN_PER_COLUMN * len(self._chosen)), int(np.count_nonzero(h))
        is_settled = len(self._h) and float(np.abs(h - self._h).sum()) <= SETTLED_SHARE * float(h.sum())
        self._exact = None
        self._h = h
        if is_settled or count < MIN_ROWS_RATIO * rows:
            return None
        least, keys = _threshold(h, rows), np.empty(len(h))
        keys_pass(h, 0, 0, keys)
        return np.where(keys < 1.0 / least, np.maximum(h, least), 0.0)

    def _with_diagonal(self, matrix: Float64, diagonal: Float64) -> Float64:
        """Scale an estimated matrix such that its diagonal is that of ``diagonal`` (p,). Changes the matrix."""
        estimate = np.diagonal(matrix).copy()
        factor = np.sqrt(np.divide(diagonal[self._chosen], estimate, out=np.zeros_like(estimate), where=estimate > 0.0))
        matrix *= factor
        matrix *= factor[:, None]
        matrix[np.diag_indices_from(matrix)] = diagonal[self._chosen]
        return matrix

    def _sum(self, h: Float64) -> Float64:
        """Return sum_i h_i z_i z_i' (k, k), z_i being the chosen columns of x_i, for h_i of either sign."""
        if isinstance(self._X, CSR):
            return self._sparse_sum(self._X, h)
        if isinstance(self._X, Curved):  # whose preconditioner has all components or no block
            return operators.gram(self._X, h, self._columns)
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
    """Return the t for which sum_i min(1, h_i / t) is about ``rows``, which is less than the number of h_i > 0."""
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
    """A preconditioner for the arrow-shaped Hessians of encoded tables: a block of dense columns and a diagonal of rare
    ones.

    It approximates G + X' diag(h) X for changing h, with G = diag(``outer``) (p,). ``columns`` is the number of
    columns, which a CSR record does not know.

    The Hessian of an encoded table is nearly an arrow matrix. Numeric columns and frequent levels occur together in
    many rows; two levels of one variable never do, and two rare levels hardly ever. The factorized block of the densest
    columns and the diagonal of all others are therefore close to the Hessian. Both parts are invariant to the scaling
    of columns. If all columns are in the block, it is the Hessian itself, and conjugate gradients need one or two
    steps.
    """

    def __init__(self, X: Rows | Curved, columns: int, outer: Float64) -> None:
        self._X, self._columns, self._outer = X, columns, outer
        self.chosen = densest_columns(X, columns)
        """The components of the block, rising."""
        self._block = BlockMatrix(X, columns, self.chosen)
        self._diagonal: Float64 = np.ones(columns + 1)
        self._scale: Float64 = np.empty(0)
        self._solve: Callable[[Float64], Float64] | None = None

    @property
    def whole(self) -> bool:
        """Whether all columns are in the block."""
        return len(self.chosen) > self._columns

    def has_all_entries(self) -> bool:
        """Return whether every column with an entry is in the block, so that the preconditioner is the Hessian itself,
        as of hashed categories with few values.
        """
        if self.whole or not isinstance(self._X, CSR):
            return self.whole
        counts = column_counts(self._X, self._columns)
        return int(counts[self.chosen[:-1]].sum()) == len(self._X.data)

    @property
    def exact(self) -> bool:
        """Whether the block was computed from all rows, and not estimated from drawn ones."""
        return self._block.exact

    def update(self, h: Float64, *, estimated: bool = False) -> None:
        """Recompute and factorize for the second derivatives h (n,) >= 0. ``estimated``: the block may be estimated."""
        self._solve = None  # frees the old factor before the new one is computed
        if not self.whole:
            self._diagonal = self._outer + squares(self._X, h, self._columns)
        block = self._block.compute(h, estimated=estimated)
        block[np.diag_indices_from(block)] += self._outer[self.chosen]
        self._scale = 1.0 / np.sqrt(np.diagonal(block))
        block *= self._scale
        block *= self._scale[:, None]
        self._solve = _factorize_scaled(block)

    def __call__(self, residual: Float64) -> Float64:
        """Return M^-1 residual (p,), M being this approximation of the Hessian."""
        result = residual / self._diagonal
        result[self.chosen] = self._solve_scaled(residual)
        return result

    def block_step(self, residual: Float64) -> Float64:
        """Return the step (p,) in the dense columns alone that removes their part of a residual; 0 in all other
        columns.

        In a column of scale 10^6 an error of 10^-6 in a margin becomes an error of 1 in the gradient. The step removes
        it, and changes margins only by as little as the error.
        """
        step = np.zeros_like(residual)
        step[self.chosen] = self._solve_scaled(residual)
        return step

    def energy_outside_block(self, residual: Float64) -> float:
        """Return half the squared norm of the residual in the columns outside the block."""
        return 0.5 * float(residual @ residual) - 0.5 * float(np.square(residual[self.chosen]).sum())

    def _solve_scaled(self, residual: Float64) -> Float64:
        assert self._solve is not None  # ``update`` comes first
        return self._scale * self._solve(self._scale * residual[self.chosen])


class CurvePreconditioner(ArrowPreconditioner):
    """A preconditioner for rows of many curves: the block of each curve, B_j' T_j B_j with T_j tridiagonal, an approximation
    of the block of each pair of columns, and the diagonal of all other components.

    It takes one pass and sum_j K_j^3 operations. The blocks leave out that columns depend on each other.

    **Pairs.** The block of a pair is s^2 (M x N)' diag(g) (M x N) + c I with c the mean of ``outer`` and the sums g_ij of second derivatives in its cells. g is
    replaced by the product of its margins, g_i g_j / sum g, as if the two columns were independent. With the eigenvectors P of
    s^2 M' diag(g_i) M and Q of N' diag(g_j) N / sum g, and their eigenvalues l and m, the block is then inverted on the tables R
    of a residual without being formed (Lynch, Rice and Thomas 1964):

        P ((P' R Q) / (c + l_i m_j)) Q'.
    """

    def __init__(self, X: Curved, columns: int, outer: Float64) -> None:
        self._rows, self._columns, self._outer = X, columns, outer
        self.chosen = np.array([columns])
        self._diagonal = np.ones(columns + 1)
        self._solvers: list[tuple[slice, Callable[[Float64], Float64]]] = []
        self._tables = [] if X.basis.pairs is None else X.basis.pairs.tables()

    @property
    def whole(self) -> bool:
        return False

    def has_all_entries(self) -> bool:
        return False

    @property
    def exact(self) -> bool:
        return False

    def update(self, h: Float64, *, estimated: bool = False) -> None:
        diagonal, beside = curve_grams(self._rows, h, self._columns)
        self._diagonal, self._solvers = self._outer + diagonal, []
        for part, B in self._rows.basis.blocks():
            block = B.T @ curve_gram(B, diagonal[part], beside[part])
            block[np.diag_indices_from(block)] += self._outer[part]
            self._solvers.append((part, factorize(block)))
        for part, M, N in self._tables:
            g = diagonal[part].reshape(len(M), len(N))
            self._solvers.append((part, _invert_product(M, N, g, float(self._outer[part].mean()))))

    def __call__(self, residual: Float64) -> Float64:
        result = residual / self._diagonal
        for part, solve in self._solvers:
            result[part] = solve(residual[part])
        return result

    def block_step(self, residual: Float64) -> Float64:
        step = np.zeros_like(residual)
        step[self.chosen] = residual[self.chosen] / self._diagonal[self.chosen]
        return step


def _invert_product(M: Float64, N: Float64, g: Float64, c: float) -> Callable[[Float64], Float64]:
    """Return a function that solves with c I + (M x N)' diag(g) (M x N), g being replaced by the product of its margins."""
    total = float(g.sum()) or 1.0
    of_rows, P = np.linalg.eigh(M.T @ (g.sum(axis=1)[:, None] * M))
    of_columns, Q = np.linalg.eigh(N.T @ (g.sum(axis=0)[:, None] * N) / total)
    factor = 1.0 / (c + np.outer(np.maximum(of_rows, 0.0), np.maximum(of_columns, 0.0)))

    def solve(residual: Float64) -> Float64:
        solved: Float64 = (P @ (factor * (P.T @ residual.reshape(g.shape) @ Q)) @ Q.T).ravel()
        return solved

    return solve


def make_preconditioner(X: Rows | Curved, columns: int, outer: Float64) -> ArrowPreconditioner:
    """Return the preconditioner of G + X' diag(h) X for rows of this kind; ``outer`` (p,) is the diagonal of G."""
    if isinstance(X, Curved) and columns + 1 > max_explicit_components(dense=False):
        return CurvePreconditioner(X, columns, outer)
    return ArrowPreconditioner(X, columns, outer)


def densest_columns(X: Rows | Curved, columns: int) -> Int64:
    """Return the columns of the block, rising, the constant included: those in the most rows, or of dense rows those
    with the largest sums of squares.
    """
    size = block_size(columns, count_entries(X), dense=isinstance(X, Dense))
    if size > columns or isinstance(X, Curved):
        return np.arange(columns + 1)
    if isinstance(X, CSR):
        weight = column_counts(X, columns).astype(np.float64)
    else:
        weight = squares(X, np.ones(row_count(X)), columns)[:-1]
    return np.append(np.sort(np.argsort(-weight, kind="stable")[: size - 1]), columns)


def count_entries(X: Rows | Curved) -> int:
    """Return the number of stored entries."""
    if isinstance(X, Curved):
        return len(X.rows.data)
    return len(X.data) if isinstance(X, CSR) else X.values.size


def block_size(columns: int, entries: int, *, dense: bool) -> int:
    """Return the number of components in the block: all, if that is affordable."""
    p = columns + 1
    affordable = p <= MAX_BLOCK or p <= MAX_COLUMNS_PER_ROW * (entries // max(1, columns))
    if p <= max_explicit_components(dense=dense) and (affordable or not dense):
        return p
    return min(p, int(np.clip((BLOCK_COST * entries) ** (1 / 3), MIN_BLOCK, MAX_BLOCK)))


def block_bytes(size: int, entry: int = 4) -> int:
    """Return the peak bytes while a block is computed and factorized; ``entry``: bytes of an entry of a row."""
    return 24 * size * size + operators.gram_bytes(size, entry=entry)


def _factorize_scaled(block: Float64) -> Callable[[Float64], Float64]:
    """Return a function that solves with a scaled block. If rounding makes the block indefinite, its diagonal is
    increased. Changes the block.
    """
    jitter, diagonal = JITTER, np.diagonal(block).copy()
    while True:
        block[np.diag_indices_from(block)] = diagonal + jitter
        try:
            return factorize(block)
        except np.linalg.LinAlgError:
            if jitter > 1.0:
                raise
            jitter *= 100.0
