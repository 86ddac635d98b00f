"""Decision values as histograms: the area under the ROC curve in memory that does not depend on the number of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.rows import Float64, Int64

KEY_BITS = 18
"""Decision values are ranked by the first 18 bits of their float32: sign, exponent, 9 bits of mantissa (0.2 %)."""


class AUC(NamedTuple):
    """The area under the ROC curve; the exact one is within ``error`` of ``value``."""

    value: float
    """The area, from 0 to 1."""
    error: float
    """How far at most the exact area is from it."""


class Ranking:
    """The decision values of two classes as histograms over 2^18 bins in rising order: 4 MiB, whatever the number of
    rows.
    """

    def __init__(self) -> None:
        self.counts = np.zeros((2, 1 << KEY_BITS), np.int64)

    def add(self, decision: Float64, positive: NDArray[np.bool_]) -> None:
        """Count rows with decision values (n,) and ``positive`` (n,) bool."""
        keys = sort_keys(decision)
        for side, mask in enumerate((~positive, positive)):
            self.counts[side] += np.bincount(keys[mask], minlength=1 << KEY_BITS)

    def auc(self) -> AUC | None:
        """Return the area under the ROC curve, in which pairs of one bin count as half a pair; None when there is one
        class only.
        """
        negatives, positives = self.counts.astype(np.float64)
        pairs = float(negatives.sum() * positives.sum())
        if not pairs:
            return None
        below = np.cumsum(negatives) - negatives
        tied = float(positives @ negatives)
        return AUC((float(positives @ below) + 0.5 * tied) / pairs, 0.5 * tied / pairs)


def sort_keys(values: Float64) -> Int64:
    """Return the leading bits of float32 values as integers (n,) in the order of the values."""
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)  # + 0: -0.0 is 0.0
    ordered = np.where(bits >> 31 == 1, ~bits, bits | np.uint32(1 << 31))
    return (ordered >> np.uint32(32 - KEY_BITS)).astype(np.int64)
