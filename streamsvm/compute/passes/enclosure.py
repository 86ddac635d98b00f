"""Bounds of the secants of the slope of a loss, from which an enclosure of the optimum is computed (``streamsvm.proofs.enclosure``).

For an argument m and a stretch of m' the secants are (l'(m') - l'(m)) / (m' - m) over all m' other than m. They are the means of the second
derivative between m and m'. Where l'' is constant between corners (``Loss.quadratic``), a secant is a monotone function of m' on each
piece, so that the extremes are among the two ends of the stretch and the corners within it.

Otherwise l'' is even and falls with |m|. The secant g(m') grows where l''(m') > g(m') and falls where l''(m') < g(m') (m' > m; mirrored below m), and once it
falls it falls for ever, because g stays above l''. So it is least at an end of the stretch; and largest at an end, too, unless 0 lies between
m and m', where l''(0) bounds it. All secants lie between the values of l'' nearest to 0 and farthest from it, too, which is the better bound where a step is
so short that the difference of slopes is rounding.
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
def secants_pass(
    m: Float64, down: Float64, up: Float64, loss: Any, corners: Float64, low: Float64, high: Float64
) -> None:
    """Bound the secants of each row. Given: m (n,); down, up (n,), the stretch from m + down to m + up, down < up; loss; corners (k,) of l'', ascending.

    Changed: low, high (n,), 0 <= low <= every secant <= high.
    """
    most = 1.0 / loss.curvature(1.0)
    for i in range(m.size):
        x, least, largest, known = m[i], most, 0.0, False
        slope = loss.slope(x)
        first, last = min(x, x + down[i]), max(x, x + up[i])
        if not loss.quadratic():
            far, near = max(abs(first), abs(last)), max(first, -last, 0.0)
            low[i] = max(0.0, loss.second_derivative(far) * (1.0 - RELATIVE) - TINY)
            high[i] = min(most, loss.second_derivative(near) * (1.0 + RELATIVE) + TINY)
            for k in range(2):
                step = up[i] if k == 0 else down[i]
                if step == 0.0:
                    continue
                other = loss.slope(x + step)
                error = ROUNDINGS * UNIT * (abs(slope) + abs(other) + most * (abs(x) + abs(step))) / abs(step)
                secant, known = (other - slope) / step, True
                least, largest = min(least, secant - error), max(largest, secant + error)
            if known and down[i] != 0.0 and up[i] != 0.0:
                low[i] = max(low[i], least)
                if near > 0.0:
                    high[i] = min(high[i], largest)
            continue
        crosses = False
        for k in range(corners.size):
            pad = ROUNDINGS * UNIT * (abs(first) + abs(last) + abs(corners[k]))
            if first - pad <= corners[k] <= last + pad:
                crosses = True
        if not crosses:
            low[i] = high[i] = loss.second_derivative(x)
            continue
        for k in range(corners.size + 2):
            step = up[i] if k == 0 else down[i] if k == 1 else corners[k - 2] - x
            size = abs(x) + abs(step) + max(abs(corners[0]), abs(corners[corners.size - 1]))
            pad = ROUNDINGS * UNIT * size
            if step == 0.0 or step < down[i] - pad or step > up[i] + pad:
                continue
            secant, known = (loss.slope(x + step) - slope) / step, True
            error = ROUNDINGS * UNIT * most * (1.0 + size / abs(step))
            least, largest = min(least, secant - error), max(largest, secant + error)
        low[i] = max(0.0, least) if known else 0.0
        high[i] = min(most, max(largest, 0.0)) if known else most


@compiled()
def slope_values(m: Float64, loss: Any, out: Float64) -> None:
    """Set out (n,) to -l'(m). Given: m (n,), loss."""
    for i in range(m.size):
        out[i] = -loss.slope(m[i])
