"""Files that change in place: the state of rows, and parts that another library writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from streamsvm.aliases import BytesLike
from streamsvm.durable.steps import explained, step
from streamsvm.durable.whole_files import sync_directory


def open_state(path: Path, nbytes: int) -> int:
    """Return a descriptor for reading and writing a file that changes in place; a new one is given ``nbytes`` of disk.
    Raises StorageError.
    """
    with explained("creating", path):
        fresh = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            if fresh and nbytes:
                os.posix_fallocate(descriptor, 0, nbytes)
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        if fresh:
            sync_directory(path.parent)
        return descriptor


def sync_state(descriptor: int, path: Path) -> None:
    """Make durable what was written into a file of ``open_state``. Raises StorageError."""
    with explained("syncing", path):
        os.fsync(descriptor)
        step("synced", path)


def open_part(path: Path) -> int:
    """A descriptor of a new file that is written in place and not yet durable: ``sync_state`` and ``rename`` come last."""
    with explained("creating", path):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)


def resize(descriptor: int, nbytes: int, path: Path) -> None:
    """Give a file of ``open_part`` another size."""
    with explained("resizing", path):
        os.ftruncate(descriptor, nbytes)
        step("resized", path)


def write_at(descriptor: int, values: BytesLike, offset: int, path: Path) -> None:
    """Write a whole buffer at an offset of a file of ``open_state`` or ``open_part``. Raises StorageError."""
    with explained("writing", path):
        rest = memoryview(values).cast("B")
        while rest:
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written
        step("written in place")


def read_at(descriptor: int, into: BytesLike, offset: int, path: Path) -> None:
    """Fill a whole buffer from an offset of a file of ``open_state``. Raises StorageError."""
    with explained("reading", path):
        rest = memoryview(into).cast("B")
        while rest:
            got = os.preadv(descriptor, [rest], offset)
            if got == 0:
                raise OSError(errno.EIO, "file ended early")
            rest, offset = rest[got:], offset + got
