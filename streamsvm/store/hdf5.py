"""The HDF5 store: part files of at most 1 GiB, each a plain HDF5 file; read by ``preadv`` once their index is known.

STORE/manifest.json       written last
STORE/part-00000.h5       X (dense) or X/{data,indices,indptr} (CSR in the AnnData encoding), y, weight: of some chunks

A part is complete in itself: its indptr begins at 0, its last units are padded with zeros. The manifest has a crc32c of
the values of every chunk, and one of all other bytes of a part, which is checked before the HDF5 library sees them.

HDF5 cannot cope with a full disk: it may say so only when the file is closed, keeps the descriptor, and the process
crashes at its end. So it never learns of one: it writes through ``_Through``, which keeps the first error and drops
what comes after. A killed writer costs at most one part: a part is written under another name, closed, made durable,
opened and read again, and only then renamed.
"""

from __future__ import annotations

import filecmp
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from crc32c import crc32c

from streamsvm import durable
from streamsvm.aliases import Array, BytesLike, Handle, JsonObject
from streamsvm.errors import DataError, StorageError, StreamSVMError, UsageError
from streamsvm.store.disk_reads import Place, UnitArray, read_bytes
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.arrays import FILL, INDICES, INDPTR, MATRIX, PAGE, ArraySpec, items_of, specs_of
from streamsvm.store.format.manifest import ChunkEntry, Manifest, PartFile
from streamsvm.store.hdf5_checks import (
    DatasetChunk,
    H5Object,
    chunks_of,
    gaps,
    is_filtered,
    member,
    open_h5,
    require_plain,
)
from streamsvm.store.reader import DiskStore, Part
from streamsvm.store.write.chunking import UnitCutter

HINT = "restore the file, or ingest again"
ALIGN_FROM = 1 << 14
"""Chunks of this many bytes and more begin on a page."""
METADATA_BLOCK = 1 << 16
PART_BYTES = 1 << 30
INDEX_BYTES = 1 << 20
"""Bytes reserved for the index of a part."""


def open_hdf5(root: Path, manifest: Manifest) -> DiskStore:
    """Open a committed HDF5 store. Raises DataError E-CHUNKS, E-CRC, E-HDF5, SecurityError."""
    m = manifest
    specs = specs_of(m.kind, m.columns, m.chunk_rows, weighted="weight" in m.units, numeric=not m.classes)
    parts, first = [], 0
    for number, file in enumerate(m.files):
        chunks = m.chunks[first : first + file.chunks]
        parts.append(Part(len(chunks), _arrays(part_path(root, number), file, specs, chunks)))
        first += file.chunks
    return DiskStore(root, m, parts)


def _arrays(path: Path, file: PartFile, specs: dict[str, ArraySpec], chunks: list[ChunkEntry]) -> dict[str, UnitArray]:
    _check_index(path, file)
    arrays, units = {}, []
    with open_h5(path) as opened:
        for name, spec in specs.items():
            dataset = require_plain(member(opened, name, path), path)
            found = _units(dataset, spec, items_of(name, chunks), path)
            arrays[name] = UnitArray(spec, _placing(path, found, file.nbytes))
            units += found
    if gaps(units, file.nbytes) != file.index:
        raise DataError(f"the index of {path} is not what was written", code="E-META", hint=HINT)
    return arrays


def _check_index(path: Path, file: PartFile) -> None:
    """Raise DataError when what the HDF5 library is about to parse is not what was written."""
    size = path.stat().st_size if path.is_file() and not path.is_symlink() else None
    if size != file.nbytes:
        found = f"{path} is missing" if size is None else f"{path} has {size} bytes, expected {file.nbytes}"
        raise DataError(found, code="E-CHUNKS", hint=HINT)
    crc = index_crc(path, file.index)
    if crc != file.crc:
        text = f"the index of {path} is corrupt: crc32c {crc:08x}, expected {file.crc:08x}"
        raise DataError(text, code="E-CRC", hint=HINT)


def _units(dataset: H5Object, spec: ArraySpec, items: int, path: Path) -> list[DatasetChunk]:
    expected = ((items, *spec.shape[1:]), spec.shape, np.dtype(spec.dtype).newbyteorder("<"))
    if (dataset.shape, dataset.chunks, dataset.dtype) != expected or is_filtered(dataset):
        raise DataError(f"'{spec.name}' of {path} is not what was written", code="E-META", hint=HINT)
    units = chunks_of(dataset, path)
    if any(unit.nbytes != spec.unit_bytes for unit in units):
        raise DataError(f"'{spec.name}' of {path} has units of another size", code="E-META", hint=HINT)
    return units


def _placing(path: Path, units: list[DatasetChunk], file_bytes: int) -> Any:
    name = str(path)

    def place(index: int) -> Place:
        return Place(name, units[index].offset, units[index].nbytes, file_bytes)

    return place


def part_path(directory: Path, number: int) -> Path:
    """Return the path of a part; it is made from the part's number and never taken from a file."""
    return directory / f"part-{number:05d}.h5"


@dataclass(slots=True)
class HDF5Backend:
    """Writes the arrays of a store to HDF5 files; a ``StoreBackend``."""

    name: str = "hdf5"
    part_bytes: int = field(default_factory=lambda: PART_BYTES)
    """The size of a file after which the next chunk begins a new one."""
    _directory: Path = Path()
    _specs: dict[str, ArraySpec] = field(default_factory=dict)
    _files: list[PartFile] = field(default_factory=list)
    _writer: PartWriter | KnownPart | None = None
    _cutter: UnitCutter | None = None
    _chunks: int = 0
    """Chunks in the current part."""
    _rows: int = 0
    """Rows in all parts."""
    _columns: int = 0
    """The largest column so far, which is the width of all CSR parts but the last."""
    _known: list[KnownPart] = field(default_factory=list)
    """Parts that an earlier build has completed."""
    _crcs: list[dict[str, list[int]]] = field(default_factory=list)
    """Checksums of the units of each part."""
    _noted: int = 0
    """Parts that were noted."""
    _repair: bool = False

    def begin(self, directory: Path, specs: dict[str, ArraySpec]) -> None:
        """Note the arrays that are to come; see ``StoreBackend.begin``."""
        durable.make_directory(directory)
        self._directory, self._specs = directory, specs

    def compress(self, packed: dict[str, str]) -> None:
        """Raise UsageError when any codec is asked for: HDF5 stores are not compressed."""
        if packed:
            hint = "pass --compression none: HDF5 would need a plugin to read it"
            raise UsageError("HDF5 stores are not compressed", hint=hint)

    def turn(self, values: dict[str, Array]) -> bool:
        """Close the file when the next chunk would not fit in it; return whether it did."""
        full = self._cutter is not None and self._cutter.bytes_with(values) > self.part_bytes - INDEX_BYTES
        if full:
            self._close_part(self._columns)
        return full

    def write(self, values: dict[str, Array]) -> None:
        """Add what a chunk has of each array to the current file."""
        if self._writer is None or self._cutter is None:
            self._writer = self._next_part()
            self._cutter = UnitCutter(self._specs, self._writer.unit)
        self._cutter.append(values)
        if INDICES in values:
            self._columns = max(self._columns, int(values[INDICES].max(initial=-1)) + 1)
        self._chunks += 1
        self._rows += len(values["y"])

    def sync(self) -> bool:
        """Write dirty pages to disk; return False while a part is open, from which no build can be resumed."""
        if self._writer is not None:
            self._writer.sync()
        return self._writer is None

    def finish(self, columns: int) -> None:
        """Close the last file."""
        if self._chunks:
            self._close_part(columns)

    def manifest_fields(self) -> JsonObject:
        """Return the manifest's fields ``units`` and ``files``."""
        return {"units": {name: [] for name in self._specs}, "files": self._files}

    def progress(self) -> Handle:
        """Return the files that are complete, as plain JSON."""
        return {"files": msgspec.to_builtins(self._files)}

    def resume(self, saved: Handle, rows: int) -> None:
        """Go on after the files of ``saved``, which hold ``rows`` rows."""
        self._files, self._rows = msgspec.convert(saved["files"], list[PartFile]), rows

    def reuse(self, notes: list[Handle], *, repair: bool) -> None:
        """Compare complete files by the checksums of their units; any other is written again as a whole."""
        self._repair = repair
        if not repair:
            parts = [part for note in notes for part in note["parts"]]
            self._known = [
                KnownPart(part_path(self._directory, k), msgspec.convert(part["file"], PartFile), part["crcs"])
                for k, part in enumerate(parts)
            ]
            self._noted = len(parts)

    def note(self) -> Handle:
        """Return the files that were completed since the last note, with their checksums, as plain JSON."""
        fresh = zip(self._files[self._noted :], self._crcs[self._noted :], strict=True)
        self._noted = max(self._noted, len(self._files))
        return {"parts": [{"file": msgspec.to_builtins(file), "crcs": crcs} for file, crcs in fresh]}

    def _next_part(self) -> PartWriter | KnownPart:
        number = len(self._files)
        if number < len(self._known) and self._known[number].is_whole():
            return self._known[number]
        return PartWriter(part_path(self._directory, number), self._specs, self._rows, reuse=self._repair)

    def abort(self) -> None:
        """Remove the file that is being written."""
        if self._writer is not None:
            self._writer.abort()

    def _close_part(self, columns: int) -> None:
        assert self._writer is not None
        assert self._cutter is not None
        self._cutter.finish()
        self._files.append(self._writer.close(self._chunks, columns))
        self._crcs.append(self._writer.crcs)
        self._writer = self._cutter = None
        self._chunks = 0


class PartWriter:
    """Writes one file: ``unit`` after ``unit``, then ``close``, or ``abort``.

    With ``reuse`` a file that is there already and is the same to the last byte is left alone. Raises StorageError.
    """

    def __init__(self, path: Path, specs: dict[str, ArraySpec], first_row: int, *, reuse: bool = False) -> None:
        import h5py

        self.path, self._reuse = path, reuse
        self._partial = path.with_name(f".{path.name}{durable.PARTIAL}")
        self._through = _Through(self._partial)
        self.crcs: dict[str, list[int]] = {name: [] for name in specs}
        self._specs = specs
        self._file = h5py.File(
            self._through,
            "w",
            libver=("earliest", "v108"),
            alignment_threshold=ALIGN_FROM,
            alignment_interval=PAGE,
            meta_block_size=METADATA_BLOCK,
        )
        self._file.attrs["streamsvm"] = manifests.FORMAT
        self._file.attrs["first_row"] = first_row
        self._sets = {name: self._dataset(spec) for name, spec in specs.items()}
        self._through.check()

    def unit(self, spec: ArraySpec, index: int, values: Array, items: int) -> None:
        """Add a unit of an array that has ``items`` items up to here; the rest of the unit is padding."""
        dataset = self._sets[spec.name]
        dataset.resize(items, axis=0)
        dataset.id.write_direct_chunk((index * spec.unit,) + (0,) * bool(spec.width), values)
        self.crcs[spec.name].append(crc32c(values.data))
        self._through.check()

    def sync(self) -> None:
        """Let the disk catch up with what was written. Raises StorageError."""
        durable.sync_state(self._through.descriptor, self._partial)

    def close(self, chunks: int, columns: int) -> PartFile:
        """Complete the file, read all of it again, and give it its name. Raises DataError E-HDF5, StorageError."""
        if INDPTR in self._sets:
            group, rows = self._file[MATRIX], len(self._sets[INDPTR]) - 1
            group.attrs["encoding-type"], group.attrs["encoding-version"] = "csr_matrix", "0.1.0"
            group.attrs["shape"] = np.array([rows, columns], np.int64)
        self._file.close()
        self._through.check()
        self.sync()
        os.close(self._through.descriptor)
        found = self._read_again(chunks)
        if self._reuse and _same(self._partial, self.path):
            self._partial.unlink()
        else:
            durable.rename(self._partial, self.path)
        return found

    def abort(self) -> None:
        """Remove what there is of the file."""
        if self._file:
            self._file.close()
            os.close(self._through.descriptor)
        self._partial.unlink(missing_ok=True)

    def _dataset(self, spec: ArraySpec) -> H5Object:
        matrix = spec.shape[1:]
        fill = FILL[spec.dtype]
        return self._file.create_dataset(
            spec.name,
            shape=(0, *matrix),
            maxshape=(None, *matrix),
            chunks=spec.shape,
            dtype=np.dtype(spec.dtype).newbyteorder("<"),
            fillvalue=np.nan if fill == "NaN" else fill,
        )

    def _read_again(self, chunks: int) -> PartFile:
        found: list[DatasetChunk] = []
        with open_h5(self._partial) as file:
            for name, crcs in self.crcs.items():
                units = chunks_of(member(file, name, self._partial), self._partial)
                for unit, crc in zip(units, crcs, strict=True):
                    if crc32c(read_bytes(self._partial, unit.offset, unit.nbytes)) != crc:
                        text = f"{self._partial} does not hold what was written at byte {unit.offset}"
                        raise DataError(text, code="E-HDF5", hint="check the disk, then run the same command again")
                found += units
        return describe_part(self._partial, self.path.name, found, chunks)


class KnownPart:
    """A part that an earlier build has completed, in place of a ``PartWriter``: it compares and writes nothing."""

    def __init__(self, path: Path, file: PartFile, crcs: dict[str, list[int]]) -> None:
        self._path, self._file, self._expected = path, file, crcs
        self.crcs: dict[str, list[int]] = {name: [] for name in crcs}

    def is_whole(self) -> bool:
        """Return whether the file is still there, as it was when it was closed and read again."""
        if self._path.is_symlink() or not self._path.is_file() or self._path.stat().st_size != self._file.nbytes:
            return False
        return index_crc(self._path, self._file.index) == self._file.crc

    def unit(self, spec: ArraySpec, _index: int, values: Array, _items: int) -> None:
        """Add the checksum of a unit to those that ``close`` compares."""
        self.crcs[spec.name].append(crc32c(values.data))

    def sync(self) -> None:
        """Do nothing: the file is durable."""

    def close(self, chunks: int, _columns: int) -> PartFile:
        """Compare the added units with those of the file. Raises DataError E-SOURCE when the source has changed."""
        if self.crcs != self._expected or chunks != self._file.chunks:
            text = f"the source does not give the rows of {self._path}, which an earlier run has written from it"
            raise DataError(text, code="E-SOURCE", hint="start again with --overwrite")
        return self._file

    def abort(self) -> None:
        """Do nothing: the file stays."""


class _Through:
    """The file object that h5py writes through. It never raises: ``check`` does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = durable.open_part(path)
        self._at = self._size = 0
        self._error: StreamSVMError | None = None

    def check(self) -> None:
        """Raise what went wrong since the file was opened."""
        if self._error is not None:
            raise self._error

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def write(self, data: BytesLike) -> int:
        if self._error is None:
            try:
                durable.write_at(self.descriptor, data, self._at, self.path)
            except StreamSVMError as error:
                self._error = error
        self._at += len(data)
        self._size = max(self._size, self._at)
        return len(data)

    def read(self, size: int = -1) -> bytes:
        """Required by h5py, which calls ``readinto`` only."""
        raise NotImplementedError

    def readinto(self, into: memoryview) -> int:
        try:
            got = os.preadv(self.descriptor, [into], self._at)
        except OSError as error:
            self._error = self._error or StorageError(f"reading {self.path} failed: {error.strerror}")
            got = 0
        into[got:] = bytes(len(into) - got)
        self._at += len(into)
        return len(into)

    def truncate(self, size: int | None = None) -> int:
        self._size = self._at if size is None else size
        if self._error is None:
            try:
                durable.resize(self.descriptor, self._size, self.path)
            except StreamSVMError as error:
                self._error = error
        return self._size

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""


def _same(one: Path, other: Path) -> bool:
    if other.is_symlink() or not other.is_file():
        return False
    filecmp.clear_cache()
    return filecmp.cmp(one, other, shallow=False)


def describe_part(path: Path, name: str, units: list[DatasetChunk], chunks: int) -> PartFile:
    """Return the record of a file for the manifest; its index is all that is not a unit."""
    nbytes = path.stat().st_size
    index = gaps(units, nbytes)
    return PartFile(name, chunks, nbytes, index, index_crc(path, index))


def index_crc(path: Path, index: list[tuple[int, int]]) -> int:
    """Return the crc32c of the bytes of a file that are not payload."""
    crc = 0
    for offset, nbytes in index:
        crc = crc32c(read_bytes(path, offset, nbytes), crc)
    return crc
