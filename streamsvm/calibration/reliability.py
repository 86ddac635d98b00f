"""Scores of predicted probabilities: log loss, Brier score, and reliability, the observed frequency by predicted probability.

Rows are counted in bins of equal width by the probability of the second class, or with more than two classes by that of the predicted class
(DeGroot and Fienberg, The Statistician 32, 1983; Guo et al., ICML 2017). The expected calibration error is

    ECE = sum over bins of  weight / total weight  times  | mean probability - observed frequency |.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.calibration.calibrators import normalize, sigma
from streamsvm.rows import Float64, Int32
from streamsvm.type_aliases import JsonObject

BINS = 15
"""Number of bins of the probability, from 0 to 1."""
MIN_PROBABILITY = float(np.finfo(np.float64).eps)
"""Smaller probabilities are replaced by this one in the log loss, which is then finite."""


class Reliability(NamedTuple):
    """The points of a reliability diagram, one for each bin with rows."""

    said: tuple[float, ...]
    """The mean predicted probability of each bin."""
    came_true: tuple[float, ...]
    """The observed frequency in each bin."""
    weight: tuple[float, ...]
    """The total weight of the rows of each bin."""


class ProbabilityFigures(NamedTuple):
    """Scores of predicted probabilities on some rows."""

    log_loss: float
    """The mean of - log p of the true class (natural logarithm)."""
    Brier: float
    """The mean of (p - t)^2 for the second class; with more than two classes, the mean of the sum over all classes."""
    ECE: float
    """The expected calibration error."""


class ProbabilityCounts:
    """Sums over rows, from which the scores are computed; their size does not depend on the number of rows."""

    def __init__(self) -> None:
        self.sums = np.zeros(3)
        self.bins = np.zeros((3, BINS))

    def add(self, probabilities: Float64, truth: Int32, weights: Float64 | None = None) -> None:
        """Count rows with probabilities (n, classes), class codes (n,) and weights (n,); None: 1.

        Rows of classes that the model does not have (codes from ``classes`` on) are ignored.
        """
        in_classes = np.flatnonzero(truth < probabilities.shape[1])
        p, truth = probabilities[in_classes], truth[in_classes]
        s = np.ones(len(in_classes)) if weights is None else weights[in_classes]
        of_truth = p[np.arange(len(p)), truth]
        losses = -np.log(np.maximum(of_truth, MIN_PROBABILITY))
        if p.shape[1] == 2:
            said, right = p[:, 1], truth == 1
            squares = (said - right) ** 2
        else:
            best = p.argmax(axis=1)
            said, right = p[np.arange(len(p)), best], best == truth
            squares = (p * p).sum(axis=1) - 2.0 * of_truth + 1.0
        self.sums += [s.sum(), s @ losses, s @ squares]
        places = np.minimum((said * BINS).astype(np.int64), BINS - 1)
        self.bins += [np.bincount(places, part, BINS) for part in (s, s * said, s * right)]

    def merge(self, other: ProbabilityCounts) -> None:
        """Add the sums of ``other``."""
        self.sums += other.sums
        self.bins += other.bins

    def figures(self) -> ProbabilityFigures | None:
        """Return the scores; None if no rows were counted."""
        total, losses, squares = self.sums.tolist()
        if not total:
            return None
        return ProbabilityFigures(
            losses / total, squares / total, float(np.abs(self.bins[1] - self.bins[2]).sum()) / total
        )

    def diagram(self) -> Reliability:
        """Return the points of the reliability diagram."""
        weight, said, true = self.bins[:, self.bins[0] > 0]
        return Reliability(*(tuple(part.tolist()) for part in (said / weight, true / weight, weight)))

    def facts(self) -> JsonObject:
        """Return scores and diagram as plain JSON, with the fields of ``ProbabilityFigures`` and ``Reliability`` as keys."""
        figures = self.figures()
        return {**({} if figures is None else figures._asdict()), **self.diagram()._asdict()}


def read_as_log_odds(decision: Float64) -> Float64:
    """Return the probabilities (n, classes) of decision values (n, k) read as log odds: sigma(f) for two classes, else softmax(f)."""
    if decision.shape[1] == 1:
        return normalize(sigma(decision))
    return normalize(np.exp(decision - decision.max(axis=1, keepdims=True)))
