"""Rows as Nystrom features (``features.projection``): made part by part in buffers of its own, or read from an embedding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamsvm.aliases import Array, RowRecord
from streamsvm.compute.blocks.operators import Factored, UnformedRows
from streamsvm.compute.kernel_values.gram import Points, kernel_block, points_of
from streamsvm.compute.kernel_values.rounding import (
    DIFFERENCES,
    SINGLE,
    arithmetic_for,
    dtype_of,
)
from streamsvm.compute.threading import in_strips
from streamsvm.features.expansion import Expansion
from streamsvm.features.part_sizes import part_rows
from streamsvm.features.projection import Projection
from streamsvm.rows import Dense, Float32, Rows, row_count, row_slice
from streamsvm.types import FeaturePart, KernelSolution, LinearSolution

STRIPS, STRIP_ROWS = 4, 256
"""Strips of a part whose products are their own, and rows of one at least: where groups are few, or a pass is at its end,
threads that have none of their own take them."""


@dataclass(slots=True)
class Nystrom:
    """The map from raw blocks to features, part by part through buffers of its own.

    A part is a factored pair for solvers that see a block through its three operators, else a dense matrix.
    """

    projection: Projection
    """Landmarks and W; many maps may share one, which none of them changes."""
    bias: float
    """The value of the constant feature that is added to the r features; 0: there is none."""
    factored: bool = False
    """Whether a part is kernel values and W, for solvers that do without features that are formed."""
    exact: bool = False
    """Whether kernel values are evaluated as certificates are, in float64, and features, half as many at a time, are sums in it."""
    remade: bool = False
    """Whether who keeps rows of a pair is to keep them as they are stored, and make their kernel values again."""
    memory: Array | None = None
    """Where kernel values may be written; None: the map has a place of its own."""
    _values: Array = field(init=False)
    _features: Array = field(init=False)
    _points: Points = field(init=False)
    _by_differences: bool = field(init=False)
    _dense: bool | None = field(init=False, default=None)
    """Whether the rows that were met are, on which the arithmetic depends; None: none were met."""

    def __post_init__(self) -> None:
        m, r = self.projection.W.shape
        if self.memory is None:
            self.memory = np.empty(part_rows(m) * m, np.float32)
        rows = 0 if self.factored else part_rows(m)
        self._features = np.empty((rows // 2, r)) if self.exact else np.empty((rows, r), np.float32)

    def _prepare(self, X: Rows) -> None:
        """Choose the arithmetic for such rows."""
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
        """The same map in the arithmetic of certificates, with pairs for parts, in the memory of this one."""
        return Nystrom(self.projection, self.bias, factored=True, exact=True, memory=self.memory)

    def in_single(self) -> Nystrom:
        """The map as solvers see it."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, here or on another machine, has buffers of its own."""
        return Nystrom, (self.projection, self.bias, self.factored, self.exact, self.remade)

    @property
    def columns(self) -> int:
        """Features the map makes."""
        return self.projection.rank

    @property
    def expansion(self) -> Expansion:
        """The landmarks, which a folded solution is written in."""
        return self.projection.expansion

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """The block as features; valid until the next is asked for. Standardizes the block in place."""
        return self._cut(X, self._map)

    def unformed_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """The same without the features, of which nothing is made but of the rows that are kept; where such rows are not, as ``parts``."""
        return self._cut(X, self._unformed if self.factored and self.remade else self._map)

    def _cut(self, X: Rows, seen: Callable[[Rows], RowRecord]) -> Iterator[FeaturePart]:
        X = self.projection.inner.apply(X)
        self._prepare(X)
        for start in range(0, row_count(X), len(self._values)):
            stop = min(start + len(self._values), row_count(X))
            yield FeaturePart(start, stop, seen(row_slice(X, start, stop)))

    def _unformed(self, X: Rows) -> UnformedRows:
        p = self.projection
        return UnformedRows(X, self._points, p.kernel, p.W, self.bias, self._by_differences)

    def _map(self, X: Rows) -> Dense | Factored:
        p = self.projection
        if self.factored:
            return Factored(self._fill(X), p.W, self.bias, self._unformed(X) if self.remade else None)
        features = self._features[: row_count(X)]
        self._fill(X, features)
        return Dense(features, self.bias)

    def _fill(self, X: Rows, features: Array | None = None) -> Array:
        """Fill the place there is for kernel values of some rows, and ``features`` (n, r) if given: strip by strip, which idle threads take."""
        values, most, p = self._values[: row_count(X)], max(STRIP_ROWS, len(self._values) // STRIPS), self.projection

        def fill(first: int, last: int) -> None:
            for start in range(first, last, most):
                stop = min(start + most, last)
                rows, out = row_slice(X, start, stop), values[start:stop]
                kernel_block(rows, self._points, p.kernel, out, by_differences=self._by_differences)
                if features is not None:
                    np.matmul(out, p.W, out=features[start:stop], casting="same_kind")

        in_strips(fill, len(values), most, least=1)
        return values

    def fold(self, solution: LinearSolution) -> KernelSolution:
        """The same function as a kernel machine on the landmarks."""
        return self.projection.fold(solution)

    def into(self, X: Rows, out: Float32) -> None:
        """Changes ``out`` (n, r): the features of rows that are already as the kernel sees them."""
        self._prepare(X)
        for start in range(0, row_count(X), len(self._values)):
            stop = min(start + len(self._values), row_count(X))
            self._fill(row_slice(X, start, stop), out[start:stop])


@dataclass(frozen=True, slots=True)
class Embedded:
    """Rows that are features already, of a projection that is known: what ``jobs.embed.builder`` wrote."""

    projection: Projection
    """The map the stored features were made with; here it only says what a solution stands for."""
    bias: float
    """The value of the constant feature, which is not stored; 0: there is none."""

    @property
    def columns(self) -> int:
        """Features of a stored row."""
        return self.projection.rank

    @property
    def expansion(self) -> Expansion:
        """The landmarks, which a folded solution is written in."""
        return self.projection.expansion

    def in_full(self) -> Nystrom:
        """The map of the rows the embedding was made from, in the arithmetic of certificates, with pairs for parts."""
        return Nystrom(self.projection, self.bias, factored=True, exact=True)

    def in_single(self) -> Nystrom:
        """The map of the rows the embedding was made from, in the arithmetic it was made in."""
        return Nystrom(self.projection, self.bias)

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """The block as it is stored, in one part, with the constant feature."""
        yield FeaturePart(0, row_count(X), X._replace(bias=self.bias))

    def unformed_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Return ``parts``: features are stored."""
        return self.parts(X)

    def fold(self, solution: LinearSolution) -> KernelSolution:
        """The same function as a kernel machine on the landmarks."""
        return self.projection.fold(solution)
