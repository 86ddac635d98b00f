"""Where ingested rows go: to the store or, some of them, to a test store beside it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from streamsvm.aliases import Array, JsonObject
from streamsvm.compute import threading
from streamsvm.errors import InterruptedRun, StorageError
from streamsvm.jobs.ingest.stores.hold_out import HoldOut
from streamsvm.jobs.ingest.stores.shuffle import Shuffling
from streamsvm.rows import Float32, Rows
from streamsvm.store.format.manifest import Manifest
from streamsvm.store.format.row_ids import IdWriter
from streamsvm.store.format.row_layout import take
from streamsvm.store.write.background import Background
from streamsvm.store.write.building import Opener
from streamsvm.store.write.writer import StoreWriter
from streamsvm.types import Batch


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
        chosen = self._split.chosen(first_row, codes, batch.split)
        for k, mask in enumerate((~chosen, chosen)):
            if mask.any():
                weight, ids = (None if found is None else found[mask] for found in (batch.weight, batch.ids))
                self._append(k, take(X, mask), codes[mask], weight, ids)
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
