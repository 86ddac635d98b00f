"""Numbers of bfloat16, a type that numpy does not have: the upper 16 bits of a float32, which are its sign, its exponent
and 7 bits of its fraction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

BFLOAT16 = "bfloat16"


def round_to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16 numbers, the even one of two that are equally near.

    The lower 16 bits count from 0 to 0xFFFF, and their middle is 0x8000. Adding 0x7FFF carries into the upper half
    beyond the middle, and adding 0x8000, where the last bit that is kept is odd, in the middle too. Finite numbers beyond
    the largest bfloat16 become infinite.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)


def widen_bfloat16(bits: NDArray[np.uint16], out: NDArray[np.float32]) -> None:
    """Set ``out`` to the bfloat16 numbers with these bits, exactly."""
    np.left_shift(bits, np.uint32(16), out=out.view(np.uint32), dtype=np.uint32)


@dataclass(frozen=True, slots=True)
class BFloat16Array:
    """An array of bfloat16, given as its bits (uint16); slices of it are float32, without rounding."""

    bits: Any

    dtype: ClassVar[str] = BFLOAT16

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of rows and columns."""
        return tuple(self.bits.shape)

    def __getitem__(self, rows: slice) -> Any:
        return BFloat16Array(self.bits[rows]).__array__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the numbers as float32."""
        values = np.empty(self.shape, np.float32)
        widen_bfloat16(self.bits, values)
        return values if dtype is None else values.astype(dtype, copy=False)
