"""How good probabilities are: log loss, Brier score, and how often what was given probability p came true, by p.

Rows are counted in bins of equal width of the probability: of the second class where there are two, else of the class
that is predicted (DeGroot and Fienberg, The Statistician 32, 1983; Guo et al., ICML 2017). The expected calibration error is

    ECE = sum over bins of  weight / all weight  times  | mean probability - share that came true |.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.aliases import JsonObject
from streamsvm.calibration.calibrators import normalize, sigma
from streamsvm.rows import Float64, Int32

BINS = 15
"""Bins of the probability, from 0 to 1."""
MIN_PROBABILITY = float(np.finfo(np.float64).eps)
"""Probabilities are clipped to at least this, so that no single row makes the log loss infinite."""


class Reliability(NamedTuple):
    """The points of a reliability diagram, one a bin that has rows."""

    said: tuple[float, ...]
    """The mean probability."""
    came_true: tuple[float, ...]
    """The share of rows for which it came true."""
    weight: tuple[float, ...]
    """The weight of the rows: their number where each counts once."""


class ProbabilityFigures(NamedTuple):
    """Scores of predicted probabilities on some rows."""

    log_loss: float
    """The mean of - log p of the true class (natural logarithm)."""
    Brier: float
    """The mean of (p - t)^2 of the second of two classes; of more classes the mean of the sum over all."""
    ECE: float
    """The expected calibration error."""


class ProbabilityCounts:
    """Sums over rows and their probabilities; memory does not depend on their number."""

    def __init__(self) -> None:
        self.sums = np.zeros(3)
        self.bins = np.zeros((3, BINS))

    def add(self, probabilities: Float64, truth: Int32, weights: Float64 | None = None) -> None:
        """Count rows: probabilities (n, classes), numbers of classes (n,), weights (n,), 1 each if None.

        Rows of a class that has no probability, a number beyond the last, are left out.
        """
        known = np.flatnonzero(truth < probabilities.shape[1])
        p, truth = probabilities[known], truth[known]
        s = np.ones(len(known)) if weights is None else weights[known]
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
        """Add the rows that ``other`` has counted."""
        self.sums += other.sums
        self.bins += other.bins

    def figures(self) -> ProbabilityFigures | None:
        """Return the figures; None where no rows were counted."""
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
        """Return figures and diagram as plain JSON: the keys are the fields of ``ProbabilityFigures`` and ``Reliability``."""
        figures = self.figures()
        return {**({} if figures is None else figures._asdict()), **self.diagram()._asdict()}


def read_as_log_odds(decision: Float64) -> Float64:
    """Return the probabilities (n, classes) of decision values (n, k) taken for log odds: sigma(f) for two classes, else softmax(f)."""
    if decision.shape[1] == 1:
        return normalize(sigma(decision))
    return normalize(np.exp(decision - decision.max(axis=1, keepdims=True)))
