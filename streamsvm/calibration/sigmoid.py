"""Platt's sigmoid: p = 1 / (1 + e^-(A f + B)), one for each class against the rest.

Minimizes the log loss  - sum_i [t_i log p_i + (1 - t_i) log(1 - p_i)]  over (A, B), with the targets of Platt's prior,

    t = (N+ + 1) / (N+ + 2) for positive rows,  1 / (N- + 2) for negative ones,

by Newton's method with a line search that halves the step. Nothing overflows: log(1 + e^z) and p are written for z of either sign.
Given: scores with the weights of both classes. Changed: nothing. Reference: Lin, Lin and Weng, "A note on Platt's probabilistic
outputs for support vector machines", Machine Learning 68, 2007, Algorithm 1 (their A and B are ours with the other sign).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.calibration.protocol import both_classes, normalized, numbers, sigma
from streamsvm.calibration.scores import ScoreCounts, ScoreTable
from streamsvm.rows import Float64

MOST_STEPS = 100
RIDGE = 1e-12
"""Added to the diagonal of the Hessian: one of equal scores would be singular."""
SMALL = 1e-10
"""The gradient, divided by the weight of the rows, at which the last step was made."""
SUFFICIENT = 1e-4
"""Of the decrease that the slope promises: what a step must bring (Armijo)."""
LEAST_STEP = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class PlattSigmoid:
    """p_k = sigma(slopes_k f_k + offsets_k), then divided by their sum for more than two classes."""

    slopes: Float64
    """A of each decision value, (k,)."""
    offsets: Float64
    """B of each, (k,)."""
    method: ClassVar[str] = "sigmoid"
    """See ``Calibrator``."""

    @classmethod
    def of(cls, table: ScoreTable) -> PlattSigmoid:
        """See ``Calibrator``."""
        found = [sigmoid_of(table.counts(k)) for k in range(len(table.sums))]
        return cls(np.array([A for A, _ in found]), np.array([B for _, B in found]))

    @classmethod
    def read(cls, facts: JsonObject, arrays: dict[str, Array]) -> PlattSigmoid:
        """See ``Calibrator``."""
        del arrays
        return cls(numbers(facts["slopes"]), numbers(facts["offsets"]))

    @property
    def problems(self) -> int:
        """See ``Calibrator``."""
        return min(len(self.slopes), len(self.offsets))

    def probabilities(self, decision: Float64) -> Float64:
        """See ``Calibrator``."""
        return normalized(sigma(decision * self.slopes + self.offsets))

    def facts(self) -> JsonObject:
        """See ``Calibrator``."""
        return {"slopes": self.slopes.tolist(), "offsets": self.offsets.tolist()}

    def arrays(self) -> dict[str, Array]:
        """See ``Calibrator``: there are none."""
        return {}


def targets_of(counts: ScoreCounts) -> tuple[float, float]:
    """Return the targets of positive and negative rows. Raises DataError where there are no rows of a class."""
    both_classes(counts.positive, counts.negative)
    positive, negative = float(counts.positive.sum()), float(counts.negative.sum())
    return (positive + 1.0) / (positive + 2.0), 1.0 / (negative + 2.0)


def sigmoid_of(counts: ScoreCounts) -> tuple[float, float]:
    """Return A and B of the least log loss. Raises DataError where there are no rows of a class."""
    high, low = targets_of(counts)
    hits, total = high * counts.positive + low * counts.negative, counts.total
    A, B = 0.0, float(np.log((counts.positive.sum() + 1.0) / (counts.negative.sum() + 1.0)))
    scale = float(np.abs(counts.scores).max()) or 1.0  # Newton's steps do not depend on it, the ridge does
    f = counts.scores / scale
    value = _loss(A * f + B, hits, total)
    for _ in range(MOST_STEPS):
        p = sigma(A * f + B)
        off, bend = total * p - hits, total * p * (1.0 - p)
        gradient = np.array([off @ f, off.sum()])
        if np.abs(gradient).max() <= SMALL * total.sum():
            break
        cross = float(bend @ f)
        hessian = np.array([[float(bend @ (f * f)), cross], [cross, float(bend.sum())]])
        step = -np.linalg.solve(hessian + RIDGE * np.eye(2), gradient)
        length, slope = 1.0, float(gradient @ step)
        while length >= LEAST_STEP:
            new = _loss((A + length * step[0]) * f + B + length * step[1], hits, total)
            if new < value + SUFFICIENT * length * slope:
                break
            length /= 2.0
        else:
            break
        A, B, value = A + length * step[0], B + length * step[1], new
    return float(A / scale), float(B)


def _loss(z: Float64, hits: Float64, total: Float64) -> float:
    """The log loss at z = A f + B: sum total log(1 + e^z) - hits z."""
    return float(total @ (np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))) - hits @ z)
