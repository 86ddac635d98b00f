"""The logistic loss: an entropy for a conjugate, and probabilities for decision values.

Reference: Yu, Huang and Lin, Machine Learning 85, 2011, (3).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, NamedTuple

from streamsvm.config.fields import Bounds, Option
from streamsvm.tags import saved_as

if TYPE_CHECKING:
    from streamsvm.types import Loss


@saved_as("loss.logistic")
class Logistic(NamedTuple):
    """l(m) = log(1 + e^(-k m)) / k, k the sharpness; 0 <= a <= C. With k = 1 a margin m is the logarithm of the odds.

    With b = a / C the conjugate is a + C / k (b log b + (1 - b) log(1 - b)): the entropy of the dual variables, which lie
    inside their bounds at the optimum. The larger k is, the nearer the loss to max(0, -m).
    """

    sharpness: Annotated[
        float,
        Option("How fast odds grow with the margin; decision values are their logarithm at 1.", bounds=Bounds(above=0)),
    ] = 1.0

    def value(self, m: float) -> float:
        """See ``types.Loss``; neither end of the line overflows."""
        z = self.sharpness * m
        if z > 0.0:
            return math.log1p(math.exp(-z)) / self.sharpness
        return math.log1p(math.exp(z)) / self.sharpness - m

    def slope(self, m: float) -> float:
        """See ``types.Loss``."""
        z = self.sharpness * m
        if z > 0.0:
            e = math.exp(-z)
            return -e / (1.0 + e)
        return -1.0 / (1.0 + math.exp(z))

    def value_slope_entropy(self, m: float) -> tuple[float, float, float]:
        """Return l(m), l'(m) and a - conjugate(a) at a = -l'(m), C = 1, by one exponential and one logarithm.

        With b = -l'(m) the last is -(b log b + (1 - b) log(1 - b)) / k; log b and log(1 - b) are -log1p(e^-|z|), and |z| less than that for
        the smaller of the two: only terms above 0 are added up.
        """
        z = self.sharpness * m
        e = math.exp(-abs(z))
        tail, share = math.log1p(e), 1.0 / (1.0 + e)
        b = e * share if z > 0.0 else share
        low, value = (tail + z, tail) if z > 0.0 else (tail, tail - z)
        return value / self.sharpness, -b, (b * low + (1.0 - b) * value) / self.sharpness

    def second_derivative(self, m: float) -> float:
        """See ``types.Loss``."""
        e = math.exp(-abs(self.sharpness * m))
        return self.sharpness * e / ((1.0 + e) * (1.0 + e))

    def numeric(self) -> bool:
        """See ``types.Loss``: the target is one of two classes."""
        return False

    def upper(self, C: float) -> float:
        """See ``types.Loss``."""
        return C

    def conjugate(self, a: float, C: float) -> float:
        """See ``types.Loss``; 0 log 0 is 0."""
        b, entropy = a / C, 0.0
        if 0.0 < b < 1.0:
            entropy = b * math.log(b) + (1.0 - b) * math.log1p(-b)
        return a + C / self.sharpness * entropy

    def conjugate_slope(self, a: float, C: float) -> float:
        """See ``types.Loss``; infinite at the ends of the box."""
        if a <= 0.0:
            return -math.inf
        if a >= C:
            return math.inf
        return 1.0 + math.log(a / (C - a)) / self.sharpness

    def curvature(self, C: float) -> float:
        """See ``types.Loss``: that in the middle of the box, the least."""
        return 4.0 / (self.sharpness * C)

    def smooth(self) -> bool:
        """See ``types.Loss``."""
        return True

    def quadratic(self) -> bool:
        """See ``types.Loss``: the conjugate is an entropy."""
        return False

    def rounded(self, mu: float) -> Loss:
        """See ``types.Loss``: there is no corner to round."""
        return self
