"""Which rows become landmarks: reproducible from the seed, independent of how the rows are cut into chunks.

**Uniform.** Every row has a random number of its own, a hash of (seed, row number). The rows with the m smallest are a uniform
sample; no row need be seen to choose it.

**Leverage.** With E = -log(hash as a fraction), the rows with the m smallest E_i / l_i are a sample without replacement with
probabilities proportional to l_i (an exponential race), here the ridge leverage

    l_i(lambda) = (1 / (lambda n)) (k_ii - k_iJ (K_JJ + lambda |J| I)^-1 k_Ji)

estimated from a first, uniform sample J (Rudi, Calandriello, Carratino, Rosasco, NeurIPS 2018, eq. 3 with equal weights).

**Spread** (k-means++). Of a uniform sample, in rounds, rows with probabilities proportional to the squared distance
||phi(x_i) - phi(z)||^2 = k_ii - 2 k_iz + k_zz to the nearest point z chosen in earlier rounds (k-means++, Arthur and
Vassilvitskii 2007, in the kernel's space; several rows a round as in k-means||, Bahmani et al. 2012).

**Greedy.** Of more candidates than are wanted, one by one the one that explains most of the labels. On a sample of n rows with targets T,
-1 or +1 for classes, or numbers, let K hold the kernel values with the candidates, and a column of ones. Orthogonal least squares (Chen,
Cowan, Grant 1991; for landmarks of kernel machines Keerthi, Chapelle, DeCoste 2006) takes the column that lessens the squared distance
of T to the span of the columns taken the most. What is left of column j outside that span has the squared length d_j, and the product
b_j with what is left of T: the gain is b_j^2 / d_j. With G = K'K and B = K'T both are what a Cholesky factorization leaves whose pivots
are the gains,

    l = (G_j - L L_j) / sqrt(d_j),    d <- d - l^2,    b <- b - l (b_j / sqrt(d_j)),

so that the rows are seen once. G is summed in float64: of a wide kernel the d fall far below the rounding of float32.
A row of weight s has the weight s in the squares: rows of weight 0 do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.compute.blocks.selection import bytes_per_row
from streamsvm.compute.kernel_values.kernel_matrix import Points, diagonal, kernel_block, points_of, symmetric_gram
from streamsvm.compute.random import STEP, mix_bits
from streamsvm.rows import Dense, Float32, Float64, Int64, Rows, row_count, row_slice
from streamsvm.types import Kernel, Layout

HASHED_ROWS = 1 << 20
"""Rows whose hashes are computed at a time."""
SCORE_ROWS = 2048
"""Rows whose leverages are computed at a time."""
EFFECTIVE_SHARE = 0.25
"""The ridge is where the effective dimension of the first sample is this share of its size."""
SMALLEST_SCORE = 1e-12
"""Leverages and distances are at least this share of the largest kernel value."""
ROUNDS = 32
"""Rounds in which spread rows are chosen."""
CANDIDATES_PER_LANDMARK, MAX_EXTRA_CANDIDATES = 4, 2000
"""Greedy: candidates for each landmark, but no more than MAX_EXTRA_CANDIDATES beyond the landmarks."""
GREEDY_SAMPLE_ROWS = 32_768
"""Greedy: rows whose labels are used."""
PIECE_ROWS = 1024
"""Greedy: rows summed up at a time, always the same ones, so that the sums do not depend on how a store is cut."""
PIVOT_FLOOR = 1e-13
"""A pivot d below this share of the largest d is rounding."""


def hash_rows(seed: int, start: int, stop: int) -> NDArray[np.uint64]:
    """Return a random number for every row of [start, stop): splitmix64 of (seed, row)."""
    rows = np.arange(start, stop, dtype=np.uint64)
    origin = mix_bits(np.array([seed % (1 << 64)], np.uint64) + STEP)
    return mix_bits(origin + (rows + np.uint64(1)) * STEP)


@dataclass(slots=True)
class SmallestKeys:
    """The ``size`` rows with the smallest keys among all that were offered, in any order and any batches."""

    size: int
    """Rows that are wanted; there are fewer as long as fewer were offered."""
    keys: Array = field(default_factory=lambda: np.empty(0))
    """Keys of the rows kept so far, of the type that is offered: uint64 hashes, or float64 times of a race."""
    rows: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    """The row numbers, in no order; of equal keys the smaller number stays."""

    def offer(self, keys: Array, start: int) -> None:
        """Offer the keys of rows ``start``, ``start`` + 1, ..."""
        found = np.arange(start, start + len(keys), dtype=np.int64)
        keys = keys if len(self.rows) == 0 else np.concatenate([self.keys, keys])
        rows = np.concatenate([self.rows, found])
        if len(keys) > self.size:
            bound = np.partition(keys, self.size - 1)[self.size - 1]
            near = np.flatnonzero(keys <= bound)
            chosen = near[np.lexsort((rows[near], keys[near]))[: self.size]]
            keys, rows = keys[chosen], rows[chosen]
        self.keys, self.rows = keys, rows


def draw_uniform_rows(rows: int, count: int, seed: int) -> Int64:
    """Return ``count`` of ``rows`` row numbers, rising; all of them if there are not more."""
    return draw_uniform_rows_of([(0, rows)], count, seed)


def draw_uniform_rows_of(ranges: Iterable[tuple[int, int]], count: int, seed: int) -> Int64:
    """Return ``count`` row numbers from ranges (first, end) that do not overlap, rising; all of them if there are not more.

    They are those drawn of all rows, but for the ones outside of the ranges, in whose place the next come.
    """
    best = SmallestKeys(count)
    for first, end in ranges:
        for start in range(first, end, HASHED_ROWS):
            best.offer(hash_rows(seed, start, min(start + HASHED_ROWS, end)), start)
    return np.sort(best.rows)


@dataclass(slots=True)
class LeverageSampler:
    """Draws ``size`` rows by their estimated leverage, in one pass over blocks given to ``offer`` in any order."""

    points: Points
    """The first, uniform sample J that leverages are estimated from, as the kernel sees it."""
    kernel: Kernel
    whitening: Float32
    """W with W W' = (K_JJ + ridge I)^-1, so that k_iJ (K_JJ + ridge I)^-1 k_Ji is a sum of squares."""
    seed: int
    """The seed of the race; another one than the first sample's."""
    best: SmallestKeys
    """The winners of the race among the rows offered so far."""
    _values: Float32

    def offer(self, X: Rows, start: int) -> None:
        """Offer a block of which ``start`` is the first row's number."""
        for low in range(0, row_count(X), SCORE_ROWS):
            high = min(low + SCORE_ROWS, row_count(X))
            scores = self.scores(row_slice(X, low, high))
            race = -np.log((hash_rows(self.seed, start + low, start + high) + 0.5) * 2.0**-64) / scores
            self.best.offer(race, start + low)

    def scores(self, X: Rows) -> Float64:
        """Return leverages up to a common factor (n,); the least for rows whose kernel values are beyond float32."""
        values = self._values[: row_count(X)]
        kernel_block(X, self.points, self.kernel, values)
        explain_errors = np.square(values @ self.whitening).sum(axis=1, dtype=np.float64)
        diagonals = np.minimum(diagonal(X, self.kernel).astype(np.float64), np.finfo(np.float32).max)
        left = np.where(np.isfinite(explain_errors), diagonals - explain_errors, 0.0)
        return np.maximum(left, SMALLEST_SCORE * np.maximum(diagonals, SMALLEST_SCORE))

    def rows(self) -> Int64:
        """Return the rows drawn, rising."""
        return np.sort(self.best.rows)


def make_leverage_sampler(points: Points, kernel: Kernel, count: int, seed: int) -> LeverageSampler:
    """Return a sampler of ``count`` rows, from a first sample of points.

    The negative eigenvalues of a kernel that is not positive definite (sigmoid) are left out, as they are of the features.
    """
    e, V = np.linalg.eigh(symmetric_gram(points, kernel))
    kept = e > 0.0
    ridge = find_ridge(e, EFFECTIVE_SHARE * points.size) if kept.any() else 0.0
    whitening = V[:, kept] / np.sqrt(e[kept] + ridge)
    values = np.empty((SCORE_ROWS, points.size), np.float32)
    return LeverageSampler(
        points, kernel, np.ascontiguousarray(whitening, np.float32), seed + 1, SmallestKeys(count), values
    )


def draw_spread_rows(sample: Float32, kernel: Kernel, count: int, seed: int) -> Int64:
    """Return ``count`` rows of ``sample`` (n, d), by number, rising, that lie far from each other in the kernel's space."""
    chosen, own = np.zeros(len(sample), bool), diagonal(Dense(sample), kernel).astype(np.float64)
    distance, a_round = np.ones(len(sample)), -(-count // ROUNDS)
    values = np.empty((len(sample), a_round), np.float32)
    for number in range(ROUNDS):
        missing = min(a_round, count - int(np.count_nonzero(chosen)))
        if missing <= 0:
            break
        race = -np.log((hash_rows(seed + number, 0, len(sample)) + 0.5) * 2.0**-64) / distance
        race[chosen] = np.inf
        new = np.argpartition(race, missing - 1)[:missing]
        chosen[new] = True
        block = values[:, :missing] if missing == a_round else np.empty((len(sample), missing), np.float32)
        kernel_block(Dense(sample), points_of(sample[new]), kernel, block)
        nearest = own + (own[new] - 2.0 * block).min(axis=1)
        distance = np.minimum(distance, nearest) if number else nearest
        distance = np.maximum(distance, SMALLEST_SCORE * own.max())
    return np.flatnonzero(chosen).astype(np.int64)


def find_ridge(eigenvalues: Array, dimension: float) -> float:
    """Return the ridge at which sum e / (e + ridge) is ``dimension``, by bisection of its logarithm; at least 1e-9 of the top."""
    e = np.maximum(eigenvalues, 0.0)
    low, high = 1e-9 * e.max(), 1e3 * e.sum()
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if (e / (e + middle)).sum() > dimension else (low, middle)
    return float(high)


def spread_bytes(sample: int, columns: int, count: int) -> int:
    """Return the bytes of ``draw_spread_rows``: the sample, its kernel values with a round's points twice in float64, distances."""
    return sample * (4 * columns + 20 * -(-count // ROUNDS) + 40)


def sampler_bytes(landmarks: int) -> int:
    """Return the bytes of drawing by leverage beside the points: Gram matrix, factor, inverse, a tile twice."""
    return 28 * landmarks * landmarks + 8 * SCORE_ROWS * landmarks


# Greedy


def count_candidates(landmarks: int, rows: int) -> int:
    """Return the number of candidates that landmarks are chosen from."""
    return min(rows, landmarks * CANDIDATES_PER_LANDMARK, landmarks + MAX_EXTRA_CANDIDATES)


def greedy_bytes(landmarks: int, layout: Layout) -> int:
    """Return the bytes of choosing from rows of this layout.

    These are candidates, a piece twice over, of rows as long as those of the densest chunk are on average, the values of the
    piece in float32, and twice over in float64, G with a product, L.
    """
    c = count_candidates(landmarks, layout.rows) + 1
    each = bytes_per_row(layout.columns, 1, None)
    if layout.nonzeros is not None:
        filled = zip(layout.chunks, layout.nonzeros, strict=True)
        each = max(bytes_per_row(layout.columns, rows, (entries,)) for rows, entries in filled)
    return 8 * layout.columns * c + 2 * PIECE_ROWS * each + 20 * PIECE_ROWS * c + 16 * c * c + 8 * c * (landmarks + 1)


@dataclass(slots=True)
class GreedySelection:
    """G and B of the rows given to ``add``; ``choose`` when all are in."""

    points: Points
    """The m candidates for landmarks, as the kernel sees them."""
    kernel: Kernel
    targets: int
    """Columns of T: one for two classes or a regression, else one for each class."""
    gram: Float64 = field(init=False)
    """G = K'K, (m + 1, m + 1); the last column is that of the constant."""
    products: Float64 = field(init=False)
    """B = K'T, (m + 1, targets)."""
    _values: Float32 = field(init=False)

    def __post_init__(self) -> None:
        columns = self.points.size + 1
        self.gram, self.products = np.zeros((columns, columns)), np.zeros((columns, self.targets))
        self._values = np.empty((PIECE_ROWS, self.points.size), np.float32)

    def add(self, X: Rows, T: Float64, weight: Float32 | None = None) -> None:
        """Add PIECE_ROWS rows X (n, d) or fewer, with targets T (n, targets) and weights (n,); None: all have weight 1."""
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
        """Return ``count`` candidates by number, rising; the constant is taken before all of them."""
        return np.sort(choose_pivots(self.gram, self.products, count + 1, first=len(self.gram) - 1)[1:])


def choose_pivots(G: Float64, B: Float64, count: int, first: int) -> Int64:
    """Return columns in the order in which they are taken, ``first`` before all; those that add nothing come last."""
    d, b, L = np.diag(G).copy(), B.copy(), np.zeros((len(G), count))
    floor, taken = PIVOT_FLOOR * d.max(), np.empty(count, np.int64)
    gain = np.zeros(len(G))
    gain[first] = np.inf
    for step in range(count):
        j = taken[step] = int(np.argmax(gain))
        if d[j] > floor:
            root = np.sqrt(d[j])
            L[:, step] = (G[:, j] - L[:, :step] @ L[j, :step]) / root
            b -= np.outer(L[:, step], b[j] / root)
            d -= np.square(L[:, step])
        gain = np.where(d > floor, np.square(b).sum(axis=1) / np.maximum(d, floor), 0.0)
        gain[taken[: step + 1]] = -1.0
    return taken


def make_targets(codes: Array, classes: int) -> Float64:
    """Return -1 and +1 with a column for each class, or one for two classes; targets of a regression as they are (classes 0)."""
    if classes == 0:
        return codes[:, None].astype(np.float64)
    positives = [1] if classes == 2 else range(classes)
    return np.where(codes[:, None] == np.array(positives), 1.0, -1.0)
