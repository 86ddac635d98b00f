"""Isotonic calibration: the probability that rises with the score and is nearest to what the rows say.

    minimize  sum_i s_i (t_i - g(f_i))^2   over g that rises,     t_i = 1 for rows of the class, else 0

by pooling adjacent violators: each score is a block of its mean; a block whose mean is not above that of the one before joins it. Every
row is looked at once and every block joined at most once. Between two scores g is a line, beyond the first and the last it is flat.
References: Ayer et al., Annals of Mathematical Statistics 26, 1955; Zadrozny and Elkan, KDD 2002; the interpolation is that of
scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.calibration.protocol import both_classes, normalized, numbers
from streamsvm.calibration.scores import ScoreCounts, ScoreTable
from streamsvm.errors import DataError
from streamsvm.rows import Float64


@dataclass(frozen=True, slots=True, eq=False)
class Isotonic:
    """p_k = g_k(f_k), then divided by their sum for more than two classes."""

    steps: tuple[tuple[Float64, Float64], ...]
    """Of each decision value the scores at which g bends, rising, and g there: (m,) each."""
    method: ClassVar[str] = "isotonic"
    """See ``Calibrator``."""

    @classmethod
    def of(cls, table: ScoreTable) -> Isotonic:
        """See ``Calibrator``."""
        return cls(tuple(isotonic_of(table.counts(k)) for k in range(len(table.sums))))

    @classmethod
    def read(cls, facts: JsonObject, arrays: dict[str, Array]) -> Isotonic:
        """See ``Calibrator``."""
        scores, values = (numbers(arrays[name]) for name in ("scores", "values"))
        ends = np.cumsum([int(size) for size in facts["bends"]])
        parts = list(zip(np.split(scores, ends)[:-1], np.split(values, ends)[:-1], strict=True))
        usable = len(ends) and ends[-1] == len(scores) == len(values) and all(len(at) for at, _ in parts)
        if not usable or not all(_rising(at) and _rising(g) and 0 <= g[0] and g[-1] <= 1 for at, g in parts):
            raise DataError("the calibration is not usable")
        return cls(tuple(parts))

    @property
    def problems(self) -> int:
        """See ``Calibrator``."""
        return len(self.steps)

    def probabilities(self, decision: Float64) -> Float64:
        """See ``Calibrator``."""
        found = [np.interp(decision[:, k], at, values) for k, (at, values) in enumerate(self.steps)]
        return normalized(np.column_stack(found))

    def facts(self) -> JsonObject:
        """See ``Calibrator``."""
        return {"bends": [len(at) for at, _ in self.steps]}

    def arrays(self) -> dict[str, Array]:
        """See ``Calibrator``."""
        return {
            "scores": np.concatenate([at for at, _ in self.steps]),
            "values": np.concatenate([values for _, values in self.steps]),
        }


def isotonic_of(counts: ScoreCounts) -> tuple[Float64, Float64]:
    """Return the scores at which g bends and g there. Raises DataError where there are no rows of a class."""
    both_classes(counts.positive, counts.negative)
    firsts, means = pooled(counts.positive, counts.total)
    lasts = np.append(firsts[1:], len(counts.scores)) - 1
    ends = np.unique(np.concatenate([firsts, lasts]))
    return counts.scores[ends], means[np.searchsorted(firsts, ends, side="right") - 1]


def pooled(hits: Float64, total: Float64) -> tuple[Array, Float64]:
    """Return the first place of each block and its mean, strictly rising; of weights of hits and of all (m,) in their order."""
    first: list[int] = []
    blocks: list[tuple[float, float]] = []
    for place, block in enumerate(zip(hits.tolist(), total.tolist(), strict=True)):
        start = place
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            before, start = blocks.pop(), first.pop()
            block = (before[0] + block[0], before[1] + block[1])  # noqa: PLW2901 (it grows while it joins)
        first.append(start)
        blocks.append(block)
    return np.array(first), np.array([sum_ / weight for sum_, weight in blocks])


def _rising(values: Float64) -> bool:
    return bool((np.diff(values) >= 0).all())
