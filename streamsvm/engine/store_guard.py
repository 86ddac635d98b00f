"""A store must stay what it was while a job reads it for hours: its manifest is looked at before and after each pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamsvm.errors import DataError, MissingError
from streamsvm.store.format import manifest as manifests
from streamsvm.types import Store


class StoreGuard:
    """Remembers the manifest of a store on disk; a store in memory has none and cannot be replaced."""

    def __init__(self, store: Store) -> None:
        self._name, self._digest = store.name, store.digest
        self._path = Path(store.name) / manifests.FILE
        self._seen: Any = None
        self._on_disk = self._path.is_file()

    def check(self) -> None:
        """Raise DataError E-CHANGED when the store is not the one that was opened."""
        if not self._on_disk:
            return
        try:
            found = self._path.stat()
            seen = found.st_ino, found.st_size, found.st_mtime_ns
            if seen != self._seen and manifests.read(self._path.parent).digest != self._digest:
                raise self._changed("has other rows now")
            self._seen = seen
        except (FileNotFoundError, MissingError) as error:
            raise self._changed("is gone") from error

    def _changed(self, how: str) -> DataError:
        return DataError(
            f"store '{self._name}' {how}: it was replaced while it was being read",
            code="E-CHANGED",
            hint="run the job again; nothing else may write to a store that is in use",
        )
