"""The arrays a store consists of: names, types and units, what of a chunk goes into which, and memory to read them into.

The numbers of a dense store may lie on disk as float16 or int8 (``Encoding``); what is read is float32 again.

X                               dense: rows as float32, or as an ``Encoding`` has them
X/data, X/indices, X/indptr     CSR in the AnnData encoding: float32, int32, int64
y, weight                       int32 class codes, or float64 numbers; float32 row weights
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
"""The arrays that have an item for each stored entry; all others have one for each row, INDPTR one more."""
NUMBERS = "y, of numbers"
"""What stands for y in ``TYPES`` where the target is a number."""
TYPES = {DATA: "float32", INDICES: "int32", INDPTR: "int64", "y": "int32", NUMBERS: "float64", "weight": "float32"}
FILL: ByName = {"float32": "NaN", "float64": "NaN", "float16": "NaN", "int8": -128, "int32": -1, "int64": -1}
"""What a missing unit reads as for other programs: never something plausible."""
LEAST_UNIT = 1024
PAGE = 4096


class Encoding(NamedTuple):
    """How numbers of a dense store are written: float16 as it is, int8 times a scale for each column."""

    dtype: str
    """'float16' or 'int8'."""
    scale: Float32
    """The scale of each column (columns,); empty for float16."""

    @property
    def kind(self) -> str:
        """The kind of store, as its manifest names it."""
        return f"dense-{self.dtype}"

    def encode(self, values: Float32) -> Array:
        """Return what is written of rows (n, columns)."""
        if self.dtype == "float16":
            return values.astype(np.float16)
        from streamsvm.compute.blocks.column_scaling import to_int8

        stored = np.empty(values.shape, np.int8)
        to_int8(np.ascontiguousarray(values), np.float32(1) / self.scale, stored)
        return stored

    def decode(self, stored: Array, out: Float32) -> None:
        """Write the rows as float32 to ``out`` (n, columns)."""
        if self.dtype == "float16":
            out[:] = stored
            return
        from streamsvm.compute.blocks.column_scaling import from_int8

        from_int8(stored, self.scale, out)


def encoding_of(kind: str, columns: int, facts: JsonObject) -> Encoding | None:
    """Return the encoding of a store of this kind; None for float32 and CSR. Raises DataError for an unusable scale."""
    if kind not in KINDS or kind == "dense":
        return None
    dtype = KINDS[kind]
    scale = np.asarray(facts.get("scale", ()), np.float32)
    if dtype == "int8" and not (scale.shape == (columns,) and np.isfinite(scale).all() and (scale > 0).all()):
        raise DataError("the scale of the columns is not usable", code="E-META", hint="build the store again")
    return Encoding(dtype, scale)


class ArraySpec(NamedTuple):
    """The form of one array of a store."""

    name: str
    """Its name in the store: 'X', 'y', 'weight', or a part of a CSR matrix."""
    dtype: str
    """The type of its items as numpy writes it, such as '<f4'."""
    width: int
    """Items in a row of a matrix; 0 for a 1-D array."""
    unit: int
    """Items (rows for a matrix) in a unit, which is one Zarr or HDF5 chunk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one unit."""
        return (self.unit, self.width) if self.width else (self.unit,)

    @property
    def item_bytes(self) -> int:
        """Bytes of an item, or of a row of a matrix."""
        return np.dtype(self.dtype).itemsize * (self.width or 1)

    @property
    def unit_bytes(self) -> int:
        """Bytes of a whole unit."""
        return self.unit * self.item_bytes


def specs_of(kind: str, columns: int, chunk_rows: int, *, weighted: bool, numeric: bool) -> dict[str, ArraySpec]:
    """Return the arrays of a store by name, in the order of writing; ``numeric``: the target is a number."""
    types = TYPES | ({"y": TYPES[NUMBERS]} if numeric else {})
    rest = ["y", "weight"] if weighted else ["y"]
    if kind in KINDS:
        found = [ArraySpec(MATRIX, KINDS[kind], columns, chunk_rows)]
        found += [ArraySpec(name, types[name], 0, chunk_rows) for name in rest]
    else:
        unit = max(LEAST_UNIT, chunk_rows)
        found = [ArraySpec(name, types[name], 0, unit) for name in (DATA, INDICES, INDPTR, *rest)]
    return {spec.name: spec for spec in found}


def items_of(name: str, chunks: Iterable[ChunkEntry]) -> int:
    """Return how many items (rows of a matrix) an array has of these chunks."""
    if name in ENTRIES:
        return sum(chunk.nonzeros or 0 for chunk in chunks)
    return sum(chunk.rows for chunk in chunks) + (name == INDPTR)


def values_of(chunk: Chunk, encoding: Encoding | None = None) -> dict[str, Array]:
    """Return what of a chunk goes into each array, by name; the indptr begins at 0."""
    X = chunk.X
    if isinstance(X, Dense):
        parts: ByName = {MATRIX: X.values if encoding is None else encoding.encode(X.values)}
    else:
        parts = {DATA: X.data, INDICES: X.indices, INDPTR: X.indptr}
    parts["y"] = chunk.codes
    return parts if chunk.weight is None else parts | {"weight": chunk.weight}


def entry_of(chunk: Chunk, values: dict[str, Array]) -> ChunkEntry:
    """Return what the manifest says of a chunk."""
    counts = class_counts(chunk.codes)
    crc = {name: crc32c(np.ascontiguousarray(array).data) for name, array in values.items()}
    nonzeros = len(chunk.X.data) if isinstance(chunk.X, CSR) else None
    return ChunkEntry(row_count(chunk.X), nonzeros, counts, crc)


@dataclass(slots=True)
class Buffer:
    """Memory for one chunk: a flat array of bytes for each array of the store."""

    arrays: ByName

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(a.nbytes for a in self.arrays.values())


def page_aligned(nbytes: int) -> Any:
    """Return uninitialized bytes that begin on a page: the kernel copies whole pages faster than pieces of two."""
    spare = np.empty(nbytes + PAGE, np.uint8)
    start = -spare.ctypes.data % PAGE
    return spare[start : start + nbytes]
