"""Shuffle more rows than fit in memory: write sorted runs to a scratch file, and merge them bucket by bucket.

Rows are put into the order of a hash of the seed and the row number. ``append`` collects rows, sorts them by their hash
and writes them as a run. ``drain`` reads one bucket, a range of hashes, from every run, sorts its rows and yields them.
The order does not depend on the batches, the memory and the number of buckets: the same seed gives the same bits.
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
from streamsvm.rows import CSR, Dense, Float32, Int64, Rows, row_count
from streamsvm.store.format.manifest import Manifest
from streamsvm.store.write.writer import StoreWriter
from streamsvm.type_aliases import Array, DType, JsonObject
from streamsvm.types import Chunk

RUN_BYTES = 16 << 20
"""Bytes of rows that are collected for a run; a bucket has about as many bytes."""
SHUFFLE_BYTES = 6 * RUN_BYTES
"""The largest number of bytes in memory: a run or a bucket in parts, its joined copy and its sorted copy."""
HASH_RANGES = 1024
"""The number of ranges of hashes by which a run is indexed; a bucket consists of consecutive ranges."""
SHIFT = np.uint64(54)
"""The bits by which a hash is shifted to get the number of its range: 64 - log2(HASH_RANGES)."""
SEED_OFFSET = 1 << 32
"""Added to the seed, so that these hashes differ from those that choose the rows held out."""
COUNTS = {"data": "lengths", "indices": "lengths", "text": "letters"}
"""The arrays with several numbers per row (CSR entries, UTF-8 bytes of ids), and the array that counts them per row."""


class _Run(NamedTuple):
    """The index of a run in the scratch file."""

    offsets: dict[str, int]
    """The byte offset of each array."""
    rows: NDArray[np.int64]
    """The first row of each range of hashes, and the number of rows (HASH_RANGES + 1,)."""
    first_items: dict[str, NDArray[np.int64]]
    """The first number of each range of hashes in the arrays of ``COUNTS``, by counting array."""


def hash_rows(seed: int, start: int, count: int) -> NDArray[np.uint64]:
    """Return splitmix64 of seed and row number for rows [start, start + count), uint64 (count,).

    For one seed, no two rows have the same hash.
    """
    from streamsvm.compute.random import STEP, mix_bits

    state = np.arange(start, start + count, dtype=np.uint64) + np.uint64((seed * 0xD1B54A32D192ED03) % 2**64)
    return mix_bits((state + np.uint64(1)) * STEP)


class ShufflingWriter:
    """Collects the rows of a store in a ``Spool``, and passes them to its writer, in random order, at the end."""

    def __init__(self, writer: StoreWriter, seed: int) -> None:
        self._writer, self._seed = writer, seed
        self._spool: Spool | None = None

    def append(self, X: Rows, codes: Array, weight: Float32 | None = None, ids: Array | None = None) -> None:
        """Add rows, as ``StoreWriter.append`` does. Raises StorageError."""
        if self._spool is None:
            self._spool = Spool(durable.temporary_beside(self._writer.root), self._seed)
        self._spool.append(X, codes, weight, ids)

    def commit(self, classes: tuple[str, ...], columns: int, facts: JsonObject) -> Manifest:
        """Write all rows in their shuffled order, then the manifest. Raises StorageError, DataError."""
        if self._spool is not None:
            for chunk, ids in self._spool.drain():
                self._writer.append(chunk.X, chunk.codes, chunk.weight, ids)
            self._close()
        return self._writer.commit(classes, columns, facts)

    def suspend(self) -> int:
        """Keep the unfinished store, so that it can be resumed; return the number of durable chunks.

        Rows in the spool are lost; the next run reads them again.
        """
        self._close()
        return self._writer.suspend()

    def abort(self) -> None:
        """Remove the unfinished store and the spool."""
        self._close()
        self._writer.abort()

    def _close(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None


class Spool:
    """Shuffles rows with a scratch file: call ``append`` for all rows, then ``drain``.

    The file is unlinked at once, so that it disappears with the process.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self._path, self._seed = path, seed
        self._descriptor = durable.open_state(path, 0)
        path.unlink()
        self._pending: list[dict[str, Array]] = []
        self._pending_bytes = self._rows = self._size = 0
        self._runs: list[_Run] = []
        self._types: dict[str, tuple[DType, int]] = {}

    def append(self, X: Rows, codes: Array, weight: Float32 | None, ids: Array | None = None) -> None:
        """Add rows; either all rows or none have weights, and likewise ids. Raises StorageError."""
        arrays = _arrays(Chunk(X, codes, weight)) | _id_arrays(ids)
        self._pending.append(arrays)
        self._pending_bytes += sum(values.nbytes for values in arrays.values())
        if self._pending_bytes >= RUN_BYTES:
            self._write_run()

    def drain(self) -> Iterator[tuple[Chunk, Array | None]]:
        """Yield all rows in the order of their hashes, with their ids (n,) if they have any. Raises StorageError."""
        if self._pending:
            self._write_run()
        buckets = max(1, min(HASH_RANGES, -(-self._size // RUN_BYTES)))
        bounds = np.linspace(0, HASH_RANGES, buckets + 1).astype(int)
        for low, high in pairwise(bounds.tolist()):
            parts = [self._read(run, low, high) for run in self._runs]
            if any(len(part["hash"]) for part in parts):
                rows = _sort_by_hash({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
                yield _chunk(rows), _ids(rows)

    def close(self) -> None:
        """Remove the scratch file."""
        os.close(self._descriptor)

    def _write_run(self) -> None:
        parts, self._pending, self._pending_bytes = self._pending, [], 0
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        arrays["hash"] = hash_rows(self._seed + SEED_OFFSET, self._rows, len(arrays["codes"]))
        arrays = _sort_by_hash(arrays)
        self._rows += len(arrays["codes"])
        offsets = {}
        for name, values in arrays.items():
            offsets[name] = self._size
            self._types[name] = values.dtype, int(np.prod(values.shape[1:], dtype=int))
            durable.write_at(self._descriptor, np.ascontiguousarray(values).view(np.uint8), self._size, self._path)
            self._size += values.nbytes
        ranges = (arrays["hash"] >> SHIFT).astype(np.int64)
        rows = np.searchsorted(ranges, np.arange(HASH_RANGES + 1))
        counts = {name: arrays[name] for name in {*COUNTS.values()} & arrays.keys()}
        first_items = {name: np.concatenate([[0], np.cumsum(count)])[rows] for name, count in counts.items()}
        self._runs.append(_Run(offsets, rows, first_items))

    def _read(self, run: _Run, low: int, high: int) -> dict[str, Array]:
        """Return the arrays of the rows of a run whose hashes are in the ranges [low, high)."""
        arrays = {}
        for name, array_offset in run.offsets.items():
            (dtype, width), bounds = self._types[name], run.first_items[COUNTS[name]] if name in COUNTS else run.rows
            values = np.empty(int(bounds[high] - bounds[low]) * width, dtype)
            offset = array_offset + int(bounds[low]) * width * dtype.itemsize
            durable.read_at(self._descriptor, values.view(np.uint8), offset, self._path)
            arrays[name] = values.reshape(-1, width) if name == "values" else values
        return arrays


def _arrays(chunk: Chunk) -> dict[str, Array]:
    """Return the rows of a chunk as arrays by name, each in the order of the rows."""
    arrays: dict[str, Array] = {"codes": chunk.codes}
    if chunk.weight is not None:
        arrays["weight"] = chunk.weight
    if isinstance(chunk.X, Dense):
        return arrays | {"values": chunk.X.values}
    return arrays | {"lengths": np.diff(chunk.X.indptr), "data": chunk.X.data, "indices": chunk.X.indices}


def _id_arrays(ids: Array | None) -> dict[str, Array]:
    """Return ids as arrays by name: integers, or the UTF-8 bytes of texts and the byte count of each; {} for None."""
    if ids is None:
        return {}
    if ids.dtype != object:
        return {"ids": ids}
    texts = [text.encode() for text in ids.tolist()]
    return {"letters": np.array(list(map(len, texts)), np.int64), "text": np.frombuffer(b"".join(texts), np.uint8)}


def _sort_by_hash(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the rows in the order of their hashes."""
    order = np.argsort(arrays["hash"], kind="stable")
    places = {name: _permute_items(arrays[name], order) for name in {*COUNTS.values()} & arrays.keys()}
    return {name: values[places[COUNTS[name]] if name in COUNTS else order] for name, values in arrays.items()}


def _permute_items(counts: Int64, order: Int64) -> Int64:
    """Return the index that puts an array of ``counts`` (n,) items per row into the ``order`` (n,) of the rows."""
    permuted = counts[order]
    ends = np.cumsum(permuted)
    return np.arange(int(permuted.sum())) + np.repeat((np.cumsum(counts) - counts)[order] - (ends - permuted), permuted)


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
