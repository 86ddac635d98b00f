"""Expansions, the basis of a kernel machine: k(x, z_j) for points z_j and rows as they are stored, as data and how to apply it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.blocks.column_scaling import scale_dense, scale_sparse
from streamsvm.compute.blocks.operators import decision_values
from streamsvm.compute.kernel_values.arithmetic import DIFFERENCES, DOUBLE, arithmetic_for, dtype_of
from streamsvm.compute.kernel_values.kernel_matrix import Points, dense_rows, kernel_block, points_of
from streamsvm.compute.kernel_values.kernel_products import worthwhile
from streamsvm.compute.threading import in_strips, threads
from streamsvm.errors import DataError
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.kernels import KERNELS
from streamsvm.rows import CSR, Dense, Float32, Float64, Rows, row_count, row_slice, with_entries

TILE_ROWS = 256
TILE_POINTS = 2048
DENSE_BYTES = 32 << 20
"""Bytes of the points that are made dense at a time."""
WORKING_BYTES = 3 * DENSE_BYTES + 8 * TILE_ROWS * TILE_POINTS
"""Bytes of applying any expansion on one thread, at most, beside its arguments and its own copy of a tile of rows."""


def points_at_a_time(columns: int) -> int:
    """Return how many points with this many columns are made dense at a time."""
    return max(1, min(TILE_POINTS, DENSE_BYTES // (8 * columns)))


def expansion_bytes(columns: int) -> int:
    """Return the bytes of applying an expansion on rows of this many columns, on all threads."""
    return 3 * 8 * columns * points_at_a_time(columns) + threads() * 8 * TILE_ROWS * TILE_POINTS


@dataclass(frozen=True, slots=True)
class Expansion:
    """Points in the space the kernel sees, and the way there from stored rows: x -> (x - shift) scale, if any."""

    kernel: str
    """The name of the kernel in ``kernels.KERNELS``."""
    parameters: dict[str, float]
    """The kernel's parameters by name, gamma among them where it has one."""
    points: Rows
    """Landmarks or support rows, dense or CSR."""
    columns: int
    """Columns d of a stored row: dense rows with another number of them are refused, sparse ones with an index beyond."""
    shift: Float32 | None = None
    """(d,) subtracted from each column of a stored row; None where ``scale`` is None."""
    scale: Float32 | None = None
    """(d,) the factor of each column then; None: the kernel sees rows as they are stored."""

    @property
    def _width(self) -> int:
        """Points that are made dense at a time."""
        return min(row_count(self.points), points_at_a_time(self.columns))

    def decision(self, X: Rows, weights: Float64, out: Float64, *, exact: bool = False) -> None:
        """Changes ``out`` (n, k): weights[k, :-1] . k(x) + weights[k, -1] for stored rows, which stay as they are.

        ``exact``: dense rows in float64 also where float32 would do. The order in which BLAS adds up a product depends on where a
        row lies in its block, which in float32 changes the seventh digit.
        """
        self._check(X)
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

        in_strips(strip, len(out), TILE_ROWS, worthwhile(TILE_ROWS * points.size))

    def _apply_scaling(self, X: Rows) -> Rows:
        """Return a copy of the rows as the kernel sees them."""
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

    def _check(self, X: Rows) -> None:
        width = X.values.shape[1] if isinstance(X, Dense) else int(X.indices.max(initial=-1)) + 1
        if width > self.columns or (isinstance(X, Dense) and width != self.columns):
            raise DataError(
                f"rows have {width} columns, the model {self.columns}",
                code="E-SCHEMA",
                hint="apply the model to data with the columns it was trained on",
            )

    def header(self) -> dict[str, Any]:
        """Return all that is not an array, as plain JSON."""
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


def make_expansion(points: Rows, record: Any, columns: int, inner: Raw | Standardized) -> Expansion:
    """Return the expansion on points that are given as the kernel sees them, through ``inner``."""
    name = next(name for name in KERNELS if KERNELS[name] is type(record))
    parameters = {key: float(value) for key, value in record._asdict().items()}
    shift, scale = (inner.shift, inner.scale) if isinstance(inner, Standardized) else (None, None)
    return Expansion(name, parameters, points._replace(bias=0.0), columns, shift, scale)


def decode_expansion(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Expansion:
    """Return the expansion of ``header`` and ``tensors``. Raises DataError, KeyError, TypeError where they are of none."""
    name, columns = str(header["kernel"]), header["columns"]
    parameters = {str(key): float(value) for key, value in header["parameters"].items()}
    kernel = KERNELS[name](**parameters)
    if not isinstance(columns, int) or columns < 1 or not np.isfinite(kernel).all():
        raise DataError("the kernel is not usable")
    if "points" in tensors:
        points: Rows = Dense(_array(tensors, "points", np.float32, (-1, columns)))
    else:
        points = _sparse(tensors, columns)
    scaled = "scale" in tensors
    shift, scale = (_array(tensors, key, np.float32, (columns,)) if scaled else None for key in ("shift", "scale"))
    return Expansion(name, parameters, points, columns, shift, scale)


def _array(tensors: dict[str, NDArray[Any]], name: str, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a tensor after checking its type, its shape (-1: any) and that it is finite."""
    array = tensors[name]
    fits = len(shape) == array.ndim and all(want in (-1, got) for want, got in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits or not np.isfinite(array).all():
        raise DataError(f"'{name}' is not what it must be")
    return array


def _sparse(tensors: dict[str, NDArray[Any]], columns: int) -> CSR:
    """Return CSR points after checking every index, which compiled passes do not."""
    data = _array(tensors, "points.data", np.float32, (-1,))
    indices = _array(tensors, "points.indices", np.int32, (len(data),))
    indptr = _array(tensors, "points.indptr", np.int64, (-1,))
    inside = len(data) == 0 or (indices.min() >= 0 and indices.max() < columns)
    rising = len(indptr) > 0 and indptr[0] == 0 and indptr[-1] == len(data) and bool((np.diff(indptr) >= 0).all())
    if not (inside and rising):
        raise DataError("the points are not usable")
    return CSR(data, indices, indptr)
