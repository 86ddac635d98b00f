"""One file of an HDF5 store while it is written: by the library, through a file object of ours.

HDF5 cannot cope with a full disk: it may say so only when the file is closed, keeps the descriptor, and the process
crashes at its end. So it never learns of one: it writes through ``_Through``, which keeps the first error for us and
drops what comes after. Nor can a killed writer cost more than the file at hand: a file is written under another name,
closed, made durable, opened and read again, and only then renamed.
"""

from __future__ import annotations

import filecmp
import os
from pathlib import Path

import numpy as np
from crc32c import crc32c

from streamsvm import durable
from streamsvm.aliases import Array, BytesLike
from streamsvm.errors import DataError, StorageError, StreamSVMError
from streamsvm.store.format import manifest as manifests
from streamsvm.store.format.arrays import FILL, INDPTR, MATRIX, PAGE, ArraySpec
from streamsvm.store.format.manifest import PartFile
from streamsvm.store.hdf5 import h5_file
from streamsvm.store.hdf5.h5_file import DatasetChunk, H5Object
from streamsvm.store.read.extents import read_bytes

ALIGN_FROM = 1 << 14
"""Chunks of this many bytes and more begin on a page."""
METADATA_BLOCK = 1 << 16


class _Through:
    """What h5py needs of a file. Never raises: see ``check``."""

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
        """Only asked for, never called: ``readinto`` is."""
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
        """Nothing is held back."""


class KnownPart:
    """A part that an earlier build has completed, in place of a ``PartWriter``: it only compares."""

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
        """Compare what was added with what the file holds. Raises DataError E-SOURCE when the source has changed since."""
        if self.crcs != self._expected or chunks != self._file.chunks:
            text = f"the source does not give the rows of {self._path}, which an earlier run has written from it"
            raise DataError(text, code="E-SOURCE", hint="start again with --overwrite")
        return self._file

    def abort(self) -> None:
        """Do nothing: the file stays."""


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
        """Add a unit of an array; the first ``items`` of the array, counted from its beginning, are real and the rest
        is padding.
        """
        dataset = self._sets[spec.name]
        dataset.resize(items, axis=0)
        dataset.id.write_direct_chunk((index * spec.unit,) + (0,) * bool(spec.width), values)
        self.crcs[spec.name].append(crc32c(values.data))
        self._through.check()

    def sync(self) -> None:
        """Let the disk catch up with what was written. Raises StorageError."""
        durable.sync_state(self._through.descriptor, self._partial)

    def close(self, chunks: int, columns: int) -> PartFile:
        """Complete the file, which has its name only once everything in it was read again. Raises DataError E-HDF5,
        StorageError.
        """
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
        with h5_file.opened(self._partial) as file:
            for name, crcs in self.crcs.items():
                units = h5_file.units_of(h5_file.member(file, name, self._partial), self._partial)
                for unit, crc in zip(units, crcs, strict=True):
                    if crc32c(read_bytes(self._partial, unit.offset, unit.nbytes)) != crc:
                        text = f"{self._partial} does not hold what was written at byte {unit.offset}"
                        raise DataError(text, code="E-HDF5", hint="check the disk, then run the same command again")
                found += units
        return described(self._partial, self.path.name, found, chunks)


def _same(one: Path, other: Path) -> bool:
    if other.is_symlink() or not other.is_file():
        return False
    filecmp.clear_cache()
    return filecmp.cmp(one, other, shallow=False)


def described(path: Path, name: str, units: list[DatasetChunk], chunks: int) -> PartFile:
    """Return what the manifest says of a file; its index is all that is not a unit."""
    nbytes = path.stat().st_size
    index = h5_file.gaps(units, nbytes)
    return PartFile(name, chunks, nbytes, index, index_crc(path, index))


def index_crc(path: Path, index: list[tuple[int, int]]) -> int:
    """Return the crc32c of the bytes of a file that are not payload."""
    crc = 0
    for offset, nbytes in index:
        crc = crc32c(read_bytes(path, offset, nbytes), crc)
    return crc
