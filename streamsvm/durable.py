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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Self

from streamsvm.aliases import BytesLike
from streamsvm.errors import ExistsError, StorageError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

PARTIAL, ASIDE = ".partial", ".aside"
"""Endings of what is not complete yet, and of what was complete until something else took its place."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
RENAME_EXCHANGE = 2
AT_FDCWD = -100
NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""What file systems say that cannot exchange two names."""


def _killing(at: int) -> Callable[..., None]:
    """An observer that kills this process at step ``at``."""
    steps = count(1)

    def observer(*_: object) -> None:
        if next(steps) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return observer


_FAULT = os.environ.get("STREAMSVM_FAULT", "")
observe: Callable[..., None] | None = _killing(int(_FAULT[5:])) if _FAULT.startswith("kill@") else None
"""Called with (what was just done, path, other path) while something is being written; None outside tests."""


def _step(done: str, *paths: Path) -> None:
    if observe is not None:
        observe(done, *paths)


@contextmanager
def explained(action: str, path: Path | str) -> Iterator[None]:
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


def _write_all(descriptor: int, pieces: Iterable[BytesLike], path: Path) -> None:
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
    """Create a directory and its parents, durably. ``fresh``: it must not exist (ExistsError). Raises StorageError."""
    for there in (path, *path.parents)[fresh:]:
        if there.is_file():
            hint = "choose a path whose folders are folders, or can be made"
            raise StorageError(f"{there} is a file, and no directory", code="E-IO", hint=hint)
    with explained("creating", path):
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=not fresh)
        _step("made", path)
        for made in missing:
            _fsync_directory(made.parent)


def write_file(path: Path, *pieces: BytesLike) -> None:
    """Replace ``path`` by the concatenated buffers: all of it or nothing. Raises StorageError."""
    write_stream(path, pieces)


def write_stream(path: Path, pieces: Iterable[BytesLike]) -> None:
    """Replace ``path`` by buffers that are made one by one; see ``write_file``."""
    temporary = temporary_beside(path)
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


def temporary_beside(path: Path) -> Path:
    """A name beside an output that nobody else has, known to ``scratch.sweep_beside``."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")


def write_part(path: Path, *pieces: BytesLike) -> None:
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


NPY_PADDING = 128
"""Bytes, two blocks of the format, by which the header of a .npy file of ours is longer than numpy would make it."""


def npy_header(dtype: DTypeLike, shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file of ours: longer than it needs to be, by which it is known again.

    Any reader skips the padding (NEP 1: a header ends with spaces and a line feed); numpy itself adds 83 spaces at most.
    """
    import numpy as np
    from numpy.lib import format as npy

    plain = io.BytesIO()
    npy.write_array_header_1_0(plain, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape})
    found = plain.getvalue()
    length = int.from_bytes(found[8:10], "little") + NPY_PADDING
    return found[:8] + length.to_bytes(2, "little") + found[10:-1] + b" " * NPY_PADDING + found[-1:]


def is_npy_of_ours(head: bytes) -> bool:
    """Whether a file that begins with ``head`` was written with ``npy_header``."""
    length = int.from_bytes(head[8:10], "little")
    header = head[10 : 10 + length]
    return head.startswith(b"\x93NUMPY\x01\x00") and len(header) - len(header.rstrip()) > NPY_PADDING


def write_npy(path: Path, shape: tuple[int, ...], parts: Iterable[BytesLike]) -> None:
    """Write float64 parts, one after the other, as one .npy array of this shape, all of it or nothing."""
    import numpy as np

    header = npy_header("<f8", shape)
    write_stream(path, chain([header], (np.ascontiguousarray(part, "<f8") for part in parts)))


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
            _fsync_directory(path.parent)
        return descriptor


def sync_state(descriptor: int, path: Path) -> None:
    """Make durable what was written into a file of ``open_state``. Raises StorageError."""
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


def write_at(descriptor: int, values: BytesLike, offset: int, path: Path) -> None:
    """Write a whole buffer at an offset of a file of ``open_state`` or ``open_part``. Raises StorageError."""
    with explained("writing", path):
        rest = memoryview(values).cast("B")
        while rest:
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written
        _step("written in place")


def read_at(descriptor: int, into: BytesLike, offset: int, path: Path) -> None:
    """Fill a whole buffer from an offset of a file of ``open_state``. Raises StorageError."""
    with explained("reading", path):
        rest = memoryview(into).cast("B")
        while rest:
            got = os.preadv(descriptor, [rest], offset)
            if got == 0:
                raise OSError(errno.EIO, "file ended early")
            rest, offset = rest[got:], offset + got


class Log:
    """A text file that events are appended to, a line at a time; a context manager. Raises StorageError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with explained("opening", path):
            self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  closed by ``__exit__``

    def write(self, line: str) -> None:
        """Append a line with its line feed; it is in the file when this returns, if not yet durable."""
        with explained("writing", self._path):
            self._file.write(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with explained("writing", self._path):
                self._file.close()
        except StorageError:
            if kind is None:  # else what ended the job is the thing to say
                raise


def open_log(path: Path) -> Log:
    """Open a line-buffered text file to append events to. Raises StorageError."""
    return Log(path)


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory, durably."""
    with explained("renaming", source):
        os.rename(source, target)
        _step("renamed", source, target)
        _fsync_directory(target.parent)


def exchange(one: Path, other: Path) -> None:
    """Let two files or directories of one file system change names, durably.

    It is one step where the system has one for it; elsewhere (NFS) ``other`` is put aside for a moment, from where
    ``scratch.restore`` gives it back if this process is killed just then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    with explained("renaming", one):
        if libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0:
            _step("exchanged", one, other)
            for parent in {one.parent, other.parent}:
                _fsync_directory(parent)
        elif ctypes.get_errno() in NO_EXCHANGE:
            _exchange_in_turn(one, other)
        else:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _exchange_in_turn(one: Path, other: Path) -> None:
    aside = other.with_name(f".{other.name}.{secrets.token_hex(4)}{ASIDE}")
    rename(other, aside)
    rename(one, other)
    rename(aside, one)
