"""Margin losses as records of plain functions; the compiled passes call the same code.

For P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i), m_i = y_i w.x_i, C_i = C s_i, the dual is

    D(a) = sum_i (a_i - conjugate(a_i, C_i)) - 1/2 ||sum_i a_i y_i x_i||^2,     0 <= a_i <= upper(C_i),

with conjugate(a, C) = a + max_m [-a m - C l(m)], so that C l(m) >= a - conjugate(a, C) - a m, and equality at
a = -C l'(m). For hinges of all kinds the conjugate is a parabola in a, and along one coordinate -D has

    slope      m_i - 1 + conjugate_slope(a_i, C_i),        curvature      ||x_i||^2 + curvature(C_i).

Those three are one shape scaled: with margin k the loss is k (squared hinge: k^2) times that of margin 1 at m / k. Hence
w is k times as large, and what is measured in margins (a width, a radius) has to be in units of ``threshold``.

A record needs a field: numba cannot pass an empty one. Where C_i = 0 the row has no say and none of the dual functions
may be asked. ``types.Loss`` says what each function is to be; the contract suites hold every registered loss to it.
References: Hsieh et al., ICML 2008, (4)-(9); the Huber form: Chapelle, Neural Computation 2007, (2.4); the logistic one: Yu, Huang
and Lin, Machine Learning 85, 2011, (3).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, NamedTuple

from streamsvm.config.fields import Bounds, Option
from streamsvm.registry import Registry
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

    def box(self) -> bool:
        """See ``types.Loss``."""
        return True

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

    def box(self) -> bool:
        """See ``types.Loss``."""
        return False

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

    def box(self) -> bool:
        """See ``types.Loss``."""
        return True

    def quadratic(self) -> bool:
        """See ``types.Loss``."""
        return True

    def rounded(self, mu: float) -> Loss:
        """See ``types.Loss``: the corner is rounded already."""
        return self


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

    def second_derivative(self, m: float) -> float:
        """See ``types.Loss``."""
        e = math.exp(-abs(self.sharpness * m))
        return self.sharpness * e / ((1.0 + e) * (1.0 + e))

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

    def box(self) -> bool:
        """See ``types.Loss``."""
        return True

    def quadratic(self) -> bool:
        """See ``types.Loss``: the conjugate is an entropy."""
        return False

    def rounded(self, mu: float) -> Loss:
        """See ``types.Loss``: there is no corner to round."""
        return self


LOSSES = Registry(
    "loss",
    {
        "hinge": "streamsvm.losses:Hinge",
        "squared_hinge": "streamsvm.losses:SquaredHinge",
        "huber": "streamsvm.losses:Huber",
        "logistic": "streamsvm.losses:Logistic",
    },
)


def rounded(loss: Loss, mu: float) -> Loss:
    """Return the loss with its corner rounded over a width of 2 mu; itself where mu is 0 or there is no corner."""
    return loss.rounded(mu) if mu else loss


def threshold(loss: Loss) -> float:
    """Return the margin m from which on a row costs nothing, inf where it always does: a = 0 is optimal where m - 1 + conjugate'(0) >= 0."""
    return 1.0 - loss.conjugate_slope(0.0, 1.0)
