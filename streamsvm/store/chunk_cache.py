"""Keep parts of stores in object stores in a folder of this machine, which processes share, within a number of bytes.

Passes go through a store in about the same order again and again. There the part that was used least recently is the one that is needed
next, so that a cache that drops it never has what is asked for. Nothing is therefore dropped for another part of the same store: the parts
that came first stay, and each later pass saves their bytes. With N bytes of which C are kept, p passes read p N - (p - 1) C bytes.

Stores that no process has opened for ``UNUSED_SECONDS`` make room for another store.

The reader verifies what it reads here as it verifies what arrives over the network. A cache that is full, damaged or cannot be written is
no error.

    FOLDER/bytes                    the number of bytes that are kept, counted under a lock
    FOLDER/<manifest>/url           where the store is
    FOLDER/<manifest>/<array>.<k>   array of chunk k, as it was read; <manifest>: digits of the sha256 of the store's manifest
"""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from streamsvm import durable
from streamsvm.object_store import object_facts, read_range

LABEL_BYTES = 256 << 20
"""Bytes of labels and weights that are kept without being asked for."""
UNUSED_SECONDS = 3600
COUNTER, URL_FILE = "bytes", "url"
PIECE = 4 << 20
"""Bytes of a file that are copied at a time."""


def cache_folder() -> Path:
    """Return the folder of the cache: $STREAMSVM_CACHE, else one in the user's cache; if it cannot be written, a temporary one."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    chosen = os.environ.get("STREAMSVM_CACHE") or Path(
        base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "streamsvm-stores"
    )
    folder = Path(chosen).absolute()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.stat(folder).st_uid == os.getuid() and os.access(folder, os.W_OK):
            return folder
    return _temporary_folder()


@cache
def _temporary_folder() -> Path:
    """Return a folder of this process only."""
    folder = Path(tempfile.mkdtemp(prefix="streamsvm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class ChunkCache:
    """The parts of one store that are kept. Several processes may use the same folder."""

    def __init__(self, name: str, url: str, limit: int) -> None:
        """``name``: digits that name the store. ``url``: where it is. ``limit``: bytes that are kept of all stores."""
        self.folder = cache_folder() / name
        self._limit = limit
        with suppress(OSError):
            self.folder.mkdir(exist_ok=True, mode=0o700)
            (self.folder / URL_FILE).write_text(url)
            os.utime(self.folder)

    def read(self, array: str, chunk: int, into: memoryview) -> bool:
        """Fill ``into`` with a part, and return whether it was kept with this number of bytes."""
        try:
            descriptor = os.open(self._path(array, chunk), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            return os.fstat(descriptor).st_size == len(into) and os.preadv(descriptor, [into], 0) == len(into)
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def keep(self, array: str, chunk: int, values: memoryview) -> None:
        """Keep a part if there is room for it."""
        with suppress(OSError):
            if not self._count(len(values)) and not (remove_stores(unused=True) and self._count(len(values))):
                return
            temporary = self.folder / f".{secrets.token_hex(6)}"
            try:
                temporary.write_bytes(values)
                os.link(temporary, self._path(array, chunk))  # fails if another process has kept the part
            except OSError:
                self._count(-len(values))
                raise
            finally:
                temporary.unlink(missing_ok=True)

    def drop(self, array: str, chunk: int) -> None:
        """Drop a part that is damaged."""
        with suppress(OSError):
            path = self._path(array, chunk)
            size = path.stat().st_size
            path.unlink()
            self._count(-size)

    def copy_file(self, url: str, name: str, limit: int) -> None:
        """Copy an object of at most ``limit`` bytes to a file of the folder. Raises DataError, StorageError."""
        facts = object_facts(url)
        temporary = self.folder / f".{secrets.token_hex(6)}"
        piece = memoryview(bytearray(min(PIECE, facts.size, limit)))
        with durable.explain_errors("writing", temporary):
            try:
                with open(temporary, "xb", buffering=0) as file:
                    for start in range(0, min(facts.size, limit), PIECE):
                        part = piece[: min(PIECE, facts.size - start)]
                        read_range(url, start, part, facts.size, facts.etag)
                        file.write(part)
                os.replace(temporary, self.folder / name)
            finally:
                temporary.unlink(missing_ok=True)

    def _path(self, array: str, chunk: int) -> Path:
        return self.folder / f"{array.replace('/', '_')}.{chunk}"

    def _count(self, nbytes: int) -> bool:
        """Add to the bytes that all processes keep, and return True; if they exceed the limit, leave them and return False."""
        with open_counter(self.folder.parent) as counter:
            total = max(0, counter.read() + nbytes)
            if nbytes > 0 and total > self._limit:
                return False
            counter.write(total)
            return True


class Counter:
    """The number of bytes that are kept, in a file that this process has locked."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self) -> int:
        """Return the number."""
        self._file.seek(0)
        text = self._file.read(20)
        return int(text) if text.isdigit() else 0

    def write(self, nbytes: int) -> None:
        """Change the number."""
        self._file.truncate(0)
        self._file.write(b"%d" % nbytes)
        self._file.flush()


@contextmanager
def open_counter(folder: Path) -> Iterator[Counter]:
    """Lock the counter of a cache while the context lasts. Raises OSError."""
    with open(folder / COUNTER, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield Counter(file)


class KeptStore(NamedTuple):
    """A store of which parts are kept."""

    folder: Path
    url: str
    """Where the store is."""
    nbytes: int
    used: float
    """When it was opened last, in seconds since 1970."""


def list_stores() -> list[KeptStore]:
    """Return the stores of which parts are kept, the one that was used last first."""
    found = []
    for folder in cache_folder().iterdir():
        with suppress(OSError):  # another process may remove it
            url = (folder / URL_FILE).read_text()
            nbytes = sum(file.stat().st_size for file in folder.iterdir())
            found.append(KeptStore(folder, url, nbytes, folder.stat().st_mtime))
    return sorted(found, key=lambda store: -store.used)


def remove_stores(*, unused: bool = False) -> int:
    """Remove what is kept, and return the bytes; with ``unused`` only of stores that were not opened for ``UNUSED_SECONDS``."""
    stores, oldest = list_stores(), time.time() - UNUSED_SECONDS
    removed = [store for store in stores if not unused or store.used < oldest]
    if not removed:
        return 0
    with open_counter(cache_folder()) as counter:
        for store in removed:
            shutil.rmtree(store.folder, ignore_errors=True)
        counter.write(sum(store.nbytes for store in stores if store not in removed))
    return sum(store.nbytes for store in removed)
