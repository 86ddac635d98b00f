"""Margin losses as records of plain functions; the compiled passes call the same code.

For P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i), m_i = y_i w.x_i, C_i = C s_i, the dual is

    D(a) = sum_i (a_i - conjugate(a_i, C_i)) - 1/2 ||sum_i a_i y_i x_i||^2,     a_i >= 0,

0 <= a_i <= upper(C_i). Along one coordinate -D is a parabola (inside the box) with

    slope      m_i - 1 + conjugate_slope(a_i, C_i),        curvature      ||x_i||^2 + curvature(C_i).

A record needs a field: numba cannot pass an empty one. Where C_i = 0 the row has no say and none of the dual functions may be asked. References: Hsieh et al., ICML 2008,
(4)-(9); the Huber form: Chapelle, Neural Computation 2007, (2.4).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamsvm.registry import Registry
from streamsvm.tags import saved_as


@saved_as("loss.hinge")
class Hinge(NamedTuple):
    """l(m) = max(0, margin - m); 0 <= a <= C."""

    margin: float = 1.0

    def value(self, m: float) -> float:
        return max(0.0, self.margin - m)

    def slope(self, m: float) -> float:
        return -1.0 if m < self.margin else 0.0

    def second_derivative(self, m: float) -> float:
        return 0.0

    def upper(self, C: float) -> float:
        return C

    def conjugate(self, a: float, C: float) -> float:
        return (1.0 - self.margin) * a

    def conjugate_slope(self, a: float, C: float) -> float:
        return 1.0 - self.margin

    def curvature(self, C: float) -> float:
        return 0.0


@saved_as("loss.squared_hinge")
class SquaredHinge(NamedTuple):
    """l(m) = max(0, margin - m)^2; a >= 0."""

    margin: float = 1.0

    def value(self, m: float) -> float:
        z = max(0.0, self.margin - m)
        return z * z

    def slope(self, m: float) -> float:
        return -2.0 * max(0.0, self.margin - m)

    def second_derivative(self, m: float) -> float:
        return 2.0 if m < self.margin else 0.0

    def upper(self, C: float) -> float:
        return float("inf")

    def conjugate(self, a: float, C: float) -> float:
        return (1.0 - self.margin) * a + 0.25 * a * a / C

    def conjugate_slope(self, a: float, C: float) -> float:
        return 1.0 - self.margin + 0.5 * a / C

    def curvature(self, C: float) -> float:
        return 0.5 / C


@saved_as("loss.huber")
class Huber(NamedTuple):
    """The hinge with its corner rounded over a width 2 mu: 0 above 1 + mu, (1 + mu - m)^2 / (4 mu) within, 1 - m below.

    0 <= a <= C, and with l = max_b [b (1 - m) - c(b)], b = a / C: c(b) = mu (b^2 - b), so the conjugate is
    mu (a^2 / C - a): negative inside the box, which is what rounding adds to the value.
    """

    mu: float = 0.1

    def value(self, m: float) -> float:
        z = 1.0 + self.mu - m
        if z <= 0.0:
            return 0.0
        if z >= 2.0 * self.mu:
            return 1.0 - m
        return z * z / (4.0 * self.mu)

    def slope(self, m: float) -> float:
        z = 1.0 + self.mu - m
        return -min(max(z / (2.0 * self.mu), 0.0), 1.0)

    def second_derivative(self, m: float) -> float:
        z = 1.0 + self.mu - m
        return 0.5 / self.mu if 0.0 < z < 2.0 * self.mu else 0.0

    def upper(self, C: float) -> float:
        return C

    def conjugate(self, a: float, C: float) -> float:
        return self.mu * (a * a / C - a)

    def conjugate_slope(self, a: float, C: float) -> float:
        return self.mu * (2.0 * a / C - 1.0)

    def curvature(self, C: float) -> float:
        return 2.0 * self.mu / C


LOSSES = Registry(
    "loss",
    {
        "hinge": "streamsvm.losses:Hinge",
        "squared_hinge": "streamsvm.losses:SquaredHinge",
        "huber": "streamsvm.losses:Huber",
    },
)


def rounded(loss: Any, mu: float) -> Any:
    """The loss, its corner rounded over a width of 2 mu; itself where mu is 0."""
    return Huber(mu) if mu else loss
