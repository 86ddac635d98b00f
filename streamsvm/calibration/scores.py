"""Scores of rows for calibration, counted in memory that does not depend on the number of rows.

**Bins.** Of each decision value f_k the rows are counted in bins, those of class k and the others, by weight, with the sum of their
values: f is known to be the mean of its bin. A bin reaches over 1/256 of a power of two from 2^-20 to 2^12 (values nearer to 0
share one bin, values beyond it the last ones), so that a value is less than |f| / 256 from the mean of its bin, and a variance within
a bin is at most (f / 512)^2. The log loss of p = sigma(A f) differs by half of that times A^2 p (1 - p): less than 1e-6 a row. An
isotonic function moves its steps by less than a bin.

**Vectors.** A temperature belongs to the whole vector of decision values. Of those a sample of at most ``MOST_ROWS`` rows is kept, each
row as likely as any other, drawn by the seed: the rows with the lowest of random numbers that each chunk draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from streamsvm.rows import Float64, Int32, Int64

OCTAVES = (-20, 12)
"""Exponents of 2 between which a power of two is divided into bins."""
BINS_PER_OCTAVE = 256
SIDE = (OCTAVES[1] - OCTAVES[0]) * BINS_PER_OCTAVE
"""Bins on either side of 0."""
BINS = 2 * SIDE + 1
MANTISSA, EXPONENT = 52, 1023
"""Bits of a float64's fraction, and the bias of its exponent (IEEE 754)."""
MOST_ROWS = 1 << 17
"""Largest sample of vectors, in rows: enough for an error of one in 300 of a temperature."""
MOST_BYTES = 16 << 20
"""Largest sample of vectors, in bytes."""


class ScoreCounts(NamedTuple):
    """Weights of the rows of two classes by score: what sigmoid and isotonic calibration are made of."""

    scores: Float64
    """The distinct scores (m,), rising."""
    positive: Float64
    """Weight of the rows of the class the score speaks for, (m,)."""
    negative: Float64
    """Weight of the others, (m,)."""

    @property
    def total(self) -> Float64:
        """Weight of all rows at each score, (m,)."""
        return self.positive + self.negative


class Vectors(NamedTuple):
    """Rows with all their scores: what a temperature is made of."""

    scores: Float64
    """Decision values, (n, k)."""
    truth: Int32
    """Class number of each row, (n,)."""
    weights: Float64
    """How often each row counts, (n,)."""


def count_scores(scores: Float64, positive: Float64, negative: Float64) -> ScoreCounts:
    """Return the counts of scores (n,) in any order, weights of both classes (n,); equal scores become one."""
    values, places = np.unique(scores, return_inverse=True)
    sums = (np.bincount(places, side, len(values)).astype(np.float64) for side in (positive, negative))
    return ScoreCounts(values, *sums)


def find_bins(scores: Float64) -> Int64:
    """Return the bin of each score (n,), from 0 to ``BINS`` - 1 in the order of the scores.

    The bits of |f| = 2^e (1 + m), e and then the first eight of m, are the number of its bin but for an offset.
    """
    place = np.abs(scores).view(np.int64)
    place >>= MANTISSA - BINS_PER_OCTAVE.bit_length() + 1
    place -= (EXPONENT + OCTAVES[0]) * BINS_PER_OCTAVE - 1
    np.clip(place, 0, SIDE, out=place)
    return SIDE + np.where(scores < 0, -place, place)


@dataclass(slots=True, eq=False)
class ScoreTable:
    """The scores of rows: bins of each decision value, and a sample of whole vectors."""

    sums: Float64
    """(k, 3, BINS): weight of the rows of the class, weight of the others, sum of weight times score."""
    vectors: Vectors
    """The sample."""
    draws: Float64
    """The random number each row of the sample was drawn by, (n,)."""

    @property
    def classes(self) -> int:
        """The number of classes: 2 for one decision value."""
        return max(2, len(self.sums))

    @property
    def rows_kept(self) -> int:
        """Largest number of rows of the sample."""
        return sample_rows(len(self.sums))

    def counts(self, k: int) -> ScoreCounts:
        """Return the counts of decision value k; scores are the means of their bins."""
        positive, negative, total = self.sums[k]
        used = np.flatnonzero(positive + negative)
        weight = positive[used] + negative[used]
        return ScoreCounts(total[used] / weight, positive[used], negative[used])

    def merge(self, other: ScoreTable) -> ScoreTable:
        """Return the table of the rows of both; neither changes."""
        one, more = self.vectors, other.vectors
        vectors = Vectors(
            np.concatenate([one.scores, more.scores]),
            np.concatenate([one.truth, more.truth]),
            np.concatenate([one.weights, more.weights]),
        )
        both = ScoreTable(self.sums + other.sums, vectors, np.concatenate([self.draws, other.draws]))
        return both.thin()

    def thin(self) -> ScoreTable:
        """Return the table with the sample cut to the rows of the lowest draws."""
        if len(self.draws) <= self.rows_kept:
            return self
        lowest = np.sort(np.argpartition(self.draws, self.rows_kept - 1)[: self.rows_kept])
        scores, truth, weights = self.vectors
        return replace(self, vectors=Vectors(scores[lowest], truth[lowest], weights[lowest]), draws=self.draws[lowest])


def sample_rows(problems: int) -> int:
    """Return how many rows a sample of vectors of so many decision values may have."""
    return max(1, min(MOST_ROWS, MOST_BYTES // (8 * (problems + 3))))


def table_bytes(problems: int) -> int:
    """Return the largest size of a ``ScoreTable`` in bytes, while two are merged."""
    return 2 * problems * 3 * 8 * BINS + 3 * sample_rows(problems) * 8 * (problems + 3)


def build_score_table(scores: Float64, truth: Int32, weights: Float64, draws: Float64) -> ScoreTable:
    """Return the table of rows with scores (n, k), classes (n,), weights (n,) and random numbers from 0 to 1 (n,).

    Rows of weight 0 are skipped. ``truth`` has class numbers; with one score it speaks for class 1.
    """
    shown = np.flatnonzero(weights)
    scores, truth, weights, draws = scores[shown], truth[shown], weights[shown], draws[shown]
    k = scores.shape[1]
    sums = np.empty((k, 3, BINS))
    for j in range(k):
        places, mine = find_bins(scores[:, j]), truth == (1 if k == 1 else j)
        others, own = np.bincount(places + BINS * mine, weights, 2 * BINS).reshape(2, BINS)
        sums[j, 0], sums[j, 1] = own, others
        sums[j, 2] = np.bincount(places, weights * scores[:, j], BINS)
    return ScoreTable(sums, Vectors(scores, truth.astype(np.int32), weights), draws).thin()
