"""Bounds of the secants of the slope of a loss, from which an enclosure of the optimum is computed (``streamsvm.proofs.enclosure``).

For an argument m and a reach e, the secants are (l'(m') - l'(m)) / (m' - m) over all m' other than m with |m' - m| <= e. They are the
means of the second derivative between m and m'. Where l'' is constant between corners (``Loss.quadratic``), a secant
is a monotone function of m' on each piece, so that the extremes are among the two ends of the reach and the corners
within it. Otherwise l'' is even and falls with |m|, and lies between its values nearest to 0 and farthest from it.
"""

from __future__ import annotations

from typing import Any

import streamsvm.compute.numba_bridge  # noqa: F401  (lets compiled functions call the methods of losses)
from streamsvm.compute.compiled import compiled
from streamsvm.rows import Float64

UNIT = 2.0**-53
"""Unit roundoff of float64."""
ROUNDINGS = 16
"""Roundings of a slope and its argument, at most, in units of the terms of which the argument consists."""
RELATIVE, TINY = 1e-12, 1e-300
"""Bounds of the relative error of a second derivative with an exponential whose argument is below 745, and of its
underflow."""


@compiled()
def secants_pass(m: Float64, reach: Float64, loss: Any, corners: Float64, low: Float64, high: Float64) -> None:
    """Bound the secants of each row. Given: m (n,), reach (n,) above 0, loss, corners (k,) of l'', ascending.

    Changed: low, high (n,), 0 <= low <= every secant <= high.
    """
    most = 1.0 / loss.curvature(1.0)
    for i in range(m.size):
        x, e = m[i], reach[i]
        if not loss.quadratic():
            low[i] = max(0.0, loss.second_derivative(abs(x) + e) * (1.0 - RELATIVE) - TINY)
            high[i] = min(most, loss.second_derivative(max(abs(x) - e, 0.0)) * (1.0 + RELATIVE) + TINY)
            continue
        least, largest, crosses = most, 0.0, False
        slope = loss.slope(x)
        for k in range(corners.size):
            size = abs(x) + e + abs(corners[k])
            if abs(corners[k] - x) <= e + ROUNDINGS * UNIT * size:
                crosses = True
        if not crosses:
            low[i] = high[i] = loss.second_derivative(x)
            continue
        for k in range(corners.size + 2):
            step = e if k == 0 else -e if k == 1 else corners[k - 2] - x
            size = abs(x) + abs(step) + max(abs(corners[0]), abs(corners[corners.size - 1]))
            if step == 0.0 or abs(step) > e + ROUNDINGS * UNIT * size:
                continue
            secant = (loss.slope(x + step) - slope) / step
            error = ROUNDINGS * UNIT * most * (1.0 + size / abs(step))
            least, largest = min(least, secant - error), max(largest, secant + error)
        low[i], high[i] = max(0.0, least), min(most, max(largest, 0.0))


@compiled()
def slope_values(m: Float64, loss: Any, out: Float64) -> None:
    """Set out (n,) to -l'(m). Given: m (n,), loss."""
    for i in range(m.size):
        out[i] = -loss.slope(m[i])
