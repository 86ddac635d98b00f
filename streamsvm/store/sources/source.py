"""Sources: files of one format, read forward into batches of rows, and the bad lines that were left out: these are
counted, listed beside the output, and limited to a share of all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from streamsvm import durable
from streamsvm.aliases import JsonObject
from streamsvm.errors import DataError
from streamsvm.outputs import REJECTS_HEADER

if TYPE_CHECKING:
    from streamsvm.store.sources.preprocessing import RowSteps
    from streamsvm.types import Batch


UNLABELED = "rows without a label were left out"
FILES_SAMPLED = 16
"""The most files, and batches of a file, that are searched for a first value of a column."""
NO_ROWS = "files without rows are skipped"


class Source(Protocol):
    """One or several files of one format that are read forward, in bounded memory, into batches of rows."""

    proposals: list[str]
    """Decisions about columns that nobody asked for, as lines of text."""
    id_column: str | None
    """The column of the ids of the rows; None where rows have none."""
    sparse: bool
    sources: list[SourceFile]
    """The files that were opened so far."""
    notices: dict[str, int]
    """What was passed over, with counts: blank lines, empty rows, unknown categories."""

    @property
    def columns(self) -> int | None:
        """The number of features; None until the last batch where only the data say it (svmlight)."""
        ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the features, where the format has names."""
        ...

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; ``Batch.labels`` is an empty array when the files hold no labels.

        Raises DataError with file and line or row, StorageError.
        """
        ...

    def encoding(self) -> JsonObject:
        """Return how to read other files so that they give the same columns, as plain JSON."""
        ...


class BaseSource(Source):
    """A source that reads rows of a format (``read``) and takes them through the ``steps`` that all formats have."""

    id_column: str | None = None
    sparse: bool = False
    columns_read: int | None = None
    """The number of columns that ``read`` gives; None until they are known."""
    names_read: tuple[str, ...] | None = None
    """Their names, where the format has names."""
    steps: RowSteps | None = None
    """What is done to the rows that are read; None: they are stored as they are."""
    exact: bool = False
    """Whether ``read`` gives float64, for steps that subtract an offset; float32 otherwise."""

    def __init__(self) -> None:
        self.proposals: list[str] = []
        self.sources: list[SourceFile] = []
        self.notices: dict[str, int] = Counter()

    @abstractmethod
    def read(self) -> Iterator[Batch]:
        """Yield all rows in order, as the format has them; a missing value that may be missing is NaN. It can be called
        again. Raises DataError with file and line or row, StorageError.
        """

    @abstractmethod
    def read_encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, without the steps, as plain JSON."""

    @property
    def columns(self) -> int | None:
        """The number of features; see ``Source.columns``."""
        return self.columns_read if self.steps is None else self.steps.stored_columns(self.columns_read)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the features; see ``Source.names``."""
        return self.names_read if self.steps is None else self.steps.stored_names(self.names_read)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order as they are stored; see ``Source.batches``."""
        if self.steps is None:
            yield from self.read()
            return
        for batch in self.read():
            yield batch._replace(X=self.steps.apply_and_count(batch.X, self.names_read, self.notices))

    def encoding(self) -> JsonObject:
        """Return how to read other files so that they give the same columns; see ``Source.encoding``."""
        return self.read_encoding() | ({} if self.steps is None else self.steps.to_json())

    def count(self, what: str, number: int = 1) -> None:
        """Add to the count of a notice."""
        if number:
            self.notices[what] = self.notices.get(what, 0) + number

    @contextmanager
    def looking_ahead(self) -> Iterator[None]:
        """Read rows to decide something: at the end the source is as if nothing had been read of it."""
        noted, columns = dict(self.notices), self.columns_read
        try:
            yield
        finally:
            self.columns_read = columns
            self.sources.clear()
            self.notices.clear()
            self.notices.update(noted)


@dataclass(slots=True)
class SourceFile:
    """Facts about one file; they are complete when its last batch was taken."""

    name: str
    size: int = 0
    """Its bytes on disk."""
    sha256: str = ""
    """The sha256 of its bytes on disk, as hex digits."""
    rows: int = 0
    skipped: int = 0
    """Rows that were left out because they have no label."""
    read: int = 0
    compression: str = ""
    """'gzip', 'bzip2', 'xz', 'zstd', or empty."""
    oddities: tuple[str, ...] = ()
    """Notices about the form of the file, once it was read to its end."""

    @property
    def position(self) -> int:
        """Rows that were taken from the file, including those that were left out."""
        return self.rows + self.skipped

    def take(self, batch: Batch, rows: int, notices: dict[str, int]) -> bool:
        """Count a batch that was made of ``rows`` rows of the file; return whether there is any row in it."""
        from streamsvm.rows import row_count

        kept = row_count(batch.X)
        self.rows += kept
        self.skipped += rows - kept
        if rows > kept:
            notices[UNLABELED] = notices.get(UNLABELED, 0) + rows - kept
        return kept > 0


BAD_LINES = "E-BAD-LINES"
SKIPPED = "lines could not be read and were skipped"
LISTED_REJECTS = 100_000
"""The most bad lines that are listed; more are only counted."""
LINES_BEFORE_JUDGING = 1000
"""Lines after which the share of bad ones is checked: among fewer, one may be too large a share."""


@dataclass(slots=True)
class Rejects:
    """The bad lines of a source; its files share it."""

    lines: list[tuple[str, int, str, str]] = field(default_factory=list)
    """The file, line number, code and reason of each bad line."""
    count: int = 0
    read: int = 0
    """Lines looked at, good ones included."""

    def add(self, name: str, number: int, error: DataError) -> None:
        """Note a bad line."""
        self.count += 1
        if len(self.lines) < LISTED_REJECTS:
            place = f"line {number}" if f"line {number}" in error.message else f"row {number}"
            reason = error.message.partition(place)[2].lstrip(":, ") or error.message
            self.lines.append((name, number, error.code, reason))

    def check(self, share: float, *, last: bool = False) -> None:
        """Raise DataError E-BAD-LINES when there are more than ``share`` of them."""
        if (last or self.read >= LINES_BEFORE_JUDGING) and self.count > share * self.read:
            found = f"{self.count} of {self.read} lines cannot be read, {100 * share:g} % are allowed"
            first = f"the first is {self.lines[0][0]} line {self.lines[0][1]}: {self.lines[0][3]}"
            raise DataError(f"{found}; {first}", code=BAD_LINES, hint="check the format, or pass a larger --max-bad")

    def write(self, path: Path) -> str:
        """Write file, line, code and reason of every bad line as tab-separated text; return a notice that says so.

        Raises StorageError.
        """
        lines = ("\t".join(map(str, reject)) + "\n" for reject in self.lines)
        durable.write_file(path, REJECTS_HEADER + "".join(lines).encode())
        return f"{self.summary()}: see {path}"

    def summary(self) -> str:
        """Return how many lines were left out, as a notice."""
        return f"{self.count} {SKIPPED}"

    def clear(self) -> None:
        """Forget all lines, because the files are read again."""
        self.lines.clear()
        self.count = self.read = 0
