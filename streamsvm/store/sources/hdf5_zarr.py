"""HDF5 files and Zarr directories of other programs as sources: arrays are found by their keys and read by ranges of
rows.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import numpy as np

from streamsvm.errors import BudgetError, DataError, quote
from streamsvm.input_files import find_url
from streamsvm.store.foreign import NO_CHECKSUMS, foreign_format, open_foreign
from streamsvm.store.foreign.matrices import Features, Foreign, Keys
from streamsvm.store.format.labels import as_labels
from streamsvm.store.sources.byte_stream import digest_of
from streamsvm.store.sources.options import SourceOptions
from streamsvm.store.sources.read_ahead import BackgroundDigest
from streamsvm.store.sources.remote_files import file_size
from streamsvm.store.sources.source import NO_ROWS, BaseSource, SourceFile
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import Batch

MIB = 1 << 20


class ForeignSource(BaseSource):
    """Arrays in HDF5 files or Zarr directories."""

    def __init__(self, paths: tuple[Path, ...], options: SourceOptions) -> None:
        super().__init__()
        self._paths, self._options = paths, options
        recorded = options.encoding or {}
        labels = None if options.label == "none" else options.labels_key
        needed = options.encoding is None and labels is not None
        self._keys = Keys(options.features_key, labels, needed, options.allow_fill)
        self.columns_read = recorded.get("columns")
        self.names_read = tuple(recorded["names"]) if recorded.get("names") else None
        with_rows: list[Path] = []
        for path in paths:
            try:
                with closing(self._open(path)) as foreign:
                    self._check(path, foreign)
                with_rows.append(path)
            except DataError as error:
                if error.code != "E-EMPTY" or len(paths) == 1 or (path == paths[-1] and not with_rows):
                    raise
        if len(with_rows) < len(paths):
            self._paths, self.notices[NO_ROWS] = tuple(with_rows), len(paths) - len(with_rows)

    def read(self) -> Iterator[Batch]:
        """Yield all rows in order. Raises DataError, StorageError."""
        missing = self._options.missing != "error"
        for path in self._paths:
            file = SourceFile(str(path), size_of(path))
            self.sources.append(file)
            with closing(self._open(path)) as foreign, BackgroundDigest(path, digest_of_tree) as digest:
                features, total = foreign.features, foreign.features.rows
                for start in range(0, total, features.step):
                    stop = min(start + features.step, total)
                    yield Batch(
                        features.read(start, stop, missing=missing, exact=self.exact), _labels(foreign, start, stop)
                    )
                    file.rows = stop
                    file.read = file.size * stop // total
                file.sha256 = digest.result()
        self.notices[NO_CHECKSUMS] = len(self._paths)

    def read_encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, as plain JSON."""
        keys = {"features_key": self._options.features_key, "labels_key": self._options.labels_key}
        encoding = {"format": self._options.format, "options": keys, "columns": self.columns_read}
        return encoding if self.names_read is None else encoding | {"names": list(self.names_read)}

    def _open(self, path: Path) -> Foreign:
        return open_foreign(path, foreign_format(path) or self._options.format, self._keys)

    def _check(self, path: Path, foreign: Foreign) -> None:
        """Raise DataError E-SCHEMA if the columns differ from those of other files, BudgetError if a chunk does not fit
        in memory.
        """
        features, names = foreign.features, foreign.names
        if self.columns_read not in (None, features.columns):
            message = f"{path} has {features.columns} columns, expected {self.columns_read}"
            raise DataError(message, code="E-SCHEMA", hint="read arrays with the same columns")
        if self.columns_read is None:
            self.names_read = names
        check_same_names(self.names_read, names, str(path))
        self.columns_read, self.sparse = features.columns, features.sparse
        check_chunk(features, self._options.memory)


def check_same_names(expected: tuple[str, ...] | None, names: tuple[str, ...] | None, where: str) -> None:
    """Raise DataError E-SCHEMA for the first column with another name than expected; None: names are unknown."""
    if expected is None or names is None:
        return
    for number, (expected_name, name) in enumerate(zip(expected, names, strict=True)):
        if expected_name != name:
            raise DataError(
                f"column {number + 1} of {where} is {quote(name)}, expected {quote(expected_name)}",
                code="E-SCHEMA",
                hint="read matrices with the same columns in the same order: adata[:, NAMES]",
            )


def check_chunk(features: Features, memory: int | None) -> None:
    """Raise BudgetError if reading a chunk takes more than ``memory`` bytes (None: the available memory), or more than
    the machine has.
    """
    import psutil

    machine = psutil.virtual_memory()
    limit = min(memory or int(machine.available), int(machine.total))
    if features.chunk_bytes > limit:
        needed = f"a chunk of {features.name} needs {-(-features.chunk_bytes // MIB)} MiB while it is unpacked"
        limit_text = f"{limit // MIB} MiB are allowed"
        raise BudgetError(f"{needed}, {limit_text}", hint="write the array with smaller chunks, or give more --memory")


def _labels(foreign: Foreign, start: int, stop: int) -> Array:
    if foreign.labels is None:
        return np.empty(0)
    return as_labels(foreign.labels.read(start, stop), foreign.labels.name)


def size_of(path: Path) -> int:
    """Return the bytes of a file or object, or of all files in a directory."""
    if find_url(path) is not None:
        return file_size(path)
    return path.stat().st_size if path.is_file() else sum(os.stat(file).st_size for file in files_below(path))


def files_below(directory: Path | str) -> Iterator[str]:
    """Yield the paths of all files in a directory tree, sorted by name; as text, because ``Path`` is slow for many
    files.
    """
    with os.scandir(directory) as listing:
        entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing)
    for name, is_folder in entries:
        path = os.path.join(directory, name)
        if is_folder:
            yield from files_below(path)
        elif os.path.isfile(path):
            yield path


def digest_of_tree(path: Path, unwanted: Event | None = None) -> str:
    """Return the sha256 of a file, or of the names and contents of all files in a directory."""
    if path.is_file():
        return digest_of(path, unwanted)
    sha256 = hashlib.sha256()
    for file in files_below(path):
        sha256.update(f"{os.path.relpath(file, path)}\0{digest_of(Path(file), unwanted)}\n".encode())
    return sha256.hexdigest()
