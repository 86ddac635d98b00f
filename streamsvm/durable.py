"""The only module that writes files. What it has acknowledged survives a kill and a power cut.

``write_file`` replaces a whole file atomically. Large outputs are made of many files written with ``write_part`` -
not yet durable, which is why nothing may refer to them - then ``sync`` makes them durable, and a last ``write_file``
of a manifest that names them is the commit. ``append_line`` is for journals and event logs.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
from collections.abc import Iterable
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

from streamsvm.errors import ExistsError, StorageError

PARTIAL = ".partial"
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def _explained(action: str, path: Path | str) -> Any:
    """Turn the operating system's refusal into an error that names the file."""
    try:
        yield
    except FileExistsError as error:
        raise ExistsError(f"{path} exists already", hint="choose another name, or pass --overwrite") from error
    except OSError as error:
        full = error.errno in NO_SPACE
        raise StorageError(
            f"{action} {path} failed: {error.strerror}",
            code="E-NOSPACE" if full else "E-IO",
            hint="free space and run the same command again" if full else "check the disk and its permissions",
        ) from error


def _write_all(descriptor: int, pieces: Iterable[Any]) -> None:
    for piece in pieces:
        rest = memoryview(piece).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, *, fresh: bool = False) -> None:
    """Create a directory and its parents, durably. ``fresh``: it must not exist (ExistsError)."""
    with _explained("creating", path):
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=not fresh)
        for made in missing:
            _fsync_directory(made.parent)


def write_file(path: Path, *pieces: Any) -> None:
    """Replace ``path`` by the concatenated buffers: all of it or nothing. Raises StorageError."""
    write_stream(path, pieces)


def write_stream(path: Path, pieces: Iterable[Any]) -> None:
    """``write_file`` for buffers that are made one by one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    with _explained("writing", path):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        try:
            try:
                _write_all(descriptor, pieces)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _fsync_directory(path.parent)


def write_part(path: Path, *pieces: Any) -> None:
    """Write one file of a larger output, not yet durable. Raises StorageError."""
    with _explained("writing", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        try:
            _write_all(descriptor, pieces)
        finally:
            os.close(descriptor)


def sync(paths: Iterable[Path]) -> None:
    """Make parts and the directories they lie in durable. A failed fsync is final: the part must be written again."""
    directories = set()
    for path in paths:
        directories.add(path.parent)
        with _explained("syncing", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    for directory in directories:
        with _explained("syncing", directory):
            _fsync_directory(directory)


def claim(path: Path, *, overwrite: bool) -> None:
    """Check, before hours of work, that an output can be written. Raises ExistsError, StorageError."""
    if path.exists() and not overwrite:
        raise ExistsError(f"{path} exists already", hint="choose another name, or pass --overwrite")
    with _explained("writing to", path.parent):
        if not os.access(path.parent, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES) if path.parent.exists() else "no such directory")


def write_npy(path: Path, rows: int, parts: Iterable[Any]) -> None:
    """Write float64 parts as one .npy array (rows,), all of it or nothing."""
    import numpy as np
    from numpy.lib import format as npy

    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": np.dtype("<f8").str, "fortran_order": False, "shape": (rows,)})
    write_stream(path, chain([header.getvalue()], (np.ascontiguousarray(part, "<f8") for part in parts)))


def open_scratch(path: Path, nbytes: int) -> int:
    """A descriptor of a new file of zeros for reading and writing: state that may be lost with the run."""
    with _explained("creating", path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            if nbytes:
                os.posix_fallocate(descriptor, 0, nbytes)
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        return descriptor


def write_at(descriptor: int, values: Any, offset: int) -> None:
    """Write a whole buffer at an offset of a scratch file."""
    with _explained("writing", "the per-row state"):
        rest = memoryview(values).cast("B")
        while rest:
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written


def read_at(descriptor: int, into: Any, offset: int) -> None:
    """Fill a whole buffer from an offset of a scratch file."""
    with _explained("reading", "the per-row state"):
        rest = memoryview(into).cast("B")
        while rest:
            got = os.preadv(descriptor, [rest], offset)
            if got == 0:
                raise OSError(errno.EIO, "file ended early")
            rest, offset = rest[got:], offset + got


def open_log(path: Path) -> IO[str]:
    """A line-buffered text file to append events to."""
    with _explained("opening", path):
        return open(path, "a", encoding="utf-8", buffering=1)


def sweep(directory: Path) -> None:
    """Remove what a killed writer left behind."""
    for leftover in directory.rglob(f".*{PARTIAL}"):
        leftover.unlink(missing_ok=True)


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory, durably."""
    with _explained("renaming", source):
        os.rename(source, target)
        _fsync_directory(target.parent)
