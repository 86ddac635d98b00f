"""Reads that fail for a moment: a disk or a network that answers EIO is asked again, three times.

A network file system whose server was restarted answers ESTALE to a file that is open, and to nothing else: such a file
is opened again, as often. Whoever reads from it checks its size and content as if it were the first time.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamsvm.regular import open_regular

PAUSES = [0.1, 1.0, 5.0]
"""Seconds before the second, third and last try."""
TRIES = len(PAUSES) + 1
"""How often a read is tried in all."""
PASSING = (errno.EIO, errno.ESTALE)
"""The errors after which a read is tried again."""
_seen = 0


def preadv(descriptor: int, views: list[Any], offset: int) -> int:
    """Call ``os.preadv``, up to four times. Raises OSError when the last try fails too."""
    return _tried(errno.EIO, lambda: os.preadv(descriptor, views, offset))


def opened(path: Path | str, read: Callable[[int], None]) -> None:
    """Call ``read`` with a descriptor of the file, up to four times where the file is stale. Raises OSError."""

    def once() -> int:
        descriptor = open_regular(path)
        try:
            read(descriptor)
        finally:
            os.close(descriptor)
        return 0

    _tried(errno.ESTALE, once)


def _tried(passing: int, once: Callable[[], int]) -> int:
    for pause in PAUSES:
        try:
            return once()
        except OSError as error:
            if error.errno != passing:
                raise
            _count()
            time.sleep(pause)
    return once()


def of_disk(error: Exception) -> bool:
    """Return whether the disk is to blame for what a library raised; HDF5 tells in words what the system said."""
    message = str(error)
    return (isinstance(error, OSError) and error.errno in PASSING) or any(
        f"'{os.strerror(number)}'" in message for number in PASSING
    )


def _count() -> None:
    global _seen  # noqa: PLW0603 (a counter of the process)
    _seen += 1


def retries() -> int:
    """Return how many reads of this process had to be made again."""
    return _seen
