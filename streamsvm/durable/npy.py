"""Files of numpy's format .npy, which are known again as ours by the padding of their header."""

from __future__ import annotations

import io
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from streamsvm.aliases import BytesLike
from streamsvm.durable.whole_files import write_stream

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

NPY_PADDING = 128
"""Bytes, two blocks of the format, by which the header of a .npy file of ours is longer than numpy would make it."""


def npy_header(dtype: DTypeLike, shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file of ours: longer than it needs to be, by which it is known again.

    Any reader skips the padding (NEP 1: a header ends with spaces and a line feed); numpy itself adds 83 spaces at most.
    """
    import numpy as np
    from numpy.lib import format as npy

    plain = io.BytesIO()
    npy.write_array_header_1_0(plain, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape})
    found = plain.getvalue()
    length = int.from_bytes(found[8:10], "little") + NPY_PADDING
    return found[:8] + length.to_bytes(2, "little") + found[10:-1] + b" " * NPY_PADDING + found[-1:]


def is_npy_of_ours(head: bytes) -> bool:
    """Whether a file that begins with ``head`` was written with ``npy_header``."""
    length = int.from_bytes(head[8:10], "little")
    header = head[10 : 10 + length]
    return head.startswith(b"\x93NUMPY\x01\x00") and len(header) - len(header.rstrip()) > NPY_PADDING


def write_npy(path: Path, shape: tuple[int, ...], parts: Iterable[BytesLike]) -> None:
    """Write float64 parts, one after the other, as one .npy array of this shape, all of it or nothing."""
    import numpy as np

    header = npy_header("<f8", shape)
    write_stream(path, chain([header], (np.ascontiguousarray(part, "<f8") for part in parts)))
