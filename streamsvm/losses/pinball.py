"""The loss of quantiles: a line on each side of 0, of unequal slopes; what ``losses.tubes`` says of losses of numbers without an epsilon.

    l(m) = max((1 - q) m, -q m),     conjugate(a, C) = a,     -(1 - q) C <= a <= q C

Of a prediction that is the quantile q of t, given x, the expected loss is least (Koenker and Bassett, Econometrica 46, 1978).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from streamsvm.config.fields import Bounds, Option
from streamsvm.tags import saved_as

if TYPE_CHECKING:
    from streamsvm.types import Loss

Quantile = Annotated[
    float,
    Option(
        "Of targets, the share that is to lie below the prediction; 0.5: the median.", bounds=Bounds(above=0, below=1)
    ),
]


@saved_as("loss.pinball")
class Pinball(NamedTuple):
    """l(m) = max((1 - q) m, -q m); with q = 0.5 half the epsilon-insensitive loss of epsilon 0."""

    quantile: Quantile = 0.5

    def value(self, m: float) -> float:
        """See ``types.Loss``."""
        return max((1.0 - self.quantile) * m, -self.quantile * m)

    def slope(self, m: float) -> float:
        """See ``types.Loss``; 0 at the corner."""
        if m > 0.0:
            return 1.0 - self.quantile
        return -self.quantile if m < 0.0 else 0.0

    def second_derivative(self, m: float) -> float:
        """See ``types.Loss``: 0 on both sides of the corner."""
        return 0.0

    def numeric(self) -> bool:
        """See ``types.Loss``: the target is a number."""
        return True

    def upper(self, C: float) -> float:
        """See ``types.Loss``."""
        return self.quantile * C

    def conjugate(self, a: float, C: float) -> float:
        """See ``types.Loss``: a."""
        return a

    def conjugate_slope(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        return 1.0

    def curvature(self, C: float) -> float:
        """See ``types.Loss``: the conjugate is a line."""
        return 0.0

    def smooth(self) -> bool:
        """See ``types.Loss``: there is a corner at 0."""
        return False

    def quadratic(self) -> bool:
        """See ``types.Loss``."""
        return True

    def rounded(self, mu: float) -> Loss:
        """See ``types.Loss``."""
        return RoundedPinball(mu, self.quantile)


@saved_as("loss.rounded_pinball")
class RoundedPinball(NamedTuple):
    """The same with a parabola between -mu and mu, -q m + (m + mu)^2 / (4 mu), as ``losses.Huber`` has it of the hinge.

    With z = q - a / C its conjugate is a + C mu (z^2 - z): less than a, which is what rounding adds to the value.
    """

    mu: Annotated[float, Option("Half the width over which the corner is rounded.", bounds=Bounds(above=0))] = 0.1
    quantile: Quantile = 0.5

    def value(self, m: float) -> float:
        """See ``types.Loss``."""
        if abs(m) >= self.mu:
            return max((1.0 - self.quantile) * m, -self.quantile * m)
        return (m + self.mu) * (m + self.mu) / (4.0 * self.mu) - self.quantile * m

    def slope(self, m: float) -> float:
        """See ``types.Loss``."""
        return min(max((m + self.mu) / (2.0 * self.mu), 0.0), 1.0) - self.quantile

    def second_derivative(self, m: float) -> float:
        """See ``types.Loss``; 0 at both ends of the rounded part."""
        return 0.5 / self.mu if abs(m) < self.mu else 0.0

    def numeric(self) -> bool:
        """See ``types.Loss``: the target is a number."""
        return True

    def upper(self, C: float) -> float:
        """See ``types.Loss``."""
        return self.quantile * C

    def conjugate(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        z = self.quantile - a / C
        return a + C * self.mu * (z * z - z)

    def conjugate_slope(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        return 1.0 + self.mu * (1.0 - 2.0 * self.quantile + 2.0 * a / C)

    def curvature(self, C: float) -> float:
        """See ``types.Loss``."""
        return 2.0 * self.mu / C

    def smooth(self) -> bool:
        """See ``types.Loss``."""
        return True

    def quadratic(self) -> bool:
        """See ``types.Loss``."""
        return True

    def rounded(self, mu: float) -> Loss:
        """See ``types.Loss``: the corner is rounded already."""
        return self
