"""What is in a file or a folder, as far as a kind of output is told by it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from streamsvm.aliases import JsonObject

HEAD = 1 << 16
"""Bytes of the beginning, or the end, that a file is told by."""
LARGEST_JSON = 100 << 20
"""Bytes of the longest JSON that is read."""


def no_directory(path: Path) -> str:
    """Return why a path is no directory; empty where it is one, and no link to one."""
    return "" if path.is_dir() and not path.is_symlink() else "it is not a directory"


def foreign_file(directory: Path, ours: re.Pattern[str]) -> str:
    """Return what the first file below a directory is that is not one of ours; empty when there is none."""
    for found in below(directory):
        if not ours.fullmatch(found):
            return f"it holds {found!a}, which is none of its files"
    return ""


def below(directory: Path, prefix: str = "") -> Iterator[str]:
    """Yield every file, link and empty directory below a directory, by its relative name; links are not followed."""
    with os.scandir(directory) as entries:
        for entry in entries:
            name = prefix + entry.name
            if entry.is_symlink():
                yield name + " (a link)"
            elif entry.is_dir():
                yield from below(directory / entry.name, name + "/")
            elif entry.is_file():
                yield name
            else:
                yield name + " (no regular file)"


def head_of(path: Path, nbytes: int = HEAD) -> bytes:
    """Return how a regular file begins; nothing of what is none, or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read(nbytes) if path.is_file() else b""


def tail_of(path: Path, nbytes: int = HEAD) -> bytes:
    """Return how a regular file ends."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - nbytes))
        return file.read(nbytes)


def json_object(text: bytes | str) -> JsonObject:
    """Return the object that JSON text holds; an empty one where it holds none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
