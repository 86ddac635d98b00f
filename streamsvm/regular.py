"""Opening files that somebody else may have put there: only regular ones, never waiting, sizes before contents.

A FIFO where a file should be makes ``open`` wait for ever, a device has no end, and a sparse file is as large as its
owner likes. Each is refused here before a byte of it is read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from streamsvm.errors import DataError

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}

HINT = "put the file itself there"


def what_is(mode: int) -> str:
    """Return what people call a file with this ``st_mode`` that is not a regular one."""
    return KINDS.get(stat.S_IFMT(mode), "not a file")


def open_regular(path: Path | str, *, follow: bool = False) -> int:
    """Open a regular file for reading and return its descriptor; ``follow``: through a link, too.

    Raises OSError as ``os.open`` does, DataError E-FILE for everything that is not a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise DataError(f"{path} is a link, not a regular file", code="E-FILE", hint=HINT) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise DataError(f"{path} is {what_is(mode)}, not a regular file", code="E-FILE", hint=HINT)


def read_whole(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """Return what is in a file of at most ``limit`` bytes.

    Raises OSError, DataError E-FILE, and E-LIMIT for a larger one, of which nothing is read.
    """
    with open(open_regular(path, follow=follow), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            found = f"{path} has {size} bytes, {limit} are the most such a file can have"
            raise DataError(found, code="E-LIMIT", hint="restore the file, or make it again")
        return file.read(size)  # not ``limit``: a buffer of that size would be made first
