"""The HDF5 store: part files of at most 1 GiB, each a plain HDF5 file. The HDF5 library only locates the units when a
store is opened; they are read by ``preadv``.

STORE/manifest.json       written last
STORE/part-00000.h5       X (dense) or X/{data,indices,indptr} (CSR in the AnnData encoding), y, weight: of some chunks

A part is complete in itself: its indptr begins at 0, its last units are padded with zeros. The manifest holds the
crc32c of the values of every chunk, and one of all other bytes of a part (its index: HDF5's metadata), which is
verified before the HDF5 library parses them.

The HDF5 library does not handle a full disk: it may report the error only when the file is closed, keep the descriptor
open, and crash at the end of the process. The error is therefore hidden from it: it writes through
``_ErrorHidingFile``, which keeps the first error and drops all later writes. A killed writer loses at most one part: a
part is written under a temporary name, closed, made durable, opened and read again, and only then renamed.
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
from streamsvm.errors import DataError, StorageError, StreamSVMError, UsageError
from streamsvm.store.disk_reads import Place, UnitArray, read_bytes
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.arrays import FILL, INDICES, INDPTR, MATRIX, PAGE, ArraySpec, count_items, specs_of
from streamsvm.store.format.manifest import ChunkEntry, Manifest, PartFile
from streamsvm.store.hdf5_checks import (
    DatasetChunk,
    H5Object,
    chunks_of,
    find_gaps,
    is_filtered,
    member,
    open_h5,
    require_plain,
)
from streamsvm.store.reader import DiskStore, Part
from streamsvm.store.write.chunking import UnitCutter
from streamsvm.type_aliases import Array, BytesLike, Handle, JsonObject

HINT = "restore the file, or ingest again"
ALIGN_FROM = 1 << 14
"""Bytes of a unit from which on it begins on a page boundary."""
METADATA_BLOCK = 1 << 16
PART_BYTES = 1 << 30
INDEX_BYTES = 1 << 20
"""Bytes reserved for HDF5's metadata in a part."""


def open_hdf5(root: Path, manifest: Manifest) -> DiskStore:
    """Open a committed HDF5 store. Raises DataError E-CHUNKS, E-CRC, E-HDF5, SecurityError."""
    m = manifest
    specs = specs_of(m.kind, m.columns, m.chunk_rows, weighted="weight" in m.units, regression=not m.classes)
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
            array_units = _units(dataset, spec, count_items(name, chunks), path)
            arrays[name] = UnitArray(spec, _place_function(path, array_units, file.nbytes))
            units += array_units
    if find_gaps(units, file.nbytes) != file.index:
        raise DataError(f"the index of {path} is not what was written", code="E-META", hint=HINT)
    return arrays


def _check_index(path: Path, file: PartFile) -> None:
    """Raise DataError if the metadata that the HDF5 library is about to parse has changed since it was written."""
    size = path.stat().st_size if path.is_file() and not path.is_symlink() else None
    if size != file.nbytes:
        message = f"{path} is missing" if size is None else f"{path} has {size} bytes, expected {file.nbytes}"
        raise DataError(message, code="E-CHUNKS", hint=HINT)
    crc = index_crc(path, file.index)
    if crc != file.crc:
        message = f"the index of {path} is corrupt: crc32c {crc:08x}, expected {file.crc:08x}"
        raise DataError(message, code="E-CRC", hint=HINT)


def _units(dataset: H5Object, spec: ArraySpec, items: int, path: Path) -> list[DatasetChunk]:
    """Return the units of a dataset. Raises DataError unless it has the shape, type and units of ``spec``."""
    expected = ((items, *spec.shape[1:]), spec.shape, np.dtype(spec.dtype).newbyteorder("<"))
    if (dataset.shape, dataset.chunks, dataset.dtype) != expected or is_filtered(dataset):
        raise DataError(f"'{spec.name}' of {path} is not what was written", code="E-META", hint=HINT)
    units = chunks_of(dataset, path)
    if any(unit.nbytes != spec.unit_bytes for unit in units):
        raise DataError(f"'{spec.name}' of {path} has units of another size", code="E-META", hint=HINT)
    return units


def _place_function(path: Path, units: list[DatasetChunk], file_bytes: int) -> Any:
    """Return the function that maps the number of a unit to its ``Place``."""
    name = str(path)

    def place(index: int) -> Place:
        return Place(name, units[index].offset, units[index].nbytes, file_bytes)

    return place


def part_path(directory: Path, number: int) -> Path:
    """Return the path of a part; it follows from the number of the part and is never read from the manifest."""
    return directory / f"part-{number:05d}.h5"


@dataclass(slots=True)
class HDF5Backend:
    """Writes the arrays of a store to HDF5 files; a ``StoreBackend``."""

    name: str = "hdf5"
    part_bytes: int = field(default_factory=lambda: PART_BYTES)
    """The most bytes of a part; a chunk that does not fit begins a new one."""
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
    """The number of columns of the rows so far; it is written as the width of each CSR part but the last."""
    _known: list[KnownPart] = field(default_factory=list)
    """The parts that an interrupted build has completed."""
    _crcs: list[dict[str, list[int]]] = field(default_factory=list)
    """The checksums of the units of each part."""
    _noted: int = 0
    """The number of parts in the journal."""
    _repair: bool = False

    def begin(self, directory: Path, specs: dict[str, ArraySpec]) -> None:
        """Make the directory and keep the specs; the first chunk opens the first part."""
        durable.make_directory(directory)
        self._directory, self._specs = directory, specs

    def use_codecs(self, packed: dict[str, str]) -> None:
        """Raise UsageError if a codec is given: HDF5 stores are not compressed."""
        if packed:
            hint = "pass --compression none: HDF5 would need a plugin to read it"
            raise UsageError("HDF5 stores are not compressed", hint=hint)

    def close_full_file(self, values: dict[str, Array]) -> bool:
        """Close the part if the next chunk does not fit into it; return whether it was closed."""
        full = self._cutter is not None and self._cutter.bytes_after_adding(values) > self.part_bytes - INDEX_BYTES
        if full:
            self._close_part(self._columns)
        return full

    def write(self, values: dict[str, Array]) -> None:
        """Write the arrays of a chunk to the current part."""
        if self._writer is None or self._cutter is None:
            self._writer = self._next_part()
            self._cutter = UnitCutter(self._specs, self._writer.write_unit)
        self._cutter.append(values)
        if INDICES in values:
            self._columns = max(self._columns, int(values[INDICES].max(initial=-1)) + 1)
        self._chunks += 1
        self._rows += len(values["y"])

    def sync(self) -> bool:
        """Write dirty pages to disk; return False while a part is open: a build cannot be resumed inside a part."""
        if self._writer is not None:
            self._writer.sync()
        return self._writer is None

    def finish(self, columns: int) -> None:
        """Close the last part."""
        if self._chunks:
            self._close_part(columns)

    def manifest_fields(self) -> JsonObject:
        """Return the fields ``units`` and ``files`` of the manifest."""
        return {"units": {name: [] for name in self._specs}, "files": self._files}

    def progress(self) -> Handle:
        """Return the completed parts, as plain JSON."""
        return {"files": msgspec.to_builtins(self._files)}

    def resume(self, saved: Handle, rows: int) -> None:
        """Continue after the parts of ``saved``, which hold ``rows`` rows."""
        self._files, self._rows = msgspec.convert(saved["files"], list[PartFile]), rows

    def reuse(self, notes: list[Handle], *, repair: bool) -> None:
        """Keep completed parts whose units have equal checksums; write all other parts again as a whole."""
        self._repair = repair
        if not repair:
            parts = [part for note in notes for part in note["parts"]]
            self._known = [
                KnownPart(part_path(self._directory, k), msgspec.convert(part["file"], PartFile), part["crcs"])
                for k, part in enumerate(parts)
            ]
            self._noted = len(parts)

    def note(self) -> Handle:
        """Return the parts that were completed since the last note, with their checksums, as plain JSON."""
        new_parts = zip(self._files[self._noted :], self._crcs[self._noted :], strict=True)
        self._noted = max(self._noted, len(self._files))
        return {"parts": [{"file": msgspec.to_builtins(file), "crcs": crcs} for file, crcs in new_parts]}

    def _next_part(self) -> PartWriter | KnownPart:
        number = len(self._files)
        if number < len(self._known) and self._known[number].is_intact():
            return self._known[number]
        return PartWriter(part_path(self._directory, number), self._specs, self._rows, reuse=self._repair)

    def abort(self) -> None:
        """Remove the part that is being written."""
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
    """Writes one part: ``write_unit`` for each unit, then ``close``, or ``abort``.

    With ``reuse``, an existing file that is equal to the last byte is kept. Raises StorageError.
    """

    def __init__(self, path: Path, specs: dict[str, ArraySpec], first_row: int, *, reuse: bool = False) -> None:
        import h5py

        self.path, self._reuse = path, reuse
        self._partial = path.with_name(f".{path.name}{durable.PARTIAL}")
        self._raw_file = _ErrorHidingFile(self._partial)
        self.crcs: dict[str, list[int]] = {name: [] for name in specs}
        self._specs = specs
        self._file = h5py.File(
            self._raw_file,
            "w",
            libver=("earliest", "v108"),
            alignment_threshold=ALIGN_FROM,
            alignment_interval=PAGE,
            meta_block_size=METADATA_BLOCK,
        )
        self._file.attrs["streamsvm"] = manifests.FORMAT
        self._file.attrs["first_row"] = first_row
        self._datasets = {name: self._create_dataset(spec) for name, spec in specs.items()}
        self._raw_file.check()

    def write_unit(self, spec: ArraySpec, index: int, values: Array, items: int) -> None:
        """Write unit ``index`` of an array, which then has ``items`` items; the rest of the unit is padding."""
        dataset = self._datasets[spec.name]
        dataset.resize(items, axis=0)
        dataset.id.write_direct_chunk((index * spec.unit,) + (0,) * bool(spec.width), values)
        self.crcs[spec.name].append(crc32c(values.data))
        self._raw_file.check()

    def sync(self) -> None:
        """Write dirty pages to disk. Raises StorageError."""
        durable.sync_state(self._raw_file.descriptor, self._partial)

    def close(self, chunks: int, columns: int) -> PartFile:
        """Complete the part, read it again and verify it, and rename it. Raises DataError E-HDF5, StorageError."""
        if INDPTR in self._datasets:
            group, rows = self._file[MATRIX], len(self._datasets[INDPTR]) - 1
            group.attrs["encoding-type"], group.attrs["encoding-version"] = "csr_matrix", "0.1.0"
            group.attrs["shape"] = np.array([rows, columns], np.int64)
        self._file.close()
        self._raw_file.check()
        self.sync()
        os.close(self._raw_file.descriptor)
        part = self._verify(chunks)
        if self._reuse and _is_same_file(self._partial, self.path):
            self._partial.unlink()
        else:
            durable.rename(self._partial, self.path)
        return part

    def abort(self) -> None:
        """Remove the unfinished part."""
        if self._file:
            self._file.close()
            os.close(self._raw_file.descriptor)
        self._partial.unlink(missing_ok=True)

    def _create_dataset(self, spec: ArraySpec) -> H5Object:
        width = spec.shape[1:]
        fill = FILL[spec.dtype]
        return self._file.create_dataset(
            spec.name,
            shape=(0, *width),
            maxshape=(None, *width),
            chunks=spec.shape,
            dtype=np.dtype(spec.dtype).newbyteorder("<"),
            fillvalue=np.nan if fill == "NaN" else fill,
        )

    def _verify(self, chunks: int) -> PartFile:
        """Read all units of the part, compare their checksums, and return the part's entry for the manifest."""
        part_units: list[DatasetChunk] = []
        with open_h5(self._partial) as file:
            for name, crcs in self.crcs.items():
                units = chunks_of(member(file, name, self._partial), self._partial)
                for unit, crc in zip(units, crcs, strict=True):
                    if crc32c(read_bytes(self._partial, unit.offset, unit.nbytes)) != crc:
                        message = f"{self._partial} does not hold what was written at byte {unit.offset}"
                        raise DataError(message, code="E-HDF5", hint="check the disk, then run the same command again")
                part_units += units
        return describe_part(self._partial, self.path.name, part_units, chunks)


class KnownPart:
    """Stands in for the ``PartWriter`` of a part that an interrupted build has completed: it compares the units with
    those of the file and writes nothing.
    """

    def __init__(self, path: Path, file: PartFile, crcs: dict[str, list[int]]) -> None:
        self._path, self._file, self._expected = path, file, crcs
        self.crcs: dict[str, list[int]] = {name: [] for name in crcs}

    def is_intact(self) -> bool:
        """Return whether the file exists with the size and index that were recorded when it was closed."""
        if self._path.is_symlink() or not self._path.is_file() or self._path.stat().st_size != self._file.nbytes:
            return False
        return index_crc(self._path, self._file.index) == self._file.crc

    def write_unit(self, spec: ArraySpec, _index: int, values: Array, _items: int) -> None:
        """Keep the checksum of a unit, which ``close`` compares."""
        self.crcs[spec.name].append(crc32c(values.data))

    def sync(self) -> None:
        """Do nothing: the file is durable."""

    def close(self, chunks: int, _columns: int) -> PartFile:
        """Compare the checksums of the units with those of the file. Raises DataError E-SOURCE if they differ, since
        the source has changed then.
        """
        if self.crcs != self._expected or chunks != self._file.chunks:
            message = f"the source does not give the rows of {self._path}, which an earlier run has written from it"
            raise DataError(message, code="E-SOURCE", hint="start again with --overwrite")
        return self._file

    def abort(self) -> None:
        """Do nothing: the file is kept."""


class _ErrorHidingFile:
    """The file object that h5py writes to. Its methods keep the first error and do not raise it; ``check`` does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = durable.open_part(path)
        self._at = self._size = 0
        self._error: StreamSVMError | None = None

    def check(self) -> None:
        """Raise the first error since the file was opened, if there was one."""
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
        """Raise NotImplementedError: h5py requires the method but calls ``readinto`` only."""
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


def _is_same_file(one: Path, other: Path) -> bool:
    if other.is_symlink() or not other.is_file():
        return False
    filecmp.clear_cache()
    return filecmp.cmp(one, other, shallow=False)


def describe_part(path: Path, name: str, units: list[DatasetChunk], chunks: int) -> PartFile:
    """Return the entry of a part in the manifest; its index covers all bytes outside the units."""
    nbytes = path.stat().st_size
    index = find_gaps(units, nbytes)
    return PartFile(name, chunks, nbytes, index, index_crc(path, index))


def index_crc(path: Path, index: list[tuple[int, int]]) -> int:
    """Return the crc32c of the byte ranges of a file that ``index`` lists as (offset, length)."""
    crc = 0
    for offset, nbytes in index:
        crc = crc32c(read_bytes(path, offset, nbytes), crc)
    return crc
