"""When a method has stalled: the one rule by which a run ends, or goes on in another way, because its gap no longer falls.

Each method says over how many steps (passes, pools, rounds) it looks back: more than its gap stands still for on the way
to the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence

STALL_RATIO = 0.9
"""A method has stalled where its gap is more than this share of what it was some steps ago."""


def has_stalled(gaps: Sequence[float], steps: int, ratio: float = STALL_RATIO) -> bool:
    """Return whether the last gap is more than ``ratio`` times the gap ``steps`` steps before.

    ``gaps``: one after each step. Where a gap may rise on the way, pass the least gaps so far.
    """
    return len(gaps) > steps and gaps[-1] > ratio * gaps[-1 - steps]
