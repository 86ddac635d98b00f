"""What of an objective is not a sum over rows: 1/2 w' G w + q.w, G diagonal; G = 1 and q = 0 is the problem itself.

The dual value that goes with it is sum_i (a_i - conjugate(a_i)) - 1/2 (v - q)' G^-1 (v - q), v = sum_i a_i y_i x_i.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.compute.passes.certificate import best_scale, dual_at
from streamsvm.rows import Float64
from streamsvm.tags import saved_as
from streamsvm.types import Loss


class DualValue(NamedTuple):
    """What a dual point is worth."""

    value: float
    """D of the point, scaled."""
    scale: float
    """By how much it is scaled."""


NO_DUAL_POINT = DualValue(-np.inf, 0.0)
"""What there is where none was looked at."""


@saved_as("newton.outer_terms")
class OuterTerms(NamedTuple):
    """See above."""

    diagonal: Float64
    """G (p,), 1 or more."""
    linear: Float64
    """q (p,)."""

    def value(self, w: Float64) -> float:
        """1/2 w' G w + q.w."""
        return 0.5 * float(w @ (self.diagonal * w)) + float(self.linear @ w)

    def gradient(self, w: Float64) -> Float64:
        """G w + q (p,)."""
        return self.diagonal * w + self.linear

    def along(self, w: Float64, step: Float64) -> tuple[float, float]:
        """First and second derivative at w along a step."""
        scaled = self.diagonal * step
        return float(w @ scaled) + float(self.linear @ step), float(step @ scaled)

    def dual(self, loss: Loss, linear: float, quadratic: float, v: Float64) -> DualValue:
        """The dual value of a_i with these sums (``compute.passes.certificate``), scaled for the best where q = 0.

        Elsewhere q and v are large and nearly the same: only their difference is squared.
        """
        if not self.linear.any():
            square = float(v @ (v / self.diagonal))
            scale = best_scale(loss, linear, quadratic, square)
            return DualValue(dual_at(scale, linear, quadratic, square), scale)
        left = v - self.linear
        return DualValue(linear - quadratic - 0.5 * float(left @ (left / self.diagonal)), 1.0)


def plain(components: int) -> OuterTerms:
    """Those of the problem itself: 1/2 ||w||^2."""
    return OuterTerms(np.ones(components), np.zeros(components))
