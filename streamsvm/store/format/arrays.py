"""The arrays of a store: their names, types and units, the part of each chunk they hold, and buffers to read them into.

The features of a dense store may be stored as float16 or int8 (``Encoding``); they are decoded to float32 when read.

X                               dense: rows as float32, or encoded as float16 or int8
X/data, X/indices, X/indptr     CSR in the AnnData encoding: float32, int32, int64
y, weight                       int32 class codes or float64 targets; float32 row weights
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c

from streamsvm.aliases import Array, ByName, JsonObject
from streamsvm.errors import DataError
from streamsvm.rows import CSR, Dense, Float32, row_count
from streamsvm.store.format.labels import class_counts
from streamsvm.store.format.manifest import KINDS, ChunkEntry
from streamsvm.types import Chunk

MATRIX, DATA, INDICES, INDPTR = "X", "X/data", "X/indices", "X/indptr"
ENTRIES = (DATA, INDICES)
"""The arrays with one item per stored entry; all others have one item per row, and INDPTR one more."""
NUMBERS = "y, of numbers"
"""The key of y in ``TYPES`` for regression."""
TYPES = {DATA: "float32", INDICES: "int32", INDPTR: "int64", "y": "int32", NUMBERS: "float64", "weight": "float32"}
FILL: ByName = {
    "float32": "NaN",
    "float64": "NaN",
    "float16": "NaN",
    "int8": -128,
    "uint8": 0,
    "int32": -1,
    "int64": -1,
}
"""The fill value of an array by dtype: what other programs read for a missing unit. It is no valid value but in uint8,
which has no other.
"""
LEAST_UNIT = 1024
PAGE = 4096


FLOAT32, FLOAT16, UINT8, INT8 = "float32", "float16", "uint8", "int8"


class Encoding(NamedTuple):
    """The encoding of the features of a dense store: float16, uint8, or int8 with a scale factor per column."""

    dtype: str
    """'float16', 'uint8' or 'int8'."""
    scale: Float32 = np.empty(0, np.float32)
    """The scale factor of each column (columns,); empty for other types than int8."""

    @property
    def kind(self) -> str:
        """The kind of store, as written in its manifest."""
        return f"dense-{self.dtype}"

    def encode(self, values: Float32) -> Array:
        """Return rows (n, columns) as they are stored: numbers beyond float16 are infinite, those beyond the integers of
        a type its largest or smallest one.
        """
        if self.dtype == FLOAT16:
            with np.errstate(over="ignore"):
                return values.astype(np.float16)
        if self.dtype == UINT8:
            return np.clip(np.rint(values), 0, 255).astype(np.uint8)
        from streamsvm.compute.blocks.column_scaling import to_int8

        stored = np.empty(values.shape, np.int8)
        to_int8(np.ascontiguousarray(values), np.float32(1) / self.scale, stored)
        return stored

    def round(self, values: Float32) -> tuple[Float32, Array]:
        """Return rows (n, columns) as they will be read again, in float32, and which numbers the type cannot hold, bool
        (n, columns): those beyond float16, and those that are not whole or beyond uint8.
        """
        rounded, stored = np.empty(values.shape, np.float32), self.encode(values)
        self.decode(stored, rounded)
        if self.dtype == UINT8:
            return rounded, rounded != values
        return rounded, ~np.isfinite(stored)

    def decode(self, stored: Array, out: Float32) -> None:
        """Decode stored rows into ``out`` (n, columns) float32."""
        if self.dtype == UINT8:
            out[:] = stored
            return
        if self.dtype == FLOAT16:
            from streamsvm.compute.blocks.column_scaling import from_float16

            from_float16(stored.view(np.uint16), out.view(np.uint32), out)
            return
        from streamsvm.compute.blocks.column_scaling import from_int8

        from_int8(stored, self.scale, out)


def encoding_of(kind: str, columns: int, facts: JsonObject) -> Encoding | None:
    """Return the encoding of a store of this kind; None for float32 and CSR. Raises DataError E-META if the recorded
    scale factors are not finite, positive and one per column.
    """
    if kind not in KINDS or kind == "dense":
        return None
    dtype = KINDS[kind]
    scale = np.asarray(facts.get("scale", ()), np.float32)
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
        """Bytes of an item."""
        return np.dtype(self.dtype).itemsize * (self.width or 1)

    @property
    def unit_bytes(self) -> int:
        """Bytes of a full unit before compression."""
        return self.unit * self.item_bytes


def specs_of(kind: str, columns: int, chunk_rows: int, *, weighted: bool, numeric: bool) -> dict[str, ArraySpec]:
    """Return the arrays of a store by name, in the order of writing; ``numeric``: a store for regression."""
    types = TYPES | ({"y": TYPES[NUMBERS]} if numeric else {})
    row_arrays = ["y", "weight"] if weighted else ["y"]
    if kind in KINDS:
        specs = [ArraySpec(MATRIX, KINDS[kind], columns, chunk_rows)]
        specs += [ArraySpec(name, types[name], 0, chunk_rows) for name in row_arrays]
    else:
        unit = max(LEAST_UNIT, chunk_rows)
        specs = [ArraySpec(name, types[name], 0, unit) for name in (DATA, INDICES, INDPTR, *row_arrays)]
    return {spec.name: spec for spec in specs}


def items_of(name: str, chunks: Iterable[ChunkEntry]) -> int:
    """Return the number of items that an array has for these chunks."""
    if name in ENTRIES:
        return sum(chunk.nonzeros or 0 for chunk in chunks)
    return sum(chunk.rows for chunk in chunks) + (name == INDPTR)


def values_of(chunk: Chunk, encoding: Encoding | None = None) -> dict[str, Array]:
    """Return the part of a chunk that goes into each array, by array; the indptr begins at 0."""
    X = chunk.X
    if isinstance(X, Dense):
        parts: ByName = {MATRIX: X.values if encoding is None else encoding.encode(X.values)}
    else:
        parts = {DATA: X.data, INDICES: X.indices, INDPTR: X.indptr}
    parts["y"] = chunk.codes
    return parts if chunk.weight is None else parts | {"weight": chunk.weight}


def entry_of(chunk: Chunk, values: dict[str, Array]) -> ChunkEntry:
    """Return the manifest's entry of a chunk, whose parts are ``values``."""
    counts = class_counts(chunk.codes)
    crc = {name: crc32c(np.ascontiguousarray(array).data) for name, array in values.items()}
    nonzeros = len(chunk.X.data) if isinstance(chunk.X, CSR) else None
    return ChunkEntry(row_count(chunk.X), nonzeros, counts, crc)


@dataclass(slots=True)
class Buffer:
    """Memory for one chunk: a flat array of bytes per array of the store."""

    arrays: ByName

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(a.nbytes for a in self.arrays.values())


def page_aligned(nbytes: int) -> Any:
    """Return uninitialized bytes that begin on a page boundary: the kernel copies whole pages faster than parts."""
    spare = np.empty(nbytes + PAGE, np.uint8)
    start = -spare.ctypes.data % PAGE
    return spare[start : start + nbytes]
