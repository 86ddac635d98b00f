"""Memory that was freed goes back to the system: the allocator keeps what lies between blocks that are still in use.

Several threads gather rows of a pass side by side with small arrays, each in an arena of its own. What is freed there piece by piece,
to make room for one large array, stays part of the process otherwise: of ten classes as much again as the array.

The C library of GNU keeps more the more was freed: each large block that is freed raises the size from which on blocks are
given back by themselves, up to 32 MiB. A fit that has read a checkpoint held twice what it holds without. So that size is fixed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache

STEP = 32 << 20
"""Bytes that are freed before it is worth to look while there is more to free."""
LEAST = 4 << 20
"""Bytes that are worth it when there is not."""
OWN_PAGES = 1 << 20
"""Bytes from which on a block has pages of its own, which are given back as soon as it is freed."""
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""The numbers of ``mallopt`` for that, and for the free bytes at the end of the heap that are kept."""
STATED = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
"""Variables of the environment by which a user has chosen these sizes."""


def give_back() -> None:
    """Give all free memory of all arenas back to the system; where the C library has no ``malloc_trim``, nothing happens."""
    _trim()(0)


@cache
def fix_thresholds() -> None:
    """Have large blocks given back when they are freed, whatever was freed before; other C libraries than that of GNU do so anyway."""
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version") and not any(name in os.environ for name in STATED):
        library.mallopt(MMAP_THRESHOLD, OWN_PAGES)
        library.mallopt(TRIM_THRESHOLD, 2 * OWN_PAGES)


@cache
def _trim() -> Callable[[int], int]:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # musl
        return lambda _keep: 0
    return found
