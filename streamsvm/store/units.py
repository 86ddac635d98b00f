"""An array on disk as a sequence of equal units, each one Zarr chunk file: payload, then its crc32c.

A *chunk* of a store is a range of rows; in every array it is a range of items. In dense arrays ranges and units
coincide, in CSR arrays a range may begin and end inside a unit. Both are one case here: a range is read as segments of
unit files into one contiguous buffer and checked against the crc32c the manifest has for that range. The range of the
last chunk extends over the padding of the last unit, and a range that ends a unit checks that unit's stored crc as
well, so that over a whole pass every byte of every file is looked at.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from streamsvm import durable
from streamsvm.errors import DataError, StorageError

CRC_BYTES = 4


class UnitArray(NamedTuple):
    """Where the units of one array lie. ``width`` is items per row of the file's matrix: 0 for a 1-D array."""

    directory: Path
    dtype: str
    width: int
    unit: int
    """Items (rows for a matrix) per unit."""

    @property
    def item_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * (self.width or 1)

    @property
    def unit_bytes(self) -> int:
        return self.unit * self.item_bytes

    def path(self, index: int) -> Path:
        return self.directory / (f"c.{index}.0" if self.width else f"c.{index}")


class Segment(NamedTuple):
    """Part of one unit file: byte ``offset`` and length; ``ends`` where it reaches the end of the payload."""

    index: int
    offset: int
    nbytes: int
    ends: bool


def segments(array: UnitArray, start: int, stop: int) -> list[Segment]:
    """The segments that hold items [start, stop)."""
    found = []
    while start < stop:
        index, within = divmod(start, array.unit)
        taken = min(array.unit - within, stop - start)
        ends = within + taken == array.unit
        found.append(Segment(index, within * array.item_bytes, taken * array.item_bytes, ends))
        start += taken
    return found


def padded_stop(array: UnitArray, stop: int) -> int:
    """The end of the unit that item ``stop - 1`` lies in."""
    return -(-stop // array.unit) * array.unit


@dataclass(slots=True)
class UnitWriter:
    """Writes one array unit by unit; the files become durable with ``sync``."""

    array: UnitArray
    crcs: list[int] = field(default_factory=list)
    items: int = 0
    _pending: NDArray[Any] | None = None
    _filled: int = 0
    _unsynced: list[Path] = field(default_factory=list)

    def append(self, values: NDArray[Any]) -> None:
        """Add items (n,) or rows (n, width) in the array's dtype."""
        self.items += len(values)
        while len(values):
            if self._filled == 0 and len(values) >= self.array.unit:
                self._write(values[: self.array.unit])
                values = values[self.array.unit :]
                continue
            pending = self._buffer()
            taken = min(self.array.unit - self._filled, len(values))
            pending[self._filled : self._filled + taken] = values[:taken]
            self._filled += taken
            values = values[taken:]
            if self._filled == self.array.unit:
                self._write(pending)
                self._filled = 0

    def finish(self) -> bytes:
        """Pad and write the unit that is not full; returns the padding bytes."""
        if self._filled == 0:
            return b""
        pending, filled = self._buffer(), self._filled
        pending[filled:] = 0
        self._write(pending)
        self._filled = 0
        return pending[filled:].tobytes()

    def sync(self) -> None:
        """Make all units written so far durable."""
        durable.sync(self._unsynced)
        self._unsynced.clear()

    def _buffer(self) -> NDArray[Any]:
        if self._pending is None:
            shape = (self.array.unit, self.array.width) if self.array.width else (self.array.unit,)
            self._pending = np.zeros(shape, self.array.dtype)
        return self._pending

    def _write(self, values: NDArray[Any]) -> None:
        payload = np.ascontiguousarray(values)
        crc = crc32c(payload)
        path = self.array.path(len(self.crcs))
        durable.write_part(path, payload, crc.to_bytes(CRC_BYTES, "little"))
        self.crcs.append(crc)
        self._unsynced.append(path)


def read_range(array: UnitArray, start: int, stop: int, into: memoryview, crcs: list[int]) -> None:
    """Read items [start, stop) into ``into``; check file sizes and, where a unit ends, its stored crc.

    Raises DataError when a unit is missing, has another size or another crc; StorageError when a read fails.
    """
    at = 0
    for segment in segments(array, start, stop):
        _read_segment(array, segment, into[at : at + segment.nbytes], crcs[segment.index])
        at += segment.nbytes


def _read_segment(array: UnitArray, segment: Segment, into: memoryview, crc: int) -> None:
    path = array.path(segment.index)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing", code="E-CHUNKS", hint="restore the file, or ingest again") from error
    except OSError as error:
        raise StorageError(f"opening {path} failed: {error.strerror}", hint="see the system log of the disk") from error
    try:
        size = os.fstat(descriptor).st_size
        if size != array.unit_bytes + CRC_BYTES:
            raise DataError(
                f"{path} has {size} bytes, expected {array.unit_bytes + CRC_BYTES}",
                code="E-CHUNKS",
                hint="the file was cut or replaced: restore it, or ingest again",
            )
        tail = bytearray(CRC_BYTES if segment.ends else 0)
        _read_fully(descriptor, [into, tail] if segment.ends else [into], segment.offset, path)
    finally:
        os.close(descriptor)
    if segment.ends and int.from_bytes(tail, "little") != crc:
        raise DataError(
            f"{path} ends with crc32c {tail[::-1].hex()}, expected {crc:08x}",
            code="E-CRC",
            hint="the file was damaged or replaced: restore it, or ingest again",
        )


def _read_fully(descriptor: int, views: list[Any], offset: int, path: Path) -> None:
    wanted = sum(len(view) for view in views)
    try:
        got = os.preadv(descriptor, views, offset)
        while got < wanted:  # short reads are rare and legal; finish them view by view
            got += _read_rest(descriptor, views, offset, got, path)
    except OSError as error:
        raise StorageError(f"reading {path} failed: {error.strerror}", hint="see the system log of the disk") from error


def _read_rest(descriptor: int, views: list[Any], offset: int, got: int, path: Path) -> int:
    skipped = 0
    for view in views:
        if got < skipped + len(view):
            more = os.preadv(descriptor, [memoryview(view)[got - skipped :]], offset + got)
            if more == 0:
                raise DataError(f"{path} ended early", code="E-CHUNKS", hint="restore the file, or ingest again")
            return more
        skipped += len(view)
    return 0


def advise(array: UnitArray, start: int, stop: int, advice: int) -> None:
    """Give the kernel a hint about the pages of items [start, stop); a refused hint changes nothing."""
    for segment in segments(array, start, stop):
        try:
            descriptor = os.open(array.path(segment.index), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return  # the read itself will say what is wrong
        try:
            os.posix_fadvise(descriptor, segment.offset, segment.nbytes, advice)
        finally:
            os.close(descriptor)
