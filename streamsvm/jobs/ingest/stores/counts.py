"""Rows on their way into the stores: counted, their labels noted, progress reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamsvm.engine.progress import Stopwatch
from streamsvm.errors import DataError
from streamsvm.jobs.ingest.stores.train_and_test import Stores
from streamsvm.rows import row_count
from streamsvm.store.format.labels import Labels, added, few_labels
from streamsvm.store.format.row_layout import in_layout
from streamsvm.store.sources import SourceFile
from streamsvm.types import Batch, Report


@dataclass(slots=True)
class IngestCounts:
    """Rows written so far, and their labels."""

    coder: Labels
    """Turns labels into class codes."""
    rows: int = 0
    """Rows written, those of the test store included."""
    test_rows: int = 0
    """Rows written to the test store."""
    counts: list[int] = field(default_factory=list)
    """Rows of each class."""
    labels: dict[int, set[str]] = field(default_factory=dict)
    """The distinct labels of each file, by its position; a file's set stops growing at three."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    """Measures the seconds since the start, and says when progress is due."""

    def store(self, batch: Batch, file: int, stores: Stores, columns: int | None) -> None:
        """Append a batch of the file at position ``file``. Raises DataError E-ROWS, E-LABEL, StorageError."""
        rows = row_count(batch.X)
        if len(batch.labels) != rows:
            raise DataError(
                f"{rows} rows have {len(batch.labels)} labels", code="E-ROWS", hint="check the label source"
            )
        codes = self.coder.codes(batch.labels)
        X = in_layout(batch.X, sparse=stores.sparse, columns=columns)
        self.test_rows += stores.append(batch, X, codes, self.rows)
        self.rows += rows
        self.counts = added(self.counts, codes)
        few_labels(batch.labels, self.labels.setdefault(file, set()))

    def report_progress(self, report: Report, files: Sequence[SourceFile], total: int, *, last: bool = False) -> None:
        """Report how many of ``total`` bytes were read of ``files``, unless that was done a moment ago."""
        if last or self.stopwatch.due():
            read = sum(file.read for file in files)  # not for every batch: there may be as many files as batches
            event = {"event": "ingest", "rows": self.rows, "bytes": read, "seconds": self.stopwatch.seconds}
            report(event | {"total_bytes": total, "done": last})
