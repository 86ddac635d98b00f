"""Least squares: what ``losses.tubes`` says of losses of numbers, with q = 1 / (4 factor) and no epsilon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from streamsvm.config.fields import Bounds, Option
from streamsvm.tags import saved_as

if TYPE_CHECKING:
    from streamsvm.types import Loss


@saved_as("loss.squared")
class Squared(NamedTuple):
    """l(m) = factor m^2: least squares, with ||w||^2 / 2 ridge regression; a has no bound."""

    factor: Annotated[
        float,
        Option(
            "What the square is multiplied by; with 0.5, C is 1 / alpha of ridge regression.", bounds=Bounds(above=0)
        ),
    ] = 1.0

    def value(self, m: float) -> float:
        """See ``types.Loss``."""
        return self.factor * m * m

    def slope(self, m: float) -> float:
        """See ``types.Loss``."""
        return 2.0 * self.factor * m

    def second_derivative(self, m: float) -> float:
        """See ``types.Loss``: the same everywhere."""
        return 2.0 * self.factor

    def numeric(self) -> bool:
        """See ``types.Loss``: the target is a number."""
        return True

    def upper(self, C: float) -> float:
        """See ``types.Loss``: there is no bound."""
        return float("inf")

    def conjugate(self, a: float, C: float) -> float:
        """See ``types.Loss``: a + a^2 / (4 factor C)."""
        return a + 0.25 * a * a / (self.factor * C)

    def conjugate_slope(self, a: float, C: float) -> float:
        """See ``types.Loss``."""
        return 1.0 + 0.5 * a / (self.factor * C)

    def curvature(self, C: float) -> float:
        """See ``types.Loss``."""
        return 0.5 / (self.factor * C)

    def smooth(self) -> bool:
        """See ``types.Loss``."""
        return True

    def quadratic(self) -> bool:
        """See ``types.Loss``."""
        return True

    def rounded(self, mu: float) -> Loss:
        """See ``types.Loss``: there is no corner to round."""
        return self
