"""The HDF5 store: part files of at most 1 GiB, each a plain HDF5 file; read by ``preadv`` once their index is known.

STORE/manifest.json       written last
STORE/part-00000.h5       X (dense) or X/{data,indices,indptr} (CSR in the AnnData encoding), y, weight: of some chunks

A part is complete in itself: its indptr begins at 0, its last units are padded with zeros. The manifest has a crc32c of
the values of every chunk, and one of all other bytes of a part, which is checked before the HDF5 library sees them.

HDF5 cannot cope with a full disk: it may say so only when the file is closed, keeps the descriptor, and the process
crashes at its end. So it never learns of one: it writes through ``_Through``, which keeps the first error and drops
what comes after. A killed writer costs at most one part: a part is written under another name, closed, made durable,
opened and read again, and only then renamed.

Files that others may have made are opened here too. An HDF5 file can ask for other files (external storage, external
links, virtual datasets) and for code (filters loaded by number). Data must not ask for either: all of it is refused
before a byte of a dataset is read.
"""

from __future__ import annotations

import errno
import filecmp
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from crc32c import crc32c

from streamsvm import durable
from streamsvm.aliases import Array, BytesLike, Handle, JsonObject
from streamsvm.errors import DataError, MissingError, SecurityError, StorageError, StreamSVMError, UsageError, quote
from streamsvm.regular import open_regular
from streamsvm.store.extents import Place, UnitArray, is_disk_error, read_bytes
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.arrays import FILL, INDICES, INDPTR, MATRIX, PAGE, ArraySpec, items_of, specs_of
from streamsvm.store.format.manifest import ChunkEntry, Manifest, PartFile
from streamsvm.store.reader import DiskStore, Part
from streamsvm.store.write.cutting import UnitCutter

H5Object: TypeAlias = Any
"""A file, group or dataset of h5py, which ships no types."""
BUILT_IN_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 6: "scale-offset", 32000: "lzf"}
"""The filters of HDF5 and h5py themselves; szip (4) is left out, because not every build can read it."""
HINT_CLOSED = "write it again, or copy it from where it is whole"
HINT_SWMR = "a writer was killed, or still writes: check with h5ls, then 'h5clear -s FILE'"
HINT_LINK = "copy the data into one plain file: h5repack"
HINT = "restore the file, or ingest again"
MOST_LINKS = 16
"""Soft links that are followed on the way to a member."""
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


class DatasetChunk(NamedTuple):
    """One chunk of a dataset: its first row, and where its bytes are."""

    row: int
    """The number of its first row."""
    offset: int
    nbytes: int


@contextmanager
def open_h5(path: Path) -> Iterator[H5Object]:
    """Open the file for reading. Raises MissingError, DataError E-HDF5, StorageError."""
    import h5py

    try:
        os.close(open_regular(path, follow=True))  # the library waits for ever for the writer of a pipe
        file = h5py.File(path, "r", rdcc_nbytes=0, locking=False)
    except FileNotFoundError as error:
        raise MissingError(f"{path} does not exist", hint="check the name and the directory") from error
    except OSError as error:
        raise _open_error(path, error) from error
    try:
        yield file
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        if is_disk_error(error):
            raise StorageError(f"reading {path} failed: {os.strerror(errno.EIO)}", hint="check the disk") from error
        raise DataError(f"{path} is damaged: {quote(str(error), 160)}", code="E-HDF5", hint=HINT_CLOSED) from error
    finally:
        file.close()


def _open_error(path: Path, error: OSError) -> DataError | StorageError:
    text = str(error)
    if error.errno is not None and error.errno in (errno.EACCES, errno.EIO):
        return StorageError(
            f"opening {path} failed: {os.strerror(error.errno)}", hint="check the disk and its permissions"
        )
    if "consistency flags" in text or "already open" in text:
        return DataError(f"{path} is marked as open for writing", code="E-HDF5", hint=HINT_SWMR)
    if "truncated" in text or "unable to" in text.lower():
        found = f"{path} was not closed properly, or was cut: {quote(text, 160)}"
        return DataError(found, code="E-HDF5", hint=HINT_CLOSED)
    return DataError(f"{path} is no HDF5 file: {quote(text, 160)}", code="E-HDF5", hint=HINT_CLOSED)


def member(file: H5Object, key: str, path: Path, *, soft_links: bool = False) -> H5Object:
    """Return the dataset or group ``key``; see ``find``. Raises DataError E-SCHEMA, SecurityError."""
    found = find(file, key, path, soft_links=soft_links)
    if found is None:
        there = ", ".join(quote(k, 40) for k in list(file)[:12])
        raise DataError(f"{path} has no array {quote(key)}", code="E-SCHEMA", hint=f"it has {there}")
    return found


def find(file: H5Object, key: str, path: Path, *, soft_links: bool = False) -> H5Object | None:
    """Return the dataset or group ``key``, reached by hard links, and by ``soft_links`` where they are allowed, which
    stay in the file; None where there is none. Raises SecurityError for other links.
    """
    import h5py

    found, names, links = file, _names_in(key), 0
    above: list[H5Object] = []
    while names:
        name = names.pop(0)
        if name == b"..":
            found = above.pop() if above else found
            continue
        if not isinstance(found, h5py.Group) or name not in found.id:
            return None
        kind = found.id.links.get_info(name).type
        if kind == h5py.h5l.TYPE_SOFT and soft_links and links < MOST_LINKS:
            target, links = found.id.links.get_val(name), links + 1
            if target.startswith(b"/"):
                found, above = file, []
            names = _names_in(target) + names
            continue
        if kind != h5py.h5l.TYPE_HARD:
            raise SecurityError(f"{quote(key)} of {path} is a symbolic link", hint=HINT_LINK)
        above.append(found)
        found = found[name]
    return found


def _names_in(place: str | bytes) -> list[bytes]:
    """The names on the way to a place in a file."""
    text = place.encode() if isinstance(place, str) else place
    return [name for name in text.split(b"/") if name not in (b"", b".")]


def require_plain(dataset: H5Object, path: Path) -> H5Object:
    """Return a dataset that lies in this file and needs no filter plugin. Raises SecurityError, DataError."""
    import h5py

    made = dataset.id.get_create_plist()
    if made.get_layout() == h5py.h5d.VIRTUAL:
        raise SecurityError(f"'{dataset.name}' of {path} is a virtual dataset: its data are elsewhere", hint=HINT_LINK)
    if made.get_external_count():
        raise SecurityError(f"'{dataset.name}' of {path} has external storage: its data are elsewhere", hint=HINT_LINK)
    for number in range(made.get_nfilters()):
        code = made.get_filter(number)[0]
        if code not in BUILT_IN_FILTERS:
            known = ", ".join(f"{name} ({k})" for k, name in BUILT_IN_FILTERS.items())
            found = f"'{dataset.name}' of {path} is compressed by filter {code}, which is not part of HDF5"
            raise SecurityError(found, code="E-FILTER", hint=f"write it again with one of {known}: h5repack")
    return dataset


def is_filtered(dataset: H5Object) -> bool:
    """Return whether chunks are compressed or otherwise changed on disk."""
    return bool(dataset.id.get_create_plist().get_nfilters())


def chunks_of(dataset: H5Object, path: Path, *, allow_fill: bool = False) -> list[DatasetChunk]:
    """Return the chunks of a dataset, in the order of rows. Raises DataError E-CHUNKS when one was never written."""
    found: list[DatasetChunk] = []
    dataset.id.chunk_iter(
        lambda chunk: found.append(DatasetChunk(chunk.chunk_offset[0], chunk.byte_offset, chunk.size))
    )
    found.sort()
    expected = 1
    for size, step in zip(dataset.shape, dataset.chunks, strict=True):
        expected *= -(-size // step)
    if len(found) != expected and not allow_fill:
        text = f"'{dataset.name}' of {path} has {len(found)} of {expected} chunks: the others would read as fill values"
        raise DataError(text, code="E-CHUNKS", hint="write it again; if they are meant to be, pass --allow-fill")
    return found


def gaps(units: list[DatasetChunk], nbytes: int) -> list[tuple[int, int]]:
    """Return the (offset, length) of the bytes of a file that belong to no unit."""
    found, at = [], 0
    for unit in sorted(units, key=lambda u: u.offset):
        if unit.offset > at:
            found.append((at, unit.offset - at))
        at = unit.offset + unit.nbytes
    return found if at == nbytes else [*found, (at, nbytes - at)]
