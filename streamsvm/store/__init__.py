"""Chunked stores, and the sources that data is read from; no other package knows a file format.

sources      read files and objects of all formats as batches of rows
write        write rows as chunks: shuffle, resume, commit
format       what a store consists of: manifest, arrays, labels, statistics
zarr         the Zarr store
hdf5         the HDF5 store
hdf5_checks  open HDF5 files of other programs; refuse external data and filter plugins
remote       read a store in an object store
remote_writes  write a store to an object store
chunk_cache  keep parts of stores in object stores on this machine
foreign      Zarr and HDF5 files of other programs, read in place as a store
reader       read and verify the chunks of a store on disk
disk_reads   read bytes of units from disk: bypass the page cache, retry, verify checksums
views        stores in memory, and views of some rows or chunks of another store
generators   data sets of random numbers
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamsvm.errors import ExistsError, SecurityError, UsageError
from streamsvm.input_files import find_url
from streamsvm.registry import Registry
from streamsvm.type_aliases import Handle
from streamsvm.working_copies import find_working_folder

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
"""The function or class that opens a store whose manifest has been read, by format; ``memory``: a store in memory."""
BACKENDS = Registry(
    "store format", {"zarr": "streamsvm.store.zarr:ZarrBackend", "hdf5": "streamsvm.store.hdf5:HDF5Backend"}
)
"""The class that writes a store (a ``store.write.writer.StoreBackend``), by format."""
SUFFIXES = {".h5": "hdf5", ".hdf5": "hdf5", ".h5store": "hdf5"}
"""The store format that a file name suffix chooses; every other name is a Zarr store."""


def open_store(
    path: Path | str,
    *,
    features_key: str = "X",
    labels_key: str = "y",
    allow_fill: bool = False,
    memory_limit: int | None = None,
    disk_cache: int = 0,
) -> StoredFiles:
    """Open a committed store, also one at the URL of an object store, or a Zarr or HDF5 file of another program, which is read in place.

    ``features_key`` and ``labels_key`` name the arrays of a foreign file; with ``allow_fill`` its chunks that were
    never written are read as its fill value. ``memory_limit``: bytes that reading the manifest may take; None does not
    limit it. ``disk_cache``: bytes of stores in object stores that are kept on this machine for later passes. Raises MissingError, DataError,
    SecurityError, BudgetError.
    """
    from streamsvm.store.foreign import foreign_format
    from streamsvm.store.format import manifest

    if (url := find_url(path)) is not None:
        from streamsvm.store.remote import open_remote

        return open_remote(url, memory_limit, disk_cache)
    root = Path(path)
    if foreign_format(root) is not None:
        from streamsvm.store.foreign.matrices import Keys
        from streamsvm.store.foreign.store import ForeignStore

        return ForeignStore(root, Keys(features_key, labels_key, allow_fill=allow_fill))
    description = manifest.read(root, memory_limit)
    store: StoredFiles = STORES[description.store](root, description)
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

    ``chunk_bytes`` is the size of a chunk before compression, ``store_format`` a name of ``BACKENDS`` (None: chosen by
    the suffix of ``path``). Raises ExistsError if ``path`` exists and ``overwrite`` is not set, or if it is not a store
    and so must not be replaced; SecurityError if it is a symbolic link.
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
    if (folder := find_working_folder(path)) is not None:
        from streamsvm.store.remote_writes import UploadingZarrBackend

        if name != "zarr":
            raise UsageError(
                f"{folder.url} cannot be a store of {name}", hint="in an object store only Zarr stores are written"
            )
        return StoreWriter(path, sparse, chunk_bytes, UploadingZarrBackend(), False, encoding, compression)
    backend = BACKENDS[name]()
    replaces = (path / manifest.FILE).exists()
    return StoreWriter(path, sparse, chunk_bytes, backend, replaces, encoding, compression)


def read_chunk(store: Store, chunk: int, into: Handle) -> Chunk:
    """Fetch and verify one chunk in the caller's thread. Raises DataError, StorageError."""
    store.fetch(chunk, into)
    return store.check(chunk, into)
