"""Nystrom features: phi(x) = W' k(x) with k(x)_j = k(x, z_j) for landmarks z_1 .. z_m.

With K_mm = U S U' and W = U_r S_r^-1/2, phi(x).phi(z) is the projection of the kernel onto the span of the landmarks:
phi reproduces K_mm except for the smallest eigenvalues, which are dropped. K_mm is computed and factorized in float64.
W is then rounded to float32; the rounded W defines the map. A linear function w of the features is a kernel expansion
with the coefficients b = W w, so that a prediction takes m operations instead of m r.

``Projection`` contains the arrays of the map. ``Nystrom`` computes features of blocks of stored rows, part by part, in
its own buffers. ``Embedded`` stands for features that are stored already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamsvm.compute.blocks.operators import TILE, Factored, LazyRows
from streamsvm.compute.kernel_values.arithmetic import (
    DIFFERENCES,
    SINGLE,
    UNITS,
    arithmetic_for,
    dtype_of,
    error_of,
    exact_arithmetic,
    reach_of,
)
from streamsvm.compute.kernel_values.kernel_matrix import Points, kernel_block, points_of, symmetric_gram
from streamsvm.compute.threading import in_strips
from streamsvm.errors import DataError
from streamsvm.features.expansion import Expansion, make_expansion
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.rows import Dense, Float32, Reach, Rows, row_count, row_slice
from streamsvm.type_aliases import Array, RowRecord
from streamsvm.types import FeaturePart, KernelSolution, LinearSolution

PART_BYTES = 16 << 20
"""Bytes of kernel values that are computed at a time. More would not fit in the cache; fewer would repeat too often the
work that is done once per part."""
STRIPS, MIN_STRIP_ROWS = 4, 256
"""Number of strips of a part, each multiplied separately, and the minimum number of rows of a strip. Threads that have
no group of chunks take over strips."""


def part_rows(landmarks: int) -> int:
    """Return the number of rows of a block that are mapped at a time in float32; in float64 it is half as many.

    The number depends only on the number of landmarks, so that results do not depend on the machine.
    """
    return max(256, min(8192, PART_BYTES // (4 * landmarks) // 256 * 256))


def map_bytes(landmarks: int, rank: int, *, factored: bool) -> int:
    """Return the bytes of the map's buffers: kernel values, and features (or for factored pairs, selected rows of a
    Gram matrix).
    """
    rows = part_rows(landmarks)
    return 4 * rows * landmarks + (4 * TILE * landmarks if factored else 4 * rows * rank)


@dataclass(frozen=True, slots=True)
class Projection:
    """The arrays of the map: the landmarks and W, with the kernel and the scaling that precedes it."""

    kernel: Any
    """A record of ``kernels``."""
    scaling: Raw | Standardized
    """The scaling that is applied to stored rows before the kernel: none, or standardization and centering."""
    points: Points
    """The m landmarks, after ``scaling``."""
    W: Array
    """(m, r) float32; the same values in float64 if features are computed in float64."""

    @property
    def rank(self) -> int:
        """The number r of features."""
        return self.W.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the landmarks and W."""
        return self.points.nbytes + self.W.nbytes

    @property
    def expansion(self) -> Expansion:
        """The kernel expansion to which the coefficients of ``to_input_space`` belong."""
        columns = self.points.columns
        points = Dense(np.ascontiguousarray(columns.T))
        return make_expansion(points, self.kernel, len(columns), self.scaling)

    def to_float64(self) -> Projection:
        """Return the same map with W in float64, so that products with float64 kernel values need no copy of W."""
        return replace(self, W=self.W.astype(np.float64))

    def rounding(self, farthest: Reach) -> tuple[float, float]:
        """Return a bound of the rounding error of sum_j b_j k(x, z_j) divided by sum |b_j|, in the arithmetic of
        certificates, and max |k(x, z)|.

        For dense rows the bound holds for rows within ``farthest``. For sparse rows ``farthest`` would be much too
        large, because few columns of a row are large; there the bound holds for rows no larger than the landmarks.
        """
        rows = Dense(np.ascontiguousarray(self.points.columns.T))
        reach = reach_of(rows, np.square(rows.values, dtype=np.float64).sum(axis=1))
        reach = reach._replace(dense=farthest.dense)
        arithmetic = exact_arithmetic(self.kernel, reach, len(self.points.columns))
        reach = reach.join(farthest) if farthest.dense else reach
        largest = float(self.kernel.largest(reach))
        sums = (len(self.W) + 2) * UNITS[arithmetic] * largest
        return error_of(self.kernel, reach, arithmetic) + sums, largest

    @property
    def certificate_bytes(self) -> int:
        """Bytes that a thread takes to compute factored pairs in the arithmetic of certificates: kernel values, and the
        landmarks in float64.
        """
        m = len(self.W)
        return map_bytes(m, self.rank, factored=True) + 2 * self.points.nbytes

    def to_input_space(self, solution: LinearSolution) -> KernelSolution:
        """Return the coefficients of the landmarks that give the same function as ``solution``, a function of
        features.
        """
        coefficients = self.W.astype(np.float64) @ solution.w[:-1]
        return KernelSolution(coefficients, solution.bias * float(solution.w[-1]))


def make_projection(points: Points, kernel: Any, scaling: Raw | Standardized, cutoff: float) -> Projection:
    """Return the projection for some landmarks: factorize their Gram matrix and drop the eigenvalues below ``cutoff``
    times the largest.

    ``points``: the landmarks, after ``scaling``. Raises DataError if the matrix has no positive eigenvalue.
    """
    values, vectors = np.linalg.eigh(symmetric_gram(points, kernel))
    kept = values > cutoff * values[-1]
    if not np.isfinite(values[-1]) or values[-1] <= 0.0:
        raise DataError(
            f"the kernel matrix of the landmarks has no positive eigenvalue (largest {values[-1]})",
            hint="standardize the columns, or choose another kernel or gamma",
        )
    W = vectors[:, kept] / np.sqrt(values[kept])
    return Projection(kernel, scaling, points, np.ascontiguousarray(W[:, ::-1], np.float32))


@dataclass(slots=True)
class Nystrom:
    """The map from blocks of stored rows to features. It is applied part by part, in its own buffers.

    A part is a dense matrix of features, or a factored pair: kernel values and W, whose product is never formed.
    Factored pairs are for solvers that use a block only through products.
    """

    projection: Projection
    """Landmarks and W; several maps may share them, because no map changes them."""
    bias: float
    """The value of the constant feature, which is added to the r features; 0: there is none."""
    factored: bool = False
    """Whether parts are factored pairs."""
    exact: bool = False
    """Whether kernel values and features are in float64, as for certificates; parts then have half as many rows."""
    remade: bool = False
    """For solvers that keep rows in memory: keep stored rows, and compute their kernel values again when needed; False:
    keep kernel values."""
    memory: Array | None = None
    """A buffer for kernel values; None: the map allocates one."""
    _values: Array = field(init=False)
    _features: Array = field(init=False)
    _points: Points = field(init=False)
    _by_differences: bool = field(init=False)
    _dense: bool | None = field(init=False, default=None)
    """Whether the last rows were dense, on which the arithmetic depends; None before the first rows."""

    def __post_init__(self) -> None:
        m, r = self.projection.W.shape
        if self.memory is None:
            self.memory = np.empty(part_rows(m) * m, np.float32)
        rows = 0 if self.factored else part_rows(m)
        self._features = np.empty((rows // 2, r)) if self.exact else np.empty((rows, r), np.float32)

    def _prepare(self, X: Rows) -> None:
        """Choose the arithmetic for rows of this kind (dense or sparse), and set up the buffers for it."""
        dense = isinstance(X, Dense)
        if dense is self._dense:
            return
        self._dense, p = dense, self.projection
        assert self.memory is not None  # allocated by ``__post_init__``
        columns, weight = len(p.points.columns), float("inf") if self.exact else 0.0
        points = Dense(np.ascontiguousarray(p.points.columns.T))
        arithmetic = arithmetic_for(p.kernel, points, weight, columns, dense=dense)
        self._by_differences = arithmetic == DIFFERENCES
        self._points = p.points if arithmetic == SINGLE else points_of(points.values, dtype_of(arithmetic))
        self._values = self.memory.view(dtype_of(arithmetic)).reshape(-1, len(p.W))

    def in_certificate_arithmetic(self) -> Nystrom:
        """Return the same map in the arithmetic of certificates, with factored pairs as parts; it uses the buffer of
        this map.
        """
        return Nystrom(self.projection, self.bias, factored=True, exact=True, memory=self.memory)

    def in_solver_arithmetic(self) -> Nystrom:
        """Return the map in the arithmetic that solvers use: this map itself."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Serialize the map without its buffers; the copy allocates its own."""
        return Nystrom, (self.projection, self.bias, self.factored, self.exact, self.remade)

    @property
    def columns(self) -> int:
        """The number of features."""
        return self.projection.rank

    @property
    def expansion(self) -> Expansion:
        """The kernel expansion to which the coefficients of ``to_input_space`` belong."""
        return self.projection.expansion

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield the features of a block, part by part; a part is valid until the next one. Standardizes the block in
        place.
        """
        return self._map_parts(X, self._map)

    def lazy_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield parts of stored rows without kernel values, which the solver computes for the rows that it keeps.
        Without ``remade``, the same as ``parts``.
        """
        return self._map_parts(X, self._lazy_rows if self.factored and self.remade else self._map)

    def _map_parts(self, X: Rows, form: Callable[[Rows], RowRecord]) -> Iterator[FeaturePart]:
        X = self.projection.scaling.apply(X)
        self._prepare(X)
        for start in range(0, row_count(X), len(self._values)):
            stop = min(start + len(self._values), row_count(X))
            yield FeaturePart(start, stop, form(row_slice(X, start, stop)))

    def _lazy_rows(self, X: Rows) -> LazyRows:
        p = self.projection
        return LazyRows(X, self._points, p.kernel, p.W, self.bias, self._by_differences)

    def _map(self, X: Rows) -> Dense | Factored:
        p = self.projection
        if self.factored:
            return Factored(self._fill(X), p.W, self.bias, self._lazy_rows(X) if self.remade else None)
        features = self._features[: row_count(X)]
        self._fill(X, features)
        return Dense(features, self.bias)

    def _fill(self, X: Rows, features: Array | None = None) -> Array:
        """Compute the kernel values of some rows in the buffer, and ``features`` (n, r) if given, in strips that idle
        threads take over; return the kernel values.
        """
        values, strip_rows, p = (
            self._values[: row_count(X)],
            max(MIN_STRIP_ROWS, len(self._values) // STRIPS),
            self.projection,
        )

        def fill(first: int, last: int) -> None:
            for start in range(first, last, strip_rows):
                stop = min(start + strip_rows, last)
                rows, out = row_slice(X, start, stop), values[start:stop]
                kernel_block(rows, self._points, p.kernel, out, by_differences=self._by_differences)
                if features is not None:
                    np.matmul(out, p.W, out=features[start:stop], casting="same_kind")

        in_strips(fill, len(values), strip_rows, least=1)
        return values

    def to_input_space(self, solution: LinearSolution) -> KernelSolution:
        """Return the coefficients of the landmarks that give the same function as ``solution``, a function of
        features.
        """
        return self.projection.to_input_space(solution)

    def write_features(self, X: Rows, out: Float32) -> None:
        """Write the features of some rows to ``out`` (n, r); ``projection.scaling`` has been applied to the rows
        already.
        """
        self._prepare(X)
        for start in range(0, row_count(X), len(self._values)):
            stop = min(start + len(self._values), row_count(X))
            self._fill(row_slice(X, start, stop), out[start:stop])


@dataclass(frozen=True, slots=True)
class Embedded:
    """The identity map on stored rows that are Nystrom features already, computed by ``jobs.embed``."""

    projection: Projection
    """The map by which the stored features were computed; it converts solutions to functions of the original rows."""
    bias: float
    """The value of the constant feature, which is not stored; 0: there is none."""

    @property
    def columns(self) -> int:
        """The number of features."""
        return self.projection.rank

    @property
    def expansion(self) -> Expansion:
        """The kernel expansion to which the coefficients of ``to_input_space`` belong."""
        return self.projection.expansion

    def in_certificate_arithmetic(self) -> Nystrom:
        """Return the map of the original rows in the arithmetic of certificates, with factored pairs as parts."""
        return Nystrom(self.projection, self.bias, factored=True, exact=True)

    def in_solver_arithmetic(self) -> Nystrom:
        """Return the map of the original rows in the arithmetic by which the stored features were computed."""
        return Nystrom(self.projection, self.bias)

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield the stored block and the constant feature as one part."""
        yield FeaturePart(0, row_count(X), X._replace(bias=self.bias))

    def lazy_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Return ``parts``, because the features are stored."""
        return self.parts(X)

    def to_input_space(self, solution: LinearSolution) -> KernelSolution:
        """Return the coefficients of the landmarks that give the same function as ``solution``, a function of
        features.
        """
        return self.projection.to_input_space(solution)
