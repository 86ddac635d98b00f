"""Read a store in an object store: units into the buffers of the reader, verified as they arrive and asked for again if damaged.

The manifest is read first. The statistics, and the labels and weights of chunks once they have been read, are kept in a folder of this
machine (``chunk_cache``): they are small, and would otherwise be half of the requests of a pass. Features are kept there, too, as far as
the user allows.

Every array of a chunk is compared with its checksum before ``fetch`` returns, because no client of object stores notices a changed bit. A
range that arrives ``EQUAL_TRIES`` times with the same wrong checksum is damaged where it is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from crc32c import crc32c

from streamsvm.errors import DataError, MissingError, UsageError
from streamsvm.object_store import note_retry, read_object, read_range
from streamsvm.store.chunk_cache import LABEL_BYTES, ChunkCache
from streamsvm.store.disk_reads import Segment, find_segments
from streamsvm.store.format import compression, statistics
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.arrays import INDPTR, MATRIX, Buffer
from streamsvm.store.format.manifest import Manifest
from streamsvm.store.format.row_ids import FILE as IDS_FILE
from streamsvm.store.format.row_ids import GROUP_ROWS, IdReader
from streamsvm.store.reader import DiskStore, ItemRange
from streamsvm.store.zarr import make_part, metadata_of

DAMAGED_TRIES, EQUAL_TRIES = 8, 3
LARGEST_IDS = 1 << 40
"""The largest file of row ids that is copied to this machine."""
_Result = TypeVar("_Result")


def open_remote(url: str, memory_limit: int | None = None, disk_cache: int = 0) -> RemoteStore:
    """Open a committed Zarr store at the URL of its folder.

    ``memory_limit``: bytes that reading the manifest may take; None does not limit it. ``disk_cache``: bytes of all stores that may be kept
    on this machine; 0: labels and weights only. Raises MissingError, DataError, UsageError,
    SecurityError, BudgetError, StorageError.
    """
    manifest, name = _read_manifest(url, memory_limit)
    if manifest.store != "zarr":
        message = f"{url} is a store in the format {manifest.store}; in an object store only Zarr stores are read"
        raise UsageError(message, hint="ingest into NAME.zarr, or copy it to this machine")
    return RemoteStore(url, manifest, ChunkCache(name, url, disk_cache or LABEL_BYTES), keep_features=disk_cache > 0)


def _read_manifest(url: str, memory_limit: int | None) -> tuple[Manifest, str]:
    """Return the manifest and the first digits of its sha256."""
    where = f"{url}/{manifests.FILE}"

    def check(size: int) -> None:
        if memory_limit is not None:
            manifests.check_memory(where, size, memory_limit)

    for tries_left in reversed(range(DAMAGED_TRIES)):
        try:
            raw = read_object(where, manifests.MAX_MANIFEST_BYTES, check)
        except MissingError as error:
            hint = "name the folder of a store; files of rows are ingested first: streamsvm ingest URL STORE"
            raise MissingError(f"there is no store at {url}", hint=hint) from error
        try:
            return manifests.parse(raw, url), hashlib.sha256(raw).hexdigest()[:32]
        except DataError:
            if not tries_left:
                raise
            note_retry()
    raise AssertionError("unreachable: the last try returns or raises")


class RemoteStore(DiskStore):
    """A committed store in an object store; a ``types.StoredFiles``. ``root`` is the folder of this machine with its small files."""

    verifies_arrivals = True

    def __init__(self, url: str, manifest: Manifest, cache: ChunkCache, *, keep_features: bool) -> None:
        """``keep_features``: whether ``cache`` keeps features as well as labels and weights."""
        super().__init__(cache.folder, manifest, [make_part(url, manifest)], metadata_of(manifest))
        self.name, self._cache, self._keep_features = url, cache, keep_features
        self.layout = replace(self.layout, remote=True)

    def __reduce__(self) -> Any:
        """Pickle the URL only; the receiving process opens the store again, with its own credentials."""
        from streamsvm.store import open_store

        return open_store, (self.name,)

    def statistics(self) -> statistics.Statistics:
        """Return the column statistics over all rows. Raises DataError, StorageError."""
        return self._read_copy(statistics.FILE, statistics.file_bytes(self.layout.columns), super().statistics)

    def folder_of_ids(self) -> Path:
        """Copy the file of row ids to ``root``, unless it is there undamaged, and return this folder.

        Raises DataError, StorageError.
        """
        self._read_copy(IDS_FILE, LARGEST_IDS, self._check_ids)
        return self.root

    def _check_ids(self) -> None:
        """Read all row ids, a group of rows at a time. Raises DataError."""
        reader = IdReader(self.root)
        for start in range(0, self.layout.rows, GROUP_ROWS):
            reader.read(start, min(start + GROUP_ROWS, self.layout.rows))

    def _read_copy(self, file: str, limit: int, read: Callable[[], _Result]) -> _Result:
        """Return the result of ``read``, which reads a file in ``root``; copy the file from the store while that fails.

        ``limit``: the most bytes of the file.
        """
        for _ in range(DAMAGED_TRIES - 1):
            try:
                return read()
            except DataError:
                self._cache.copy_file(f"{self.name}/{file}", file, limit)
        return read()

    def faults(self) -> Iterator[DataError]:
        """Yield the faults of objects other than chunks, without raising them."""
        for name, content in self._metadata.items():
            url = f"{self.name}/{name}"
            try:
                is_intact = any(read_object(url, len(content)) == content for _ in range(DAMAGED_TRIES))
            except (DataError, MissingError):
                is_intact = False
            if not is_intact:
                yield DataError(
                    f"{url} is missing or not what was written", code="E-META", hint="copy the store there again"
                )
        try:
            self.statistics()
        except DataError as error:
            yield error

    def expect(self, chunk: int) -> None:
        """Do nothing: chunks are asked for ahead of time by the reader."""

    def forget(self, chunk: int) -> None:
        """Do nothing: there are no pages to drop."""

    def read_array(self, chunk: int, name: str, items: ItemRange, into: Buffer) -> None:
        """Read one array of a chunk and verify it. Raises DataError, StorageError."""
        packed = items.array.packed
        buffer = into.arrays[compression.buffer_name(name) if packed else name]
        segments = find_segments(items.array.spec, items.start, items.padded_stop)
        nbytes = sum(items.array.place(s.unit).nbytes for s in segments) if packed else items.nbytes
        view = memoryview(buffer)[:nbytes]
        kept = self._keep_features or not name.startswith(MATRIX)
        if kept and self._cache.read(name, chunk, view):
            try:
                return self._check_arrival(chunk, name, items, into)
            except DataError:
                self._cache.drop(name, chunk)
        faults: list[str] = []
        while True:
            self._ask(items, segments, view)
            try:
                self._check_arrival(chunk, name, items, into)
                break
            except DataError as error:
                faults.append(error.message)
                if len(faults) == DAMAGED_TRIES or faults.count(error.message) == EQUAL_TRIES:
                    raise
                note_retry()
        if kept:
            self._cache.keep(name, chunk, view)
        return None

    def _ask(self, items: ItemRange, segments: list[Segment], view: memoryview) -> None:
        """Read the segments of units into ``view``, one after the other; compressed units are read whole."""
        filled = 0
        for segment in segments:
            place = items.array.place(segment.unit)
            offset, nbytes = (0, place.nbytes) if items.array.packed else (segment.offset, segment.nbytes)
            try:
                read_range(place.path, place.offset + offset, view[filled : filled + nbytes], place.file_bytes)
            except MissingError as error:
                hint = "copy the store there again"
                raise DataError(f"{place.path} is missing", code="E-CHUNKS", hint=hint) from error
            filled += nbytes

    def _check_arrival(self, chunk: int, name: str, items: ItemRange, into: Buffer) -> None:
        """Raise DataError E-CRC unless the bytes that arrived for one array are those that were written."""
        if name == INDPTR:
            based = into.arrays[name][: items.nbytes].copy()  # the checksum is that of an array that begins with 0
            offsets = based[: items.real_bytes].view(np.int64)
            offsets -= offsets[0]
            return self._verify(chunk, name, items, Buffer({name: based}))
        if not items.array.packed:
            return self._verify(chunk, name, items, into)
        packed, filled = memoryview(into.arrays[compression.buffer_name(name)]), 0
        for segment in find_segments(items.array.spec, items.start, items.stop):
            place = items.array.place(segment.unit)
            crc = crc32c(packed[filled : filled + place.nbytes])
            if crc != place.crc:
                message = f"{place.path} is corrupt: crc32c {crc:08x}, expected {place.crc:08x}"
                raise DataError(message, code="E-CRC", hint="copy the store there again")
            filled += place.nbytes
        return None
