"""Cells of pairs of columns: the cell in which a row lies, and the basis in which solvers see the values of cells.

A variable is a column of numbers that is cut into cells by rising edges (cell k holds the values x with edge_k <= x <
edge_k+1), or the columns of a category, whose cells are its values. A pair of variables with A and B cells has a table T
(A, B), and adds T[i, j] to the decision value of a row in cell i of the first and j of the second variable. A row has one
entry 1 for each pair, in the component first + i B + j (first: that of T[0, 0]).

The solver sees U with T = s M U N', M (A, A) and N (B, B) the matrices of the two variables and s a scale, so that with
u the rows of U one after the other, T = s (M x N) u is a Kronecker product that is never formed:

    T = s M U N',      adjoint: G -> s M' G N,      diagonal of its Gram matrix for cell weights G: s^2 (M * M)' G (N * N).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.class_tags import saved_as
from streamsvm.compute.compiled import compiled
from streamsvm.rows import Dense, Float32, Float64, Int32, Int64, Rows, find_column_places, row_count

NO_LEVEL = -1
"""The level of a column of numbers, whose cell is found by edges."""


@saved_as("rows.pair_basis")
class PairBasis(NamedTuple):
    """The matrices of variables, and the pairs of variables with tables."""

    matrices: Float64
    """The matrices M of all variables, row by row, one after the other."""
    cells: Int64
    """(v,) The number of cells of each variable."""
    pairs: Int64
    """(P, 2) The numbers of the variables of each pair."""
    first: int
    """The component of the first cell of the first pair."""
    scale: float
    """s."""

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices."""
        return self.matrices.nbytes

    def tables(self) -> list[tuple[slice, Float64, Float64]]:
        """Return the components of each pair, and s M and N."""
        ends = np.cumsum(self.cells * self.cells).tolist()
        of_variable = [
            self.matrices[end - size * size : end].reshape(size, size)
            for size, end in zip(self.cells.tolist(), ends, strict=True)
        ]
        starts = table_starts(self.cells, self.pairs) + self.first
        return [
            (slice(start, stop), self.scale * of_variable[a], of_variable[b])
            for (start, stop), (a, b) in zip(pairwise(starts.tolist()), self.pairs.tolist(), strict=True)
        ]

    def lift(self, W: Float64, out: Float64) -> None:
        """Set the tables T in ``out`` (k, p) for each row u of W (k, p)."""
        for part, M, N in self.tables():
            out[:, part] = (M @ W[:, part].reshape(-1, len(M), len(N)) @ N.T).reshape(len(W), -1)

    def adjoint(self, V: Float64, out: Float64) -> None:
        """Set s M' G N in ``out`` (k, p) for the tables G of each row of V (k, p)."""
        for part, M, N in self.tables():
            out[:, part] = (M.T @ V[:, part].reshape(-1, len(M), len(N)) @ N).reshape(len(V), -1)

    def squares(self, diagonal: Float64, out: Float64) -> None:
        """Set the diagonals of B' diag(``diagonal``) B in ``out`` (p,) for the weights ``diagonal`` (p,) of all cells."""
        for part, M, N in self.tables():
            out[part] = ((M * M).T @ diagonal[part].reshape(len(M), len(N)) @ (N * N)).ravel()


def table_starts(cells: Int32 | Int64, pairs: Int32 | Int64) -> Int64:
    """Return the place of the first cell of each pair, and the number of all cells, (P + 1,)."""
    sizes = cells[pairs[:, 0]].astype(np.int64) * cells[pairs[:, 1]]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


class Cells(NamedTuple):
    """How stored rows are cut into cells: the columns of variables, and the edges of numbers."""

    columns: Int32
    """(c,) The numbers of the stored columns of all variables."""
    variables: Int32
    """(c,) The number of the variable of each of these columns."""
    levels: Int32
    """(c,) NO_LEVEL, or the cell of a category in which a row with a nonzero entry in this column lies; the last of several such
    cells, and cell 0 if there is none."""
    edges: Float32
    """The edges of all variables, rising within each; none for a category."""
    starts: Int64
    """(v + 1,) The place of the first edge of each variable."""

    @property
    def is_number(self) -> NDArray[np.bool_]:
        """(v,) Whether each variable is a number."""
        is_number = np.zeros(len(self.starts) - 1, np.bool_)
        is_number[self.variables[self.levels == NO_LEVEL]] = True
        return is_number


def find_cells(X: Rows, cells: Cells) -> Int32:
    """Return the cell of each row in each variable, (n, v)."""
    codes = np.zeros((row_count(X), len(cells.starts) - 1), np.int32)
    if isinstance(X, Dense):
        _find_dense_cells(X.values, *cells, codes)
        return codes
    _find_sparse_cells(X.data, X.indices, X.indptr, find_column_places(X, cells.columns), *cells, codes)
    return codes


@compiled()
def _cell_of(x: float, edges: Float32, start: int, stop: int) -> int:
    """Return the number of edges from start to stop that are not above x."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if edges[middle] <= x:
            low = middle + 1
        else:
            high = middle
    return low - start


@compiled()
def _find_dense_cells(
    values: Float32, columns: Int32, variables: Int32, levels: Int32, edges: Float32, starts: Int64, codes: Int32
) -> None:
    for i in range(values.shape[0]):
        for c in range(columns.size):
            x, v = values[i, columns[c]], variables[c]
            if levels[c] < 0:
                codes[i, v] = _cell_of(x, edges, starts[v], starts[v + 1])
            elif x != 0.0:
                codes[i, v] = max(codes[i, v], levels[c])


@compiled()
def _find_sparse_cells(
    data: Float32,
    indices: Int32,
    indptr: Int64,
    places: Int32,
    columns: Int32,
    variables: Int32,
    levels: Int32,
    edges: Float32,
    starts: Int64,
    codes: Int32,
) -> None:
    zero = np.zeros(starts.size - 1, np.int32)
    for c in range(columns.size):
        if levels[c] < 0:
            v = variables[c]
            zero[v] = _cell_of(0.0, edges, starts[v], starts[v + 1])
    for i in range(indptr.size - 1):
        for v in range(zero.size):
            codes[i, v] = zero[v]
        for p in range(indptr[i], indptr[i + 1]):
            c = places[indices[p]]
            if c < 0:
                continue
            v = variables[c]
            if levels[c] < 0:
                codes[i, v] = _cell_of(data[p], edges, starts[v], starts[v + 1])
            elif data[p] != 0.0:
                codes[i, v] = max(codes[i, v], levels[c])


@compiled()
def fill_cells(
    codes: Int32, pairs: Int32, cells: Int32, starts: Int64, first: int, indptr: Int64, data: Float32, indices: Int32
) -> None:
    """Write the entries of the pairs, the last P of each row. Given: the cells of rows (n, v), the pairs (P, 2), the number of
    cells of each variable (v,), the place of each table (P + 1,) and the component of the first one.
    """
    for i in range(codes.shape[0]):
        p = indptr[i + 1] - pairs.shape[0]
        for t in range(pairs.shape[0]):
            a, b = pairs[t, 0], pairs[t, 1]
            data[p + t] = np.float32(1.0)
            indices[p + t] = first + starts[t] + codes[i, a] * cells[b] + codes[i, b]


@compiled()
def add_to_tables(codes: Int32, pairs: Int32, cells: Int32, starts: Int64, values: Float64, tables: Float64) -> None:
    """Add ``values`` (n, m) of rows to the cells in which they lie.

    Given: the cells of rows (n, v), the pairs (P, 2), the number of cells of each variable (v,), the place of each table
    (P + 1,). Changed: ``tables`` (cells of all tables, m).
    """
    for i in range(codes.shape[0]):
        for t in range(pairs.shape[0]):
            a, b = pairs[t, 0], pairs[t, 1]
            place = starts[t] + codes[i, a] * cells[b] + codes[i, b]
            for k in range(values.shape[1]):
                tables[place, k] += values[i, k]


def count_marks_together(X: Rows, marks: Int64, counts: Int64) -> None:
    """Add the numbers of rows in which two of the columns ``marks`` (m,), ascending, are both not 0 to ``counts`` (m, m), whose upper
    triangle is used.
    """
    if isinstance(X, Dense):
        _count_dense_marks(X.values, marks, counts)
        return
    _count_sparse_marks(X.data, X.indices, X.indptr, find_column_places(X, marks), counts)


@compiled()
def _count_dense_marks(values: Float32, marks: Int64, counts: Int64) -> None:
    present = np.empty(marks.size, np.int64)
    for i in range(values.shape[0]):
        found = 0
        for k in range(marks.size):
            if values[i, marks[k]] != 0.0:
                present[found] = k
                found += 1
        for a in range(found):
            for b in range(a, found):
                counts[present[a], present[b]] += 1


@compiled()
def _count_sparse_marks(data: Float32, indices: Int32, indptr: Int64, places: Int32, counts: Int64) -> None:
    present = np.empty(counts.shape[0], np.int64)
    for i in range(indptr.size - 1):
        found = 0
        for p in range(indptr[i], indptr[i + 1]):
            k = places[indices[p]]
            if k >= 0 and data[p] != 0.0:
                present[found] = k
                found += 1
        for a in range(found):
            for b in range(a, found):
                counts[min(present[a], present[b]), max(present[a], present[b])] += 1
