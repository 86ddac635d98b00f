"""The stall rule: whether the gap of a method no longer falls, so that it stops or another method takes over.

Each method sets the number of steps (passes, pools or rounds) over which gaps are compared. It must exceed the number
of steps for which the gap may stay constant on the way to the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence

STALL_RATIO = 0.9
"""A method has stalled if its gap is more than this fraction of the gap some steps before."""


def has_stalled(gaps: Sequence[float], steps: int, ratio: float = STALL_RATIO) -> bool:
    """Return whether the last gap is more than ``ratio`` times the gap ``steps`` steps before.

    ``gaps``: one for each step. If gaps may rise temporarily, pass the least gap so far for each step.
    """
    return len(gaps) > steps and gaps[-1] > ratio * gaps[-1 - steps]
