"""The hinge and what is made of it: squared, and with its corner rounded.

Reference: Hsieh et al., ICML 2008, (4)-(9); the Huber form: Chapelle, Neural Computation 2007, (2.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from streamsvm.config.fields import Bounds, Option
from streamsvm.tags import saved_as

if TYPE_CHECKING:
    from streamsvm.types import Loss

Margin = Annotated[float, Option("The margin from which on a row has no loss.", bounds=Bounds(above=0))]


@saved_as("loss.hinge")
class Hinge(NamedTuple):
    """l(m) = max(0, margin - m); 0 <= a <= C."""

    margin: Margin = 1.0

    def value(self, m: float) -> float:
        """See ``types.Loss``."""
        return max(0.0, self.margin - m)

    def slope(self, m: float) -> float:
        """See ``types.Loss``; at the corner the slope of its right side, 0."""
        return -1.0 if m < self.margin else 0.0

    def second_derivative(self, m: float) -> float:
        """See ``types.Loss``: 0 on both sides of the corner."""
        return 0.0

    def numeric(self) -> bool:
        """See ``types.Loss``: the target is one of two classes."""
        return False

    def upper(self, C: float) -> float:
        """See ``types.Loss``."""
        return C

    def conjugate(self, a: float, C: float) -> float:
        """See ``types.Loss``: (1 - margin) a."""
        return (1.0 - self.margin) * a

    def conjugate_slope(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        return 1.0 - self.margin

    def curvature(self, C: float) -> float:
        """See ``types.Loss``: the conjugate is a line."""
        return 0.0

    def smooth(self) -> bool:
        """See ``types.Loss``: there is a corner at the margin."""
        return False

    def quadratic(self) -> bool:
        """See ``types.Loss``."""
        return True

    def rounded(self, mu: float) -> Loss:
        """See ``types.Loss``: the smoothed hinge of the same margin."""
        return Huber(mu, self.margin)


@saved_as("loss.squared_hinge")
class SquaredHinge(NamedTuple):
    """l(m) = max(0, margin - m)^2; a >= 0."""

    margin: Margin = 1.0

    def value(self, m: float) -> float:
        """See ``types.Loss``."""
        z = max(0.0, self.margin - m)
        return z * z

    def slope(self, m: float) -> float:
        """See ``types.Loss``."""
        return -2.0 * max(0.0, self.margin - m)

    def second_derivative(self, m: float) -> float:
        """See ``types.Loss``; at the margin, where there is none, the one of its right side."""
        return 2.0 if m < self.margin else 0.0

    def numeric(self) -> bool:
        """See ``types.Loss``: the target is one of two classes."""
        return False

    def upper(self, C: float) -> float:
        """See ``types.Loss``: there is no bound."""
        return float("inf")

    def conjugate(self, a: float, C: float) -> float:
        """See ``types.Loss``: (1 - margin) a + a^2 / (4 C)."""
        return (1.0 - self.margin) * a + 0.25 * a * a / C

    def conjugate_slope(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        return 1.0 - self.margin + 0.5 * a / C

    def curvature(self, C: float) -> float:
        """See ``types.Loss``."""
        return 0.5 / C

    def smooth(self) -> bool:
        """See ``types.Loss``."""
        return True

    def quadratic(self) -> bool:
        """See ``types.Loss``."""
        return True

    def rounded(self, mu: float) -> Loss:
        """See ``types.Loss``: there is no corner to round."""
        return self


@saved_as("loss.huber")
class Huber(NamedTuple):
    """The hinge with its corner rounded over a width 2 mu.

    With k the margin: 0 above k + mu, (k + mu - m)^2 / (4 mu) within, k - m below k - mu. 0 <= a <= C, and with
    l = max_b [b (k - m) - c(b)], b = a / C: c(b) = mu (b^2 - b), so the conjugate is (1 - k) a + mu (a^2 / C - a): less
    than the hinge's inside the box, which is what rounding adds to the value.

    The smoothed hinge of lectures, phi_mu(m) = max_{0 <= b <= 1} [b (1 - m) - mu/2 b^2], begins at m = 1 and lies below the
    hinge: it is this one at m + mu/2 with half the width, Huber(mu=mu/2, margin=1 - mu/2).
    """

    mu: Annotated[float, Option("Half the width over which the corner is rounded.", bounds=Bounds(above=0))] = 0.1
    margin: Margin = 1.0

    def value(self, m: float) -> float:
        """See ``types.Loss``."""
        z = self.margin + self.mu - m
        if z <= 0.0:
            return 0.0
        if z >= 2.0 * self.mu:
            return self.margin - m
        return z * z / (4.0 * self.mu)

    def slope(self, m: float) -> float:
        """See ``types.Loss``."""
        z = self.margin + self.mu - m
        return -min(max(z / (2.0 * self.mu), 0.0), 1.0)

    def second_derivative(self, m: float) -> float:
        """See ``types.Loss``; 0 at both ends of the rounded part."""
        z = self.margin + self.mu - m
        return 0.5 / self.mu if 0.0 < z < 2.0 * self.mu else 0.0

    def numeric(self) -> bool:
        """See ``types.Loss``: the target is one of two classes."""
        return False

    def upper(self, C: float) -> float:
        """See ``types.Loss``."""
        return C

    def conjugate(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        return (1.0 - self.margin) * a + self.mu * (a * a / C - a)

    def conjugate_slope(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        return (1.0 - self.margin) + self.mu * (2.0 * a / C - 1.0)

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
