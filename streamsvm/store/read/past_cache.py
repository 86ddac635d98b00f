"""Reading past the page cache (O_DIRECT), for stores that it does not hold.

A read through the cache allocates pages, copies them and drops them again, which takes three to four times the
processor seconds of the transfer itself. Past the cache the disk writes into the block. It asks for blocks of the disk:
for memory, offset and length that are multiples of ``ALIGNED``. So the whole ones of a unit go to where they are
wanted, and the last, incomplete one goes there through a page. Some file systems (tmpfs, some networks) refuse: they
are read through the cache.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os

import numpy as np

from streamsvm.store.read.retry import preadv

ALIGNED = 4096
"""Bytes. No disk in use has larger blocks; one that has refuses, and is read through the cache."""
REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)


def read_past_cache(descriptor: int, into: memoryview, tail: bytearray, offset: int) -> bool:
    """Read ``into`` and then ``tail`` from ``offset`` on; False, with nothing read, where that cannot be done past the
    cache.

    False too where the file ends early: who reads it through the cache says so. Raises OSError of the disk.
    """
    whole = len(into) // ALIGNED * ALIGNED
    if offset % ALIGNED or not whole or np.frombuffer(into, np.uint8).ctypes.data % ALIGNED:
        return False
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        return preadv(descriptor, [into[:whole]], offset) == whole and _read_rest(
            descriptor, into[whole:], tail, offset + whole
        )
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        return False
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


def _read_rest(descriptor: int, into: memoryview, tail: bytearray, offset: int) -> bool:
    """Read less than a block and the tail, through memory of their own."""
    wanted = len(into) + len(tail)
    if not wanted:
        return True
    with mmap.mmap(-1, -(-wanted // ALIGNED) * ALIGNED) as pages:  # anonymous memory begins on a page
        got = preadv(descriptor, [pages], offset)
        into[:], tail[:] = pages[: len(into)], pages[len(into) : wanted]
    return got >= wanted
