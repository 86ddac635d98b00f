"""What a kernel is."""

from __future__ import annotations

from typing import Protocol

from streamsvm.rows import Reach


class Kernel(Protocol):
    """A Mercer kernel k(x, z), or a similarity that is taken for one.

    Implementations are ``NamedTuple`` records of floats (``kernels.py``); ``similarity`` is also compiled into passes.
    """

    @property
    def gamma(self) -> float | None:
        """The width, as the kernel has it; None for a kernel without one."""
        ...

    def with_gamma(self, gamma: float) -> Kernel:
        """Return the same kernel of this width; itself where it has none."""
        ...

    def similarity(self, dot: float, sqx: float, sqz: float) -> float:
        """Return k(x, z) from x.z, ||x||^2 and ||z||^2; ``dot`` is |x - z|_1 where ``city_block`` says so."""
        ...

    def city_block(self) -> bool:
        """Whether the kernel is one of the city-block distance, and ignores norms."""
        ...

    def translation_invariant(self) -> bool:
        """Whether k(x, z) depends on x - z alone: then the columns may be centered, and are (``features.scaling``)."""
        ...

    def positive_semidefinite(self) -> bool:
        """Whether every Gram matrix is positive semidefinite with these parameters: only then is a dual value a bound."""
        ...

    def largest(self, reach: Reach) -> float:
        """Return a bound of |k(x, z)| for rows within ``reach``."""
        ...

    def value_error(self, reach: Reach, unit: float) -> float:
        """Return how far rounding can move a value made of norms and products, ``unit`` being the unit roundoff.

        Derived in ``compute/kernel_values/rounding.py``.
        """
        ...

    def difference_error(self, reach: Reach, unit: float) -> float:
        """Return the same of a value made of differences x_j - z_j; where products are all there is, of these."""
        ...
