"""What a source is: files of one format, read forward into batches of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from streamsvm.aliases import JsonObject

if TYPE_CHECKING:
    from streamsvm.types import Batch

UNLABELED = "rows without a label were left out"
FILES_SAMPLED = 16
"""Files, and batches of a file, that are searched for a first value of a column."""
NO_ROWS = "files hold no rows and are passed over"


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
    skipped: int = 0
    """Rows that were left out because they have no label."""
    read: int = 0
    """Bytes read so far."""
    compression: str = ""
    """'gzip', 'bzip2', 'xz', 'zstd', or empty."""

    @property
    def position(self) -> int:
        """Rows that were taken from the file, those included that were left out."""
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


class Source(Protocol):
    """One or several files of one format that are read forward, in bounded memory, into batches of rows."""

    columns: int | None
    """The number of features; None until the last batch where only the data say it (svmlight)."""
    names: tuple[str, ...] | None
    """The names of the features, where the format has names."""
    proposals: list[str]
    """What was decided of columns without being asked, as lines of text."""
    id_column: str | None
    """The column the ids of the rows are from; None where rows have no names."""
    sparse: bool
    """Whether batches are CSR."""
    sources: list[SourceFile]
    """The files that were opened so far."""
    exact: bool
    """Whether numbers of the batches are float64, for a caller who takes an offset from them (``centering``); False, by
    which they are float32, until somebody sets it."""
    notices: dict[str, int]
    """What was met and passed over, with counts: blank lines, empty rows, unknown categories."""

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; ``Batch.labels`` is an empty array when the files hold no labels.

        Raises DataError with file and line or row, StorageError.
        """
        ...

    def encoding(self) -> JsonObject:
        """Return what another set of files must be read by to give the same columns, as plain JSON."""
        ...
