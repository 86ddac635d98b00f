"""Which rows become landmarks: reproducible from the seed, independent of how the rows are cut into chunks.

Every row has a random number of its own, a hash of (seed, row number). The rows with the m smallest are a uniform
sample; no row need be seen to choose it. With E = -log(hash as a fraction), the rows with the m smallest E_i / l_i are a
sample without replacement with probabilities proportional to l_i (an exponential race), here the ridge leverage

    l_i(lambda) = (1 / (lambda n)) (k_ii - k_iJ (K_JJ + lambda |J| I)^-1 k_Ji)

estimated from a first, uniform sample J (Rudi, Calandriello, Carratino, Rosasco, NeurIPS 2018, eq. 3 with equal weights).

Points far from each other: of a uniform sample, in rounds, rows with probabilities proportional to the squared distance
||phi(x_i) - phi(z)||^2 = k_ii - 2 k_iz + k_zz to the nearest point z chosen in earlier rounds (k-means++, Arthur and
Vassilvitskii 2007, in the kernel's space; several rows a round as in k-means||, Bahmani et al. 2012).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array
from streamsvm.compute.kernel_values.gram import Points, diagonal, kernel_block, points_of, symmetric_gram
from streamsvm.compute.random import STEP, mix_bits
from streamsvm.rows import Dense, Float32, Float64, Int64, Rows, row_count, row_slice
from streamsvm.types import Kernel

TILE = 1 << 20
SCORE_ROWS = 2048
EFFECTIVE_SHARE = 0.25
"""Of the first sample: the ridge is where its effective dimension is this part of its size."""
SMALLEST_SCORE = 1e-12
ROUNDS = 32
"""In which points far from each other are chosen."""


def hashes(seed: int, start: int, stop: int) -> NDArray[np.uint64]:
    """A number for every row of [start, stop): splitmix64 of (seed, row)."""
    rows = np.arange(start, stop, dtype=np.uint64)
    origin = mix_bits(np.array([seed % (1 << 64)], np.uint64) + STEP)
    return mix_bits(origin + (rows + np.uint64(1)) * STEP)


@dataclass(slots=True)
class Smallest:
    """The ``size`` rows with the smallest keys among all that were offered, in any order and any batches."""

    size: int
    """How many rows are wanted; there are fewer as long as fewer were offered."""
    keys: Array = field(default_factory=lambda: np.empty(0))
    """Keys of the rows taken so far, of the type that is offered: uint64 hashes, or float64 times of a race."""
    rows: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    """Their row numbers, in no order; of equal keys the smaller number stays."""

    def offer(self, keys: Array, start: int) -> None:
        """Take the keys of rows ``start``, ``start`` + 1, ..."""
        found = np.arange(start, start + len(keys), dtype=np.int64)
        keys = keys if len(self.rows) == 0 else np.concatenate([self.keys, keys])
        rows = np.concatenate([self.rows, found])
        if len(keys) > self.size:
            bound = np.partition(keys, self.size - 1)[self.size - 1]
            near = np.flatnonzero(keys <= bound)
            chosen = near[np.lexsort((rows[near], keys[near]))[: self.size]]
            keys, rows = keys[chosen], rows[chosen]
        self.keys, self.rows = keys, rows


def uniform_rows(rows: int, count: int, seed: int) -> Int64:
    """``count`` of ``rows`` row numbers, rising; all of them if there are not more."""
    return uniform_rows_of([(0, rows)], count, seed)


def uniform_rows_of(ranges: Iterable[tuple[int, int]], count: int, seed: int) -> Int64:
    """``count`` row numbers from ranges (first, end) that do not overlap, rising; all of them if there are not more.

    They are those of all rows but for the ones outside of the ranges, in whose place the next come.
    """
    best = Smallest(count)
    for first, end in ranges:
        for start in range(first, end, TILE):
            best.offer(hashes(seed, start, min(start + TILE, end)), start)
    return np.sort(best.rows)


@dataclass(slots=True)
class LeverageSampler:
    """Draws ``size`` rows by their estimated leverage, in one pass over blocks given to ``offer`` in any order."""

    points: Points
    """The first, uniform sample J that leverages are estimated from, as the kernel sees it."""
    kernel: Kernel
    """The kernel whose ridge leverages are estimated."""
    whitening: Float32
    """W with W W' = (K_JJ + ridge I)^-1, so that k_iJ (K_JJ + ridge I)^-1 k_Ji is a sum of squares."""
    seed: int
    """What the race is drawn from, with the row's number; another seed than the first sample's."""
    best: Smallest
    """The winners of the race among the rows offered so far."""
    _values: Float32

    def offer(self, X: Rows, start: int) -> None:
        """Look at a block of which ``start`` is the first row's number."""
        for low in range(0, row_count(X), SCORE_ROWS):
            high = min(low + SCORE_ROWS, row_count(X))
            scores = self.scores(row_slice(X, low, high))
            race = -np.log((hashes(self.seed, start + low, start + high) + 0.5) * 2.0**-64) / scores
            self.best.offer(race, start + low)

    def scores(self, X: Rows) -> Float64:
        """Leverages up to a common factor, (n,). Of rows whose kernel values are beyond float32 nothing is known: the least."""
        values = self._values[: row_count(X)]
        kernel_block(X, self.points, self.kernel, values)
        explained = np.square(values @ self.whitening).sum(axis=1, dtype=np.float64)
        diagonals = np.minimum(diagonal(X, self.kernel).astype(np.float64), np.finfo(np.float32).max)
        left = np.where(np.isfinite(explained), diagonals - explained, 0.0)
        return np.maximum(left, SMALLEST_SCORE * np.maximum(diagonals, SMALLEST_SCORE))

    def rows(self) -> Int64:
        """The rows drawn, rising."""
        return np.sort(self.best.rows)


def leverage_sampler(points: Points, kernel: Kernel, count: int, seed: int) -> LeverageSampler:
    """A sampler of ``count`` rows, from a first sample of points.

    What a kernel that is not positive definite (sigmoid) has of negative eigenvalues is left out, as it is of the features.
    """
    e, V = np.linalg.eigh(symmetric_gram(points, kernel))
    kept = e > 0.0
    ridge = ridge_for(e, EFFECTIVE_SHARE * points.size) if kept.any() else 0.0
    whitening = V[:, kept] / np.sqrt(e[kept] + ridge)
    values = np.empty((SCORE_ROWS, points.size), np.float32)
    return LeverageSampler(
        points, kernel, np.ascontiguousarray(whitening, np.float32), seed + 1, Smallest(count), values
    )


def spread_rows(sample: Float32, kernel: Kernel, count: int, seed: int) -> Int64:
    """``count`` rows of ``sample`` (n, d), by number, rising, that lie far from each other in the kernel's space."""
    chosen, own = np.zeros(len(sample), bool), diagonal(Dense(sample), kernel).astype(np.float64)
    distance, a_round = np.ones(len(sample)), -(-count // ROUNDS)
    values = np.empty((len(sample), a_round), np.float32)
    for number in range(ROUNDS):
        missing = min(a_round, count - int(np.count_nonzero(chosen)))
        if missing <= 0:
            break
        race = -np.log((hashes(seed + number, 0, len(sample)) + 0.5) * 2.0**-64) / distance
        race[chosen] = np.inf
        new = np.argpartition(race, missing - 1)[:missing]
        chosen[new] = True
        block = values[:, :missing] if missing == a_round else np.empty((len(sample), missing), np.float32)
        kernel_block(Dense(sample), points_of(sample[new]), kernel, block)
        nearest = own + (own[new] - 2.0 * block).min(axis=1)
        distance = np.minimum(distance, nearest) if number else nearest
        distance = np.maximum(distance, SMALLEST_SCORE * own.max())
    return np.flatnonzero(chosen).astype(np.int64)


def ridge_for(eigenvalues: Array, dimension: float) -> float:
    """The ridge at which sum e / (e + ridge) is ``dimension``, by bisection of its logarithm; at least 1e-9 of the top."""
    e = np.maximum(eigenvalues, 0.0)
    low, high = 1e-9 * e.max(), 1e3 * e.sum()
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if (e / (e + middle)).sum() > dimension else (low, middle)
    return float(high)


def spread_bytes(sample: int, columns: int, count: int) -> int:
    """What ``spread_rows`` holds: the sample, its kernel values with a round's points twice over in float64, distances."""
    return sample * (4 * columns + 20 * -(-count // ROUNDS) + 40)


def sampler_bytes(landmarks: int) -> int:
    """What drawing by leverage holds beside the points: Gram matrix, factor, inverse, a tile twice."""
    return 28 * landmarks * landmarks + 8 * SCORE_ROWS * landmarks
