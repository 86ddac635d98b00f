"""Where features go: chunks of a fixed number of rows, filled by one thread while another writes those that are full."""

from __future__ import annotations

import json
import queue
import threading
from typing import Self

import numpy as np

from streamsvm import durable
from streamsvm.aliases import Array, JsonObject
from streamsvm.compute.blocks.selection import take_rows
from streamsvm.compute.threading import end_all, start_all
from streamsvm.features.landmarks import draw_uniform_rows
from streamsvm.features.nystrom import Nystrom, Projection, part_rows
from streamsvm.jobs.embed.kernel_map import chosen
from streamsvm.jobs.embed.kernel_request import NystromRequest
from streamsvm.rows import Dense, Float32, row_count
from streamsvm.store.write.writer import StoreWriter
from streamsvm.types import Chunk, Store

JOURNAL = "journal.json"
JOURNAL_EVERY = 16
"""Chunks between two entries of the journal."""
CHUNK_BUFFERS = 3
"""The number of chunks in memory: one being filled, one being written, one between them."""


class _ChunkBuffer:
    """Memory for one chunk."""

    def __init__(self, rows: int, columns: int, *, numeric: bool) -> None:
        self.features = np.empty((rows, columns), np.float32)
        self.codes: Array = np.empty(rows, np.float64 if numeric else np.int32)
        self.weight = np.empty(rows, np.float32)
        self.weighted = False
        self.count = 0


class Sink:
    """Takes features and writes them in a thread of its own; a context manager.

    ``take`` rows of the current chunk, fill them, call ``filled``; call ``finish`` after the last. What goes wrong in
    the writer thread is raised by the next call. ``journal`` is written again every few chunks with the writer's
    progress, once all it names is durable. ``numeric``: the codes of rows are numbers to predict.
    """

    def __init__(self, writer: StoreWriter, rows: int, columns: int, journal: JsonObject, *, numeric: bool) -> None:
        self._writer, self._journal = writer, journal
        self._free: queue.SimpleQueue[_ChunkBuffer] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[_ChunkBuffer | None] = queue.SimpleQueue()
        for _ in range(CHUNK_BUFFERS):
            self._free.put(_ChunkBuffer(rows, columns, numeric=numeric))
        self._rows = rows
        self._error: BaseException | None = None
        self._slot = self._free.get()
        self._thread = threading.Thread(target=self._write_all, name="streamsvm-writer", daemon=True)

    def __enter__(self) -> Self:
        start_all([self._thread], self._end)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def room(self) -> int:
        """How many rows still fit the current chunk."""
        return self._rows - self._slot.count

    def take(self, count: int, chunk: Chunk, first: int) -> Float32:
        """Return where the features of the next ``count`` rows go, (count, columns) float32; their codes and weights
        are those of a chunk's rows from ``first`` on.
        """
        slot, at = self._slot, self._slot.count
        slot.codes[at : at + count] = chunk.codes[first : first + count]
        slot.weighted = chunk.weight is not None
        if chunk.weight is not None:
            slot.weight[at : at + count] = chunk.weight[first : first + count]
        slot.count += count
        return slot.features[at : at + count]

    def filled(self) -> None:
        """Hand the chunk over if it is full, now that what was taken is filled. Raises what the writer met."""
        if self.room == 0:
            self._hand_over()

    def finish(self) -> None:
        """Hand over the rest and wait until everything is written. Raises what the writer met."""
        if self._slot.count:
            self._hand_over()
        self._end()
        self._raise()

    def _end(self) -> None:
        """Let the writer thread come to its end, also where it has."""
        end_all([self._thread], lambda: self._full.put(None))

    def _hand_over(self) -> None:
        self._raise()
        self._full.put(self._slot)
        self._slot = self._free.get()
        self._slot.count = 0
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _write_all(self) -> None:
        written = 0
        while (slot := self._full.get()) is not None:
            try:
                if self._error is None:
                    self._write(slot)
                    written += 1
                    if written % JOURNAL_EVERY == 0 and slot.count == self._rows:
                        self._note()
            except BaseException as error:  # noqa: BLE001  carried to the thread that fills, which raises it
                self._error = error
            if slot.count == self._rows:  # the last, shorter chunk stays with the writer until it commits
                self._free.put(slot)
        self._free.put(_ChunkBuffer(0, 0, numeric=False))

    def _write(self, slot: _ChunkBuffer) -> None:
        weight = slot.weight[: slot.count] if slot.weighted else None
        self._writer.append(Dense(slot.features[: slot.count]), slot.codes[: slot.count], weight)

    def _note(self) -> None:
        self._journal["progress"] = self._writer.progress()
        durable.write_file(self._writer.directory / JOURNAL, json.dumps(self._journal).encode())


HEADROOM = 1.5
"""How far beyond the largest feature of a sample a column can go before it is clipped."""
SCALE_ROWS = 8192


def column_scale(projection: Projection, request: NystromRequest, store: Store) -> Float32:
    """Return the scale of each column for int8, at which 127 stands for a bit more than the largest feature in a sample
    of rows.

    Not of the landmarks: their features along small eigenvalues are far smaller than those of other rows.
    """
    features, most = Nystrom(projection, 0.0, factored=True), part_rows(len(projection.W))
    values, largest = np.empty((most, projection.rank), np.float32), np.zeros(projection.rank, np.float32)
    for chunk, rows, _ in chosen(
        store, draw_uniform_rows(store.layout.rows, SCALE_ROWS, request.seed + 1), request.inner
    ):
        for start in range(0, len(rows), most):
            part = take_rows(chunk.X, rows[start : start + most])
            found = values[: row_count(part)]
            features.write_features(part, found)
            np.maximum(largest, np.abs(found, out=found).max(axis=0), out=largest)
    return np.asarray(HEADROOM * np.maximum(largest, np.float32(1e-30)) / 127, np.float32)
