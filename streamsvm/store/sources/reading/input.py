"""The content of one file as a stream of bytes: decompressed, hashed as it lies on disk, checked for its end."""

from __future__ import annotations

import hashlib
import lzma
import zlib
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any, Self

from streamsvm.errors import DataError, MissingError, StorageError, quote
from streamsvm.regular import open_regular
from streamsvm.store.sources.reading.decompression import FORMATS, PIECE, XZ_MEMORY, Decompressor, compression_of

CORRUPT = "get the file again: its compressed data is damaged"
CUT = "the file was cut short: get it again, and compare its size with the original's"


class Input:
    """The content of one file as a stream of bytes, and the sha256 of the file once it was read to its end.

    Raises MissingError, StorageError, and DataError E-TRUNCATED or E-CRC when compressed data end early or are damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self.position = 0
        """Bytes of content handed out."""
        self.closed = False
        self._hash = hashlib.sha256()
        self._raw = _open(path)
        self.size = path.stat().st_size
        head = self._pull(PIECE)
        self.compression = compression_of(head)
        self._make = FORMATS[self.compression][1] if self.compression else None
        self._inner: Decompressor | None = self._make() if self._make else None
        self._waiting = head
        self.members = 1
        """Compressed streams met in the file, one after the other."""
        self.mixed_line_ends = False
        """Whether some lines end with LF and some with CRLF, as far as it was read."""
        self._carriage = False
        """Whether the first lines end with CRLF."""

    @property
    def sha256(self) -> str:
        """The sha256 of the bytes read from disk so far, as hex digits."""
        return self._hash.hexdigest()

    @property
    def disk_position(self) -> int:
        """Bytes read from disk so far."""
        return self._raw.tell()

    def read(self, size: int = -1) -> bytes:
        """Return the next ``size`` bytes of content, fewer only at the end."""
        made: list[bytes] = []
        wanted = size if size >= 0 else 1 << 62
        while wanted > 0 and (piece := self._step(min(wanted, PIECE))):
            made.append(piece)
            wanted -= len(piece)
        content = b"".join(made)
        self.position += len(content)
        if content:
            self._look_at_lines(content)
        return content

    def _look_at_lines(self, content: bytes) -> None:
        if self.position == len(content):
            self._carriage = b"\r\n" in content
        if self._carriage:
            self.mixed_line_ends |= content.count(b"\n", 1) > content.count(b"\r\n")
        elif b"\r" in content:
            self.mixed_line_ends |= b"\r\n" in content

    def readable(self) -> bool:
        """Return True: it is a stream for reading."""
        return True

    def close(self) -> None:
        """Close the file."""
        self.closed = True
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _step(self, limit: int) -> bytes:
        return self._plain(limit) if self._inner is None else self._decompressed(limit)

    def _plain(self, limit: int) -> bytes:
        if not self._waiting:
            return self._pull(limit)
        content, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return content

    def _decompressed(self, limit: int) -> bytes:
        while True:
            assert self._inner is not None
            if self._inner.eof and not self._next_member():
                return b""
            if self._inner.needs_input and not self._waiting:
                self._waiting = self._pull(PIECE)
                if not self._waiting:
                    raise DataError(
                        f"{self.name} ends inside its {self.compression} data", code="E-TRUNCATED", hint=CUT
                    )
            data, self._waiting = self._waiting, b""
            if content := self._decompress(data, limit):
                return content

    def _decompress(self, data: bytes, limit: int) -> bytes:
        assert self._inner is not None
        try:
            return self._inner.decompress(data, limit)
        except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
            raise self._damaged(error) from error
        except Exception as error:
            if type(error).__name__ != "ZstdError":
                raise
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> DataError:
        if "memory" in str(error).lower():
            limit = f"needs more than {XZ_MEMORY >> 20} MiB to decompress"
            return DataError(f"{self.name} {limit}", code="E-LIMIT", hint="compress it again with a smaller dictionary")
        where = f"near byte {self.disk_position} of {self.size}"
        return DataError(f"{self.name} is damaged {where}: {quote(str(error))}", code="E-CRC", hint=CORRUPT)

    def _next_member(self) -> bool:
        """Begin the next compressed stream of the file; False at its end. Zeros after a stream are padding."""
        assert self._inner is not None
        rest = self._inner.unused_data + self._waiting
        while not rest.strip(b"\0"):
            rest = self._pull(PIECE)
            if not rest:
                return False
        if self.compression != compression_of(rest.lstrip(b"\0")):
            what = f"{self.name} has bytes after its {self.compression} data that are none"
            raise DataError(what, code="E-TRUNCATED", hint=CUT)
        self.members += 1
        self._inner, self._waiting = self._make(), rest.lstrip(b"\0")  # type: ignore[misc]
        return True

    def _pull(self, size: int) -> bytes:
        try:
            data = self._raw.read(size)
        except OSError as error:
            raise StorageError(f"reading {self.name} failed: {error.strerror}", hint="check the disk") from error
        self._hash.update(data)
        return data


def _open(path: Path) -> Any:
    try:
        return open(open_regular(path, follow=True), "rb", buffering=0)
    except FileNotFoundError as error:
        raise MissingError(f"{path} does not exist", hint="check the name and the directory") from error
    except OSError as error:
        raise StorageError(f"opening {path} failed: {error.strerror}", hint="check the path and its rights") from error


def digest_of(path: Path, unwanted: Event | None = None) -> str:
    """Return the sha256 of a file that is not read forward; what comes of it once it is ``unwanted`` is of no use.
    Raises MissingError, StorageError.
    """
    found, piece = hashlib.sha256(), memoryview(bytearray(PIECE))
    with _open(path) as raw:
        try:
            while (unwanted is None or not unwanted.is_set()) and (got := raw.readinto(piece)):
                found.update(piece[:got])
            return found.hexdigest()
        except OSError as error:
            raise StorageError(f"reading {path} failed: {error.strerror}", hint="check the disk") from error
