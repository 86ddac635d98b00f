"""npy and IDX streams: a header that is checked before anything is allocated, then rows read forward in slices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from tokenize import TokenError
from typing import Any, Protocol

import numpy as np
from numpy.lib import format as npy_format

from streamsvm.aliases import Array, DType
from streamsvm.errors import DataError, SecurityError, quote
from streamsvm.rows import Float32

SLICE_BYTES = 2 << 20
"""Bytes of one slice of rows, as float32."""
HEADER_LIMIT = 10_000
"""The longest npy header that is parsed, in bytes."""
KINDS = "fiub"
"""The kinds of dtype that are numbers: float, int, unsigned, bool."""
IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
"""The types of IDX, the format of MNIST: two zeros, the type, the number of dimensions, then each as a big-endian
int32."""
HINT_DTYPE = "save the array with a plain number dtype, such as float32"
HINT_NAN = "if it stands for a missing value pass --missing mean, zero or indicator; else remove or replace it"
HINT_CUT = "the file was cut short or written over: save it again"


class ByteStream(Protocol):
    """Bytes that are read forward."""

    def read(self, size: int = ..., /) -> bytes:
        """Return at most ``size`` bytes; none at the end."""
        ...


@dataclass(slots=True)
class ArrayStream:
    """One array of numbers whose header was read."""

    name: str
    """What messages call it: the file and its place in the file."""
    shape: tuple[int, ...]
    """Its shape; rows come first."""
    dtype: DType
    """The type of its items, as stored."""
    stream: ByteStream
    """The bytes after the header."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.shape[0]

    def slices(self, rows: int) -> Iterator[Array]:
        """Yield at most ``rows`` rows at a time. Raises DataError E-TRUNCATED when the data are shorter or longer."""
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        for start in range(0, self.rows, rows):
            taken = min(rows, self.rows - start)
            data = read_fully(self.stream, taken * row_bytes)
            if len(data) < taken * row_bytes:
                missing = f"{self.name} ends in row {start + len(data) // row_bytes + 1} of {self.rows}"
                raise DataError(missing, code="E-TRUNCATED", hint=HINT_CUT)
            yield np.frombuffer(data, self.dtype).reshape(taken, *self.shape[1:])
        if extra := len(self.stream.read(1 << 16)):
            found = f"{self.name} has {extra} or more bytes after its last row"
            raise DataError(found, code="E-TRUNCATED", hint=HINT_CUT)


def open_array(stream: ByteStream, name: str, nbytes: int | None) -> ArrayStream:
    """Read and check the header of an npy or IDX array. ``nbytes`` is the size of header and data, where it is known.

    Raises DataError E-PARSE, E-TRUNCATED, E-DTYPE, E-SHAPE, E-LAYOUT; SecurityError for pickled objects.
    """
    counted = _CountingStream(stream)
    magic = counted.read(6)
    read = _idx_header if is_idx(magic) else _npy_header
    shape, by_column, dtype = read(_Rewound(magic, counted), name)
    _check_dtype(dtype, name)
    if by_column and len(shape) > 1 and min(shape) > 1:
        found = f"{name} is stored by columns (Fortran order)"
        raise DataError(found, code="E-LAYOUT", hint="save numpy.ascontiguousarray(X)")
    expected = counted.taken + dtype.itemsize * int(np.prod(shape, dtype=object))
    if nbytes is not None and nbytes != expected:
        found = f"{name} has {nbytes} bytes, its header says {expected}"
        raise DataError(found, code="E-TRUNCATED", hint=HINT_CUT)
    return ArrayStream(name, shape, dtype, stream)


def read_fully(stream: ByteStream, size: int) -> bytes:
    """Return ``size`` bytes, fewer only at the end of the stream."""
    pieces: list[bytes] = []
    while size > 0 and (piece := stream.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def as_numbers(
    values: Array, name: str, first_row: int, first_column: int = 0, *, missing: bool = False, exact: bool = False
) -> Array:
    """Return numbers (n, d) as float32, or as float64 where they are to be ``exact``; with ``missing``, NaN stands for a
    missing value and stays.

    Raises DataError E-NONFINITE, E-RANGE with row and column, counted from 1.
    """
    with np.errstate(over="ignore"):
        cast: Float32 = np.ascontiguousarray(values, np.float32)
    finite = ~np.isinf(cast) if missing else np.isfinite(cast)
    if finite.all():
        return np.ascontiguousarray(values, np.float64) if exact else cast
    row, column = np.argwhere(~finite)[0].tolist()
    place = f"{name} row {first_row + row + 1}, column {first_column + column + 1}"
    if np.isfinite(values[row, column]):
        raise DataError(f"{place}: {values[row, column]} does not fit float32", code="E-RANGE", hint="scale the column")
    found = f"{place}: {values[row, column]} is not finite"
    hint = HINT_NAN if np.isnan(values[row, column]) else "remove or replace such values"
    raise DataError(found, code="E-NONFINITE", hint=hint)


@dataclass(slots=True)
class _Rewound:
    """A stream with its first bytes put back."""

    first: bytes
    stream: ByteStream

    def read(self, size: int = -1, /) -> bytes:
        taken, self.first = self.first[:size], self.first[size:]
        return taken + read_fully(self.stream, size - len(taken))


@dataclass(slots=True)
class _CountingStream:
    """A stream that knows how much was taken from it."""

    stream: ByteStream
    taken: int = 0

    def read(self, size: int = -1, /) -> bytes:
        data = read_fully(self.stream, size)
        self.taken += len(data)
        return data


def is_idx(head: bytes) -> bool:
    """Return whether these are the first bytes of an IDX file."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in IDX_TYPES and 1 <= head[3] <= 4


def _idx_header(stream: Any, name: str) -> tuple[tuple[int, ...], bool, DType]:
    """Images (n, height, width) are rows of height * width columns."""
    kind, dimensions = read_fully(stream, 4)[2:]
    raw = read_fully(stream, 4 * dimensions)
    sizes = [int.from_bytes(raw[at : at + 4], "big", signed=True) for at in range(0, 4 * dimensions, 4)]
    if len(raw) < 4 * dimensions or min(sizes) < 0:
        raise DataError(f"the IDX header of {name} cannot be read", code="E-PARSE", hint="get the file again")
    shape = (sizes[0], math.prod(sizes[1:])) if dimensions > 1 else (sizes[0],)
    return shape, False, np.dtype(IDX_TYPES[kind])


def _npy_header(stream: Any, name: str) -> tuple[tuple[int, ...], bool, DType]:
    try:
        version = npy_format.read_magic(stream)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, by_column, dtype = read(stream, max_header_size=HEADER_LIMIT)
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        found = f"the npy header of {name} cannot be read: {quote(str(error), 120)}"
        raise DataError(found, code="E-PARSE", hint="save the array again with numpy.save") from error
    if any(n < 0 for n in shape):
        raise DataError(f"{name} has the impossible shape {shape}", code="E-SHAPE", hint="save the array again")
    return shape, by_column, dtype


def _check_dtype(dtype: DType, name: str) -> None:
    if dtype.hasobject:
        found = f"{name} holds pickled Python objects, which can run code when they are read"
        raise SecurityError(found, hint=HINT_DTYPE)
    if dtype.kind not in KINDS and dtype.kind != "U":
        raise DataError(f"{name} holds {dtype}, not numbers", code="E-DTYPE", hint=HINT_DTYPE)
