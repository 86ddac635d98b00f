"""Nystrom features: phi(x) = W' k(x) with k(x)_j = k(x, z_j) for landmarks z_1 .. z_m.

K_mm = U S U', W = U_r S_r^-1/2, so that phi(x).phi(z) is the projection of the kernel onto the span of the landmarks:
phi reproduces K_mm up to the eigenvalues left out, the smallest. K_mm is formed and factorized in float64; W is float32
and from then on *is* the map. A linear solution w of the features is a kernel machine with the coefficients b = W w:
prediction costs m, not m r.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.kernel_values.gram import Points, symmetric_gram
from streamsvm.compute.kernel_values.rounding import (
    UNITS,
    error_of,
    exact_arithmetic,
    reach_of,
)
from streamsvm.errors import DataError
from streamsvm.features.expansion import Expansion, expansion_on
from streamsvm.features.part_sizes import working_bytes
from streamsvm.features.scaling import Raw, Standardized
from streamsvm.rows import Dense, Reach
from streamsvm.types import KernelSolution, LinearSolution


@dataclass(frozen=True, slots=True)
class Projection:
    """The landmarks, in the space the kernel sees, the way there from stored rows, and W."""

    kernel: Any
    """The kernel, a record of ``kernels.py``."""
    inner: Raw | Standardized
    """What is done to a stored row before the kernel sees it: nothing, or standardizing and centering."""
    points: Points
    """The m landmarks, as the kernel sees them."""
    W: Array
    """(m, r) float32; float64 where features are made in that, of the same values."""

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
        """The basis of the kernel machines that ``fold`` returns."""
        columns = self.points.columns
        points = Dense(np.ascontiguousarray(columns.T))
        return expansion_on(points, self.kernel, len(columns), self.inner)

    def widened(self) -> Projection:
        """Return the same map with W in float64: products of values in float64 then copy nothing."""
        return replace(self, W=self.W.astype(np.float64))

    def rounding(self, farthest: Reach) -> tuple[float, float]:
        """How far sum_j b_j k(x, z_j), in the arithmetic of certificates, can be off per sum |b_j|, and max |k(x, z)|.

        Of rows within ``farthest`` where they are dense. Of sparse rows, whose columns are large one at a time, it is that of
        rows no larger than the landmarks.
        """
        rows = Dense(np.ascontiguousarray(self.points.columns.T))
        reach = reach_of(rows, np.square(rows.values, dtype=np.float64).sum(axis=1))
        reach = reach._replace(dense=farthest.dense)
        arithmetic = exact_arithmetic(self.kernel, reach, len(self.points.columns))
        reach = reach.joined(farthest) if farthest.dense else reach
        largest = float(self.kernel.largest(reach))
        sums = (len(self.W) + 2) * UNITS[arithmetic] * largest
        return error_of(self.kernel, reach, arithmetic) + sums, largest

    @property
    def full_bytes(self) -> int:
        """What a thread holds that makes pairs in the arithmetic of certificates: kernel values, and landmarks in float64."""
        m = len(self.W)
        return working_bytes(m, self.rank, factored=True) + 2 * self.points.nbytes

    def fold(self, solution: LinearSolution) -> KernelSolution:
        """The same function as a kernel machine on the landmarks."""
        coefficients = self.W.astype(np.float64) @ solution.w[:-1]
        return KernelSolution(coefficients, solution.bias * float(solution.w[-1]))


def projection_of(points: Points, kernel: Any, inner: Raw | Standardized, cutoff: float) -> Projection:
    """Factorize the landmarks' Gram matrix, but for eigenvalues below ``cutoff`` times the largest.

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
