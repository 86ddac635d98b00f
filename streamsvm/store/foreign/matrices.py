"""Matrices, labels and names of columns in the files of other programs, whatever library reads them.

A file is a tree of groups and arrays (``ForeignFile``), an array gives rows (``RowArray``), a matrix of features is
dense, CSR or CSC (``Features``). The attributes of a group say what its arrays are together: AnnData writes sparse
matrices, categories, tables, and values beside a mask of missing ones as groups, MATLAB its sparse matrices.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from streamsvm.aliases import Array, ByName, DType
from streamsvm.errors import DataError, StorageError, quote
from streamsvm.rows import CSR, Dense, Int64, Rows
from streamsvm.store.disk_reads import is_disk_error
from streamsvm.store.sources.array_rows import KINDS, as_numbers

CSR_MATRIX, CSC_MATRIX = "csr_matrix", "csc_matrix"
NULLABLE = ("nullable-integer", "nullable-boolean", "nullable-string-array")
MOST_CATEGORIES = 1 << 20
"""Most categories of labels, which are held in memory; more are rather the names of rows."""
NAMES_OF = {"raw/X": "raw/var", "layers": "var", "X": "var"}
"""The table of the columns of a matrix of an AnnData file, by the name of the matrix or of its group."""
SLICE_BYTES = 4 << 20
"""Bytes of rows that are read at a time where the array has no chunks."""
INDPTR_ROWS = 1 << 18
"""Entries of an indptr that are read at a time while it is checked."""
LARGEST_INDEX = 2**31 - 1
"""The largest column index a CSR block can hold: its indices are int32."""
PIECE_ENTRIES = 1 << 20
"""Entries of a CSC matrix that are read at a time."""
SPAN_ENTRIES = 4 << 20
"""Entries of rows of a CSC matrix that are in memory together."""
GATHERED_BYTES = 48
"""Bytes of an entry of a CSC matrix while rows are gathered."""


class Keys(NamedTuple):
    """The names of the arrays in a file, and whether they may be missing."""

    features: str
    """The array, or the group of a CSR matrix, that holds the features."""
    labels: str | None
    """The array that holds the labels; None where there are none to read."""
    labels_needed: bool = True
    """Whether a file without labels is an error."""
    allow_fill: bool = False
    """Whether chunks that were never written are read as the fill value."""


class RowArray(Protocol):
    """An array of which some rows can be read."""

    name: str
    """The name in messages: the file and the place in it."""
    shape: tuple[int, ...]
    """Its shape; rows come first."""
    dtype: DType
    chunk: tuple[int, ...]
    """The shape of a chunk; as wide as ``shape`` where rows can be read one by one."""
    sliced: bool
    """Whether part of a chunk can be read without the rest."""

    def read(self, start: int, stop: int) -> Array:
        """Return rows [start, stop) in the array's own type. Raises DataError, StorageError."""
        ...


class Features(Protocol):
    """A matrix of features, dense or CSR, of which some rows can be read."""

    rows: int
    columns: int
    name: str
    sparse: bool
    step: int
    """The number of rows that are best read at a time."""
    chunk_bytes: int
    """Bytes of memory a chunk takes while it is read."""

    def entries(self) -> tuple[int, ...] | None:
        """Return the stored entries of each ``step`` rows; None when the matrix is dense."""
        ...

    def read(self, start: int, stop: int, *, missing: bool = False, exact: bool = False) -> Rows:
        """Return rows [start, stop) as float32, or as float64 where they are to be ``exact``.

        With ``missing``, NaN stands for a missing value; otherwise it is an error. Raises DataError E-NONFINITE,
        E-RANGE, E-INDEX.
        """
        ...


@dataclass(frozen=True, slots=True)
class Foreign:
    """The arrays of an opened file or directory."""

    features: Features
    labels: RowArray | None
    """The labels, one a row; None where there are none."""
    close: Callable[[], None]
    names: tuple[str, ...] | None = None
    """The names of the columns of features; None where they have none."""


class ForeignFile(Protocol):
    """A file or directory of arrays and groups that have names."""

    name: str

    def kind(self, key: str) -> str | None:
        """Return 'array' or 'group'; None where there is nothing of this name."""
        ...

    def attributes(self, key: str) -> ByName:
        """Return the attributes of an array or group."""
        ...

    def array(self, key: str, *, may_lack_chunks: bool = False) -> RowArray:
        """Open an array; ``may_lack_chunks``: chunks of its fill value may be missing, as Zarr does not write them.

        Raises DataError, SecurityError.
        """
        ...

    def members(self, key: str) -> list[str]:
        """Return the names in a group."""
        ...


def features_of(file: ForeignFile, key: str) -> Features:
    """Return the matrix that a key names: a 2-D array, or a group of a sparse matrix. Raises DataError."""
    kind, name = file.kind(key), f"{file.name}:{key}"
    if kind is None:
        there = ", ".join(quote(one, 40) for one in file.members("")[:12])
        raise DataError(f"{file.name} has no array {quote(key)}", code="E-SCHEMA", hint=f"it has {there}")
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
    """Return the labels that a key names: an array, or a group of categories or of values with a mask; None where there
    is nothing of this name. Raises DataError E-LAYOUT for other groups.
    """
    kind = file.kind(key)
    if kind is None:
        return None
    attributes = file.attributes(key)
    above, _, leaf = key.strip("/").rpartition("/")
    legacy = f"{above}/__categories/{leaf}".lstrip("/")
    if kind == "array":
        found = file.array(key)
        if "categories" in attributes and file.kind(legacy) is not None:
            return _Categories(found, _values(file, legacy))
        if len(found.shape) == 2 and 1 in found.shape:
            return _Flat(found)
        return found
    encoding = _text(attributes.get("encoding-type", ""))
    parts = set(file.members(key))
    if encoding == "categorical" or (not encoding and {"codes", "categories"} <= parts):
        return _Categories(file.array(f"{key}/codes"), _values(file, f"{key}/categories"))
    if encoding in NULLABLE or (not encoding and {"values", "mask"} <= parts):
        return _Masked(file.array(f"{key}/values"), file.array(f"{key}/mask", may_lack_chunks=True))
    called = f" of type {quote(encoding)}" if encoding else ""
    listed = ", ".join(quote(f"{key}/{part}".lstrip("/"), 60) for part in sorted(parts)[:12])
    raise DataError(
        f"'{key}' of {file.name} is a group{called}, not labels",
        code="E-LAYOUT",
        hint=f"name an array of it with --labels-key: {listed}" if listed else "name an array with --labels-key",
    )


def names_of(file: ForeignFile, key: str, columns: int) -> tuple[str, ...] | None:
    """Return the names of the columns of a matrix of AnnData, by the index of its ``var``; None where it has none."""
    table = NAMES_OF.get(key.strip("/")) or NAMES_OF.get(key.strip("/").rpartition("/")[0])
    if table is None or file.kind(table) != "group":
        return None
    index = _text(file.attributes(table).get("_index", ""))
    if not index or file.kind(f"{table}/{index}") is None:
        return None
    values = _values(file, f"{table}/{index}", most=None)
    return tuple(map(str, values.tolist())) if values.shape == (columns,) else None


def _values(file: ForeignFile, key: str, most: int | None = MOST_CATEGORIES) -> Array:
    """All values of an array, or of a group of text with a mask, in memory. Raises DataError E-LIMIT for too many."""
    if file.kind(key) == "group" and {"codes", "categories"} & set(file.members(key)):
        raise DataError(
            f"{quote(key)} of {file.name} holds codes, not values", code="E-LAYOUT", hint="write the file again"
        )
    found = labels_of(file, key)
    if found is None:
        raise DataError(f"{file.name} has no array {quote(key)}", code="E-SCHEMA", hint="write the file again")
    if most is not None and found.shape[0] > most:
        raise DataError(f"{found.name} holds {found.shape[0]} categories", code="E-LIMIT", hint="name other labels")
    return found.read(0, found.shape[0])


def _text(value: Any) -> str:
    """An attribute as text: h5py returns bytes where a file does not declare UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class DenseRows:
    """The features of a 2-D array."""

    sparse = False

    def __init__(self, array: RowArray) -> None:
        check_numbers(array, dimensions=2)
        self._array = array
        self.rows, self.columns = array.shape
        self.name = array.name
        slice_rows = max(1, SLICE_BYTES // (4 * self.columns))
        self.step = min(array.chunk[0], slice_rows) if array.sliced else array.chunk[0]
        row_bytes = array.dtype.itemsize * self.columns
        self.chunk_bytes = self.step * row_bytes if array.sliced else 3 * array.chunk[0] * row_bytes

    def entries(self) -> tuple[int, ...] | None:
        """Return None: a dense matrix stores every place."""
        return None

    def read(self, start: int, stop: int, *, missing: bool = False, exact: bool = False) -> Rows:
        """Return rows [start, stop) as float32; see ``Features.read``."""
        return Dense(as_numbers(self._array.read(start, stop), self.name, start, missing=missing, exact=exact))


class SparseRows:
    """The features of a group of ``data``, ``indices`` and ``indptr``, as AnnData writes it.

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
        whole = self._indptr.shape == (self.rows + 1,) and self._indices.shape == (entries,)
        if not whole or self.columns > LARGEST_INDEX:
            raise self._inconsistent()
        self.step = max(1, int(SLICE_BYTES / 8 / max(1.0, entries / self.rows)))
        chunk = 0 if self._data.sliced else self._data.chunk[0] * self._data.dtype.itemsize
        self.chunk_bytes = 2 * SLICE_BYTES + 3 * chunk
        self._starts = self._read_starts(entries)

    def entries(self) -> tuple[int, ...] | None:
        """Return the stored entries of each ``step`` rows."""
        return tuple(np.diff(self._starts).tolist())

    def read(self, start: int, stop: int, *, missing: bool = False, exact: bool = False) -> Rows:
        """Return rows [start, stop) as CSR of float32 with sorted indices; see ``Features.read``."""
        indptr = self._indptr.read(start, stop + 1).astype(np.int64)
        low, high = int(indptr[0]), int(indptr[-1])
        if (
            low < 0 or high > self._data.shape[0] or (np.diff(indptr) < 0).any()
        ):  # the file has changed since it was checked
            raise self._inconsistent()
        indices = self._indices.read(low, high)
        if len(indices) and not (0 <= indices.min() and indices.max() < self.columns):
            row = start + int(np.searchsorted(indptr, low + indices.argmax(), side="right"))
            found = f"{self.name} row {row}: an index is not below {self.columns}"
            raise DataError(found, code="E-INDEX", hint="write the matrix again")
        given = self._data.read(low, high).reshape(-1, 1)
        values = as_numbers(given, self.name, low, missing=missing, exact=exact)
        return _sort_rows(CSR(values.ravel(), indices.astype(np.int32), indptr - low))

    def _read_starts(self, entries: int) -> Int64:
        """The indptr of every ``step``-th row and of the end. Raises DataError E-SHAPE where it decreases."""
        starts, last = [], 0
        piece = self.step * max(1, INDPTR_ROWS // self.step)
        for start in range(0, self.rows, piece):
            indptr = self._indptr.read(start, min(start + piece, self.rows)).astype(np.int64)
            if indptr[0] < last or (start == 0 and indptr[0] != 0) or (np.diff(indptr) < 0).any():
                raise self._inconsistent()
            starts.append(indptr[:: self.step])
            last = indptr[-1]
        if self._indptr.read(self.rows, self.rows + 1)[0] != entries or last > entries:
            raise self._inconsistent()
        return np.concatenate([*starts, [entries]])

    def _inconsistent(self) -> DataError:
        found = f"{self.name}: data, indices and indptr do not fit together"
        return DataError(found, code="E-SHAPE", hint="write the matrix again")


class SparseColumns:
    """The features of a matrix that is stored by columns (CSC): rows are gathered from all columns, a span at a time.

    Each span reads the matrix once; it has at most ``SPAN_ENTRIES`` entries, which stay in memory until the next one.
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
        fits = self._indptr.shape == (self.columns + 1,) and self._indices.shape == (self._entries,)
        if not fits or not 0 < self.columns <= LARGEST_INDEX or rows < 1:
            raise self._inconsistent()
        self.in_one_span = self._entries <= SPAN_ENTRIES
        self.step = max(1, int(SLICE_BYTES / 8 / max(1.0, self._entries / self.rows)))
        chunk = 0 if self._data.sliced else self._data.chunk[0] * self._data.dtype.itemsize
        self.chunk_bytes = 2 * SLICE_BYTES + 3 * chunk + GATHERED_BYTES * min(self._entries, SPAN_ENTRIES)
        self._ends: Int64 | None = None
        self._span = (0, 0)
        self._gathered = CSR(np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(1, np.int64))
        self._read_as: tuple[bool, bool] | None = None

    def entries(self) -> tuple[int, ...] | None:
        """Return the stored entries of each ``step`` rows."""
        ends = np.concatenate([[0], self._row_ends()])
        cuts = [*range(0, self.rows, self.step), self.rows]
        return tuple(np.diff(ends[cuts]).tolist())

    def read(self, start: int, stop: int, *, missing: bool = False, exact: bool = False) -> Rows:
        """Return rows [start, stop) as CSR of float32 with sorted indices; see ``Features.read``."""
        first, last = self._span
        if not (first <= start and stop <= last) or self._read_as != (missing, exact):
            self._gather(start, max(stop, self._span_end(start)), missing=missing, exact=exact)
            first = start
        indptr = self._gathered.indptr[start - first : stop - first + 1]
        low, high = int(indptr[0]), int(indptr[-1])
        return CSR(self._gathered.data[low:high].copy(), self._gathered.indices[low:high].copy(), indptr - low)

    def _row_ends(self) -> Int64:
        """The entries of all rows up to and including each row; checks all indices. Raises DataError E-INDEX."""
        if self._ends is None:
            counts = np.zeros(self.rows, np.int64)
            for low in range(0, self._entries, PIECE_ENTRIES):
                rows = self._rows_of(low, min(low + PIECE_ENTRIES, self._entries))
                counts += np.bincount(rows, minlength=self.rows)
            self._ends = np.cumsum(counts)
        return self._ends

    def _rows_of(self, low: int, high: int) -> Array:
        rows = self._indices.read(low, high)
        if len(rows) and not (0 <= rows.min() and rows.max() < self.rows):
            found = f"{self.name} entry {low + int(rows.argmax()) + 1}: an index is not below {self.rows}"
            raise DataError(found, code="E-INDEX", hint="write the matrix again")
        return rows

    def _span_end(self, start: int) -> int:
        ends = self._row_ends()
        before = int(ends[start - 1]) if start else 0
        return int(np.searchsorted(ends, before + SPAN_ENTRIES, side="right"))

    def _gather(self, start: int, stop: int, *, missing: bool, exact: bool) -> None:
        """Read all columns for the entries of rows [start, stop)."""
        indptr = self._indptr.read(0, self.columns + 1).astype(np.int64)
        if indptr[0] != 0 or indptr[-1] != self._entries or (np.diff(indptr) < 0).any():
            raise self._inconsistent()
        rows, columns, values = [], [], []
        for low in range(0, self._entries, PIECE_ENTRIES):
            high = min(low + PIECE_ENTRIES, self._entries)
            row = self._rows_of(low, high)
            chosen = np.flatnonzero((row >= start) & (row < stop))
            if not len(chosen):
                continue
            rows.append((row[chosen] - start).astype(np.int32))
            columns.append((np.searchsorted(indptr, low + chosen, side="right") - 1).astype(np.int32))
            given = self._data.read(low, high)[chosen].reshape(-1, 1)
            values.append(as_numbers(given, self.name, low, missing=missing, exact=exact).ravel())
        kind = np.float64 if exact else np.float32
        row = np.concatenate(rows) if rows else np.empty(0, np.int32)
        order = np.argsort(row, kind="stable")
        data: Array = np.concatenate(values)[order] if rows else np.empty(0, kind)
        indices = np.concatenate(columns)[order] if rows else np.empty(0, np.int32)
        ends = np.zeros(stop - start + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=stop - start), out=ends[1:])
        self._gathered = _sort_rows(CSR(data, indices, ends))
        self._span, self._read_as = (start, stop), (missing, exact)

    def _inconsistent(self) -> DataError:
        text = f"{self.name}: data, indices and indptr do not fit together"
        return DataError(text, code="E-SHAPE", hint="write the matrix again")


def _sort_rows(X: CSR) -> CSR:
    """Return rows with sorted indices. Raises DataError E-DUP for an index that occurs twice in a row."""
    falls = X.indices[1:] <= X.indices[:-1]
    falls[X.indptr[1:-1][(X.indptr[1:-1] > 0) & (X.indptr[1:-1] < len(X.indices))] - 1] = False
    if not falls.any():
        return X
    row = np.repeat(np.arange(len(X.indptr) - 1), np.diff(X.indptr))
    order = np.lexsort((X.indices, row))
    data, indices = X.data[order], X.indices[order]
    same = (indices[1:] == indices[:-1]) & (row[1:] == row[:-1])
    if same.any():
        where = int(row[1:][same][0])
        raise DataError(f"a column occurs twice in row {where + 1} of a slice", code="E-DUP", hint="sum them first")
    return CSR(data, indices, X.indptr)


class _Categories:
    """Labels that are stored as codes of categories; a ``RowArray``."""

    def __init__(self, codes: RowArray, categories: Array) -> None:
        self._codes, self._categories = codes, categories
        self.name, self.shape, self.chunk, self.sliced = codes.name, codes.shape, codes.chunk, codes.sliced
        self.dtype = categories.dtype

    def read(self, start: int, stop: int) -> Array:
        codes = self._codes.read(start, stop).astype(np.int64)
        if (codes < 0).any():
            _refuse_missing(self.name, start + int((codes < 0).argmax()))
        if len(codes) and codes.max() >= len(self._categories):
            row = start + int(codes.argmax()) + 1
            found = f"{self.name} row {row}: category {codes.max()} of {len(self._categories)}"
            raise DataError(found, code="E-INDEX", hint="write the labels again")
        return self._categories[codes]


class _Masked:
    """Labels beside a mask of missing ones; a ``RowArray``."""

    def __init__(self, values: RowArray, mask: RowArray) -> None:
        self._values, self._mask = values, mask
        self.name, self.shape, self.chunk, self.sliced = values.name, values.shape, values.chunk, values.sliced
        self.dtype = values.dtype
        if mask.shape != values.shape:
            found = f"{mask.name} has the shape {mask.shape}, {values.name} {values.shape}"
            raise DataError(found, code="E-SHAPE", hint="write the labels again")

    def read(self, start: int, stop: int) -> Array:
        mask = self._mask.read(start, stop).astype(np.bool_)
        if mask.any():
            _refuse_missing(self.name, start + int(mask.argmax()))
        return self._values.read(start, stop)


class _Flat:
    """Labels in one column or one row of a matrix; a ``RowArray``."""

    def __init__(self, array: RowArray) -> None:
        self._array = array
        self.name, self.dtype, self.sliced = array.name, array.dtype, array.sliced
        self.shape: tuple[int, ...] = (array.shape[0] * array.shape[1],)
        self.chunk: tuple[int, ...] = (max(array.chunk),)

    def read(self, start: int, stop: int) -> Array:
        if self._array.shape[1] == 1:
            return self._array.read(start, stop).reshape(-1)
        return self._array.read(0, 1).reshape(-1)[start:stop]


def _refuse_missing(name: str, row: int) -> NoReturn:
    raise DataError(
        f"{name} row {row + 1} has no label: it is missing",
        code="E-LABEL",
        hint="give such rows a category of their own, or leave them out: adata[adata.obs[KEY].notna()]",
    )


def read_error(error: Exception, what: str, code: str, hint: str) -> DataError | StorageError:
    """Return a StorageError for an error of a library that the disk caused, else a DataError."""
    if is_disk_error(error):
        return StorageError(f"{what}: {os.strerror(errno.EIO)}", hint="check the disk")
    return DataError(f"{what}: {quote(str(error), 120)}", code=code, hint=hint)


def check_rows(name: str, shape: tuple[int, ...]) -> None:
    """Raise DataError E-SHAPE for an array of no dimensions, which is a single number."""
    if not shape:
        hint = "expected (rows, columns), or one number an entry"
        raise DataError(f"{name} is a single number", code="E-SHAPE", hint=hint)


def no_rows_error(name: str) -> DataError:
    """Return the error for a matrix of no rows."""
    return DataError(f"{name} holds no rows", code="E-EMPTY", hint="check that it is the right file")


def check_numbers(array: RowArray, dimensions: int) -> None:
    """Raise DataError E-SHAPE or E-DTYPE unless an array holds numbers and has so many dimensions."""
    if dimensions == 2 and len(array.shape) == 2 and array.shape[0] == 0 < array.shape[1]:
        raise no_rows_error(array.name)
    if len(array.shape) != dimensions or 0 in array.shape[1:] or (dimensions == 2 and not array.shape[0]):
        expected = "(rows, columns)" if dimensions == 2 else "one number an entry"
        raise DataError(f"{array.name} has the shape {array.shape}", code="E-SHAPE", hint=f"expected {expected}")
    if array.dtype.kind not in KINDS:
        raise DataError(f"{array.name} holds {array.dtype}, not numbers", code="E-DTYPE", hint="store plain numbers")
