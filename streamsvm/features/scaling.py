"""Decisions from the column statistics of a store: standardization, centering, and the size of rows.

The maps are applied to each block in memory; a model contains its map.

**Centering.** A kernel of x - z does not change if a vector c is subtracted from every row, but its rounding error
does: the squared distance, computed as ||x||^2 + ||z||^2 - 2 x.z, has an error of about u (||x||^2 + ||z||^2), u the
unit roundoff, which exceeds the distance itself if columns lie far from 0. Therefore the kernel is applied to x - c,
where c_j is the mean of column j (from the statistics of the store, float64, then rounded to float32) if |mean_j| > FAR
std_j, else 0. Nearly all x_j then lie within [c_j / 2, 2 c_j], where x_j - c_j is exact (Sterbenz 1974); for other x_j
the difference is rounded by at most u |x_j - c_j|, in the same way in training and in prediction. The certified problem
is that of the centered rows.

Sparse rows are centered only in columns that every row stores, so that they stay sparse: in these columns the minimum
and the maximum over all rows have the same sign (absent entries count as 0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.blocks.column_scaling import scale_dense, scale_sparse
from streamsvm.rows import Dense, Float32, Float64, Reach, Rows, row_count
from streamsvm.type_aliases import Array
from streamsvm.types import FeatureMap, FeaturePart, LinearSolution, Statistics, Store

FAR = 4.0
"""Columns whose mean is more than FAR standard deviations from 0 are centered for kernels of x - z. The other columns
keep their stored values; their rounding error is at most FAR^2 + 1 times that of centered ones, a loss of four bits."""


@dataclass(frozen=True, slots=True)
class Raw:
    """The identity map: rows as they are stored, with a constant feature of value ``bias``."""

    bias: float
    """The value of the constant feature; 0: there is none."""
    expansion: ClassVar[None] = None

    def apply(self, X: Rows) -> Rows:
        """Return the rows with the constant feature, without a copy."""
        return X._replace(bias=self.bias)

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield the stored block as one part."""
        yield FeaturePart(0, row_count(X), self.apply(X))

    def lazy_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Return ``parts``, because no features are computed."""
        return self.parts(X)

    def to_input_space(self, solution: LinearSolution) -> LinearSolution:
        """Return the solution itself: it is a function of the stored columns already."""
        return solution


@dataclass(frozen=True, slots=True)
class Standardized:
    """The map x_j -> (x_j - shift_j) scale_j. It changes blocks, which are buffers of the reader, in place.

    Of sparse rows, only stored entries are changed; therefore only columns that every row stores may have a shift.
    """

    shift: Float32
    """(d,) subtracted from the columns: the mean of dense or centered columns, else 0."""
    scale: Float32
    """(d,) factors of the columns after the shift: 1 / standard deviation, or 1."""
    bias: float
    """The value of the constant feature, which is not scaled; 0: there is none."""
    expansion: ClassVar[None] = None

    def apply(self, X: Rows) -> Rows:
        """Standardize the rows in place, and return them with the constant feature."""
        if isinstance(X, Dense):
            scale_dense(X.values, self.shift, self.scale)
        else:
            scale_sparse(X.data, X.indices, self.shift, self.scale)
        return X._replace(bias=self.bias)

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Standardize the block in place and yield it as one part."""
        yield FeaturePart(0, row_count(X), self.apply(X))

    def lazy_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Return ``parts``, because no features are computed."""
        return self.parts(X)

    def to_input_space(self, solution: LinearSolution) -> LinearSolution:
        """Return the same function of stored columns: weights w_j scale_j, and a constant feature of value 1 whose
        weight includes the shifts.
        """
        raw = solution.w[:-1] * self.scale
        constant = solution.bias * solution.w[-1] - float(raw @ self.shift.astype(np.float64))
        return LinearSolution(np.append(raw, constant), 1.0)

    def map_sum(self, v: Float64) -> Float64:
        """Return the sum (d + 1,) of mapped rows, given the sum ``v`` (d + 1,) of stored rows with a constant feature
        of 1.
        """
        shifted = v[:-1] - v[-1] * self.shift.astype(np.float64)
        return np.append(shifted * self.scale, self.bias * v[-1])


def choose_scaling(
    store: Store, *, standardize: bool, every: bool = False, bias: float, centered_too: bool = True
) -> Raw | Standardized:
    """Return the map that a job's settings require; statistics are read only for standardization.

    Columns of category values and of words (the store lists them in its fact ``indicators``) are not standardized
    unless ``every`` is true: divided by their standard deviation, the rarest values would get the largest features.
    Without ``centered_too``, columns are only scaled, for one-class problems, which separate the rows from the origin.
    """
    if not standardize:
        return Raw(bias)
    scaling = fit_standardization(
        store.statistics(), store.layout.rows, sparse=not (store.layout.dense and centered_too), bias=bias
    )
    indicators: list[list[int]] = [] if every else store.facts.get("indicators") or []
    for start, stop in indicators:
        scaling.shift[start:stop], scaling.scale[start:stop] = 0.0, 1.0
    return scaling


def fit_standardization(statistics: Statistics, rows: int, *, sparse: bool, bias: float) -> Standardized:
    """Return the map to zero mean and unit variance; for sparse rows, whose zeros a shift would fill, only to unit
    variance.

    Constant columns are not scaled. Columns that float32 cannot scale (``beyond_scaling``) are not changed.
    """
    deviation, beyond = np.sqrt(statistics.M2 / rows), beyond_scaling(statistics, rows)
    scaled = (deviation > 0) & ~beyond
    scale = np.where(scaled, 1.0 / np.where(scaled, deviation, 1.0), 1.0)
    shift = np.zeros_like(statistics.mean) if sparse else np.where(beyond, 0.0, statistics.mean)
    return Standardized(shift.astype(np.float32), scale.astype(np.float32), bias)


def beyond_scaling(statistics: Statistics, rows: int) -> NDArray[np.bool_]:
    """Return whether each column (d,) cannot be scaled in float32: its standard deviation is subnormal or overflows, or
    a distance from its mean overflows.
    """
    limits = np.finfo(np.float32)
    deviation = np.sqrt(statistics.M2 / rows)
    farthest = np.maximum(statistics.maximum - statistics.mean, statistics.mean - statistics.minimum)
    return ((deviation > 0) & (deviation < limits.tiny)) | (farthest > limits.max) | ~np.isfinite(deviation)


def center(scaling: Raw | Standardized, store: Store) -> Raw | Standardized:
    """Return the scaling that also centers columns far from 0, for kernels of x - z, whose values centering does not
    change.
    """
    dense = store.layout.dense
    if dense and isinstance(scaling, Standardized):
        return scaling
    statistics = store.statistics()
    far = np.abs(statistics.mean) > FAR * np.sqrt(statistics.M2 / store.layout.rows)
    if not dense:
        far &= np.sign(statistics.minimum) * np.sign(statistics.maximum) > 0
    if not far.any():
        return scaling
    shift = np.where(far, statistics.mean, 0.0).astype(np.float32)
    scale = scaling.scale if isinstance(scaling, Standardized) else np.ones_like(shift)
    return Standardized(shift, scale, scaling.bias)


def typical_reach(map_: Raw | Standardized, store: Store) -> Reach:
    """Return the size of a typical mapped row: the mean of ||x||^2, and the mean number of entries."""
    statistics, layout = store.statistics(), store.layout
    mean, variance = statistics.mean, statistics.M2 / layout.rows
    if isinstance(map_, Standardized):
        scale = map_.scale.astype(np.float64)
        mean, variance = (mean - map_.shift) * scale, variance * np.square(scale)
    entries = layout.columns if layout.nonzeros is None else -(-sum(layout.nonzeros) // layout.rows)
    return Reach(entries, float((np.square(mean) + variance).sum()), layout.dense)


def column_sizes(map_: FeatureMap, store: Store, bias: float) -> tuple[Float64, Float64]:
    """Return an upper bound of the root mean square of each column and of the constant feature (d + 1,) over the mapped
    rows of a store.

    The bound is exact where the statistics are those of its rows. For some chunks of a store, whose statistics are those
    of all chunks, the sum of squares over these rows is at most that over all rows; ``layout.share`` is the fraction
    of the rows. If rows have weights, return the largest absolute values instead. The second array contains the same
    numbers for the columns that the map shifts or scales in float32, else 0.
    """
    statistics = store.statistics()
    shift, scale = np.zeros_like(statistics.mean), np.ones_like(statistics.mean)
    if isinstance(map_, Standardized):
        shift, scale = map_.shift.astype(np.float64), map_.scale.astype(np.float64)
    if store.layout.weighted:
        sizes = np.maximum(np.abs(statistics.minimum - shift), np.abs(statistics.maximum - shift)) * scale
    else:
        variance = statistics.M2 / store.layout.rows
        sizes = np.sqrt((np.square(statistics.mean - shift) + variance) / store.layout.share) * scale
    changed = (shift != 0.0) | (scale != 1.0)
    return np.append(sizes, abs(bias)), np.append(np.where(changed, sizes, 0.0), 0.0)


def largest_sizes(map_: FeatureMap, store: Store, bias: float) -> Float64:
    """Return the largest absolute value of each column and of the constant feature (d + 1,) over the mapped rows of a
    store.
    """
    statistics = store.statistics()
    low, high = statistics.minimum, statistics.maximum
    if isinstance(map_, Standardized):
        low, high = ((end - map_.shift.astype(np.float64)) * map_.scale for end in (low, high))
    return np.append(np.maximum(np.abs(low), np.abs(high)), abs(bias))


def farthest_reach(map_: Raw | Standardized, store: Store) -> Reach:
    """Return an upper bound of the size of a mapped row: the sum of the largest squares of all columns."""
    statistics = store.statistics()
    low, high = statistics.minimum, statistics.maximum
    if isinstance(map_, Standardized):
        low, high = ((end - map_.shift) * map_.scale for end in (low, high))
    return Reach(store.layout.columns, float(np.maximum(low * low, high * high).sum()), store.layout.dense)


def moments_seen_by_kernel(
    statistics: Statistics, rows: int, shift: Array | None, scale: Array | None
) -> tuple[Float64, Float64]:
    """Return the mean and the variance of the columns of (x - shift) scale; None: no shift, or no scale."""
    mean, variance = statistics.mean, statistics.M2 / rows
    if shift is not None:
        mean = mean - shift
    if scale is not None:
        mean, variance = mean * scale, variance * np.square(scale, dtype=np.float64)
    return mean, variance
