"""Cached machine code that cannot be read is compiled again; a cache that cannot be written to is none; what is read needs no compiler.

Numba takes what is in its cache for its own: a file that was cut short by a full disk, or that another program wrote,
ends the job with ``EOFError`` or ``UnpicklingError``, and so does a disk that is full when a pass was compiled.

Before numba looks into its cache it loads what it knows of every function of Python and numpy, and scipy's linear algebra with it: .4 of
the 1.7 CPU seconds of a fit of 1,000 rows. Machine code that is there calls the runtime and nothing of that, and where it is
not there the compiler loads it for itself.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from numba.core import caching, dispatcher
from numba.core.runtime import rtsys


class CacheFile(caching.IndexDataCacheFile):
    """The index of one function's compiled versions, and the file of each; damaged ones count as absent."""

    def save(self, key: Any, data: Any) -> None:
        """Keep a compiled version, if the disk takes it."""
        with suppress(OSError):
            super().save(key, data)

    def _load_index(self) -> dict[Any, str]:
        try:
            found = super()._load_index()
        except Exception:  # noqa: BLE001  whatever foreign bytes make of the parser
            return {}
        return found if isinstance(found, dict) else {}

    def _load_data(self, name: str) -> Any:
        try:
            found = super()._load_data(name)
        except Exception as error:
            raise OSError(f"{name} is damaged") from error  # as numba takes a file that is gone
        if not isinstance(found, tuple):
            raise OSError(f"{name} is not a compiled version")
        return found


class CompiledVersions(caching.FunctionCache):
    """The cache of one function: a version of ours that is there is loaded with the runtime alone, what others compile as numba does it."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled version for a signature; None where there is none."""
        if not self._py_func.__module__.startswith("streamsvm."):
            return super().load_overload(sig, target_context)
        rtsys.initialize(target_context)
        return self._load_overload(sig, target_context)


# numba opens its cache through these classes from now on: every module of passes imports this one first
caching.IndexDataCacheFile = CacheFile  # type: ignore[misc]
dispatcher.FunctionCache = CompiledVersions  # type: ignore[attr-defined]
