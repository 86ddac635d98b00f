"""What column statistics of a store decide: standardization, centering, how large rows are, and the width of a kernel.

Maps are applied to each block in memory and kept by the model.

**Centering.** A kernel of x - z does not change when c is subtracted from every row, but what rounding does to it changes: the squared
distance from ||x||^2 + ||z||^2 - 2 x.z loses about u (||x||^2 + ||z||^2), u the unit roundoff, and where columns lie
far from 0 that is more than the distance. Hence rows are seen as x - c, c_j the mean of column j (from the statistics
of the store, float64, then rounded to float32) where |mean_j| > FAR std_j, and 0 elsewhere. Nearly all x_j then lie
within [c_j / 2, 2 c_j], where x_j - c_j is exact (Sterbenz 1974); one that does not is off by at most u |x_j - c_j|,
the same in training and in prediction: the problem is posed on the rows as the kernel sees them.

A sparse row is centered in columns that every row stores, so that it stays sparse: their minimum and maximum over all
rows, where absent entries count as 0, have the same sign.

**The width by rule.** For rows x, x' drawn at random and independently, E ||x - x'||^2 = 2 sum_j var_j exactly, so that the mean squared
distance of random pairs, which Frandi et al. estimate from a sample, is known without a pass over the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.compute.blocks.column_scaling import scale_dense, scale_sparse
from streamsvm.errors import UsageError
from streamsvm.rows import Dense, Float32, Float64, Reach, Rows, row_count
from streamsvm.types import FeatureMap, FeaturePart, LinearSolution, Statistics, Store

FAR = 4.0
"""Columns whose mean is more than this many standard deviations from 0 are centered for kernels of x - z. Nearer ones
have at most FAR^2 + 1 times the rounding, four bits, and keep the very numbers that are stored."""


@dataclass(frozen=True, slots=True)
class Raw:
    """The features as they are stored, with a constant one of value ``bias``."""

    bias: float
    """The value of the constant feature; 0: there is none."""
    expansion: ClassVar[None] = None

    def apply(self, X: Rows) -> Rows:
        """Return the rows with the constant feature; nothing is copied."""
        return X._replace(bias=self.bias)

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield the block as it is stored, in one part."""
        yield FeaturePart(0, row_count(X), self.apply(X))

    def unformed_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Return ``parts``: there is nothing to form."""
        return self.parts(X)

    def to_input_space(self, solution: LinearSolution) -> LinearSolution:
        """Return the solution as it is: its columns are the stored ones."""
        return solution


@dataclass(frozen=True, slots=True)
class Standardized:
    """x_j -> (x_j - shift_j) scale_j, float32 (d,). Blocks are changed in place: they are the reader's buffers.

    Of sparse rows stored entries are changed: a shift other than 0 goes with columns that every row of the store has.
    """

    shift: Float32
    """Subtracted first: means of dense columns, and of columns that are centered; else 0."""
    scale: Float32
    """The factor of the difference: one over the standard deviation; 1 leaves a column as it is."""
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
        """Yield the block standardized in place, in one part."""
        yield FeaturePart(0, row_count(X), self.apply(X))

    def unformed_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Return ``parts``: there is nothing to form."""
        return self.parts(X)

    def to_input_space(self, solution: LinearSolution) -> LinearSolution:
        """Return the same function of raw features: w_j scale_j, and the shifts moved into the constant, whose value is 1."""
        raw = solution.w[:-1] * self.scale
        constant = solution.bias * solution.w[-1] - float(raw @ self.shift.astype(np.float64))
        return LinearSolution(np.append(raw, constant), 1.0)

    def unfold(self, v: Float64) -> Float64:
        """Return the sum (d + 1,) of rows as this map makes them, from that of raw ones with a constant feature of 1."""
        shifted = v[:-1] - v[-1] * self.shift.astype(np.float64)
        return np.append(shifted * self.scale, self.bias * v[-1])


def choose_scaling(
    store: Store, *, standardize: bool, every: bool = False, bias: float, centered_too: bool = True
) -> Raw | Standardized:
    """Return the map a job asks for; the statistics are read only if they are needed.

    Columns that stand for the values of a category, or for words, stay as they are unless ``every`` column is asked for: scaled by
    their deviation, the rarest values would weigh most. A store names these columns in its fact ``indicators``. Without
    ``centered_too`` columns are only scaled: one-class problems separate the rows from the origin.
    """
    if not standardize:
        return Raw(bias)
    found = fit_standardization(
        store.statistics(), store.layout.rows, sparse=not (store.layout.dense and centered_too), bias=bias
    )
    indicators: list[list[int]] = [] if every else store.facts.get("indicators") or []
    for start, stop in indicators:
        found.shift[start:stop], found.scale[start:stop] = 0.0, 1.0
    return found


def fit_standardization(statistics: Statistics, rows: int, *, sparse: bool, bias: float) -> Standardized:
    """Return the map to zero mean (dense only: a shift would fill a sparse block) and unit variance.

    Constant columns are not scaled, and those beyond float32 (``beyond_scaling``) are left as they are.
    """
    deviation, beyond = np.sqrt(statistics.M2 / rows), beyond_scaling(statistics, rows)
    scaled = (deviation > 0) & ~beyond
    scale = np.where(scaled, 1.0 / np.where(scaled, deviation, 1.0), 1.0)
    shift = np.zeros_like(statistics.mean) if sparse else np.where(beyond, 0.0, statistics.mean)
    return Standardized(shift.astype(np.float32), scale.astype(np.float32), bias)


def beyond_scaling(statistics: Statistics, rows: int) -> NDArray[np.bool_]:
    """Return which columns (d,) float32 cannot scale: of a deviation that is not a normal number there, or whose distance from the mean is none."""
    limits = np.finfo(np.float32)
    deviation = np.sqrt(statistics.M2 / rows)
    farthest = np.maximum(statistics.maximum - statistics.mean, statistics.mean - statistics.minimum)
    return ((deviation > 0) & (deviation < limits.tiny)) | (farthest > limits.max) | ~np.isfinite(deviation)


def center(inner: Raw | Standardized, store: Store) -> Raw | Standardized:
    """Return the same map with columns that lie far from 0 centered, for kernels of x - z, which it does not change."""
    dense = store.layout.dense
    if dense and isinstance(inner, Standardized):
        return inner
    statistics = store.statistics()
    far = np.abs(statistics.mean) > FAR * np.sqrt(statistics.M2 / store.layout.rows)
    if not dense:
        far &= np.sign(statistics.minimum) * np.sign(statistics.maximum) > 0
    if not far.any():
        return inner
    shift = np.where(far, statistics.mean, 0.0).astype(np.float32)
    scale = inner.scale if isinstance(inner, Standardized) else np.ones_like(shift)
    return Standardized(shift, scale, inner.bias)


def typical_reach(map_: Raw | Standardized, store: Store) -> Reach:
    """Return how large typical rows are as the map makes them: the mean of ||x||^2, and entries of a row."""
    statistics, layout = store.statistics(), store.layout
    mean, variance = statistics.mean, statistics.M2 / layout.rows
    if isinstance(map_, Standardized):
        scale = map_.scale.astype(np.float64)
        mean, variance = (mean - map_.shift) * scale, variance * np.square(scale)
    entries = layout.columns if layout.nonzeros is None else -(-sum(layout.nonzeros) // layout.rows)
    return Reach(entries, float((np.square(mean) + variance).sum()), layout.dense)


def column_sizes(map_: FeatureMap, store: Store, bias: float) -> tuple[Float64, Float64]:
    """Return the root mean square of each column and of the constant feature (d + 1,) of a store's rows, as a linear map makes them.

    Where rows have weights of their own it is the largest absolute value. Second, the same of the columns that the map
    scales in float32, 0 elsewhere.
    """
    found = store.statistics()
    shift, scale = np.zeros_like(found.mean), np.ones_like(found.mean)
    if isinstance(map_, Standardized):
        shift, scale = map_.shift.astype(np.float64), map_.scale.astype(np.float64)
    if store.layout.weighted:
        sizes = np.maximum(np.abs(found.minimum - shift), np.abs(found.maximum - shift)) * scale
    else:
        sizes = np.sqrt(np.square(found.mean - shift) + found.M2 / store.layout.rows) * scale
    changed = (shift != 0.0) | (scale != 1.0)
    return np.append(sizes, abs(bias)), np.append(np.where(changed, sizes, 0.0), 0.0)


def largest_sizes(map_: FeatureMap, store: Store, bias: float) -> Float64:
    """Return the largest absolute value of each column and of the constant feature (d + 1,), as a linear map makes them."""
    found = store.statistics()
    low, high = found.minimum, found.maximum
    if isinstance(map_, Standardized):
        low, high = ((end - map_.shift.astype(np.float64)) * map_.scale for end in (low, high))
    return np.append(np.maximum(np.abs(low), np.abs(high)), abs(bias))


def farthest_reach(map_: Raw | Standardized, store: Store) -> Reach:
    """Return how large a row can be at most as the map makes it: the sum of the largest squares of all columns."""
    found = store.statistics()
    low, high = found.minimum, found.maximum
    if isinstance(map_, Standardized):
        low, high = ((end - map_.shift) * map_.scale for end in (low, high))
    return Reach(store.layout.columns, float(np.maximum(low * low, high * high).sum()), store.layout.dense)


def choose_gamma(rule: str | float, mean: Float64, variance: Float64, *, city_block: bool = False) -> float:
    """Return the gamma of a number or a rule, for the mean and variance of columns as the kernel sees them.

    ``scale``: 1 / (d v), v the variance of all entries together, as in LIBSVM and scikit-learn; but for columns far from 0, whose
    offset does not change a kernel of x - z: they are centered before. ``mean-distance``:
    1 / (mean squared distance of random pairs). A kernel of the city-block distance takes 1 / d and
    1 / sum_j sqrt(2 var_j), an upper bound of the mean distance. Raises UsageError.
    """
    if not isinstance(rule, str):
        return _positive(float(rule))
    if rule == "scale":
        return 1.0 / len(mean) if city_block else _inverse(len(mean) * (variance.mean() + mean.var()))
    if rule == "mean-distance":
        return _inverse(np.sqrt(2.0 * variance).sum() if city_block else 2.0 * variance.sum())
    try:
        return _positive(float(rule))
    except ValueError as error:
        raise UsageError(f"gamma '{rule}' is not known", hint="scale, mean-distance or a positive number") from error


def moments_seen_by_kernel(
    statistics: Statistics, rows: int, shift: Array | None, scale: Array | None
) -> tuple[Float64, Float64]:
    """Return mean and variance of the columns after (x - shift) scale; None: none is applied."""
    mean, variance = statistics.mean, statistics.M2 / rows
    if shift is not None:
        mean = mean - shift
    if scale is not None:
        mean, variance = mean * scale, variance * np.square(scale, dtype=np.float64)
    return mean, variance


def _positive(gamma: float) -> float:
    if not 0.0 < gamma < float("inf"):
        raise UsageError(f"gamma must be a positive number, not {gamma}", hint="or 'scale', or 'mean-distance'")
    return gamma


def _inverse(width: float) -> float:
    """Return 1 / width; 1 where every row is the same."""
    return 1.0 / float(width) if width > 0.0 else 1.0
