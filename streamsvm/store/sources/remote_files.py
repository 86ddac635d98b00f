"""Files of rows in object stores: listed, opened as streams of ranges, and checked for being those that were listed.

At a URL only ``ingest`` reads files of rows. Their bytes have no checksum of ours. An object that is replaced while it is read is noticed by
its ETag.
"""

from __future__ import annotations

import fnmatch
import io
from pathlib import Path
from typing import Any, BinaryIO

from streamsvm.errors import MissingError, UsageError, quote
from streamsvm.input_files import WEB, find_url, open_regular, split_url
from streamsvm.object_store import ObjectFacts, find_object, is_object, list_objects, object_facts, read_range
from streamsvm.store.foreign import MANIFEST
from streamsvm.store.sources.lakes import refuse_tables_in_listing
from streamsvm.store.sources.partitions import is_partition

TEXT_BLOCK = 4 << 20
"""Bytes of a request for text, which is read from start to end."""
SMALL_READ = 256 << 10
"""Bytes of the request for a shorter read at any place; longer ones are requests of their own."""
_facts: dict[str, ObjectFacts] = {}
"""Size and ETag of each object when ``list_url`` found it."""


def list_url(url: str) -> list[str]:
    """Return the URLs of the objects that a URL names: itself, the objects below it, or those that match its pattern.

    Below a URL with partitions (``year=2024``) lie all objects of a table, else only those that are in no further folder. Raises
    MissingError; UsageError for a store; DataError for files of data lakes below it.
    """
    root, key = split_url(url)
    pattern = any(sign in key for sign in "*?[")
    if pattern:
        fixed = key[: min(key.index(sign) for sign in "*?[" if sign in key)]
        folder = fixed.rpartition("/")[0]
        _refuse_listing(url)
        listed = list_objects(f"{root}/{folder}")
        found = [one for one in listed if _matches(split_url(one.url)[1], key)]
    elif (facts := find_object(url)) is not None:
        _facts[url] = facts
        return [url]
    else:
        _refuse_listing(url)
        if is_object(f"{url}/{MANIFEST}"):
            raise UsageError(f"{url} is a store already", hint="name the files it was made of")
        listed = list_objects(url)
        names = [one.url.removeprefix(f"{url}/").split("/") for one in listed]
        has_partitions = any(len(name) > 1 and is_partition(name[0]) for name in names)
        found = [
            one
            for one, name in zip(listed, names, strict=True)
            if (has_partitions or len(name) == 1) and not any(part.startswith((".", "_")) for part in name)
        ]
    if not found:
        raise MissingError(
            f"nothing is called {quote(url)}", hint="check the pattern, and the bucket with the program of the service"
        )
    refuse_tables_in_listing((one.url for one in listed), (one.url for one in found))
    _facts.update({one.url: ObjectFacts(one.size, one.etag) for one in found})
    return [one.url for one in found]


def _refuse_listing(url: str) -> None:
    """Raise UsageError for a folder or pattern at a web server, which does not list its files."""
    if url.partition(":")[0] in WEB:
        raise UsageError(f"a web server does not list what is at {url}", hint="name the files one by one")


def _matches(key: str, pattern: str) -> bool:
    """Return whether a key matches a pattern folder by folder; '**' stands for any number of folders."""
    names, parts = key.split("/"), pattern.split("/")

    def match(names: list[str], parts: list[str]) -> bool:
        if not parts:
            return not names
        if parts[0] == "**":
            return any(match(names[skipped:], parts[1:]) for skipped in range(len(names) + 1))
        return bool(names) and fnmatch.fnmatchcase(names[0], parts[0]) and match(names[1:], parts[1:])

    return match(names, parts)


def is_there_at(url: str) -> bool:
    """Return whether a URL is that of an object, of a folder with objects, or a pattern."""
    if any(sign in url for sign in "*?[") or is_object(url):
        return True
    return url.partition(":")[0] not in WEB and bool(list_objects(url))


def file_facts(url: str) -> ObjectFacts:
    """Return the size and ETag of an object, as they were when it was listed."""
    if url not in _facts:
        _facts[url] = object_facts(url)
    return _facts[url]


def is_file_or_object(path: Path) -> bool:
    """Return whether a path is a file, or the URL of an object."""
    return find_url(path) is not None or path.is_file()


def file_size(path: Path) -> int:
    """Return the bytes of a file or object. Raises OSError, MissingError, StorageError."""
    url = find_url(path)
    return path.stat().st_size if url is None else file_facts(url).size


def open_stream(path: Path) -> Any:
    """Open a file or object for reading from start to end. Raises OSError, MissingError, DataError, StorageError."""
    url = find_url(path)
    if url is None:
        return open(open_regular(path, follow=True), "rb", buffering=0)
    return ObjectFile(url, TEXT_BLOCK)


def open_ranges(path: Path) -> Path | BinaryIO:
    """Return a file, or an open object, as pyarrow takes it, which reads ranges of it."""
    url = find_url(path)
    return path if url is None else ObjectFile(url, SMALL_READ)  # type: ignore[return-value]


class ObjectFile(io.RawIOBase):
    """An object as a file that is read at any place, with one block of it in memory."""

    def __init__(self, url: str, block_bytes: int) -> None:
        """``block_bytes``: bytes of a request for a short read; reads of more bytes are requests of their own."""
        self._url, self._facts, self._block_bytes = url, file_facts(url), block_bytes
        self._position, self._start, self._block = 0, 0, bytearray()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to another place, and return it."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._facts.size}[whence]
        return self._position

    def readinto(self, into: Any) -> int:
        """Fill a buffer, unless the object ends before, and return the bytes. Raises DataError, MissingError, StorageError."""
        view = memoryview(into).cast("B")
        view = view[: max(0, self._facts.size - self._position)]
        if len(view) > self._block_bytes:
            self._read(self._position, view)
            self._position += len(view)
            return len(view)
        done = 0
        while done < len(view):
            if not self._start <= self._position < self._start + len(self._block):
                block = bytearray(min(self._block_bytes, self._facts.size - self._position))
                self._read(self._position, memoryview(block))
                self._start, self._block = self._position, block
            piece = self._block[self._position - self._start :][: len(view) - done]
            view[done : done + len(piece)] = piece
            done += len(piece)
            self._position += len(piece)
        return done

    def _read(self, offset: int, into: memoryview) -> None:
        read_range(self._url, offset, into, self._facts.size, self._facts.etag)
