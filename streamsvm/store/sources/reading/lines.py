"""Text files as blocks of whole lines."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import numpy as np

from streamsvm.errors import DataError
from streamsvm.store.sources.reading.input import Input

BLOCK = 1 << 20
"""Bytes read at a time. A batch of rows is a few times that, and stays in the processor's cache while it is parsed."""
LINE_LIMIT = 64 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
MIXED = "files whose lines end with LF and with CRLF"
MEMBERS = "compressed files of several parts: were the last one missing, nobody could tell; compare with --expect-rows"
NO_NEWLINE = "compare the file's size with the original's; if it is complete, pass --allow-no-final-newline"


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

    A block ends between two rows if it has as many opening quotes as closing ones: quotes inside of a value are doubled.
    Raises DataError E-LIMIT when the quotes never close.
    """
    rest, inside = [b""], False
    with closing(blocks):
        for block in blocks:
            rest.append(block)
            quotes = block.count(b'"')
            inside ^= bool(quotes % 2)
            if not inside or quotes:
                content = b"".join(rest)
                end = rows_end(content) if inside else len(content)
                if end:
                    yield content[:end]
                rest = [content[end:]]
            check_line_length(name, sum(map(len, rest)))
    if any(rest):
        yield b"".join(rest)


def rows_end(content: bytes) -> int:
    """Return where the last row of text ends: behind the last line feed that is in no quotes, 0 where there is none."""
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
        raise DataError(f"the last line of {name} has no line feed", code="E-TRUNCATED", hint=NO_NEWLINE)
    return rest + b"\n"


def note_form(stream: Input, notices: dict[str, int]) -> None:
    """Count in ``notices`` what was odd about a file that was read to its end."""
    if stream.mixed_line_ends:
        notices[MIXED] = notices.get(MIXED, 0) + 1
    if stream.members > 1:
        notices[MEMBERS] = notices.get(MEMBERS, 0) + 1
