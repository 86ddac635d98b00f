"""Whole files: replaced atomically, or written as parts of something larger that a last file commits."""

from __future__ import annotations

import ctypes
import os
import secrets
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from streamsvm.aliases import BytesLike
from streamsvm.durable import steps
from streamsvm.durable.steps import explained, step
from streamsvm.errors import StorageError

PARTIAL = ".partial"
"""The ending of what is not complete yet."""


SYNC_FILE_RANGE_WRITE = 2
"""Of ``sync_file_range`` (Linux): begin to write what is not on the disk yet, and wait for nothing."""


def _write_all(descriptor: int, pieces: Iterable[BytesLike], path: Path) -> None:
    step("opened", path)
    for piece in pieces:
        rest = memoryview(piece).cast("B")
        if steps.observe is not None and len(rest) > 1:
            rest = rest[os.write(descriptor, rest[: len(rest) // 2]) :]
            step("half", path)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    step("written", path)


def sync_directory(path: Path) -> None:
    """Make durable which files a directory names."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    step("directory synced", path)


def make_directory(path: Path, *, fresh: bool = False) -> None:
    """Create a directory and its parents, durably. ``fresh``: it must not exist (ExistsError). Raises StorageError."""
    for there in (path, *path.parents)[fresh:]:
        if there.is_file():
            hint = "choose a path whose folders are folders, or can be made"
            raise StorageError(f"{there} is a file, and no directory", code="E-IO", hint=hint)
    with explained("creating", path):
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=not fresh)
        step("made", path)
        for made in missing:
            sync_directory(made.parent)


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
    """A name beside an output that nobody else has, known to ``scratch.sweep_beside``."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")


def write_part(path: Path, *pieces: BytesLike) -> None:
    """Write one file of a larger output, not yet durable. Raises StorageError."""
    with explained("writing", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        try:
            _write_all(descriptor, pieces, path)
            _begin_to_sync(descriptor)
        finally:
            os.close(descriptor)


def _begin_to_sync(descriptor: int) -> None:
    """Have the disk begin with a whole file, so that ``sync`` has less to wait for; where the system has no way to, it does not."""
    begin = getattr(_libc(), "sync_file_range", None)
    if begin is not None:
        begin(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), SYNC_FILE_RANGE_WRITE)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def append_line(path: Path, line: str) -> None:
    """Add a line to a journal, durably. Only the last line can be cut by a kill or a power cut; readers leave it out."""
    fresh = not path.exists()
    with explained("writing", path):
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
            step("synced", path)
    for directory in directories:
        with explained("syncing", directory):
            sync_directory(directory)
