"""How the numbers of a dense store lie on disk when that is not float32; what is read is float32 again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.errors import DataError
from streamsvm.rows import Float32

KINDS = {"dense": "float32", "dense-float16": "float16", "dense-int8": "int8"}
"""By kind of dense store, the type of its numbers on disk."""


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
