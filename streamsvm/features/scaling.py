"""Standardization as a property of the fit: applied to each block in memory, folded into the model's weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamsvm.compute.blocks.scaling import scale_dense, scale_sparse
from streamsvm.rows import Dense, Float32, Rows, row_count
from streamsvm.types import FeaturePart, LinearSolution, Statistics, Store


@dataclass(frozen=True, slots=True)
class Raw:
    """The features as they are stored, with a constant one of value ``bias``."""

    bias: float
    expansion: ClassVar[None] = None

    def apply(self, X: Rows) -> Rows:
        """The rows with the constant feature; nothing is copied."""
        return X._replace(bias=self.bias)

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """The block as it is stored, in one part."""
        yield FeaturePart(0, row_count(X), self.apply(X))

    def fold(self, solution: LinearSolution) -> LinearSolution:
        """The solution as it is: its columns are the stored ones."""
        return solution


@dataclass(frozen=True, slots=True)
class Standardized:
    """x_j -> (x_j - shift_j) scale_j, float32 (d,). Blocks are changed in place: they are the reader's buffers."""

    shift: Float32
    scale: Float32
    bias: float
    expansion: ClassVar[None] = None

    def apply(self, X: Rows) -> Rows:
        """Standardize the rows in place, and return them with the constant feature."""
        if isinstance(X, Dense):
            scale_dense(X.values, self.shift, self.scale)
        else:
            scale_sparse(X.data, X.indices, self.scale)
        return X._replace(bias=self.bias)

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """The block standardized in place, in one part."""
        yield FeaturePart(0, row_count(X), self.apply(X))

    def fold(self, solution: LinearSolution) -> LinearSolution:
        """The same function of raw features: w_j scale_j, and the shifts moved into the constant, whose value is 1."""
        raw = solution.w[:-1] * self.scale
        constant = solution.bias * solution.w[-1] - float(raw @ self.shift.astype(np.float64))
        return LinearSolution(np.append(raw, constant), 1.0)


def scaling_of(store: Store, *, standardize: bool, bias: float) -> Raw | Standardized:
    """The map a job asks for; the statistics are read only if they are needed."""
    if not standardize:
        return Raw(bias)
    return standardized(store.statistics(), store.layout.rows, sparse=not store.layout.dense, bias=bias)


def standardized(statistics: Statistics, rows: int, *, sparse: bool, bias: float) -> Standardized:
    """Zero mean (dense only: a shift would fill a sparse block) and unit variance; constant columns are not scaled."""
    deviation = np.sqrt(statistics.M2 / rows)
    scale = np.where(deviation > 0, 1.0 / np.where(deviation > 0, deviation, 1.0), 1.0)
    shift = np.zeros_like(statistics.mean) if sparse else statistics.mean
    return Standardized(shift.astype(np.float32), scale.astype(np.float32), bias)
