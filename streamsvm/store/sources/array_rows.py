"""Convert arrays in memory, of numpy with any number type or of scipy.sparse in any format, to checked float32 rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.errors import DataError
from streamsvm.rows import CSR, Dense, Float32, Rows
from streamsvm.type_aliases import Array

SLICE_BYTES = 2 << 20
"""Bytes of one slice of rows, as float32."""
KINDS = "fiub"
"""Numpy's kinds of dtypes that are numbers: float, int, unsigned, bool."""
MOST_COLUMNS = 2**31 - 1
"""The most columns of sparse rows, whose indices are int32."""
HINT_DTYPE = "save the array with a plain number dtype, such as float32"
HINT_NAN = "if it stands for a missing value pass --missing mean, zero or indicator; else remove or replace it"


def rows_of(X: Any, name: str, first_row: int = 0, *, missing: bool = False, exact: bool = False) -> Rows:
    """Return an array (n, d) or a sparse matrix as rows; arrays of the right types are not copied.

    ``name``: the name of the array in errors; ``first_row``: the number there of its first row, counted from 0. With
    ``missing``, NaN stands for a missing value. With ``exact``, the rows are float64 if float32 would round any of
    their numbers, for callers who subtract an offset first. Raises DataError E-DTYPE, E-SHAPE, E-NONFINITE, E-RANGE.
    """
    import scipy.sparse

    sparse = scipy.sparse.issparse(X)
    values = X if sparse else np.asarray(X)
    if values.dtype.kind not in KINDS:
        content = "text" if values.dtype.kind in "US" else str(values.dtype)
        raise DataError(f"{name} holds {content}, not numbers", code="E-DTYPE", hint=HINT_DTYPE)
    if values.ndim != 2:
        message = f"{name} has the shape {values.shape}, expected (rows, columns)"
        raise DataError(message, code="E-SHAPE", hint="a single row is X.reshape(1, -1)")
    if sparse:
        return _csr_rows(X, name, missing=missing, exact=exact)
    rows = _numbers(values, name, first_row, missing=missing, exact=exact)
    # numba compiles every function once more for read-only arrays, which are another type to it
    return Dense(rows if rows.flags.writeable else rows.copy())


def _csr_rows(X: Any, name: str, *, missing: bool, exact: bool) -> CSR:
    if X.shape[1] > MOST_COLUMNS:
        message = f"{name} has {X.shape[1]} columns, at most {MOST_COLUMNS} can be numbered"
        raise DataError(message, code="E-COLUMNS", hint="hash the columns into fewer")
    import scipy.sparse

    csr = scipy.sparse.csr_array(X)
    if not csr.has_canonical_format:
        csr = csr.copy()  # the caller's matrix is not changed
        csr.sum_duplicates()
    entries = csr.data.reshape(-1, 1)
    data = _numbers(entries, f"the entries of {name},", 0, missing=missing, exact=exact).ravel()
    rows = CSR(data, csr.indices.astype(np.int32), csr.indptr.astype(np.int64))
    return rows if data.flags.writeable else rows._replace(data=data.copy())


def _numbers(values: Array, name: str, first_row: int, *, missing: bool, exact: bool) -> Array:
    """Return numbers as float32; with ``exact`` as float64 if float32 rounds any of them."""
    single = as_numbers(values, name, first_row, missing=missing)
    rounded = exact and not np.array_equal(single, values, equal_nan=True)
    return as_numbers(values, name, first_row, missing=missing, exact=True) if rounded else single


def as_numbers(
    values: Array, name: str, first_row: int, first_column: int = 0, *, missing: bool = False, exact: bool = False
) -> Array:
    """Return numbers (n, d) as float32, or with ``exact`` as float64. With ``missing``, NaN is allowed and means
    missing.

    Raises DataError E-NONFINITE, E-RANGE with row and column, counted from 1.
    """
    with np.errstate(over="ignore"):
        cast: Float32 = np.ascontiguousarray(values, np.float32)
    finite = ~np.isinf(cast) if missing else np.isfinite(cast)
    if finite.all():
        return np.ascontiguousarray(values, np.float64) if exact else cast
    row, column = np.argwhere(~finite)[0].tolist()
    place = f"{name} row {first_row + row + 1}, column {first_column + column + 1}"
    if np.isfinite(values[row, column]):
        raise DataError(f"{place}: {values[row, column]} does not fit float32", code="E-RANGE", hint="scale the column")
    message = f"{place}: {values[row, column]} is not finite"
    hint = HINT_NAN if np.isnan(values[row, column]) else "remove or replace such values"
    raise DataError(message, code="E-NONFINITE", hint=hint)
