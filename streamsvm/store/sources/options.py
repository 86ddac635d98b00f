"""How sources are to be read, and what is known of them afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from streamsvm.errors import UsageError
from streamsvm.types import Batch


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the user says about the files. An option a format has no use for is ignored by it."""

    format: str = "auto"
    """A name of ``SOURCES``, or 'auto': told from the first bytes."""
    label: str | None = None
    """Tables and arrays: 'first', 'last', 'none' or the name of a column."""
    labels: Path | None = None
    """npy: the file that holds the labels."""
    weight: str | None = None
    """Tables: the column of row weights."""
    drop: tuple[str, ...] = ()
    """Tables: columns to leave out."""
    categorical: tuple[str, ...] = ()
    """Tables: columns to encode one-hot; '*' stands for every column that holds text."""
    calendar: tuple[str, ...] = ()
    """Tables: columns of points in time, to encode as month, weekday and hour, each one-hot."""
    header: bool = True
    """CSV: whether the first line names the columns."""
    delimiter: str | None = None
    """CSV: one character; None looks at the first line."""
    index_base: int | None = None
    """svmlight: the index of the first column, 0 or 1; None looks at the first block."""
    features: int | None = None
    """svmlight: the number of columns; None takes the largest index."""
    allow_no_final_newline: bool = False
    """Text: take a last line without a line feed, which is what a file that was cut short looks like."""
    ignore_qid: bool = False
    """svmlight: skip 'qid:' instead of refusing it."""
    encoding: Mapping[str, Any] | None = None
    """What ``Source.encoding`` said when a store was made: read these files into the same columns, with the label or
    without it."""

    def __post_init__(self) -> None:
        if self.index_base not in (None, 0, 1):
            raise UsageError(f"index base {self.index_base} is neither 0 nor 1")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise UsageError(f"the delimiter must be one character, not {self.delimiter!r}")
        if self.features is not None and self.features < 1:
            raise UsageError(f"{self.features} features: at least one is needed")


@dataclass(slots=True)
class SourceFile:
    """Facts about one file; complete when its last batch was taken."""

    name: str
    size: int = 0
    """Bytes on disk."""
    sha256: str = ""
    """Of the bytes on disk."""
    rows: int = 0
    read: int = 0
    """Bytes of it read so far."""
    compression: str = ""
    """'gzip', 'bzip2', 'xz', 'zstd' or nothing."""


class Source(Protocol):
    """One or several files of one format that are read forward, in bounded memory, into batches of rows."""

    columns: int | None
    """Features; None until the last batch where only the data say it (svmlight)."""
    names: tuple[str, ...] | None
    """Of the features, where the format has names."""
    sparse: bool
    """Whether batches are CSR."""
    sources: list[SourceFile]
    notices: dict[str, int]
    """What was met and passed over, with counts: blank lines, empty rows, unknown categories."""

    def batches(self) -> Iterator[Batch]:
        """All rows in order. ``Batch.labels`` is an empty array when the files hold no labels.

        Raises DataError with file and line or row, StorageError.
        """
        ...

    def encoding(self) -> dict[str, Any]:
        """What another set of files must be read by to give the same columns: plain JSON values."""
        ...


def options_from(encoding: Mapping[str, Any], **changes: Any) -> SourceOptions:
    """Options that read files as those were that ``encoding`` was recorded of, with or without labels."""
    known = {f.name for f in fields(SourceOptions)} - {"encoding"}
    kept = {k: tuple(v) if isinstance(v, list) else v for k, v in encoding.get("options", {}).items() if k in known}
    return SourceOptions(**(kept | {"format": encoding["format"]} | changes), encoding=encoding)
