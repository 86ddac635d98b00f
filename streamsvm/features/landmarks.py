"""Selection of landmarks among the rows. It depends on the seed, and not on how the rows are divided into chunks.

**Uniform.** Each row has a random number, a hash of (seed, row number). The m rows with the smallest numbers are a
uniform sample, which is drawn without reading any row.

**Leverage.** With E_i = -log(h_i), h_i the hash scaled to (0, 1), the m rows with the smallest E_i / l_i are a sample
without replacement with probabilities proportional to l_i (an exponential race). Here l_i is the ridge leverage

    l_i(lambda) = (1 / (lambda n)) (k_ii - k_iJ (K_JJ + lambda |J| I)^-1 k_Ji)

estimated from a first, uniform sample J (Rudi, Calandriello, Carratino, Rosasco, NeurIPS 2018, eq. 3 with equal
weights).

**Spread** (k-means++). Rows are drawn from a uniform sample, in rounds, with probabilities proportional to the squared
distance ||phi(x_i) - phi(z)||^2 = k_ii - 2 k_iz + k_zz to the nearest point z chosen in earlier rounds (k-means++,
Arthur and Vassilvitskii 2007, in the kernel's feature space; several rows per round as in k-means||, Bahmani et al.
2012).

**Greedy.** Landmarks are chosen one by one from a larger number of candidates; each is the candidate that explains most
of the labels. For a sample of n rows with targets T (-1 or +1 for classes, or numbers), let K contain the kernel values
with the candidates, and a column of ones. Orthogonal least squares (Chen, Cowan, Grant 1991; for landmarks of kernel
machines Keerthi, Chapelle, DeCoste 2006) chooses the column of K that reduces the squared distance from T to the span
of the chosen columns the most. Let d_j be the squared length of the component of column j orthogonal to that span, and
b_j its inner product with the residual of T: the reduction is b_j^2 / d_j. With G = K'K and B = K'T, d and b are updated
as in a pivoted Cholesky factorization,

    l = (G_j - L L_j) / sqrt(d_j),    d <- d - l^2,    b <- b - l (b_j / sqrt(d_j)),

so that one pass over the sample suffices. G is summed in float64, because for a wide kernel the d_j become much smaller
than the rounding error of float32. The squared error of a row of weight s is multiplied by s; rows of weight 0 have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.compute.kernel_values.kernel_matrix import Points, diagonal, kernel_block, points_of, symmetric_gram
from streamsvm.compute.random import STEP, mix_bits
from streamsvm.rows import Dense, Float32, Float64, Int64, Rows, row_count, row_slice
from streamsvm.type_aliases import Array
from streamsvm.types import Kernel, Layout

HASHED_ROWS = 1 << 20
"""Number of rows whose hashes are computed at a time."""
SCORE_ROWS = 2048
"""Number of rows whose leverages are computed at a time."""
EFFECTIVE_SHARE = 0.25
"""The ridge is chosen such that the effective dimension of the first sample is this fraction of its size."""
SMALLEST_SCORE = 1e-12
"""Lower bound of leverages and distances, as a fraction of the largest kernel value."""
ROUNDS = 32
"""Number of rounds in which spread rows are drawn."""
CANDIDATES_PER_LANDMARK, MAX_EXTRA_CANDIDATES = 4, 2000
"""Greedy: number of candidates per landmark, and the largest difference between the numbers of candidates and
landmarks."""
GREEDY_SAMPLE_ROWS = 32_768
"""Greedy: number of rows whose labels are used."""
PIECE_ROWS = 1024
"""Greedy: number of rows that are summed at a time. The pieces do not depend on the chunks of a store, so that the sums
do not either."""
PIVOT_FLOOR = 1e-13
"""Pivots d_j below this fraction of the largest d_j are treated as rounding error."""


def hash_rows(seed: int, start: int, stop: int) -> NDArray[np.uint64]:
    """Return a random number for each row of [start, stop): splitmix64 of (seed, row number)."""
    rows = np.arange(start, stop, dtype=np.uint64)
    origin = mix_bits(np.array([seed % (1 << 64)], np.uint64) + STEP)
    return mix_bits(origin + (rows + np.uint64(1)) * STEP)


@dataclass(slots=True)
class SmallestKeys:
    """Collects the ``size`` rows with the smallest keys among all rows offered, in any order and any batches."""

    size: int
    """Number of rows to collect."""
    keys: Array = field(default_factory=lambda: np.empty(0))
    """Keys of the rows kept so far: uint64 hashes, or float64 arrival times of an exponential race."""
    rows: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    """The numbers of these rows, in no particular order; among equal keys the smaller row number is kept."""

    def offer(self, keys: Array, start: int) -> None:
        """Offer the keys of rows ``start``, ``start`` + 1, ..."""
        new_rows = np.arange(start, start + len(keys), dtype=np.int64)
        keys = keys if len(self.rows) == 0 else np.concatenate([self.keys, keys])
        rows = np.concatenate([self.rows, new_rows])
        if len(keys) > self.size:
            bound = np.partition(keys, self.size - 1)[self.size - 1]
            near = np.flatnonzero(keys <= bound)
            chosen = near[np.lexsort((rows[near], keys[near]))[: self.size]]
            keys, rows = keys[chosen], rows[chosen]
        self.keys, self.rows = keys, rows


def draw_uniform_rows(rows: int, count: int, seed: int) -> Int64:
    """Return ``count`` row numbers below ``rows`` in ascending order, drawn uniformly; all of them if ``count`` is
    larger.
    """
    return draw_uniform_rows_of([(0, rows)], count, seed)


def draw_uniform_rows_of(ranges: Iterable[tuple[int, int]], count: int, seed: int) -> Int64:
    """Return ``count`` row numbers in ascending order, drawn uniformly from ranges [first, end) that do not overlap;
    all of them if ``count`` is larger.

    The order in which rows are drawn does not depend on the ranges: a row that would be drawn from all rows is also
    drawn here if it is in a range.
    """
    best = SmallestKeys(count)
    for first, end in ranges:
        for start in range(first, end, HASHED_ROWS):
            best.offer(hash_rows(seed, start, min(start + HASHED_ROWS, end)), start)
    return np.sort(best.rows)


@dataclass(slots=True)
class LeverageSampler:
    """Draws rows by their estimated leverage, in one pass over blocks, which are given to ``offer`` in any order."""

    points: Points
    """The first, uniform sample J, from which leverages are estimated; the map that precedes the kernel has been applied."""
    kernel: Kernel
    whitening: Float32
    """W with W W' = (K_JJ + ridge I)^-1, so that k_iJ (K_JJ + ridge I)^-1 k_Ji is a sum of squares."""
    seed: int
    """The seed of the exponential race; it differs from the seed of the first sample."""
    best: SmallestKeys
    """The rows drawn from those offered so far."""
    _values: Float32

    def offer(self, X: Rows, start: int) -> None:
        """Offer the rows of a block; ``start``: the number of its first row."""
        for low in range(0, row_count(X), SCORE_ROWS):
            high = min(low + SCORE_ROWS, row_count(X))
            scores = self.scores(row_slice(X, low, high))
            race = -np.log((hash_rows(self.seed, start + low, start + high) + 0.5) * 2.0**-64) / scores
            self.best.offer(race, start + low)

    def scores(self, X: Rows) -> Float64:
        """Return leverages up to a common factor (n,); the smallest leverage for rows whose kernel values overflow
        float32.
        """
        values = self._values[: row_count(X)]
        kernel_block(X, self.points, self.kernel, values)
        explained = np.square(values @ self.whitening).sum(axis=1, dtype=np.float64)
        diagonals = np.minimum(diagonal(X, self.kernel).astype(np.float64), np.finfo(np.float32).max)
        unexplained = np.where(np.isfinite(explained), diagonals - explained, 0.0)
        return np.maximum(unexplained, SMALLEST_SCORE * np.maximum(diagonals, SMALLEST_SCORE))

    def rows(self) -> Int64:
        """Return the numbers of the rows drawn, in ascending order."""
        return np.sort(self.best.rows)


def make_leverage_sampler(points: Points, kernel: Kernel, count: int, seed: int) -> LeverageSampler:
    """Return a sampler of ``count`` rows; ``points`` is the first sample.

    Negative eigenvalues of a kernel that is not positive definite (sigmoid) are dropped, as they are when Nystrom features are computed.
    """
    e, V = np.linalg.eigh(symmetric_gram(points, kernel))
    kept = e > 0.0
    ridge = find_ridge(e, EFFECTIVE_SHARE * points.size) if kept.any() else 0.0
    whitening = V[:, kept] / np.sqrt(e[kept] + ridge)
    values = np.empty((SCORE_ROWS, points.size), np.float32)
    return LeverageSampler(
        points, kernel, np.ascontiguousarray(whitening, np.float32), seed + 1, SmallestKeys(count), values
    )


def draw_kmeanspp_rows(sample: Float32, kernel: Kernel, count: int, seed: int) -> Int64:
    """Return the numbers of ``count`` rows of ``sample`` (n, d), in ascending order, that lie far from each other in
    the kernel's feature space.
    """
    chosen, self_similarity = np.zeros(len(sample), bool), diagonal(Dense(sample), kernel).astype(np.float64)
    distance, per_round = np.ones(len(sample)), -(-count // ROUNDS)
    values = np.empty((len(sample), per_round), np.float32)
    for number in range(ROUNDS):
        missing = min(per_round, count - int(np.count_nonzero(chosen)))
        if missing <= 0:
            break
        race = -np.log((hash_rows(seed + number, 0, len(sample)) + 0.5) * 2.0**-64) / distance
        race[chosen] = np.inf
        new = np.argpartition(race, missing - 1)[:missing]
        chosen[new] = True
        block = values[:, :missing] if missing == per_round else np.empty((len(sample), missing), np.float32)
        kernel_block(Dense(sample), points_of(sample[new]), kernel, block)
        nearest = self_similarity + (self_similarity[new] - 2.0 * block).min(axis=1)
        distance = np.minimum(distance, nearest) if number else nearest
        distance = np.maximum(distance, SMALLEST_SCORE * self_similarity.max())
    return np.flatnonzero(chosen).astype(np.int64)


def find_ridge(eigenvalues: Array, dimension: float) -> float:
    """Return the ridge for which sum e / (e + ridge) is ``dimension``, by bisection on its logarithm; at least 1e-9
    times the largest eigenvalue.
    """
    e = np.maximum(eigenvalues, 0.0)
    low, high = 1e-9 * e.max(), 1e3 * e.sum()
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if (e / (e + middle)).sum() > dimension else (low, middle)
    return float(high)


def kmeanspp_bytes(sample: int, columns: int, count: int) -> int:
    """Return the bytes that ``draw_kmeanspp_rows`` takes: the sample, its kernel values with the points of a round (in
    float32, and two arrays in float64), and distances.
    """
    return sample * (4 * columns + 20 * -(-count // ROUNDS) + 40)


def sampler_bytes(landmarks: int) -> int:
    """Return the bytes that drawing by leverage takes besides the points: Gram matrix, eigenvectors, whitening matrix,
    and two tiles of kernel values.
    """
    return 28 * landmarks * landmarks + 8 * SCORE_ROWS * landmarks


# Greedy


def count_candidates(landmarks: int, rows: int) -> int:
    """Return the number of candidates from which landmarks are chosen."""
    return min(rows, landmarks * CANDIDATES_PER_LANDMARK, landmarks + MAX_EXTRA_CANDIDATES)


def greedy_bytes(landmarks: int, layout: Layout) -> int:
    """Return the bytes that greedy selection takes for rows of this layout.

    Counted are: the candidates; two copies of a piece, with rows of the average length in the densest chunk; the kernel
    values of the piece in float32 and twice in float64; G and a product of the same shape; L.
    """
    c = count_candidates(landmarks, layout.rows) + 1
    row_bytes = bytes_per_row(layout.columns, 1, None)
    if layout.nonzeros is not None:
        filled = zip(layout.chunks, layout.nonzeros, strict=True)
        row_bytes = max(bytes_per_row(layout.columns, rows, (entries,)) for rows, entries in filled)
    return (
        8 * layout.columns * c + 2 * PIECE_ROWS * row_bytes + 20 * PIECE_ROWS * c + 16 * c * c + 8 * c * (landmarks + 1)
    )


@dataclass(slots=True)
class GreedySelection:
    """Sums G and B over the rows given to ``add``; ``choose`` then selects the landmarks."""

    points: Points
    """The m candidates, after the map that precedes the kernel."""
    kernel: Kernel
    targets: int
    """Number of columns of T: one for two classes or regression, else one for each class."""
    gram: Float64 = field(init=False)
    """G = K'K, (m + 1, m + 1); the last column belongs to the column of ones."""
    products: Float64 = field(init=False)
    """B = K'T, (m + 1, targets)."""
    _values: Float32 = field(init=False)

    def __post_init__(self) -> None:
        columns = self.points.size + 1
        self.gram, self.products = np.zeros((columns, columns)), np.zeros((columns, self.targets))
        self._values = np.empty((PIECE_ROWS, self.points.size), np.float32)

    def add(self, X: Rows, T: Float64, weight: Float32 | None = None) -> None:
        """Add n <= PIECE_ROWS rows X with targets T (n, targets) and row weights (n,); None: all weights are 1."""
        values = self._values[: row_count(X)]
        kernel_block(X, self.points, self.kernel, values)
        K = np.ones((len(values), self.points.size + 1))
        K[:, :-1] = values
        if weight is not None:
            root = np.sqrt(weight, dtype=np.float64)[:, None]
            K *= root
            T = T * root
        self.gram += K.T @ K
        self.products += K.T @ T

    def choose(self, count: int) -> Int64:
        """Return the numbers of ``count`` candidates, in ascending order; the column of ones is always chosen first."""
        return np.sort(choose_pivots(self.gram, self.products, count + 1, first=len(self.gram) - 1)[1:])


def choose_pivots(G: Float64, B: Float64, count: int, first: int) -> Int64:
    """Return ``count`` columns in the order in which they are chosen: ``first``, then by gain; columns without gain
    come last.
    """
    d, b, L = np.diag(G).copy(), B.copy(), np.zeros((len(G), count))
    floor, pivots = PIVOT_FLOOR * d.max(), np.empty(count, np.int64)
    gain = np.zeros(len(G))
    gain[first] = np.inf
    for step in range(count):
        j = pivots[step] = int(np.argmax(gain))
        if d[j] > floor:
            root = np.sqrt(d[j])
            L[:, step] = (G[:, j] - L[:, :step] @ L[j, :step]) / root
            b -= np.outer(L[:, step], b[j] / root)
            d -= np.square(L[:, step])
        gain = np.where(d > floor, np.square(b).sum(axis=1) / np.maximum(d, floor), 0.0)
        gain[pivots[: step + 1]] = -1.0
    return pivots


def make_targets(codes: Array, classes: int) -> Float64:
    """Return the targets (n, columns): -1 or +1 in a column for each class, or in one column for two classes; for
    regression (``classes`` 0) the numbers themselves.
    """
    if classes == 0:
        return codes[:, None].astype(np.float64)
    positives = [1] if classes == 2 else range(classes)
    return np.where(codes[:, None] == np.array(positives), 1.0, -1.0)
