"""Files of rows in object stores: listed, opened as streams of ranges, and checked for being those that were listed.

At a URL only ``ingest`` reads files of rows. Their bytes have no checksum of ours. An object that is replaced while it is read is noticed by
its ETag.
"""

from __future__ import annotations

import fnmatch
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from streamsvm.errors import DataError, MissingError, UsageError, quote
from streamsvm.input_files import WEB, find_url, open_regular, split_url
from streamsvm.objects import ObjectFacts, find_object, is_object, list_objects, object_facts, read_range
from streamsvm.store.foreign import MANIFEST

TEXT_BLOCK = 4 << 20
"""Bytes of a request for text, which is read from start to end."""
SMALL_READ = 256 << 10
"""Bytes of the request for a shorter read at any place; longer ones are requests of their own."""
_facts: dict[str, ObjectFacts] = {}
"""Size and ETag of each object when ``list_url`` found it."""


def list_url(url: str) -> list[str]:
    """Return the URLs of the objects that a URL names: itself, the objects below it, or those that match its pattern.

    Raises MissingError; UsageError for a store; DataError for partitioned tables.
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
        _refuse_partitions(url, [one.url.removeprefix(f"{url}/") for one in listed])
        names = {one.url: one.url.removeprefix(f"{url}/") for one in listed}
        found = [one for one in listed if "/" not in names[one.url] and not names[one.url].startswith((".", "_"))]
    if not found:
        raise MissingError(
            f"nothing is called {quote(url)}", hint="check the pattern, and the bucket with the program of the service"
        )
    _facts.update({one.url: ObjectFacts(one.size, one.etag) for one in found})
    return [one.url for one in found]


def _refuse_listing(url: str) -> None:
    """Raise UsageError for a folder or pattern at a web server, which does not list its files."""
    if _is_on_web(url):
        raise UsageError(f"a web server does not list what is at {url}", hint="name the files one by one")


def _is_on_web(url: str) -> bool:
    return url.partition(":")[0] in WEB


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


def refuse_remote_lakes(urls: Iterable[str]) -> None:
    """Raise DataError E-FORMAT if a folder above one of these objects is a Delta, Iceberg or Hudi table."""
    folders: dict[str, None] = {}
    for parent in dict.fromkeys(url.rpartition("/")[0] for url in urls if not _is_on_web(url)):
        root, folder = split_url(parent)
        above = folder.split("/") if folder else []
        folders |= dict.fromkeys("/".join([root, *above[:depth]]) for depth in range(len(above), -1, -1))
    for place in folders:
        kinds = {"Delta": "_delta_log", "Hudi": ".hoodie"}
        kind = next((kind for kind, log in kinds.items() if list_objects(f"{place}/{log}")), None)
        if kind is None and any(one.url.endswith(".metadata.json") for one in list_objects(f"{place}/metadata")):
            kind = "Iceberg"
        if kind is not None:
            raise DataError(
                f"{place} is a{'n' if kind == 'Iceberg' else ''} {kind} table: its files also hold rows that were deleted or replaced",
                code="E-FORMAT",
                hint="write its current snapshot to Parquet and ingest that",
            )


def _refuse_partitions(url: str, names: list[str]) -> None:
    """Raise DataError E-SCHEMA if one of the folders below a URL has a name such as 'year=2020'."""
    keys = [name.partition("=")[0] for name in names if "=" in name.partition("/")[0] and "/" in name]
    if keys:
        raise DataError(
            f"{url} is a table in partitions: {quote(keys[0])} is in the names of folders, not in the files",
            code="E-SCHEMA",
            hint="write the table into files that have it, or read the folders one by one",
        )


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
