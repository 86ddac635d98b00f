"""A writer that is given rows in one order and writes them in another, drawn from a seed."""

from __future__ import annotations

from streamsvm.aliases import Array, JsonObject
from streamsvm.durable import temporary_beside
from streamsvm.rows import Float32, Rows
from streamsvm.store.format.manifest import Manifest
from streamsvm.store.format.row_ids import IdWriter
from streamsvm.store.write.external_shuffle import RUN_BYTES, Spool
from streamsvm.store.write.writer import StoreWriter

SHUFFLE_BYTES = 6 * RUN_BYTES
"""The most bytes a shuffle holds: a run or a bucket, as pieces, joined and sorted."""


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
            for piece, ids in self._spool.drain():
                self._writer.append(piece.X, piece.codes, piece.weight)
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
