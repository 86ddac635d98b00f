"""The Zarr store: our own reader and writer for the layout we write, no zarr import on either path.

STORE/manifest.json                       written last
STORE/X/c.<i>.0                           dense: float32 rows
STORE/X/{data,indices,indptr}/c.<i>       CSR in the AnnData encoding
STORE/y/c.<i>  STORE/weight/c.<i>         int32 class codes, float32 row weights
"""

from __future__ import annotations

import os
import shutil
import uuid as uuids
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from crc32c import crc32c

from streamsvm import __version__, durable
from streamsvm.errors import DataError, ExistsError
from streamsvm.rows import CSR, Dense, Float32, Int32, Rows, row_count
from streamsvm.store import manifest as manifests
from streamsvm.store import metadata, statistics
from streamsvm.store.chunker import Chunker, Piece
from streamsvm.store.encoding import KINDS, Encoding, encoding_of
from streamsvm.store.manifest import ChunkEntry, Manifest
from streamsvm.store.units import UnitArray, UnitWriter, advise, padded_stop, read_range
from streamsvm.types import Chunk, Statistics

CODES = {"y": "int32", "weight": "float32"}
SPARSE = {"X/data": "float32", "X/indices": "int32", "X/indptr": "int64"}
DECODED = "decoded"
"""The buffer an encoded chunk is unpacked into."""
PAGE = 4096
MOMENTS = ("counts", "mean", "M2", "minimum", "maximum")
SYNC_EVERY = 16
"""Chunks between two fsync barriers: enough to let the disk stream, few enough to bound dirty pages."""


def arrays_of(
    root: Path, columns: int, chunk_rows: int, unit: int, names: list[str], *, dtype: str = "float32"
) -> dict[str, UnitArray]:
    """The arrays of a store by name. ``unit``: items per unit of CSR arrays; dense arrays have ``chunk_rows``."""
    types = CODES | SPARSE
    found = {}
    for name in names:
        if name == "X":
            found[name] = UnitArray(root / name, dtype, columns, chunk_rows)
        else:
            found[name] = UnitArray(root / name, types[name], 0, unit)
    return found


@dataclass(slots=True)
class Buffer:
    """Memory for one chunk: a flat array of bytes per array of the store."""

    arrays: dict[str, Any]

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays.values())


def page_aligned(nbytes: int) -> Any:
    """Uninitialised bytes that begin where a page does: the kernel copies whole pages faster than pieces of two."""
    spare = np.empty(nbytes + PAGE, np.uint8)
    start = -spare.ctypes.data % PAGE
    return spare[start : start + nbytes]


class ZarrStore:
    """A committed store on a local disk. See ``types.Store``; raises DataError and StorageError naming the chunk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = str(root)
        self.manifest = manifests.read(root)
        self.layout = self.manifest.layout()
        self.digest = self.manifest.digest
        names = list(self.manifest.units)
        m = self.manifest
        self._encoding = encoding_of(m.kind, m.columns, m.facts)
        dtype = KINDS.get(m.kind, "float32")
        self._arrays = arrays_of(root, m.columns, m.chunk_rows, unit_of(m.kind, m.chunk_rows), names, dtype=dtype)
        self._row_start = np.concatenate([[0], np.cumsum(self.layout.chunks)]).tolist()
        self._entry_start = np.concatenate([[0], np.cumsum(self.layout.nonzeros or [0])]).tolist()

    @property
    def facts(self) -> dict[str, Any]:
        """What ingest recorded of the sources."""
        return self.manifest.facts

    def statistics(self) -> Statistics:
        return statistics.read(self.root, self.manifest.statistics)

    def buffers(self) -> Buffer:
        sizes = self._buffer_bytes
        decoded = {} if self._encoding is None else {DECODED: self._arrays["X"].width * 4 * self.manifest.chunk_rows}
        return Buffer({name: page_aligned(size) for name, size in (sizes | decoded).items()})

    def fetch(self, chunk: int, into: Buffer) -> None:
        for name, array in self._arrays.items():
            start, stop = self._range(chunk, name)
            view = memoryview(into.arrays[name])[: (stop - start) * array.item_bytes]
            try:
                read_range(array, start, stop, view, self.manifest.units[name])
            except DataError as error:
                raise DataError(f"{self._where(chunk)}: {error.message}", code=error.code, hint=error.hint) from error

    def check(self, chunk: int, into: Buffer) -> Chunk:
        entry = self.manifest.chunks[chunk]
        for name, array in self._arrays.items():
            start, stop = self._range(chunk, name)
            found = crc32c(into.arrays[name][: (stop - start) * array.item_bytes])
            if found != entry.crc[name]:
                message = (
                    f"{self._where(chunk)} is corrupt in '{name}': crc32c {found:08x}, expected {entry.crc[name]:08x}"
                )
                raise DataError(message, code="E-CRC", hint="restore the file, or ingest again")
        weight = self._view(into, "weight")[: entry.rows] if "weight" in self._arrays else None
        return Chunk(self._rows(entry, into), self._view(into, "y")[: entry.rows], weight)

    def expect(self, chunk: int) -> None:
        if chunk < len(self.layout.chunks):
            self._advise(chunk, os.POSIX_FADV_WILLNEED)

    def forget(self, chunk: int) -> None:
        self._advise(chunk, os.POSIX_FADV_DONTNEED)

    def _advise(self, chunk: int, advice: int) -> None:
        for name, array in self._arrays.items():
            if name.startswith("X"):
                advise(array, *self._range(chunk, name), advice)

    @cached_property
    def _buffer_bytes(self) -> dict[str, int]:
        chunks = range(len(self.layout.chunks))
        return {
            name: max((self._range(c, name)[1] - self._range(c, name)[0]) * array.item_bytes for c in chunks)
            for name, array in self._arrays.items()
        }

    def _range(self, chunk: int, name: str) -> tuple[int, int]:
        """Items of an array that belong to a chunk, the padding of the last unit included in the last chunk's."""
        by_entry = name in ("X/data", "X/indices")
        starts = self._entry_start if by_entry else self._row_start
        start, stop = starts[chunk], starts[chunk + 1] + (name == "X/indptr")
        last = chunk == len(self.layout.chunks) - 1
        return start, padded_stop(self._arrays[name], stop) if last else stop

    def _where(self, chunk: int) -> str:
        first = self._row_start[chunk]
        return f"chunk {chunk} of store '{self.name}' (rows {first}-{self._row_start[chunk + 1] - 1})"

    def _view(self, into: Buffer, name: str) -> Any:
        return into.arrays[name].view(self._arrays[name].dtype)

    def _rows(self, entry: ChunkEntry, into: Buffer) -> Rows:
        if entry.nonzeros is None:
            values = self._view(into, "X").reshape(-1, self.layout.columns)[: entry.rows]
            if self._encoding is None:
                return Dense(values)
            decoded = into.arrays[DECODED].view(np.float32)[: values.size].reshape(values.shape)
            self._encoding.decode(values, decoded)
            return Dense(decoded)
        indptr = self._view(into, "X/indptr")[: entry.rows + 1]
        np.subtract(indptr, indptr[0], out=indptr)
        entries = entry.nonzeros
        return CSR(self._view(into, "X/data")[:entries], self._view(into, "X/indices")[:entries], indptr)


def unit_of(kind: str, chunk_rows: int) -> int:
    """Items per unit of the one-dimensional arrays."""
    return chunk_rows if kind in KINDS else max(1024, chunk_rows)


@dataclass(slots=True)
class ZarrWriter:
    """Builds a store; nothing can be opened before ``commit``."""

    root: Path
    sparse: bool
    chunk_bytes: int
    replaces: bool = False
    encoding: Encoding | None = None
    uuid: str = field(default_factory=lambda: str(uuids.uuid4()))
    _chunker: Chunker | None = None
    _writers: dict[str, UnitWriter] = field(default_factory=dict)
    _chunks: list[ChunkEntry] = field(default_factory=list)
    _moments: statistics.Moments = field(default_factory=statistics.Moments)
    _entries: int = 0

    @property
    def directory(self) -> Path:
        """Where the parts are put until ``commit``."""
        return self._building

    @property
    def _building(self) -> Path:
        return self.root.with_name(f".{self.root.name}.building") if self.replaces else self.root

    def append(self, X: Rows, codes: Int32, weight: Float32 | None = None) -> None:
        """Add rows with their class codes. Raises StorageError."""
        if self._chunker is None:
            self._begin(X, weight is not None)
        assert self._chunker is not None
        for piece in self._chunker.push(Piece(X, codes, weight)):
            self._write_chunk(piece)

    def commit(self, classes: tuple[str, ...], columns: int, facts: dict[str, Any]) -> Manifest:
        """Finish the arrays, make everything durable, then write the manifest. Raises StorageError, DataError."""
        if self._chunker is None:
            raise DataError("there are no rows to store", code="E-EMPTY", hint="check the source and its format")
        for piece in self._chunker.rest():
            self._write_chunk(piece)
        self._finish_arrays(columns)
        manifest = self._manifest(classes, columns, facts)
        manifests.write(self._building, manifest)
        if self.replaces:
            self._swap()
        return manifest

    def progress(self) -> dict[str, Any]:
        """What ``resume`` needs, as plain JSON; only of dense stores, between two chunks. Makes all so far durable."""
        self._sync()
        moments = {name: getattr(self._moments, name).tolist() for name in MOMENTS}
        chunks: list[Any] = msgspec.to_builtins(self._chunks)
        units = {name: writer.crcs for name, writer in self._writers.items()}
        return {"rows": self._moments.rows, "moments": moments, "chunks": chunks, "units": units}

    def resume(self, saved: dict[str, Any], X: Dense, *, weighted: bool) -> None:
        """Go on after the chunks of ``saved``, in the directory they lie in; ``X``: any rows of the right width."""
        self.open(X, weighted=weighted)
        self._chunks = msgspec.convert(saved["chunks"], list[ChunkEntry])
        self._moments.rows = saved["rows"]
        for name in MOMENTS:
            dtype = getattr(self._moments, name).dtype
            setattr(self._moments, name, np.array(saved["moments"][name], dtype))
        for name, writer in self._writers.items():
            writer.crcs, writer.items = list(saved["units"][name]), sum(c.rows for c in self._chunks)

    def abort(self) -> None:
        """Remove what was built; a store that is being replaced stays as it was."""
        shutil.rmtree(self._building, ignore_errors=True)

    def _begin(self, X: Rows, weighted: bool) -> None:
        building = self._building
        if building.exists() and (self.replaces or not (building / manifests.FILE).exists()):
            shutil.rmtree(building)
        self.open(X, weighted=weighted)
        if self.sparse:
            self._writers["X/indptr"].append(np.zeros(1, np.int64))

    def open(self, X: Rows, *, weighted: bool) -> None:
        """Make directories and a writer for each array; nothing that is there already is removed."""
        building = self._building
        metadata.write_group(building, {"streamsvm": {"format": manifests.FORMAT}})
        if isinstance(X, Dense):
            rows, columns, names = max(1, self.chunk_bytes // (4 * X.values.shape[1])), X.values.shape[1], ["X"]
            self._chunker = Chunker(rows)
        else:
            rows, columns, names = self.chunk_bytes // 8, 0, list(SPARSE)
            self._chunker = Chunker(rows, nonzeros=rows)
            durable.make_directory(building / "X")
        names += ["y", "weight"] if weighted else ["y"]
        dtype = "float32" if self.encoding is None else self.encoding.dtype
        arrays = arrays_of(
            building, columns, rows, unit_of("csr" if self.sparse else "dense", rows), names, dtype=dtype
        )
        for name, array in arrays.items():
            durable.make_directory(array.directory)
            self._writers[name] = UnitWriter(array)

    def _write_chunk(self, piece: Piece) -> None:
        crc = {}
        for name, values in self._split(piece).items():
            writer = self._writers[name]
            writer.append(values[1:] if name == "X/indptr" else values)
            crc[name] = crc32c(np.ascontiguousarray(values))
        self._moments.add(piece.X)
        counts = np.bincount(piece.codes, minlength=1).tolist()
        nonzeros = len(piece.X.data) if isinstance(piece.X, CSR) else None
        self._entries += nonzeros or 0
        self._chunks.append(ChunkEntry(row_count(piece.X), nonzeros, counts, crc))
        if len(self._chunks) % SYNC_EVERY == 0:
            self._sync()

    def _split(self, piece: Piece) -> dict[str, Any]:
        X = piece.X
        if isinstance(X, Dense):
            parts: dict[str, Any] = {"X": X.values if self.encoding is None else self.encoding.encode(X.values)}
        else:
            parts = {"X/data": X.data, "X/indices": X.indices, "X/indptr": X.indptr + self._entries}
        parts["y"] = piece.codes
        return parts if piece.weight is None else parts | {"weight": piece.weight}

    def _sync(self) -> None:
        for writer in self._writers.values():
            writer.sync()

    def _finish_arrays(self, columns: int) -> None:
        last = self._chunks[-1]
        padded = {name: crc32c(writer.finish(), last.crc[name]) for name, writer in self._writers.items()}
        self._chunks[-1] = ChunkEntry(last.rows, last.nonzeros, last.counts, padded)
        for name, writer in self._writers.items():
            labels = ["row", "feature"] if writer.array.width else []
            metadata.write_array(writer.array, writer.items, labels or [name.rpartition("/")[2]])
        if self.sparse:
            rows = sum(c.rows for c in self._chunks)
            shape = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [rows, columns]}
            metadata.write_group(self._building / "X", shape)
        self._sync()

    def _manifest(self, classes: tuple[str, ...], columns: int, facts: dict[str, Any]) -> Manifest:
        kind = "csr" if self.sparse else "dense" if self.encoding is None else self.encoding.kind
        sha256 = statistics.write(self._building, self._moments.result(columns, self.sparse))
        assert self._chunker is not None
        return Manifest(
            format=manifests.FORMAT,
            kind=kind,
            columns=columns,
            classes=list(classes),
            chunk_rows=self._chunker.rows,
            chunks=self._chunks,
            units={name: writer.crcs for name, writer in self._writers.items()},
            statistics=sha256,
            digest=manifests.content_digest(kind, columns, list(classes), self._chunks),
            uuid=self.uuid,
            versions={"streamsvm": __version__, "numpy": np.__version__},
            facts=facts,
        )

    def _swap(self) -> None:
        old = self.root.with_name(f".{self.root.name}.replaced")
        durable.rename(self.root, old)
        durable.rename(self._building, self.root)
        shutil.rmtree(old)


def create(root: Path, *, sparse: bool, chunk_bytes: int, overwrite: bool) -> ZarrWriter:
    """A writer for a new store at ``root``. Raises ExistsError when something is there and ``overwrite`` is not set."""
    if root.exists() and not overwrite:
        raise ExistsError(f"{root} exists already", hint="choose another name, or pass --overwrite")
    return ZarrWriter(root, sparse, chunk_bytes, replaces=(root / manifests.FILE).exists())
