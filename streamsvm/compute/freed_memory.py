"""Return freed memory to the system. By default the allocator keeps free memory that lies between blocks in use.

Several threads gather rows of a pass in small arrays, each thread in an arena of its own. When these arrays are freed
one by one, to make room for one large array, their memory would stay with the process: for ten classes as much again as
the large array.

GNU's C library returns a block immediately if it is larger than a threshold, but each large block that is freed raises
the threshold, up to 32 MiB. A fit that had read a checkpoint used twice as much memory as one that had not. Therefore
the threshold is fixed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache

STEP_BYTES = 32 << 20
"""Bytes after which ``give_back`` is worth a call while more is being freed."""
MIN_BYTES = 4 << 20
"""Bytes for which ``give_back`` is worth a call after everything was freed."""
MMAP_BYTES = 1 << 20
"""Blocks of at least this many bytes get pages of their own, which are returned to the system when the block is
freed."""
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1
"""Parameters of ``mallopt``: the threshold for pages of their own, and the free bytes that are kept at the end of the
heap."""
USER_VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables with which a user sets these thresholds."""


def give_back() -> None:
    """Return the free memory of all arenas to the system; do nothing if the C library has no ``malloc_trim``."""
    _trim()(0)


@cache
def fix_thresholds() -> None:
    """Fix the threshold above which freed blocks are returned to the system. C libraries other than GNU's do so by
    default.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version") and not any(name in os.environ for name in USER_VARIABLES):
        library.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, 2 * MMAP_BYTES)


@cache
def _trim() -> Callable[[int], int]:
    try:
        malloc_trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # musl
        return lambda _keep: 0
    return malloc_trim
