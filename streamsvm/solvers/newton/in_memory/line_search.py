"""The minimum of a convex function along a line, to a share of its first slope.

Where rows enter and leave the corner of a loss a full step may be far too long, and halving it far too crude. The slope is
monotone, so that Newton's method on it, kept within what is known to bracket the root, finds it in a few
sums over the rows, none of which touches X.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

TRIALS = 30
ENOUGH = 0.05
"""The slope may remain at this share of itself."""


def step_length(slopes: Callable[[float], tuple[float, float]]) -> float:
    """The t that about minimizes a convex function whose first and second derivative at t are ``slopes(t)``."""
    low, high, t = 0.0, np.inf, 1.0
    first = slopes(0.0)[0]
    if first >= 0.0:
        return 0.0
    for _ in range(TRIALS):
        slope, curvature = slopes(t)
        if abs(slope) <= ENOUGH * abs(first):
            break
        low, high = (low, t) if slope > 0.0 else (t, high)
        newton = t - slope / curvature if curvature > 0.0 else np.inf
        inside = low < newton < high
        t = newton if inside else 0.5 * (low + high) if np.isfinite(high) else 2.0 * t
    return t
