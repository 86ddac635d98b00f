"""Files as streams of bytes, and text as blocks of whole lines.

``Input`` decompresses a file (gzip, bzip2, xz, Zstandard, told by its first bytes), hashes it as it lies on disk and
checks that it is complete. ``standard_input`` keeps standard input in a file, because a source is read more than once.
"""

from __future__ import annotations

import bz2
import hashlib
import lzma
import sys
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from streamsvm.durable import PARTIAL, write_stream
from streamsvm.errors import DataError, MissingError, StorageError, UsageError, quote
from streamsvm.input_files import open_regular
from streamsvm.locks import scratch_beside

PIECE = 1 << 18
"""Bytes read from disk at a time, and the most one step of decompression makes of them."""
ZSTD_PIECE = 512
"""Bytes given to zstd at a time. It cannot be told how much to make, and a bomb turns 4 bytes into 128 KiB, so that
this bounds a step at 16 MiB."""
XZ_MEMORY = 192 << 20
"""The most memory xz may ask for, in bytes: its largest dictionary needs 65 MiB (xz -9)."""


class Decompressor(Protocol):
    """Decompresses step by step; this is the interface of bz2 and lzma, which ``_Gzip`` and ``_Zstd`` adapt to."""

    eof: bool
    needs_input: bool
    unused_data: bytes
    """What came after the end of the compressed data."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return at most ``max_length`` bytes of content; what does not fit is returned by the next call."""
        ...


class _Gzip:
    """One gzip member."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class _Zstd:
    """One Zstandard frame, fed in small pieces; content beyond the limit is kept for the next call."""

    def __init__(self) -> None:
        import zstandard

        self._inner = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        self._waiting = b""
        self._made = b""

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof) and not self._made

    @property
    def needs_input(self) -> bool:
        return not self._waiting and not self._made

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data) + self._waiting

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._waiting += data
        made, length = [self._made], len(self._made)
        while length < max_length and self._waiting and not self._inner.eof:
            made.append(self._inner.decompress(self._waiting[:ZSTD_PIECE]))
            self._waiting = self._waiting[ZSTD_PIECE:]
            length += len(made[-1])
        content = b"".join(made)
        self._made = content[max_length:]
        return content[:max_length]


FORMATS: dict[str, tuple[bytes, Any]] = {
    "gzip": (b"\x1f\x8b", _Gzip),
    "bzip2": (b"BZh", bz2.BZ2Decompressor),
    "xz": (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)),
    "zstd": (b"\x28\xb5\x2f\xfd", _Zstd),
}


def compression_of(head: bytes) -> str:
    """Return the name of the compression that the first bytes of a file show; empty for none."""
    return next((name for name, (magic, _) in FORMATS.items() if head.startswith(magic)), "")


HINT_CORRUPT = "get the file again: its compressed data is damaged"
HINT_CUT = "the file was cut short: get it again, and compare its size with the original's"


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
        self._raw = _open_raw(path)
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
        while wanted > 0 and (piece := self.read_piece(min(wanted, PIECE))):
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

    def read_piece(self, limit: int) -> bytes:
        return self._read_plain(limit) if self._inner is None else self._read_decompressed(limit)

    def _read_plain(self, limit: int) -> bytes:
        if not self._waiting:
            return self._pull(limit)
        content, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return content

    def _read_decompressed(self, limit: int) -> bytes:
        while True:
            assert self._inner is not None
            if self._inner.eof and not self._next_member():
                return b""
            if self._inner.needs_input and not self._waiting:
                self._waiting = self._pull(PIECE)
                if not self._waiting:
                    raise DataError(
                        f"{self.name} ends inside its {self.compression} data", code="E-TRUNCATED", hint=HINT_CUT
                    )
            data, self._waiting = self._waiting, b""
            if content := self._decompress(data, limit):
                return content

    def _decompress(self, data: bytes, limit: int) -> bytes:
        assert self._inner is not None
        try:
            return self._inner.decompress(data, limit)
        except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
            raise self._damage_error(error) from error
        except Exception as error:
            if type(error).__name__ != "ZstdError":
                raise
            raise self._damage_error(error) from error

    def _damage_error(self, error: Exception) -> DataError:
        if "memory" in str(error).lower():
            limit = f"needs more than {XZ_MEMORY >> 20} MiB to decompress"
            return DataError(f"{self.name} {limit}", code="E-LIMIT", hint="compress it again with a smaller dictionary")
        where = f"near byte {self.disk_position} of {self.size}"
        return DataError(f"{self.name} is damaged {where}: {quote(str(error))}", code="E-CRC", hint=HINT_CORRUPT)

    def _next_member(self) -> bool:
        """Begin the next compressed stream of the file; False at its end. Zeros after a stream are padding."""
        assert self._inner is not None
        rest = self._inner.unused_data + self._waiting
        while not rest.strip(b"\0"):
            rest = self._pull(PIECE)
            if not rest:
                return False
        if self.compression != compression_of(rest.lstrip(b"\0")):
            what = f"{self.name} has bytes after its {self.compression} data that do not belong to it"
            raise DataError(what, code="E-TRUNCATED", hint=HINT_CUT)
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


def _open_raw(path: Path) -> Any:
    try:
        return open(open_regular(path, follow=True), "rb", buffering=0)
    except FileNotFoundError as error:
        raise MissingError(f"{path} does not exist", hint="check the name and the directory") from error
    except OSError as error:
        raise StorageError(f"opening {path} failed: {error.strerror}", hint="check the path and its rights") from error


def digest_of(path: Path, unwanted: Event | None = None) -> str:
    """Return the sha256 of a file as hex digits, or of part of it where ``unwanted`` is set meanwhile. Raises
    MissingError, StorageError.
    """
    found, piece = hashlib.sha256(), memoryview(bytearray(PIECE))
    with _open_raw(path) as raw:
        try:
            while (unwanted is None or not unwanted.is_set()) and (got := raw.readinto(piece)):
                found.update(piece[:got])
            return found.hexdigest()
        except OSError as error:
            raise StorageError(f"reading {path} failed: {error.strerror}", hint="check the disk") from error


STANDARD_INPUT = "-"
"""The name that stands for standard input among sources."""
STANDARD_INPUT_FILE = "standard-input"
"""The file that standard input is kept in; messages name it."""
COPY_BYTES = 1 << 20
"""Bytes that are copied at a time."""


def source_name(name: str) -> str:
    """Return the name that a source is recorded by: 'standard input' for the file that it was kept in."""
    path = Path(name)
    return "standard input" if path.name == STANDARD_INPUT_FILE and path.parent.name.endswith(PARTIAL) else name


@contextmanager
def standard_input(names: Sequence[Path | str], beside: Path, *, cluster: bool) -> Iterator[tuple[str, ...]]:
    """Copy standard input to a file beside an output, and give the names with "-" replaced by that file until the
    context ends.

    Raises UsageError before a byte is taken for a terminal, for "-" twice and where a ``cluster`` would have to see the
    file; StorageError when there is no room for it.
    """
    if STANDARD_INPUT not in map(str, names):
        yield tuple(map(str, names))
        return
    _check_standard_input(names, cluster=cluster)
    with scratch_beside(beside) as directory:
        file = directory / STANDARD_INPUT_FILE
        write_stream(file, iter(partial(sys.stdin.buffer.read, COPY_BYTES), b""))
        yield tuple(str(file) if str(name) == STANDARD_INPUT else str(name) for name in names)


def _check_standard_input(names: Sequence[Path | str], *, cluster: bool) -> None:
    if cluster:
        hint = "write it to a file that they can read, or leave out --cluster"
        raise UsageError("the workers of a cluster cannot read standard input", hint=hint)
    if list(map(str, names)).count(STANDARD_INPUT) > 1:
        raise UsageError("standard input, -, is named twice, and can be read once", hint="name it once")
    if sys.stdin is None or sys.stdin.isatty():
        hint = "pipe rows in, as in 'zcat FILE | streamsvm ... -', or name a file"
        raise UsageError("- is standard input, and that is a terminal", hint=hint)


BLOCK = 1 << 20
"""Bytes read at a time. A batch of rows is a few times that, and stays in the processor's cache while it is parsed."""
LINE_LIMIT = 64 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
MIXED_LINE_ENDS = "files whose lines end with LF and with CRLF"
SEVERAL_MEMBERS = (
    "compressed files of several parts: a missing last part could not be noticed; compare with --expect-rows"
)
HINT_NO_NEWLINE = "compare the file's size with the original's; if it is complete, pass --allow-no-final-newline"


def check_encoding(name: str, head: bytes) -> bytes:
    """Return the first bytes without a UTF-8 byte order mark. Raises DataError E-ENCODING for UTF-16."""
    if head.startswith(UTF16_MARKS):
        raise DataError(f"{name} is UTF-16 text", code="E-ENCODING", hint="convert it: iconv -f UTF-16 -t UTF-8")
    return head.removeprefix(BYTE_ORDER_MARK)


def check_line_length(name: str, length: int) -> None:
    """Raise DataError E-LIMIT for a line that is too long to be one."""
    if length > LINE_LIMIT:
        found = f"{name} has a line of more than {LINE_LIMIT >> 20} MiB"
        raise DataError(found, code="E-LIMIT", hint="check that the file is text and its lines end with a line feed")


def line_blocks(stream: Input, block: int = BLOCK, *, allow_no_final_newline: bool = False) -> Generator[bytes]:
    """Yield blocks of whole lines of about ``block`` bytes; each ends with a line feed. Raises DataError."""
    pieces: list[bytes] = []
    length = 0
    while piece := stream.read(block):
        if stream.position == len(piece):
            piece = check_encoding(stream.name, piece)
        end = piece.rfind(b"\n") + 1
        if end:
            yield b"".join((*pieces, piece[:end])) if pieces else piece[:end]
            pieces, length = [], 0
        pieces.append(piece[end:])
        length += len(piece) - end
        check_line_length(stream.name, length)
    if rest := b"".join(pieces):
        yield _last_line(stream.name, rest, allow_no_final_newline)


def whole_rows(blocks: Generator[bytes], name: str) -> Generator[bytes]:
    """Yield blocks of whole lines as blocks of whole rows, where a value in quotes may hold line feeds.

    A block ends between two rows if it has as many opening quotes as closing ones: quotes inside of a value are
    doubled. Raises DataError E-LIMIT when the quotes never close.
    """
    rest, inside = [b""], False
    with closing(blocks):
        for block in blocks:
            rest.append(block)
            quotes = block.count(b'"')
            inside ^= bool(quotes % 2)
            if not inside or quotes:
                content = b"".join(rest)
                end = end_of_last_row(content) if inside else len(content)
                if end:
                    yield content[:end]
                rest = [content[end:]]
            check_line_length(name, sum(map(len, rest)))
    if any(rest):
        yield b"".join(rest)


def end_of_last_row(content: bytes) -> int:
    """Return where the last row of text ends: after the last line feed outside quotes; 0 where there is none."""
    if content.count(b'"') % 2 == 0 and content.endswith(b"\n"):
        return len(content)
    text = np.frombuffer(content, np.uint8)
    quotes, ends = np.flatnonzero(text == ord('"')), np.flatnonzero(text == ord("\n"))
    outside = ends[np.searchsorted(quotes, ends) % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0


def _last_line(name: str, rest: bytes, allowed: bool) -> bytes:
    if b"\r" in rest.rstrip(b"\r"):
        hint = "convert the line ends: tr '\\r' '\\n'"
        raise DataError(f"the lines of {name} end with CR alone (old Mac line ends)", code="E-PARSE", hint=hint)
    if not allowed:
        raise DataError(f"the last line of {name} has no line feed", code="E-TRUNCATED", hint=HINT_NO_NEWLINE)
    return rest + b"\n"


def oddities_of(stream: Input) -> tuple[str, ...]:
    """Return notices about the form of a file that was read to its end."""
    oddities = {MIXED_LINE_ENDS: stream.mixed_line_ends, SEVERAL_MEMBERS: stream.members > 1}
    return tuple(what for what, is_so in oddities.items() if is_so)
