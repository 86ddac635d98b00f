"""Loss functions with their conjugates: records of plain functions, which the compiled passes call as well.

For P(w) = 1/2 ||w||^2 + sum_i C_i l(m_i), C_i = C s_i, the dual is

    D(a) = sum_i (a_i - conjugate(a_i, C_i) + a_i o_i) - 1/2 ||sum_i a_i z_i x_i||^2,     lower_i <= a_i <= upper(C_i),

with conjugate(a, C) = a + max_m [-a m - C l(m)], so that C l(m) >= a - conjugate(a, C) - a m, and equality at
a = -C l'(m). The target decides what m, z and o are:

    classification, y = +1 or -1:   m_i = y_i w.x_i, the margin,       z_i = y_i,   o_i = 0
    regression on t (``numeric``):  m_i = w.x_i - t_i, the residual,   z_i = 1,     o_i = t_i

For classification l does not rise with m, and 0 <= a. For regression it rises on both sides and a has either sign: one variable a row
(Ho and Lin, JMLR 13, 2012), where textbooks have two of which one is 0. Where the conjugate is a parabola, or one on each side of
0, -D along one coordinate has

    slope      m_i - 1 + conjugate_slope(a_i, C_i),        curvature      ||x_i||^2 + curvature(C_i).

**Hinges** of margin k are the hinge of margin 1 scaled: the loss at m is k (squared hinge: k^2) times that of margin 1 at m / k. Hence
the optimal w is k times as large, and widths and radii that are measured in margins are in units of ``threshold``.
References: Hsieh et al., ICML 2008, (4)-(9); the Huber form: Chapelle, Neural Computation 2007, (2.4).

**Regression losses** are 0 at m = 0. For one that is even in m the conjugate is even in a but for the term that all conjugates here begin with:

    conjugate(a, C) = a + epsilon |a| + q a^2 / C,      -upper(C) <= a <= upper(C),

q = 0 for the epsilon-insensitive loss, 1/4 for its square; 1 / (4 factor) and epsilon = 0 for least squares. Along one variable -D has
a kink at a = 0, and its minimum is a soft threshold (Ho and Lin, (20) - (24)). ``conjugate_slope`` at 0 is that of the right side.
C is that of LIBLINEAR (-s 11, 12, 13) and scikit-learn's ``LinearSVR``; ridge regression with penalty alpha ||w||^2 has C = 1 / (2 alpha).

The **pinball loss** is a line of another slope on each side of 0, with conjugate(a, C) = a and -(1 - q) C <= a <= q C. The expected loss is
least for a prediction that is the quantile q of t, given x (Koenker and Bassett, Econometrica 46, 1978).

The conjugate of the **logistic loss** is an entropy (Yu, Huang and Lin, Machine Learning 85, 2011, (3)).

``types.Loss`` documents what each function returns; the contract suites test every registered loss against it. A smooth loss may have
``corners``, the arguments, ascending, at which l'' jumps: then the optimum can be enclosed (``streamsvm.proofs.enclosure``). Between them l'' is constant
if ``quadratic``; else there are none, and l'' is even and falls with |m|. A row with C_i = 0 does
not count, and none of the dual functions may be called for it. A record needs at least one field, since numba cannot pass an empty one.
A new loss is a record and a line in ``LOSSES``. A target of another kind also needs ``types.Layout.task`` (what a store holds), a kind of problem, and
``compute.targets`` (what passes make of it).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, NamedTuple

from streamsvm.class_tags import saved_as
from streamsvm.config.options import Bounds, Option
from streamsvm.registry import Registry

if TYPE_CHECKING:
    from streamsvm.types import Loss

Margin = Annotated[float, Option("Rows with at least this margin have no loss.", bounds=Bounds(above=0))]
Epsilon = Annotated[float, Option("Largest error without a loss, in units of the target.", bounds=Bounds(least=0))]
Quantile = Annotated[
    float,
    Option("Share of targets that should lie below the prediction; 0.5: the median.", bounds=Bounds(above=0, below=1)),
]
MIN_THRESHOLD = 1e-3
"""Least ``threshold`` of a regression loss: used where every residual other than 0 has a cost."""


@saved_as("loss.hinge")
class Hinge(NamedTuple):
    """l(m) = max(0, margin - m); 0 <= a <= C."""

    margin: Margin = 1.0

    def value(self, m: float) -> float:
        return max(0.0, self.margin - m)

    def slope(self, m: float) -> float:
        """Return the slope; at the kink that of its right side, 0."""
        return -1.0 if m < self.margin else 0.0

    def second_derivative(self, m: float) -> float:
        return 0.0

    def numeric(self) -> bool:
        return False

    def upper(self, C: float) -> float:
        return C

    def conjugate(self, a: float, C: float) -> float:
        """Return (1 - margin) a."""
        return (1.0 - self.margin) * a

    def conjugate_slope(self, a: float, C: float) -> float:
        return 1.0 - self.margin

    def curvature(self, C: float) -> float:
        return 0.0

    def smooth(self) -> bool:
        return False

    def quadratic(self) -> bool:
        return True

    def round_corners(self, mu: float) -> Loss:
        return Huber(mu, self.margin)


@saved_as("loss.squared_hinge")
class SquaredHinge(NamedTuple):
    """l(m) = max(0, margin - m)^2; a >= 0."""

    margin: Margin = 1.0

    def value(self, m: float) -> float:
        z = max(0.0, self.margin - m)
        return z * z

    def slope(self, m: float) -> float:
        return -2.0 * max(0.0, self.margin - m)

    def second_derivative(self, m: float) -> float:
        """Return the second derivative; at the margin, where there is none, that of the right side."""
        return 2.0 if m < self.margin else 0.0

    def corners(self) -> tuple[float, ...]:
        return (self.margin,)

    def numeric(self) -> bool:
        return False

    def upper(self, C: float) -> float:
        return float("inf")

    def conjugate(self, a: float, C: float) -> float:
        """Return (1 - margin) a + a^2 / (4 C)."""
        return (1.0 - self.margin) * a + 0.25 * a * a / C

    def conjugate_slope(self, a: float, C: float) -> float:
        return 1.0 - self.margin + 0.5 * a / C

    def curvature(self, C: float) -> float:
        return 0.5 / C

    def smooth(self) -> bool:
        return True

    def quadratic(self) -> bool:
        return True

    def round_corners(self, mu: float) -> Loss:
        return self


@saved_as("loss.huber")
class Huber(NamedTuple):
    """The hinge with its kink smoothed over a width of 2 mu.

    With k the margin: 0 above k + mu, (k + mu - m)^2 / (4 mu) within, k - m below k - mu. 0 <= a <= C, and with
    l = max_b [b (k - m) - c(b)], b = a / C: c(b) = mu (b^2 - b), so the conjugate is (1 - k) a + mu (a^2 / C - a): less
    than the hinge's inside the box, which is what rounding adds to the value.

    The smoothed hinge of lectures, phi_mu(m) = max_{0 <= b <= 1} [b (1 - m) - mu/2 b^2], begins at m = 1 and lies below the
    hinge: it is this one at m + mu/2 with half the width, Huber(mu=mu/2, margin=1 - mu/2).
    """

    mu: Annotated[float, Option("Half the width over which the kink is smoothed.", bounds=Bounds(above=0))] = 0.1
    margin: Margin = 1.0

    def value(self, m: float) -> float:
        z = self.margin + self.mu - m
        if z <= 0.0:
            return 0.0
        if z >= 2.0 * self.mu:
            return self.margin - m
        return z * z / (4.0 * self.mu)

    def slope(self, m: float) -> float:
        z = self.margin + self.mu - m
        return -min(max(z / (2.0 * self.mu), 0.0), 1.0)

    def second_derivative(self, m: float) -> float:
        z = self.margin + self.mu - m
        return 0.5 / self.mu if 0.0 < z < 2.0 * self.mu else 0.0

    def corners(self) -> tuple[float, ...]:
        return (self.margin - self.mu, self.margin + self.mu)

    def numeric(self) -> bool:
        return False

    def upper(self, C: float) -> float:
        return C

    def conjugate(self, a: float, C: float) -> float:
        return (1.0 - self.margin) * a + self.mu * (a * a / C - a)

    def conjugate_slope(self, a: float, C: float) -> float:
        return (1.0 - self.margin) + self.mu * (2.0 * a / C - 1.0)

    def curvature(self, C: float) -> float:
        return 2.0 * self.mu / C

    def smooth(self) -> bool:
        return True

    def quadratic(self) -> bool:
        return True

    def round_corners(self, mu: float) -> Loss:
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
        """Return the loss, computed so that no exponential overflows, whatever the sign of m."""
        z = self.sharpness * m
        if z > 0.0:
            return math.log1p(math.exp(-z)) / self.sharpness
        return math.log1p(math.exp(z)) / self.sharpness - m

    def slope(self, m: float) -> float:
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
        e = math.exp(-abs(self.sharpness * m))
        return self.sharpness * e / ((1.0 + e) * (1.0 + e))

    def corners(self) -> tuple[float, ...]:
        return ()

    def numeric(self) -> bool:
        return False

    def upper(self, C: float) -> float:
        return C

    def conjugate(self, a: float, C: float) -> float:
        """Return the conjugate, where 0 log 0 counts as 0."""
        b, entropy = a / C, 0.0
        if 0.0 < b < 1.0:
            entropy = b * math.log(b) + (1.0 - b) * math.log1p(-b)
        return a + C / self.sharpness * entropy

    def conjugate_slope(self, a: float, C: float) -> float:
        """Return the derivative of the conjugate, which is infinite at both ends of the box."""
        if a <= 0.0:
            return -math.inf
        if a >= C:
            return math.inf
        return 1.0 + math.log(a / (C - a)) / self.sharpness

    def curvature(self, C: float) -> float:
        """Return the smallest curvature over all a, which lies in the middle of the box."""
        return 4.0 / (self.sharpness * C)

    def smooth(self) -> bool:
        return True

    def quadratic(self) -> bool:
        return False

    def round_corners(self, mu: float) -> Loss:
        return self


@saved_as("loss.epsilon_insensitive")
class EpsilonInsensitive(NamedTuple):
    """l(m) = max(0, |m| - epsilon); -C <= a <= C."""

    epsilon: Epsilon = 0.1

    def value(self, m: float) -> float:
        return max(0.0, abs(m) - self.epsilon)

    def slope(self, m: float) -> float:
        """Return the slope; at both kinks it is 0."""
        if m > self.epsilon:
            return 1.0
        return -1.0 if m < -self.epsilon else 0.0

    def second_derivative(self, m: float) -> float:
        return 0.0

    def numeric(self) -> bool:
        return True

    def upper(self, C: float) -> float:
        return C

    def conjugate(self, a: float, C: float) -> float:
        """Return a + epsilon |a|."""
        return a + self.epsilon * abs(a)

    def conjugate_slope(self, a: float, C: float) -> float:
        return 1.0 - self.epsilon if a < 0.0 else 1.0 + self.epsilon

    def curvature(self, C: float) -> float:
        return 0.0

    def smooth(self) -> bool:
        return False

    def quadratic(self) -> bool:
        return True

    def round_corners(self, mu: float) -> Loss:
        """Return the loss with each kink smoothed over a width of 2 mu, or less if it is nearer to 0 than mu."""
        return RoundedEpsilon(max(0.0, self.epsilon - mu), self.epsilon + mu)


@saved_as("loss.rounded_epsilon")
class RoundedEpsilon(NamedTuple):
    """0 up to |m| = inner, a parabola from there to |m| = outer, where its slope reaches 1, then a line; -C <= a <= C.

    conjugate(a, C) = a + inner |a| + (outer - inner) / 2 a^2 / C. With kinks at epsilon and inner + outer = 2 epsilon it is the
    epsilon-insensitive loss beyond outer; where inner is 0 it may lie below by outer / 2 - epsilon.
    """

    inner: Annotated[float, Option("Largest error without a loss.", bounds=Bounds(least=0))] = 0.0
    outer: Annotated[float, Option("Error from which the loss is linear.", bounds=Bounds(above=0))] = 0.2

    def value(self, m: float) -> float:
        z = max(0.0, abs(m) - self.inner)
        width = self.outer - self.inner
        return z - 0.5 * width if z > width else 0.5 * z * z / width

    def slope(self, m: float) -> float:
        z = min(max(0.0, abs(m) - self.inner) / (self.outer - self.inner), 1.0)
        return z if m > 0.0 else -z

    def second_derivative(self, m: float) -> float:
        return 1.0 / (self.outer - self.inner) if self.inner < abs(m) < self.outer else 0.0

    def corners(self) -> tuple[float, ...]:
        return (-self.outer, -self.inner, self.inner, self.outer)

    def numeric(self) -> bool:
        return True

    def upper(self, C: float) -> float:
        return C

    def conjugate(self, a: float, C: float) -> float:
        return a + self.inner * abs(a) + 0.5 * (self.outer - self.inner) * a * a / C

    def conjugate_slope(self, a: float, C: float) -> float:
        corner = -self.inner if a < 0.0 else self.inner
        return 1.0 + corner + (self.outer - self.inner) * a / C

    def curvature(self, C: float) -> float:
        return (self.outer - self.inner) / C

    def smooth(self) -> bool:
        return True

    def quadratic(self) -> bool:
        return True

    def round_corners(self, mu: float) -> Loss:
        return self


@saved_as("loss.squared_epsilon_insensitive")
class SquaredEpsilonInsensitive(NamedTuple):
    """l(m) = max(0, |m| - epsilon)^2; a has no bound."""

    epsilon: Epsilon = 0.1

    def value(self, m: float) -> float:
        z = max(0.0, abs(m) - self.epsilon)
        return z * z

    def slope(self, m: float) -> float:
        z = 2.0 * max(0.0, abs(m) - self.epsilon)
        return z if m > 0.0 else -z

    def second_derivative(self, m: float) -> float:
        return 2.0 if abs(m) > self.epsilon else 0.0

    def corners(self) -> tuple[float, ...]:
        return (-self.epsilon, self.epsilon)

    def numeric(self) -> bool:
        return True

    def upper(self, C: float) -> float:
        return float("inf")

    def conjugate(self, a: float, C: float) -> float:
        """Return a + epsilon |a| + a^2 / (4 C)."""
        return a + self.epsilon * abs(a) + 0.25 * a * a / C

    def conjugate_slope(self, a: float, C: float) -> float:
        corner = -self.epsilon if a < 0.0 else self.epsilon
        return 1.0 + corner + 0.5 * a / C

    def curvature(self, C: float) -> float:
        return 0.5 / C

    def smooth(self) -> bool:
        return True

    def quadratic(self) -> bool:
        return True

    def round_corners(self, mu: float) -> Loss:
        return self


@saved_as("loss.squared")
class Squared(NamedTuple):
    """l(m) = factor m^2: least squares, with ||w||^2 / 2 ridge regression; a has no bound."""

    factor: Annotated[
        float,
        Option("Factor of the square; with 0.5, C is 1 / alpha of ridge regression.", bounds=Bounds(above=0)),
    ] = 1.0

    def value(self, m: float) -> float:
        return self.factor * m * m

    def slope(self, m: float) -> float:
        return 2.0 * self.factor * m

    def second_derivative(self, m: float) -> float:
        return 2.0 * self.factor

    def corners(self) -> tuple[float, ...]:
        return ()

    def numeric(self) -> bool:
        return True

    def upper(self, C: float) -> float:
        return float("inf")

    def conjugate(self, a: float, C: float) -> float:
        """Return a + a^2 / (4 factor C)."""
        return a + 0.25 * a * a / (self.factor * C)

    def conjugate_slope(self, a: float, C: float) -> float:
        return 1.0 + 0.5 * a / (self.factor * C)

    def curvature(self, C: float) -> float:
        return 0.5 / (self.factor * C)

    def smooth(self) -> bool:
        return True

    def quadratic(self) -> bool:
        return True

    def round_corners(self, mu: float) -> Loss:
        return self


@saved_as("loss.pinball")
class Pinball(NamedTuple):
    """l(m) = max((1 - q) m, -q m); with q = 0.5 half the epsilon-insensitive loss of epsilon 0."""

    quantile: Quantile = 0.5

    def value(self, m: float) -> float:
        return max((1.0 - self.quantile) * m, -self.quantile * m)

    def slope(self, m: float) -> float:
        """Return the slope; at the kink it is 0."""
        if m > 0.0:
            return 1.0 - self.quantile
        return -self.quantile if m < 0.0 else 0.0

    def second_derivative(self, m: float) -> float:
        return 0.0

    def numeric(self) -> bool:
        return True

    def upper(self, C: float) -> float:
        return self.quantile * C

    def conjugate(self, a: float, C: float) -> float:
        """Return a."""
        return a

    def conjugate_slope(self, a: float, C: float) -> float:
        return 1.0

    def curvature(self, C: float) -> float:
        return 0.0

    def smooth(self) -> bool:
        return False

    def quadratic(self) -> bool:
        return True

    def round_corners(self, mu: float) -> Loss:
        return RoundedPinball(mu, self.quantile)


@saved_as("loss.rounded_pinball")
class RoundedPinball(NamedTuple):
    """The pinball loss with a parabola between -mu and mu, -q m + (m + mu)^2 / (4 mu).

    With z = q - a / C its conjugate is a + C mu (z^2 - z): less than a, which is what rounding adds to the value.
    """

    mu: Annotated[float, Option("Half the width over which the kink is smoothed.", bounds=Bounds(above=0))] = 0.1
    quantile: Quantile = 0.5

    def value(self, m: float) -> float:
        if abs(m) >= self.mu:
            return max((1.0 - self.quantile) * m, -self.quantile * m)
        return (m + self.mu) * (m + self.mu) / (4.0 * self.mu) - self.quantile * m

    def slope(self, m: float) -> float:
        return min(max((m + self.mu) / (2.0 * self.mu), 0.0), 1.0) - self.quantile

    def second_derivative(self, m: float) -> float:
        return 0.5 / self.mu if abs(m) < self.mu else 0.0

    def corners(self) -> tuple[float, ...]:
        return (-self.mu, self.mu)

    def numeric(self) -> bool:
        return True

    def upper(self, C: float) -> float:
        return self.quantile * C

    def conjugate(self, a: float, C: float) -> float:
        z = self.quantile - a / C
        return a + C * self.mu * (z * z - z)

    def conjugate_slope(self, a: float, C: float) -> float:
        return 1.0 + self.mu * (1.0 - 2.0 * self.quantile + 2.0 * a / C)

    def curvature(self, C: float) -> float:
        return 2.0 * self.mu / C

    def smooth(self) -> bool:
        return True

    def quadratic(self) -> bool:
        return True

    def round_corners(self, mu: float) -> Loss:
        return self


LOSSES = Registry(
    "loss",
    {
        "hinge": "streamsvm.losses:Hinge",
        "squared_hinge": "streamsvm.losses:SquaredHinge",
        "huber": "streamsvm.losses:Huber",
        "logistic": "streamsvm.losses:Logistic",
        "epsilon_insensitive": "streamsvm.losses:EpsilonInsensitive",
        "squared_epsilon_insensitive": "streamsvm.losses:SquaredEpsilonInsensitive",
        "squared": "streamsvm.losses:Squared",
        "pinball": "streamsvm.losses:Pinball",
    },
)


def round_corners(loss: Loss, mu: float) -> Loss:
    """Return the loss with its kink smoothed over a width of 2 mu; the loss itself if mu is 0 or it has no kink."""
    return loss.round_corners(mu) if mu else loss


def threshold(loss: Loss) -> float:
    """Return the margin m above which a row has no loss (a = 0 is optimal if m - 1 + conjugate'(0) >= 0); inf if it always has one.

    For regression: the largest residual without a loss, at least ``MIN_THRESHOLD``, since targets have no natural unit.
    """
    if loss.numeric():
        return max(MIN_THRESHOLD, math.fabs(1.0 - loss.conjugate_slope(0.0, 1.0)))
    return 1.0 - loss.conjugate_slope(0.0, 1.0)
