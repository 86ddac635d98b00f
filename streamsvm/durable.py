"""Durable writes: the only module that writes files. Data survives a kill and a power cut once the function has returned.

``write_file`` replaces a whole file atomically. A large output consists of many files written with ``write_part``, which are not durable
and to which nothing may refer yet; ``sync`` makes them durable, and ``write_file`` of the manifest that names them commits the output.
``append_line`` is for journals, ``open_log`` for event logs, ``open_state`` for files that change in place.

Unfinished files beside an output NAME are called ``.NAME.*.partial``. The next writer of NAME, which holds its lock (``locks``), removes
those of killed writers (``remove_stale_scratch``), and puts back an output that was being replaced (``restore_replaced``).

Every writer reports its steps to ``observe``. Tests use it to kill the process, to let a write fail, and to record the order of steps.
``STREAMSVM_FAULT=kill@N`` kills the process at step N.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import re
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Self

from streamsvm.errors import ExistsError, StorageError
from streamsvm.type_aliases import BytesLike

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


# -- steps and faults --------------------------------------------------------------------------------------------------


NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def _kill_at_step(at: int) -> Callable[..., None]:
    steps = count(1)

    def observer(*_: object) -> None:
        if next(steps) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return observer


_FAULT = os.environ.get("STREAMSVM_FAULT", "")
observe: Callable[..., None] | None = _kill_at_step(int(_FAULT[5:])) if _FAULT.startswith("kill@") else None
"""Called with the name of the step and its paths after each step of a writer; None except in tests of faults."""


def step(done: str, *paths: Path) -> None:
    """Report a finished step to ``observe``."""
    if observe is not None:
        observe(done, *paths)


@contextmanager
def explain_errors(action: str, path: Path | str) -> Iterator[None]:
    """Convert an OSError raised inside to a StorageError or ExistsError that names the action and the file."""
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


# -- whole files -------------------------------------------------------------------------------------------------------


PARTIAL = ".partial"
"""Suffix of an unfinished output."""
SYNC_FILE_RANGE_WRITE = 2
"""Flag of ``sync_file_range`` (Linux): start to write dirty pages, without waiting."""


def write_file(path: Path, *pieces: BytesLike) -> None:
    """Replace a file by the concatenated buffers, atomically and durably. Raises StorageError."""
    write_stream(path, pieces)


def write_stream(path: Path, pieces: Iterable[BytesLike]) -> None:
    """Replace a file by an iterable of buffers, atomically and durably. Raises StorageError."""
    temporary = temporary_beside(path)
    with explain_errors("writing", path):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        try:
            try:
                _write_all(descriptor, pieces, temporary)
                os.fsync(descriptor)
                step("synced", temporary)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
            step("renamed", temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def temporary_beside(path: Path) -> Path:
    """Return an unused name beside an output; ``remove_stale_scratch`` removes the file if the writer is killed."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")


def write_part(path: Path, *pieces: BytesLike) -> None:
    """Write one file of a larger output; ``sync`` makes it durable later. Raises StorageError."""
    with explain_errors("writing", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        try:
            _write_all(descriptor, pieces, path)
            _begin_to_sync(descriptor)
        finally:
            os.close(descriptor)


def append_line(path: Path, line: str) -> None:
    """Append a line to a journal, durably. A kill or a power cut can truncate only this line; readers skip a truncated line."""
    fresh = not path.exists()
    with explain_errors("writing", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        try:
            _write_all(descriptor, [line.encode() + b"\n"], path)
            os.fsync(descriptor)
            step("synced", path)
        finally:
            os.close(descriptor)
        if fresh:
            sync_directory(path.parent)


def sync(paths: Iterable[Path]) -> None:
    """Make files of ``write_part`` and their directories durable. After a failed fsync, the file must be written again."""
    directories = set()
    for path in paths:
        directories.add(path.parent)
        with explain_errors("syncing", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            step("synced", path)
    for directory in directories:
        with explain_errors("syncing", directory):
            sync_directory(directory)


def make_directory(path: Path, *, fresh: bool = False) -> None:
    """Create a directory and its parents, durably. Raises StorageError; with ``fresh``, ExistsError for an existing directory."""
    for parent in (path, *path.parents)[fresh:]:
        if parent.is_file():
            hint = "choose another path"
            raise StorageError(f"{parent} is a file, not a directory", code="E-IO", hint=hint)
    with explain_errors("creating", path):
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=not fresh)
        step("made", path)
        for directory in missing:
            sync_directory(directory.parent)


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    step("directory synced", path)


def _write_all(descriptor: int, pieces: Iterable[BytesLike], path: Path) -> None:
    step("opened", path)
    for piece in pieces:
        rest = memoryview(piece).cast("B")
        if observe is not None and len(rest) > 1:
            rest = rest[os.write(descriptor, rest[: len(rest) // 2]) :]
            step("half", path)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    step("written", path)


def _begin_to_sync(descriptor: int) -> None:
    """Start to write a file to disk, if the system supports it, so that ``sync`` waits less."""
    begin = getattr(_libc(), "sync_file_range", None)
    if begin is not None:
        begin(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), SYNC_FILE_RANGE_WRITE)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


# -- names -------------------------------------------------------------------------------------------------------------


ASIDE = ".aside"
"""Suffix of the old output while it is being replaced."""
RENAME_EXCHANGE = 2
AT_FDCWD = -100
NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""Errors of file systems that do not support RENAME_EXCHANGE."""


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory, durably."""
    with explain_errors("renaming", source):
        os.rename(source, target)
        step("renamed", source, target)
        sync_directory(target.parent)


def exchange(one: Path, other: Path) -> None:
    """Swap the names of two files or directories of one file system, durably.

    The swap is atomic if the file system supports it. If not (NFS), ``other`` is renamed first, and ``restore_replaced`` renames it back
    if this process is killed between the steps.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    with explain_errors("renaming", one):
        if libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0:
            step("exchanged", one, other)
            for parent in {one.parent, other.parent}:
                sync_directory(parent)
        elif ctypes.get_errno() in NO_EXCHANGE:
            _swap_in_three_renames(one, other)
        else:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _swap_in_three_renames(one: Path, other: Path) -> None:
    aside = other.with_name(f".{other.name}.{secrets.token_hex(4)}{ASIDE}")
    rename(other, aside)
    rename(one, other)
    rename(aside, one)


# -- temporary files, and files that killed writers left --------------------------------------------------------------


_OURS = re.compile(r"\.(.+)\.[0-9a-z_]{8}")
"""Names of temporary files without their suffix; group 1 is the output that a file belongs to."""
_PART = re.compile(r"\.part-\d+\.h5" + re.escape(PARTIAL))


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """Provide a temporary directory beside an output, removed when the context ends. Raises StorageError."""
    with explain_errors("writing beside", target):
        scratch = tempfile.TemporaryDirectory(dir=target.resolve().parent, prefix=f".{target.name}.", suffix=PARTIAL)
    with scratch as directory:
        yield Path(directory)


def restore_replaced(target: Path) -> None:
    """Put the old output back if a writer was killed after moving it aside and before putting the new one in its place (``exchange``).

    If the new output is in place, the old one is removed. The caller holds the lock of ``target``. Raises StorageError.
    """
    asides = [path for path in target.parent.glob(f".*{ASIDE}") if _owner(path, ASIDE) == target.name]
    if asides and not target.exists() and not target.is_symlink():
        rename(asides.pop(), target)
    for aside in asides:
        _remove(aside)


def sweep(directory: Path) -> None:
    """Remove the unfinished files that killed writers left below a directory. The caller holds its lock."""
    for leftover in list(directory.rglob(f".*{PARTIAL}")):
        if _owner(leftover) is not None or _PART.fullmatch(leftover.name):
            _remove(leftover)


def remove_stale_scratch(target: Path) -> None:
    """Remove the unfinished files that killed writers of an output left beside it. The caller holds its lock."""
    for leftover in list(target.parent.glob(f".*{PARTIAL}")):
        if _owner(leftover) == target.name:
            _remove(leftover)


def _owner(leftover: Path, ending: str = PARTIAL) -> str | None:
    """Return the name of the output that a temporary file belongs to; None for files of other programs."""
    match = _OURS.fullmatch(leftover.name.removesuffix(ending))
    return match[1] if match and leftover.name.endswith(ending) else None


def _remove(leftover: Path) -> None:
    if leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)


# -- files that change in place ----------------------------------------------------------------------------------------


def open_state(path: Path, nbytes: int) -> int:
    """Open a file that is read and changed in place; allocate ``nbytes`` of disk for a new one.

    Returns the descriptor. Raises StorageError.
    """
    with explain_errors("creating", path):
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


def open_part(path: Path) -> int:
    """Create a file to be written in place and return its descriptor. Finish with ``sync_state`` and ``rename``."""
    with explain_errors("creating", path):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)


def resize(descriptor: int, nbytes: int, path: Path) -> None:
    """Set the size in bytes of a file of ``open_part``."""
    with explain_errors("resizing", path):
        os.ftruncate(descriptor, nbytes)
        step("resized", path)


def write_at(descriptor: int, values: BytesLike, offset: int, path: Path) -> None:
    """Write a whole buffer at an offset of a file of ``open_state`` or ``open_part``. Raises StorageError."""
    with explain_errors("writing", path):
        rest = memoryview(values).cast("B")
        while rest:
            written = os.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written
        step("written in place")


def read_at(descriptor: int, into: BytesLike, offset: int, path: Path) -> None:
    """Fill a whole buffer from an offset of a file of ``open_state``. Raises StorageError."""
    with explain_errors("reading", path):
        rest = memoryview(into).cast("B")
        while rest:
            got = os.preadv(descriptor, [rest], offset)
            if got == 0:
                raise OSError(errno.EIO, "file ended early")
            rest, offset = rest[got:], offset + got


def sync_state(descriptor: int, path: Path) -> None:
    """Make writes to a file of ``open_state`` durable. Raises StorageError."""
    with explain_errors("syncing", path):
        os.fsync(descriptor)
        step("synced", path)


# -- event logs --------------------------------------------------------------------------------------------------------


class Log:
    """An event log: a text file to which lines are appended. A context manager. Raises StorageError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with explain_errors("opening", path):
            self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115  closed by ``__exit__``

    def write(self, line: str) -> None:
        """Append a line that ends with a line feed. It is in the file when the function returns, but not durable."""
        with explain_errors("writing", self._path):
            self._file.write(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with explain_errors("writing", self._path):
                self._file.close()
        except StorageError:
            if kind is None:  # otherwise the error that ended the job is raised
                raise


def open_log(path: Path) -> Log:
    """Open an event log for appending. Raises StorageError."""
    return Log(path)


# -- numpy arrays ------------------------------------------------------------------------------------------------------


NPY_PADDING = 128
"""Extra bytes of padding (two blocks of the format) by which the .npy files of this package are recognized."""


def npy_header(dtype: DTypeLike, shape: tuple[int, ...]) -> bytes:
    """Return the header of a .npy file with extra padding, by which ``is_npy_of_ours`` recognizes it.

    Every reader skips the padding (NEP 1: a header ends with spaces and a line feed); numpy itself adds at most 83 spaces.
    """
    import numpy as np
    from numpy.lib import format as npy

    plain = io.BytesIO()
    npy.write_array_header_1_0(plain, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape})
    header = plain.getvalue()
    length = int.from_bytes(header[8:10], "little") + NPY_PADDING
    return header[:8] + length.to_bytes(2, "little") + header[10:-1] + b" " * NPY_PADDING + header[-1:]


def is_npy_of_ours(head: bytes) -> bool:
    """Return whether a file that begins with the bytes ``head`` was written with ``npy_header``."""
    length = int.from_bytes(head[8:10], "little")
    header = head[10 : 10 + length]
    return head.startswith(b"\x93NUMPY\x01\x00") and len(header) - len(header.rstrip()) > NPY_PADDING


def write_npy(path: Path, shape: tuple[int, ...], parts: Iterable[BytesLike]) -> None:
    """Write the concatenated parts as one float64 .npy array of this shape, atomically."""
    import numpy as np

    header = npy_header("<f8", shape)
    write_stream(path, chain([header], (np.ascontiguousarray(part, "<f8") for part in parts)))
