"""Cached machine code that cannot be read is compiled again; a cache that cannot be written to is none.

Numba takes what is in its cache for its own: a file that was cut short by a full disk, or that another program wrote,
ends the job with ``EOFError`` or ``UnpicklingError``, and so does a disk that is full when a pass was compiled.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from numba.core import caching


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


# numba opens its cache through this class from now on: every module of passes imports this one first
caching.IndexDataCacheFile = CacheFile  # type: ignore[misc]
