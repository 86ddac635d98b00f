"""Where ingested rows go: to the store or, some of them, to a test store beside it, in their order or shuffled.

Which rows are held out - some of all, of every class or of the groups, drawn from the seed, or those after a value -
depends on the seed and on the rows alone, so that the same rows are held out however the sources are cut into batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array, JsonObject
from streamsvm.compute import threading
from streamsvm.durable import temporary_beside
from streamsvm.engine.progress import Stopwatch
from streamsvm.errors import DataError, InterruptedRun, StorageError
from streamsvm.rows import Float32, Rows, in_layout, row_count, row_where
from streamsvm.store.format.labels import Labels, add_counts, note_labels
from streamsvm.store.format.manifest import Manifest
from streamsvm.store.format.row_ids import IdWriter
from streamsvm.store.sources import SourceFile
from streamsvm.store.write.resume import Opener
from streamsvm.store.write.shuffle import RUN_BYTES, Spool, hashes
from streamsvm.store.write.writer import Background, StoreWriter
from streamsvm.types import Batch, Report

STRATUM = 100
"""Rows of a class of which the share that is held out is exact, to the row."""
SHUFFLE_BYTES = 6 * RUN_BYTES
"""The most bytes a shuffle holds: a run or a bucket, in parts, joined and sorted."""


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
        self.counts = add_counts(self.counts, codes)
        note_labels(batch.labels, self.labels.setdefault(file, set()))

    def report_progress(self, report: Report, files: Sequence[SourceFile], total: int, *, last: bool = False) -> None:
        """Report how many of ``total`` bytes were read of ``files``, unless that was done a moment ago."""
        if last or self.stopwatch.due():
            read = sum(file.read for file in files)  # not for every batch: there may be as many files as batches
            event = {"event": "ingest", "rows": self.rows, "bytes": read, "seconds": self.stopwatch.seconds}
            report(event | {"total_bytes": total, "done": last})


class Stores:
    """The store that is being written and, if rows are held out, the test store."""

    def __init__(
        self,
        paths: Sequence[Path],
        opener: Opener,
        sparse: bool,
        chunk_bytes: int,
        split: HoldOut,
        *,
        shuffle: bool = False,
    ) -> None:
        self.sparse = sparse
        self._split = split
        opened = [opener(path, sparse, chunk_bytes) for path in paths]
        if threading.threads() > 1:
            for writer in opened:
                writer.background = Background()
        # a store that is repaired has its ids already
        self._ids = [IdWriter(writer.directory) if writer.repairs is None else None for writer in opened]
        self.writers: list[StoreWriter | Shuffling] = list(opened)
        if shuffle:
            self.writers = [Shuffling(one, split.seed, ids) for one, ids in zip(opened, self._ids, strict=True)]

    def append(self, batch: Batch, X: Rows, codes: Array, first_row: int) -> int:
        """Write the rows of a batch, in the layout of the stores and with their class codes, and return how many were
        held out. ``first_row`` is the number of the first among the rows of the sources. Raises StorageError.
        """
        if len(self.writers) == 1:
            self._append(0, X, codes, batch.weight, batch.ids)
            return 0
        chosen = self._split.choose(first_row, codes, batch.split)
        for k, mask in enumerate((~chosen, chosen)):
            if mask.any():
                weight, ids = (None if found is None else found[mask] for found in (batch.weight, batch.ids))
                self._append(k, row_where(X, mask), codes[mask], weight, ids)
        return int(np.count_nonzero(chosen))

    def _append(self, store: int, X: Rows, codes: Array, weight: Float32 | None, ids: Array | None) -> None:
        """Write rows to one of the stores, then their ids: its folder is there from its first row on."""
        writer, names = self.writers[store], self._ids[store]
        if isinstance(writer, Shuffling):
            writer.append(X, codes, weight, ids)
            return
        writer.append(X, codes, weight)
        if ids is not None and names is not None:
            names.append(ids)

    def commit(self, classes: tuple[str, ...], columns: int, facts: JsonObject) -> Manifest:
        """Commit the test store, then the store, which is what people look for; return the manifest of the store."""
        for ids in self._ids:
            if ids is not None:
                ids.close()
        return [writer.commit(classes, columns, facts) for writer in reversed(self.writers)][-1]

    def on_exit(self, _: object, error: BaseException | None, __: object) -> None:
        """Leave unfinished stores for the next run where it can go on from them, else remove them; a callback of an
        exit stack.
        """
        with suppress(StorageError):
            for ids in self._ids:
                if ids is not None:
                    ids.close()
        if isinstance(error, InterruptedRun | StorageError | KeyboardInterrupt):
            safe = sum(writer.suspend() for writer in self.writers)
            if isinstance(error, InterruptedRun | StorageError):
                error.hint = f"{safe} chunks are safe; run the same command again to go on"
        elif error is not None:
            for writer in self.writers:
                writer.abort()


@dataclass(slots=True)
class HoldOut:
    """Chooses rows for the test store."""

    seed: int
    """What is drawn from."""
    fraction: float
    """The share of the rows; of no account where a value decides."""
    stratify: bool = False
    """Whether it is the share of the rows of every class."""
    _met: dict[int, int] = field(default_factory=dict)

    def choose(self, first_row: int, codes: Array, split: Array | None) -> NDArray[np.bool_]:
        """Return whether each row goes to the test store, (n,) bool: rows from number ``first_row`` on, of these
        classes.

        ``split`` is of the rows' groups or of the value that decides; see ``Batch.split``.
        """
        from streamsvm.compute.random import STEP, mix_bits

        if split is not None and split.dtype == np.bool_:
            decided: NDArray[np.bool_] = split
            return decided
        if self.stratify:
            return self._stratify(codes)
        if split is None:
            return _below(hashes(self.seed, first_row, len(codes)), self.fraction)
        start = np.uint64((self.seed * 0xD1B54A32D192ED03) % 2**64)
        return _below(mix_bits((split + start + np.uint64(1)) * STEP), self.fraction)

    def _stratify(self, codes: Array) -> NDArray[np.bool_]:
        found = np.zeros(len(codes), np.bool_)
        for code in np.unique(codes).tolist():
            rows = np.flatnonzero(codes == code)
            first = self._met.get(code, 0)
            found[rows] = self._of_class(code, first, len(rows))
            self._met[code] = first + len(rows)
        return found

    def _of_class(self, code: int, first: int, count: int) -> NDArray[np.bool_]:
        """Return whether the rows [first, first + count) of a class are held out: of every 100 of them the share,
        drawn.
        """
        strata = range(first // STRATUM, (first + count - 1) // STRATUM + 1)
        drawn = [np.random.default_rng((self.seed, code, k)).permutation(STRATUM) for k in strata]
        ends = np.floor(np.arange(strata.start, strata.stop + 1) * (STRATUM * self.fraction) + 0.5)
        chosen = np.concatenate([rank < n for rank, n in zip(drawn, np.diff(ends), strict=True)])
        skipped = first - strata.start * STRATUM
        return chosen[skipped : skipped + count]


def _below(values: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Return whether evenly distributed values are among the lowest share."""
    return (values >> np.uint64(11)) < np.uint64(int(fraction * 2**53))


def check_parts(rows: int, test_rows: int, what: str) -> None:
    """Raise DataError E-SPLIT when all rows, or none, are held out by a column; ``what`` is the option."""
    if test_rows in (0, rows):
        where = "the test store" if test_rows else "the store for training"
        found = f"{what} sends all {rows} rows to {where}"
        raise DataError(found, code="E-SPLIT", hint="'--describe' shows what values there are: choose another one")


class Shuffling:
    """A writer that puts all rows aside and writes them in random order when it commits, and their ids with them."""

    def __init__(self, writer: StoreWriter, seed: int, ids: IdWriter | None) -> None:
        self._writer, self._seed, self._ids = writer, seed, ids
        self._spool: Spool | None = None

    def append(self, X: Rows, codes: Array, weight: Float32 | None = None, ids: Array | None = None) -> None:
        """Put rows aside. Raises StorageError."""
        if self._spool is None:
            self._spool = Spool(temporary_beside(self._writer.root), self._seed)
        self._spool.append(X, codes, weight, ids)

    def commit(self, classes: tuple[str, ...], columns: int, facts: JsonObject) -> Manifest:
        """Write all rows in their new order, then the manifest. Raises StorageError, DataError."""
        if self._spool is not None:
            for chunk, ids in self._spool.drain():
                self._writer.append(chunk.X, chunk.codes, chunk.weight)
                if self._ids is not None and ids is not None:
                    self._ids.append(ids)
            self._close()
        if self._ids is not None:
            self._ids.close()
        return self._writer.commit(classes, columns, facts)

    def suspend(self) -> int:
        """Leave what was written for the next run, which reads again what was put aside; return how many chunks are
        safe.
        """
        self._close()
        return self._writer.suspend()

    def abort(self) -> None:
        """Remove what was written and what was put aside."""
        self._close()
        self._writer.abort()

    def _close(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None
