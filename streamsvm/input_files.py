"""Looking at inputs and opening files that somebody else may have put there: only regular ones, never waiting, sizes before contents.

A URL is no path: every place that takes a path from a user calls ``refuse_url``. A FIFO where a file should be makes ``open`` wait
for ever, a device has no end, and a sparse file is as large as its owner likes. Each is refused here before a byte of it is read.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from streamsvm.errors import DataError, StorageError, UsageError, quote

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}

HINT = "put the file itself there"


LOCAL_SCHEME = "file"
REMOTE_SCHEME = re.compile(
    "abfss?|adl|az|azure|cos|dbfs|ftps?|gcs|gs|hdfs|hf|https?|lakefs|memory|minio|oci|oss|s3[an]?|sftp|smb|ssh|swift|viewfs|"
    "wasbs?|webdavs?|webhdfs"
)
"""Schemes that are no name of a local folder, even where only one slash follows, as in a URL that ``Path`` shortened."""
SCHEME = re.compile(r"(?:[A-Za-z][\w+.-]*::)*([A-Za-z][\w+.-]+):/")
"""How a URL begins, also one of several joined as fsspec does it, 'simplecache::s3://bucket/table.parquet'."""


def refuse_url(path: object) -> None:
    """Raise UsageError where the name of a file or folder is a URL; ``Path`` objects lack one of its two slashes."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or ":" not in text:
        return
    begins = SCHEME.match(text)
    scheme = (begins[1] if begins else text.partition(":")[0]).lower()
    if scheme == LOCAL_SCHEME or REMOTE_SCHEME.fullmatch(scheme):
        local = begins is None and os.path.lexists(text)
    else:
        local = begins is None or os.path.isdir(text.partition("/")[0])
    if local:
        return
    if scheme == LOCAL_SCHEME:
        raise UsageError(f"{quote(text)} is a URL, not a path", hint="leave out 'file://' and write the path itself")
    hint = (
        "streamsvm reads and writes files of this machine: copy it here first, or mount it as a folder; what a program opens "
        "itself (pyarrow, zarr, h5py, dask) is read by sv.ingest"
    )
    raise UsageError(f"{quote(text)} is a URL ({scheme}), not a path of this machine", hint=hint)


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
    """The ``st_mode`` of what is there, through links; None where nothing is. Raises UsageError for a URL."""
    refuse_url(path)
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

    Raises OSError as ``os.open`` does, DataError E-FILE for everything that is not a regular file, UsageError for a URL.
    """
    refuse_url(path)
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
