"""Which format files have, by their first bytes; names decide only between kinds of text."""

from __future__ import annotations

import re
from pathlib import Path

from streamsvm.errors import DataError
from streamsvm.store.foreign import foreign_format
from streamsvm.store.sources.array.stream import is_idx
from streamsvm.store.sources.reading.input import Input
from streamsvm.store.sources.reading.lines import check_encoding

HEAD = 1 << 16
MAGIC = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"PK\x03\x04": "npz"}
UNREADABLE = {b"ARROW1": "Arrow IPC", b"\x80\x04": "a pickle", b"MATLAB 5.0": "MATLAB before v7.3", b"<": "markup"}
NAMES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".svmlight": "svmlight",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
JSON_ARRAY = re.compile(rb"\s*\[\s*[\[{\]]")
ENTRIES = re.compile(rb"[^\s,;]+(\s+[^\s:,;]+:[^\s:,;]*)+\s*(#.*)?")


def detect(paths: tuple[Path, ...]) -> str:
    """Return the format all files share. Raises DataError E-FORMAT when they differ or it is none that is read."""
    found = {path: _format_of(path) for path in paths}
    first = found[paths[0]]
    for path, name in found.items():
        if name != first:
            differ = f"{paths[0]} looks like {first}, {path} like {name}"
            raise DataError(differ, code="E-FORMAT", hint="ingest files of one format, or pass --format")
    return first


def binary_format(path: Path) -> str | None:
    """Return the format of what is not text; None for text and for what nobody knows."""
    return "zarr" if path.is_dir() else _format_by(_head(path), path)


def table_form(path: Path) -> str:
    """Return the format of a file that may be a table: 'csv' for text that is no JSON, else as ``binary_format``."""
    form = binary_format(path)
    if form is not None:
        return form
    return "jsonl" if _named(path) == "jsonl" or _head(path).lstrip().startswith(b"{") else "csv"


def _head(path: Path) -> bytes:
    with Input(path) as stream:
        return stream.read(HEAD)


def _format_by(head: bytes, path: Path) -> str | None:
    found = next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)
    return found or ("idx" if is_idx(head) else None) or foreign_format(path)


def _format_of(path: Path) -> str:
    if path.is_dir():
        return "zarr"
    head = _head(path)
    if found := _format_by(head, path):
        return found
    for magic, name in UNREADABLE.items():
        if head.startswith(magic):
            raise DataError(f"{path} looks like {name}", code="E-FORMAT", hint="convert it, or pass --format")
    if JSON_ARRAY.match(head):
        hint = f"write one object a line: jq -c '.[]' {path.name} > rows.jsonl"
        raise DataError(f"{path} looks like a JSON array", code="E-FORMAT", hint=hint)
    if not head:
        raise DataError(f"{path} is empty", code="E-EMPTY", hint="check that it is the right file")
    return _named(path) or _kind_of_text(check_encoding(str(path), head))


def _named(path: Path) -> str | None:
    return next((NAMES[s.lower()] for s in reversed(path.suffixes) if s.lower() in NAMES), None)


def _kind_of_text(head: bytes) -> str:
    """JSON lines when the first line begins an object, svmlight when the first line that is no comment is a label and
    'index:value' entries, else CSV.
    """
    if head.lstrip().startswith(b"{"):
        return "jsonl"
    lines = (line for line in head.splitlines() if line.strip() and not line.lstrip().startswith(b"#"))
    line = next(lines, b"")
    return "svmlight" if ENTRIES.fullmatch(line.strip()) or not line else "csv"
