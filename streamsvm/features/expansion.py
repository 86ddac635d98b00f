"""Kernel expansions: the points z_j of a kernel model, and its decision values sum_j b_j k(x, z_j) for stored rows
x.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.blocks.column_scaling import scale_dense, scale_sparse
from streamsvm.compute.blocks.operators import decision_values
from streamsvm.compute.kernel_values.arithmetic import DIFFERENCES, DOUBLE, arithmetic_for, dtype_of
from streamsvm.compute.kernel_values.kernel_matrix import Points, dense_rows, kernel_block, points_of
from streamsvm.compute.kernel_values.kernel_products import min_tiles_per_thread
from streamsvm.compute.threading import in_strips, threads
from streamsvm.errors import DataError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.kernels import KERNELS
from streamsvm.rows import CSR, Dense, Float32, Float64, Rows, check_columns, row_count, row_slice, with_entries

TILE_ROWS = 256
TILE_POINTS = 2048
DENSE_BYTES = 32 << 20
"""Largest number of bytes of points that are converted to dense rows at a time."""
WORKING_BYTES = 3 * DENSE_BYTES + 8 * TILE_ROWS * TILE_POINTS
"""Upper bound of the bytes that applying an expansion allocates on one thread, without its arguments and its copy of a
tile of rows."""


def points_at_a_time(columns: int) -> int:
    """Return the number of points with ``columns`` columns that are converted to dense rows at a time."""
    return max(1, min(TILE_POINTS, DENSE_BYTES // (8 * columns)))


def expansion_bytes(columns: int) -> int:
    """Return the bytes that applying an expansion to rows with ``columns`` columns allocates, on all threads."""
    return 3 * 8 * columns * points_at_a_time(columns) + threads() * 8 * TILE_ROWS * TILE_POINTS


@dataclass(frozen=True, slots=True)
class Expansion:
    """The kernel and its points. The kernel is applied to stored rows x, or to (x - shift) scale if ``scale`` is
    given.
    """

    kernel: str
    """The name of the kernel in ``kernels.KERNELS``."""
    parameters: dict[str, float]
    """The parameters of the kernel by name, such as gamma."""
    points: Rows
    """Landmarks or support rows after shift and scale, dense or CSR."""
    columns: int
    """Number d of columns of stored rows. Dense rows with another number, and sparse rows with a larger index, are
    refused."""
    shift: Float32 | None = None
    """(d,) subtracted from the columns of stored rows; None if ``scale`` is None."""
    scale: Float32 | None = None
    """(d,) factors of the columns after the shift; None: the kernel is applied to rows as they are stored."""

    @property
    def _width(self) -> int:
        """Number of points that are converted to dense rows at a time."""
        return min(row_count(self.points), points_at_a_time(self.columns))

    def decision(self, X: Rows, weights: Float64, out: Float64, *, exact: bool = False) -> None:
        """Write weights[k, :-1] . k(x) + weights[k, -1] to ``out`` (n, k) for stored rows ``X``, which are not changed.

        ``exact``: compute kernel values of dense rows in float64 even if float32 is accurate enough. BLAS adds up the
        terms of a product in an order that depends on the position of the row in its block; in float32 this changes the
        seventh digit.
        """
        check_columns(X, self.columns)
        out[:] = weights[:, -1]
        kernel = KERNELS[self.kernel](**self.parameters)
        width = self._width
        weight = float(np.abs(weights[:, :-1]).sum(axis=1).max(initial=0.0))
        arithmetic = arithmetic_for(kernel, self.points, weight, self.columns, dense=isinstance(X, Dense))
        if exact and isinstance(X, Dense):
            arithmetic = max(arithmetic, DOUBLE)
        for first in range(0, row_count(self.points), width):
            last = min(first + width, row_count(self.points))
            chosen = dense_rows(row_slice(self.points, first, last), np.arange(last - first), self.columns)
            part = np.column_stack([weights[:, first:last], np.zeros(len(weights))])
            points = points_of(chosen, dtype_of(arithmetic))
            self._add(X, points, kernel, np.ascontiguousarray(part), out, by_differences=arithmetic == DIFFERENCES)

    def _add(
        self, X: Rows, points: Points, kernel: Any, weights: Float64, out: Float64, *, by_differences: bool
    ) -> None:
        def strip(first: int, last: int) -> None:
            values = np.empty((TILE_ROWS, points.size), points.columns.dtype)
            sums = np.empty((TILE_ROWS, len(weights)))
            for start in range(first, last, TILE_ROWS):
                stop = min(start + TILE_ROWS, last)
                tile, total = values[: stop - start], sums[: stop - start]
                rows = self._apply_scaling(row_slice(X, start, stop))
                kernel_block(rows, points, kernel, tile, by_differences=by_differences)
                decision_values(Dense(tile), weights, total)
                out[start:stop] += total

        in_strips(strip, len(out), TILE_ROWS, min_tiles_per_thread(TILE_ROWS * points.size))

    def _apply_scaling(self, X: Rows) -> Rows:
        """Return (x - shift) scale for each row in new arrays; without a scale, the rows themselves."""
        if self.scale is None or self.shift is None:
            return X
        if isinstance(X, Dense):
            values = X.values.copy()
            scale_dense(values, self.shift, self.scale)
            return Dense(values)
        shifted = np.flatnonzero(self.shift)
        full = with_entries(X, shifted) if len(shifted) else X
        data = full.data.copy()
        scale_sparse(data, full.indices, self.shift, self.scale)
        return full._replace(data=data)

    def header(self) -> dict[str, Any]:
        """Return everything except the arrays, as plain JSON."""
        return {"kernel": self.kernel, "parameters": self.parameters, "columns": self.columns}

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        points = self.points
        if isinstance(points, Dense):
            found: dict[str, NDArray[Any]] = {"points": points.values}
        else:
            found = {"points.data": points.data, "points.indices": points.indices, "points.indptr": points.indptr}
        scaling = {"shift": self.shift, "scale": self.scale}
        found |= {name: array for name, array in scaling.items() if array is not None}
        return {name: np.ascontiguousarray(array) for name, array in found.items()}


def make_expansion(points: Rows, record: Any, columns: int, scaling: Raw | Standardized) -> Expansion:
    """Return the expansion with the given kernel and points.

    ``record``: the kernel, a record of ``kernels``. ``points``: rows to which ``scaling``, which precedes the
    kernel, has been applied already.
    """
    name = next(name for name in KERNELS if KERNELS[name] is type(record))
    parameters = {key: float(value) for key, value in record._asdict().items()}
    shift, scale = (scaling.shift, scaling.scale) if isinstance(scaling, Standardized) else (None, None)
    return Expansion(name, parameters, points._replace(bias=0.0), columns, shift, scale)


def decode_expansion(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Expansion:
    """Return the expansion in ``header`` and ``tensors``. Raises DataError, KeyError, TypeError if they do not describe
    one.
    """
    name, columns = str(header["kernel"]), header["columns"]
    parameters = {str(key): float(value) for key, value in header["parameters"].items()}
    kernel = KERNELS[name](**parameters)
    if not isinstance(columns, int) or columns < 1 or not np.isfinite(kernel).all():
        raise DataError("the kernel is not usable")
    if "points" in tensors:
        points: Rows = Dense(_read_array(tensors, "points", np.float32, (-1, columns)))
    else:
        points = _read_csr(tensors, columns)
    scaled = "scale" in tensors
    shift, scale = (_read_array(tensors, key, np.float32, (columns,)) if scaled else None for key in ("shift", "scale"))
    return Expansion(name, parameters, points, columns, shift, scale)


def _read_array(tensors: dict[str, NDArray[Any]], name: str, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the array ``name``. Raises DataError if its type or shape differs (-1: any length), or if it is not
    finite.
    """
    array = tensors[name]
    fits = len(shape) == array.ndim and all(want in (-1, got) for want, got in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits or not np.isfinite(array).all():
        raise DataError(f"the array '{name}' has a wrong type or shape, or values that are not finite")
    return array


def _read_csr(tensors: dict[str, NDArray[Any]], columns: int) -> CSR:
    """Return CSR points. Raises DataError if an index is out of range; compiled passes do not check indices."""
    data = _read_array(tensors, "points.data", np.float32, (-1,))
    indices = _read_array(tensors, "points.indices", np.int32, (len(data),))
    indptr = _read_array(tensors, "points.indptr", np.int64, (-1,))
    in_range = len(data) == 0 or (indices.min() >= 0 and indices.max() < columns)
    is_ascending = len(indptr) > 0 and indptr[0] == 0 and indptr[-1] == len(data) and bool((np.diff(indptr) >= 0).all())
    if not (in_range and is_ascending):
        raise DataError("the points are not usable")
    return CSR(data, indices, indptr)
