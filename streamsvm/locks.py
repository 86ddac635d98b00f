"""One writer at a time: locks that end with the process that holds them, however that ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamsvm.aliases import JsonObject
from streamsvm.durable import explained, make_directory
from streamsvm.errors import ExistsError
from streamsvm.scratch import restore


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Be the only writer of ``target``. Raises ExistsError E-LOCKED naming the process that is.

    The lock is the kernel's, on a file beside the target that says who holds it. What a killed writer had put aside is
    given back. Raises ExistsError, too, when a file of another program has the name of the lock.
    """
    path = target.with_name(f".{target.name}.lock")
    make_directory(path.parent)
    with explained("locking", path):
        descriptor = _claimed(path)
    if descriptor is None:
        raise ExistsError(
            f"{target} is being written by {_holder(path)}", code="E-LOCKED", hint="wait for it, or choose another name"
        )
    try:
        restore(target)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _claimed(path: Path) -> int | None:
    """A descriptor that holds the lock; None when another process does."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        if not _is_lock(descriptor):
            os.close(descriptor)
            raise ExistsError(f"{path} is there and is not a lock", hint="move it, or choose another name")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:  # a file system without locks: what the file says of its holder decides
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
                os.close(descriptor)
                raise
            if _alive(path):
                os.close(descriptor)
                return None
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):  # not one just removed by its holder
            try:
                _sign(descriptor)
            except BaseException:  # the disk is full: what is not signed is not held
                path.unlink(missing_ok=True)
                os.close(descriptor)
                raise
            return descriptor
        os.close(descriptor)


def _is_lock(descriptor: int) -> bool:
    """Whether a file is a lock of ours: a signature, or nothing yet, or the cut signature of a writer that was killed."""
    text = os.pread(descriptor, 4096, 0) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b"?"
    return b'{"pid": '.startswith(text[:8]) and len(text) < 4096


def _sign(descriptor: int) -> None:
    signature = {"pid": os.getpid(), "host": socket.gethostname(), "boot": _boot(), "since": time.strftime("%F %H:%M")}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(signature).encode(), 0)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _signature(path: Path) -> JsonObject:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _holder(path: Path) -> str:
    found = _signature(path)
    return f"pid {found.get('pid', '?')} on host {found.get('host', '?')} since {found.get('since', '?')}"


def _alive(path: Path) -> bool:
    """Whether the process that signed a lock may still run; of another host nobody can tell."""
    found = _signature(path)
    if not found or found.get("host") != socket.gethostname():
        return bool(found)
    return found.get("boot") == _boot() and Path(f"/proc/{found.get('pid')}").exists()
