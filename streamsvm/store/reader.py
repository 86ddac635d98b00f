"""A committed store on a local disk, of any format: bytes by ``preadv`` into our own buffers, verified, as rows."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c

from streamsvm.aliases import JsonObject
from streamsvm.config.units import size_text
from streamsvm.errors import BudgetError, DataError
from streamsvm.input_files import read_whole
from streamsvm.registry import load
from streamsvm.rows import CSR, Dense, Rows
from streamsvm.store.disk_reads import UnitArray, advise, pad_stop, read_range
from streamsvm.store.format import compression, statistics
from streamsvm.store.format.arrays import ENTRIES, INDPTR, MATRIX, Buffer, encoding_of, page_aligned
from streamsvm.store.format.manifest import ChunkEntry, Manifest
from streamsvm.types import Chunk, Layout, Statistics

DECODED = "decoded"
"""The name of the buffer in which an encoded chunk is turned into float32."""
HINT = "restore the file, or ingest again"


class Part(NamedTuple):
    """Some chunks in arrays of their own: all of a Zarr store, or one file of an HDF5 store."""

    chunks: int
    arrays: dict[str, UnitArray]


class ItemRange(NamedTuple):
    """Items of an array that belong to a chunk."""

    array: UnitArray
    start: int
    stop: int
    """The end of the chunk's items."""
    padded: int
    """The end of what is read: after the last chunk of a part, the padding of its last unit is read too."""

    @property
    def nbytes(self) -> int:
        """Bytes of the items, padding included."""
        return (self.padded - self.start) * self.array.spec.item_bytes

    @property
    def real_bytes(self) -> int:
        """Bytes of the items without padding."""
        return (self.stop - self.start) * self.array.spec.item_bytes


def _holds(path: Path, content: bytes) -> bool:
    """Whether a regular file has just this content."""
    try:
        return read_whole(path, len(content)) == content
    except (OSError, DataError):
        return False


CARD = "streamsvm.display.html:build_card"
"""Function that makes what a notebook shows of an object."""


class ShownStore:
    """A store on disk as terminals and notebooks show it."""

    name: str
    layout: Layout

    def __repr__(self) -> str:
        found = self._summary()
        return (
            f"<{type(self).__name__} {self.name}: {found['rows']} rows x {found['columns']} columns, {found['kind']}>"
        )

    def _repr_html_(self) -> str:
        """Return what the store holds, for a notebook."""
        return str(load(CARD)(self.name, self._summary()))

    def _summary(self) -> dict[str, str]:
        """Return what the store holds as short texts by name."""
        layout = self.layout
        shares = [
            f"{name} {count / layout.rows:.1%}" for name, count in zip(layout.classes, layout.counts, strict=False)
        ]
        return {
            "rows": str(layout.rows),
            "columns": str(layout.columns),
            "kind": "dense" if layout.dense else "csr",
            "labels": ", ".join(shares[:4]) + (f", ... ({len(shares)})" if len(shares) > 4 else "") or "numbers",
        }


class DiskStore(ShownStore):
    """A committed store of ours on a local disk; see ``types.StoredFiles``.

    It raises DataError and StorageError that name the chunk.
    """

    def __init__(
        self, root: Path, manifest: Manifest, parts: list[Part], beside: Mapping[str, bytes] | None = None
    ) -> None:
        """``beside``: what files must hold that only other programs read."""
        self.root, self._beside = root, beside or {}
        self.name = str(root)
        self.manifest = manifest
        self.layout = manifest.layout()
        self.digest = manifest.digest
        self._parts = parts
        self._past_cache = False
        self._first = np.cumsum([0, *(part.chunks for part in parts)]).tolist()
        self._encoding = encoding_of(manifest.kind, manifest.columns, manifest.facts)
        self._row_start = self.layout.starts
        self._entry_start = np.concatenate([[0], np.cumsum(self.layout.nonzeros or [0])]).tolist()
        if self._first[-1] != len(self.layout.chunks):
            raise DataError(f"the parts of {root} do not hold its chunks", code="E-META", hint=HINT)
        if any(not self._parts[0].arrays.keys() <= chunk.crc.keys() for chunk in manifest.chunks):
            raise DataError(f"the manifest of {root} lacks checksums of chunks", code="E-META", hint=HINT)

    def __reduce__(self) -> Any:
        """Another process opens the store again: what travels is its path."""
        from streamsvm.store import open_store

        return open_store, (self.root,)

    @property
    def census(self) -> list[list[int]]:
        """Rows of each class in each chunk."""
        return [chunk.counts for chunk in self.manifest.chunks]

    @property
    def selection(self) -> None:
        """None: all chunks, as they are."""

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the programs that wrote it."""
        return self.manifest.versions

    @property
    def facts(self) -> JsonObject:
        """What ingest recorded of the sources."""
        return self.manifest.facts

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows; see ``types.Store.statistics``."""
        return statistics.read(self.root, self.manifest.statistics, self.manifest.columns)

    def faults(self) -> Iterator[DataError]:
        """Yield all that is wrong beside the chunks, without raising it."""
        for name, content in self._beside.items():
            path = self.root / name
            if not _holds(path, content):
                hint = "run the 'streamsvm ingest' it was made by again, with --repair"
                yield DataError(f"{path} is missing or not what was written", code="E-META", hint=hint)
        try:
            self.statistics()
        except DataError as error:
            yield error

    def buffers(self) -> Buffer:
        """Return new memory for one chunk; see ``types.Store.buffers``. Raises BudgetError where the system gives none."""
        try:
            return Buffer({name: page_aligned(size) for name, size in self._buffer_bytes.items()})
        except MemoryError as error:
            needed = size_text(sum(self._buffer_bytes.values()))
            raise BudgetError(
                f"a chunk of {self.root} takes {needed}, and the system gives this process no more memory",
                hint="ingest with smaller chunks (--chunk), or raise the limit of the address space (ulimit -v)",
            ) from error

    def fetch(self, chunk: int, into: Buffer) -> None:
        """Read the bytes of ``chunk`` into ``into``; see ``types.Store.fetch``."""
        try:
            for name, found in self.ranges(chunk).items():
                if found.array.packed:
                    compression.read_units(
                        found.array, found.start, found.stop, into.arrays[compression.packed_name(name)]
                    )
                else:
                    view = memoryview(into.arrays[name])[: found.nbytes]
                    past = self._past_cache and name.startswith(MATRIX)
                    read_range(found.array, found.start, found.padded, view, past_cache=past)
        except DataError as error:
            raise DataError(f"{self._where(chunk)}: {error.message}", code=error.code, hint=error.hint) from error

    def check(self, chunk: int, into: Buffer) -> Chunk:
        """Verify what was fetched and return it as rows; see ``types.Store.check``."""
        entry = self.manifest.chunks[chunk]
        for name, found in self.ranges(chunk).items():
            if found.array.packed:
                self._unpack(chunk, name, found, into)
            if name == INDPTR:
                indptr = self._view(into, name)[: entry.rows + 1]
                np.subtract(indptr, indptr[0], out=indptr)
            self._verify(chunk, name, found, into)
        weight = self._view(into, "weight")[: entry.rows] if "weight" in self.manifest.units else None
        return Chunk(self._rows(entry, into), self._view(into, "y")[: entry.rows], weight)

    def expect(self, chunk: int) -> None:
        """Hint that ``chunk`` is read next; see ``types.Store.expect``."""
        if chunk < len(self.layout.chunks) and not self._past_cache:
            self._advise(chunk, os.POSIX_FADV_WILLNEED)

    def forget(self, chunk: int) -> None:
        """Hint that ``chunk`` is not needed soon, and is to leave no room in the page cache; see
        ``types.Store.forget``.

        Who says that reads more than the cache holds: from then on nothing is read through it.
        """
        if not self._past_cache:
            self._advise(chunk, os.POSIX_FADV_DONTNEED)
            self._past_cache = True

    def _advise(self, chunk: int, advice: int) -> None:
        for name, found in self.ranges(chunk).items():
            if name.startswith(MATRIX):
                advise(found.array, found.start, found.padded, advice)

    def _unpack(self, chunk: int, name: str, found: ItemRange, into: Buffer) -> None:
        try:
            stored, scratch = into.arrays[compression.packed_name(name)], into.arrays[compression.SCRATCH]
            compression.unpack(found.array, found.start, found.stop, (stored, scratch, into.arrays[name]))
        except DataError as error:
            raise DataError(f"{self._where(chunk)}: {error.message}", code=error.code, hint=error.hint) from error

    def _verify(self, chunk: int, name: str, found: ItemRange, into: Buffer) -> None:
        values, expected = into.arrays[name], self.manifest.chunks[chunk].crc[name]
        crc = crc32c(values[: found.real_bytes])
        if crc != expected:
            message = f"{self._where(chunk)} is corrupt in '{name}': crc32c {crc:08x}, expected {expected:08x}"
            raise DataError(message, code="E-CRC", hint=HINT)
        if not found.array.packed and values[found.real_bytes : found.nbytes].any():
            message = f"{self._where(chunk)} is corrupt in '{name}': the padding after it is not zeros"
            raise DataError(message, code="E-CRC", hint=HINT)

    @cached_property
    def _buffer_bytes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for chunk in range(len(self.layout.chunks)):
            for name, found in self.ranges(chunk).items():
                needed = {name: found.nbytes}
                if found.array.packed:
                    needed |= compression.buffer_bytes(found.array, found.start, found.stop)
                sizes |= {key: max(size, sizes.get(key, 0)) for key, size in needed.items()}
        decoded = {} if self._encoding is None else {DECODED: self.layout.largest_chunk * self.layout.columns * 4}
        return sizes | decoded

    def ranges(self, chunk: int) -> dict[str, ItemRange]:
        """What of each array belongs to a chunk, the padding of a part's last units included in its last chunk's."""
        number = bisect_right(self._first, chunk) - 1
        part, first, last = self._parts[number], self._first[number], chunk == self._first[number + 1] - 1
        found = {}
        for name, array in part.arrays.items():
            starts = self._entry_start if name in ENTRIES else self._row_start
            start, stop = starts[chunk] - starts[first], starts[chunk + 1] - starts[first] + (name == INDPTR)
            found[name] = ItemRange(array, start, stop, pad_stop(array.spec, stop) if last else stop)
        return found

    def _where(self, chunk: int) -> str:
        first = self._row_start[chunk]
        return f"chunk {chunk} of store '{self.name}' (rows {first}-{self._row_start[chunk + 1] - 1})"

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
