"""Sources: what every format of rows has in common, and the facts about each file that was read."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from streamsvm.type_aliases import JsonObject

if TYPE_CHECKING:
    from streamsvm.store.sources.preprocessing import RowSteps
    from streamsvm.types import Batch

FLOAT32 = "float32"
"""The usual type of numbers, by the name that ``format.arrays`` has for it; that module imports numpy, which --help does without."""

UNLABELED = "rows without a label were left out"
FILES_SAMPLED = 16
"""The most files, and the most batches of each, that are searched for the first value of a column."""
NO_ROWS = "files without rows are skipped"


class Source(Protocol):
    """One or several files of one format, read sequentially in bounded memory as batches of rows."""

    proposals: list[str]
    """Automatic decisions about columns, as lines of text."""
    id_column: str | None
    """The column with the ids of the rows; None if there is none."""
    sparse: bool
    sources: list[SourceFile]
    """The files that were opened so far."""
    notices: dict[str, int]
    """The number of blank lines, empty rows, unknown categories and so on, by the text of the notice."""

    @property
    def columns(self) -> int | None:
        """The number of features; None if it is known only after the last batch (svmlight)."""
        ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the features; None if the format has no names."""
        ...

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order; ``Batch.labels`` is an empty array if the files have no labels.

        Raises DataError with file and line or row, StorageError.
        """
        ...

    @property
    def dtype(self) -> str:
        """'float16' or 'bfloat16' if the source has its numbers in that type and the steps keep it, else 'float32'."""
        ...

    def encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, as plain JSON."""
        ...


class BaseSource(Source):
    """A source whose subclasses read the rows of a format (``read``); the ``steps`` for all formats are applied to
    them.
    """

    id_column: str | None = None
    sparse: bool = False
    columns_read: int | None = None
    """The number of columns that ``read`` yields; None while it is unknown."""
    names_read: tuple[str, ...] | None = None
    """The names of the columns that ``read`` yields; None if the format has no names."""
    dtype_read: str = FLOAT32
    """The type in which the format has the numbers that ``read`` yields, if that is 'float16' or 'bfloat16'."""
    vectors_read: tuple[tuple[int, int], ...] = ()
    """The ranges [start, stop) of columns that ``read`` yields of vectors, which are missing as a whole."""
    steps: RowSteps | None = None
    """The steps that are applied to the rows of ``read``; None: the rows are stored unchanged."""
    exact: bool = False
    """Whether ``read`` yields float64, for steps that subtract an offset, instead of float32."""

    def __init__(self) -> None:
        self.proposals: list[str] = []
        self.sources: list[SourceFile] = []
        self.notices: dict[str, int] = Counter()

    @abstractmethod
    def read(self) -> Iterator[Batch]:
        """Yield all rows in order, before the steps; NaN is a missing value, if these are allowed. It can be called
        several times. Raises DataError with file and line or row, StorageError.
        """

    @abstractmethod
    def read_encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, without the steps, as plain JSON."""

    @property
    def columns(self) -> int | None:
        """The number of features after the steps; None if it is known only after the last batch."""
        return self.columns_read if self.steps is None else self.steps.count_stored_columns(self.columns_read)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the features after the steps; None if the format has no names."""
        return self.names_read if self.steps is None else self.steps.names_of_stored_columns(self.names_read)

    @property
    def dtype(self) -> str:
        """'float16' or 'bfloat16' if the source has its numbers in that type and the steps keep it, else 'float32'."""
        return self.dtype_read if self.steps is None or self.steps.keep_dtype(self.dtype_read) else FLOAT32

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order, after the steps."""
        if self.steps is None:
            yield from self.read()
            return
        for batch in self.read():
            yield batch._replace(X=self.steps.apply_and_count(batch.X, self.names_read, self.notices))

    def encoding(self) -> JsonObject:
        """Return how to read other files into the same columns, with the steps, as plain JSON."""
        return self.read_encoding() | ({} if self.steps is None else self.steps.to_json())

    def count(self, notice: str, number: int = 1) -> None:
        """Add ``number`` to the count of a notice."""
        if number:
            self.notices[notice] = self.notices.get(notice, 0) + number

    @contextmanager
    def only_numbers(self) -> Iterator[list[int] | None]:
        """Yield the columns that ``read`` yields while the context lasts, if they are the only ones that can be NaN; None
        if it yields all columns.
        """
        yield None

    @contextmanager
    def looking_ahead(self) -> Iterator[None]:
        """Allow reading rows to decide something while the context lasts; then reset the source to its start."""
        notices, columns = dict(self.notices), self.columns_read
        try:
            yield
        finally:
            self.columns_read = columns
            self.sources.clear()
            self.notices.clear()
            self.notices.update(notices)


@dataclass(slots=True)
class SourceFile:
    """Facts about one file; they are complete once its last batch was yielded."""

    name: str
    size: int = 0
    """The bytes on disk."""
    sha256: str = ""
    """The sha256 of the bytes on disk, as hex digits."""
    rows: int = 0
    skipped: int = 0
    """Rows that were left out because they have no label."""
    read: int = 0
    """The bytes on disk that were read so far, for the progress display."""
    compression: str = ""
    """'gzip', 'bzip2', 'xz', 'zstd', or empty."""
    text_notices: tuple[str, ...] = ()
    """Notices about the text of the file, such as a missing final newline; set at its end."""

    @property
    def position(self) -> int:
        """The rows that were read from the file, including those that were left out."""
        return self.rows + self.skipped

    def count_batch(self, batch: Batch, rows: int, notices: dict[str, int]) -> bool:
        """Count a batch that was encoded from ``rows`` rows of the file; return whether it has any rows."""
        from streamsvm.rows import row_count

        kept = row_count(batch.X)
        self.rows += kept
        self.skipped += rows - kept
        if rows > kept:
            notices[UNLABELED] = notices.get(UNLABELED, 0) + rows - kept
        return kept > 0
