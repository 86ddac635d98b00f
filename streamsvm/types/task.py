"""How a problem reads what a store holds of each row, a class code or a number: one record for each task."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from streamsvm.aliases import Array
from streamsvm.rows import Float32, Float64, Targets


class LearningTask(Protocol):
    """What codes (n,) of rows stand for to one problem: class codes int32, or the numbers themselves, float64."""

    def targets(self, codes: Array) -> Targets:
        """Return y (n,), what passes are given of the rows."""
        ...

    def factors(self, codes: Array) -> Float32 | Float64:
        """Return the factor (n,) of each row's weight that its code decides."""
        ...

    def signs(self, y: Targets) -> Float64:
        """Return with what sign (n,) rows of targets y (n,) enter w."""
        ...


def class_factors(codes: Array, weights: tuple[float, ...]) -> Float32 | Float64:
    """Return the weight (n,) of each row's class; 1 for all where ``weights`` is empty.

    They are float32 where that holds all of them exactly, else float64: P is that of the weights that were asked for.
    """
    if not weights:
        return np.ones(len(codes), np.float32)
    exact = np.asarray(weights, np.float64)
    with np.errstate(over="ignore"):
        short = exact.astype(np.float32)
    return short[codes] if np.array_equal(short, exact) else exact[codes]


class OneAgainstRest(NamedTuple):
    """One class is +1, all others are -1."""

    positive: int
    """The code of the class that is +1."""
    weights: tuple[float, ...]
    """Factor of s_i for the rows of each class; empty: 1 for all."""

    def targets(self, codes: Array) -> Targets:
        """+1 and -1 (n,) float32."""
        y = (codes == self.positive).astype(np.float32)
        y *= 2  # a quarter of the time of np.where
        y -= 1
        return y

    def factors(self, codes: Array) -> Float32 | Float64:
        """See ``LearningTask``."""
        return class_factors(codes, self.weights)

    def signs(self, y: Targets) -> Float64:
        """See ``LearningTask``: that of the class."""
        return y.astype(np.float64)


class OneClass(NamedTuple):
    """All rows are +1, whatever their codes."""

    weights: tuple[float, ...]
    """Factor of s_i for the rows of each class; empty: 1 for all."""

    def targets(self, codes: Array) -> Targets:
        """1 (n,) float32."""
        return np.ones(len(codes), np.float32)

    def factors(self, codes: Array) -> Float32 | Float64:
        """See ``LearningTask``."""
        return class_factors(codes, self.weights)

    def signs(self, y: Targets) -> Float64:
        """See ``LearningTask``: that of the class."""
        return y.astype(np.float64)


class AllClasses(NamedTuple):
    """All classes are told apart by one problem; codes stand for themselves."""

    weights: tuple[float, ...]
    """Factor of s_i for the rows of each class; empty: 1 for all."""

    def targets(self, codes: Array) -> Targets:
        """The codes (n,) float32."""
        return codes.astype(np.float32)

    def factors(self, codes: Array) -> Float32 | Float64:
        """See ``LearningTask``."""
        return class_factors(codes, self.weights)

    def signs(self, y: Targets) -> Float64:
        """See ``LearningTask``: +1 in the weights of the row's own class."""
        return np.ones(len(y))


class Regression(NamedTuple):
    """Numbers to be predicted."""

    center: float = 0.0
    """What is taken from all of them."""

    def targets(self, codes: Array) -> Targets:
        """The numbers (n,) float64, less the center; not copied where that is 0."""
        return codes - self.center if self.center else codes

    def factors(self, codes: Array) -> Float32 | Float64:
        """See ``LearningTask``: there are no classes, and 1 for all rows."""
        return np.ones(len(codes), np.float32)

    def signs(self, y: Targets) -> Float64:
        """See ``LearningTask``: rows enter w as they are."""
        return np.ones(len(y))
