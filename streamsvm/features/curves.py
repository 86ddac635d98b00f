"""Generalized additive models: f is a sum of piecewise-linear functions, one for each numeric column.

    f(x) = b + sum_j c_j(x_j) + sum_l w_l x_l,

with a curve c_j for each column of numbers, and a weight w_l for each indicator column (one-hot category or word; the
store lists them in its fact ``indicators``) and for each column of 0 and 1, on which every function is linear. A constant
column has neither. Single values can have effects of their own (``features.jumps``), and chosen pairs of columns tables
(``features.column_pairs``).

**Features.** h_r is the hat function of knot r of a curve: 1 there, 0 at the other knots, and linear in between. A curve
is c(x) = theta' h(x), with theta its values at the knots. The solver sees z = B' h(x), with B B' = S^-1, so that its ridge
penalty is theta' S theta (S: see Penalty).

**Knots.** At most K knots a column: half of them quantiles, the other half evenly spaced between the quantiles .001 and
.999, because quantiles alone would cover each tail with a single linear piece. If the column has at most K different
values (cells of its histogram), each is a knot. Quantiles are taken from a histogram over the upper 16 bits of float32
values: its cells have a relative width of at most 1/128. Integer counts do not depend on the order of the rows, so the
knots are bitwise identical for any number of threads and workers. The first and last knot are the least and the largest value.

**Penalty.** With theta the values at the K knots, D1 and D2 first and second differences, and m = (1, .., 1) / K,

    "d2":   S = m m' + 0.1 (K - 1) / 12 D1' D1 + 0.01 (K - 1)^3 / 720 D2' D2
    "d1":   S = m m' + (K - 1) / 12 D1' D1
    "none": S = 1.

In terms of s = (r - 1) / (K - 1), which runs from 0 to 1 over the knots, (K - 1) |D1 theta|^2 approximates the integral
of c'(s)^2, and (K - 1)^3 |D2 theta|^2 that of c''(s)^2. A straight line of unit variance over uniform s has c'^2 = 12,
so "d1" penalizes it as the ridge penalty does the weight of a standardized column; the parabola of unit variance, 6
sqrt(5) (s - 1/2)^2 + constant, has c''^2 = 720. Neither cost grows with K, which is therefore a resolution and not a
strength of the penalty. The level of a curve is penalized by its mean, without which S would be singular. Without m m',
"d1" is (up to scale) the ridge penalty on a thermometer (cumulative) encoding. "none" is the ridge penalty of the hats
themselves, which keeps rows sparse, so that every solver can be used; it grows with K.

References: Eilers and Marx, Flexible smoothing with B-splines and penalties, Statistical Science 1996; Hastie and
Tibshirani, Generalized Additive Models, 1990.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.blocks.curves import LEVELS, Basis, Curved, add_to_histograms, hat_rows, least_values
from streamsvm.compute.blocks.operators import decision_values
from streamsvm.errors import DataError
from streamsvm.features.column_pairs import ColumnPairs, Variables, component_sizes, decode_column_pairs
from streamsvm.features.jumps import Jumps, decode_jumps
from streamsvm.rows import CSR, Dense, Float32, Float64, Int32, Int64, Rows, check_columns, row_count, row_slice
from streamsvm.types import FeaturePart, LinearSolution, Statistics

D2, D1, NONE = SMOOTHING = ("d2", "d1", "none")
"""The penalties of curves."""
KNOTS = 64
"""The default of the largest number of knots of a curve."""
SLOPE_SHARE, BEND_SHARE = 0.1, 0.01
"""Factors of the two terms of "d2". A straight line is ten times cheaper than with "d1"."""
TAIL = 0.001
"""The evenly spaced knots lie between the quantiles TAIL and 1 - TAIL."""
BINARY_TOLERANCE = 0.01
"""The largest sum of x - x^2 in a column of 0 and 1. The rounding error of a sum over 10^9 rows is smaller."""
PART_BYTES = 4 << 20
"""Size in bytes of the hat-function entries computed at a time."""
HISTOGRAM_BYTES = 8 * LEVELS
"""Bytes of the histogram of a column."""


def part_rows(curves: int) -> int:
    """Return the number of rows that are mapped at a time. It depends on the number of curves alone."""
    return max(256, min(8192, PART_BYTES // (16 * max(1, curves)) // 256 * 256))


class FittedCurve(NamedTuple):
    """The curve of a column, less its mean over the training rows."""

    column: int
    """The number of the stored column."""
    knots: Float64
    """(K,) in the units of the stored column."""
    values: Float64
    """(K,)"""
    knot_mass: Float64
    """(K,) The mean of h_r, about the fraction of the training rows near the knot."""
    mean: float
    """The mean of the curve before it was subtracted."""
    deviation: float
    """The standard deviation of the curve over the training rows."""


@dataclass(frozen=True, slots=True)
class Hats:
    """The hat functions of curves: the knots, and which stored columns have curves."""

    columns: int
    """Number d of columns of stored rows."""
    curved: Int32
    """(q,) The numbers of the columns with curves, ascending."""
    linear: Int32
    """The numbers of the columns that have a weight, ascending."""
    knots: Float32
    """The knots of all curves, rising within each."""
    starts: Int64
    """(q + 1,) The place of the first knot of each curve, and the number of all knots."""
    squares: Float64
    """The means of h_r(x)^2 over the training rows, for each knot; computed from the histograms, so x is rounded to its
    cell."""
    products: Float64
    """The means of h_r(x) h_r+1(x); 0 for the last knot of a curve."""
    deviations: Float64
    """The standard deviations of the columns ``linear``."""
    pairs: ColumnPairs | None = None
    """The pairs of columns with tables; None: there are none."""
    jumps: Jumps | None = None
    """The values with effects of their own; None: there are none."""
    _feature_codes: Int32 = field(init=False, repr=False, compare=False)
    """(d,) What each stored column is: i >= 0: curve number i; -1 - l: linear column number l; -1 - d: neither."""

    def __post_init__(self) -> None:
        codes = np.full(self.columns, -1 - self.columns, np.int32)
        codes[self.curved] = np.arange(len(self.curved))
        codes[self.linear] = -1 - np.arange(len(self.linear))
        object.__setattr__(self, "_feature_codes", codes)

    @property
    def features(self) -> int:
        """Number of components of h(x), without the constant feature."""
        return self.additive_features + (0 if self.pairs is None else self.pairs.features)

    @property
    def additive_features(self) -> int:
        """Number of components of curves, linear columns and jumps."""
        return self.first_jump + (0 if self.jumps is None else len(self.jumps.values))

    @property
    def first_jump(self) -> int:
        """The component of the first jump."""
        return len(self.knots) + len(self.linear)

    @property
    def entries_of_tail(self) -> int:
        """Number of entries of every row for jumps and pairs."""
        return (0 if self.jumps is None else len(self.jumps.columns)) + (0 if self.pairs is None else len(self.pairs))

    @property
    def part_rows(self) -> int:
        """The number of rows that are mapped at a time."""
        return part_rows(len(self.curved) + (self.entries_of_tail + 1) // 2)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in (*self.tensors().values(), self._feature_codes))

    def part_bytes(self, block_bytes: int) -> int:
        """Return the memory needed to map one part of a block of ``block_bytes``: hat entries, plus indices and values of
        the linear columns' nonzeros.
        """
        count, curves = self.part_rows, len(self.curved)
        codes = 0 if self.pairs is None else 4 * len(self.pairs.counts)
        codes += 0 if self.jumps is None else 40 * len(self.jumps.columns)
        return count * (16 * (curves + 1) + 8 * self.entries_of_tail + codes) + min(
            24 * count * len(self.linear), 3 * block_bytes
        )

    def rows(self, X: Rows, bias: float) -> CSR:
        """Return the rows h(x) of stored rows, with a constant feature of value ``bias``."""
        rows = hat_rows(X, self._feature_codes, self.knots, self.starts, bias, self.entries_of_tail)
        if self.jumps is not None:
            self.jumps.fill(X, rows, self.first_jump, self.entries_of_tail)
        if self.pairs is not None:
            self.pairs.fill(X, rows, self.additive_features)
        return rows

    def parts(self, X: Rows, bias: float) -> Iterator[FeaturePart]:
        """Yield the mapped rows in parts of ``part_rows`` rows."""
        count, step = row_count(X), self.part_rows
        for start in range(0, count, step):
            stop = min(start + step, count)
            yield FeaturePart(start, stop, self.rows(row_slice(X, start, stop), bias))

    def decision(self, X: Rows, weights: Float64, out: Float64, *, exact: bool = False) -> None:
        """Write weights[k, :-1] . h(x) + weights[k, -1] to ``out`` (n, k) for stored rows ``X``. ``exact``
        (the same bits in any batch) has no effect, since each row is computed on its own.
        """
        check_columns(X, self.columns)
        for start, stop, rows in self.parts(X, 1.0):
            decision_values(rows, weights, out[start:stop])

    def split_weights(self, weights: Float64) -> tuple[Float64, dict[int, tuple[Float64, Float64]]]:
        """Return the weights of the stored columns (d,), 0 for those with a curve, and a dict from the number of each curved
        column to (knots, values at the knots). ``weights``: (features,).
        """
        linear, curves = np.zeros(self.columns), {}
        linear[self.linear] = self.linear_weights(weights)
        for column, start, stop in zip(self.curved.tolist(), self.starts, self.starts[1:], strict=False):
            curves[column] = self.knots[start:stop].astype(np.float64), weights[start:stop]
        return linear, curves

    def linear_weights(self, weights: Float64) -> Float64:
        """Return the weights of the columns ``linear`` among those of all features."""
        return weights[..., len(self.knots) : self.first_jump]

    def jump_weights(self, weights: Float64) -> Float64:
        """Return the weights of jumps among those of all features."""
        return weights[..., self.first_jump : self.additive_features]

    def contributions(self, values: Float64, weights: Float64) -> Float64:
        """Return the contributions of the columns, and of the pairs after them, to the decision values of stored rows (n, d): a
        column's curve less the mean of the curve over the training rows, with a jump, weight times value, or the value of a cell.
        (n, k, d + pairs). ``weights``: (k, features).
        """
        pairs = 0 if self.pairs is None else len(self.pairs)
        contributions = np.zeros((len(values), len(weights), self.columns + pairs))
        stored = Dense(values.astype(np.float32))
        for k, row in enumerate(weights):
            contributions[:, k, self.linear] = values[:, self.linear] * self.linear_weights(row)
            for curve in self.shapes(row):
                contributions[:, k, curve.column] = np.interp(values[:, curve.column], curve.knots, curve.values)
            if self.jumps is not None:
                of_jumps = self.jumps.effects(stored, self.jump_weights(row))
                contributions[:, k, self.jumps.columns] += of_jumps
            if self.pairs is not None:
                effects = self.pairs.effects(stored, row[self.additive_features :])
                contributions[:, k, self.columns :] = effects
        return contributions

    def shapes(self, weights: Float64) -> list[FittedCurve]:
        """Return the curves that have the values ``weights`` (features,) at their knots."""
        curves = []
        for column, start, stop in zip(self.curved.tolist(), self.starts, self.starts[1:], strict=False):
            theta, products = weights[start:stop], self.products[start:stop]
            # the entries of h sum up to 1, so that a mean of h_r is a sum of means of h_r h_s
            knot_mass = self.squares[start:stop] + products
            knot_mass[1:] += products[:-1]
            mean = float(knot_mass @ theta)
            theta = theta - mean
            variance = float(self.squares[start:stop] @ np.square(theta)) + 2.0 * float(
                products[:-1] @ (theta[:-1] * theta[1:])
            )
            knots = self.knots[start:stop].astype(np.float64)
            curves.append(FittedCurve(column, knots, theta, knot_mass, mean, float(np.sqrt(max(variance, 0.0)))))
        return curves

    def header(self) -> dict[str, Any]:
        """Return everything except the arrays, as plain JSON."""
        counts = {"curves": len(self.curved), "knots": len(self.knots), "columns": self.columns}
        counts |= {} if self.jumps is None else {"jumps": len(self.jumps.values)}
        return counts if self.pairs is None else counts | {"pairs": len(self.pairs)}

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        named: dict[str, NDArray[Any]] = {"curves.columns": self.curved, "curves.linear": self.linear}
        named |= {"curves.knots": self.knots, "curves.starts": self.starts, "curves.deviations": self.deviations}
        named |= {"curves.squares": self.squares, "curves.products": self.products}
        named |= {} if self.jumps is None else self.jumps.tensors()
        return named if self.pairs is None else named | self.pairs.tensors()


def decode_hats(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Hats:
    """Return the hat functions in ``header`` and ``tensors``. Raises DataError, KeyError, TypeError if they do not
    describe any.
    """
    columns = header["columns"]
    curved, linear = tensors["curves.columns"], tensors["curves.linear"]
    knots, starts = tensors["curves.knots"], tensors["curves.starts"]
    moments = [tensors[f"curves.{name}"] for name in ("squares", "products", "deviations")]
    types = (np.int32, np.int32, np.float32, np.int64, np.float64, np.float64, np.float64)
    arrays = (curved, linear, knots, starts, *moments)
    types_match = all(a.ndim == 1 and a.dtype == kind for a, kind in zip(arrays, types, strict=True))
    if not types_match or not isinstance(columns, int) or len(starts) != len(curved) + 1:
        raise DataError("the curves have arrays of wrong types")
    both = np.concatenate([curved, linear])
    columns_valid = len(np.unique(both)) == len(both) and bool(((both >= 0) & (both < columns)).all())
    starts_valid = starts[0] == 0 and starts[-1] == len(knots) and bool((np.diff(starts) >= 2).all())
    moments_valid = [len(a) for a in moments] == [len(knots), len(knots), len(linear)]
    moments_valid = moments_valid and all(np.isfinite(a).all() for a in moments)
    if not (columns_valid and starts_valid and moments_valid and np.isfinite(knots).all()):
        raise DataError("the curves' columns, offsets or moments are inconsistent")
    rising = np.diff(knots) > 0
    rising[starts[1:-1] - 1] = True  # from one curve to the next
    if not rising.all():
        raise DataError("the knots of a curve are not increasing")
    squares, products, deviations = moments
    pairs = decode_column_pairs(tensors, columns)
    jumps = decode_jumps(tensors, curved)
    return Hats(columns, curved, linear, knots, starts, squares, products, deviations, pairs, jumps)


@dataclass(frozen=True, slots=True)
class Curves:
    """The map from stored rows to the rows that a solver sees: h(x), or z = B' h(x) as the pair of h(x) and B."""

    hats: Hats
    basis: Basis | None
    """B; None for the penalty "none"."""
    bias: float
    """The value of the constant feature; 0: there is none."""
    variables: Variables | None = None
    """The variables among which pairs are chosen; None: no pairs are asked for."""

    @property
    def columns(self) -> int:
        """The number of features."""
        return self.hats.features

    @property
    def expansion(self) -> Hats:
        """The basis in which ``to_input_space`` expresses the solution."""
        return self.hats

    def parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Yield the features of a block, part by part."""
        for part in self.hats.parts(X, self.bias):
            yield part if self.basis is None else part._replace(X=Curved(part.X, self.basis))

    def lazy_parts(self, X: Rows) -> Iterator[FeaturePart]:
        """Return the same as ``parts``, which is already lazy."""
        return self.parts(X)

    def to_input_space(self, solution: LinearSolution) -> LinearSolution:
        """Return the same function with the values at the knots, theta = B u, as weights."""
        if self.basis is None:
            return solution
        return LinearSolution(self.basis.lift(solution.w[None])[0], solution.bias)

    def component_sizes(self, statistics: Statistics) -> Float64:
        """Return bounds of the absolute values of the components (p,) of every mapped row: max_r |B_rk| of curves, as the
        entries of h are not negative and sum up to 1.

        ``statistics``: those of the stored columns.
        """
        largest = np.maximum(np.abs(statistics.minimum), np.abs(statistics.maximum))[self.hats.linear]
        cells = np.ones(self.hats.features - self.hats.first_jump)
        sizes = np.concatenate([np.ones(len(self.hats.knots)), largest, cells, [abs(self.bias)]])
        for part, B in [] if self.basis is None else self.basis.blocks():
            sizes[part] = np.abs(B).max(axis=0)
        if self.basis is not None and self.basis.pairs is not None:
            component_sizes(self.basis.pairs, sizes)
        return sizes

    @property
    def rounding_count(self) -> int:
        """An upper bound of the number of roundings in a decision value and in a component of B' v, besides those of the
        sum over rows.
        """
        longest, pairs = 0 if self.basis is None else int(np.diff(self.hats.starts).max(initial=0)), self.hats.pairs
        if pairs is not None:  # a value of a cell is a sum over all cells of its table
            longest = max(longest, 2 * int(pairs.counts.max()) + 2)
        return longest + 2 * len(self.hats.curved) + len(self.hats.linear) + self.hats.entries_of_tail + 4


def make_basis(starts: Int64, smooth: str) -> Basis | None:
    """Return B with B B' = S^-1 for curves whose knots begin at ``starts`` (q + 1,); None for "none"."""
    if smooth == NONE:
        return None
    made: dict[int, Float64] = {}
    sizes = np.diff(starts).tolist()
    for K in sizes:
        if K not in made:
            lower = np.linalg.cholesky(penalty_matrix(K, smooth))
            made[K] = np.linalg.inv(lower).T
    return Basis(np.concatenate([np.empty(0), *(made[K].ravel() for K in sizes)]), starts)


def penalty_matrix(K: int, smooth: str) -> Float64:
    """Return S (K, K)."""
    first = np.diff(np.eye(K), axis=0)
    second = np.diff(first, axis=0)
    slopes = (K - 1) / 12.0 * first.T @ first
    level = np.full((K, K), 1.0 / K**2)
    if smooth == D1:
        return level + slopes
    bends: Float64 = (K - 1) ** 3 / 720.0 * second.T @ second
    return level + SLOPE_SHARE * slopes + BEND_SHARE * bends


def are_zero_or_one(statistics: Statistics, rows: int) -> NDArray[np.bool_]:
    """Return for each column (d,) whether all its values are 0 or 1.

    For x in [0, 1], x - x^2 >= 0, and it is 0 only for 0 and 1. For a binary column its
    sum over all rows is 0 up to rounding, below BINARY_TOLERANCE. A column within that tolerance is treated as binary.
    """
    sums = rows * (statistics.mean - np.square(statistics.mean)) - statistics.M2
    return (statistics.minimum == 0.0) & (statistics.maximum == 1.0) & (np.abs(sums) < BINARY_TOLERANCE)


class ColumnHistograms:
    """Histograms of columns, and their least and largest values, from which knots are chosen."""

    def __init__(self, columns: Int64) -> None:
        q = len(columns)
        self.columns = columns
        """(q,) The numbers of the columns, ascending."""
        self.counts = np.zeros((q, LEVELS), np.int64)
        self.minimum = np.full(q, np.inf, np.float32)
        self.maximum = np.full(q, -np.inf, np.float32)

    def add(self, X: Rows) -> None:
        """Count the values of stored rows."""
        add_to_histograms(X, self.columns, self.counts, self.minimum, self.maximum)

    def hats(self, d: int, linear: Int64, deviations: Float64, knots: int) -> Hats:
        """Choose at most ``knots`` knots for each histogrammed column, and return the hat functions. A column with a single
        value has no curve.

        ``d``: number of stored columns; ``linear``: the columns that get a weight; ``deviations``: their standard
        deviations.
        """
        curved, chosen, moments = [], [], []
        cell_lower_bounds = least_values()
        for j, column in enumerate(self.columns.tolist()):
            low, high = self.minimum[j], self.maximum[j]
            cells = np.flatnonzero(self.counts[j])
            if low < high:
                curved.append(column)
                counts = self.counts[j, cells]
                chosen.append(_choose_knots(cell_lower_bounds[cells], counts, low, high, knots))
                moments.append(_mean_products(chosen[-1], cell_lower_bounds[cells], counts))
        starts = np.concatenate([[0], np.cumsum([len(one) for one in chosen], dtype=np.int64)]).astype(np.int64)
        joined = np.concatenate([np.empty(0, np.float32), *chosen])
        squares, products = np.hstack([np.empty((2, 0)), *moments])
        return Hats(
            d, np.array(curved, np.int32), linear.astype(np.int32), joined, starts, squares, products, deviations
        )


def _choose_knots(values: Float32, counts: Int64, low: np.float32, high: np.float32, knots: int) -> Float32:
    """Return the knots of a column, rising. ``values``, ``counts``: those of the cells of its histogram, rising."""
    ends = np.array([low, high])
    if len(values) > knots - 2:
        cumulative = np.cumsum(counts)
        last_rank = cumulative[-1] - 1

        def quantiles(shares: Float64) -> Float32:
            return values[np.searchsorted(cumulative, np.rint(shares * last_rank).astype(np.int64), side="right")]

        half = knots // 2
        first, last = quantiles(np.array([TAIL, 1.0 - TAIL])).tolist()
        even = np.linspace(first, last, half).astype(np.float32)
        values = np.concatenate([quantiles(np.linspace(0.0, 1.0, knots - half)[1:-1]), even])
    inside = values[(values > low) & (values < high)]
    return np.unique(np.concatenate([ends, inside])).astype(np.float32)


def _mean_products(knots: Float32, values: Float32, counts: Int64) -> Float64:
    """Return the means of h_r^2 and of h_r h_r+1 (2, K) over the values of a column with these counts."""
    t = knots.astype(np.float64)
    x = np.clip(values.astype(np.float64), t[0], t[-1])
    r = np.clip(np.searchsorted(t, x, side="right") - 1, 0, len(t) - 2)
    f, weight = (x - t[r]) / (t[r + 1] - t[r]), counts / counts.sum()
    moments = np.zeros((2, len(t)))
    np.add.at(moments[0], r, weight * (1.0 - f) ** 2)
    np.add.at(moments[0], r + 1, weight * f**2)
    np.add.at(moments[1], r, weight * f * (1.0 - f))
    return moments
