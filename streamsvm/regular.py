"""Looking at inputs and opening files that somebody else may have put there: only regular ones, never waiting, sizes before contents.

A FIFO where a file should be makes ``open`` wait for ever, a device has no end, and a sparse file is as large as its
owner likes. Each is refused here before a byte of it is read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from streamsvm.errors import DataError, StorageError

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}

HINT = "put the file itself there"


def what_is(mode: int) -> str:
    """Return what people call a file with this ``st_mode`` that is not a regular one."""
    return KINDS.get(stat.S_IFMT(mode), "not a file")


ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""What the system says where nothing is, or can be."""


def is_there(path: Path) -> bool:
    """Return whether an input is there; nothing is where nothing can be called so. Raises StorageError as ``is_file`` does."""
    return _mode(path) is not None


def is_file(path: Path) -> bool:
    """Return whether an input is a regular file. Raises StorageError where that cannot be seen: a folder nobody may search."""
    return stat.S_ISREG(_mode(path) or 0)


def is_folder(path: Path) -> bool:
    """Return whether an input is a directory. Raises StorageError as ``is_file`` does."""
    return stat.S_ISDIR(_mode(path) or 0)


def _mode(path: Path) -> int | None:
    """The ``st_mode`` of what is there, through links; None where nothing is."""
    try:
        return os.stat(path).st_mode
    except ValueError:  # a NUL, or what is no character
        return None
    except OSError as error:
        if error.errno in ABSENT:
            return None
        hint = "check the permissions of the folders above it, and the disk"
        raise StorageError(f"{path} cannot be looked at: {error.strerror}", hint=hint) from error


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
