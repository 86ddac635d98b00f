"""The store that a job reads: how tasks in other processes open it, and how a job detects that it was replaced."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from streamsvm.errors import DataError, MissingError
from streamsvm.input_files import find_url
from streamsvm.object_store import object_facts
from streamsvm.store import open_store
from streamsvm.store.format import manifest as manifests
from streamsvm.store.views import Section
from streamsvm.types import Store

MAX_OPEN_STORES = 4
"""Number of stores that a worker keeps open between tasks."""
STORE_CHANGED_HINT = "run the job again; nothing else may write to a store that is in use"


class StoreReference(NamedTuple):
    """A reference to a store, or to some of its chunks, that tasks in other processes can open."""

    path: str
    """Absolute path, or a URL."""
    digest: str
    """Digest that the content must have."""
    features_key: str = "X"
    """Name of the array of features in HDF5 and Zarr files that another program wrote."""
    labels_key: str = "y"
    """Name of the array of labels in such files."""
    chunks: tuple[int, ...] | None = None
    """Numbers of the chunks in the store at ``path``; None: all chunks."""

    def open(self) -> Store:
        """Open the store, or return it if this process has it open already. Raises MissingError, DataError
        E-CHANGED.
        """
        store = _open_cached(self._replace(chunks=None))
        return store if self.chunks is None else Section(store, self.chunks)


@lru_cache(MAX_OPEN_STORES)
def _open_cached(reference: StoreReference) -> Store:
    store: Store = open_store(reference.path, features_key=reference.features_key, labels_key=reference.labels_key)
    if store.digest != reference.digest:
        raise DataError(
            f"store '{reference.path}' is not the one the job began with", code="E-CHANGED", hint=STORE_CHANGED_HINT
        )
    return store


class OpenedStore(NamedTuple):
    """Takes the place of a ``StoreReference`` for tasks of this process."""

    store: Store

    def open(self) -> Store:
        """Return the store."""
        return self.store


class StoreGuard:
    """Detects whether a store on disk was replaced, from changes of its manifest. A store in memory has no manifest and
    cannot be replaced.
    """

    def __init__(self, store: Store) -> None:
        self._name, self._digest = store.name, store.digest
        self._url = find_url(store.name)
        self._path = Path(store.name) / manifests.FILE
        self._checked: tuple[object, ...] | None = None
        """Inode, size and modification time of the manifest when its digest was last checked; for an object, size and ETag."""
        self._on_disk = self._url is not None or self._path.is_file()

    def check(self) -> None:
        """Raise DataError E-CHANGED if the store has changed since it was opened."""
        if not self._on_disk:
            return
        try:
            current = self._manifest_facts()
            if current != self._checked and open_store(self._url or self._path.parent).digest != self._digest:
                raise self._change_error("has other rows now")
            self._checked = current
        except (FileNotFoundError, MissingError) as error:
            raise self._change_error("is gone") from error

    def _manifest_facts(self) -> tuple[object, ...]:
        """Return facts about the manifest that change if it is replaced.

        Raises FileNotFoundError or MissingError if it is gone.
        """
        if self._url is not None:
            return object_facts(f"{self._url}/{manifests.FILE}")
        status = self._path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _change_error(self, how: str) -> DataError:
        return DataError(
            f"store '{self._name}' {how}: it was replaced while it was being read",
            code="E-CHANGED",
            hint=STORE_CHANGED_HINT,
        )


def reference_to(store: Store) -> StoreReference:
    """Return a reference to ``store``. For files of other programs, its facts record the names of the arrays."""
    options = (store.facts.get("encoding") or {}).get("options") or {}
    keys = options.get("features_key", "X"), options.get("labels_key", "y")
    return StoreReference(find_url(store.name) or str(Path(store.name).resolve()), store.digest, *keys, store.selection)
