"""What the members of a foreign file mean, whatever library reads it: matrices, labels and names of columns.

An array is itself. A group is told by what it says of itself: AnnData writes sparse matrices, categories, values beside a
mask of missing ones and tables so, MATLAB its sparse matrices.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import numpy as np

from streamsvm.aliases import Array, ByName
from streamsvm.errors import DataError, quote
from streamsvm.store.foreign.row_arrays import DenseRows, Features, RowArray, SparseColumns, SparseRows

CSR_MATRIX, CSC_MATRIX = "csr_matrix", "csc_matrix"
NULLABLE = ("nullable-integer", "nullable-boolean", "nullable-string-array")
MOST_CATEGORIES = 1 << 20
"""Categories of labels: they are in memory, and more are names of rows."""
NAMES_OF = {"raw/X": "raw/var", "layers": "var", "X": "var"}
"""By a matrix of an AnnData file, or its folder, the table of its columns."""


class ForeignFile(Protocol):
    """A file or directory of arrays and groups that have names."""

    name: str
    """What messages call it."""

    def kind(self, key: str) -> str | None:
        """Return 'array' or 'group'; None where nothing is called so."""
        ...

    def attributes(self, key: str) -> ByName:
        """Return what an array or group says of itself."""
        ...

    def array(self, key: str, *, may_lack_chunks: bool = False) -> RowArray:
        """Open an array; ``may_lack_chunks``: those of its fill value, which Zarr does not write. Raises DataError,
        SecurityError.
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
    """Return the labels that a key names: an array, or a group of categories or of values with a mask; None where
    nothing is called so. Raises DataError E-LAYOUT for other groups.
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
    """Return the names of the columns of a matrix of AnnData, from the index of its ``var``; None where there are none."""
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
    """An attribute as text: h5py has bytes where a file does not say that they are UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class _Categories:
    """Labels that are stored as numbers of categories; see ``RowArray``."""

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
    """Labels beside a mask of those that are missing; see ``RowArray``."""

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
    """Labels in one column or one row of a matrix; see ``RowArray``."""

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
