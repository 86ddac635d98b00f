"""The HDF5 store: part files of at most 1 GiB, each a plain HDF5 file; read by ``preadv`` once their index is known.

STORE/manifest.json       written last
STORE/part-00000.h5       X (dense) or X/{data,indices,indptr} (CSR in the AnnData encoding), y, weight: of some chunks

A part is complete in itself: its indptr begins at 0, its last units are padded with zeros. The manifest has a crc32c of
every chunk's values and one of all other bytes of a part, checked before the HDF5 library sees them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from streamsvm import durable
from streamsvm.aliases import Array, Handle, JsonObject
from streamsvm.errors import DataError, UsageError
from streamsvm.store.format.arrays import INDICES, ArraySpec, items_of, specs_of
from streamsvm.store.format.manifest import ChunkEntry, Manifest, PartFile
from streamsvm.store.hdf5 import h5_file
from streamsvm.store.hdf5.h5_file import DatasetChunk, H5Object
from streamsvm.store.hdf5.part import KnownPart, PartWriter, index_crc
from streamsvm.store.read.extents import Place, UnitArray
from streamsvm.store.read.reader import DiskStore, Part
from streamsvm.store.write.cutter import Cutters

PART_BYTES = 1 << 30
INDEX_BYTES = 1 << 20
"""More bytes than a part of ``PART_BYTES`` holds beside its units."""
HINT = "restore the file, or ingest again"


def part_path(directory: Path, number: int) -> Path:
    """Return the path of a part; it is made from the part's number and never taken from a file."""
    return directory / f"part-{number:05d}.h5"


@dataclass(slots=True)
class HDF5Medium:
    """Puts the arrays of a store into HDF5 files; see ``store.write.backend.Medium``."""

    name: str = "hdf5"
    """The name of the format."""
    part_bytes: int = field(default_factory=lambda: PART_BYTES)
    """The size of a file after which the next chunk begins a new one."""
    _directory: Path = Path()
    _specs: dict[str, ArraySpec] = field(default_factory=dict)
    _files: list[PartFile] = field(default_factory=list)
    _writer: PartWriter | KnownPart | None = None
    _cutters: Cutters | None = None
    _chunks: int = 0
    """In the part at hand."""
    _rows: int = 0
    """In all parts."""
    _columns: int = 0
    """Met so far: what a CSR part says of its width, the last one apart, which is closed when all are known."""
    _known: list[KnownPart] = field(default_factory=list)
    """Parts an earlier build has completed."""
    _crcs: list[dict[str, list[int]]] = field(default_factory=list)
    """Of the units of each part."""
    _noted: int = 0
    """Parts that were told of."""
    _repair: bool = False

    def begin(self, directory: Path, specs: dict[str, ArraySpec]) -> None:
        """Note the arrays that are to come; see ``Medium.begin``."""
        durable.make_directory(directory)
        self._directory, self._specs = directory, specs

    def compress(self, packed: dict[str, str]) -> None:
        """Raise UsageError when any codec is asked for: HDF5 stores are not compressed."""
        if packed:
            hint = "pass --compression none: HDF5 would need a plugin to read it"
            raise UsageError("HDF5 stores are not compressed", hint=hint)

    def turn(self, values: dict[str, Array]) -> bool:
        """Close the file when the next chunk would not fit in it, and return whether it did; see ``Medium.turn``."""
        full = self._cutters is not None and self._cutters.room(values) > self.part_bytes - INDEX_BYTES
        if full:
            self._close_part(self._columns)
        return full

    def write(self, values: dict[str, Array]) -> None:
        """Add what a chunk has of each array to the current file."""
        if self._writer is None or self._cutters is None:
            self._writer = self._next_part()
            self._cutters = Cutters(self._specs, self._writer.unit)
        self._cutters.append(values)
        if INDICES in values:
            self._columns = max(self._columns, int(values[INDICES].max(initial=-1)) + 1)
        self._chunks += 1
        self._rows += len(values["y"])

    def sync(self) -> bool:
        """Let pages leave the cache and return False: a file that is not complete is no point to go on from."""
        if self._writer is not None:
            self._writer.sync()
        return self._writer is None

    def finish(self, columns: int) -> None:
        """Close the last file."""
        if self._chunks:
            self._close_part(columns)

    def described(self) -> JsonObject:
        """Return the manifest's fields ``units`` and ``files``."""
        return {"units": {name: [] for name in self._specs}, "files": self._files}

    def progress(self) -> Handle:
        """Return the files that are complete, as plain JSON."""
        return {"files": msgspec.to_builtins(self._files)}

    def resume(self, saved: Handle, rows: int) -> None:
        """Go on after the files of ``saved``, which hold ``rows`` rows."""
        self._files, self._rows = msgspec.convert(saved["files"], list[PartFile]), rows

    def known(self, notes: list[Handle], *, repair: bool) -> None:
        """Compare the files that are complete by the checksums of their units; any other is written again as a whole."""
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
        assert self._cutters is not None
        self._cutters.finish()
        self._files.append(self._writer.close(self._chunks, columns))
        self._crcs.append(self._writer.crcs)
        self._writer = self._cutters = None
        self._chunks = 0


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
    with h5_file.opened(path) as opened:
        for name, spec in specs.items():
            dataset = h5_file.plain(h5_file.member(opened, name, path), path)
            found = _units(dataset, spec, items_of(name, chunks), path)
            arrays[name] = UnitArray(spec, _placing(path, found, file.nbytes))
            units += found
    if h5_file.gaps(units, file.nbytes) != file.index:
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
    if (dataset.shape, dataset.chunks, dataset.dtype) != expected or h5_file.filtered(dataset):
        raise DataError(f"'{spec.name}' of {path} is not what was written", code="E-META", hint=HINT)
    units = h5_file.units_of(dataset, path)
    if any(unit.nbytes != spec.unit_bytes for unit in units):
        raise DataError(f"'{spec.name}' of {path} has units of another size", code="E-META", hint=HINT)
    return units


def _placing(path: Path, units: list[DatasetChunk], file_bytes: int) -> Any:
    name = str(path)

    def place(index: int) -> Place:
        return Place(name, units[index].offset, units[index].nbytes, file_bytes)

    return place
