"""Work on many rows, shared by the threads there are.

Each strip writes rows of its own, computed as they would be alone: the result does not depend on how many threads there
are. Their number is numba's (``NUMBA_NUM_THREADS``, else the processors this process may use), four at most.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from numba import config

from streamsvm.compute import cache_files  # noqa: F401  before any pass is compiled

MOST_THREADS = 4
TILES = 4
"""The least a strip must have to be worth a thread."""


def in_strips(work: Callable[[int, int], None], rows: int, tile: int) -> None:
    """Call ``work(start, stop)`` so that all of [0, rows) is covered; boundaries are multiples of ``tile``.

    What ``work`` calls must give up the interpreter's lock for most of its time. An error in a strip is raised here.
    """
    tiles = -(-rows // tile)
    strips = max(min(threads(), tiles // TILES), 1)
    if strips == 1:
        work(0, rows)
        return
    edges = [min(tile * (tiles * k // strips), rows) for k in range(strips)] + [rows]
    list(_pool().map(work, edges[:-1], edges[1:]))


def threads() -> int:
    """Return how many strips are worked on at a time."""
    return min(int(config.NUMBA_NUM_THREADS), MOST_THREADS)  # type: ignore[attr-defined]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads(), thread_name_prefix="strip")
