"""Compressed units: blosc-lz4 with byte shuffle, inside the crc32c; read whole, checked, then unpacked.

It pays for indices and for features that are 0 or 1 (half to a fifth of the bytes); of measured numbers it saves a
tenth and costs more time than that saves. ``try_compression`` decides by one chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from crc32c import crc32c

from streamsvm.aliases import Array, JsonObject
from streamsvm.errors import DataError, UsageError
from streamsvm.store.disk_reads import CRC_BYTES, Place, UnitArray, find_segments, read_place
from streamsvm.store.format.arrays import ENTRIES, MATRIX, ArraySpec

LZ4 = "lz4"
CHOICES = ("auto", "none", LZ4)
LEVEL = 5
SHUFFLE = 1
"""Blosc's number for a shuffle of bytes."""
LEAST_RATIO = 1.4
"""The least ratio of compression that saves time: a disk of 1.5 GB/s against unpacking at 2.5 GB/s."""
SMALLER = 8
"""The factor by which units of compressed CSR arrays are smaller: a chunk begins and ends inside units, and these two
are unpacked whole.
"""
LEAST_UNIT = 1024
SCRATCH = "unpacked"
HINT_CORRUPT = "restore the file, or ingest again"


def packed_name(name: str) -> str:
    """Return the name of the buffer for the compressed units of an array."""
    return f"{name} packed"


def describe_codec(spec: ArraySpec) -> JsonObject:
    """Return the codec for ``zarr.json``."""
    options = {"typesize": np.dtype(spec.dtype).itemsize, "cname": LZ4, "clevel": LEVEL, "shuffle": "shuffle"}
    return {"name": "blosc", "configuration": options | {"blocksize": 0}}


def with_small_units(specs: dict[str, ArraySpec], packed: Mapping[str, str]) -> dict[str, ArraySpec]:
    """Return the arrays with smaller units where compressed units and chunks do not coincide."""
    return {
        name: spec._replace(unit=max(LEAST_UNIT, spec.unit // SMALLER)) if name in packed and name in ENTRIES else spec
        for name, spec in specs.items()
    }


def pack(values: Array) -> bytes:
    """Return one unit, compressed."""
    from numcodecs import blosc

    blosc.use_threads = False
    packed: bytes = blosc.compress(np.ascontiguousarray(values), LZ4.encode(), LEVEL, SHUFFLE)
    return packed


def try_compression(values: Mapping[str, Array]) -> dict[str, str]:
    """Compress the arrays of one chunk; return the codecs of those that become small enough."""
    names = [name for name in (MATRIX, *ENTRIES) if name in values and values[name].nbytes]
    return {name: LZ4 for name in names if values[name].nbytes >= LEAST_RATIO * len(pack(values[name]))}


def choose_codecs(compression: str, values: Mapping[str, Array]) -> dict[str, str]:
    """Return the codecs by array for an option of ``CHOICES``. Raises UsageError."""
    if compression not in CHOICES:
        raise UsageError(f"there is no compression '{compression}'", hint=f"choose from {', '.join(CHOICES)}")
    if compression == "auto":
        return try_compression(values)
    return {name: LZ4 for name in (MATRIX, *ENTRIES) if name in values}


def read_units(array: UnitArray, start: int, stop: int, into: Array) -> None:
    """Read the units in which items [start, stop) lie, one after the other. Raises DataError, StorageError."""
    at = 0
    for place in _places(array, start, stop):
        read_place(place, 0, memoryview(into.data)[at : at + place.nbytes], bytearray(CRC_BYTES))
        at += place.nbytes


def buffer_bytes(array: UnitArray, start: int, stop: int) -> dict[str, int]:
    """Return the bytes that unpacking items [start, stop) needs beside the items, by buffer."""
    packed = sum(place.nbytes for place in _places(array, start, stop))
    return {packed_name(array.spec.name): packed, SCRATCH: array.spec.unit_bytes}


def unpack(array: UnitArray, start: int, stop: int, buffers: tuple[Any, Any, Any]) -> None:
    """Unpack items [start, stop). ``buffers``: the bytes that ``read_units`` read, scratch for one unit, the items.
    Raises DataError E-CRC.
    """
    packed, scratch, into = buffers
    at = out = 0
    for segment in find_segments(array.spec, start, stop):
        place = array.place(segment.unit)
        unit = packed[at : at + place.nbytes]
        if segment.nbytes == array.spec.unit_bytes:
            _unpack_unit(place, unit, into[out : out + segment.nbytes])
        else:
            _unpack_unit(place, unit, scratch[: array.spec.unit_bytes])
            into[out : out + segment.nbytes] = scratch[segment.offset : segment.offset + segment.nbytes]
        at, out = at + place.nbytes, out + segment.nbytes


def _unpack_unit(place: Place, packed: Array, into: Array) -> None:
    """Unpack one unit, after its checksum and its size were checked."""
    from numcodecs import blosc

    found = crc32c(packed.data)
    if found != place.crc:
        text = f"{place.path} is corrupt: crc32c {found:08x}, expected {place.crc:08x}"
        raise DataError(text, code="E-CRC", hint=HINT_CORRUPT)
    blosc.use_threads = False
    size = int.from_bytes(packed[4:8].tobytes(), "little")  # what blosc's header says it will write
    if size != into.nbytes:
        text = f"{place.path} unpacks to {size} bytes, expected {into.nbytes}"
        raise DataError(text, code="E-CRC", hint=HINT_CORRUPT)
    try:
        blosc.decompress(packed, into)
    except (ValueError, RuntimeError) as error:
        raise DataError(f"{place.path} cannot be unpacked: {error}", code="E-CRC", hint=HINT_CORRUPT) from error


def _places(array: UnitArray, start: int, stop: int) -> list[Place]:
    return [array.place(segment.unit) for segment in find_segments(array.spec, start, stop)]
