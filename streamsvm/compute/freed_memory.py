"""Memory that was freed goes back to the system: the allocator keeps what lies between blocks that are still in use.

Several threads gather rows of a pass side by side with small arrays, each in an arena of its own. What is freed there piece by piece,
to make room for one large array, stays part of the process otherwise: of ten classes as much again as the array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

STEP = 32 << 20
"""Bytes that are freed before it is worth to look while there is more to free."""
LEAST = 4 << 20
"""Bytes that are worth it when there is not."""


def give_back() -> None:
    """Give all free memory of all arenas back to the system; where the C library has no ``malloc_trim``, nothing happens."""
    _trim()(0)


@cache
def _trim() -> Callable[[int], int]:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # musl
        return lambda _keep: 0
    return found
