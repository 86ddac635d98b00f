"""How a pass is compiled: kept on disk, without the interpreter's lock, and without what only programs in C would call.

Numba makes of every function, the least that a pass inlines included, a second one that C could call. Nobody does, and without
it a pass takes a seventh less to compile.

What a signal raises while the compiler is in a callback of C is lost, and with it the machine code the callback was given: the
compiler then ends with an error of its own. So no signal raises anything in the main thread until a function is compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from numba import njit
from numba.core import event

from streamsvm.compute import cache_files  # noqa: F401  before any pass is compiled
from streamsvm.compute.compile_clock import CLOCK
from streamsvm.compute.owned_threads import undisturbed

NOT_FROM_C: Any = {"no_cfunc_wrapper": True}
"""An option of whatever is compiled; numba's annotations do not list it."""


def compiled(*, fastmath: bool | set[str] = False) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of a pass; ``fastmath``: the floating-point freedoms it takes."""
    return njit(cache=True, nogil=True, fastmath=fastmath, **NOT_FROM_C)


def inlined() -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of a few lines that are written out where they are called: the arrays of a call can cost more than they do."""
    return njit(cache=True, nogil=True, inline="always")


class _Undisturbed(event.Listener):
    """Hears of threads entering and leaving the compiler: the main thread is undisturbed there, and the time is counted."""

    def __init__(self) -> None:
        self._entered: list[AbstractContextManager[None]] = []

    def on_start(self, event: event.Event) -> None:
        CLOCK.enter()
        if threading.current_thread() is threading.main_thread():
            self._entered.append(undisturbed())
            self._entered[-1].__enter__()

    def on_end(self, event: event.Event) -> None:
        CLOCK.leave()
        if threading.current_thread() is threading.main_thread() and self._entered:
            self._entered.pop().__exit__(None, None, None)


event.register("numba:compiler_lock", _Undisturbed())
