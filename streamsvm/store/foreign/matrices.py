"""Matrices, labels and names of columns in HDF5 files and Zarr directories of other programs.

A file is a tree of groups and arrays (``ForeignFile``), an array is read by rows (``RowArray``), and a matrix of
features is dense, CSR or CSC (``Features``). AnnData stores a sparse matrix, categories, a table, or values with a mask
of missing ones as a group of several arrays, and so does MATLAB with a sparse matrix; the attributes of the group tell
which it is.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from streamsvm.errors import DataError, StorageError, quote
from streamsvm.rows import CSR, Dense, Int64, Rows
from streamsvm.store.disk_reads import is_disk_error
from streamsvm.store.sources.array_rows import KINDS, as_numbers
from streamsvm.type_aliases import Array, DType, ValuesByName

CSR_MATRIX, CSC_MATRIX = "csr_matrix", "csc_matrix"
NULLABLE = ("nullable-integer", "nullable-boolean", "nullable-string-array")
MOST_CATEGORIES = 1 << 20
"""The most categories of labels, which are kept in memory; a column with more is rather an id of rows."""
NAMES_OF = {"raw/X": "raw/var", "layers": "var", "X": "var"}
"""The table that describes the columns of a matrix in an AnnData file, by the name of the matrix or of its group."""
SLICE_BYTES = 4 << 20
"""Bytes of rows that are read at a time from an array without chunks."""
INDPTR_ROWS = 1 << 18
"""Entries of an indptr that are read at a time while it is checked."""
LARGEST_INDEX = 2**31 - 1
"""The largest column index of CSR rows, whose indices are int32."""
PIECE_ENTRIES = 1 << 20
"""Entries of a CSC matrix that are read at a time."""
SPAN_ENTRIES = 4 << 20
"""The most entries of a CSC matrix that are gathered into rows at a time."""
GATHERED_BYTES = 48
"""Bytes of memory per entry of a CSC matrix while rows are gathered."""


class Keys(NamedTuple):
    """The names of the arrays to read from a file, and what may be missing in it."""

    features: str
    """The array, or the group of a sparse matrix, that holds the features."""
    labels: str | None
    """The array that holds the labels; None to read no labels."""
    labels_needed: bool = True
    """Whether a file without labels is an error."""
    allow_fill: bool = False
    """Whether chunks that were never written are read as the fill value."""


class RowArray(Protocol):
    """An array that can be read by ranges of rows."""

    name: str
    """The name in messages: the file, and the key of the array in it."""
    shape: tuple[int, ...]
    """The shape, rows first."""
    dtype: DType
    chunk: tuple[int, ...]
    """The shape of a chunk; as wide as ``shape`` if rows can be read one by one."""
    can_slice: bool
    """Whether a part of a chunk can be read without the rest."""

    def read(self, start: int, stop: int) -> Array:
        """Return rows [start, stop) in the array's own type. Raises DataError, StorageError."""
        ...


class Features(Protocol):
    """A matrix of features, dense or sparse, that can be read by ranges of rows."""

    rows: int
    columns: int
    name: str
    sparse: bool
    step: int
    """The number of rows to read at a time, so that each chunk is read once."""
    chunk_bytes: int
    """Bytes of memory that reading ``step`` rows takes."""

    def entries(self) -> tuple[int, ...] | None:
        """Return the stored entries of each ``step`` rows; None if the matrix is dense."""
        ...

    def read(self, start: int, stop: int, *, missing: bool = False, exact: bool = False) -> Rows:
        """Return rows [start, stop) as float32, or with ``exact`` as float64.

        With ``missing``, NaN is returned as a missing value; otherwise it is an error. Raises DataError E-NONFINITE,
        E-RANGE, E-INDEX.
        """
        ...


@dataclass(frozen=True, slots=True)
class Foreign:
    """The arrays of an open file or directory."""

    features: Features
    labels: RowArray | None
    """The labels, one per row; None if there are none."""
    close: Callable[[], None]
    names: tuple[str, ...] | None = None
    """The names of the columns of ``features``; None if they have none."""


class ForeignFile(Protocol):
    """A file or directory of named arrays and groups."""

    name: str

    def kind(self, key: str) -> str | None:
        """Return 'array' or 'group'; None if there is no member ``key``."""
        ...

    def attributes(self, key: str) -> ValuesByName:
        """Return the attributes of an array or group."""
        ...

    def array(self, key: str, *, may_lack_chunks: bool = False) -> RowArray:
        """Open an array. With ``may_lack_chunks``, missing chunks are read as fill values: Zarr does not write chunks
        that hold nothing else.

        Raises DataError, SecurityError.
        """
        ...

    def members(self, key: str) -> list[str]:
        """Return the names of the members of a group."""
        ...


def features_of(file: ForeignFile, key: str) -> Features:
    """Return the matrix at a key: a 2-D array, or a group of a sparse matrix. Raises DataError."""
    kind, name = file.kind(key), f"{file.name}:{key}"
    if kind is None:
        members = ", ".join(quote(member, 40) for member in file.members("")[:12])
        raise DataError(f"{file.name} has no array {quote(key)}", code="E-SCHEMA", hint=f"it has {members}")
    if kind == "array":
        return DenseRows(file.array(key))
    attributes = file.attributes(key)
    if "MATLAB_sparse" in attributes:
        parts = [file.array(f"{key}/{part}") for part in ("data", "ir", "jc")]
        return SparseColumns(name, (parts[0], parts[1], parts[2]), int(attributes["MATLAB_sparse"]))
    encoding = _text(attributes.get("encoding-type", CSR_MATRIX))
    if encoding not in (CSR_MATRIX, CSC_MATRIX) or "shape" not in attributes:
        raise DataError(
            f"'{key}' of {file.name} is a group of type {quote(encoding)}",
            code="E-LAYOUT",
            hint="an array is needed, or a csr_matrix or csc_matrix as AnnData writes them",
        )
    parts = [file.array(f"{key}/{part}") for part in ("data", "indices", "indptr")]
    rows, columns = (int(n) for n in attributes["shape"])
    if encoding == CSC_MATRIX:
        return SparseColumns(name, (parts[0], parts[1], parts[2]), rows, columns)
    return SparseRows(name, (parts[0], parts[1], parts[2]), (rows, columns))


def labels_of(file: ForeignFile, key: str) -> RowArray | None:
    """Return the labels at a key: an array, or a group of categories or of values with a mask; None if there is no
    member ``key``. Raises DataError E-LAYOUT for other groups.
    """
    kind = file.kind(key)
    if kind is None:
        return None
    attributes = file.attributes(key)
    parent, _, leaf = key.strip("/").rpartition("/")
    legacy = f"{parent}/__categories/{leaf}".lstrip("/")
    if kind == "array":
        array = file.array(key)
        if "categories" in attributes and file.kind(legacy) is not None:
            return _CategoryLabels(array, _values(file, legacy))
        if len(array.shape) == 2 and 1 in array.shape:
            return _FlatLabels(array)
        return array
    encoding = _text(attributes.get("encoding-type", ""))
    parts = set(file.members(key))
    if encoding == "categorical" or (not encoding and {"codes", "categories"} <= parts):
        return _CategoryLabels(file.array(f"{key}/codes"), _values(file, f"{key}/categories"))
    if encoding in NULLABLE or (not encoding and {"values", "mask"} <= parts):
        return _MaskedLabels(file.array(f"{key}/values"), file.array(f"{key}/mask", may_lack_chunks=True))
    group_type = f" of type {quote(encoding)}" if encoding else ""
    names = ", ".join(quote(f"{key}/{part}".lstrip("/"), 60) for part in sorted(parts)[:12])
    raise DataError(
        f"'{key}' of {file.name} is a group{group_type}, not labels",
        code="E-LAYOUT",
        hint=f"name an array of it with --labels-key: {names}" if names else "name an array with --labels-key",
    )


def names_of(file: ForeignFile, key: str, columns: int) -> tuple[str, ...] | None:
    """Return the names of the columns of an AnnData matrix, from the index of its ``var``; None if there are none."""
    table = NAMES_OF.get(key.strip("/")) or NAMES_OF.get(key.strip("/").rpartition("/")[0])
    if table is None or file.kind(table) != "group":
        return None
    index = _text(file.attributes(table).get("_index", ""))
    if not index or file.kind(f"{table}/{index}") is None:
        return None
    values = _values(file, f"{table}/{index}", most=None)
    return tuple(map(str, values.tolist())) if values.shape == (columns,) else None


def _values(file: ForeignFile, key: str, most: int | None = MOST_CATEGORIES) -> Array:
    """Return all values of an array, or of a group of text with a mask. Raises DataError E-LIMIT for more than
    ``most``.
    """
    if file.kind(key) == "group" and {"codes", "categories"} & set(file.members(key)):
        raise DataError(
            f"{quote(key)} of {file.name} holds codes, not values", code="E-LAYOUT", hint="write the file again"
        )
    array = labels_of(file, key)
    if array is None:
        raise DataError(f"{file.name} has no array {quote(key)}", code="E-SCHEMA", hint="write the file again")
    if most is not None and array.shape[0] > most:
        raise DataError(f"{array.name} holds {array.shape[0]} categories", code="E-LIMIT", hint="name other labels")
    return array.read(0, array.shape[0])


def _text(value: Any) -> str:
    """Return an attribute as text; h5py returns bytes if the file does not declare UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class DenseRows:
    """The features of a 2-D array; a ``Features``."""

    sparse = False

    def __init__(self, array: RowArray) -> None:
        check_numbers(array, dimensions=2)
        self._array = array
        self.rows, self.columns = array.shape
        self.name = array.name
        slice_rows = max(1, SLICE_BYTES // (4 * self.columns))
        self.step = min(array.chunk[0], slice_rows) if array.can_slice else array.chunk[0]
        row_bytes = array.dtype.itemsize * self.columns
        self.chunk_bytes = self.step * row_bytes if array.can_slice else 3 * array.chunk[0] * row_bytes

    def entries(self) -> tuple[int, ...] | None:
        """Return None: the matrix is dense."""
        return None

    def read(self, start: int, stop: int, *, missing: bool = False, exact: bool = False) -> Rows:
        """Return rows [start, stop), as ``Features.read`` does."""
        return Dense(as_numbers(self._array.read(start, stop), self.name, start, missing=missing, exact=exact))


class SparseRows:
    """The features of a CSR matrix, stored as ``data``, ``indices`` and ``indptr`` as AnnData writes it; a
    ``Features``.

    Every ``step``-th entry of the indptr stays in memory.
    """

    sparse = True

    def __init__(self, name: str, parts: tuple[RowArray, RowArray, RowArray], shape: tuple[int, int]) -> None:
        self._data, self._indices, self._indptr = parts
        for part in parts:
            check_numbers(part, dimensions=1)
        self.rows, self.columns = shape
        self.name = name
        if not self.rows:
            raise no_rows_error(name)
        entries = self._data.shape[0]
        shapes_match = self._indptr.shape == (self.rows + 1,) and self._indices.shape == (entries,)
        if not shapes_match or self.columns > LARGEST_INDEX:
            raise _inconsistent_error(name)
        self.step = max(1, int(SLICE_BYTES / 8 / max(1.0, entries / self.rows)))
        chunk = 0 if self._data.can_slice else self._data.chunk[0] * self._data.dtype.itemsize
        self.chunk_bytes = 2 * SLICE_BYTES + 3 * chunk
        self._starts = self._read_starts(entries)

    def entries(self) -> tuple[int, ...] | None:
        """Return the stored entries of each ``step`` rows."""
        return tuple(np.diff(self._starts).tolist())

    def read(self, start: int, stop: int, *, missing: bool = False, exact: bool = False) -> Rows:
        """Return rows [start, stop) as CSR with sorted indices, as ``Features.read`` does."""
        indptr = self._indptr.read(start, stop + 1).astype(np.int64)
        low, high = int(indptr[0]), int(indptr[-1])
        if (
            low < 0 or high > self._data.shape[0] or (np.diff(indptr) < 0).any()
        ):  # the file has changed since it was checked
            raise _inconsistent_error(self.name)
        indices = self._indices.read(low, high)
        if len(indices) and not (0 <= indices.min() and indices.max() < self.columns):
            row = start + int(np.searchsorted(indptr, low + indices.argmax(), side="right"))
            message = f"{self.name} row {row}: an index is not below {self.columns}"
            raise DataError(message, code="E-INDEX", hint="write the matrix again")
        data = self._data.read(low, high).reshape(-1, 1)
        values = as_numbers(data, self.name, low, missing=missing, exact=exact)
        return _sort_rows(CSR(values.ravel(), indices.astype(np.int32), indptr - low))

    def _read_starts(self, entries: int) -> Int64:
        """Return the indptr of every ``step``-th row, and its last entry. Raises DataError E-SHAPE if it decreases."""
        starts, last = [], 0
        piece = self.step * max(1, INDPTR_ROWS // self.step)
        for start in range(0, self.rows, piece):
            indptr = self._indptr.read(start, min(start + piece, self.rows)).astype(np.int64)
            if indptr[0] < last or (start == 0 and indptr[0] != 0) or (np.diff(indptr) < 0).any():
                raise _inconsistent_error(self.name)
            starts.append(indptr[:: self.step])
            last = indptr[-1]
        if self._indptr.read(self.rows, self.rows + 1)[0] != entries or last > entries:
            raise _inconsistent_error(self.name)
        return np.concatenate([*starts, [entries]])


class SparseColumns:
    """The features of a CSC matrix, which is stored by columns; a ``Features``.

    Rows are gathered from all columns, a span of consecutive rows at a time. Gathering a span reads the whole matrix
    once; a span has at most ``SPAN_ENTRIES`` entries, which stay in memory until the next span is gathered.
    """

    sparse = True

    def __init__(
        self, name: str, parts: tuple[RowArray, RowArray, RowArray], rows: int, columns: int | None = None
    ) -> None:
        self._data, self._indices, self._indptr = parts
        for part in parts:
            check_numbers(part, dimensions=1)
        self.name, self.rows = name, rows
        if not rows:
            raise no_rows_error(name)
        self.columns = self._indptr.shape[0] - 1 if columns is None else columns
        self._entries = self._data.shape[0]
        shapes_match = self._indptr.shape == (self.columns + 1,) and self._indices.shape == (self._entries,)
        if not shapes_match or not 0 < self.columns <= LARGEST_INDEX or rows < 1:
            raise _inconsistent_error(name)
        self.fits_one_span = self._entries <= SPAN_ENTRIES
        self.step = max(1, int(SLICE_BYTES / 8 / max(1.0, self._entries / self.rows)))
        chunk = 0 if self._data.can_slice else self._data.chunk[0] * self._data.dtype.itemsize
        self.chunk_bytes = 2 * SLICE_BYTES + 3 * chunk + GATHERED_BYTES * min(self._entries, SPAN_ENTRIES)
        self._ends: Int64 | None = None
        self._span = (0, 0)
        """The rows [start, stop) that are gathered."""
        self._gathered = CSR(np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(1, np.int64))
        self._options: tuple[bool, bool] | None = None
        """The arguments ``missing`` and ``exact`` with which they were gathered."""

    def entries(self) -> tuple[int, ...] | None:
        """Return the stored entries of each ``step`` rows."""
        ends = np.concatenate([[0], self._row_ends()])
        cuts = [*range(0, self.rows, self.step), self.rows]
        return tuple(np.diff(ends[cuts]).tolist())

    def read(self, start: int, stop: int, *, missing: bool = False, exact: bool = False) -> Rows:
        """Return rows [start, stop) as CSR with sorted indices, as ``Features.read`` does."""
        first, last = self._span
        if not (first <= start and stop <= last) or self._options != (missing, exact):
            self._gather(start, max(stop, self._span_end(start)), missing=missing, exact=exact)
            first = start
        indptr = self._gathered.indptr[start - first : stop - first + 1]
        low, high = int(indptr[0]), int(indptr[-1])
        return CSR(self._gathered.data[low:high].copy(), self._gathered.indices[low:high].copy(), indptr - low)

    def _row_ends(self) -> Int64:
        """Return the cumulative number of entries up to and including each row. Raises DataError E-INDEX for an index
        out of range.
        """
        if self._ends is None:
            counts = np.zeros(self.rows, np.int64)
            for low in range(0, self._entries, PIECE_ENTRIES):
                rows = self._read_rows(low, min(low + PIECE_ENTRIES, self._entries))
                counts += np.bincount(rows, minlength=self.rows)
            self._ends = np.cumsum(counts)
        return self._ends

    def _read_rows(self, low: int, high: int) -> Array:
        """Return the row indices of entries [low, high)."""
        rows = self._indices.read(low, high)
        if len(rows) and not (0 <= rows.min() and rows.max() < self.rows):
            message = f"{self.name} entry {low + int(rows.argmax()) + 1}: an index is not below {self.rows}"
            raise DataError(message, code="E-INDEX", hint="write the matrix again")
        return rows

    def _span_end(self, start: int) -> int:
        """Return the end of the largest span that begins at row ``start`` and has at most ``SPAN_ENTRIES`` entries."""
        ends = self._row_ends()
        entries_before = int(ends[start - 1]) if start else 0
        return int(np.searchsorted(ends, entries_before + SPAN_ENTRIES, side="right"))

    def _gather(self, start: int, stop: int, *, missing: bool, exact: bool) -> None:
        """Gather the entries of rows [start, stop) from all columns."""
        indptr = self._indptr.read(0, self.columns + 1).astype(np.int64)
        if indptr[0] != 0 or indptr[-1] != self._entries or (np.diff(indptr) < 0).any():
            raise _inconsistent_error(self.name)
        rows, columns, values = [], [], []
        for low in range(0, self._entries, PIECE_ENTRIES):
            high = min(low + PIECE_ENTRIES, self._entries)
            row = self._read_rows(low, high)
            chosen = np.flatnonzero((row >= start) & (row < stop))
            if not len(chosen):
                continue
            rows.append((row[chosen] - start).astype(np.int32))
            columns.append((np.searchsorted(indptr, low + chosen, side="right") - 1).astype(np.int32))
            piece = self._data.read(low, high)[chosen].reshape(-1, 1)
            values.append(as_numbers(piece, self.name, low, missing=missing, exact=exact).ravel())
        dtype = np.float64 if exact else np.float32
        row = np.concatenate(rows) if rows else np.empty(0, np.int32)
        order = np.argsort(row, kind="stable")
        data: Array = np.concatenate(values)[order] if rows else np.empty(0, dtype)
        indices = np.concatenate(columns)[order] if rows else np.empty(0, np.int32)
        ends = np.zeros(stop - start + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=stop - start), out=ends[1:])
        self._gathered = _sort_rows(CSR(data, indices, ends))
        self._span, self._options = (start, stop), (missing, exact)


def _inconsistent_error(name: str) -> DataError:
    message = f"{name}: data, indices and indptr do not fit together"
    return DataError(message, code="E-SHAPE", hint="write the matrix again")


def _sort_rows(X: CSR) -> CSR:
    """Return the rows with sorted indices. Raises DataError E-DUP for an index that occurs twice in a row."""
    not_rising = X.indices[1:] <= X.indices[:-1]
    not_rising[X.indptr[1:-1][(X.indptr[1:-1] > 0) & (X.indptr[1:-1] < len(X.indices))] - 1] = False
    if not not_rising.any():
        return X
    row = np.repeat(np.arange(len(X.indptr) - 1), np.diff(X.indptr))
    order = np.lexsort((X.indices, row))
    data, indices = X.data[order], X.indices[order]
    repeated = (indices[1:] == indices[:-1]) & (row[1:] == row[:-1])
    if repeated.any():
        first = int(row[1:][repeated][0])
        raise DataError(f"a column occurs twice in row {first + 1} of a slice", code="E-DUP", hint="sum them first")
    return CSR(data, indices, X.indptr)


class _CategoryLabels:
    """Labels that are stored as codes of categories; a ``RowArray``."""

    def __init__(self, codes: RowArray, categories: Array) -> None:
        self._codes, self._categories = codes, categories
        self.name, self.shape, self.chunk, self.can_slice = codes.name, codes.shape, codes.chunk, codes.can_slice
        self.dtype = categories.dtype

    def read(self, start: int, stop: int) -> Array:
        codes = self._codes.read(start, stop).astype(np.int64)
        if (codes < 0).any():
            _refuse_missing(self.name, start + int((codes < 0).argmax()))
        if len(codes) and codes.max() >= len(self._categories):
            row = start + int(codes.argmax()) + 1
            message = f"{self.name} row {row}: category {codes.max()} of {len(self._categories)}"
            raise DataError(message, code="E-INDEX", hint="write the labels again")
        return self._categories[codes]


class _MaskedLabels:
    """Labels that are stored with a mask of missing ones; a ``RowArray``."""

    def __init__(self, values: RowArray, mask: RowArray) -> None:
        self._values, self._mask = values, mask
        self.name, self.shape, self.chunk, self.can_slice = values.name, values.shape, values.chunk, values.can_slice
        self.dtype = values.dtype
        if mask.shape != values.shape:
            message = f"{mask.name} has the shape {mask.shape}, {values.name} {values.shape}"
            raise DataError(message, code="E-SHAPE", hint="write the labels again")

    def read(self, start: int, stop: int) -> Array:
        mask = self._mask.read(start, stop).astype(np.bool_)
        if mask.any():
            _refuse_missing(self.name, start + int(mask.argmax()))
        return self._values.read(start, stop)


class _FlatLabels:
    """Labels that are stored as a matrix of one column or one row; a ``RowArray``."""

    def __init__(self, array: RowArray) -> None:
        self._array = array
        self.name, self.dtype, self.can_slice = array.name, array.dtype, array.can_slice
        self.shape: tuple[int, ...] = (array.shape[0] * array.shape[1],)
        self.chunk: tuple[int, ...] = (max(array.chunk),)

    def read(self, start: int, stop: int) -> Array:
        if self._array.shape[1] == 1:
            return self._array.read(start, stop).reshape(-1)
        return self._array.read(0, 1).reshape(-1)[start:stop]


def _refuse_missing(name: str, row: int) -> NoReturn:
    """Raise DataError E-LABEL for a row, counted from 0, without a label."""
    raise DataError(
        f"{name} row {row + 1} has no label: it is missing",
        code="E-LABEL",
        hint="give such rows a category of their own, or leave them out: adata[adata.obs[KEY].notna()]",
    )


def read_error(error: Exception, message: str, code: str, hint: str) -> DataError | StorageError:
    """Return the error to raise for an ``error`` of a library: StorageError if the disk caused it, else DataError."""
    if is_disk_error(error):
        return StorageError(f"{message}: {os.strerror(errno.EIO)}", hint="check the disk")
    return DataError(f"{message}: {quote(str(error), 120)}", code=code, hint=hint)


def check_rows(name: str, shape: tuple[int, ...]) -> None:
    """Raise DataError E-SHAPE for an array without dimensions, that is a single number."""
    if not shape:
        hint = "expected (rows, columns), or one number an entry"
        raise DataError(f"{name} is a single number", code="E-SHAPE", hint=hint)


def no_rows_error(name: str) -> DataError:
    """Return the error for a matrix without rows."""
    return DataError(f"{name} holds no rows", code="E-EMPTY", hint="check that it is the right file")


def check_numbers(array: RowArray, dimensions: int) -> None:
    """Raise DataError E-SHAPE or E-DTYPE unless an array holds numbers and has ``dimensions`` dimensions."""
    if dimensions == 2 and len(array.shape) == 2 and array.shape[0] == 0 < array.shape[1]:
        raise no_rows_error(array.name)
    if len(array.shape) != dimensions or 0 in array.shape[1:] or (dimensions == 2 and not array.shape[0]):
        expected = "(rows, columns)" if dimensions == 2 else "one number an entry"
        raise DataError(f"{array.name} has the shape {array.shape}", code="E-SHAPE", hint=f"expected {expected}")
    if array.dtype.kind not in KINDS:
        raise DataError(f"{array.name} holds {array.dtype}, not numbers", code="E-DTYPE", hint="store plain numbers")
