"""The store that a job reads: how tasks in other processes open it, how its replacement is noticed, and stores that tasks leave as parts.

A part is built under a temporary name and renamed when it is complete: a task that runs twice at once, or again after
a job was stopped, finds the part there and does nothing. The driver joins parts and removes them.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.errors import DataError, MissingError, StorageError
from streamsvm.rows import copy_rows
from streamsvm.store import create, open_store, read_chunk
from streamsvm.store.format import manifest as manifests
from streamsvm.store.views import Section
from streamsvm.store.write.writer import StoreWriter
from streamsvm.types import Chunk, Store

STORES_KNOWN = 4
"""Open stores a worker remembers between tasks."""
REPLACED = "run the job again; nothing else may write to a store that is in use"

KEY = "part"
"""The fact of a part's store that says what is in it."""


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


Fill = Callable[[StoreWriter], tuple[tuple[str, ...], int, JsonObject]]
"""Appends to a writer; returns classes, columns and facts to commit with."""


def part_path(directory: Path, index: int) -> Path:
    """Where the store of a part is."""
    return directory / f"{index:06d}.zarr"


def build_part(directory: Path, index: int, key: str, *, sparse: bool, fill: Fill) -> JsonObject:
    """Make a part that is not there yet; returns its facts. Raises what ``fill`` raises, StorageError."""
    target = part_path(directory, index)
    found = facts_of(target, key)
    if found is not None:
        return found
    building = directory / f".{index:06d}.{secrets.token_hex(4)}.zarr"
    writer = create(building, sparse=sparse)
    try:
        classes, columns, facts = fill(writer)
        writer.commit(classes, columns, facts | {KEY: key})
        _rename_part(building, target, key)
    except BaseException:
        writer.abort()
        shutil.rmtree(building, ignore_errors=True)
        raise
    return facts | {KEY: key}


def _rename_part(building: Path, target: Path, key: str) -> None:
    """Give a part its name; one of the same key that is there already stays."""
    if target.exists() and facts_of(target, key) is None:
        shutil.rmtree(target)
    try:
        durable.rename(building, target)
    except StorageError:
        if facts_of(target, key) is None:
            raise
        shutil.rmtree(building)


def facts_of(path: Path, key: str) -> JsonObject | None:
    """The facts of a part that is complete and of this key."""
    if not (path / manifests.FILE).is_file():
        return None
    facts = dict(open_store(path).facts)
    return facts if facts.get(KEY) == key else None


def chunks_of(path: Path, key: str) -> Iterator[Chunk]:
    """The rows of a part; the arrays belong to the caller. The part is removed after the last. Raises DataError."""
    store = open_store(path)
    if store.facts.get(KEY) != key:
        raise DataError(f"{path} is a part of another job", code="E-CHANGED", hint="run the same command again")
    buffers = store.buffers()
    for number in range(len(store.layout.chunks)):
        chunk = read_chunk(store, number, buffers)
        weight = None if chunk.weight is None else chunk.weight.copy()
        yield Chunk(copy_rows(chunk.X), chunk.codes.copy(), weight)
    shutil.rmtree(path)
