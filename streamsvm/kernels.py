"""Mercer kernels as records of plain functions; the compiled passes call the same code.

``similarity`` is a function of x.z, ||x||^2 and ||z||^2, so that a block of kernel values is one matrix product and one
pass over the result. A kernel of the city-block distance is given |x - z|_1 in place of the product and ignores the
norms; ``city_block`` says which it is. ``types.Kernel`` says what each function is to be.

A record needs a field: numba cannot pass an empty one. The arithmetic keeps the type it is given (no literal 2.0), so
that in a pass over float32 it stays in float32; for the same reason the functions below are replaced there by compiled
ones (``compute/kernel_values/elementary.py``).
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from streamsvm.config.fields import Bounds, Option
from streamsvm.registry import Registry
from streamsvm.tags import saved_as

Gamma = Annotated[
    float, Option("Width of the kernel, instead of --gamma.", bounds=Bounds(above=0), default="as --gamma says")
]
Coef0 = Annotated[float, Option("What is added to the product.", bounds=Bounds())]


def exp(x: float) -> float:
    """e^x."""
    return math.exp(x)


def positive(x: float) -> float:
    """max(x, 0)."""
    return max(x, 0.0)


def power(x: float, degree: float) -> float:
    """``degree`` is a whole number, as ``polynomial`` kernels have it."""
    return float(x**degree)


def tanh(x: float) -> float:
    """The hyperbolic tangent of x."""
    return math.tanh(x)


@saved_as("kernel.rbf")
class RBF(NamedTuple):
    """exp(-gamma ||x - z||^2). The distance is clipped: by rounding it can come out below 0."""

    gamma: Gamma = 1.0

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        """See ``types.Kernel``."""
        return exp(-self.gamma * positive((sqx - dot) + (sqz - dot)))

    def city_block(self) -> bool:
        """See ``types.Kernel``."""
        return False

    def translation_invariant(self) -> bool:
        """See ``types.Kernel``."""
        return True

    def positive_semidefinite(self) -> bool:
        """See ``types.Kernel``."""
        return True

    def with_gamma(self, gamma: float) -> RBF:
        """See ``types.Kernel``."""
        return self._replace(gamma=gamma)


@saved_as("kernel.laplacian")
class Laplacian(NamedTuple):
    """exp(-gamma |x - z|_1)."""

    gamma: Gamma = 1.0

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        """See ``types.Kernel``."""
        return exp(-self.gamma * positive(dot))

    def city_block(self) -> bool:
        """See ``types.Kernel``."""
        return True

    def translation_invariant(self) -> bool:
        """See ``types.Kernel``."""
        return True

    def positive_semidefinite(self) -> bool:
        """See ``types.Kernel``."""
        return True

    def with_gamma(self, gamma: float) -> Laplacian:
        """See ``types.Kernel``."""
        return self._replace(gamma=gamma)


@saved_as("kernel.polynomial")
class Polynomial(NamedTuple):
    """(gamma x.z + coef0)^degree, degree a whole number; positive semidefinite where coef0 >= 0."""

    gamma: Gamma = 1.0
    coef0: Coef0 = 1.0
    degree: Annotated[float, Option("The degree, a whole number.", bounds=Bounds(least=1))] = 3.0

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        """See ``types.Kernel``."""
        return power(self.gamma * dot + self.coef0, self.degree)

    def city_block(self) -> bool:
        """See ``types.Kernel``."""
        return False

    def translation_invariant(self) -> bool:
        """See ``types.Kernel``."""
        return False

    def positive_semidefinite(self) -> bool:
        """See ``types.Kernel``: a sum of products of positive semidefinite kernels."""
        return self.gamma >= 0.0 and self.coef0 >= 0.0

    def with_gamma(self, gamma: float) -> Polynomial:
        """See ``types.Kernel``."""
        return self._replace(gamma=gamma)


@saved_as("kernel.sigmoid")
class Sigmoid(NamedTuple):
    """tanh(gamma x.z + coef0). Not a Mercer kernel for every choice: its Gram matrix can be indefinite."""

    gamma: Gamma = 1.0
    coef0: Coef0 = 0.0

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        """See ``types.Kernel``."""
        return tanh(self.gamma * dot + self.coef0)

    def city_block(self) -> bool:
        """See ``types.Kernel``."""
        return False

    def translation_invariant(self) -> bool:
        """See ``types.Kernel``."""
        return False

    def positive_semidefinite(self) -> bool:
        """See ``types.Kernel``."""
        return False

    def with_gamma(self, gamma: float) -> Sigmoid:
        """See ``types.Kernel``."""
        return self._replace(gamma=gamma)


@saved_as("kernel.linear")
class Linear(NamedTuple):
    """scale x.z."""

    scale: Annotated[float, Option("Factor of the product.", bounds=Bounds(above=0))] = 1.0

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        """See ``types.Kernel``."""
        return self.scale * dot

    def city_block(self) -> bool:
        """See ``types.Kernel``."""
        return False

    def translation_invariant(self) -> bool:
        """See ``types.Kernel``."""
        return False

    def positive_semidefinite(self) -> bool:
        """See ``types.Kernel``."""
        return self.scale >= 0.0

    def with_gamma(self, gamma: float) -> Linear:
        """See ``types.Kernel``."""
        return self

    @property
    def gamma(self) -> None:
        """See ``types.Kernel``: it has no width."""
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
