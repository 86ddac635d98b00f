"""Arrays in an HDF5 file, read through h5py."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from streamsvm.aliases import Array, DType
from streamsvm.errors import DataError, quote
from streamsvm.store.foreign.row_arrays import DenseRows, Features, Foreign, Keys, SparseRows, check_rows, unreadable
from streamsvm.store.hdf5 import h5_file
from streamsvm.store.hdf5.h5_file import H5Object


class H5Array:
    """A dataset of an HDF5 file, as a ``RowArray``."""

    def __init__(self, dataset: H5Object, path: Path, *, allow_fill: bool) -> None:
        import h5py

        self._dataset = h5_file.plain(dataset, path)
        self._path = path
        self.name = f"{path}:{dataset.name.lstrip('/')}"
        self.shape: tuple[int, ...] = dataset.shape
        check_rows(self.name, self.shape)
        self._text = h5py.check_string_dtype(dataset.dtype) is not None
        self.dtype: DType = dataset.dtype
        self.sliced = not h5_file.filtered(dataset)
        self.chunk: tuple[int, ...] = dataset.chunks or (max(1, self.shape[0]), *self.shape[1:])
        if dataset.chunks:
            h5_file.units_of(dataset, path, allow_fill=allow_fill)
        elif not allow_fill and dataset.size and dataset.id.get_offset() is None and not _compact(dataset):
            found = f"'{dataset.name}' of {path} was never written: it would read as fill values"
            raise DataError(found, code="E-CHUNKS", hint="write it again; if it is meant to be, pass --allow-fill")

    def read(self, start: int, stop: int) -> Array:
        """Return rows [start, stop) in the dataset's own type; text as str. Raises DataError E-HDF5, StorageError."""
        try:
            if self._text:
                return self._dataset.asstr()[start:stop].astype(np.str_)
            return self._dataset[start:stop]
        except (OSError, RuntimeError) as error:
            text = f"{self.name} cannot be read in rows {start + 1}-{stop}"
            raise unreadable(error, text, "E-HDF5", "get the file again") from error


def _compact(dataset: H5Object) -> bool:
    import h5py

    return bool(dataset.id.get_create_plist().get_layout() == h5py.h5d.COMPACT)


def open_file(path: Path, keys: Keys) -> Foreign:
    """Open the arrays of a file that ``keys`` names. Raises DataError E-HDF5, E-SCHEMA, E-CHUNKS, SecurityError."""
    with ExitStack() as stack:
        file = stack.enter_context(h5_file.opened(path))
        labels = None
        if keys.labels is not None and keys.labels in file:
            labels = H5Array(h5_file.member(file, keys.labels, path), path, allow_fill=keys.allow_fill)
        features = _features(file, path, keys)
        return Foreign(features, labels, stack.pop_all().close)


def _features(file: H5Object, path: Path, keys: Keys) -> Features:
    import h5py

    found = h5_file.member(file, keys.features, path)
    if isinstance(found, h5py.Dataset):
        return DenseRows(H5Array(found, path, allow_fill=keys.allow_fill))
    encoding = found.attrs.get("encoding-type", "csr_matrix")
    if encoding != "csr_matrix" or "shape" not in found.attrs:
        text = f"'{keys.features}' of {path} is a group of type {quote(encoding)}"
        raise DataError(text, code="E-LAYOUT", hint="an array, or a csr_matrix as AnnData writes it, is needed")
    names = (f"{keys.features}/{part}" for part in ("data", "indices", "indptr"))
    parts = [H5Array(h5_file.member(file, name, path), path, allow_fill=keys.allow_fill) for name in names]
    rows, columns = (int(n) for n in found.attrs["shape"])
    return SparseRows(f"{path}:{keys.features}", (parts[0], parts[1], parts[2]), (rows, columns))
