"""The store that a job reads: how tasks in other processes open it, and how its replacement is noticed."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from streamsvm.errors import DataError, MissingError
from streamsvm.store import open_store
from streamsvm.store.format import manifest as manifests
from streamsvm.store.views import Section
from streamsvm.types import Store

STORES_KNOWN = 4
"""Open stores a worker remembers between tasks."""
REPLACED = "run the job again; nothing else may write to a store that is in use"


class StoreReference(NamedTuple):
    """A store, or some chunks of one, as it is named to tasks in other processes."""

    path: str
    """Absolute."""
    digest: str
    """What the content must be."""
    features_key: str = "X"
    """The array of features, of HDF5 and Zarr arrays others wrote."""
    labels_key: str = "y"
    """The array of labels, likewise."""
    chunks: tuple[int, ...] | None = None
    """The chunks that are meant, by their numbers in the store at ``path``; None: all of them."""

    def open(self) -> Store:
        """Open the store, or take it from memory if this process has it open. Raises MissingError, DataError E-CHANGED."""
        store = _open_cached(self._replace(chunks=None))
        return store if self.chunks is None else Section(store, self.chunks)


@lru_cache(STORES_KNOWN)
def _open_cached(reference: StoreReference) -> Store:
    store: Store = open_store(reference.path, features_key=reference.features_key, labels_key=reference.labels_key)
    if store.digest != reference.digest:
        raise DataError(f"store '{reference.path}' is not the one the job began with", code="E-CHANGED", hint=REPLACED)
    return store


class OpenedStore(NamedTuple):
    """A store as it is named to tasks of this process."""

    store: Store
    """It."""

    def open(self) -> Store:
        """Return it."""
        return self.store


class StoreGuard:
    """Remembers the manifest of a store on disk; a store in memory has none and cannot be replaced."""

    def __init__(self, store: Store) -> None:
        self._name, self._digest = store.name, store.digest
        self._path = Path(store.name) / manifests.FILE
        self._seen: tuple[int, int, int] | None = None
        """Inode, size and time of the manifest when it was last found to be the right one."""
        self._on_disk = self._path.is_file()

    def check(self) -> None:
        """Raise DataError E-CHANGED when the store is not the one that was opened."""
        if not self._on_disk:
            return
        try:
            found = self._path.stat()
            seen = found.st_ino, found.st_size, found.st_mtime_ns
            if seen != self._seen and manifests.read(self._path.parent).digest != self._digest:
                raise self._change_error("has other rows now")
            self._seen = seen
        except (FileNotFoundError, MissingError) as error:
            raise self._change_error("is gone") from error

    def _change_error(self, how: str) -> DataError:
        return DataError(
            f"store '{self._name}' {how}: it was replaced while it was being read", code="E-CHANGED", hint=REPLACED
        )


def reference_to(store: Store) -> StoreReference:
    """Return what tasks open ``store`` by: arrays others wrote say themselves by which keys they were opened."""
    options = (store.facts.get("encoding") or {}).get("options") or {}
    keys = options.get("features_key", "X"), options.get("labels_key", "y")
    return StoreReference(str(Path(store.name).resolve()), store.digest, *keys, store.selection)
