"""What a loss is, and what a solver needs one to be."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Protocol


class Loss(Protocol):
    """A loss l(m) >= 0, convex, with the dual coordinate problem it gives rise to.

    Of one of two classes, y = +1 or -1, m = y f(x) is the margin, and l does not rise. Of a number t, m = f(x) - t is the residual,
    and l(0) = 0 is the least; then ``numeric`` says so.

    Implementations are ``NamedTuple`` records of floats (``losses``), whose functions of numbers are also compiled into
    passes (``compute.numba_bridge``); C is that of the row, C s_i > 0. What a solver needs of a loss it asks for by the
    properties ``smooth`` and ``quadratic`` and ``has_box`` (``LossRequirement``), never by its name.
    """

    def value(self, m: float) -> float:
        """Return l(m)."""
        ...

    def slope(self, m: float) -> float:
        """Return l'(m), of a margin 0 or less; at a corner the slope of one of its sides, or one in between."""
        ...

    def second_derivative(self, m: float) -> float:
        """Return the generalized second derivative l''(m) >= 0."""
        ...

    def numeric(self) -> bool:
        """Whether the target is a number, so that m is a residual; else it is one of two classes."""
        ...

    def upper(self, C: float) -> float:
        """Return the largest feasible dual variable a; inf where there is none."""
        ...

    def conjugate(self, a: float, C: float) -> float:
        """Return c, where a row adds a - c to the dual: c = a + max_m [-a m - C l(m)], for a between ``compute.targets.lower`` and ``upper``."""
        ...

    def conjugate_slope(self, a: float, C: float) -> float:
        """Return the derivative of the conjugate with respect to a; of a residual at a = 0, where it has a corner, that of a > 0."""
        ...

    def curvature(self, C: float) -> float:
        """Return the second derivative of the conjugate; the least of all a where it is not constant."""
        ...

    def smooth(self) -> bool:
        """Whether l has no corner; then, and only then, ``curvature`` is above 0."""
        ...

    def quadratic(self) -> bool:
        """Whether the conjugate is a parabola or a line in a, on each side of 0, so that a coordinate's optimum has a closed form."""
        ...

    def rounded(self, mu: float) -> Loss:
        """Return a smooth loss that differs from this one within ``mu`` > 0 of its corner; itself where there is none.

        Its slopes are convex combinations of slopes of this one: dual points read off it are feasible for this one.
        """
        ...


def has_box(loss: Loss) -> bool:
    """Whether l' is bounded, so that dual variables are."""
    return isfinite(loss.upper(1.0))


@dataclass(frozen=True, slots=True)
class LossRequirement:
    """What a solver needs a loss to be, by property; None: it does not matter."""

    smooth: bool | None = None
    """Whether l has no corner."""
    box: bool | None = None
    """Whether the dual variables have a finite upper bound."""
    quadratic: bool | None = None
    """Whether the conjugate is a parabola or a line."""
    numeric: bool | None = None
    """Whether the target is a number."""

    def refusal(self, loss: Loss) -> str | None:
        """Return why the loss will not do, as the end of a sentence that begins with the solver; None where it will."""
        asked = (
            (self.smooth, loss.smooth(), "without corners", "with a corner"),
            (self.box, has_box(loss), "whose slope is bounded", "whose slope is not bounded"),
            (self.quadratic, loss.quadratic(), "whose conjugate is a parabola", "whose conjugate is no parabola"),
            (self.numeric, loss.numeric(), "of a number", "of classes"),
        )
        for wanted, found, yes, no in asked:
            if wanted is not None and wanted != found:
                return f"needs a loss {yes if wanted else no}"
        return None
