"""The only module that writes files. What it has acknowledged survives a kill and a power cut.

``write_file`` replaces a whole file atomically. Large outputs are made of many files written with ``write_part`` -
not yet durable, which is why nothing may refer to them - then ``sync`` makes them durable, and a last ``write_file``
of a manifest that names them is the commit. ``append_line`` is for journals, ``open_log`` for event logs.

Every primitive calls ``observe`` at each of its steps, where a test kills the process or notes the order of things.
STREAMSVM_FAULT=kill@N kills at the N-th step.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import secrets
import signal
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

from streamsvm.errors import ExistsError, StorageError

PARTIAL = ".partial"
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
RENAME_EXCHANGE = 2
AT_FDCWD = -100


def _killing(at: int) -> Callable[..., None]:
    """An observer that kills this process at step ``at``."""
    steps = count(1)

    def observer(*_: Any) -> None:
        if next(steps) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return observer


_FAULT = os.environ.get("STREAMSVM_FAULT", "")
observe: Callable[..., None] | None = _killing(int(_FAULT[5:])) if _FAULT.startswith("kill@") else None
"""Told (what was just done, path, other path) while something is being written."""


def _step(done: str, *paths: Path) -> None:
    if observe is not None:
        observe(done, *paths)


@contextmanager
def explained(action: str, path: Path | str) -> Any:
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


def _write_all(descriptor: int, pieces: Iterable[Any], path: Path) -> None:
    _step("opened", path)
    for piece in pieces:
        rest = memoryview(piece).cast("B")
        if observe is not None and len(rest) > 1:
            rest = rest[os.write(descriptor, rest[: len(rest) // 2]) :]
            _step("half", path)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    _step("written", path)


def _fsync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    _step("directory synced", path)


def make_directory(path: Path, *, fresh: bool = False) -> None:
    """Create a directory and its parents, durably. ``fresh``: it must not exist (ExistsError)."""
    with explained("creating", path):
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=not fresh)
        _step("made", path)
        for made in missing:
            _fsync_directory(made.parent)


def write_file(path: Path, *pieces: Any) -> None:
    """Replace ``path`` by the concatenated buffers: all of it or nothing. Raises StorageError."""
    write_stream(path, pieces)


def write_stream(path: Path, pieces: Iterable[Any]) -> None:
    """``write_file`` for buffers that are made one by one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    with explained("writing", path):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        try:
            try:
                _write_all(descriptor, pieces, temporary)
                os.fsync(descriptor)
                _step("synced", temporary)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
            _step("renamed", temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _fsync_directory(path.parent)


def write_part(path: Path, *pieces: Any) -> None:
    """Write one file of a larger output, not yet durable. Raises StorageError."""
    with explained("writing", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        try:
            _write_all(descriptor, pieces, path)
        finally:
            os.close(descriptor)


def append_line(path: Path, line: str) -> None:
    """Add a line to a journal, durably. Only the last line can be cut by a kill or a power cut; readers leave it out."""
    fresh = not path.exists()
    with explained("writing", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        try:
            _write_all(descriptor, [line.encode() + b"\n"], path)
            os.fsync(descriptor)
            _step("synced", path)
        finally:
            os.close(descriptor)
        if fresh:
            _fsync_directory(path.parent)


def sync(paths: Iterable[Path]) -> None:
    """Make parts and the directories they lie in durable. A failed fsync is final: the part must be written again."""
    directories = set()
    for path in paths:
        directories.add(path.parent)
        with explained("syncing", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            _step("synced", path)
    for directory in directories:
        with explained("syncing", directory):
            _fsync_directory(directory)


def claim(path: Path, *, overwrite: bool) -> None:
    """Check, before hours of work, that an output can be written. Raises ExistsError, StorageError."""
    if path.exists() and not overwrite:
        raise ExistsError(f"{path} exists already", hint="choose another name, or pass --overwrite")
    with explained("writing to", path.parent):
        if not os.access(path.parent, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES) if path.parent.exists() else "no such directory")


def write_npy(path: Path, shape: tuple[int, ...], parts: Iterable[Any]) -> None:
    """Write float64 parts, one after the other, as one .npy array of this shape, all of it or nothing."""
    import numpy as np
    from numpy.lib import format as npy

    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": np.dtype("<f8").str, "fortran_order": False, "shape": shape})
    write_stream(path, chain([header.getvalue()], (np.ascontiguousarray(part, "<f8") for part in parts)))


def open_state(path: Path, nbytes: int) -> int:
    """A descriptor for reading and writing a file that changes in place; a new one is given ``nbytes`` of disk."""
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
            _fsync_directory(path.parent)
        return descriptor


def sync_state(descriptor: int, path: Path) -> None:
    """Make durable what was written into a file of ``open_state``."""
    with explained("syncing", path):
        os.fsync(descriptor)
        _step("synced", path)


def open_part(path: Path) -> int:
    """A descriptor of a new file that is written in place and not yet durable: ``sync_state`` and ``rename`` come last."""
    with explained("creating", path):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)


def resize(descriptor: int, nbytes: int, path: Path) -> None:
    """Give a file of ``open_part`` another size."""
    with explained("resizing", path):
        os.ftruncate(descriptor, nbytes)
        _step("resized", path)


def write_at(descriptor: int, values: Any, offset: int, what: Path | str = "the per-row state") -> None:
    """Write a whole buffer at an offset of a file of ``open_state`` or ``open_part``."""
    with explained("writing", what):
        rest = memoryview(values).cast("B")
        while rest:
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written
        _step("written in place")


def read_at(descriptor: int, into: Any, offset: int) -> None:
    """Fill a whole buffer from an offset of a file of ``open_state``."""
    with explained("reading", "the per-row state"):
        rest = memoryview(into).cast("B")
        while rest:
            got = os.preadv(descriptor, [rest], offset)
            if got == 0:
                raise OSError(errno.EIO, "file ended early")
            rest, offset = rest[got:], offset + got


def open_log(path: Path) -> IO[str]:
    """A line-buffered text file to append events to."""
    with explained("opening", path):
        return open(path, "a", encoding="utf-8", buffering=1)


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory, durably."""
    with explained("renaming", source):
        os.rename(source, target)
        _step("renamed", source, target)
        _fsync_directory(target.parent)


def exchange(one: Path, other: Path) -> None:
    """Let two files or directories of one parent change names in one step, durably."""
    with explained("renaming", one):
        libc = ctypes.CDLL(None, use_errno=True)
        names = os.fsencode(one), os.fsencode(other)
        if libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        _step("exchanged", one, other)
        _fsync_directory(other.parent)
