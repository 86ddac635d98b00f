"""Where ingested rows go: to the store or, some of them, to a test store beside it, in their order or shuffled.

Which rows are held out - some of all, of every class or of the groups, drawn from the seed, or those after a value -
depends on the seed and on the rows alone, so that the same rows are held out however the sources are cut into batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamsvm.aliases import Array, JsonObject
from streamsvm.compute import threading
from streamsvm.errors import DataError, InterruptedRun, StorageError
from streamsvm.jobs.ingest.options import IngestJob
from streamsvm.rows import in_layout, row_count, row_where
from streamsvm.store.format.labels import Labels, add_counts, note_labels
from streamsvm.store.format.manifest import Manifest
from streamsvm.store.write.resume import Opener
from streamsvm.store.write.shuffle import ShufflingWriter, hashes
from streamsvm.store.write.writer import Background, StoreWriter
from streamsvm.types import Batch

STRATUM = 100
"""Rows of a class of which the share that is held out is exact, to the row."""


class Stores:
    """The store that is being written and, if rows are held out, the test store; what was written is counted."""

    def __init__(self, job: IngestJob, opener: Opener, coder: Labels, *, sparse: bool, columns: int | None) -> None:
        self.coder = coder
        """Turns labels into class codes."""
        self.rows = self.test_rows = 0
        """Rows written, those of the test store included, and those of the test store alone."""
        self.counts: list[int] = []
        """Rows of each class."""
        self.labels: dict[int, set[str]] = {}
        """The distinct labels of each file, by its position; a file's set stops growing at three."""
        self._sparse, self._columns = sparse, columns
        self._split = HoldOut(job.seed, job.test_fraction, job.stratify)
        writers = [opener(path, sparse, job.chunk_bytes) for path in job.targets()]
        if threading.threads() > 1:
            for writer in writers:
                writer.background = Background()
        self._writers: list[StoreWriter | ShufflingWriter] = list(writers)
        if job.shuffle:
            self._writers = [ShufflingWriter(writer, job.seed) for writer in writers]

    def append(self, batch: Batch, file: int) -> None:
        """Write the rows of a batch of the file at position ``file``. Raises DataError E-ROWS, E-LABEL, StorageError."""
        rows = row_count(batch.X)
        if len(batch.labels) != rows:
            raise DataError(
                f"{rows} rows have {len(batch.labels)} labels", code="E-ROWS", hint="check the label source"
            )
        codes = self.coder.codes(batch.labels)
        X = in_layout(batch.X, sparse=self._sparse, columns=self._columns)
        if len(self._writers) == 1:
            self._writers[0].append(X, codes, batch.weight, batch.ids)
        else:
            chosen = self._split.choose(self.rows, codes, batch.split)
            for writer, mask in zip(self._writers, (~chosen, chosen), strict=True):
                if mask.any():
                    weight, ids = (None if found is None else found[mask] for found in (batch.weight, batch.ids))
                    writer.append(row_where(X, mask), codes[mask], weight, ids)
            self.test_rows += int(np.count_nonzero(chosen))
        self.rows += rows
        self.counts = add_counts(self.counts, codes)
        note_labels(batch.labels, self.labels.setdefault(file, set()))

    def commit(self, columns: int, facts: JsonObject) -> Manifest:
        """Commit the test store, then the store, which is what people look for; return the manifest of the store."""
        classes = self.coder.table()
        return [writer.commit(classes, columns, facts) for writer in reversed(self._writers)][-1]

    def on_exit(self, _: object, error: BaseException | None, __: object) -> None:
        """Leave unfinished stores for the next run where it can go on from them, else remove them; a callback of an
        exit stack.
        """
        if isinstance(error, InterruptedRun | StorageError | KeyboardInterrupt):
            safe = sum(writer.suspend() for writer in self._writers)
            if isinstance(error, InterruptedRun | StorageError):
                error.hint = f"{safe} chunks are safe; run the same command again to go on"
        elif error is not None:
            for writer in self._writers:
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
            return _is_in_lowest_share(hashes(self.seed, first_row, len(codes)), self.fraction)
        start = np.uint64((self.seed * 0xD1B54A32D192ED03) % 2**64)
        return _is_in_lowest_share(mix_bits((split + start + np.uint64(1)) * STEP), self.fraction)

    def _stratify(self, codes: Array) -> NDArray[np.bool_]:
        found = np.zeros(len(codes), np.bool_)
        for code in np.unique(codes).tolist():
            rows = np.flatnonzero(codes == code)
            first = self._met.get(code, 0)
            found[rows] = self._choose_of_class(code, first, len(rows))
            self._met[code] = first + len(rows)
        return found

    def _choose_of_class(self, code: int, first: int, count: int) -> NDArray[np.bool_]:
        """Return whether the rows [first, first + count) of a class are held out: of every 100 of them the share,
        drawn.
        """
        strata = range(first // STRATUM, (first + count - 1) // STRATUM + 1)
        drawn = [np.random.default_rng((self.seed, code, k)).permutation(STRATUM) for k in strata]
        ends = np.floor(np.arange(strata.start, strata.stop + 1) * (STRATUM * self.fraction) + 0.5)
        chosen = np.concatenate([rank < n for rank, n in zip(drawn, np.diff(ends), strict=True)])
        skipped = first - strata.start * STRATUM
        return chosen[skipped : skipped + count]


def _is_in_lowest_share(values: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Return whether evenly distributed values are among the lowest share."""
    return (values >> np.uint64(11)) < np.uint64(int(fraction * 2**53))


def check_parts(rows: int, test_rows: int, what: str) -> None:
    """Raise DataError E-SPLIT when all rows, or none, are held out by a column; ``what`` is the option."""
    if test_rows in (0, rows):
        where = "the test store" if test_rows else "the store for training"
        found = f"{what} sends all {rows} rows to {where}"
        raise DataError(found, code="E-SPLIT", hint="'--describe' shows what values there are: choose another one")
