"""Tables of scores for calibration, in memory that does not depend on the number of rows.

**Bins.** For each decision value f_k, the weights of the rows of class k and of the other rows are summed in bins, with the sum of their
values; a value is replaced by the mean of its bin. A power of two is divided into 256 bins, from 2^-20 to 2^12 (one bin has all values closer
to 0, the outermost bins all values further away). So a value differs by less than |f| / 256 from the mean of its bin, and the variance in a
bin is at most (f / 512)^2. The log loss of p = sigma(A f) changes by half of this variance times A^2 p (1 - p), less than 1e-6 per row. The
steps of an isotonic function move by less than a bin.

**Vectors.** A temperature depends on the whole vector of decision values. A uniform sample of at most ``MOST_ROWS`` vectors is kept: the rows
with the smallest random numbers, which are drawn for each chunk from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from streamsvm.rows import Float64, Int32, Int64

OCTAVES = (-20, 12)
"""Exponents of the smallest and the largest power of two that is divided into bins."""
BINS_PER_OCTAVE = 256
SIDE = (OCTAVES[1] - OCTAVES[0]) * BINS_PER_OCTAVE
"""Number of bins on either side of 0."""
BINS = 2 * SIDE + 1
MANTISSA, EXPONENT = 52, 1023
"""Number of bits of the fraction of a float64, and the bias of its exponent (IEEE 754)."""
MOST_ROWS = 1 << 17
"""Maximum number of vectors in the sample, enough for a relative error of 1/300 of a temperature."""
MOST_BYTES = 16 << 20
"""Maximum size of the sample of vectors."""


class ScoreCounts(NamedTuple):
    """Weights of the rows of two classes by score, to which sigmoid and isotonic calibrators are fitted."""

    scores: Float64
    """The distinct scores (m,), ascending."""
    positive: Float64
    """Weight of the rows of the positive class for each score, (m,)."""
    negative: Float64
    """Weight of the other rows for each score, (m,)."""

    @property
    def total(self) -> Float64:
        """Weight of all rows for each score, (m,)."""
        return self.positive + self.negative


class Vectors(NamedTuple):
    """Rows with all their scores, to which a temperature is fitted."""

    scores: Float64
    """Decision values, (n, k)."""
    truth: Int32
    """Class code of each row, (n,)."""
    weights: Float64
    """Weight of each row, (n,)."""


def count_scores(scores: Float64, positive: Float64, negative: Float64) -> ScoreCounts:
    """Return the counts for scores (n,) in any order with weights of both classes (n,); equal scores are merged."""
    values, places = np.unique(scores, return_inverse=True)
    sums = (np.bincount(places, side, len(values)).astype(np.float64) for side in (positive, negative))
    return ScoreCounts(values, *sums)


def find_bins(scores: Float64) -> Int64:
    """Return the bin of each score (n,), from 0 to ``BINS`` - 1 in the order of the scores.

    The number of the bin of |f| = 2^e (1 + m) consists of the bits of e and the first eight bits of m, minus an offset.
    """
    place = np.abs(scores).view(np.int64)
    place >>= MANTISSA - BINS_PER_OCTAVE.bit_length() + 1
    place -= (EXPONENT + OCTAVES[0]) * BINS_PER_OCTAVE - 1
    np.clip(place, 0, SIDE, out=place)
    return SIDE + np.where(scores < 0, -place, place)


@dataclass(slots=True, eq=False)
class ScoreTable:
    """The scores of rows: sums in bins for each decision value, and a sample of vectors."""

    sums: Float64
    """(k, 3, BINS): weight of the rows of the class, weight of the other rows, and sum of weight times score."""
    vectors: Vectors
    """The sample."""
    draws: Float64
    """The random numbers of the rows of the sample, (n,)."""

    @property
    def classes(self) -> int:
        """The number of classes: 2 for one decision value."""
        return max(2, len(self.sums))

    @property
    def rows_kept(self) -> int:
        """Maximum number of rows of the sample."""
        return sample_rows(len(self.sums))

    def counts(self, k: int) -> ScoreCounts:
        """Return the counts for decision value k, with the means of bins as scores."""
        positive, negative, total = self.sums[k]
        used = np.flatnonzero(positive + negative)
        weight = positive[used] + negative[used]
        return ScoreCounts(total[used] / weight, positive[used], negative[used])

    def merge(self, other: ScoreTable) -> ScoreTable:
        """Return the table of the rows of both tables, which are not changed."""
        one, more = self.vectors, other.vectors
        vectors = Vectors(
            np.concatenate([one.scores, more.scores]),
            np.concatenate([one.truth, more.truth]),
            np.concatenate([one.weights, more.weights]),
        )
        both = ScoreTable(self.sums + other.sums, vectors, np.concatenate([self.draws, other.draws]))
        return both.thin()

    def thin(self) -> ScoreTable:
        """Return the table with the sample reduced to its maximum size, to the rows with the smallest random numbers."""
        if len(self.draws) <= self.rows_kept:
            return self
        lowest = np.sort(np.argpartition(self.draws, self.rows_kept - 1)[: self.rows_kept])
        scores, truth, weights = self.vectors
        return replace(self, vectors=Vectors(scores[lowest], truth[lowest], weights[lowest]), draws=self.draws[lowest])


def sample_rows(problems: int) -> int:
    """Return the maximum number of rows of a sample of vectors of ``problems`` decision values."""
    return max(1, min(MOST_ROWS, MOST_BYTES // (8 * (problems + 3))))


def table_bytes(problems: int) -> int:
    """Return an upper bound of the bytes of a ``ScoreTable`` while two are merged."""
    return 2 * problems * 3 * 8 * BINS + 3 * sample_rows(problems) * 8 * (problems + 3)


def build_score_table(scores: Float64, truth: Int32, weights: Float64, draws: Float64) -> ScoreTable:
    """Return the table of rows with scores (n, k), classes (n,), weights (n,) and random numbers from 0 to 1 (n,).

    Rows of weight 0 are ignored. ``truth`` has class codes; a single score is that of class 1.
    """
    counted = np.flatnonzero(weights)
    scores, truth, weights, draws = scores[counted], truth[counted], weights[counted], draws[counted]
    k = scores.shape[1]
    sums = np.empty((k, 3, BINS))
    for j in range(k):
        places, in_class = find_bins(scores[:, j]), truth == (1 if k == 1 else j)
        others, own = np.bincount(places + BINS * in_class, weights, 2 * BINS).reshape(2, BINS)
        sums[j, 0], sums[j, 1] = own, others
        sums[j, 2] = np.bincount(places, weights * scores[:, j], BINS)
    return ScoreTable(sums, Vectors(scores, truth.astype(np.int32), weights), draws).thin()
