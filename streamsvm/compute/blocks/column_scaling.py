"""Scaling of the columns of a block, and storage of features in fewer bytes: int8 with one scale per column, or
float16.

stored = round(x / scale_j), clipped to [-127, 127]          x ~ stored * scale_j, error at most scale_j / 2

The bits of a float16 are its sign s, 5 bits of exponent e and 10 of fraction f; its value is 2^(e - 15) 1.f, or 2^-14 0.f
for e = 0. Moved to their places in a float32, they mean 2^(e - 127) 1.f, or 2^-126 0.f: the value times 2^-112, for
numbers below the normal range, too. One exact multiplication gives the value.
"""

from __future__ import annotations

import numpy as np

from streamsvm.compute.compiled import compiled
from streamsvm.rows import Float32, Int32
from streamsvm.type_aliases import Array

LEVELS = 127
"""The largest number in an int8 column; the smallest is its negative."""
LIMIT = np.float32(LEVELS)
"""``LEVELS`` as float32."""
SIGN_MASK, REST_MASK = np.uint32(0x8000), np.uint32(0x7FFF)
"""Masks of the sign and of all other bits of a float16."""
SIGN_SHIFT, REST_SHIFT = np.uint32(16), np.uint32(13)
"""Number of bits by which they are shifted to their places in a float32."""
EXPONENT_FACTOR = np.float32(2.0**112)
"""The factor between a float16 and the float32 with its shifted bits."""


@compiled()
def scale_dense(values: Float32, shift: Float32, scale: Float32) -> None:
    """Replace ``values`` (n, d) by (values - shift) * scale."""
    n, d = values.shape
    for i in range(n):
        for j in range(d):
            values[i, j] = (values[i, j] - shift[j]) * scale[j]


@compiled()
def scale_sparse(data: Float32, indices: Int32, shift: Float32, scale: Float32) -> None:
    """Replace ``data`` by (data - shift) * scale. A shift is correct only for columns that every row stores
    (``features.scaling``).
    """
    for p in range(data.size):
        j = indices[p]
        data[p] = (data[p] - shift[j]) * scale[j]


@compiled()
def to_int8(values: Float32, inverse: Float32, out: Array) -> None:
    """Set ``out`` (n, d) to ``values`` in int8. ``inverse``: 1 / scale (d,)."""
    n, d = values.shape
    for i in range(n):
        for j in range(d):
            out[i, j] = np.int8(min(max(np.rint(values[i, j] * inverse[j]), -LIMIT), LIMIT))


@compiled()
def from_int8(stored: Array, scale: Float32, out: Float32) -> None:
    """Set ``out`` (n, d) to the float32 values of ``stored``."""
    n, d = stored.shape
    for i in range(n):
        for j in range(d):
            out[i, j] = np.float32(stored[i, j]) * scale[j]


@compiled()
def from_float16(stored: Array, bits: Array, out: Float32) -> None:
    """Set ``out`` (n, d) to the values of finite float16 numbers. ``stored`` (n, d): their bits, uint16; ``bits``: the
    memory of ``out`` as uint32.
    """
    n, d = stored.shape
    for i in range(n):
        for j in range(d):
            half = np.uint32(stored[i, j])
            bits[i, j] = (half & SIGN_MASK) << SIGN_SHIFT | (half & REST_MASK) << REST_SHIFT
        for j in range(d):
            out[i, j] *= EXPONENT_FACTOR
