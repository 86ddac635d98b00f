"""Describe the arrays of a store: the name, dtype and unit (what Zarr and HDF5 call a chunk) of each. Split the chunks
of rows into these arrays, and allocate buffers for reading.

The features of a dense store may be stored as float16, bfloat16, uint8 or int8 (``Encoding``); they are decoded to
float32 when read.

X                               dense: rows as float32, or encoded as float16, bfloat16 (its bits in uint16), uint8, int8
X/data, X/indices, X/indptr     CSR in the AnnData encoding: float32, int32, int64
y                               int32 class codes, or float64 targets
weight                          float32 row weights
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c

from streamsvm.bfloat16 import BFLOAT16, round_to_bfloat16, widen_bfloat16
from streamsvm.errors import DataError
from streamsvm.rows import CSR, Dense, Float32, Rows, row_count
from streamsvm.store.format.labels import class_counts
from streamsvm.store.format.manifest import DENSE_DTYPES, ChunkEntry
from streamsvm.type_aliases import Array, JsonObject, ValuesByName
from streamsvm.types import Chunk

MATRIX, DATA, INDICES, INDPTR = "X", "X/data", "X/indices", "X/indptr"
ENTRIES = (DATA, INDICES)
"""The arrays with one item per stored entry; all others have one item per row, and INDPTR one more."""
TYPES = {DATA: "float32", INDICES: "int32", INDPTR: "int64", "y": "int32", "weight": "float32"}
"""The dtype of each array except X, which is dense. For regression, y has ``TARGET_TYPE``."""
TARGET_TYPE = "float64"
FILL: ValuesByName = {
    "float32": "NaN",
    "float64": "NaN",
    "float16": "NaN",
    "int8": -128,
    "uint8": 0,
    "uint16": 0x7FC0,
    "int32": -1,
    "int64": -1,
}
"""The fill value of an array by dtype: what other programs read for a missing unit. It is never a valid value, except
for uint8, where every value is valid. uint16 holds the bits of bfloat16, and 0x7FC0 is its NaN.
"""
MIN_ITEMS_PER_UNIT = 1024
PAGE = 4096


FLOAT32, FLOAT16, UINT8, INT8 = "float32", "float16", "uint8", "int8"


class Encoding(NamedTuple):
    """The encoding of the features of a dense store: float16, bfloat16, uint8, or int8 with a scale factor per column."""

    dtype: str
    """'float16', 'bfloat16', 'uint8' or 'int8'."""
    scale: Float32 = np.empty(0, np.float32)
    """The scale factor of each column (columns,); empty for other types than int8."""

    @property
    def kind(self) -> str:
        """The kind of store, as written in its manifest."""
        return f"dense-{self.dtype}"

    def encode(self, values: Float32) -> Array:
        """Return rows (n, columns) as they are stored. Numbers out of range become infinite in float16 and
        bfloat16, and the nearest representable integer in uint8 and int8.
        """
        if self.dtype == FLOAT16:
            with np.errstate(over="ignore"):
                return values.astype(np.float16)
        if self.dtype == BFLOAT16:
            return round_to_bfloat16(values)
        if self.dtype == UINT8:
            return np.clip(np.rint(values), 0, 255).astype(np.uint8)
        assert self.scale.shape == (values.shape[1],)
        from streamsvm.compute.blocks.column_scaling import to_int8

        stored = np.empty(values.shape, np.int8)
        to_int8(np.ascontiguousarray(values), np.float32(1) / self.scale, stored)
        return stored

    def round(self, values: Float32) -> tuple[Float32, Array]:
        """Return rows as they will be read back, float32 (n, columns), and a mask of the numbers that the type cannot
        represent, bool (n, columns).

        For float16 and bfloat16 these are numbers out of range; for uint8, numbers that are out of range or not whole; for int8,
        none.
        """
        rounded, stored = np.empty(values.shape, np.float32), self.encode(values)
        self.decode(stored, rounded)
        if self.dtype == UINT8:
            return rounded, rounded != values
        if self.dtype == BFLOAT16:
            return rounded, ~np.isfinite(rounded)
        return rounded, ~np.isfinite(stored)

    def decode(self, stored: Array, out: Float32) -> None:
        """Decode stored rows into ``out`` (n, columns) float32."""
        if self.dtype == UINT8:
            out[:] = stored
            return
        if self.dtype == BFLOAT16:
            widen_bfloat16(stored, out)
            return
        if self.dtype == FLOAT16:
            from streamsvm.compute.blocks.column_scaling import from_float16

            from_float16(stored.view(np.uint16), out.view(np.uint32), out)
            return
        from streamsvm.compute.blocks.column_scaling import from_int8

        from_int8(stored, self.scale, out)


MIN_MAGNITUDE = 1e-30
"""The largest magnitude of a column counts as at least this much in its scale; otherwise 1 / scale could overflow float32."""


class ScaleFinder:
    """Finds the scale factor of each column for int8: 1 for a column of integers from -127 to 127, otherwise the
    column's largest magnitude divided by 127.
    """

    def __init__(self, largest: Float32 | None = None, whole: Array | None = None) -> None:
        self.largest, self.whole = largest, whole
        """The largest magnitude of each column, and whether all its numbers are whole; None before the first rows."""

    def add(self, X: Rows, columns: int | None) -> None:
        """Take rows (n, columns) into account. ``columns``: their number, which CSR rows do not tell."""
        if isinstance(X, Dense):
            largest = np.abs(X.values).max(axis=0, initial=0)
            whole = (X.values == np.rint(X.values)).all(axis=0)
        else:
            assert columns is not None
            largest, whole = np.zeros(columns, np.float32), np.ones(columns, np.bool_)
            np.maximum.at(largest, X.indices, np.abs(X.data))
            whole[X.indices[X.data != np.rint(X.data)]] = False
        self.merge(ScaleFinder(largest, whole))

    def merge(self, other: ScaleFinder) -> None:
        """Take the rows of another finder into account."""
        if other.largest is None or other.whole is None:
            return
        if self.largest is None or self.whole is None:
            self.largest, self.whole = other.largest, other.whole
            return
        self.largest, self.whole = np.maximum(self.largest, other.largest), self.whole & other.whole

    def find(self) -> Float32 | None:
        """Return the scale factors (columns,); None if there were no rows."""
        if self.largest is None or self.whole is None:
            return None
        scale: Float32 = np.asarray(np.maximum(self.largest, MIN_MAGNITUDE) / 127, np.float32)
        scale[self.whole & (self.largest <= 127)] = 1
        return scale


def encoding_of(kind: str, columns: int, metadata: JsonObject) -> Encoding | None:
    """Return the encoding of a store of this kind; None for float32 and CSR. ``metadata``: the facts in the manifest.

    Raises DataError E-META if the recorded scale factors are not finite, positive and one per column.
    """
    if kind not in DENSE_DTYPES or kind == "dense":
        return None
    dtype = DENSE_DTYPES[kind]
    scale = np.asarray(metadata.get("scale", ()), np.float32)
    if dtype == "int8" and not (scale.shape == (columns,) and np.isfinite(scale).all() and (scale > 0).all()):
        raise DataError("the scale of the columns is not usable", code="E-META", hint="build the store again")
    return Encoding(dtype, scale)


class ArraySpec(NamedTuple):
    """Name, type and unit size of one array of a store. An *item* is a number, or a row of the 2-D array X."""

    name: str
    """The name in the store: 'X', 'y', 'weight', or a part of a CSR matrix."""
    dtype: str
    """The numpy name of the dtype, such as 'float32'."""
    width: int
    """Numbers per item of a 2-D array; 0 for a 1-D array."""
    unit: int
    """Items per unit; a unit is one Zarr or HDF5 chunk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one unit."""
        return (self.unit, self.width) if self.width else (self.unit,)

    @property
    def item_bytes(self) -> int:
        """Bytes of one item."""
        return np.dtype(self.dtype).itemsize * (self.width or 1)

    @property
    def unit_bytes(self) -> int:
        """Bytes of a full unit before compression."""
        return self.unit * self.item_bytes


def specs_of(kind: str, columns: int, chunk_rows: int, *, weighted: bool, regression: bool) -> dict[str, ArraySpec]:
    """Return the description of each array of a store, by name and in the order of writing."""
    types = TYPES | ({"y": TARGET_TYPE} if regression else {})
    row_arrays = ["y", "weight"] if weighted else ["y"]
    if kind in DENSE_DTYPES:
        dtype = DENSE_DTYPES[kind]
        specs = [ArraySpec(MATRIX, "uint16" if dtype == BFLOAT16 else dtype, columns, chunk_rows)]
        specs += [ArraySpec(name, types[name], 0, chunk_rows) for name in row_arrays]
    else:
        unit = max(MIN_ITEMS_PER_UNIT, chunk_rows)
        specs = [ArraySpec(name, types[name], 0, unit) for name in (DATA, INDICES, INDPTR, *row_arrays)]
    return {spec.name: spec for spec in specs}


def count_items(name: str, chunks: Iterable[ChunkEntry]) -> int:
    """Return the number of items that the array ``name`` has for these chunks."""
    if name in ENTRIES:
        return sum(chunk.nonzeros or 0 for chunk in chunks)
    return sum(chunk.rows for chunk in chunks) + (name == INDPTR)


def split_chunk(chunk: Chunk, encoding: Encoding | None = None) -> dict[str, Array]:
    """Split a chunk into the parts that go into each array, keyed by array name. The indptr begins at 0."""
    X = chunk.X
    if isinstance(X, Dense):
        parts: ValuesByName = {MATRIX: X.values if encoding is None else encoding.encode(X.values)}
    else:
        parts = {DATA: X.data, INDICES: X.indices, INDPTR: X.indptr}
    parts["y"] = chunk.codes
    return parts if chunk.weight is None else parts | {"weight": chunk.weight}


def manifest_entry(chunk: Chunk, parts: dict[str, Array]) -> ChunkEntry:
    """Return the manifest's entry for a chunk. ``parts``: the parts of the chunk, from ``split_chunk``."""
    counts = class_counts(chunk.codes)
    crc = {name: crc32c(np.ascontiguousarray(array).data) for name, array in parts.items()}
    nonzeros = len(chunk.X.data) if isinstance(chunk.X, CSR) else None
    return ChunkEntry(row_count(chunk.X), nonzeros, counts, crc)


@dataclass(slots=True)
class Buffer:
    """Memory for one chunk: one flat byte array for each array of the store."""

    arrays: ValuesByName

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(a.nbytes for a in self.arrays.values())


def page_aligned(nbytes: int) -> Any:
    """Return uninitialized bytes that begin on a page boundary, because the operating system copies whole pages faster
    than parts of pages.
    """
    memory = np.empty(nbytes + PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE
    return memory[start : start + nbytes]
