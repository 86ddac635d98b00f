"""Locks of outputs, so that an output has one writer at a time; a lock ends with its process."""

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

from streamsvm.durable import explain_errors, make_directory, restore_replaced
from streamsvm.errors import ExistsError
from streamsvm.type_aliases import JsonObject


@contextmanager
def hold_lock(target: Path) -> Iterator[None]:
    """Hold the lock of the output ``target`` inside the context.

    The lock is a ``flock`` on a file beside the target, in which the holder writes its process, host and time. An output that a killed
    writer was replacing is restored. Raises ExistsError E-LOCKED if another process holds the lock, which the message names, and
    ExistsError if the lock file is a file of another program.
    """
    path = target.with_name(f".{target.name}.lock")
    make_directory(path.parent)
    with explain_errors("locking", path):
        descriptor = _acquire(path)
    if descriptor is None:
        raise ExistsError(
            f"{target} is being written by {_holder(path)}", code="E-LOCKED", hint="wait for it, or choose another name"
        )
    try:
        restore_replaced(target)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(path: Path) -> int | None:
    """Return a descriptor that holds the lock; None if another process holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        if not _is_lock(descriptor):
            os.close(descriptor)
            raise ExistsError(f"{path} exists and is not a lock file", hint="move it, or choose another name")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:  # a file system without locks: the text in the file decides
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
                os.close(descriptor)
                raise
            if _alive(path):
                os.close(descriptor)
                return None
        if path.exists() and os.path.samestat(
            os.fstat(descriptor), path.stat()
        ):  # otherwise its holder has just removed it
            try:
                _sign(descriptor)
            except BaseException:  # the disk is full: a lock without its text is not held
                path.unlink(missing_ok=True)
                os.close(descriptor)
                raise
            return descriptor
        os.close(descriptor)


def _is_lock(descriptor: int) -> bool:
    """Return whether a file is a lock file of this package; its text may be truncated or missing after a kill."""
    text = os.pread(descriptor, 4096, 0) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b"?"
    return b'{"pid": '.startswith(text[:8]) and len(text) < 4096


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(process_signature()).encode(), 0)


def process_signature() -> JsonObject:
    """Return what the holder of a lock writes into it: its process, host, start of the system and time."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "boot": _boot(), "since": time.strftime("%F %H:%M")}


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _signature(path: Path) -> JsonObject:
    try:
        signature = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return signature if isinstance(signature, dict) else {}


def _holder(path: Path) -> str:
    return describe_process(_signature(path))


def describe_process(signature: JsonObject) -> str:
    """Return the process of a signature in words."""
    return f"pid {signature.get('pid', '?')} on host {signature.get('host', '?')} since {signature.get('since', '?')}"


def _alive(path: Path) -> bool:
    """Return whether the process named in a lock may still run; a process on another host always counts as running."""
    signature = _signature(path)
    return bool(signature) and is_process_alive(signature) is not False


def is_process_alive(signature: JsonObject) -> bool | None:
    """Return whether the process of a signature runs; None if it is one of another host."""
    if signature.get("host") != socket.gethostname():
        return None
    return signature.get("boot") == _boot() and Path(f"/proc/{signature.get('pid')}").exists()
