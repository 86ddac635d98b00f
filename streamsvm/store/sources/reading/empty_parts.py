"""Parts of a table without rows, which programs that write in parts leave behind: they are passed over and counted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from streamsvm.store.sources.reading.detect import table_form
from streamsvm.store.sources.reading.input import Input
from streamsvm.store.sources.reading.lines import BYTE_ORDER_MARK

LARGEST = 4 << 20
"""Bytes on disk, and of content, of a file that may be without rows: those of its header, or of a footer."""
PARQUET = b"PAR1"
PIECE = 1 << 16


def with_rows(files: Sequence[Path], form: str) -> tuple[Path, ...]:
    """Return the files that hold rows; all of them where none does. ``form``: their format, or 'auto'.

    Empty text, a Parquet file of 0 rows, and a CSV file of nothing but the header that other files have as well, hold none.
    Raises what ``Input`` does.
    """
    if len(files) == 1:
        return tuple(files)
    empty: set[Path] = set()
    lines: dict[Path, bytes] = {}
    for file in files:
        content = _single_line(file) if file.is_file() and file.stat().st_size <= LARGEST else None
        if content == b"" or (content is None and _is_empty_parquet(file)):
            empty.add(file)
        elif content is not None:
            lines[file] = content
    others = [file for file in files if file not in empty and file not in lines]
    if lines and others and form in ("auto", "csv") and table_form(others[0]) == "csv":
        header = _names(_first_line(others[0]))
        empty |= {file for file, line in lines.items() if _names(line) == header}
    return tuple(file for file in files if file not in empty) or tuple(files)


def _single_line(path: Path) -> bytes | None:
    """The only line of a small text file, empty where it has none; None where there are more, or it is no text."""
    found = b""
    with Input(path) as stream:
        while piece := stream.read(PIECE):
            found = (found + piece).removeprefix(BYTE_ORDER_MARK).lstrip()
            if b"\n" in found.strip() or len(found) > LARGEST or found.startswith(PARQUET):
                return None
    return found.strip()


def _first_line(path: Path) -> bytes:
    with Input(path) as stream:
        head = stream.read(LARGEST).removeprefix(BYTE_ORDER_MARK)
    return head.lstrip().partition(b"\n")[0].strip()


def _names(line: bytes) -> list[bytes]:
    """The names of a header in any order, whatever is between them."""
    return sorted(name.strip(b' "') for name in re.split(rb"[,;|\t]", line))


def _is_empty_parquet(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size > LARGEST:
        return False
    with Input(path) as stream:
        if stream.read(len(PARQUET)) != PARQUET:
            return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return bool(pq.read_metadata(path).num_rows == 0)
    except (OSError, pa.ArrowException):  # it is raised again when the file is read
        return False
