"""A foreign array as a store: it is read in place, in chunks of whole rows, and not copied into a store of ours."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from streamsvm.aliases import Array, JsonObject
from streamsvm.errors import DataError
from streamsvm.rows import CSR, Dense, Rows, row_count
from streamsvm.store.foreign import NO_CHECKSUMS, foreign_format, open_foreign
from streamsvm.store.foreign.matrices import Keys, RowArray, SparseColumns
from streamsvm.store.format.labels import Census, as_labels, label_type, type_to_record
from streamsvm.store.format.statistics import Moments
from streamsvm.store.reader import ShownStore
from streamsvm.store.sources.hdf5_zarr import check_chunk
from streamsvm.store.sources.offsets import collect_first_rows, find_offsets, list_first, name_of, offsets_from
from streamsvm.types import Chunk, Layout, Statistics

LABEL_ROWS = 1 << 20
"""Labels that are read at a time."""
EXACT_BLOCKS = 5
"""Copies of a chunk in memory while it is read in float64, less its offsets."""
COLUMNS_SHOWN = 5
"""The most columns that a notice names."""


@dataclass(slots=True)
class ForeignBuffer:
    """The rows of a chunk; the library that reads them allocates the memory."""

    nbytes: int
    """Bytes of a chunk while it is read, for the plan of memory."""
    X: Rows | None = None
    """The rows that were fetched last."""


class ForeignStore(ShownStore):
    """A foreign array as a store; see ``types.StoredFiles``.

    Labels are read once and stay in memory, a byte a row up to 256 classes; features are read in every pass.
    """

    def __init__(self, path: Path, keys: Keys, memory: int | None = None) -> None:
        kind = foreign_format(path)
        if kind is None:
            raise DataError(f"{path} is neither a store nor a Zarr or HDF5 array", code="E-FORMAT", hint="ingest it")
        self._path, self._keys, self._memory = path, keys, memory
        self.foreign = open_foreign(path, kind, keys)
        features, labels = self.foreign.features, self.foreign.labels
        assert labels is not None
        if isinstance(features, SparseColumns) and not features.in_one_span:
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
        chunks, nonzeros = self._sizes()
        self.layout = Layout(features.columns, chunks, nonzeros, census.table(), tuple(census.counts))
        self._crcs: list[int] = []
        named = {"features_key": keys.features, "labels_key": keys.labels}
        encoding = {"format": kind, "options": named, "columns": features.columns}
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
        if kind_of_labels := type_to_record(census.table(), label_type(next(iter(census.kinds)))):
            self.facts["labels"] = {"positive": None, "threshold": None} | kind_of_labels

    def __reduce__(self) -> Any:
        return ForeignStore, (self._path, self._keys, self._memory)

    @property
    def census(self) -> list[list[int]]:
        """Rows of each class in each chunk."""
        cuts = np.split(self._codes, np.cumsum(self.layout.chunks)[:-1])
        return [np.bincount(codes, minlength=1).tolist() for codes in cuts]

    @property
    def selection(self) -> None:
        """None: all chunks, as they are."""

    @property
    def versions(self) -> dict[str, str]:
        """Empty: nobody knows which program wrote it."""
        return {}

    @cached_property
    def digest(self) -> str:
        """The sha256 of the content; it takes a pass, the same one as the statistics, because other programs leave no
        checksums. From then on the chunks must be these.
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
        """Return the column statistics over all rows; see ``types.Store.statistics``."""
        return self._moments.result(self.layout.columns, not self.layout.dense)

    def faults(self) -> Iterator[DataError]:
        """Yield nothing: nothing but the chunks can be checked."""
        return iter(())

    def buffers(self) -> ForeignBuffer:
        """Return new memory for one chunk; see ``types.Store.buffers``."""
        exact = EXACT_BLOCKS * self.layout.block_bytes if len(self._offsets.columns) else 0
        return ForeignBuffer(self.layout.block_bytes + self._features.chunk_bytes + exact)

    def fetch(self, chunk: int, into: ForeignBuffer) -> None:
        """Read the bytes of ``chunk`` into ``into``; see ``types.Store.fetch``."""
        into.X = self._read(chunk)

    def check(self, chunk: int, into: ForeignBuffer) -> Chunk:
        """Verify what was fetched and return it as rows; see ``types.Store.check``."""
        assert into.X is not None
        start = chunk * self._step
        if self._crcs and _crc(into.X) != self._crcs[chunk]:
            rows = f"rows {start}-{start + row_count(into.X) - 1}"
            hint = "run the job again; nothing may write to it meanwhile. A store of ours keeps its own checksums: ingest it"
            raise DataError(f"{rows} of {self.name} are not what was read before", code="E-CHANGED", hint=hint)
        return Chunk(_writable(into.X), self._codes[start : start + row_count(into.X)].astype(np.int32), None)

    def expect(self, chunk: int) -> None:
        """Do nothing: the libraries read ahead as they see fit."""

    def forget(self, chunk: int) -> None:
        """Do nothing: the libraries do not say where a chunk lies."""

    def _read(self, chunk: int) -> Rows:
        start, exact = chunk * self._step, bool(len(self._offsets.columns))
        X = self._features.read(start, min(start + self._step, self._features.rows), exact=exact)
        return self._offsets.apply(X)

    def _first_rows(self, exact: bool) -> Rows | None:
        """The rows that decide the offsets, the same as in an ingest; None where they cannot be read."""
        rows = self._features.rows
        starts = range(0, rows, self._step)
        return collect_first_rows(self._features.read(k, min(k + self._step, rows), exact=exact) for k in starts)

    def _sizes(self) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Rows and, of CSR, entries of each chunk."""
        starts = [*range(0, self._features.rows, self._step), self._features.rows]
        rows, entries = np.diff(starts), self._features.entries()
        more = len(self._offsets.columns)  # each row has an entry in these then
        return tuple(rows.tolist()), entries and tuple(
            e + more * n for e, n in zip(entries, rows.tolist(), strict=True)
        )


def read_codes(labels: RowArray) -> tuple[Array, Census]:
    """Return the class codes of all rows, in as few bytes as they fit, and their coder. Raises DataError E-LABEL."""
    census, rows = Census(), labels.shape[0]
    found: Array = np.empty(rows, np.uint8)
    for start in range(0, rows, LABEL_ROWS):
        stop = min(start + LABEL_ROWS, rows)
        codes = census.codes(as_labels(labels.read(start, stop), labels.name))
        if len(census.classes) - 1 > np.iinfo(found.dtype).max:
            found = found.astype(np.int32)
        found[start:stop] = codes
    return found, census


def _crc(X: Rows) -> int:
    """crc32c of the numbers of some rows, whatever they were stored as."""
    arrays = (X.values,) if isinstance(X, Dense) else (X.data, X.indices, X.indptr)
    crc = 0
    for array in arrays:
        crc = crc32c(np.ascontiguousarray(array).data, crc)
    return crc


def _writable(X: Rows) -> Rows:
    """Return rows that a visit may change."""
    if isinstance(X, Dense):
        return Dense(_own(X.values))
    return CSR(_own(X.data), _own(X.indices), _own(X.indptr))


def _own(values: Any) -> Any:
    return np.ascontiguousarray(values) if values.flags.writeable else values.copy()
