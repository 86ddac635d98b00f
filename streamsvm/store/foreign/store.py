"""A foreign array as a store: it is read in place, in chunks of whole rows, without being ingested."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from streamsvm.errors import DataError
from streamsvm.rows import CSR, Dense, Rows, row_count
from streamsvm.store.foreign import NO_CHECKSUMS, foreign_format, open_foreign
from streamsvm.store.foreign.matrices import Keys, RowArray, SparseColumns
from streamsvm.store.format.labels import ClassCoder, as_labels, label_type, record_label_type
from streamsvm.store.format.statistics import Moments
from streamsvm.store.reader import DisplayedStore
from streamsvm.store.sources.hdf5_zarr import check_chunk
from streamsvm.store.sources.offsets import collect_first_rows, find_offsets, list_first, name_of, offsets_from
from streamsvm.type_aliases import Array, JsonObject
from streamsvm.types import Chunk, Layout, Statistics

LABEL_ROWS = 1 << 20
"""The number of labels that are read at a time."""
EXACT_BLOCKS = 5
"""Memory, in multiples of a float32 chunk, for reading a chunk in float64 and subtracting its offsets."""
COLUMNS_SHOWN = 5
"""The most columns that a notice names."""


@dataclass(slots=True)
class ForeignBuffer:
    """The rows of one chunk; their memory is allocated by the library that reads them."""

    nbytes: int
    """The bytes that reading a chunk takes, for the memory plan."""
    X: Rows | None = None
    """The rows that were fetched last."""


class ForeignStore(DisplayedStore):
    """A foreign array as a store; a ``types.StoredFiles``.

    Labels are read once and stay in memory, one byte per row for up to 256 classes; features are read in every pass.
    """

    def __init__(self, path: Path, keys: Keys, memory: int | None = None) -> None:
        kind = foreign_format(path)
        if kind is None:
            raise DataError(f"{path} is neither a store nor a Zarr or HDF5 array", code="E-FORMAT", hint="ingest it")
        self._path, self._keys, self._memory = path, keys, memory
        self.foreign = open_foreign(path, kind, keys)
        features, labels = self.foreign.features, self.foreign.labels
        assert labels is not None
        if isinstance(features, SparseColumns) and not features.fits_one_span:
            raise DataError(
                f"{features.name} is stored by columns: every pass would read it many times",
                code="E-LAYOUT",
                hint=f"ingest it, which gathers its rows once: streamsvm ingest {path} STORE",
            )
        check_chunk(features, memory)
        self.name, self.root = str(path), path
        self._codes, census = read_codes(labels)
        self._features, self._step = features, features.step
        self._offsets = find_offsets(self._first_rows) or offsets_from(None)
        chunks, nonzeros = self._chunk_sizes()
        self.layout = Layout(features.columns, chunks, nonzeros, census.table(), tuple(census.counts))
        self._crcs: list[int] = []
        options = {"features_key": keys.features, "labels_key": keys.labels}
        encoding = {"format": kind, "options": options, "columns": features.columns}
        names = self.foreign.names
        if names is not None:
            encoding["names"] = list(names)
        notice = NO_CHECKSUMS
        if len(self._offsets.columns):
            encoding["offsets"] = self._offsets.to_json()
            shown = [f"{name_of(names, int(j))} less {o:.15g}" for j, o in zip(*self._offsets, strict=True)]
            notice += f"; read with an offset subtracted, because float32 is too coarse that far from 0: {list_first(shown, COLUMNS_SHOWN)}"
        self.facts: JsonObject = {
            "names": None if names is None else list(names),
            "encoding": encoding,
            "notice": notice,
        }
        if kind_of_labels := record_label_type(census.table(), label_type(next(iter(census.kinds)))):
            self.facts["labels"] = {"positive": None, "threshold": None} | kind_of_labels

    def __reduce__(self) -> Any:
        return ForeignStore, (self._path, self._keys, self._memory)

    @property
    def census(self) -> list[list[int]]:
        """Rows of each class in each chunk."""
        chunk_codes = np.split(self._codes, np.cumsum(self.layout.chunks)[:-1])
        return [np.bincount(codes, minlength=1).tolist() for codes in chunk_codes]

    @property
    def selection(self) -> None:
        """None: the store is not a selection of another store's chunks."""

    @property
    def versions(self) -> dict[str, str]:
        """Empty: the program that wrote the array is unknown."""
        return {}

    @cached_property
    def digest(self) -> str:
        """The sha256 of the content. Its first use reads all rows, in one pass that also computes the statistics and
        the checksums of the chunks; from then on ``check`` compares the chunks with these checksums.
        """
        moments = self._moments
        facts = f"{self.layout.columns} {self.layout.classes} {self.layout.chunks} {moments.rows} {self._crcs}"
        sha256 = hashlib.sha256(facts.encode())
        for start in range(0, len(self._codes), LABEL_ROWS):
            sha256.update(self._codes[start : start + LABEL_ROWS].astype("<i4").data)
        return sha256.hexdigest()

    @cached_property
    def _moments(self) -> Moments:
        moments, crcs = Moments(), []
        for chunk in range(len(self.layout.chunks)):
            X = self._read(chunk)
            moments.add(X)
            crcs.append(_crc(X))
        self._crcs = crcs
        return moments

    def statistics(self) -> Statistics:
        """Return the column statistics over all rows; the first call reads them. Raises DataError, StorageError."""
        return self._moments.result(self.layout.columns, not self.layout.dense)

    def folder_of_ids(self) -> Path:
        """Return the folder of the file of row ids, which only stores of streamsvm have."""
        return self.root

    def faults(self) -> Iterator[DataError]:
        """Yield nothing: only the chunks can be checked."""
        return iter(())

    def buffers(self) -> ForeignBuffer:
        """Return a new buffer for one chunk."""
        exact = EXACT_BLOCKS * self.layout.block_bytes if len(self._offsets.columns) else 0
        return ForeignBuffer(self.layout.block_bytes + self._features.chunk_bytes + exact)

    def fetch(self, chunk: int, into: ForeignBuffer) -> None:
        """Read the rows of ``chunk`` into ``into``. Raises DataError, StorageError."""
        into.X = self._read(chunk)

    def check(self, chunk: int, into: ForeignBuffer) -> Chunk:
        """Return the fetched rows and their labels. Raises DataError E-CHANGED if the rows differ from those that
        ``digest`` or ``statistics`` read.
        """
        assert into.X is not None
        start = chunk * self._step
        if self._crcs and _crc(into.X) != self._crcs[chunk]:
            rows = f"rows {start}-{start + row_count(into.X) - 1}"
            hint = "run the job again; nothing may write to it meanwhile. A store of ours keeps its own checksums: ingest it"
            raise DataError(f"{rows} of {self.name} are not what was read before", code="E-CHANGED", hint=hint)
        return Chunk(_writable(into.X), self._codes[start : start + row_count(into.X)].astype(np.int32), None)

    def expect(self, chunk: int) -> None:
        """Do nothing: read-ahead is left to the library."""

    def forget(self, chunk: int) -> None:
        """Do nothing: the library does not tell the place of a chunk on disk."""

    def _read(self, chunk: int) -> Rows:
        start, exact = chunk * self._step, bool(len(self._offsets.columns))
        X = self._features.read(start, min(start + self._step, self._features.rows), exact=exact)
        return self._offsets.apply(X)

    def _first_rows(self, exact: bool) -> Rows | None:
        """Return the rows from which the offsets are computed, the same as in ingest; None if they cannot be read."""
        rows = self._features.rows
        starts = range(0, rows, self._step)
        return collect_first_rows(self._features.read(k, min(k + self._step, rows), exact=exact) for k in starts)

    def _chunk_sizes(self) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Return the rows of each chunk and, for CSR, its entries."""
        starts = [*range(0, self._features.rows, self._step), self._features.rows]
        rows, entries = np.diff(starts), self._features.entries()
        offset_columns = len(self._offsets.columns)  # with an offset, every row has an entry in these columns
        return tuple(rows.tolist()), entries and tuple(
            e + offset_columns * n for e, n in zip(entries, rows.tolist(), strict=True)
        )


def read_codes(labels: RowArray) -> tuple[Array, ClassCoder]:
    """Return the class codes of all rows, (n,) uint8 or int32, and their coder. Raises DataError E-LABEL."""
    census, rows = ClassCoder(), labels.shape[0]
    all_codes: Array = np.empty(rows, np.uint8)
    for start in range(0, rows, LABEL_ROWS):
        stop = min(start + LABEL_ROWS, rows)
        codes = census.codes(as_labels(labels.read(start, stop), labels.name))
        if len(census.classes) - 1 > np.iinfo(all_codes.dtype).max:
            all_codes = all_codes.astype(np.int32)
        all_codes[start:stop] = codes
    return all_codes, census


def _crc(X: Rows) -> int:
    """Return the crc32c of the decoded numbers of some rows."""
    arrays = (X.values,) if isinstance(X, Dense) else (X.data, X.indices, X.indptr)
    crc = 0
    for array in arrays:
        crc = crc32c(np.ascontiguousarray(array).data, crc)
    return crc


def _writable(X: Rows) -> Rows:
    """Return rows that solvers may change; arrays that are read-only are copied."""
    if isinstance(X, Dense):
        return Dense(_writable_array(X.values))
    return CSR(_writable_array(X.data), _writable_array(X.indices), _writable_array(X.indptr))


def _writable_array(values: Any) -> Any:
    return np.ascontiguousarray(values) if values.flags.writeable else values.copy()
