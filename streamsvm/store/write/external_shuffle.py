"""An exact shuffle of more rows than memory holds: sorted runs in a scratch file, read back bucket by bucket.

A row's place is decided by a hash of the seed and its number alone. Rows are collected, sorted by their hash and written
as a run; a bucket is a range of hashes, read from every run, sorted, and handed out. The order is that of the hashes,
whatever the batches, the memory and the number of buckets: the same seed gives the same bits.
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
from streamsvm.aliases import Array, ByName, DType
from streamsvm.compute.splitmix import STEP, mixed
from streamsvm.rows import CSR, Dense, Float32, Int32, Rows, row_count, row_stack
from streamsvm.store.write.chunker import Piece

RUN_BYTES = 16 << 20
"""Bytes of rows that are collected for a run, and about those of a bucket."""
HASH_RANGES = 1024
"""How many ranges of hashes a run is indexed by; a bucket is some of them."""
SHIFT = np.uint64(54)
"""How far a hash is shifted to give its range: 64 - log2(HASH_RANGES)."""
SALT = 1 << 32
"""What sets these hashes apart from those that choose the rows that are held out."""
ENTRY = ("data", "indices")


class _Run(NamedTuple):
    """Where each array of a run begins, and the first row and entry of each slot."""

    begins: dict[str, int]
    rows: NDArray[np.int64]
    entries: NDArray[np.int64]


def hashes(seed: int, start: int, count: int) -> NDArray[np.uint64]:
    """Return splitmix64 of seed and row number, uint64 (rows,). For one seed it is a bijection: no two rows of a store
    share a hash.
    """
    state = np.arange(start, start + count, dtype=np.uint64) + np.uint64((seed * 0xD1B54A32D192ED03) % 2**64)
    return mixed((state + np.uint64(1)) * STEP)


class Spool:
    """Holds rows in a scratch file: ``append`` all of them, then ``drain``. The file has no name and is gone with the
    process.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self._path, self._seed = path, seed
        self._descriptor = durable.open_state(path, 0)
        path.unlink()
        self._pending: list[Piece] = []
        self._held = self._rows = self._size = 0
        self._runs: list[_Run] = []
        self._types: dict[str, tuple[DType, int]] = {}

    def append(self, X: Rows, codes: Int32, weight: Float32 | None) -> None:
        """Add rows. Raises StorageError."""
        self._pending.append(Piece(X, codes, weight))
        self._held += sum(a.nbytes for a in (*X, codes, weight) if isinstance(a, np.ndarray))
        if self._held >= RUN_BYTES:
            self._write_run()

    def drain(self) -> Iterator[Piece]:
        """Yield all rows in the order of their hashes. Raises StorageError."""
        if self._pending:
            self._write_run()
        buckets = max(1, min(HASH_RANGES, -(-self._size // RUN_BYTES)))
        bounds = np.linspace(0, HASH_RANGES, buckets + 1).astype(int)
        for low, high in pairwise(bounds.tolist()):
            parts = [self._read(run, low, high) for run in self._runs]
            if any(len(part["hash"]) for part in parts):
                yield _piece(_sorted({name: np.concatenate([p[name] for p in parts]) for name in parts[0]}))

    def close(self) -> None:
        """Remove the scratch file."""
        os.close(self._descriptor)

    def _write_run(self) -> None:
        pieces, self._pending, self._held = self._pending, [], 0
        arrays = _arrays(pieces)
        arrays["hash"] = hashes(self._seed + SALT, self._rows, len(arrays["codes"]))
        arrays = _sorted(arrays)
        self._rows += len(arrays["codes"])
        begins = {}
        for name, values in arrays.items():
            begins[name] = self._size
            self._types[name] = values.dtype, int(np.prod(values.shape[1:], dtype=int))
            durable.write_at(self._descriptor, np.ascontiguousarray(values).view(np.uint8), self._size, self._path)
            self._size += values.nbytes
        slots = (arrays["hash"] >> SHIFT).astype(np.int64)
        rows = np.searchsorted(slots, np.arange(HASH_RANGES + 1))
        lengths = arrays.get("lengths")
        entries = rows if lengths is None else np.concatenate([[0], np.cumsum(lengths)])[rows]
        self._runs.append(_Run(begins, rows, entries))

    def _read(self, run: _Run, low: int, high: int) -> dict[str, Array]:
        found = {}
        for name, begin in run.begins.items():
            (dtype, width), bounds = self._types[name], run.entries if name in ENTRY else run.rows
            values = np.empty(int(bounds[high] - bounds[low]) * width, dtype)
            durable.read_at(self._descriptor, values.view(np.uint8), begin + int(bounds[low]) * width * dtype.itemsize)
            found[name] = values.reshape(-1, width) if name == "values" else values
        return found


def _arrays(pieces: list[Piece]) -> dict[str, Array]:
    X = row_stack([piece.X for piece in pieces])
    found: ByName = {"codes": np.concatenate([piece.codes for piece in pieces])}
    weights = [piece.weight for piece in pieces if piece.weight is not None]
    if weights:
        found["weight"] = np.concatenate(weights)
    if isinstance(X, Dense):
        return found | {"values": X.values}
    return found | {"lengths": np.diff(X.indptr), "data": X.data, "indices": X.indices}


def _sorted(arrays: dict[str, Array]) -> dict[str, Array]:
    """The same rows in the order of their hashes."""
    order = np.argsort(arrays["hash"], kind="stable")
    entries = None
    if "lengths" in arrays:
        lengths = arrays["lengths"]
        starts = np.cumsum(lengths) - lengths
        taken = lengths[order]
        ends = np.cumsum(taken)
        entries = np.arange(int(taken.sum())) + np.repeat(starts[order] - (ends - taken), taken)
    return {name: values[entries if name in ENTRY else order] for name, values in arrays.items()}


def _piece(arrays: dict[str, Array]) -> Piece:
    if "values" in arrays:
        X: Rows = Dense(arrays["values"])
    else:
        indptr = np.concatenate([[0], np.cumsum(arrays["lengths"])]).astype(np.int64)
        X = CSR(arrays["data"], arrays["indices"], indptr)
    assert row_count(X) == len(arrays["codes"])
    return Piece(X, arrays["codes"], arrays.get("weight"))
