"""Decompressors of one interface, by the first bytes of a file: gzip, bzip2, xz, Zstandard."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any, Protocol

PIECE = 1 << 18
"""Bytes read from disk at a time, and the most one step of decompression makes of them."""
ZSTD_PIECE = 512
"""Bytes given to zstd at a time. It cannot be told how much to make, and a bomb turns 4 bytes into 128 KiB, so that
this bounds a step at 16 MiB."""
XZ_MEMORY = 192 << 20
"""The most memory xz may ask for, in bytes: its largest dictionary needs 65 MiB (xz -9)."""


class Decompressor(Protocol):
    """Turns compressed bytes into content, step by step: the interface of bz2 and lzma, to which the others are
    brought.
    """

    eof: bool
    """Whether the end of the compressed data was met."""
    needs_input: bool
    """Whether nothing more can be made without more data."""
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
    """One Zstandard frame, fed in small pieces; what a piece made beyond the limit is kept for the next call."""

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
    """Return the name of the compression of a file with these first bytes; empty for none."""
    return next((name for name, (magic, _) in FORMATS.items() if head.startswith(magic)), "")
