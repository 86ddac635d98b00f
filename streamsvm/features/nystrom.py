"""Nystrom features: phi(x) = W' k(x) with k(x)_j = k(x, z_j) for landmarks z_1 .. z_m.

K_mm = U S U', W = U_r S_r^-1/2, so that phi(x).phi(z) is the projection of the kernel onto the span of the landmarks:
phi reproduces K_mm up to the eigenvalues left out, the smallest. K_mm is formed and factorized in float64; W is float32
and from then on *is* the map. A linear solution w of the features is a kernel machine with the coefficients b = W w:
prediction costs m, not m r.

``Projection`` is the map as data; ``Nystrom`` makes features of raw blocks, part by part in buffers of its own; ``Embedded`` reads
features that were stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamsvm.aliases import Array, RowRecord
from streamsvm.compute.blocks.operators import TILE, Factored, UnformedRows
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
from streamsvm.types import FeaturePart, KernelSolution, LinearSolution

PART_BYTES = 16 << 20
"""Bytes of kernel values at a time: more would leave the cache, fewer would pay for W w too often."""
STRIPS, MIN_STRIP_ROWS = 4, 256
"""Strips of a part, each a product of its own, and the rows of one at least. Idle threads take them where groups are few or a pass
is at its end."""


def part_rows(landmarks: int) -> int:
    """Return the rows of a block that are mapped at a time, in float64 half as many.

    They depend on the landmarks alone, and so do results.
    """
    return max(256, min(8192, PART_BYTES // (4 * landmarks) // 256 * 256))


def map_bytes(landmarks: int, rank: int, *, factored: bool) -> int:
    """Return the bytes the map holds for the rows at hand: kernel values, and features or the chosen rows of a Gram matrix."""
    rows = part_rows(landmarks)
    return 4 * rows * landmarks + (4 * TILE * landmarks if factored else 4 * rows * rank)


@dataclass(frozen=True, slots=True)
class Projection:
    """The landmarks, in the space the kernel sees, the way there from stored rows, and W."""

    kernel: Any
    """A record of ``kernels.py``."""
    inner: Raw | Standardized
    """The map of a stored row to what the kernel sees: nothing, or standardizing and centering."""
    points: Points
    """The m landmarks, as the kernel sees them."""
    W: Array
    """(m, r) float32; float64 of the same values where features are made in it."""

    @property
    def rank(self) -> int:
        """Features r the map makes."""
        return self.W.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of landmarks and W."""
        return self.points.nbytes + self.W.nbytes

    @property
    def expansion(self) -> Expansion:
        """The basis of the kernel machines that ``to_input_space`` returns."""
        columns = self.points.columns
        points = Dense(np.ascontiguousarray(columns.T))
        return make_expansion(points, self.kernel, len(columns), self.inner)

    def to_float64(self) -> Projection:
        """Return the same map with W in float64: products of values in float64 then copy nothing."""
        return replace(self, W=self.W.astype(np.float64))

    def rounding(self, farthest: Reach) -> tuple[float, float]:
        """Return a bound of the error of sum_j b_j k(x, z_j), in the arithmetic of certificates, per sum |b_j|, and max |k(x, z)|.

        Of rows within ``farthest`` where they are dense. Of sparse rows, whose columns are large one at a time, it is that of
        rows no larger than the landmarks.
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
    def full_bytes(self) -> int:
        """Bytes of a thread that makes factored pairs in the arithmetic of certificates: kernel values, and landmarks in float64."""
        m = len(self.W)
        return map_bytes(m, self.rank, factored=True) + 2 * self.points.nbytes

    def to_input_space(self, solution: LinearSolution) -> KernelSolution:
        """Return the same function as a kernel machine on the landmarks."""
        coefficients = self.W.astype(np.float64) @ solution.w[:-1]
        return KernelSolution(coefficients, solution.bias * float(solution.w[-1]))


def make_projection(points: Points, kernel: Any, inner: Raw | Standardized, cutoff: float) -> Projection:
    """Factorize the landmarks' Gram matrix, without eigenvalues below ``cutoff`` times the largest.

    Raises DataError when it has no positive eigenvalue.
    """
    values, vectors = np.linalg.eigh(symmetric_gram(points, kernel))
    kept = values > cutoff * values[-1]
    if not np.isfinite(values[-1]) or values[-1] <= 0.0:
        raise DataError(
            f"the kernel matrix of the landmarks has no positive eigenvalue (largest {values[-1]})",
            hint="standardize the columns, or choose another kernel or gamma",
        )
    W = vectors[:, kept] / np.sqrt(values[kept])
    return Projection(kernel, inner, points, np.ascontiguousarray(W[:, ::-1], np.float32))


@dataclass(slots=True)
class Nystrom:
    """The map from raw blocks to features, part by part through buffers of its own.

    A part is a factored pair for solvers that see a block through its three operators, else a dense matrix.
    """

    projection: Projection
    """Landmarks and W; maps may share one, which none of them changes."""
    bias: float
    """The value of the constant feature that is added to the r features; 0: there is none."""
    factored: bool = False
    """Whether a part is kernel values and W, for solvers that do without formed features."""
    exact: bool = False
    """Whether kernel values and features, half as many at a time, are in float64, as certificates are."""
    remade: bool = False
    """Whether solvers that keep rows of a pair keep them as they are stored, and compute their kernel values again."""
    memory: Array | None = None
    """A buffer for kernel values; None: the map allocates its own."""
    _values: Array = field(init=False)
    _features: Array = field(init=False)
    _points: Points = field(init=False)
    _by_differences: bool = field(init=False)
    _dense: bool | None = field(init=False, default=None)
    """Whether the rows met so far are dense, on which the arithmetic depends; None: none were met."""

    def __post_init__(self) -> None:
        m, r = self.projection.W.shape
        if self.memory is None:
            self.memory = np.empty(part_rows(m) * m, np.float32)
        rows = 0 if self.factored else part_rows(m)
        self._features = np.empty((rows // 2, r)) if self.exact else np.empty((rows, r), np.float32)

    def _prepare(self, X: Rows) -> None:
        """Choose the arithmetic for dense or for sparse rows."""
        dense = isinstance(X, Dense)
        if dense is self._dense:
            return
        self._dense, p = dense, self.projection
        assert self.memory is not None  # there is some from the beginning
        columns, weight = len(p.points.columns), float("inf") if self.exact else 0.0
        points = Dense(np.ascontiguousarray(p.points.columns.T))
        arithmetic = arithmetic_for(p.kernel, points, weight, columns, dense=dense)
        self._by_differences = arithmetic == DIFFERENCES
        self._points = p.points if arithmetic == SINGLE else points_of(points.values, dtype_of(arithmetic))
        self._values = self.memory.view(dtype_of(arithmetic)).reshape(-1, len(p.W))

    def in_full(self) -> Nystrom:
        """Return the same map in the arithmetic of certificates, with pairs for parts, in the memory of this one."""
        return Nystrom(self.projection, self.bias, factored=True, exact=True, memory=self.memory)

    def in_single(self) -> Nystrom:
        """Return the map as solvers see it."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy without buffers: the copy, here or on another machine, allocates its own."""
        return Nystrom, (self.projection, self.bias, self.factored, self.exact, self.remade)

    @property
    def columns(self) -> int:
        """The number of features."""
        return self.projection.rank

    @property
    def expansion(self) -> Expansion:
        """The landmarks, the basis of a folded solution."""
        return self.projection.expansion

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield the block as features, each part valid until the next. Standardizes the block in place."""
        return self._map_parts(X, self._map)

    def unformed_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield rows whose features are only made if they are kept; where the map is not ``remade``, the same as ``parts``."""
        return self._map_parts(X, self._unformed_rows if self.factored and self.remade else self._map)

    def _map_parts(self, X: Rows, form: Callable[[Rows], RowRecord]) -> Iterator[FeaturePart]:
        X = self.projection.inner.apply(X)
        self._prepare(X)
        for start in range(0, row_count(X), len(self._values)):
            stop = min(start + len(self._values), row_count(X))
            yield FeaturePart(start, stop, form(row_slice(X, start, stop)))

    def _unformed_rows(self, X: Rows) -> UnformedRows:
        p = self.projection
        return UnformedRows(X, self._points, p.kernel, p.W, self.bias, self._by_differences)

    def _map(self, X: Rows) -> Dense | Factored:
        p = self.projection
        if self.factored:
            return Factored(self._fill(X), p.W, self.bias, self._unformed_rows(X) if self.remade else None)
        features = self._features[: row_count(X)]
        self._fill(X, features)
        return Dense(features, self.bias)

    def _fill(self, X: Rows, features: Array | None = None) -> Array:
        """Fill the buffer of kernel values for some rows, and ``features`` (n, r) if given, in strips that idle threads take."""
        values, most, p = (
            self._values[: row_count(X)],
            max(MIN_STRIP_ROWS, len(self._values) // STRIPS),
            self.projection,
        )

        def fill(first: int, last: int) -> None:
            for start in range(first, last, most):
                stop = min(start + most, last)
                rows, out = row_slice(X, start, stop), values[start:stop]
                kernel_block(rows, self._points, p.kernel, out, by_differences=self._by_differences)
                if features is not None:
                    np.matmul(out, p.W, out=features[start:stop], casting="same_kind")

        in_strips(fill, len(values), most, least=1)
        return values

    def to_input_space(self, solution: LinearSolution) -> KernelSolution:
        """Return the same function as a kernel machine on the landmarks."""
        return self.projection.to_input_space(solution)

    def write_features(self, X: Rows, out: Float32) -> None:
        """Write to ``out`` (n, r) the features of rows that are already as the kernel sees them."""
        self._prepare(X)
        for start in range(0, row_count(X), len(self._values)):
            stop = min(start + len(self._values), row_count(X))
            self._fill(row_slice(X, start, stop), out[start:stop])


@dataclass(frozen=True, slots=True)
class Embedded:
    """Rows that are features already, of a known projection: what ``jobs.embed`` wrote."""

    projection: Projection
    """The map with which the stored features were made; it gives a solution its meaning."""
    bias: float
    """The value of the constant feature, which is not stored; 0: there is none."""

    @property
    def columns(self) -> int:
        """The number of features."""
        return self.projection.rank

    @property
    def expansion(self) -> Expansion:
        """The landmarks, the basis of a folded solution."""
        return self.projection.expansion

    def in_full(self) -> Nystrom:
        """Return the map of the rows that were embedded, in the arithmetic of certificates, with pairs for parts."""
        return Nystrom(self.projection, self.bias, factored=True, exact=True)

    def in_single(self) -> Nystrom:
        """Return the map of the rows that were embedded, in the arithmetic in which they were."""
        return Nystrom(self.projection, self.bias)

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield the block as it is stored, in one part, with the constant feature."""
        yield FeaturePart(0, row_count(X), X._replace(bias=self.bias))

    def unformed_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Return ``parts``: features are stored."""
        return self.parts(X)

    def to_input_space(self, solution: LinearSolution) -> KernelSolution:
        """Return the same function as a kernel machine on the landmarks."""
        return self.projection.to_input_space(solution)
