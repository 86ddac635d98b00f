"""Files as streams of bytes, and text as blocks of whole lines.

``Input`` decompresses a file (gzip, bzip2, xz or Zstandard, detected by the first bytes), computes the sha256 of the
bytes on disk, and checks that the compressed data are complete. ``standard_input`` copies standard input to a file,
because a source is read more than once.
"""

from __future__ import annotations

import bz2
import codecs
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

from streamsvm.durable import PARTIAL, scratch_beside, write_stream
from streamsvm.errors import DataError, MissingError, StorageError, UsageError, quote
from streamsvm.input_files import find_url
from streamsvm.store.sources.remote_files import file_size, open_stream

PIECE = 1 << 18
"""Bytes read from disk at a time, and the most bytes that one step of decompression returns."""
ZSTD_PIECE = 512
"""Bytes given to zstd at a time. Its output cannot be limited, and a decompression bomb expands 4 bytes to 128 KiB, so
that this bounds a step at 16 MiB."""
XZ_MEMORY = 192 << 20
"""The most bytes of memory that xz may allocate; its largest dictionary takes 65 MiB (xz -9)."""


class Decompressor(Protocol):
    """Decompresses in steps; the interface is that of bz2 and lzma, to which ``_Gzip`` and ``_Zstd`` adapt."""

    eof: bool
    needs_input: bool
    unused_data: bytes
    """The bytes after the end of the compressed data."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return at most ``max_length`` bytes of content; the next call returns the bytes that exceed it."""
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
    """One Zstandard frame, decompressed in small pieces; content beyond the limit is kept for the next call."""

    def __init__(self) -> None:
        import zstandard

        self._inner = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        self._pending_input = b""
        self._pending_output = b""

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof) and not self._pending_output

    @property
    def needs_input(self) -> bool:
        return not self._pending_input and not self._pending_output

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data) + self._pending_input

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._pending_input += data
        pieces, length = [self._pending_output], len(self._pending_output)
        while length < max_length and self._pending_input and not self._inner.eof:
            pieces.append(self._inner.decompress(self._pending_input[:ZSTD_PIECE]))
            self._pending_input = self._pending_input[ZSTD_PIECE:]
            length += len(pieces[-1])
        content = b"".join(pieces)
        self._pending_output = content[max_length:]
        return content[:max_length]


FORMATS: dict[str, tuple[bytes, Any]] = {
    "gzip": (b"\x1f\x8b", _Gzip),
    "bzip2": (b"BZh", bz2.BZ2Decompressor),
    "xz": (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)),
    "zstd": (b"\x28\xb5\x2f\xfd", _Zstd),
}


def compression_of(head: bytes) -> str:
    """Return the name of the compression, detected by the first bytes of a file; empty for none."""
    return next((name for name, (magic, _) in FORMATS.items() if head.startswith(magic)), "")


HINT_CORRUPT = "get the file again: its compressed data is damaged"
HINT_CUT = "the file was cut short: get it again, and compare its size with the original's"


class Input:
    """The decompressed content of one file as a stream of bytes.

    Raises MissingError, StorageError, and DataError E-TRUNCATED or E-CRC if compressed data end early or are damaged.
    """

    def __init__(self, path: Path, charset: str | None = None) -> None:
        """``charset``: the encoding of text that is not UTF-8; ``read`` returns it as UTF-8."""
        self.path = path
        self.name = source_name(str(path))
        self.position = 0
        """Bytes of content returned so far."""
        self.closed = False
        self._decoder = None if charset is None else codecs.getincrementaldecoder(charset)()
        self._hash = hashlib.sha256()
        self._raw = _open_raw(path)
        self.size = file_size(path)
        head = self._pull(PIECE)
        self.compression = compression_of(head)
        self._new_decompressor = FORMATS[self.compression][1] if self.compression else None
        self._decompressor: Decompressor | None = self._new_decompressor() if self._new_decompressor else None
        self._pending = head
        self.members = 1
        """The number of compressed streams in the file so far; a file may hold several, one after the other."""
        self.mixed_line_ends = False
        """Whether some of the lines read so far end with LF and some with CRLF."""
        self._has_crlf = False
        """Whether some of the first lines end with CRLF."""

    @property
    def sha256(self) -> str:
        """The sha256 of the bytes read from disk so far, as hex digits; at the end, that of the file."""
        return self._hash.hexdigest()

    @property
    def disk_position(self) -> int:
        """Bytes read from disk so far."""
        return self._raw.tell()

    def read(self, size: int = -1) -> bytes:
        """Return the next ``size`` bytes of content, or fewer at the end; negative: all."""
        pieces: list[bytes] = []
        missing = size if size >= 0 else 1 << 62
        while missing > 0 and (piece := self.read_piece(min(missing, PIECE))):
            pieces.append(piece)
            missing -= len(piece)
        content = b"".join(pieces)
        if self._decoder is not None:
            content = self._to_utf8(content, final=not content)
            if pieces and not content:
                return self.read(size)  # nothing of it is a whole character yet
        self.position += len(content)
        if content:
            self._check_line_ends(content)
        return content

    def _to_utf8(self, content: bytes, *, final: bool) -> bytes:
        assert self._decoder is not None
        try:
            return self._decoder.decode(content, final).encode()
        except UnicodeError as error:
            message = f"{self.name} is not text in the encoding it is read in: {error}"
            raise DataError(
                message, code="E-ENCODING", hint="pass the one it was written in with --encoding"
            ) from error

    def _check_line_ends(self, content: bytes) -> None:
        """Set ``mixed_line_ends`` if the next piece of content shows it."""
        if self.position == len(content):
            self._has_crlf = b"\r\n" in content
        if self._has_crlf:
            self.mixed_line_ends |= content.count(b"\n", 1) > content.count(b"\r\n")
        elif b"\r" in content:
            self.mixed_line_ends |= b"\r\n" in content

    def readable(self) -> bool:
        """Return True."""
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
        """Return at least one and at most ``limit`` bytes of content; none at the end."""
        return self._read_plain(limit) if self._decompressor is None else self._read_decompressed(limit)

    def _read_plain(self, limit: int) -> bytes:
        if not self._pending:
            return self._pull(limit)
        content, self._pending = self._pending[:limit], self._pending[limit:]
        return content

    def _read_decompressed(self, limit: int) -> bytes:
        while True:
            assert self._decompressor is not None
            if self._decompressor.eof and not self._begin_next_member():
                return b""
            if self._decompressor.needs_input and not self._pending:
                self._pending = self._pull(PIECE)
                if not self._pending:
                    raise DataError(
                        f"{self.name} ends inside its {self.compression} data", code="E-TRUNCATED", hint=HINT_CUT
                    )
            data, self._pending = self._pending, b""
            if content := self._decompress(data, limit):
                return content

    def _decompress(self, data: bytes, limit: int) -> bytes:
        assert self._decompressor is not None
        try:
            return self._decompressor.decompress(data, limit)
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

    def _begin_next_member(self) -> bool:
        """Begin the next compressed stream of the file and return True; return False at the end of the file. Zeros
        after a stream are padding.
        """
        assert self._decompressor is not None
        rest = self._decompressor.unused_data + self._pending
        while not rest.strip(b"\0"):
            rest = self._pull(PIECE)
            if not rest:
                return False
        if self.compression != compression_of(rest.lstrip(b"\0")):
            message = f"{self.name} has bytes after its {self.compression} data that do not belong to it"
            raise DataError(message, code="E-TRUNCATED", hint=HINT_CUT)
        self.members += 1
        self._decompressor, self._pending = self._new_decompressor(), rest.lstrip(b"\0")  # type: ignore[misc]
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
        return open_stream(path)
    except FileNotFoundError as error:
        raise MissingError(f"{path} does not exist", hint="check the name and the directory") from error
    except OSError as error:
        raise StorageError(f"opening {path} failed: {error.strerror}", hint="check the path and its rights") from error


def digest_of(path: Path, unwanted: Event | None = None) -> str:
    """Return the sha256 of a file as hex digits. If ``unwanted`` is set meanwhile, reading stops, and the result is
    meaningless. Raises MissingError, StorageError.
    """
    sha256, piece = hashlib.sha256(), memoryview(bytearray(PIECE))
    with _open_raw(path) as raw:
        try:
            while (unwanted is None or not unwanted.is_set()) and (count := raw.readinto(piece)):
                sha256.update(piece[:count])
            return sha256.hexdigest()
        except OSError as error:
            raise StorageError(f"reading {path} failed: {error.strerror}", hint="check the disk") from error


STANDARD_INPUT = "-"
"""The name of standard input among sources."""
STANDARD_INPUT_FILE = "standard-input"
"""The name of the file to which standard input is copied; messages name it."""
COPY_BYTES = 1 << 20
"""Bytes that are copied at a time."""


def source_name(name: str) -> str:
    """Return the recorded name of a source: 'standard input' for the copy of standard input, else the path or URL."""
    if (url := find_url(name)) is not None:
        return url
    path = Path(name)
    return "standard input" if path.name == STANDARD_INPUT_FILE and path.parent.name.endswith(PARTIAL) else name


@contextmanager
def standard_input(names: Sequence[Path | str], beside: Path, *, cluster: bool) -> Iterator[tuple[str, ...]]:
    """Copy standard input to a file beside an output, and yield the names with "-" replaced by that file, which is
    removed when the context ends.

    Raises UsageError, before anything is read, if standard input is a terminal, if "-" is named twice, and if the
    workers of a ``cluster`` would have to read the file; StorageError if the disk is full.
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
"""Bytes of text read at a time, few enough that text and rows stay in the processor's cache during parsing."""
LINE_LIMIT = 64 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
CHARSET_HINT = "pass the encoding it was written in, perhaps --encoding latin-1 or cp1252"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
MIXED_LINE_ENDS = "files whose lines end with LF and with CRLF"
SEVERAL_MEMBERS = (
    "compressed files of several parts: a missing last part could not be noticed; compare with --expect-rows"
)
HINT_NO_NEWLINE = "compare the file's size with the original's; if it is complete, pass --allow-no-final-newline"


def check_encoding(name: str, head: bytes) -> bytes:
    """Return the first bytes without a UTF-8 byte order mark. Raises DataError E-ENCODING for UTF-16."""
    if head.startswith(UTF16_MARKS):
        form = "jsonl" if {".jsonl", ".ndjson"} & set(Path(name).suffixes) else "csv"
        raise DataError(f"{name} is UTF-16 text", code="E-ENCODING", hint=f"pass --encoding utf-16 --format {form}")
    return head.removeprefix(BYTE_ORDER_MARK)


def is_utf8(text: bytes) -> bool:
    """Return whether bytes are UTF-8 text."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def check_line_length(name: str, length: int) -> None:
    """Raise DataError E-LIMIT for a line of more than ``LINE_LIMIT`` bytes."""
    if length > LINE_LIMIT:
        message = f"{name} has a line of more than {LINE_LIMIT >> 20} MiB"
        raise DataError(message, code="E-LIMIT", hint="check that the file is text and its lines end with a line feed")


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
    """Yield blocks of whole lines as blocks of whole rows, whose values in quotes may hold line feeds.

    A block ends between two rows if its number of quotes is even, because quotes inside a value are doubled. Raises
    DataError E-LIMIT if a quote is never closed.
    """
    pieces, in_quotes = [b""], False
    with closing(blocks):
        for block in blocks:
            pieces.append(block)
            quotes = block.count(b'"')
            in_quotes ^= bool(quotes % 2)
            if not in_quotes or quotes:
                content = b"".join(pieces)
                end = end_of_last_row(content) if in_quotes else len(content)
                if end:
                    yield content[:end]
                pieces = [content[end:]]
            check_line_length(name, sum(map(len, pieces)))
    if any(pieces):
        yield b"".join(pieces)


def end_of_last_row(content: bytes) -> int:
    """Return the end of the last row of a text: after its last line feed outside quotes, 0 if there is none."""
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


def text_notices_of(stream: Input) -> tuple[str, ...]:
    """Return notices about the line ends and the compression of a file that was read to its end."""
    notices = {MIXED_LINE_ENDS: stream.mixed_line_ends, SEVERAL_MEMBERS: stream.members > 1}
    return tuple(notice for notice, applies in notices.items() if applies)
