"""How a pass is compiled: kept on disk, without the interpreter's lock, and without what only programs in C would call.

Numba makes of every function, the least that a pass inlines included, a second one that C could call. Nobody does, and without
it a pass takes a seventh less to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from streamsvm.compute import cache_files  # noqa: F401  before any pass is compiled

NOT_FROM_C: Any = {"no_cfunc_wrapper": True}
"""An option of whatever is compiled; numba's annotations do not list it."""


def compiled(*, fastmath: bool | set[str] = False) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of a pass; ``fastmath``: the floating-point freedoms it takes."""
    return njit(cache=True, nogil=True, fastmath=fastmath, **NOT_FROM_C)
