"""Pairs of columns of an additive model: tables of values over the cells of two columns.

    f(x) = b + sum_j c_j(x_j) + sum_l w_l x_l + sum_(a,b) T_ab[i_a(x), i_b(x)],

with curves c_j and weights w_l (``features.curves``) and, for each chosen pair of variables, a table T_ab over their cells.

**Variables** are columns of numbers, categories, and groups of columns of 0 and 1.

- A number has at most NUMBER_CELLS cells. Values with a large share of the rows have a cell of their own, the others are
  divided by quantiles. They are taken from the histograms that choose knots, whose counts do not depend on the order of rows.
- A category has a cell for each of its CATEGORY_CELLS most frequent values, one for all others, and one for none.
- Neighbouring columns of 0 and 1 of which at most one is 1 in each training row are one category, such as one-hot columns that
  were made before the ingest. A table of this category is the sum of tables of its columns, so that only the number of pairs
  is smaller. A single such column is a category of one value.

**Penalty.** Let p_i be the share of the training rows in cell i of a variable. T = s M U N', and the solver penalizes the
square sum of U (A, B). M is determined by two conditions:

- p' M = 0. Every table has mean 0 over the distribution of either of its columns, for every cell of the other one:
  sum_i p_i T_ij = 0 for each j, and sum_j q_j T_ij = 0 for each i. What a column does on its own thus belongs to its curve, and
  the curve is its partial dependence: the mean of f over the distributions of all other columns, up to a constant.
- With Z (A, A - 1) an orthonormal basis of the vectors t with p' t = 0, and D first differences of neighbouring cells,
  M = Z L'^-1 with L L' = Z' S Z, S = (A - 1) / 12 D' D for numbers, as the penalty "d1" of curves, and M = Z for categories,
  S = 1, as the penalty of weights.

The penalty of T is therefore tr(T' S_a T S_b) / s^2, which does not grow with the number of cells of a number. (A column of
zeros makes M square: a component of U without effect, which is 0 at the optimum.) With the penalty "none", which keeps rows sparse
for every solver, T = U: the square sum of all values is penalized, and tables need not average to 0.

References: Hooker, Generalized functional ANOVA diagnostics, JCGS 2007 (tables that average to 0); Eilers and Marx,
Multivariate calibration with temperature interaction using two-dimensional penalized signal regression, 2003 (tensor
products of penalties); Lou, Caruana, Gehrke and Hooker, KDD 2013 (additive models with pairs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.blocks.column_pairs import NO_LEVEL, Cells, PairBasis, fill_cells, find_cells, table_starts
from streamsvm.errors import DataError
from streamsvm.rows import CSR, Float32, Float64, Int32, Int64, Rows

NUMBER_CELLS, CATEGORY_CELLS = 24, 256
"""The largest number of cells of a number, and of values of a category that have a cell of their own."""


class PairTable(NamedTuple):
    """The table of a pair of variables."""

    variables: tuple[int, int]
    """The numbers of the variables of rows and columns of the table."""
    values: Float64
    """(A, B) The values T."""
    rows: Float64
    """(A, B) The fraction of the training rows in each cell."""
    deviation: float
    """The standard deviation of T over the training rows."""


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables that can form pairs, with the distribution of the training rows over the cells of each."""

    cells: Cells
    counts: Int32
    """(v,) The number of cells of each variable, 2 or more."""
    shares: Float64
    """The fractions of the training rows in the cells of all variables, one after the other."""

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def starts(self) -> Int64:
        """(v + 1,) The place of the first cell of each variable in ``shares``."""
        return np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)]).astype(np.int64)

    def shares_of(self, v: int) -> Float64:
        """Return the fractions of the training rows in the cells of a variable."""
        start, stop = self.starts[v : v + 2]
        return self.shares[start:stop]

    def variable_of(self, column: int) -> int | None:
        """Return the number of the variable to which a stored column belongs; None if there is none."""
        found = np.flatnonzero(self.cells.columns == column)
        return int(self.cells.variables[found[0]]) if len(found) else None

    def select(self, chosen: Int64) -> Variables:
        """Return the variables with these numbers, in this order."""
        place = np.full(len(self), -1, np.int32)
        place[chosen] = np.arange(len(chosen))
        mine = place[self.cells.variables] >= 0
        columns, variables, levels, edges, starts = self.cells
        own = [edges[starts[v] : starts[v + 1]] for v in chosen.tolist()]
        cells = Cells(
            columns[mine],
            place[variables[mine]],
            levels[mine],
            np.concatenate([np.empty(0, np.float32), *own]),
            np.concatenate([[0], np.cumsum([len(one) for one in own], dtype=np.int64)]).astype(np.int64),
        )
        shares = np.concatenate([np.empty(0), *(self.shares_of(v) for v in chosen.tolist())])
        return Variables(cells, self.counts[chosen], shares)


@dataclass(frozen=True, slots=True)
class ColumnPairs:
    """The chosen pairs of columns of a model."""

    cells: Cells
    counts: Int32
    """(v,) The number of cells of each variable."""
    pairs: Int32
    """(P, 2) The numbers of the variables of each pair."""
    rows: Float64
    """The fraction of the training rows in each cell of the tables of all pairs."""
    starts: Int64 = field(init=False, repr=False, compare=False)
    """(P + 1,) The place of the first cell of each table, and the number of all cells."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", table_starts(self.counts, self.pairs))

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def features(self) -> int:
        """The number of cells of all tables."""
        return int(self.starts[-1])

    def fill(self, X: Rows, rows: CSR, first: int) -> None:
        """Write the entries of the pairs, the last ones of each of ``rows``, for stored rows ``X``. ``first``: the component of the
        first cell.
        """
        codes = find_cells(X, self.cells)
        fill_cells(codes, self.pairs, self.counts, self.starts, first, rows.indptr, rows.data, rows.indices)

    def effects(self, X: Rows, weights: Float64) -> Float64:
        """Return what each pair adds to the decision values of stored rows, (n, P). ``weights``: the values of all cells."""
        codes = find_cells(X, self.cells)
        a, b = self.pairs[:, 0], self.pairs[:, 1]
        return weights[self.starts[:-1] + codes[:, a].astype(np.int64) * self.counts[b] + codes[:, b]]

    def tables(self, weights: Float64) -> list[PairTable]:
        """Return the tables with the values ``weights`` of all cells."""
        tables = []
        for (a, b), start, stop in zip(self.pairs.tolist(), self.starts, self.starts[1:], strict=False):
            values, rows = (x[start:stop].reshape(self.counts[a], self.counts[b]) for x in (weights, self.rows))
            mean = float((rows * values).sum())
            deviation = float(np.sqrt((rows * np.square(values - mean)).sum()))
            tables.append(PairTable((a, b), values, rows, deviation))
        return tables

    def columns_of(self, v: int) -> list[tuple[int, int]]:
        """Return the stored columns of a variable with their levels (NO_LEVEL: the column of a number)."""
        mine = self.cells.variables == v
        return list(zip(self.cells.columns[mine].tolist(), self.cells.levels[mine].tolist(), strict=True))

    def edges_of(self, v: int) -> Float32:
        """Return the edges of a number; none for a category."""
        return self.cells.edges[self.cells.starts[v] : self.cells.starts[v + 1]]

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        named = {f"pairs.{name}": array for name, array in self.cells._asdict().items()}
        return named | {"pairs.counts": self.counts, "pairs.pairs": self.pairs, "pairs.rows": self.rows}


def decode_column_pairs(tensors: dict[str, NDArray[Any]], columns: int) -> ColumnPairs | None:
    """Return the pairs in ``tensors`` of a model of ``columns`` columns; None if there are none. Raises DataError, KeyError."""
    if "pairs.pairs" not in tensors:
        return None
    cells = Cells(*(tensors[f"pairs.{name}"] for name in Cells._fields))
    counts, pairs, rows = (tensors[f"pairs.{name}"] for name in ("counts", "pairs", "rows"))
    types = (np.int32, np.int32, np.int32, np.float32, np.int64, np.int32, np.int32, np.float64)
    arrays: tuple[NDArray[Any], ...] = (*cells, counts, pairs, rows)
    shaped = all(a.ndim == 1 for a in (*cells, counts, rows)) and pairs.ndim == 2 and pairs.shape[1:] == (2,)
    if not shaped or any(a.dtype != kind for a, kind in zip(arrays, types, strict=True)):
        raise DataError("the pairs of columns have arrays of wrong types")
    v, starts = len(counts), cells.starts
    valid = len(starts) == v + 1 and starts[0] == 0 and starts[-1] == len(cells.edges)
    valid = valid and bool((np.diff(starts) >= 0).all()) and bool((counts >= 2).all()) and len(pairs) > 0
    valid = valid and bool(((pairs >= 0) & (pairs < v)).all()) and bool((pairs[:, 0] != pairs[:, 1]).all())
    valid = valid and len(cells.columns) == len(cells.variables) == len(cells.levels)
    valid = valid and bool(((cells.columns >= 0) & (cells.columns < columns)).all())
    valid = valid and len(np.unique(cells.columns)) == len(cells.columns)
    valid = valid and bool(((cells.variables >= 0) & (cells.variables < v)).all())
    if not valid:
        raise DataError("the variables of the pairs of columns are inconsistent")
    is_number = cells.is_number
    levels_valid = (cells.levels >= NO_LEVEL) & (cells.levels < counts[cells.variables])
    levels_valid &= (cells.levels == NO_LEVEL) == is_number[cells.variables]
    edges_valid = (
        bool((np.where(is_number, counts - 1, 0) == np.diff(starts)).all()) and not np.isnan(cells.edges).any()
    )
    rising = np.diff(cells.edges) > 0
    rising[np.unique(starts[(starts > 0) & (starts < len(cells.edges))]) - 1] = True  # from one variable to the next
    if not (levels_valid.all() and edges_valid and rising.all()):
        raise DataError("the cells of the pairs of columns are inconsistent")
    found = ColumnPairs(cells, counts, pairs, rows)
    if len(rows) != found.features or not np.isfinite(rows).all():
        raise DataError("the tables of the pairs of columns have the wrong number of cells")
    return found


# -- variables


def choose_edges(lower_bounds: Float32, counts: Int64, most: int = NUMBER_CELLS) -> tuple[Float32, Float64]:
    """Return the rising edges of the cells of a number, and the number of rows in each of its cells.

    ``lower_bounds``, ``counts``: the least value that each occupied cell of the histogram can hold, rising, and its number of rows.
    With a goal of m cells, a value with at least 1/m of the rows has edges on both sides, and there is an edge after each other
    value in which the cumulative share of the rows passes a multiple of 1/m. m is the largest number, up to ``most``, that yields at
    most ``most`` cells.
    """
    if len(counts) <= most:
        return lower_bounds[1:], counts.astype(np.float64)
    cumulative, rows, goal = np.cumsum(counts), int(counts.sum()), most
    while True:
        is_heavy = counts * goal >= rows
        passed = (cumulative * goal) // rows
        crosses = np.diff(passed, prepend=0) > 0
        is_first = np.zeros(len(counts), np.bool_)
        is_first[1:] = (crosses | is_heavy)[:-1]
        is_first |= is_heavy
        is_first[0] = False
        if np.count_nonzero(is_first) < most:
            first = np.flatnonzero(is_first)
            return lower_bounds[first], np.add.reduceat(counts, np.concatenate([[0], first])).astype(np.float64)
        goal -= 1


def number_levels(shares: Float64, most: int = CATEGORY_CELLS) -> tuple[Int32, Float64]:
    """Return the cell of each value of a category with these shares of the rows, and the shares of the cells: none of the values,
    the most frequent ones in their order, and all others together.
    """
    levels = np.arange(1, len(shares) + 1, dtype=np.int32)
    if len(shares) > most:
        frequent = np.sort(np.argsort(-shares, kind="stable")[:most])
        levels = np.full(len(shares), most + 1, np.int32)
        levels[frequent] = np.arange(1, most + 1)
    of_cells = np.zeros(int(levels.max()) + 1)
    np.add.at(of_cells, levels, shares)
    of_cells[0] = max(0.0, 1.0 - float(of_cells.sum()))
    return levels, of_cells


def group_exclusive(columns: Int64, together: Int64) -> list[Int64]:
    """Return groups of neighbouring columns of which at most one is not 0 in each row.

    ``columns``: (m,) ascending; ``together`` (m, m): in its upper triangle, the number of rows in which two columns are not 0.
    """
    groups: list[list[int]] = []
    for k in range(len(columns)):
        if groups and columns[k] == columns[groups[-1][-1]] + 1 and not together[groups[-1], k].any():
            groups[-1].append(k)
        else:
            groups.append([k])
    return [columns[group] for group in groups]


def collect_variables(
    numbers: Sequence[tuple[int, Float32, Float64]], categories: Sequence[tuple[Int64, Float64]]
) -> Variables:
    """Return the variables of numbers (column, edges, rows of cells) and categories (columns, shares of the columns)."""
    columns, variables, levels, edges, counts, shares = [], [], [], [], [], []
    for column, own_edges, rows in numbers:
        columns.append(np.array([column]))
        levels.append(np.array([NO_LEVEL]))
        edges.append(own_edges)
        shares.append(rows / rows.sum())
    for own_columns, own_shares in categories:
        own_levels, of_cells = number_levels(own_shares)
        columns.append(own_columns)
        levels.append(own_levels)
        edges.append(np.empty(0, np.float32))
        shares.append(of_cells)
    for v, own in enumerate(columns):
        variables.append(np.full(len(own), v))
        counts.append(len(shares[v]))
    none = np.empty(0)
    starts = np.concatenate([[0], np.cumsum([len(one) for one in edges], dtype=np.int64)]).astype(np.int64)
    of_columns, of_variables, of_levels = (
        np.concatenate([none, *parts]).astype(np.int32) for parts in (columns, variables, levels)
    )
    all_edges = np.concatenate([none, *edges]).astype(np.float32)
    cells = Cells(of_columns, of_variables, of_levels, all_edges, starts)
    return Variables(cells, np.array(counts, np.int32), np.concatenate([none, *shares]))


# -- the penalty


def build_centering_matrix(shares: Float64, *, ordered: bool) -> Float64:
    """Return M (A, A) of a variable with these shares of the rows in its cells. ``ordered``: its differences are penalized."""
    A = len(shares)
    unit = shares / np.linalg.norm(shares)
    unit[-1] += 1.0 if unit[-1] >= 0.0 else -1.0  # a Householder reflection maps it to the last coordinate
    Z = np.eye(A) - np.outer(unit, unit) * (2.0 / float(unit @ unit))
    Z[:, -1] = 0.0
    if not ordered:
        return Z
    differences = np.diff(Z[:, :-1], axis=0)
    lower = np.linalg.cholesky((A - 1) / 12.0 * differences.T @ differences)
    M = np.zeros((A, A))
    M[:, :-1] = np.linalg.solve(lower, Z[:, :-1].T).T
    return M


def make_pair_basis(chosen: Variables, pairs: Int32, first: int, scale: float) -> PairBasis:
    """Return the basis of the tables of these pairs; ``first``: the component of the first cell."""
    ordered = chosen.cells.is_number
    matrices = [build_centering_matrix(chosen.shares_of(v), ordered=bool(ordered[v])) for v in range(len(chosen))]
    flat = np.concatenate([matrix.ravel() for matrix in matrices])
    return PairBasis(flat, chosen.counts.astype(np.int64), pairs.astype(np.int64), first, scale)


def component_sizes(basis: PairBasis, sizes: Float64) -> None:
    """Set bounds of the absolute values of the components of pairs in ``sizes`` (p,)."""
    for part, M, N in basis.tables():
        sizes[part] = np.outer(np.abs(M).max(axis=0), np.abs(N).max(axis=0)).ravel()
