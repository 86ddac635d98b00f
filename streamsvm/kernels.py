"""Define the kernels, as records of plain functions that compiled passes call as well.

``similarity`` is a function of x.z, ||x||^2 and ||z||^2, so that a block of kernel values takes one matrix product and one pass over the
result. For a kernel of the city-block distance (``city_block``) the first argument is |x - z|_1, and the norms are ignored. ``types.Kernel``
documents what each function returns.

A record needs at least one field, since numba cannot pass an empty one. The formulas contain no float64 literals such as 2.0, so that
compiled passes over float32 compute in float32; for the same reason these passes replace the elementary functions below by compiled ones
(``compute/kernel_values/elementary.py``).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, NamedTuple

from streamsvm.class_tags import saved_as
from streamsvm.config.options import Bounds, Option
from streamsvm.errors import UsageError
from streamsvm.registry import Registry

if TYPE_CHECKING:
    from streamsvm.rows import Float64, Reach

Gamma = Annotated[
    float, Option("Width of the kernel, instead of --gamma.", bounds=Bounds(above=0), default="as --gamma says")
]
Coef0 = Annotated[float, Option("Constant added to the product.", bounds=Bounds())]


def exp(x: float) -> float:
    """Return e^x."""
    return math.exp(x)


def positive(x: float) -> float:
    """Return max(x, 0)."""
    return max(x, 0.0)


def power(x: float, degree: float) -> float:
    """Return x^degree for a whole number ``degree``."""
    return float(x**degree)


def tanh(x: float) -> float:
    """Return the hyperbolic tangent of x."""
    return math.tanh(x)


def expm1_capped(x: float) -> float:
    """Return min(e^x - 1, 1): a bound of the relative error of exp if its exponent has the error x."""
    return math.expm1(x) if x < 0.69 else 1.0


def power_or_inf(x: float, degree: float) -> float:
    """Return x^degree for x >= 0, and infinity if it overflows a float64."""
    try:
        return float(x**degree)
    except OverflowError:
        return math.inf


VALUE_ROUNDOFFS = 8.0
"""Error of a kernel value of at most 1, in unit roundoffs: that of exp or tanh, of rounding gamma to float32, and of the products."""


@saved_as("kernel.rbf")
class RBF(NamedTuple):
    """exp(-gamma ||x - z||^2). The squared distance is clipped at 0, since rounding can make it negative."""

    gamma: Gamma = 1.0

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        return exp(-self.gamma * positive((sqx - dot) + (sqz - dot)))

    def city_block(self) -> bool:
        return False

    def translation_invariant(self) -> bool:
        return True

    def positive_semidefinite(self) -> bool:
        return True

    def largest(self, reach: Reach) -> float:
        return 1.0

    def value_error(self, reach: Reach, unit: float) -> float:
        return expm1_capped(self.gamma * (2 * reach.entries + 14) * unit * reach.square) + VALUE_ROUNDOFFS * unit

    def difference_error(self, reach: Reach, unit: float) -> float:
        return ((reach.entries + 3) / math.e + VALUE_ROUNDOFFS) * unit

    def with_gamma(self, gamma: float) -> RBF:
        return self._replace(gamma=gamma)


@saved_as("kernel.laplacian")
class Laplacian(NamedTuple):
    """exp(-gamma |x - z|_1)."""

    gamma: Gamma = 1.0

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        return exp(-self.gamma * positive(dot))

    def city_block(self) -> bool:
        return True

    def translation_invariant(self) -> bool:
        return True

    def positive_semidefinite(self) -> bool:
        return True

    def largest(self, reach: Reach) -> float:
        return 1.0

    def value_error(self, reach: Reach, unit: float) -> float:
        if reach.dense:
            return self.difference_error(reach, unit)
        longest = math.sqrt(reach.entries) * math.sqrt(reach.square)
        return expm1_capped(self.gamma * 4 * (reach.entries + 2) * unit * longest) + VALUE_ROUNDOFFS * unit

    def difference_error(self, reach: Reach, unit: float) -> float:
        return ((reach.entries + 3) / math.e + VALUE_ROUNDOFFS) * unit

    def with_gamma(self, gamma: float) -> Laplacian:
        return self._replace(gamma=gamma)


@saved_as("kernel.polynomial")
class Polynomial(NamedTuple):
    """(gamma x.z + coef0)^degree for a whole number degree; positive semidefinite if gamma >= 0 and coef0 >= 0."""

    gamma: Gamma = 1.0
    coef0: Coef0 = 1.0
    degree: Annotated[float, Option("The degree, a whole number.", bounds=Bounds(least=1))] = 3.0

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        return power(self.gamma * dot + self.coef0, self.degree)

    def city_block(self) -> bool:
        return False

    def translation_invariant(self) -> bool:
        return False

    def positive_semidefinite(self) -> bool:
        """Return gamma >= 0 and coef0 >= 0: then the kernel is a sum of products of positive semidefinite kernels."""
        return self.gamma >= 0.0 and self.coef0 >= 0.0

    def largest(self, reach: Reach) -> float:
        return power_or_inf(abs(self.gamma) * reach.square + abs(self.coef0), self.degree)

    def value_error(self, reach: Reach, unit: float) -> float:
        size = abs(self.gamma) * reach.square + abs(self.coef0)
        off = (reach.entries + 5) * size * unit
        return self.degree * power_or_inf(size + off, self.degree - 1.0) * off + VALUE_ROUNDOFFS * unit * power_or_inf(
            size, self.degree
        )

    def difference_error(self, reach: Reach, unit: float) -> float:
        return self.value_error(reach, unit)

    def with_gamma(self, gamma: float) -> Polynomial:
        return self._replace(gamma=gamma)


@saved_as("kernel.sigmoid")
class Sigmoid(NamedTuple):
    """tanh(gamma x.z + coef0). The Gram matrix can be indefinite, so that it is not a Mercer kernel for all parameters."""

    gamma: Gamma = 1.0
    coef0: Coef0 = 0.0

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        return tanh(self.gamma * dot + self.coef0)

    def city_block(self) -> bool:
        return False

    def translation_invariant(self) -> bool:
        return False

    def positive_semidefinite(self) -> bool:
        return False

    def largest(self, reach: Reach) -> float:
        return 1.0

    def value_error(self, reach: Reach, unit: float) -> float:
        size = abs(self.gamma) * reach.square + abs(self.coef0)
        return min((reach.entries + 5) * size * unit, 2.0) + VALUE_ROUNDOFFS * unit

    def difference_error(self, reach: Reach, unit: float) -> float:
        return self.value_error(reach, unit)

    def with_gamma(self, gamma: float) -> Sigmoid:
        return self._replace(gamma=gamma)


@saved_as("kernel.linear")
class Linear(NamedTuple):
    """scale x.z."""

    scale: Annotated[float, Option("Factor of the product.", bounds=Bounds(above=0))] = 1.0

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        return self.scale * dot

    def city_block(self) -> bool:
        return False

    def translation_invariant(self) -> bool:
        return False

    def positive_semidefinite(self) -> bool:
        return self.scale >= 0.0

    def largest(self, reach: Reach) -> float:
        return abs(self.scale) * reach.square

    def value_error(self, reach: Reach, unit: float) -> float:
        return (reach.entries + 5) * unit * abs(self.scale) * reach.square

    def difference_error(self, reach: Reach, unit: float) -> float:
        return self.value_error(reach, unit)

    def with_gamma(self, gamma: float) -> Linear:
        return self

    @property
    def gamma(self) -> None:
        """None: a linear kernel has no width."""
        return None


KERNELS = Registry(
    "kernel",
    {
        "rbf": "streamsvm.kernels:RBF",
        "laplacian": "streamsvm.kernels:Laplacian",
        "polynomial": "streamsvm.kernels:Polynomial",
        "sigmoid": "streamsvm.kernels:Sigmoid",
        "linear": "streamsvm.kernels:Linear",
    },
)


def choose_gamma(rule: str | float, mean: Float64, variance: Float64, *, city_block: bool = False) -> float:
    """Return gamma, given as a number or by a rule, for columns with this mean and variance after the map that precedes
    the kernel.

    - ``scale``: 1 / (d v), with v the variance of all entries together, as in LIBSVM and scikit-learn (except that
      columns far from 0 have been centered). For a kernel of the city-block distance: 1 / d.
    - ``mean-distance``: 1 / (mean squared distance of random pairs). For a kernel of the city-block distance: 1 / sum_j
      sqrt(2 var_j), where the sum is an upper bound of the mean distance.

    For independent random rows x, x', E ||x - x'||^2 = 2 sum_j var_j exactly, so that the mean squared distance of random
    pairs, which Frandi et al. estimate from a sample, is known without a pass over the data. Raises UsageError.
    """
    if not isinstance(rule, str):
        return _check_positive(float(rule))
    if rule == "scale":
        return 1.0 / len(mean) if city_block else _invert(len(mean) * (variance.mean() + mean.var()))
    if rule == "mean-distance":
        return _invert(((2.0 * variance) ** 0.5).sum() if city_block else 2.0 * variance.sum())
    try:
        return _check_positive(float(rule))
    except ValueError as error:
        raise UsageError(f"gamma '{rule}' is not known", hint="scale, mean-distance or a positive number") from error


def _check_positive(gamma: float) -> float:
    if not 0.0 < gamma < float("inf"):
        raise UsageError(f"gamma must be a positive number, not {gamma}", hint="or 'scale', or 'mean-distance'")
    return gamma


def _invert(width: float) -> float:
    """Return 1 / width; 1 if the width is 0 because all rows are equal."""
    return 1.0 / float(width) if width > 0.0 else 1.0
