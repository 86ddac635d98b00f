"""What every calibrator is: a function of decision values, as pure data."""

from __future__ import annotations

from typing import ClassVar, Protocol, Self

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.calibration.scores import ScoreTable
from streamsvm.errors import DataError
from streamsvm.rows import Float64


class Calibrator(Protocol):
    """Decision values (n, k) in, probabilities of all classes (n, classes) out. A frozen value; see ``CALIBRATIONS``."""

    method: ClassVar[str]
    """Its name in the registry."""

    @classmethod
    def of(cls, table: ScoreTable) -> Self:
        """Return the calibrator of scores that no row had a part in. Raises DataError where a class has no rows."""
        ...

    @classmethod
    def read(cls, facts: JsonObject, arrays: dict[str, Array]) -> Self:
        """Return the calibrator that these facts and arrays were made of. Raises DataError, KeyError, TypeError."""
        ...

    @property
    def problems(self) -> int:
        """The decision values it is for; None of them for any number is 0."""
        ...

    def probabilities(self, decision: Float64) -> Float64:
        """Return the probability of each class (n, classes) for decision values (n, k); rows sum up to 1."""
        ...

    def facts(self) -> JsonObject:
        """Return what there is to say of it as plain JSON; with ``arrays`` all of it."""
        ...

    def arrays(self) -> dict[str, Array]:
        """Return what is too much for facts, by name."""
        ...


def normalized(values: Float64) -> Float64:
    """Return probabilities (n, classes) from those of each class against the rest (n, k): divided by their sum.

    With one value it is that of the second class. Where all are 0 every class has the same one (Zadrozny and Elkan, KDD 2002).
    """
    if values.shape[1] == 1:
        return np.concatenate([1.0 - values, values], axis=1)
    sums = values.sum(axis=1, keepdims=True)
    return np.where(sums > 0, values, 1.0) / np.where(sums > 0, sums, values.shape[1])


def sigma(z: Float64) -> Float64:
    """Return 1 / (1 + e^-z), to a few roundings of itself in both tails.

    Every fit comes by here, and scipy.special, which has it too, takes 0.07 s to import.
    """
    tail = np.exp(-np.abs(z))
    found: Float64 = np.where(z < 0.0, tail, 1.0) / (1.0 + tail)
    return found


def both_classes(positive: Float64, negative: Float64) -> None:
    """Raise DataError unless there are rows of both sides, weights (m,) each."""
    if not (positive.sum() > 0 and negative.sum() > 0):
        raise DataError(
            "there are no probabilities to be learned: a class has no rows among the scores",
            code="E-CALIBRATION",
            hint="leave out --calibrate, or train on rows of all classes",
        )


def numbers(values: object) -> Float64:
    """Return finite numbers (k,) of a file. Raises DataError, TypeError, ValueError."""
    found = np.asarray(values, np.float64)
    if found.ndim != 1 or not len(found) or not np.isfinite(found).all():
        raise DataError("the calibration is not usable")
    return found
