"""Names of files and directories: changed durably, in one step where the system has one for it."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from pathlib import Path

from streamsvm.durable.steps import explained, step
from streamsvm.durable.whole_files import sync_directory

ASIDE = ".aside"
"""The ending of what was complete until something else took its place."""
RENAME_EXCHANGE = 2
AT_FDCWD = -100
NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""What file systems say that cannot exchange two names."""


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory, durably."""
    with explained("renaming", source):
        os.rename(source, target)
        step("renamed", source, target)
        sync_directory(target.parent)


def exchange(one: Path, other: Path) -> None:
    """Let two files or directories of one file system change names, durably.

    It is one step where the system has one for it; elsewhere (NFS) ``other`` is put aside for a moment, from where
    ``scratch.restore`` gives it back if this process is killed just then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    with explained("renaming", one):
        if libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0:
            step("exchanged", one, other)
            for parent in {one.parent, other.parent}:
                sync_directory(parent)
        elif ctypes.get_errno() in NO_EXCHANGE:
            _exchange_in_turn(one, other)
        else:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _exchange_in_turn(one: Path, other: Path) -> None:
    aside = other.with_name(f".{other.name}.{secrets.token_hex(4)}{ASIDE}")
    rename(other, aside)
    rename(one, other)
    rename(aside, one)
