"""Temperature scaling: the vector of decision values divided by one number T, then softmax; for two classes p = sigma(f / T).

Minimizes over the inverse b = 1 / T >= 0 the log loss

    L(b) = sum_i s_i [log sum_k e^(b f_ik) - b sum_k t_ik f_ik],

which is convex: L' = sum s (E_p[f] - E_t[f]), L'' = sum s Var_p[f]. Newton's method in one number, held between bounds on both sides of
the root that every step brings closer; where a step would leave them they are halved. Targets are those of Platt's prior, so that
the least loss is at a finite b even where every row is right: t = (N + 1) / (N + 2) for the row's class, which has weight N, and what is left is
for the others in equal parts. Reference: Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.special

from streamsvm.aliases import Array, JsonObject
from streamsvm.calibration.protocol import both_classes, normalized, numbers
from streamsvm.calibration.scores import ScoreCounts, ScoreTable, Vectors
from streamsvm.calibration.sigmoid import targets_of
from streamsvm.errors import DataError
from streamsvm.rows import Float64

MOST_STEPS = 200
SMALL = 1e-12
"""The width of the bounds, relative, at which the last step was made."""
LEAST = 1e-9
"""Of 1 / T times the largest score: scores that say nothing, or the contrary, give every class the same probability, nearly."""

FARTHEST = 1e9
"""Of 1 / T times the largest score: how far a bound above is looked for."""


@dataclass(frozen=True, slots=True)
class Temperature:
    """softmax(f / T), and sigma(f / T) for two classes."""

    inverse: float
    """1 / T, above 0."""
    method: ClassVar[str] = "temperature"
    """See ``Calibrator``."""

    @classmethod
    def of(cls, table: ScoreTable) -> Temperature:
        """See ``Calibrator``."""
        return cls(inverse_of_two(table.counts(0)) if len(table.sums) == 1 else inverse_of(table.vectors))

    @classmethod
    def read(cls, facts: JsonObject, arrays: dict[str, Array]) -> Temperature:
        """See ``Calibrator``."""
        del arrays
        (inverse,) = numbers([facts["inverse"]]).tolist()
        if inverse <= 0:
            raise DataError("the calibration is not usable")
        return cls(inverse)

    @property
    def problems(self) -> int:
        """See ``Calibrator``: any number."""
        return 0

    def probabilities(self, decision: Float64) -> Float64:
        """See ``Calibrator``."""
        scaled = self.inverse * decision
        return (
            normalized(scipy.special.expit(scaled)) if decision.shape[1] == 1 else scipy.special.softmax(scaled, axis=1)
        )

    def facts(self) -> JsonObject:
        """See ``Calibrator``."""
        return {"inverse": self.inverse, "temperature": 1.0 / self.inverse}

    def arrays(self) -> dict[str, Array]:
        """See ``Calibrator``: there are none."""
        return {}


def inverse_of_two(counts: ScoreCounts) -> float:
    """Return 1 / T for two classes. Raises DataError where there are no rows of a class."""
    high, low = targets_of(counts)
    f, total, hits = counts.scores, counts.total, high * counts.positive + low * counts.negative

    def slopes(b: float) -> tuple[float, float]:
        p = scipy.special.expit(b * f)
        return float((total * p - hits) @ f), float((total * p * (1.0 - p)) @ (f * f))

    return _root(slopes, float(np.abs(f).max()))


def inverse_of(vectors: Vectors) -> float:
    """Return 1 / T for several classes. Raises DataError where all rows are of one class."""
    f, truth, s = vectors
    classes, rows = f.shape[1], np.arange(len(f))
    weight: Float64 = np.bincount(truth, s, classes).astype(np.float64)
    both_classes(weight[weight > 0][:1], weight[weight > 0][1:])
    right = (weight[truth] + 1.0) / (weight[truth] + 2.0)
    others = (1.0 - right) / (classes - 1)
    wanted = (right - others) * f[rows, truth] + others * f.sum(axis=1)

    def slopes(b: float) -> tuple[float, float]:
        p = scipy.special.softmax(b * f, axis=1)
        mean = (p * f).sum(axis=1)
        return float(s @ (mean - wanted)), float(s @ ((p * f * f).sum(axis=1) - mean * mean))

    return _root(slopes, float(np.abs(f).max()))


def _root(slopes: Callable[[float], tuple[float, float]], largest: float) -> float:
    """Where a rising slope is 0, by Newton's method between bounds; ``slopes`` returns it and its own slope."""
    low, high = LEAST / (largest or 1.0), 1.0 / (largest or 1.0)
    if slopes(low)[0] >= 0.0:
        return low
    farthest = FARTHEST * high
    while slopes(high)[0] < 0.0 and high < farthest:
        low, high = high, 2.0 * high
    b = 0.5 * (low + high)
    for _ in range(MOST_STEPS):
        slope, bend = slopes(b)
        low, high = (b, high) if slope < 0.0 else (low, b)
        if high - low <= SMALL * high:
            break
        step = b - slope / bend if bend > 0.0 else low
        if abs(step - b) <= SMALL * b:
            return step
        b = step if low < step < high else 0.5 * (low + high)
    return b
