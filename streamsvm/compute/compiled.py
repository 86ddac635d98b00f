"""How passes are compiled and cached.

Numba's defaults are changed in three ways:

- No wrapper for C callers. By default numba builds one for every function; without it a pass compiles in a seventh less
  time.
- The cache survives faults. By default a truncated or foreign file in numba's cache, or a full disk, ends a job with
  ``EOFError`` or ``UnpicklingError``. Here a function with a damaged file is compiled again, and an unwritable cache is
  ignored. A cached pass is loaded with numba's runtime only; numba would first load its models of Python, numpy and
  scipy, which take 0.4 of the 1.7 CPU seconds of a fit of 1,000 rows.
- No signal handler raises in the main thread while the compiler runs. An exception in a callback of the compiler would
  be lost together with the machine code of the callback, and the compiler would then fail with an error of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

from numba import njit
from numba.core import caching, dispatcher, event
from numba.core.runtime import rtsys

from streamsvm.compute.compile_clock import CLOCK
from streamsvm.compute.threading import postpone_signals


class CacheFile(caching.IndexDataCacheFile):
    """The index and the files of one function's compiled versions. Damaged files count as absent."""

    def save(self, key: Any, data: Any) -> None:
        """Write a compiled version; do nothing if the disk is full."""
        with suppress(OSError):
            super().save(key, data)

    def _load_index(self) -> dict[Any, str]:
        try:
            index = super()._load_index()
        except Exception:  # noqa: BLE001  (foreign bytes can raise anything)
            return {}
        return index if isinstance(index, dict) else {}

    def _load_data(self, name: str) -> Any:
        try:
            data = super()._load_data(name)
        except Exception as error:
            raise OSError(f"{name} is damaged") from error  # numba treats an OSError like a missing file
        if not isinstance(data, tuple):
            raise OSError(f"{name} is not a compiled version")
        return data


class CompiledVersions(caching.FunctionCache):
    """The cache of one function. Versions of this package's functions are loaded with numba's runtime only."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled version for a signature, or None."""
        if not self._py_func.__module__.startswith("streamsvm."):
            return super().load_overload(sig, target_context)
        rtsys.initialize(target_context)
        version = self._load_overload(sig, target_context)
        if version is None:
            CLOCK.announce_compilation()
        return version


# Numba uses these classes from now on. Every module of passes imports this module first.
caching.IndexDataCacheFile = CacheFile  # type: ignore[misc]
dispatcher.FunctionCache = CompiledVersions  # type: ignore[attr-defined]


NOT_FROM_C: Any = {"no_cfunc_wrapper": True}
"""Option of every compiled function; numba's annotations do not list it."""


def compiled(*, fastmath: bool | set[str] = False, checks_division: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of a pass. ``fastmath``: numba's flags of allowed floating-point transformations.

    ``checks_division``: whether a division by zero raises. A loop with such a check is not compiled to vectors.
    """
    errors: Any = "python" if checks_division else "numpy"
    return njit(cache=True, nogil=True, fastmath=fastmath, error_model=errors, **NOT_FROM_C)


def inlined() -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of a short function that is inlined, because passing arrays would cost more than its
    work.
    """
    return njit(cache=True, nogil=True, inline="always")


class _CompilerListener(event.Listener):
    """Postpones signals in the main thread while it holds the compiler's lock, and counts the time spent."""

    def __init__(self) -> None:
        self._entered: list[AbstractContextManager[None]] = []

    def on_start(self, event: event.Event) -> None:
        CLOCK.enter()
        if threading.current_thread() is threading.main_thread():
            self._entered.append(postpone_signals())
            self._entered[-1].__enter__()

    def on_end(self, event: event.Event) -> None:
        CLOCK.leave()
        if threading.current_thread() is threading.main_thread() and self._entered:
            self._entered.pop().__exit__(None, None, None)


event.register("numba:compiler_lock", _CompilerListener())
