"""Reads that fail for a moment: a disk or a network that answers EIO is asked again, three times."""

from __future__ import annotations

import errno
import os
import time
from typing import Any

PAUSES = [0.1, 1.0, 5.0]
"""Seconds before the second, third and last try."""
TRIES = len(PAUSES) + 1
_seen = 0


def preadv(descriptor: int, views: list[Any], offset: int) -> int:
    """``os.preadv``; raises OSError when it fails four times."""
    for pause in PAUSES:
        try:
            return os.preadv(descriptor, views, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            _count()
            time.sleep(pause)
    return os.preadv(descriptor, views, offset)


def _count() -> None:
    global _seen  # noqa: PLW0603 (a counter of the process)
    _seen += 1


def retries() -> int:
    """How many reads of this process had to be made again."""
    return _seen
