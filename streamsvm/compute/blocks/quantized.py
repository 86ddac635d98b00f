"""Features in fewer bytes: int8 with a scale a column, float16.

stored = round(x / scale_j), clipped to [-127, 127]          x ~ stored * scale_j, error at most scale_j / 2
"""

from __future__ import annotations

import numpy as np

from streamsvm.aliases import Array
from streamsvm.compute.compiled import compiled
from streamsvm.rows import Float32

LEVELS = 127
LIMIT = np.float32(LEVELS)


@compiled()
def to_int8(values: Float32, inverse: Float32, out: Array) -> None:
    """Changes ``out`` (n, d) int8. Given: values, 1 / scale (d,)."""
    n, d = values.shape
    for i in range(n):
        for j in range(d):
            out[i, j] = np.int8(min(max(np.rint(values[i, j] * inverse[j]), -LIMIT), LIMIT))


@compiled()
def from_int8(stored: Array, scale: Float32, out: Float32) -> None:
    """Changes ``out`` (n, d) float32."""
    n, d = stored.shape
    for i in range(n):
        for j in range(d):
            out[i, j] = np.float32(stored[i, j]) * scale[j]
