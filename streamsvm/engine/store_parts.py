"""Stores that tasks leave as parts of one: of an ingest by many workers, of an embedding.

A part is built under a temporary name and renamed when it is complete: a task that runs twice at once, or again after
a job was stopped, finds the part there and does nothing. The driver joins parts and removes them.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.errors import DataError, StorageError
from streamsvm.rows import copy_rows
from streamsvm.store import create, open_store, read_chunk
from streamsvm.store.format import manifest as manifests
from streamsvm.store.write.writer import StoreWriter
from streamsvm.types import Chunk

KEY = "part"
"""The fact of a part's store that says what is in it."""

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
