"""Stores that are written in parts by several tasks: ingested stores and embeddings.

Each part is a store of its own, built under a temporary name and renamed when it is complete. A task that runs twice at
the same time, or again after its job was stopped, finds the complete part and does nothing. The driver joins the parts
and removes them.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from streamsvm import durable
from streamsvm.errors import DataError, StorageError
from streamsvm.rows import copy_rows
from streamsvm.store import create, open_store, read_chunk
from streamsvm.store.format import manifest as manifests
from streamsvm.store.write.writer import StoreWriter
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Chunk

KEY = "part"
"""Key in the facts of a part's store; its value identifies the content of the part."""

Fill = Callable[[StoreWriter], tuple[tuple[str, ...], int, JsonObject]]
"""Appends rows to a writer; returns the classes, the number of columns and the facts to commit."""


def part_path(directory: Path, index: int) -> Path:
    """Return the path of the store of a part."""
    return directory / f"{index:06d}.zarr"


def build_part(directory: Path, index: int, key: str, *, sparse: bool, fill: Fill) -> JsonObject:
    """Build a part, unless it is complete already; return its facts. Raises StorageError, and what ``fill`` raises."""
    target = part_path(directory, index)
    existing_facts = facts_of(target, key)
    if existing_facts is not None:
        return existing_facts
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
    """Rename a built part to ``target``, unless a complete part with the same key is there already."""
    if target.exists() and facts_of(target, key) is None:
        shutil.rmtree(target)
    try:
        durable.rename(building, target)
    except StorageError:
        if facts_of(target, key) is None:
            raise
        shutil.rmtree(building)


def facts_of(path: Path, key: str) -> JsonObject | None:
    """Return the facts of a part; None if it is not complete or has another key."""
    if not (path / manifests.FILE).is_file():
        return None
    facts = dict(open_store(path).facts)
    return facts if facts.get(KEY) == key else None


def chunks_of(path: Path, key: str) -> Iterator[Chunk]:
    """Yield the chunks of a part, in arrays that belong to the caller; then remove the part. Raises DataError."""
    store = open_store(path)
    if store.facts.get(KEY) != key:
        raise DataError(f"{path} is a part of another job", code="E-CHANGED", hint="run the same command again")
    buffers = store.buffers()
    for number in range(len(store.layout.chunks)):
        chunk = read_chunk(store, number, buffers)
        weight = None if chunk.weight is None else chunk.weight.copy()
        yield Chunk(copy_rows(chunk.X), chunk.codes.copy(), weight)
    shutil.rmtree(path)
