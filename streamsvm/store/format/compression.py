"""Compressed units: blosc-lz4 with byte shuffle, inside the crc32c; read whole, checked, then unpacked.

It pays for indices and for features that are 0 or 1 (half to a fifth of the bytes); on measured numbers it saves a tenth
and costs more time than it saves. ``worth_it`` tries it on one chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from crc32c import crc32c

from streamsvm.aliases import Array, JsonObject
from streamsvm.errors import DataError, UsageError
from streamsvm.store.format.arrays import ENTRIES, MATRIX, ArraySpec
from streamsvm.store.read.extents import CRC_BYTES, Place, UnitArray, read_place, segments

LZ4 = "lz4"
CHOICES = ("auto", "none", LZ4)
LEVEL = 5
SHUFFLE = 1
"""Blosc's number for a shuffle of bytes."""
LEAST_RATIO = 1.4
"""The ratio of compression from which fewer bytes from disk are worth unpacking: a disk of 1.5 GB/s against 2.5 GB/s of
unpacking."""
FINER = 8
"""How much smaller units of compressed CSR arrays are. A chunk begins and ends inside units, and those two are unpacked
whole; small units keep that to an eighth."""
LEAST_UNIT = 1024
SCRATCH = "unpacked"
CORRUPT = "restore the file, or ingest again"


def stored(name: str) -> str:
    """Return the name of the buffer the compressed units of an array are read into."""
    return f"{name} packed"


def described(spec: ArraySpec) -> JsonObject:
    """Return the codec as ``zarr.json`` describes it."""
    options = {"typesize": np.dtype(spec.dtype).itemsize, "cname": LZ4, "clevel": LEVEL, "shuffle": "shuffle"}
    return {"name": "blosc", "configuration": options | {"blocksize": 0}}


def finer(specs: dict[str, ArraySpec], packed: Mapping[str, str]) -> dict[str, ArraySpec]:
    """Return the arrays with smaller units where compressed units and chunks do not coincide."""
    return {
        name: spec._replace(unit=max(LEAST_UNIT, spec.unit // FINER)) if name in packed and name in ENTRIES else spec
        for name, spec in specs.items()
    }


def pack(values: Array) -> bytes:
    """Return one unit, compressed."""
    from numcodecs import blosc

    blosc.use_threads = False
    packed: bytes = blosc.compress(np.ascontiguousarray(values), LZ4.encode(), LEVEL, SHUFFLE)
    return packed


def worth_it(values: Mapping[str, Array]) -> dict[str, str]:
    """Return the names of the arrays that become small enough, by compressing those of one chunk."""
    names = [name for name in (MATRIX, *ENTRIES) if name in values and values[name].nbytes]
    return {name: LZ4 for name in names if values[name].nbytes >= LEAST_RATIO * len(pack(values[name]))}


def chosen(compression: str, values: Mapping[str, Array]) -> dict[str, str]:
    """Return the codecs by array, as asked for. Raises UsageError."""
    if compression not in CHOICES:
        raise UsageError(f"there is no compression '{compression}'", hint=f"choose from {', '.join(CHOICES)}")
    if compression == "auto":
        return worth_it(values)
    return {name: LZ4 for name in (MATRIX, *ENTRIES) if name in values}


def read_units(array: UnitArray, start: int, stop: int, into: Array) -> None:
    """Read the units in which items [start, stop) lie, one after the other. Raises DataError, StorageError."""
    at = 0
    for place in _places(array, start, stop):
        read_place(place, 0, memoryview(into.data)[at : at + place.nbytes], bytearray(CRC_BYTES))
        at += place.nbytes


def buffer_bytes(array: UnitArray, start: int, stop: int) -> dict[str, int]:
    """Return the bytes that unpacking items [start, stop) needs, by buffer, beside room for the items."""
    packed = sum(place.nbytes for place in _places(array, start, stop))
    return {stored(array.spec.name): packed, SCRATCH: array.spec.unit_bytes}


def unpack(array: UnitArray, start: int, stop: int, buffers: tuple[Any, Any, Any]) -> None:
    """Unpack items [start, stop) into the third of ``buffers``: what ``read_units`` read, room for one unit, the items.
    Raises DataError E-CRC.
    """
    packed, scratch, into = buffers
    at = out = 0
    for segment in segments(array.spec, start, stop):
        place = array.place(segment.unit)
        unit = packed[at : at + place.nbytes]
        if segment.nbytes == array.spec.unit_bytes:
            _unpack_unit(place, unit, into[out : out + segment.nbytes])
        else:
            _unpack_unit(place, unit, scratch[: array.spec.unit_bytes])
            into[out : out + segment.nbytes] = scratch[segment.offset : segment.offset + segment.nbytes]
        at, out = at + place.nbytes, out + segment.nbytes


def _unpack_unit(place: Place, packed: Array, into: Array) -> None:
    """Nothing is unpacked that is not what was written."""
    from numcodecs import blosc

    found = crc32c(packed.data)
    if found != place.crc:
        text = f"{place.path} is corrupt: crc32c {found:08x}, expected {place.crc:08x}"
        raise DataError(text, code="E-CRC", hint=CORRUPT)
    blosc.use_threads = False
    size = int.from_bytes(packed[4:8].tobytes(), "little")  # what blosc's header says it will write
    if size != into.nbytes:
        text = f"{place.path} unpacks to {size} bytes, expected {into.nbytes}"
        raise DataError(text, code="E-CRC", hint=CORRUPT)
    try:
        blosc.decompress(packed, into)
    except (ValueError, RuntimeError) as error:
        raise DataError(f"{place.path} cannot be unpacked: {error}", code="E-CRC", hint=CORRUPT) from error


def _places(array: UnitArray, start: int, stop: int) -> list[Place]:
    return [array.place(segment.unit) for segment in segments(array.spec, start, stop)]
