"""Arrays in a Zarr directory (v2 or v3), read through zarr-python after their metadata was judged by us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.aliases import Array
from streamsvm.errors import DataError, quote
from streamsvm.store.foreign import zarr_metadata
from streamsvm.store.foreign.row_arrays import DenseRows, Features, Foreign, Keys, SparseRows, check_rows, unreadable
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
            return values.astype(np.str_) if self.dtype.kind == "U" else values
        except Exception as error:  # whatever codecs say of damaged data
            text = f"{self.name} cannot be read in rows {start + 1}-{stop}"
            raise unreadable(error, text, "E-CRC", "get the array again") from error


def _opened(directory: Path, name: str) -> Any:
    """The array. Raises DataError E-META for metadata that zarr-python does not take."""
    import zarr

    zarr.config.set({"async.concurrency": 1, "threading.max_workers": 1})
    try:
        return zarr.open_array(directory, mode="r")
    except Exception as error:  # whatever it says of metadata
        raise unreadable(error, f"the metadata of {name} cannot be read", "E-META", "write the array again") from error


def open_group(path: Path, keys: Keys) -> Foreign:
    """Open the arrays of a directory that ``keys`` names; a directory that is an array itself is the features. Raises
    DataError, SecurityError.
    """
    alone = zarr_metadata.node_type(path) == "array"
    labels = None
    if keys.labels is not None and not alone and zarr_metadata.node_type(path / keys.labels) == "array":
        labels = ZArray(path, keys.labels, allow_fill=keys.allow_fill)
    return Foreign(_features(path, "" if alone else keys.features, keys), labels, lambda: None)


def _features(path: Path, key: str, keys: Keys) -> Features:
    kind = zarr_metadata.node_type(path / key) if key else "array"
    if kind is None:
        there = ", ".join(sorted(quote(p.name, 40) for p in path.iterdir() if p.is_dir())[:12])
        raise DataError(f"{path} has no array {quote(key)}", code="E-SCHEMA", hint=f"it has {there}")
    if kind == "array":
        return DenseRows(ZArray(path, key, allow_fill=keys.allow_fill))
    attributes = zarr_metadata.attributes(path / key)
    if attributes.get("encoding-type", "csr_matrix") != "csr_matrix" or "shape" not in attributes:
        text = f"'{key}' of {path} is a group of type {quote(attributes.get('encoding-type'))}"
        raise DataError(text, code="E-LAYOUT", hint="an array, or a csr_matrix as AnnData writes it, is needed")
    parts = [ZArray(path, f"{key}/{part}", allow_fill=keys.allow_fill) for part in ("data", "indices", "indptr")]
    rows, columns = (int(n) for n in attributes["shape"])
    return SparseRows(f"{path}:{key}", (parts[0], parts[1], parts[2]), (rows, columns))
