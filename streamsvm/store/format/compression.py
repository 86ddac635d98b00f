"""Compressed units: blosc-lz4 with byte shuffle, followed by the crc32c of the compressed bytes. A unit is read whole,
verified, then unpacked.

Compression pays for indices and for features that are 0 or 1 (half to a fifth of the bytes); for measured numbers it
saves a tenth of the bytes and costs more time than that. ``try_compression`` decides by compressing one chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from crc32c import crc32c

from streamsvm.errors import DataError, UsageError
from streamsvm.store.disk_reads import CRC_BYTES, Place, UnitArray, find_segments, read_place
from streamsvm.store.format.arrays import ENTRIES, MATRIX, ArraySpec
from streamsvm.type_aliases import Array, JsonObject

LZ4 = "lz4"
CHOICES = ("auto", "none", LZ4)
LEVEL = 5
SHUFFLE = 1
"""Blosc's code for byte shuffle."""
LEAST_RATIO = 1.4
"""The least compression ratio that saves time, for a disk of 1.5 GB/s and unpacking at 2.5 GB/s."""
UNIT_DIVISOR = 8
"""The factor by which units of compressed CSR arrays are smaller than others: a chunk begins and ends inside a unit,
and both units have to be unpacked whole.
"""
LEAST_UNIT = 1024
SCRATCH = "unpacked"
HINT_CORRUPT = "restore the file, or ingest again"


def buffer_name(name: str) -> str:
    """Return the name of the buffer that holds the compressed units of an array."""
    return f"{name} packed"


def describe_codec(spec: ArraySpec) -> JsonObject:
    """Return the codec for ``zarr.json``."""
    options = {"typesize": np.dtype(spec.dtype).itemsize, "cname": LZ4, "clevel": LEVEL, "shuffle": "shuffle"}
    return {"name": "blosc", "configuration": options | {"blocksize": 0}}


def shrink_units(specs: dict[str, ArraySpec], packed: Mapping[str, str]) -> dict[str, ArraySpec]:
    """Return the specs with smaller units for compressed CSR entries, whose units do not coincide with chunks."""
    return {
        name: spec._replace(unit=max(LEAST_UNIT, spec.unit // UNIT_DIVISOR))
        if name in packed and name in ENTRIES
        else spec
        for name, spec in specs.items()
    }


def pack(values: Array) -> bytes:
    """Compress the values of one unit."""
    from numcodecs import blosc

    blosc.use_threads = False
    packed: bytes = blosc.compress(np.ascontiguousarray(values), LZ4.encode(), LEVEL, SHUFFLE)
    return packed


def try_compression(values: Mapping[str, Array]) -> dict[str, str]:
    """Compress the arrays of one chunk and return the codecs of those whose ratio is at least ``LEAST_RATIO``."""
    names = [name for name in (MATRIX, *ENTRIES) if name in values and values[name].nbytes]
    return {name: LZ4 for name in names if values[name].nbytes >= LEAST_RATIO * len(pack(values[name]))}


def choose_codecs(compression: str, values: Mapping[str, Array]) -> dict[str, str]:
    """Return the codec of each array to compress, for an option of ``CHOICES``. Raises UsageError."""
    if compression not in CHOICES:
        raise UsageError(f"there is no compression '{compression}'", hint=f"choose from {', '.join(CHOICES)}")
    if compression == "auto":
        return try_compression(values)
    return {name: LZ4 for name in (MATRIX, *ENTRIES) if name in values}


def read_units(array: UnitArray, start: int, stop: int, into: Array) -> None:
    """Read the compressed units that hold items [start, stop) into ``into``, without gaps. Raises DataError,
    StorageError.
    """
    filled = 0
    for place in _places(array, start, stop):
        read_place(place, 0, memoryview(into.data)[filled : filled + place.nbytes], bytearray(CRC_BYTES))
        filled += place.nbytes


def buffer_bytes(array: UnitArray, start: int, stop: int) -> dict[str, int]:
    """Return the bytes that unpacking items [start, stop) needs in addition to the items, by buffer."""
    packed = sum(place.nbytes for place in _places(array, start, stop))
    return {buffer_name(array.spec.name): packed, SCRATCH: array.spec.unit_bytes}


def unpack(array: UnitArray, start: int, stop: int, buffers: tuple[Any, Any, Any]) -> None:
    """Unpack items [start, stop). Raises DataError E-CRC.

    ``buffers``: the bytes that ``read_units`` read, scratch memory of one unit, and the array for the items.
    """
    packed, scratch, into = buffers
    packed_start = item_start = 0
    for segment in find_segments(array.spec, start, stop):
        place = array.place(segment.unit)
        unit = packed[packed_start : packed_start + place.nbytes]
        if segment.nbytes == array.spec.unit_bytes:
            _unpack_unit(place, unit, into[item_start : item_start + segment.nbytes])
        else:
            _unpack_unit(place, unit, scratch[: array.spec.unit_bytes])
            into[item_start : item_start + segment.nbytes] = scratch[segment.offset : segment.offset + segment.nbytes]
        packed_start, item_start = packed_start + place.nbytes, item_start + segment.nbytes


def _unpack_unit(place: Place, packed: Array, into: Array) -> None:
    """Verify the checksum and the size of one unit, then unpack it."""
    from numcodecs import blosc

    crc = crc32c(packed.data)
    if crc != place.crc:
        message = f"{place.path} is corrupt: crc32c {crc:08x}, expected {place.crc:08x}"
        raise DataError(message, code="E-CRC", hint=HINT_CORRUPT)
    blosc.use_threads = False
    size = int.from_bytes(packed[4:8].tobytes(), "little")  # the unpacked size in blosc's header
    if size != into.nbytes:
        message = f"{place.path} unpacks to {size} bytes, expected {into.nbytes}"
        raise DataError(message, code="E-CRC", hint=HINT_CORRUPT)
    try:
        blosc.decompress(packed, into)
    except (ValueError, RuntimeError) as error:
        raise DataError(f"{place.path} cannot be unpacked: {error}", code="E-CRC", hint=HINT_CORRUPT) from error


def _places(array: UnitArray, start: int, stop: int) -> list[Place]:
    return [array.place(segment.unit) for segment in find_segments(array.spec, start, stop)]
