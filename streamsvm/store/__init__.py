"""READS: chunked stores, and the sources data comes from. The only place that knows file formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.registry import Registry
from streamsvm.types import Chunk, Store

if TYPE_CHECKING:
    from streamsvm.store.encoding import Encoding
    from streamsvm.store.zarr import ZarrStore, ZarrWriter

STORES = Registry("store", {"zarr": "streamsvm.store.zarr:ZarrStore", "memory": "streamsvm.store.memory:MemoryStore"})


def open_store(path: Path | str) -> ZarrStore:
    """Open a committed store. Raises MissingError, DataError."""
    from streamsvm.store.zarr import ZarrStore

    return ZarrStore(Path(path))


def create(
    path: Path, *, sparse: bool, chunk_bytes: int = 4 << 20, overwrite: bool = False, encoding: Encoding | None = None
) -> ZarrWriter:
    """A writer for a new store. Raises ExistsError."""
    from streamsvm.store import zarr

    writer = zarr.create(path, sparse=sparse, chunk_bytes=chunk_bytes, overwrite=overwrite)
    writer.encoding = encoding
    return writer


def read_chunk(store: Store, chunk: int, into: Any) -> Chunk:
    """Fetch and check one chunk, for those who read without a reader thread."""
    store.fetch(chunk, into)
    return store.check(chunk, into)
