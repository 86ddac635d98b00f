"""How sources are to be read, and what is known of them afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from streamsvm.errors import BudgetError, UsageError
from streamsvm.store.sources.rejects import Rejects
from streamsvm.types import Batch

MISSING = ("error", "mean", "zero", "indicator")
DUPLICATES = ("error", "sum", "first", "last")
MOST_HASH_BITS = 26
"""The largest exponent of the number of columns that text can be hashed into."""
COLUMN_BYTES = 6 << 10
"""Bytes of memory for each column of a table: its name, types, builder and values (measured with CSV: 5.8 KiB)."""
UNSTATED = {"encoding", "memory_limit", "rejects"}
"""The fields of ``SourceOptions`` that no user states."""


def bad_share(text: str) -> float:
    """Return '1%' or '0.01' as a share. Raises UsageError."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"--max-bad {text!r} is no share of the lines", hint="write it as 1% or 0.01")
    return share


def _check_choice(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{option} cannot be '{value}'", hint=f"choose from {', '.join(known)}")


def check_width(name: str, columns: int, memory_limit: int | None) -> None:
    """Raise BudgetError for a table with more columns than there is memory to know them."""
    needed = columns * COLUMN_BYTES
    if memory_limit is not None and needed > memory_limit:
        raise BudgetError(
            f"{name} has {columns} columns: about {needed >> 20}MiB are needed for them, {memory_limit >> 20}MiB are left",
            hint=f"give {(needed - memory_limit >> 20) + 1}MiB more with --memory, or store the table as npy, HDF5 or svmlight",
        )


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the user says about the files. A format ignores the options it has no use for."""

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
    features_key: str = "X"
    """HDF5 and Zarr: the array (or AnnData matrix) of features."""
    labels_key: str = "y"
    """HDF5 and Zarr: the array of labels."""
    allow_fill: bool = False
    """HDF5 and Zarr: take chunks that were never written for the value the file says they have."""
    missing: str = "error"
    """What to do with missing values: 'error', or replace them by the column's 'mean' or by 'zero', or by zero with a
    column more that says so ('indicator')."""
    hash_bits: int | None = None
    """Tables: hash every column of text into 2**BITS columns together, with a sign, instead of one column a value."""
    on_bad_line: str = "error"
    """Text: 'error', or 'skip': leave a line out that cannot be read, and list it in NAME.rejects beside the store."""
    max_bad: str = "1%"
    """The share of lines that may be skipped."""
    on_duplicate: str = "error"
    """svmlight: an index that occurs twice in a row: 'error', 'sum', 'first' or 'last'."""
    sort: bool = False
    """svmlight: put the entries of a row in order where they are not."""
    text_labels: bool = False
    """svmlight: labels are words."""
    multiline: bool = False
    """CSV: values in quotes may hold line feeds."""
    memory: int | None = None
    """Bytes the process may use."""
    memory_limit: int | None = field(default=None, compare=False)
    """Tables: bytes there are for knowing the columns; None asks nothing."""
    rejects: Rejects = field(default_factory=Rejects, compare=False)
    """Where lines that are left out are noted."""
    encoding: Mapping[str, Any] | None = None
    """What ``Source.encoding`` said when a store was made: read these files into the same columns, with the label or
    without it."""

    def __post_init__(self) -> None:
        if self.index_base not in (None, 0, 1):
            raise UsageError(f"index base {self.index_base} is neither 0 nor 1")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise UsageError(f"the delimiter must be one character, not {self.delimiter!r}")
        _check_choice("--missing", self.missing, MISSING)
        _check_choice("--on-bad-line", self.on_bad_line, ("error", "skip"))
        _check_choice("--on-duplicate", self.on_duplicate, DUPLICATES)
        bad_share(self.max_bad)
        if self.hash_bits is not None and not 1 <= self.hash_bits <= MOST_HASH_BITS:
            raise UsageError(f"--hash {self.hash_bits} is not between 1 and {MOST_HASH_BITS}")
        if self.features is not None and self.features < 1:
            raise UsageError(f"{self.features} features: at least one is needed")


@dataclass(slots=True)
class SourceFile:
    """Facts about one file; they are complete when its last batch was taken."""

    name: str
    """Its path, as given."""
    size: int = 0
    """Its bytes on disk."""
    sha256: str = ""
    """The sha256 of its bytes on disk, as hex digits."""
    rows: int = 0
    """Rows read so far."""
    read: int = 0
    """Bytes read so far."""
    compression: str = ""
    """'gzip', 'bzip2', 'xz', 'zstd', or empty."""


class Source(Protocol):
    """One or several files of one format that are read forward, in bounded memory, into batches of rows."""

    columns: int | None
    """The number of features; None until the last batch where only the data say it (svmlight)."""
    names: tuple[str, ...] | None
    """The names of the features, where the format has names."""
    sparse: bool
    """Whether batches are CSR."""
    sources: list[SourceFile]
    """The files that were opened so far."""
    notices: dict[str, int]
    """What was met and passed over, with counts: blank lines, empty rows, unknown categories."""

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; ``Batch.labels`` is an empty array when the files hold no labels.

        Raises DataError with file and line or row, StorageError.
        """
        ...

    def encoding(self) -> dict[str, Any]:
        """Return what another set of files must be read by to give the same columns, as plain JSON."""
        ...


def options_from(encoding: Mapping[str, Any], **changes: Any) -> SourceOptions:
    """Return options that read files like those that ``encoding`` was recorded of, with or without labels."""
    known = {f.name for f in fields(SourceOptions)} - UNSTATED
    known_options = {
        k: tuple(v) if isinstance(v, list) else v for k, v in encoding.get("options", {}).items() if k in known
    }
    return SourceOptions(**(known_options | {"format": encoding["format"]} | changes), encoding=encoding)
