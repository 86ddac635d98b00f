"""Files of arrays and text in the safetensors format: models, checkpoints and feature maps.

A file consists of the length of the header (8 bytes), the header as JSON - type, shape and offsets of every array, and text under
``__metadata__`` - and the arrays. Each kind of file records in its text what it is, and its own checksum. Nothing in a file is executed.

Files are written as a stream, because the library would assemble the whole file in memory first, a second copy of a checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from streamsvm.errors import StreamSVMError, quote
from streamsvm.input_files import open_regular
from streamsvm.type_aliases import Array, BytesLike, JsonObject

MAX_HEADER_BYTES = 100 << 20
"""A file that states a longer header is refused before it is read."""
ALIGNMENT = 8
"""The arrays begin at a multiple of this number of bytes, as float64 requires."""
TYPES = {
    "<u8": "U64",
    "<i8": "I64",
    "<f8": "F64",
    "<f4": "F32",
    "<u4": "U32",
    "<i4": "I32",
    "<f2": "F16",
    "|i1": "I8",
    "|u1": "U8",
    "|b1": "BOOL",
}
"""The name in the format of each numpy type. Arrays are stored in this order of types: large items first."""
_RANK = {name: rank for rank, name in enumerate(TYPES)}


def pieces(arrays: Mapping[str, Array], text: Mapping[str, str], *, by_name: bool = False) -> Iterator[BytesLike]:
    """Yield the buffers of a file with these C-contiguous arrays and this text, for ``durable.write_stream``.

    The same arrays and text always give the same bytes. ``by_name``: the keys of the header are in alphabetical order, as in models;
    otherwise in the order of the arrays in the file. Raises KeyError for a type that the format does not have.
    """
    ordered = sorted(arrays.items(), key=lambda item: (_RANK[item[1].dtype.str], item[0]))
    header: JsonObject = {"__metadata__": dict(text)} if text else {}
    end = 0
    for name, array in ordered:
        start, end = end, end + array.nbytes
        header[name] = {"dtype": TYPES[array.dtype.str], "shape": list(array.shape), "data_offsets": [start, end]}
    text_of_header = json.dumps(header, sort_keys=by_name, separators=(",", ":"), ensure_ascii=False).encode()
    text_of_header += b" " * (-len(text_of_header) % ALIGNMENT)
    yield len(text_of_header).to_bytes(8, "little") + text_of_header
    yield from (array.reshape(-1).view(np.uint8) for _, array in ordered if array.size)


class Container(Protocol):
    """An open file (``safetensors.safe_open``). An array is read when it is requested."""

    def metadata(self) -> dict[str, str] | None:
        """Return the text by name; None if there is none."""
        ...

    def keys(self) -> list[str]:
        """Return the names of the arrays."""
        ...

    def get_tensor(self, name: str) -> Array:
        """Read an array."""
        ...


@contextmanager
def open_container(path: Path, refuse: Callable[[str], StreamSVMError]) -> Iterator[Container]:
    """Open a file for reading. Every error that damaged or foreign bytes cause inside the context becomes ``refuse(reason)``."""
    from safetensors import safe_open

    try:
        with open(open_regular(path, follow=True), "rb") as start:
            too_large = int.from_bytes(start.read(8), "little") > MAX_HEADER_BYTES
        if too_large:
            raise refuse("its header is too large")  # noqa: TRY301 (raised unchanged below)
        with safe_open(path, framework="np") as file:
            yield file
    except StreamSVMError:
        raise
    except Exception as error:
        raise refuse(quote(error)) from error
