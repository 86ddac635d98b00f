"""An exact shuffle of more rows than memory holds: sorted runs in a scratch file, read back bucket by bucket.

A row's place is decided by a hash of the seed and its number alone. Rows are collected, sorted by their hash and
written as a run; a bucket is a range of hashes, read from every run, sorted, and handed out. The order is that of the
hashes, whatever the batches, the memory and the number of buckets: the same seed gives the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm import durable
from streamsvm.aliases import Array, DType
from streamsvm.rows import CSR, Dense, Float32, Int64, Rows, row_count
from streamsvm.types import Chunk

RUN_BYTES = 16 << 20
"""Bytes of rows that are collected for a run, and about those of a bucket."""
HASH_RANGES = 1024
"""How many ranges of hashes a run is indexed by; a bucket is some of them."""
SHIFT = np.uint64(54)
"""How far a hash is shifted to give its range: 64 - log2(HASH_RANGES)."""
SALT = 1 << 32
"""What sets these hashes apart from those that choose the rows that are held out."""
COUNTS = {"data": "lengths", "indices": "lengths", "text": "letters"}
"""Arrays with several numbers a row, and the array that says how many: entries of CSR rows, UTF-8 bytes of ids."""


class SpooledRows(NamedTuple):
    """Some rows in the order of their hashes."""

    chunk: Chunk
    ids: Array | None
    """Their ids (n,), integers or objects of text; None where they have none."""


class _Run(NamedTuple):
    """Where each array of a run begins, and for each slot the first row, and the first number of ``COUNTS`` arrays."""

    begins: dict[str, int]
    rows: NDArray[np.int64]
    firsts: dict[str, NDArray[np.int64]]


def hashes(seed: int, start: int, count: int) -> NDArray[np.uint64]:
    """Return splitmix64 of seed and row number, uint64 (rows,): for one seed no two rows share a hash."""
    from streamsvm.compute.random import STEP, mix_bits

    state = np.arange(start, start + count, dtype=np.uint64) + np.uint64((seed * 0xD1B54A32D192ED03) % 2**64)
    return mix_bits((state + np.uint64(1)) * STEP)


class Spool:
    """Holds rows in a scratch file, which has no name and is gone with the process: ``append`` all, then ``drain``."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path, self._seed = path, seed
        self._descriptor = durable.open_state(path, 0)
        path.unlink()
        self._pending: list[dict[str, Array]] = []
        self._held = self._rows = self._size = 0
        self._runs: list[_Run] = []
        self._types: dict[str, tuple[DType, int]] = {}

    def append(self, X: Rows, codes: Array, weight: Float32 | None, ids: Array | None = None) -> None:
        """Add rows; all or none have weights, and ids. Raises StorageError."""
        arrays = _arrays(Chunk(X, codes, weight)) | _id_arrays(ids)
        self._pending.append(arrays)
        self._held += sum(values.nbytes for values in arrays.values())
        if self._held >= RUN_BYTES:
            self._write_run()

    def drain(self) -> Iterator[SpooledRows]:
        """Yield all rows in the order of their hashes. Raises StorageError."""
        if self._pending:
            self._write_run()
        buckets = max(1, min(HASH_RANGES, -(-self._size // RUN_BYTES)))
        bounds = np.linspace(0, HASH_RANGES, buckets + 1).astype(int)
        for low, high in pairwise(bounds.tolist()):
            parts = [self._read(run, low, high) for run in self._runs]
            if any(len(part["hash"]) for part in parts):
                yield _rows(_sort_by_hash({name: np.concatenate([p[name] for p in parts]) for name in parts[0]}))

    def close(self) -> None:
        """Remove the scratch file."""
        os.close(self._descriptor)

    def _write_run(self) -> None:
        waiting, self._pending, self._held = self._pending, [], 0
        arrays = {name: np.concatenate([part[name] for part in waiting]) for name in waiting[0]}
        arrays["hash"] = hashes(self._seed + SALT, self._rows, len(arrays["codes"]))
        arrays = _sort_by_hash(arrays)
        self._rows += len(arrays["codes"])
        begins = {}
        for name, values in arrays.items():
            begins[name] = self._size
            self._types[name] = values.dtype, int(np.prod(values.shape[1:], dtype=int))
            durable.write_at(self._descriptor, np.ascontiguousarray(values).view(np.uint8), self._size, self._path)
            self._size += values.nbytes
        slots = (arrays["hash"] >> SHIFT).astype(np.int64)
        rows = np.searchsorted(slots, np.arange(HASH_RANGES + 1))
        counts = {name: arrays[name] for name in {*COUNTS.values()} & arrays.keys()}
        firsts = {name: np.concatenate([[0], np.cumsum(count)])[rows] for name, count in counts.items()}
        self._runs.append(_Run(begins, rows, firsts))

    def _read(self, run: _Run, low: int, high: int) -> dict[str, Array]:
        found = {}
        for name, begin in run.begins.items():
            (dtype, width), bounds = self._types[name], run.firsts[COUNTS[name]] if name in COUNTS else run.rows
            values = np.empty(int(bounds[high] - bounds[low]) * width, dtype)
            at = begin + int(bounds[low]) * width * dtype.itemsize
            durable.read_at(self._descriptor, values.view(np.uint8), at, self._path)
            found[name] = values.reshape(-1, width) if name == "values" else values
        return found


def _arrays(chunk: Chunk) -> dict[str, Array]:
    """Rows as arrays by name, of which each has the numbers of row after row."""
    found: dict[str, Array] = {"codes": chunk.codes}
    if chunk.weight is not None:
        found["weight"] = chunk.weight
    if isinstance(chunk.X, Dense):
        return found | {"values": chunk.X.values}
    return found | {"lengths": np.diff(chunk.X.indptr), "data": chunk.X.data, "indices": chunk.X.indices}


def _id_arrays(ids: Array | None) -> dict[str, Array]:
    """Ids as arrays: integers, or the bytes of texts and how many each has; nothing where rows have none."""
    if ids is None:
        return {}
    if ids.dtype != object:
        return {"ids": ids}
    texts = [text.encode() for text in ids.tolist()]
    return {"letters": np.array(list(map(len, texts)), np.int64), "text": np.frombuffer(b"".join(texts), np.uint8)}


def _sort_by_hash(arrays: dict[str, Array]) -> dict[str, Array]:
    """The same rows in the order of their hashes."""
    order = np.argsort(arrays["hash"], kind="stable")
    places = {name: _places(arrays[name], order) for name in {*COUNTS.values()} & arrays.keys()}
    return {name: values[places[COUNTS[name]] if name in COUNTS else order] for name, values in arrays.items()}


def _places(counts: Int64, order: Int64) -> Int64:
    """Where the numbers of rows stand, ``counts`` (n,) of them a row, when rows come in another order."""
    taken = counts[order]
    ends = np.cumsum(taken)
    return np.arange(int(taken.sum())) + np.repeat((np.cumsum(counts) - counts)[order] - (ends - taken), taken)


def _rows(arrays: dict[str, Array]) -> SpooledRows:
    return SpooledRows(_chunk(arrays), _ids(arrays))


def _ids(arrays: dict[str, Array]) -> Array | None:
    if "text" not in arrays:
        return arrays.get("ids")
    ends, content = np.cumsum(arrays["letters"]).tolist(), arrays["text"].tobytes()
    return np.array([content[start:end].decode() for start, end in pairwise([0, *ends])], dtype=object)


def _chunk(arrays: dict[str, Array]) -> Chunk:
    if "values" in arrays:
        X: Rows = Dense(arrays["values"])
    else:
        indptr = np.concatenate([[0], np.cumsum(arrays["lengths"])]).astype(np.int64)
        X = CSR(arrays["data"], arrays["indices"], indptr)
    assert row_count(X) == len(arrays["codes"])
    return Chunk(X, arrays["codes"], arrays.get("weight"))
