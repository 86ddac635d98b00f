"""The bytes of an array on disk: a sequence of equal units, each somewhere in some file: (path, byte offset, length).

A *chunk* of a store is a range of rows; in every array it is a range of items. In dense arrays ranges and units
coincide, in CSR arrays a range may begin and end inside a unit. Both are one case here: a range is read as segments of
units into one contiguous buffer and checked against the crc32c the manifest has for that range. The range of the last
chunk extends over the padding of the last unit, which must be zeros, and where a unit is followed by its own crc (a
Zarr chunk file), a range that ends it compares that too: over a whole pass every byte of every unit is looked at.

**Past the page cache** (O_DIRECT) stores are read that it does not hold. A read through the cache allocates pages,
copies them and drops them again, which takes three to four times the processor seconds of the transfer itself. Past the
cache the disk writes into the block. It asks for blocks of the disk: for memory, offset and length that are multiples
of ``ALIGNED``. So the whole ones of a unit go to where they are wanted, and the last, incomplete one goes there through
a page. Some file systems (tmpfs, some networks) refuse: they are read through the cache.

**Reads that fail for a moment** are repeated: a disk or a network that answers EIO is asked again, three times. A
network file system whose server was restarted answers ESTALE to a file that is open, and to nothing else: such a file
is opened again, as often. Its size and content are checked as if it were the first time.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.errors import DataError, StorageError
from streamsvm.input_files import open_regular
from streamsvm.store.format.arrays import ArraySpec

CRC_BYTES = 4
HINT = "restore the file, or ingest again"
ALIGNED = 4096
"""Bytes. No disk in use has larger blocks; one that has refuses, and is read through the cache."""
REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)
"""The errors by which a file system refuses to be read past the cache."""
PAUSES = [0.1, 1.0, 5.0]
"""Seconds before the second, third and last try."""
TRIES = len(PAUSES) + 1
"""How often a read is tried in all."""
PASSING = (errno.EIO, errno.ESTALE)
"""The errors after which a read is tried again."""
_retried = 0
"""Reads of this process that were made again."""


class Place(NamedTuple):
    """Where a unit of an array lies."""

    path: str
    """The path as text, because making a ``Path`` costs as much as opening the file."""
    offset: int
    """Where the unit begins in the file."""
    nbytes: int
    """Its bytes in the file."""
    file_bytes: int
    """The size the file must have, to the byte."""
    crc: int | None = None
    """The crc32c that follows the unit in the file; None where none does."""


class UnitArray(NamedTuple):
    """An array, and where its units are."""

    spec: ArraySpec
    """Its name, type and shape."""
    place: Callable[[int], Place]
    """Returns where the unit of a number lies."""
    packed: bool = False
    """Whether units are compressed, so that they can only be read whole."""


class Segment(NamedTuple):
    """Part of one unit."""

    unit: int
    """The number of the unit."""
    offset: int
    """The first byte within the unit."""
    nbytes: int
    """The number of bytes."""
    ends: bool
    """Whether the segment reaches the end of the unit."""


def find_segments(spec: ArraySpec, start: int, stop: int) -> list[Segment]:
    """Return the segments that hold items [start, stop), in order."""
    found = []
    while start < stop:
        index, within = divmod(start, spec.unit)
        taken = min(spec.unit - within, stop - start)
        ends = within + taken == spec.unit
        found.append(Segment(index, within * spec.item_bytes, taken * spec.item_bytes, ends))
        start += taken
    return found


def pad_stop(spec: ArraySpec, stop: int) -> int:
    """Return the end of the unit that item ``stop - 1`` lies in, counted in items."""
    return -(-stop // spec.unit) * spec.unit


def read_range(array: UnitArray, start: int, stop: int, into: memoryview, *, past_cache: bool = False) -> None:
    """Read items [start, stop) into ``into``, checking file sizes and, where a unit ends, the crc stored after it.

    ``past_cache``: past the page cache, where the disk can. Raises DataError when a unit is missing or its file has
    another size or crc; StorageError when a read fails.
    """
    at = 0
    for segment in find_segments(array.spec, start, stop):
        place = array.place(segment.unit)
        tail = bytearray(CRC_BYTES if segment.ends and place.crc is not None else 0)
        read_place(place, segment.offset, into[at : at + segment.nbytes], tail, past_cache=past_cache)
        at += segment.nbytes


def read_place(place: Place, offset: int, into: memoryview, tail: bytearray, *, past_cache: bool = False) -> None:
    """Read from byte ``offset`` of a unit on; ``tail``, if not empty, is read after it and compared as the unit's crc."""
    views = [into, tail] if tail else [into]

    def read(descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        if size != place.file_bytes:
            found = f"{place.path} has {size} bytes, expected {place.file_bytes}"
            raise DataError(found, code="E-CHUNKS", hint=f"the file was cut or replaced: {HINT}")
        if not (past_cache and read_past_cache(descriptor, into, tail, place.offset + offset)):
            _read_fully(descriptor, views, place.offset + offset, place.path)

    _read_from(place.path, read)
    if tail and int.from_bytes(tail, "little") != place.crc:
        found = f"{place.path} ends with crc32c {tail[::-1].hex()}, expected {place.crc:08x}"
        raise DataError(found, code="E-CRC", hint=f"the file was damaged or replaced: {HINT}")


def read_bytes(path: Path | str, offset: int, nbytes: int) -> bytes:
    """Return some bytes of a file. Raises DataError E-CHUNKS, StorageError."""
    into = bytearray(nbytes)
    _read_from(path, lambda descriptor: _read_fully(descriptor, [into], offset, path))
    return bytes(into)


def _read_from(path: Path | str, read: Callable[[int], None]) -> None:
    try:
        _call_with_file(path, read)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing", code="E-CHUNKS", hint=HINT) from error
    except OSError as error:
        tries = f" after {TRIES} tries" if error.errno in PASSING else ""
        message = f"reading {path} failed{tries}: {error.strerror}"
        raise StorageError(message, hint="see the system log of the disk") from error


def _read_fully(descriptor: int, views: list[Any], offset: int, path: Path | str) -> None:
    wanted = sum(len(view) for view in views)
    got = _preadv(descriptor, views, offset)
    while got < wanted:  # short reads are rare and legal; finish them view by view
        got += _read_rest(descriptor, views, offset, got, path)


def _read_rest(descriptor: int, views: list[Any], offset: int, got: int, path: Path | str) -> int:
    skipped = 0
    for view in views:
        if got < skipped + len(view):
            more = _preadv(descriptor, [memoryview(view)[got - skipped :]], offset + got)
            if more == 0:
                raise DataError(f"{path} ended early", code="E-CHUNKS", hint=HINT)
            return more
        skipped += len(view)
    return 0


def advise(array: UnitArray, start: int, stop: int, advice: int) -> None:
    """Give the kernel a hint about the pages of items [start, stop); a hint that is refused changes nothing."""
    for segment in find_segments(array.spec, start, stop):
        place = array.place(segment.unit)
        try:
            descriptor = open_regular(place.path)
        except (OSError, DataError):
            return  # the read itself will say what is wrong
        try:
            os.posix_fadvise(descriptor, place.offset + segment.offset, segment.nbytes, advice)
        finally:
            os.close(descriptor)


def read_past_cache(descriptor: int, into: memoryview, tail: bytearray, offset: int) -> bool:
    """Read ``into`` and then ``tail`` from ``offset`` on; False, with nothing read, where that cannot be done past the
    cache.

    False too where the file ends early: who reads it through the cache says so. Raises OSError of the disk.
    """
    whole = len(into) // ALIGNED * ALIGNED
    if offset % ALIGNED or not whole or np.frombuffer(into, np.uint8).ctypes.data % ALIGNED:
        return False
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        return _preadv(descriptor, [into[:whole]], offset) == whole and _read_last_block(
            descriptor, into[whole:], tail, offset + whole
        )
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        return False
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


def _read_last_block(descriptor: int, into: memoryview, tail: bytearray, offset: int) -> bool:
    """Read less than a block and the tail, through memory of their own."""
    wanted = len(into) + len(tail)
    if not wanted:
        return True
    with mmap.mmap(-1, -(-wanted // ALIGNED) * ALIGNED) as pages:  # anonymous memory begins on a page
        got = _preadv(descriptor, [pages], offset)
        into[:], tail[:] = pages[: len(into)], pages[len(into) : wanted]
    return got >= wanted


def _preadv(descriptor: int, views: list[Any], offset: int) -> int:
    """Call ``os.preadv``, up to four times. Raises OSError when the last try fails too."""
    return _retry(errno.EIO, lambda: os.preadv(descriptor, views, offset))


def _call_with_file(path: Path | str, read: Callable[[int], None]) -> None:
    """Call ``read`` with a descriptor of the file, up to four times where the file is stale. Raises OSError."""

    def once() -> int:
        descriptor = open_regular(path)
        try:
            read(descriptor)
        finally:
            os.close(descriptor)
        return 0

    _retry(errno.ESTALE, once)


def _retry(passing: int, once: Callable[[], int]) -> int:
    """Call ``once``, and again after a pause where it raises the error ``passing``."""
    global _retried  # noqa: PLW0603 (a counter of the process)
    for pause in PAUSES:
        try:
            return once()
        except OSError as error:
            if error.errno != passing:
                raise
            _retried += 1
            time.sleep(pause)
    return once()


def is_disk_error(error: Exception) -> bool:
    """Return whether the disk is to blame for what a library raised; HDF5 tells in words what the system said."""
    message = str(error)
    return (isinstance(error, OSError) and error.errno in PASSING) or any(
        f"'{os.strerror(number)}'" in message for number in PASSING
    )


def count_retries() -> int:
    """Return how many reads of this process had to be made again."""
    return _retried
