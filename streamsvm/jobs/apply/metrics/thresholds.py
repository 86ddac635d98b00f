"""Two classes told apart at any threshold of the decision value: what precision, recall and cost each would have.

Decision values are counted in bins (``ranking.Ranking``), so that all thresholds are looked at whatever the number of
rows: those at the lower edge of a bin, for which the counts are exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.rows import Float64, Int64


class ThresholdFigures(NamedTuple):
    """How good a model is where rows from ``threshold`` on are taken for the positive class."""

    threshold: float
    """The decision value: f > threshold where it was stated, f >= threshold where it was found."""
    precision: float
    """The share of positives among the rows that are taken for positive; 0 where there are none."""
    recall: float
    """The share of the positives that are taken for positive."""
    F1: float
    """The harmonic mean of both."""
    balanced_accuracy: float
    """The mean of the recall of both classes."""
    accuracy: float
    """The share of right answers."""
    cost: float
    """The mean cost of a row: that of a false positive or a false negative, or 0; by default 1 each."""


def figures(
    thresholds: Float64, taken: Int64 | Float64, rows: Int64 | Float64, costs: tuple[float, float]
) -> list[Float64]:
    """Return the fields of ``ThresholdFigures`` for many thresholds at once.

    ``taken``: negatives and positives (2, k) taken for positive; ``rows``: how many there are (2,).
    """
    false, true = taken.astype(np.float64)
    negatives, positives = (max(float(count), 1.0) for count in rows)
    missed, total = rows[1] - true, max(float(rows.sum()), 1.0)
    precision, recall = true / np.maximum(true + false, 1.0), true / positives
    F1 = 2 * true / np.maximum(2 * true + false + missed, 1.0)
    balanced = (recall + 1 - false / negatives) / 2
    return [
        thresholds,
        precision,
        recall,
        F1,
        balanced,
        1 - (false + missed) / total,
        (costs[0] * false + costs[1] * missed) / total,
    ]


def at_threshold(
    threshold: float, taken: Int64, counts: Int64, costs: tuple[float, float] = (1.0, 1.0)
) -> ThresholdFigures:
    """Return the figures at one threshold; ``taken`` (2,) as counted there, ``counts`` (2, bins) of the ranking."""
    found = figures(np.array([threshold]), taken[:, None], counts.sum(axis=1), costs)
    return ThresholdFigures(*(float(values[0]) for values in found))


def best_threshold(counts: Int64, measure: str, costs: tuple[float, float] = (1.0, 1.0)) -> ThresholdFigures:
    """Return the figures at the threshold that is best by one of ``options.MEASURES``, the largest if there are several.

    ``counts`` (2, bins): negatives and positives by rising decision value.
    """
    used = np.flatnonzero(counts.any(axis=0))
    taken = np.cumsum(counts[:, used][:, ::-1], axis=1)
    found = ThresholdFigures(*figures(lower_edges(used[::-1], counts.shape[1]), taken, counts.sum(axis=1), costs))  # type: ignore[arg-type]
    values = np.asarray(found[ThresholdFigures._fields.index(measure)])
    place = int(np.argmin(values) if measure == "cost" else np.argmax(values))
    return ThresholdFigures(*(float(np.asarray(column)[place]) for column in found))


def average_precision(counts: Int64) -> float | None:
    """Return the area under precision over recall as steps, where rows of one bin count as ties; None without
    positives.

    AP = sum over bins, from the largest decision value down, of (R_k - R_(k-1)) P_k.
    """
    false, true = np.cumsum(counts[:, ::-1].astype(np.float64), axis=1)
    if not true[-1]:
        return None
    precision = true / np.maximum(true + false, 1.0)
    return float(np.diff(true, prepend=0.0) @ precision / true[-1])


def lower_edges(bins: Int64, count: int) -> Float64:
    """Return the smallest float32 that ``ranking.sort_keys`` puts into each bin, of ``count`` bins, as float64."""
    ordered = bins.astype(np.uint32) << np.uint32(33 - count.bit_length())
    bits = np.where(ordered >> 31 == 1, ordered & np.uint32((1 << 31) - 1), ~ordered)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)
