"""The minimum of a convex function along a line, to a share of its first slope.

Where rows enter and leave the corner of a loss a full step may be far too long, and halving it far too crude. The slope is
monotone, so that Newton's method on it, kept within what is known to bracket the root, finds it in a few
sums over the rows, none of which touches X. Where no row bends at first, the full step can be 10^15 times too long: the
bracket is cut in orders of magnitude, and what is returned is never beyond the minimum if that was not found.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

TRIALS = 60
ENOUGH = 0.05
"""The slope may remain at this share of itself."""
BEFORE = 0.9
"""Beyond the minimum it may where that is no nearer to 0 than this share of the length, as the curvature there has it: a first slope
that is large says little of how far the function has risen since."""
CLOSE = 0.999
"""A bracket of which the lower end is this share of the upper one is narrow enough."""
CUT = 1e-2
"""The next length tried where all that is known is that one is too long, as a share of it."""


def step_length(slopes: Callable[[float], tuple[float, float]]) -> float:
    """The t that about minimizes a convex function whose first and second derivative at t are ``slopes(t)``."""
    low, high, t = 0.0, np.inf, 1.0
    first = slopes(0.0)[0]
    if first >= 0.0:
        return 0.0
    for _ in range(TRIALS):
        slope, curvature = slopes(t)
        newton = t - slope / curvature if curvature > 0.0 else np.inf if slope <= 0.0 else -np.inf
        if abs(slope) <= ENOUGH * abs(first) and newton >= BEFORE * t:
            return t
        low, high = (low, t) if slope > 0.0 else (t, high)
        if low >= CLOSE * high:
            return low
        t = newton if low < newton < high else _between(low, high)
    return low


def _between(low: float, high: float) -> float:
    """Where to look next in a bracket: the geometric mean of its ends, as far as these are known."""
    if not np.isfinite(high):
        return 2.0 * low
    return float(np.sqrt(low * high)) if low > 0.0 else CUT * high
