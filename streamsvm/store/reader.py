"""Read a committed store of any format from a local disk: ``preadv`` into buffers, verify, return as rows."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c

from streamsvm.config.units import size_text
from streamsvm.errors import BudgetError, DataError
from streamsvm.input_files import read_whole
from streamsvm.registry import load
from streamsvm.rows import CSR, Dense, Rows
from streamsvm.store.disk_reads import UnitArray, advise, pad_stop, read_range
from streamsvm.store.format import compression, statistics
from streamsvm.store.format.arrays import ENTRIES, INDPTR, MATRIX, Buffer, encoding_of, page_aligned
from streamsvm.store.format.manifest import ChunkEntry, Manifest
from streamsvm.type_aliases import JsonObject
from streamsvm.types import Chunk, Layout, Statistics

DECODED = "decoded"
"""The name of the buffer into which the features of an encoded chunk are decoded."""
HINT = "restore the file, or ingest again"


class Part(NamedTuple):
    """Consecutive chunks that have their own arrays: all chunks of a Zarr store, or those of a part file of HDF5."""

    chunks: int
    arrays: dict[str, UnitArray]


class ItemRange(NamedTuple):
    """The items of an array that belong to a chunk."""

    array: UnitArray
    start: int
    stop: int
    """The end of the chunk's items."""
    padded_stop: int
    """The end of the items that are read. An array is stored in units of equal size (``UnitArray``), the last one padded;
    for the last chunk of a part, the padding is read, too."""

    @property
    def nbytes(self) -> int:
        """Bytes of the items, padding included."""
        return (self.padded_stop - self.start) * self.array.spec.item_bytes

    @property
    def real_bytes(self) -> int:
        """Bytes of the items without padding."""
        return (self.stop - self.start) * self.array.spec.item_bytes


def _has_content(path: Path, content: bytes) -> bool:
    """Return whether a path is a regular file with exactly this content."""
    try:
        return read_whole(path, len(content)) == content
    except (OSError, DataError):
        return False


CARD = "streamsvm.display.html:build_card"
"""The function that builds the HTML by which a notebook displays an object."""


class DisplayedStore:
    """Base class of stores on disk: their text in terminals and notebooks."""

    name: str
    layout: Layout

    def __repr__(self) -> str:
        summary = self._summary()
        size = f"{summary['rows']} rows x {summary['columns']} columns"
        return f"<{type(self).__name__} {self.name}: {size}, {summary['kind']}>"

    def _repr_html_(self) -> str:
        """Return the summary of the store as HTML for a notebook."""
        return str(load(CARD)(self.name, self._summary()))

    def _summary(self) -> dict[str, str]:
        """Return the size, the kind and the labels of the store as short texts by name."""
        layout = self.layout
        shares = [
            f"{name} {count / layout.rows:.1%}" for name, count in zip(layout.classes, layout.counts, strict=False)
        ]
        return {
            "rows": str(layout.rows),
            "columns": str(layout.columns),
            "kind": layout.kind,
            "labels": ", ".join(shares[:4]) + (f", ... ({len(shares)})" if len(shares) > 4 else "") or "numbers",
        }


class DiskStore(DisplayedStore):
    """A committed store, written by streamsvm, on a local disk; a ``types.StoredFiles``.

    Its methods raise DataError and StorageError that name the chunk.
    """

    verifies_arrivals = False
    """Whether ``fetch`` has compared arrays that are not compressed with their checksums already."""

    def __init__(
        self, root: Path, manifest: Manifest, parts: list[Part], metadata: Mapping[str, bytes] | None = None
    ) -> None:
        """``metadata``: the expected content, by name, of files that only other programs need; we only check them."""
        self.root, self._metadata = root, metadata or {}
        self.name = str(root)
        self.manifest = manifest
        self.layout = manifest.layout()
        self.digest = manifest.digest
        self._parts = parts
        self._bypass_cache = False
        self._part_starts = np.cumsum([0, *(part.chunks for part in parts)]).tolist()
        self._encoding = encoding_of(manifest.kind, manifest.columns, manifest.facts)
        self._row_starts = self.layout.starts
        self._entry_starts = np.concatenate([[0], np.cumsum(self.layout.nonzeros or [0])]).tolist()
        if self._part_starts[-1] != len(self.layout.chunks):
            held, listed = self._part_starts[-1], len(self.layout.chunks)
            message = f"the parts of {root} hold {held} chunks, but its manifest lists {listed}"
            raise DataError(message, code="E-META", hint=HINT)
        if any(not self._parts[0].arrays.keys() <= chunk.crc.keys() for chunk in manifest.chunks):
            raise DataError(f"the manifest of {root} lacks checksums of chunks", code="E-META", hint=HINT)

    def __reduce__(self) -> Any:
        """Pickle the path only; the receiving process opens the store again."""
        from streamsvm.store import open_store

        return open_store, (self.root,)

    @property
    def census(self) -> list[list[int]]:
        """Rows of each class in each chunk."""
        return [chunk.counts for chunk in self.manifest.chunks]

    @property
    def selection(self) -> None:
        """None: the store is not a selection of another store's chunks."""

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the programs that wrote the store, by program."""
        return self.manifest.versions

    @property
    def facts(self) -> JsonObject:
        """The facts that ingest recorded about the sources."""
        return self.manifest.facts

    def folder_of_ids(self) -> Path:
        """Return the folder with the file of row ids."""
        return self.root

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows. Raises DataError."""
        return statistics.read(self.root, self.manifest.statistics, self.manifest.columns)

    def faults(self) -> Iterator[DataError]:
        """Yield the faults of files other than chunks, without raising them."""
        for name, content in self._metadata.items():
            path = self.root / name
            if not _has_content(path, content):
                hint = "run the 'streamsvm ingest' command that made the store again, with --repair"
                yield DataError(f"{path} is missing or not what was written", code="E-META", hint=hint)
        try:
            self.statistics()
        except DataError as error:
            yield error

    def buffers(self) -> Buffer:
        """Return new memory for any one chunk. Raises BudgetError if the system has none left."""
        try:
            return Buffer({name: page_aligned(size) for name, size in self._buffer_bytes.items()})
        except MemoryError as error:
            needed = size_text(sum(self._buffer_bytes.values()))
            raise BudgetError(
                f"a chunk of {self.root} takes {needed}, and the system gives this process no more memory",
                hint="ingest with smaller chunks (--chunk), or raise the limit of the address space (ulimit -v)",
            ) from error

    def fetch(self, chunk: int, into: Buffer) -> None:
        """Read the bytes of ``chunk`` into ``into``. Raises DataError, StorageError."""
        try:
            for name, items in self.ranges(chunk).items():
                self.read_array(chunk, name, items, into)
        except DataError as error:
            where = self._describe(chunk)
            if error.message.startswith(where):
                raise
            raise DataError(f"{where}: {error.message}", code=error.code, hint=error.hint) from error

    def read_array(self, chunk: int, name: str, items: ItemRange, into: Buffer) -> None:
        """Read the bytes of one array of a chunk. Raises DataError, StorageError."""
        if items.array.packed:
            compression.read_units(items.array, items.start, items.stop, into.arrays[compression.buffer_name(name)])
            return
        view = memoryview(into.arrays[name])[: items.nbytes]
        bypass_cache = self._bypass_cache and name.startswith(MATRIX)
        read_range(items.array, items.start, items.padded_stop, view, bypass_cache=bypass_cache)

    def check(self, chunk: int, into: Buffer) -> Chunk:
        """Unpack and verify the bytes that ``fetch`` read, unless it has verified them, and return them as rows. Raises DataError."""
        entry = self.manifest.chunks[chunk]
        for name, items in self.ranges(chunk).items():
            if items.array.packed:
                self._unpack(chunk, name, items, into)
            if name == INDPTR:
                indptr = self._view(into, name)[: entry.rows + 1]
                np.subtract(indptr, indptr[0], out=indptr)
            if items.array.packed or not self.verifies_arrivals:
                self._verify(chunk, name, items, into)
        weight = self._view(into, "weight")[: entry.rows] if "weight" in self.manifest.units else None
        return Chunk(self._rows(entry, into), self._view(into, "y")[: entry.rows], weight)

    def expect(self, chunk: int) -> None:
        """Tell the kernel that ``chunk`` is read next."""
        if chunk < len(self.layout.chunks) and not self._bypass_cache:
            self._advise(chunk, os.POSIX_FADV_WILLNEED)

    def forget(self, chunk: int) -> None:
        """Tell the kernel to drop the pages of ``chunk`` from the page cache.

        Callers do so when they read more than the cache holds; from the first call on, features are therefore read past
        the cache.
        """
        if not self._bypass_cache:
            self._advise(chunk, os.POSIX_FADV_DONTNEED)
            self._bypass_cache = True

    def _advise(self, chunk: int, advice: int) -> None:
        for name, items in self.ranges(chunk).items():
            if name.startswith(MATRIX):
                advise(items.array, items.start, items.padded_stop, advice)

    def _unpack(self, chunk: int, name: str, items: ItemRange, into: Buffer) -> None:
        try:
            packed, scratch = into.arrays[compression.buffer_name(name)], into.arrays[compression.SCRATCH]
            compression.unpack(items.array, items.start, items.stop, (packed, scratch, into.arrays[name]))
        except DataError as error:
            raise DataError(f"{self._describe(chunk)}: {error.message}", code=error.code, hint=error.hint) from error

    def _verify(self, chunk: int, name: str, items: ItemRange, into: Buffer) -> None:
        """Raise DataError E-CRC unless one array has the manifest's checksum and its padding is zeros."""
        values, expected = into.arrays[name], self.manifest.chunks[chunk].crc[name]
        crc = crc32c(values[: items.real_bytes])
        if crc != expected:
            message = f"{self._describe(chunk)} is corrupt in '{name}': crc32c {crc:08x}, expected {expected:08x}"
            raise DataError(message, code="E-CRC", hint=HINT)
        if not items.array.packed and values[items.real_bytes : items.nbytes].any():
            message = f"{self._describe(chunk)} is corrupt in '{name}': the padding after it is not zeros"
            raise DataError(message, code="E-CRC", hint=HINT)

    @cached_property
    def _buffer_bytes(self) -> dict[str, int]:
        """The bytes of each buffer, large enough for any chunk."""
        sizes: dict[str, int] = {}
        for chunk in range(len(self.layout.chunks)):
            for name, items in self.ranges(chunk).items():
                needed = {name: items.nbytes}
                if items.array.packed:
                    needed |= compression.buffer_bytes(items.array, items.start, items.stop)
                sizes |= {key: max(size, sizes.get(key, 0)) for key, size in needed.items()}
        decoded = {} if self._encoding is None else {DECODED: self.layout.largest_chunk * self.layout.columns * 4}
        return sizes | decoded

    def ranges(self, chunk: int) -> dict[str, ItemRange]:
        """Return the items of each array that belong to a chunk; those of a part's last chunk include the padding."""
        number = bisect_right(self._part_starts, chunk) - 1
        part, first = self._parts[number], self._part_starts[number]
        is_last = chunk == self._part_starts[number + 1] - 1
        ranges = {}
        for name, array in part.arrays.items():
            starts = self._entry_starts if name in ENTRIES else self._row_starts
            start, stop = starts[chunk] - starts[first], starts[chunk + 1] - starts[first] + (name == INDPTR)
            ranges[name] = ItemRange(array, start, stop, pad_stop(array.spec, stop) if is_last else stop)
        return ranges

    def _describe(self, chunk: int) -> str:
        """Return the name of a chunk in messages."""
        first = self._row_starts[chunk]
        return f"chunk {chunk} of store '{self.name}' (rows {first}-{self._row_starts[chunk + 1] - 1})"

    def _view(self, into: Buffer, name: str) -> Any:
        return into.arrays[name].view(self._parts[0].arrays[name].spec.dtype)

    def _rows(self, entry: ChunkEntry, into: Buffer) -> Rows:
        if entry.nonzeros is None:
            size = entry.rows * self.layout.columns
            values = self._view(into, MATRIX)[:size].reshape(-1, self.layout.columns)
            if self._encoding is None:
                return Dense(values)
            decoded = into.arrays[DECODED].view(np.float32)[:size].reshape(values.shape)
            self._encoding.decode(values, decoded)
            return Dense(decoded)
        data, indices = (self._view(into, name)[: entry.nonzeros] for name in ENTRIES)
        return CSR(data, indices, self._view(into, INDPTR)[: entry.rows + 1])
