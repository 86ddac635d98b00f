"""Arrays with a few words of text in one file: the safetensors format, written as a stream and read with care.

A file is 8 bytes that say how long the table is, the table as JSON - type, shape and place of every array, and the text
under ``__metadata__`` - and then the arrays one after the other. Models, checkpoints and maps are such files; each says
in its text what it is and seals itself in its own way. Nothing in a file is executed.

Writing is our own: the library puts the whole file together in memory first, and a checkpoint is not to be held twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from streamsvm.aliases import Array, BytesLike, JsonObject
from streamsvm.errors import StreamSVMError, quote
from streamsvm.input_files import open_regular

LARGEST_TABLE = 100 << 20
"""Bytes. What says of itself that its table is longer is refused before anything is read."""
ALIGNMENT = 8
"""The arrays begin at a multiple of it, where a float64 may."""
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
"""numpy's names of types and those of the format, in the order in which arrays are laid: large items first."""
_RANK = {name: rank for rank, name in enumerate(TYPES)}


def pieces(arrays: Mapping[str, Array], text: Mapping[str, str], *, by_name: bool = False) -> Iterator[BytesLike]:
    """Yield the buffers of a file with these C-contiguous arrays and this text, for ``durable.write_stream``.

    The same arrays and text are always the same bytes. ``by_name``: every key of the table is in alphabetical order, as
    models have it; otherwise arrays stand in the order in which they lie. Raises KeyError for a type without a name.
    """
    laid = sorted(arrays.items(), key=lambda item: (_RANK[item[1].dtype.str], item[0]))
    table: JsonObject = {"__metadata__": dict(text)} if text else {}
    end = 0
    for name, array in laid:
        start, end = end, end + array.nbytes
        table[name] = {"dtype": TYPES[array.dtype.str], "shape": list(array.shape), "data_offsets": [start, end]}
    head = json.dumps(table, sort_keys=by_name, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-len(head) % ALIGNMENT)
    yield len(head).to_bytes(8, "little") + head
    yield from (array.reshape(-1).view(np.uint8) for _, array in laid if array.size)


class Container(Protocol):
    """A file that is open (``safetensors.safe_open``). Arrays stay in it until they are asked for."""

    def metadata(self) -> dict[str, str] | None:
        """Return the text; None where there is none."""
        ...

    def keys(self) -> list[str]:
        """Return the names of the arrays."""
        ...

    def get_tensor(self, name: str) -> Array:
        """Return an array, a copy of what is in the file."""
        ...


@contextmanager
def open_container(path: Path, refuse: Callable[[str], StreamSVMError]) -> Iterator[Container]:
    """Open a file to read from. Whatever foreign bytes make a parser raise inside becomes ``refuse(why)``."""
    from safetensors import safe_open

    try:
        with open(open_regular(path, follow=True), "rb") as start:
            too_large = int.from_bytes(start.read(8), "little") > LARGEST_TABLE
        if too_large:
            raise refuse("its header is too large")  # noqa: TRY301 (what is raised inside is kept as it is)
        with safe_open(path, framework="np") as file:
            yield file
    except StreamSVMError:
        raise
    except Exception as error:
        raise refuse(quote(error)) from error
