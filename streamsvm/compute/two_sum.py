"""The sum of two numbers with what rounding takes from it: sums of such pairs are as good as sums in twice the precision."""

from __future__ import annotations

from streamsvm.compute.compiled import compiled
from streamsvm.rows import Float64


def two_sum(one: Float64, other: Float64) -> tuple[Float64, Float64]:
    """Return one + other, rounded, and what rounding took from it, exactly: float64 of any one shape.

    Reference: Knuth, The Art of Computer Programming 2, 4.2.2, theorem B.
    """
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


two_sum_of_numbers = compiled()(two_sum)
"""The same of two numbers, for passes."""
