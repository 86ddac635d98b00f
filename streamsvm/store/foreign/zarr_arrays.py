"""Arrays in a Zarr directory (v2 or v3), read through zarr-python after their metadata was judged by us."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.aliases import Array, ByName
from streamsvm.store.foreign import zarr_metadata
from streamsvm.store.foreign.members import features_of, labels_of, names_of
from streamsvm.store.foreign.row_arrays import Foreign, Keys, RowArray, check_rows, unreadable
from streamsvm.store.foreign.zarr_metadata import ArrayMeta


class ZArray:
    """An array of a Zarr directory, as a ``RowArray``."""

    sliced = False

    def __init__(self, root: Path, key: str, *, allow_fill: bool) -> None:
        self._directory = root / key if key else root
        self.name = f"{root}:{key}" if key else str(root)
        self._meta: ArrayMeta = zarr_metadata.array_meta(self._directory)
        self.shape, self.chunk, self.dtype = self._meta.shape, self._meta.chunk, self._meta.dtype
        check_rows(self.name, self.shape)
        zarr_metadata.check_chunks(self._directory, self._meta, allow_fill=allow_fill)
        self._array: Any = None

    def read(self, start: int, stop: int) -> Array:
        """Return rows [start, stop) in the array's own type; text as str. Raises DataError E-META, E-CRC, StorageError."""
        zarr_metadata.check_sizes(self._directory, self._meta, start, stop)
        if self._array is None:
            self._array = _opened(self._directory, self.name)
        try:
            values = np.asarray(self._array[start:stop])
            return np.array(values.tolist(), np.str_) if self.dtype.kind == "U" else values
        except Exception as error:  # whatever codecs say of damaged data
            text = f"{self.name} cannot be read in rows {start + 1}-{stop}"
            raise unreadable(error, text, "E-CRC", "get the array again") from error


def _opened(directory: Path, name: str) -> Any:
    """The array. Raises DataError E-META for metadata that zarr-python does not take."""
    import zarr

    zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1})
    try:
        with warnings.catch_warnings():  # of types that another version of zarr-python may not read
            warnings.simplefilter("ignore")
            return zarr.open_array(directory, mode="r")
    except Exception as error:  # whatever it says of metadata
        raise unreadable(error, f"the metadata of {name} cannot be read", "E-META", "write the array again") from error


class ZDirectory:
    """A Zarr directory, as a ``ForeignFile``; one that is an array itself has it at the key ''."""

    def __init__(self, path: Path, *, allow_fill: bool) -> None:
        self._path, self._allow_fill = path, allow_fill
        self.name = str(path)

    def kind(self, key: str) -> str | None:
        """Return 'array', 'group' or None."""
        return zarr_metadata.node_type(self._path / key.strip("/"))

    def attributes(self, key: str) -> ByName:
        """Return the attributes of a member."""
        return zarr_metadata.attributes(self._path / key.strip("/"))

    def array(self, key: str, *, may_lack_chunks: bool = False) -> RowArray:
        """Open an array. Raises DataError, SecurityError."""
        return ZArray(self._path, key.strip("/"), allow_fill=self._allow_fill or may_lack_chunks)

    def members(self, key: str) -> list[str]:
        """Return the names in a group."""
        return sorted(place.name for place in (self._path / key.strip("/")).iterdir() if place.is_dir())


def open_group(path: Path, keys: Keys) -> Foreign:
    """Open the arrays of a directory that ``keys`` names; a directory that is an array itself is the features. Raises
    DataError, SecurityError.
    """
    file = ZDirectory(path, allow_fill=keys.allow_fill)
    if file.kind("") == "array":
        return Foreign(features_of(file, ""), None, lambda: None)
    labels = None if keys.labels is None else labels_of(file, keys.labels)
    features = features_of(file, keys.features)
    return Foreign(features, labels, lambda: None, names_of(file, keys.features, features.columns))
