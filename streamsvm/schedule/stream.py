"""One reader thread, a ring of preallocated blocks, and no wait without a deadline.

The reader fetches a chunk into a free slot and hands it over; the consumer gives the slot back by asking for the next.
Checksum and visiting order are made ready by whichever of the two is idle: by the reader while the consumer computes,
by the consumer while it would only wait. Whatever goes wrong on the reader's side is raised on the consumer's. What is
read, and in which order, is decided by the visits alone: the depth of the ring changes when, never what.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from streamsvm.compute.order import permutation
from streamsvm.errors import StorageError
from streamsvm.rows import Int32
from streamsvm.types import Buffers, Chunk, Store, Visit

POLL_SECONDS = 0.5


class Loaded(NamedTuple):
    """A visit with its chunk in memory; valid until the next one is asked for."""

    visit: Visit
    chunk: Chunk
    order: Int32


@dataclass(slots=True)
class _Slot:
    buffers: Buffers
    order: Int32


class Stream:
    """Iterates over visits with ``depth`` blocks read ahead (0: in the caller's thread). A context manager.

    ``retain`` False tells the kernel to drop the pages of what was read: for stores larger than the page cache.
    Raises what the store raises; StorageError when nothing arrives for ``deadline`` seconds.
    """

    def __init__(
        self, store: Store, visits: Iterator[Visit], *, depth: int = 2, retain: bool = True, deadline: float = 60.0
    ) -> None:
        self._store, self._visits = store, visits
        self._depth, self._retain, self._deadline = depth, retain, deadline
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._hungry = False
        self._thread: threading.Thread | None = None
        self._as_they_lie = np.arange(store.layout.largest_chunk, dtype=np.int32)
        self.waited = 0.0
        """Seconds the consumer spent waiting for the reader."""

    def __enter__(self) -> Self:
        for _ in range(self._depth + 1):
            self._free.put(_Slot(self._store.buffers(), np.empty(self._store.layout.largest_chunk, np.int32)))
        if self._depth:
            self._thread = threading.Thread(target=self._read_ahead, name="streamsvm-reader", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._free.put(None)  # wakes a reader that waits for a slot
        if self._thread is not None:
            self._thread.join(self._deadline)

    def __iter__(self) -> Iterator[Loaded]:
        while True:
            visit, slot, loaded = self._next()
            if visit is None:
                return
            try:
                yield loaded or self._prepare(visit, slot)
            finally:  # also when the caller stops iterating here, as ``epoch`` does
                self._free.put(slot)

    def epoch(self) -> Iterator[Loaded]:
        """The visits up to the end of the current epoch."""
        for loaded in self:
            yield loaded
            if loaded.visit.last:
                return

    def _next(self) -> Any:
        """The next visit with its slot and, if the reader had the time, what ``_prepare`` makes of them."""
        if self._depth == 0:
            slot, visit = self._free.get_nowait(), next(self._visits, None)  # free, or never to be
            if visit is not None:
                self._fetch(visit, slot)
            return visit, slot, None
        item = self._arrival()
        if isinstance(item, BaseException):
            raise item
        return item

    def _arrival(self) -> Any:
        try:
            return self._full.get_nowait()
        except queue.Empty:
            self._hungry = True
        began = time.perf_counter()
        try:
            return self._wait(began)
        finally:
            self._hungry = False
            self.waited += time.perf_counter() - began

    def _wait(self, began: float) -> Any:
        while time.perf_counter() - began < self._deadline:
            alive = self._thread is not None and self._thread.is_alive()
            try:  # once more after its end: what it left is still to be delivered
                return self._full.get(timeout=POLL_SECONDS if alive else 0.0)
            except queue.Empty:
                if not alive:
                    break
        raise StorageError(
            f"the reader of '{self._store.name}' delivered nothing for {time.perf_counter() - began:.0f} s",
            hint="check the disk and the network it is on, then run the same command again",
        )

    def _read_ahead(self) -> None:
        try:
            upcoming = next(self._visits, None)
            while upcoming is not None:
                slot = self._free.get()
                if self._stop.is_set():
                    return
                visit, upcoming = upcoming, next(self._visits, None)
                if upcoming is not None:
                    self._store.expect(upcoming.chunk)
                self._fetch(visit, slot)
                self._full.put((visit, slot, None if self._hungry else self._prepare(visit, slot)))
            self._full.put((None, None, None))
        except BaseException as error:  # noqa: BLE001 (carried to the consumer, who raises it)
            self._full.put(error)

    def _fetch(self, visit: Visit, slot: Any) -> None:
        self._store.fetch(visit.chunk, slot.buffers)
        if not self._retain:
            self._store.forget(visit.chunk)

    def _prepare(self, visit: Visit, slot: Any) -> Loaded:
        chunk = self._store.check(visit.chunk, slot.buffers)
        order = slot.order[: len(chunk.codes)]
        if visit.shuffled:
            permutation(order, visit.seed)
        else:
            order[:] = self._as_they_lie[: len(order)]
        return Loaded(visit, chunk, order)
