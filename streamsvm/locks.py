"""One writer at a time: locks that end with their process, and the removal of what killed writers left behind.

Everything unfinished beside an output NAME is called ``.NAME.*.partial``, so that the next writer of NAME, who holds its lock, knows
which files belong to nobody.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.durable import PARTIAL, explain_errors, make_directory
from streamsvm.errors import ExistsError


@contextmanager
def hold_lock(target: Path) -> Iterator[None]:
    """Hold the lock of ``target``. Raises ExistsError E-LOCKED that names the process which holds it.

    This is a lock of the kernel on a file beside the target, in which its holder signs. An output that a killed writer had renamed
    is restored. Raises ExistsError as well when a file of another program has the name of the lock.
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
        restore(target)
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
        except OSError as error:  # a file system without locks: the signature in the file decides
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
                os.close(descriptor)
                raise
            if _alive(path):
                os.close(descriptor)
                return None
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):  # not one just removed by its holder
            try:
                _sign(descriptor)
            except BaseException:  # the disk is full: an unsigned lock is not held
                path.unlink(missing_ok=True)
                os.close(descriptor)
                raise
            return descriptor
        os.close(descriptor)


def _is_lock(descriptor: int) -> bool:
    """Return whether a file is a lock of ours: a signature, whole or truncated by a kill, or empty."""
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
    """Return whether the process that signed a lock may still run; on another host it always may."""
    found = _signature(path)
    if not found or found.get("host") != socket.gethostname():
        return bool(found)
    return found.get("boot") == _boot() and Path(f"/proc/{found.get('pid')}").exists()


# -- temporary and abandoned files -------------------------------------------------------------------------------------


_OURS = re.compile(r"\.(.+)\.[0-9a-z_]{8}")
"""Names made by ``scratch_beside`` and ``durable``, without their suffix; group 1 is the output they belong to."""
_PART = re.compile(r"\.part-\d+\.h5" + re.escape(PARTIAL))


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """Yield a temporary directory beside an output, removed when the context ends. Raises StorageError."""
    with explain_errors("writing beside", target):
        made = tempfile.TemporaryDirectory(dir=target.resolve().parent, prefix=f".{target.name}.", suffix=PARTIAL)
    with made as directory:
        yield Path(directory)


def restore(target: Path) -> None:
    """Restore an output that a killed writer had renamed before its replacement was in place.

    If the replacement is in place, the old output is removed. The caller holds the lock of ``target``. Raises StorageError.
    """
    asides = [path for path in target.parent.glob(f".*{durable.ASIDE}") if _owner(path, durable.ASIDE) == target.name]
    if asides and not target.exists() and not target.is_symlink():
        durable.rename(asides.pop(), target)
    for aside in asides:
        _remove(aside)


def sweep(directory: Path) -> None:
    """Remove what killed writers left below a directory. The caller holds its lock."""
    for leftover in list(directory.rglob(f".*{PARTIAL}")):
        if _owner(leftover) is not None or _PART.fullmatch(leftover.name):
            _remove(leftover)


def sweep_beside(target: Path) -> None:
    """Remove what killed writers of one output left beside it. The caller holds its lock."""
    for leftover in list(target.parent.glob(f".*{PARTIAL}")):
        if _owner(leftover) == target.name:
            _remove(leftover)


def _owner(leftover: Path, ending: str = PARTIAL) -> str | None:
    """Return the name of the output that a temporary file belongs to; None for files of other programs."""
    found = _OURS.fullmatch(leftover.name.removesuffix(ending))
    return found[1] if found and leftover.name.endswith(ending) else None


def _remove(leftover: Path) -> None:
    if leftover.is_dir() and not leftover.is_symlink():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)
