"""HDF5 files of other programs as ``ForeignFile``: h5py reads them after ``store.hdf5_checks`` has checked their
datasets.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from streamsvm.errors import DataError, quote
from streamsvm.store.foreign.matrices import (
    Foreign,
    Keys,
    RowArray,
    check_rows,
    features_of,
    labels_of,
    names_of,
    read_error,
)
from streamsvm.store.hdf5_checks import H5Object, chunks_of, find, is_filtered, member, open_h5, require_plain
from streamsvm.type_aliases import Array, DType, ValuesByName


class H5Array:
    """A dataset of an HDF5 file, as a ``RowArray``."""

    def __init__(self, dataset: H5Object, path: Path, *, allow_fill: bool) -> None:
        import h5py

        self._dataset = require_plain(dataset, path)
        self._path = path
        self.name = f"{path}:{dataset.name.lstrip('/')}"
        self._transposed = "MATLAB_class" in dataset.attrs and len(dataset.shape) == 2  # MATLAB stores columns first
        self.shape: tuple[int, ...] = dataset.shape[::-1] if self._transposed else dataset.shape
        check_rows(self.name, self.shape)
        self._text = h5py.check_string_dtype(dataset.dtype) is not None
        self.dtype: DType = dataset.dtype
        self.can_slice = not is_filtered(dataset)
        chunk = dataset.chunks[::-1] if dataset.chunks and self._transposed else dataset.chunks
        self.chunk: tuple[int, ...] = chunk or (max(1, self.shape[0]), *self.shape[1:])
        if dataset.chunks:
            chunks_of(dataset, path, allow_fill=allow_fill)
        elif not allow_fill and dataset.size and dataset.id.get_offset() is None and not _is_compact(dataset):
            message = f"'{dataset.name}' of {path} was never written: it would read as fill values"
            hint = "write it again; if it is meant to be fill values, pass --allow-fill"
            raise DataError(message, code="E-CHUNKS", hint=hint)

    def read(self, start: int, stop: int) -> Array:
        """Return rows [start, stop) in the dataset's own type; text as str. Raises DataError E-HDF5, StorageError."""
        try:
            if self._text:
                return self._dataset.asstr()[start:stop].astype(np.str_)
            if self._transposed:
                return np.ascontiguousarray(self._dataset[:, start:stop].T)
            return self._dataset[start:stop]
        except (OSError, RuntimeError) as error:
            text = f"{self.name} cannot be read in rows {start + 1}-{stop}"
            raise read_error(error, text, "E-HDF5", "get the file again") from error


def _is_compact(dataset: H5Object) -> bool:
    """Return whether the data are stored in the header of the dataset."""
    import h5py

    return bool(dataset.id.get_create_plist().get_layout() == h5py.h5d.COMPACT)


class H5File:
    """An HDF5 file, as a ``ForeignFile``."""

    def __init__(self, file: H5Object, path: Path, *, allow_fill: bool) -> None:
        self._file, self._path, self._allow_fill = file, path, allow_fill
        self.name = str(path)

    def kind(self, key: str) -> str | None:
        """Return 'array' or 'group'; None if there is no such member. Raises SecurityError for one in another file."""
        import h5py

        node = find(self._file, key, self._path, soft_links=True)
        return None if node is None else "array" if isinstance(node, h5py.Dataset) else "group"

    def attributes(self, key: str) -> ValuesByName:
        """Return the attributes of a member."""
        return dict(member(self._file, key, self._path, soft_links=True).attrs)

    def array(self, key: str, *, may_lack_chunks: bool = False) -> RowArray:
        """Open a dataset. Raises DataError, SecurityError."""
        import h5py

        dataset = member(self._file, key, self._path, soft_links=True)
        if not isinstance(dataset, h5py.Dataset):
            raise DataError(
                f"{quote(key)} of {self._path} is a group, not an array", code="E-LAYOUT", hint="name an array"
            )
        return H5Array(dataset, self._path, allow_fill=self._allow_fill or may_lack_chunks)

    def members(self, key: str) -> list[str]:
        """Return the names of the members of a group."""
        return list(member(self._file, key, self._path, soft_links=True) if key else self._file)


def open_hdf5_file(path: Path, keys: Keys) -> Foreign:
    """Open the arrays in a file that ``keys`` names. Raises DataError E-HDF5, E-SCHEMA, E-CHUNKS, SecurityError."""
    with ExitStack() as stack:
        file = H5File(stack.enter_context(open_h5(path)), path, allow_fill=keys.allow_fill)
        labels = None if keys.labels is None else labels_of(file, keys.labels)
        features = features_of(file, keys.features)
        names = names_of(file, keys.features, features.columns)
        return Foreign(features, labels, stack.pop_all().close, names)
