"""How many rows are mapped to kernel features at a time, and what that holds."""

from __future__ import annotations

from streamsvm.compute.blocks.operators import TILE

PART_BYTES = 16 << 20
"""Of kernel values at a time: more would leave the cache, fewer would pay for W w too often."""


def part_rows(landmarks: int) -> int:
    """Rows of a block that are mapped at a time, in float64 half as many; a function of the landmarks alone, so that results
    are too.
    """
    return max(256, min(8192, PART_BYTES // (4 * landmarks) // 256 * 256))


def working_bytes(landmarks: int, rank: int, *, factored: bool) -> int:
    """What the map holds for the rows at hand: kernel values, and features or the chosen rows of a Gram matrix."""
    rows = part_rows(landmarks)
    return 4 * rows * landmarks + (4 * TILE * landmarks if factored else 4 * rows * rank)
