"""What decision values say: of two classes, of several, or of pairs of classes that vote."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from streamsvm.rows import Float64, Int32


def outcomes_of(decision: Float64, voting: int = 0) -> Int32:
    """What decision values (n, k) say, (n,): with one column 1 where it is positive and else 0, with several the largest.

    ``voting``: so many classes, whose pairs have the values, vote; of several with most votes it is the first, as in LIBSVM.
    """
    if voting:
        return np.argmax(votes(decision, voting), axis=1).astype(np.int32)
    if decision.shape[1] == 1:
        return (decision[:, 0] > 0).astype(np.int32)
    return np.argmax(decision, axis=1).astype(np.int32)


def votes(pairs: Float64, classes: int) -> Int32:
    """Return how many pairs speak for each class (n, classes), for their decision values (n, classes (classes - 1) / 2)."""
    found = np.zeros((len(pairs), classes), np.int32)
    for k, (first, second) in enumerate(combinations(range(classes), 2)):
        found[:, first] += pairs[:, k] > 0
        found[:, second] += pairs[:, k] <= 0
    return found
