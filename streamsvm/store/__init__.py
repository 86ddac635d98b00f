"""READS: chunked stores and the sources data comes from; the only place that knows file formats.

sources      files and objects of all formats, as batches of rows
write        rows to chunks: shuffled, resumed, committed
format       what a store consists of: manifest, arrays, labels, statistics
zarr         the Zarr store
hdf5         the HDF5 store
hdf5_checks  HDF5 files of others: external data and filter plugins are refused
foreign      Zarr and HDF5 of other programs, used in place as a store
reader       a store on disk: chunks read and verified
disk_reads   bytes of units on disk: past the page cache, retried, checked
views        stores in memory, and some rows or chunks of another store
generators   data sets made of random numbers
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamsvm.aliases import Handle
from streamsvm.errors import ExistsError, SecurityError
from streamsvm.registry import Registry

if TYPE_CHECKING:
    from streamsvm.store.format.arrays import Encoding
    from streamsvm.store.write.writer import StoreWriter
    from streamsvm.types import Chunk, Store, StoredFiles

STORES = Registry(
    "store",
    {
        "zarr": "streamsvm.store.zarr:open_zarr",
        "hdf5": "streamsvm.store.hdf5:open_hdf5",
        "memory": "streamsvm.store.views:MemoryStore",
    },
)
"""By format, what opens a store once its manifest is read; ``memory`` is the format of a store that is not on disk."""
BACKENDS = Registry(
    "store format", {"zarr": "streamsvm.store.zarr:ZarrBackend", "hdf5": "streamsvm.store.hdf5:HDF5Backend"}
)
"""By format, what writes a store (``store.write.writer.StoreBackend``)."""
SUFFIXES = {".h5": "hdf5", ".hdf5": "hdf5", ".h5store": "hdf5"}
"""The file names that choose a format; every other name is a Zarr store."""


def open_store(
    path: Path | str,
    *,
    features_key: str = "X",
    labels_key: str = "y",
    allow_fill: bool = False,
    memory_limit: int | None = None,
) -> StoredFiles:
    """Open a committed store, or arrays that another program wrote, which are read in place.

    ``features_key`` and ``labels_key`` name the arrays of a foreign file; with ``allow_fill`` chunks of it that were
    never written are taken for its fill value. ``memory_limit`` are the bytes there are; None asks nothing. Raises
    MissingError, DataError, SecurityError, BudgetError.
    """
    from streamsvm.store.foreign import foreign_format
    from streamsvm.store.format import manifest

    root = Path(path)
    if foreign_format(root) is not None:
        from streamsvm.store.foreign.matrices import Keys
        from streamsvm.store.foreign.store import ForeignStore

        return ForeignStore(root, Keys(features_key, labels_key, allow_fill=allow_fill))
    found = manifest.read(root, memory_limit)
    store: StoredFiles = STORES[found.store](root, found)
    return store


def create(
    path: Path,
    *,
    sparse: bool,
    chunk_bytes: int = 4 << 20,
    overwrite: bool = False,
    encoding: Encoding | None = None,
    store_format: str | None = None,
    compression: str = "none",
) -> StoreWriter:
    """Return a writer for a new store at ``path``.

    ``chunk_bytes`` is the size of a chunk before compression, ``store_format`` a name of ``BACKENDS`` (None goes by the
    suffix). Raises ExistsError when something is there and ``overwrite`` is not set, or it is nothing that a store may
    replace; SecurityError for a link.
    """
    from streamsvm.outputs import ANY_STORE, refuse_foreign
    from streamsvm.store.format import manifest
    from streamsvm.store.write.writer import StoreWriter

    if path.is_symlink():
        raise SecurityError(f"{path} is a symbolic link", hint="name its target, or remove the link")
    if path.exists() and not overwrite:
        raise ExistsError(f"{path} exists already", hint="choose another name, or pass --overwrite")
    refuse_foreign(path, ANY_STORE)
    name = store_format or SUFFIXES.get(path.suffix, "zarr")
    if name == "hdf5" and compression == "auto":
        compression = "none"
    backend = BACKENDS[name]()
    replaces = (path / manifest.FILE).exists()
    return StoreWriter(path, sparse, chunk_bytes, backend, replaces, encoding, compression)


def read_chunk(store: Store, chunk: int, into: Handle) -> Chunk:
    """Fetch and check one chunk, for callers that read without a reader thread. Raises DataError, StorageError."""
    store.fetch(chunk, into)
    return store.check(chunk, into)
