"""splitmix64 (Steele, Lea, Flood 2014): numbers that look random, each a function of a seed and a counter alone.

``mixed(seed + counter * STEP)``; for one seed a bijection. Whole arrays, or, compiled (``compute.random``), one number.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

STEP, MIX1, MIX2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


Bits = TypeVar("Bits", np.uint64, NDArray[np.uint64])


def mixed(z: Bits) -> Bits:
    """Return the output function of splitmix64 for each number: a bijection of 64 bits in which every output bit
    depends on every input bit (Steele, Lea and Flood, OOPSLA 2014).
    """
    z = (z ^ (z >> np.uint64(30))) * MIX1
    z = (z ^ (z >> np.uint64(27))) * MIX2
    return z ^ (z >> np.uint64(31))
