"""Losses of numbers: a function of the residual m = f(x) - t, convex, and 0 at m = 0.

For a loss that is even in m the conjugate is even in a but for the term that all conjugates here begin with:

    conjugate(a, C) = a + epsilon |a| + q a^2 / C,      -upper(C) <= a <= upper(C),

q = 0 for the epsilon-insensitive loss, 1/4 for its square. One signed variable a row; along it -D has a corner at a = 0, and its
minimum is a soft threshold (Ho and Lin, JMLR 13, 2012, (20) - (24)). ``conjugate_slope`` at 0 is that of the right side.
C is that of LIBLINEAR (-s 11, 12, 13) and scikit-learn's ``LinearSVR``; ridge regression with penalty alpha ||w||^2 has C = 1 / (2 alpha).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from streamsvm.config.fields import Bounds, Option
from streamsvm.tags import saved_as

if TYPE_CHECKING:
    from streamsvm.types import Loss

Epsilon = Annotated[
    float, Option("How far off a prediction may be for nothing, in units of the target.", bounds=Bounds(least=0))
]


@saved_as("loss.epsilon_insensitive")
class EpsilonInsensitive(NamedTuple):
    """l(m) = max(0, |m| - epsilon); -C <= a <= C."""

    epsilon: Epsilon = 0.1

    def value(self, m: float) -> float:
        """See ``types.Loss``."""
        return max(0.0, abs(m) - self.epsilon)

    def slope(self, m: float) -> float:
        """See ``types.Loss``; 0 at both corners."""
        if m > self.epsilon:
            return 1.0
        return -1.0 if m < -self.epsilon else 0.0

    def second_derivative(self, m: float) -> float:
        """See ``types.Loss``: 0 on both sides of a corner."""
        return 0.0

    def numeric(self) -> bool:
        """See ``types.Loss``: the target is a number."""
        return True

    def upper(self, C: float) -> float:
        """See ``types.Loss``."""
        return C

    def conjugate(self, a: float, C: float) -> float:
        """See ``types.Loss``: a + epsilon |a|."""
        return a + self.epsilon * abs(a)

    def conjugate_slope(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        return 1.0 - self.epsilon if a < 0.0 else 1.0 + self.epsilon

    def curvature(self, C: float) -> float:
        """See ``types.Loss``: the conjugate is a line on each side."""
        return 0.0

    def smooth(self) -> bool:
        """See ``types.Loss``: there is a corner at either end of what costs nothing."""
        return False

    def quadratic(self) -> bool:
        """See ``types.Loss``."""
        return True

    def rounded(self, mu: float) -> Loss:
        """See ``types.Loss``: both corners over 2 mu, over less where they are nearer to 0 than that."""
        return RoundedEpsilon(max(0.0, self.epsilon - mu), self.epsilon + mu)


@saved_as("loss.rounded_epsilon")
class RoundedEpsilon(NamedTuple):
    """0 up to |m| = inner, from there a parabola to |m| = outer, where its slope is 1, and then a line; -C <= a <= C.

    conjugate(a, C) = a + inner |a| + (outer - inner) / 2 a^2 / C. With corners at epsilon and inner + outer = 2 epsilon it is the
    epsilon-insensitive loss beyond outer; where inner is 0 it may lie below by outer / 2 - epsilon.
    """

    inner: Annotated[float, Option("How far off a prediction may be for nothing.", bounds=Bounds(least=0))] = 0.0
    outer: Annotated[float, Option("From where on the loss is a line.", bounds=Bounds(above=0))] = 0.2

    def value(self, m: float) -> float:
        """See ``types.Loss``."""
        z = max(0.0, abs(m) - self.inner)
        width = self.outer - self.inner
        return z - 0.5 * width if z > width else 0.5 * z * z / width

    def slope(self, m: float) -> float:
        """See ``types.Loss``."""
        z = min(max(0.0, abs(m) - self.inner) / (self.outer - self.inner), 1.0)
        return z if m > 0.0 else -z

    def second_derivative(self, m: float) -> float:
        """See ``types.Loss``; 0 at the ends of the parabolas."""
        return 1.0 / (self.outer - self.inner) if self.inner < abs(m) < self.outer else 0.0

    def numeric(self) -> bool:
        """See ``types.Loss``: the target is a number."""
        return True

    def upper(self, C: float) -> float:
        """See ``types.Loss``."""
        return C

    def conjugate(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        return a + self.inner * abs(a) + 0.5 * (self.outer - self.inner) * a * a / C

    def conjugate_slope(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        corner = -self.inner if a < 0.0 else self.inner
        return 1.0 + corner + (self.outer - self.inner) * a / C

    def curvature(self, C: float) -> float:
        """See ``types.Loss``."""
        return (self.outer - self.inner) / C

    def smooth(self) -> bool:
        """See ``types.Loss``."""
        return True

    def quadratic(self) -> bool:
        """See ``types.Loss``."""
        return True

    def rounded(self, mu: float) -> Loss:
        """See ``types.Loss``: the corners are rounded already."""
        return self


@saved_as("loss.squared_epsilon_insensitive")
class SquaredEpsilonInsensitive(NamedTuple):
    """l(m) = max(0, |m| - epsilon)^2; a has no bound."""

    epsilon: Epsilon = 0.1

    def value(self, m: float) -> float:
        """See ``types.Loss``."""
        z = max(0.0, abs(m) - self.epsilon)
        return z * z

    def slope(self, m: float) -> float:
        """See ``types.Loss``."""
        z = 2.0 * max(0.0, abs(m) - self.epsilon)
        return z if m > 0.0 else -z

    def second_derivative(self, m: float) -> float:
        """See ``types.Loss``; 0 at both corners of the slope."""
        return 2.0 if abs(m) > self.epsilon else 0.0

    def numeric(self) -> bool:
        """See ``types.Loss``: the target is a number."""
        return True

    def upper(self, C: float) -> float:
        """See ``types.Loss``: there is no bound."""
        return float("inf")

    def conjugate(self, a: float, C: float) -> float:
        """See ``types.Loss``: a + epsilon |a| + a^2 / (4 C)."""
        return a + self.epsilon * abs(a) + 0.25 * a * a / C

    def conjugate_slope(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        corner = -self.epsilon if a < 0.0 else self.epsilon
        return 1.0 + corner + 0.5 * a / C

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
