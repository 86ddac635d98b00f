"""Rows in memory, dense or sparse: two records with the methods that compiled passes call, and functions on them.

``w`` has one component more than there are columns. The last component belongs to a constant feature of value ``bias`` that is appended to
every row, so that the bias is regularized like any other weight, as in LIBLINEAR. If ``bias`` is 0.0, this component is never updated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamsvm.class_tags import saved_as
from streamsvm.errors import DataError

Float32: TypeAlias = NDArray[np.float32]
Float64: TypeAlias = NDArray[np.float64]
Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
Targets: TypeAlias = Float32 | Float64
"""The target of each row: a label +1 or -1 in float32, or a number in float64."""


@saved_as("rows.dense")
class Dense(NamedTuple):
    """Rows as a C-contiguous float32 matrix, with a constant feature."""

    values: Float32
    """The matrix, (n, d)."""
    bias: float = 0.0
    """The value of the constant feature, which is not stored."""

    def dot(self, i: int, w: Float64) -> float:
        """Return x_i.w in float64, for w (d + 1,) whose last component belongs to the constant feature."""
        row = self.values[i]
        total: float = self.bias * w[row.size]
        for j in range(row.size):
            total += row[j] * w[j]
        return total

    def axpy(self, i: int, c: float, w: Float64) -> None:
        """Add c x_i to w (d + 1,)."""
        row = self.values[i]
        for j in range(row.size):
            w[j] += c * row[j]
        w[row.size] += c * self.bias

    def axpy_over(self, i: int, c: float, scale: Float64, w: Float64) -> None:
        """Add c x_i / scale to w, component by component; both (d + 1,)."""
        row = self.values[i]
        for j in range(row.size):
            w[j] += c * row[j] / scale[j]
        w[row.size] += c * self.bias / scale[row.size]

    def add_row(self, i: int, c: float, w: Float64, low: Float64) -> None:
        """Add c x_i to w + low, both (d + 1,), where low accumulates the rounding errors of the sums in w (Knuth's TwoSum)."""
        row = self.values[i]
        for j in range(row.size):
            term, before = c * row[j], w[j]
            total = before + term
            part = total - before
            low[j] += (before - (total - part)) + (term - part)
            w[j] = total
        term, before = c * self.bias, w[row.size]
        total = before + term
        part = total - before
        low[row.size] += (before - (total - part)) + (term - part)
        w[row.size] = total

    def sqnorm(self, i: int) -> float:
        """Return ||x_i||^2, including the constant feature."""
        row, total = self.values[i], self.bias * self.bias
        for j in range(row.size):
            total += np.float64(row[j]) * row[j]
        return total


@saved_as("rows.csr")
class CSR(NamedTuple):
    """Rows as compressed sparse rows: float32 data, int32 indices, int64 indptr that starts at 0.

    Loops read a row as a slice and its indices as unsigned, so that numba omits the test for negative indices; a loop over a row is
    then three times as fast.
    """

    data: Float32
    """The stored values."""
    indices: Int32
    """The column of each stored value, ascending within a row."""
    indptr: Int64
    """Row i is the entries from indptr[i] to indptr[i + 1], (n + 1,)."""
    bias: float = 0.0
    """The value of the constant feature, which is not stored."""

    def dot(self, i: int, w: Float64) -> float:
        """Return x_i.w in float64, for w whose last component belongs to the constant feature."""
        start, stop = self.indptr[i], self.indptr[i + 1]
        data, indices = self.data[start:stop], self.indices[start:stop]
        total = self.bias * w[w.size - 1]
        for p in range(data.size):
            total += data[p] * w[np.uint32(indices[p])]
        return total

    def axpy(self, i: int, c: float, w: Float64) -> None:
        """Add c x_i to w."""
        start, stop = self.indptr[i], self.indptr[i + 1]
        data, indices = self.data[start:stop], self.indices[start:stop]
        for p in range(data.size):
            w[np.uint32(indices[p])] += c * data[p]
        w[w.size - 1] += c * self.bias

    def axpy_over(self, i: int, c: float, scale: Float64, w: Float64) -> None:
        """Add c x_i / scale to w, component by component."""
        start, stop = self.indptr[i], self.indptr[i + 1]
        data, indices = self.data[start:stop], self.indices[start:stop]
        for p in range(data.size):
            j = np.uint32(indices[p])
            w[j] += c * data[p] / scale[j]
        w[w.size - 1] += c * self.bias / scale[w.size - 1]

    def add_row(self, i: int, c: float, w: Float64, low: Float64) -> None:
        """Add c x_i to w + low, where low accumulates the rounding errors of the sums in w (Knuth's TwoSum)."""
        start, stop = self.indptr[i], self.indptr[i + 1]
        data, indices = self.data[start:stop], self.indices[start:stop]
        for p in range(data.size):
            j = np.uint32(indices[p])
            term, before = c * data[p], w[j]
            total = before + term
            part = total - before
            low[j] += (before - (total - part)) + (term - part)
            w[j] = total
        last = w.size - 1
        term, before = c * self.bias, w[last]
        total = before + term
        part = total - before
        low[last] += (before - (total - part)) + (term - part)
        w[last] = total

    def sqnorm(self, i: int) -> float:
        """Return ||x_i||^2, including the constant feature."""
        data, total = self.data[self.indptr[i] : self.indptr[i + 1]], self.bias * self.bias
        for p in range(data.size):
            total += np.float64(data[p]) * data[p]
        return total


Rows: TypeAlias = Dense | CSR


@saved_as("rows.labelled")
class Labeled(NamedTuple):
    """Rows with their targets and weights, as most compiled passes take them."""

    X: Rows
    y: Targets
    """The targets, (n,)."""
    s: Float32 | Float64
    """The factors of C, (n,)."""


def row_count(X: Rows) -> int:
    """Return the number of rows."""
    return len(X.values) if isinstance(X, Dense) else len(X.indptr) - 1


def check_columns(X: Rows, columns: int) -> None:
    """Raise DataError E-SCHEMA if rows have more columns than the ``columns`` of a model, or dense rows fewer."""
    width = X.values.shape[1] if isinstance(X, Dense) else int(X.indices.max(initial=-1)) + 1
    if width > columns or (isinstance(X, Dense) and width != columns):
        raise DataError(
            f"rows have {width} columns, the model {columns}",
            code="E-SCHEMA",
            hint="apply the model to data with the columns it was trained on",
        )


def find_column_places(X: CSR, columns: Int32 | Int64) -> Int32:
    """Return the place of each column in ``columns``, or -1; up to the last column that has an entry or is in ``columns``."""
    places = np.full(int(max(X.indices.max(initial=-1), columns.max(initial=-1))) + 1, -1, np.int32)
    places[columns] = np.arange(len(columns))
    return places


def row_slice(X: Rows, start: int, stop: int) -> Rows:
    """Return rows [start, stop) as a record of the same kind. Values are not copied; the indptr of a CSR is."""
    if isinstance(X, Dense):
        return Dense(X.values[start:stop], X.bias)
    low, high = X.indptr[start], X.indptr[stop]
    return CSR(X.data[low:high], X.indices[low:high], X.indptr[start : stop + 1] - low, X.bias)


def copy_rows(X: Rows) -> Rows:
    """Return a copy of rows that shares no arrays with them."""
    if isinstance(X, Dense):
        return Dense(X.values.copy(), X.bias)
    return CSR(X.data.copy(), X.indices.copy(), X.indptr.copy(), X.bias)


def row_where(X: Rows, chosen: NDArray[np.bool_]) -> Rows:
    """Return a copy of the rows where ``chosen`` (n,) is true, in order."""
    if isinstance(X, Dense):
        return Dense(X.values.take(np.flatnonzero(chosen), axis=0), X.bias)
    lengths = np.diff(X.indptr)
    entries = np.repeat(chosen, lengths)
    indptr = np.concatenate([[0], np.cumsum(lengths[chosen])]).astype(np.int64)
    return CSR(X.data[entries], X.indices[entries], indptr, X.bias)


def row_stack(parts: Sequence[Rows]) -> Rows:
    """Concatenate several records of one kind."""
    if isinstance(parts[0], Dense):
        return Dense(np.concatenate([p.values for p in parts if isinstance(p, Dense)]), parts[0].bias)
    sparse = [p for p in parts if isinstance(p, CSR)]
    lengths = np.concatenate([np.diff(p.indptr) for p in sparse])
    indptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    data, indices = np.concatenate([p.data for p in sparse]), np.concatenate([p.indices for p in sparse])
    return CSR(data, indices, indptr, parts[0].bias)


def with_entries(X: CSR, columns: Int64) -> CSR:
    """Return the rows with explicit zeros added, so that each row has an entry in every one of ``columns`` (k >= 1,), ascending.

    A shift of these columns can then be applied to the stored entries.
    """
    rows, lengths = row_count(X), np.diff(X.indptr)
    number = np.repeat(np.arange(rows), lengths)
    position = np.searchsorted(columns, X.indices)
    matches = columns[np.minimum(position, len(columns) - 1)] == X.indices
    present = np.zeros((rows, len(columns)), bool)
    present[number[matches], position[matches]] = True
    if present.all():
        return X
    row, column = np.nonzero(~present)
    number, indices = np.concatenate([number, row]), np.concatenate([X.indices, columns[column].astype(np.int32)])
    order = np.lexsort((indices, number))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(number, minlength=rows))]).astype(np.int64)
    data = np.concatenate([X.data, np.zeros(len(row), X.data.dtype)])
    return CSR(data[order], indices[order], indptr, X.bias)


@saved_as("rows.reach")
class Reach(NamedTuple):
    """Bounds on the size of rows, from which bounds on rounding errors are computed."""

    entries: int
    """The maximum number of entries of a row."""
    square: float
    """The maximum of ||x||^2, without the constant feature."""
    dense: bool = True
    """Whether the rows are dense."""
    whole: bool = False
    """Whether all entries are known to be whole numbers from 0 to 255."""

    def join(self, other: Reach) -> Reach:
        """Return the bounds for the rows of both."""
        entries, square = max(self.entries, other.entries), max(self.square, other.square)
        return Reach(entries, square, self.dense, self.whole and other.whole)


def to_matrix(X: Rows, columns: int) -> Float32:
    """Return the rows as a float32 matrix (n, columns), which is not a copy if the rows are dense."""
    if isinstance(X, Dense):
        return X.values
    values = np.zeros((row_count(X), columns), np.float32)
    values[np.repeat(np.arange(len(values)), np.diff(X.indptr)), X.indices] = X.data
    return values


def to_csr(X: Dense) -> CSR:
    """Convert dense rows to CSR; zeros are not stored."""
    nonzero = X.values != 0
    indptr = np.zeros(len(X.values) + 1, np.int64)
    np.cumsum(np.count_nonzero(nonzero, axis=1), out=indptr[1:])
    return CSR(X.values[nonzero], np.nonzero(nonzero)[1].astype(np.int32), indptr, X.bias)


def in_layout(X: Rows, *, sparse: bool, columns: int | None) -> Rows:
    """Return the rows as CSR if ``sparse``, else as dense rows with ``columns`` columns."""
    if sparse:
        return to_csr(X) if isinstance(X, Dense) else X
    if isinstance(X, Dense):
        return X
    assert columns is not None
    return Dense(to_matrix(X, columns), X.bias)


def density(X: Rows, columns: int) -> float:
    """Return the fraction of entries that are stored."""
    if isinstance(X, Dense):
        return 1.0
    return len(X.data) / max(1, columns * (len(X.indptr) - 1))
