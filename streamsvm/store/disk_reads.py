"""Read ranges of items of an array that is stored as equal units, each at a byte offset of some file.

A *chunk* of a store is a range of rows, and so a range of items of every array. In dense arrays each range is a unit;
in CSR arrays a range may begin and end inside a unit. Both cases are read alike: a range is read as segments of units
into one contiguous buffer, and the caller compares its crc32c with that in the manifest. The range of the last chunk
extends over the padding of the last unit, which must be zeros. In a Zarr store a unit's file ends with the crc32c of
the unit; a range that includes the end of a unit compares it, too. One pass over the data therefore verifies every byte
of every unit.

**Direct I/O**: large stores are read past the page cache (O_DIRECT). A read through the cache allocates pages, copies
them and drops them again, which takes three to four times the processor seconds of the transfer itself. With direct I/O
the disk writes into the caller's buffer; address, offset and length must be multiples of ``ALIGNED``. All complete
blocks of a segment are therefore read into the buffer, and the last, incomplete block is copied from a page of its own.
File systems that refuse direct I/O (tmpfs, some network file systems) are read through the cache.

**Transient errors**: a read that fails with EIO is repeated up to three times. A network file system whose server was
restarted answers ESTALE for a file that is open; such a file is opened and read again, up to three times, and its size
and content are checked as at the first time.
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

from streamsvm import object_store
from streamsvm.errors import DataError, StorageError
from streamsvm.input_files import open_regular
from streamsvm.store.format.arrays import ArraySpec

CRC_BYTES = 4
HINT = "restore the file, or ingest again"
ALIGNED = 4096
"""Bytes of a block for direct I/O, at least those of any disk in use. A disk with larger blocks refuses direct I/O and
is read through the cache.
"""
REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)
"""The errors by which a file system refuses direct I/O."""
PAUSES = [0.1, 1.0, 5.0]
"""Seconds before the second, third and last try."""
TRIES = len(PAUSES) + 1
"""The number of times a read is tried, the first included."""
TRANSIENT = (errno.EIO, errno.ESTALE)
"""The errors after which a read is tried again."""
_retried = 0
"""The number of reads that this process has repeated."""


class Place(NamedTuple):
    """The place of a unit on disk."""

    path: str
    """The path as text, because making a ``Path`` takes as long as opening the file."""
    offset: int
    """The byte of the file at which the unit begins."""
    nbytes: int
    """The bytes of the unit in the file."""
    file_bytes: int
    """The exact size that the file must have."""
    crc: int | None = None
    """The crc32c that follows the unit in the file; None if the file has none."""


class UnitArray(NamedTuple):
    """An array and the places of its units."""

    spec: ArraySpec
    place: Callable[[int], Place]
    """Returns the place of a unit, given its number."""
    packed: bool = False
    """Whether units are compressed, so that they can only be read whole."""


class Segment(NamedTuple):
    """A range of bytes of one unit."""

    unit: int
    """The number of the unit."""
    offset: int
    """The first byte, counted from the start of the unit."""
    nbytes: int
    ends_unit: bool
    """Whether the segment includes the end of the unit."""


def find_segments(spec: ArraySpec, start: int, stop: int) -> list[Segment]:
    """Return the segments that hold items [start, stop), in order."""
    segments = []
    while start < stop:
        index, first = divmod(start, spec.unit)
        count = min(spec.unit - first, stop - start)
        ends_unit = first + count == spec.unit
        segments.append(Segment(index, first * spec.item_bytes, count * spec.item_bytes, ends_unit))
        start += count
    return segments


def pad_stop(spec: ArraySpec, stop: int) -> int:
    """Return the end of the unit that contains item ``stop - 1``, counted in items."""
    return -(-stop // spec.unit) * spec.unit


def read_range(array: UnitArray, start: int, stop: int, into: memoryview, *, bypass_cache: bool = False) -> None:
    """Read items [start, stop) into ``into``; verify the sizes of files and, at the end of a unit, the crc stored
    there.

    ``bypass_cache``: use direct I/O if the file system supports it. Raises DataError when a unit is missing or its file
    has another size or crc; StorageError when a read fails.
    """
    filled = 0
    for segment in find_segments(array.spec, start, stop):
        place = array.place(segment.unit)
        tail = bytearray(CRC_BYTES if segment.ends_unit and place.crc is not None else 0)
        read_place(place, segment.offset, into[filled : filled + segment.nbytes], tail, bypass_cache=bypass_cache)
        filled += segment.nbytes


def read_place(place: Place, offset: int, into: memoryview, tail: bytearray, *, bypass_cache: bool = False) -> None:
    """Fill ``into`` from byte ``offset`` of a unit on. If ``tail`` is not empty, read the following bytes into it and
    compare them with the crc of the unit.
    """
    views = [into, tail] if tail else [into]

    def read(descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        if size != place.file_bytes:
            message = f"{place.path} has {size} bytes, expected {place.file_bytes}"
            raise DataError(message, code="E-CHUNKS", hint=f"the file was cut or replaced: {HINT}")
        if not (bypass_cache and read_bypassing_cache(descriptor, into, tail, place.offset + offset)):
            _read_fully(descriptor, views, place.offset + offset, place.path)

    _read_from(place.path, read)
    if tail and int.from_bytes(tail, "little") != place.crc:
        message = f"{place.path} ends with crc32c {tail[::-1].hex()}, expected {place.crc:08x}"
        raise DataError(message, code="E-CRC", hint=f"the file was damaged or replaced: {HINT}")


def read_bytes(path: Path | str, offset: int, nbytes: int) -> bytes:
    """Return ``nbytes`` bytes of a file from ``offset`` on. Raises DataError E-CHUNKS, StorageError."""
    into = bytearray(nbytes)
    _read_from(path, lambda descriptor: _read_fully(descriptor, [into], offset, path))
    return bytes(into)


def _read_from(path: Path | str, read: Callable[[int], None]) -> None:
    """Call ``read`` with a descriptor of the file; convert errors to DataError E-CHUNKS and StorageError."""
    try:
        _call_with_file(path, read)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing", code="E-CHUNKS", hint=HINT) from error
    except OSError as error:
        tries = f" after {TRIES} tries" if error.errno in TRANSIENT else ""
        message = f"reading {path} failed{tries}: {error.strerror}"
        raise StorageError(message, hint="see the system log of the disk") from error


def _read_fully(descriptor: int, views: list[Any], offset: int, path: Path | str) -> None:
    """Fill all views from ``offset`` on."""
    total = sum(len(view) for view in views)
    done = _preadv(descriptor, views, offset)
    while done < total:  # short reads are rare but allowed
        done += _continue_read(descriptor, views, offset, done, path)


def _continue_read(descriptor: int, views: list[Any], offset: int, done: int, path: Path | str) -> int:
    """Read into the first view that is not full after ``done`` bytes; return the bytes read."""
    view_start = 0
    for view in views:
        if done < view_start + len(view):
            count = _preadv(descriptor, [memoryview(view)[done - view_start :]], offset + done)
            if count == 0:
                raise DataError(f"{path} ended early", code="E-CHUNKS", hint=HINT)
            return count
        view_start += len(view)
    return 0


def advise(array: UnitArray, start: int, stop: int, advice: int) -> None:
    """Give the kernel the hint ``advice`` (POSIX_FADV_...) about items [start, stop). Errors are ignored."""
    for segment in find_segments(array.spec, start, stop):
        place = array.place(segment.unit)
        try:
            descriptor = open_regular(place.path)
        except (OSError, DataError):
            return  # the read itself raises the error
        try:
            os.posix_fadvise(descriptor, place.offset + segment.offset, segment.nbytes, advice)
        finally:
            os.close(descriptor)


def read_bypassing_cache(descriptor: int, into: memoryview, tail: bytearray, offset: int) -> bool:
    """Fill ``into`` and then ``tail`` from ``offset`` on with direct I/O, and return whether that was possible.

    If not, the caller reads through the cache. It returns False, too, if the file ends early, so that the read through
    the cache raises the error. Raises OSError for errors of the disk.
    """
    whole_blocks = len(into) // ALIGNED * ALIGNED
    if offset % ALIGNED or not whole_blocks or np.frombuffer(into, np.uint8).ctypes.data % ALIGNED:
        return False
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        return _preadv(descriptor, [into[:whole_blocks]], offset) == whole_blocks and _read_last_block(
            descriptor, into[whole_blocks:], tail, offset + whole_blocks
        )
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        return False
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


def _read_last_block(descriptor: int, into: memoryview, tail: bytearray, offset: int) -> bool:
    """Read less than a block and the tail by way of an aligned page; return whether all bytes were there."""
    nbytes = len(into) + len(tail)
    if not nbytes:
        return True
    with mmap.mmap(-1, -(-nbytes // ALIGNED) * ALIGNED) as pages:  # anonymous memory begins on a page boundary
        count = _preadv(descriptor, [pages], offset)
        into[:], tail[:] = pages[: len(into)], pages[len(into) : nbytes]
    return count >= nbytes


def _preadv(descriptor: int, views: list[Any], offset: int) -> int:
    """Call ``os.preadv`` up to ``TRIES`` times, as long as it fails with EIO. Raises OSError."""
    return _retry(errno.EIO, lambda: os.preadv(descriptor, views, offset))


def _call_with_file(path: Path | str, read: Callable[[int], None]) -> None:
    """Call ``read`` with a descriptor of the file, up to ``TRIES`` times, as long as it fails with ESTALE. Raises
    OSError.
    """

    def open_and_read() -> int:
        descriptor = open_regular(path)
        try:
            read(descriptor)
        finally:
            os.close(descriptor)
        return 0

    _retry(errno.ESTALE, open_and_read)


def _retry(transient: int, call: Callable[[], int]) -> int:
    """Return the result of ``call``; repeat it after each of the ``PAUSES`` if it raises OSError ``transient``."""
    global _retried  # noqa: PLW0603 (a counter of the process)
    for pause in PAUSES:
        try:
            return call()
        except OSError as error:
            if error.errno != transient:
                raise
            _retried += 1
            time.sleep(pause)
    return call()


def is_disk_error(error: Exception) -> bool:
    """Return whether a library's error was caused by the disk; HDF5 has the system's error only in its message."""
    message = str(error)
    return (isinstance(error, OSError) and error.errno in TRANSIENT) or any(
        f"'{os.strerror(number)}'" in message for number in TRANSIENT
    )


def count_retries() -> int:
    """Return the number of reads that this process has repeated, of disks and of object stores."""
    return _retried + object_store.count_retries()
