"""One reader thread, a ring of preallocated blocks, and no wait without a deadline.

The reader fills a free slot - chunk, checksum, visiting order - and hands it over; the consumer gives it back by asking
for the next one. Whatever goes wrong on the reader's side is raised on the consumer's. What is read, and in which
order, is decided by the visits alone: the depth of the ring changes when, never what.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streamsvm.compute.order import permutation
from streamsvm.errors import StorageError
from streamsvm.types import Buffers, Chunk, Int32, Store, Visit

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
        self._free: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.waited = 0.0

    def __enter__(self) -> Stream:
        for _ in range(self._depth + 1):
            self._free.put(_Slot(self._store.buffers(), np.empty(self._store.layout.largest_chunk, np.int32)))
        if self._depth:
            self._thread = threading.Thread(target=self._read_ahead, name="streamsvm-reader", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._deadline)

    def __iter__(self) -> Iterator[Loaded]:
        while True:
            loaded, slot = self._next()
            if loaded is None:
                return
            try:
                yield loaded
            finally:  # also when the caller stops iterating here, as ``epoch`` does
                self._free.put(slot)

    def epoch(self) -> Iterator[Loaded]:
        """The visits up to the end of the current epoch."""
        for loaded in self:
            yield loaded
            if loaded.visit.last:
                return

    def _next(self) -> tuple[Loaded | None, _Slot]:
        if self._depth == 0:
            slot = self._free.get()
            visit = next(self._visits, None)
            return (None if visit is None else self._load(visit, slot)), slot
        item = self._arrival()
        if isinstance(item, BaseException):
            raise item
        return item  # type: ignore[no-any-return]

    def _arrival(self) -> Any:
        waited = 0.0
        while waited < self._deadline:
            try:
                return self._full.get(timeout=POLL_SECONDS)
            except queue.Empty:
                waited += POLL_SECONDS
                if self._thread is None or not self._thread.is_alive():
                    break
        raise StorageError(
            f"the reader of '{self._store.name}' delivered nothing for {waited:.0f} s",
            hint="check the disk and the network it is on, then run the same command again",
        )

    def _read_ahead(self) -> None:
        try:
            upcoming = next(self._visits, None)
            while upcoming is not None and not self._stop.is_set():
                slot = self._take_slot()
                if slot is None:
                    return
                visit, upcoming = upcoming, next(self._visits, None)
                if upcoming is not None:
                    self._store.expect(upcoming.chunk)
                self._full.put((self._load(visit, slot), slot))
            self._full.put((None, None))
        except BaseException as error:  # carried to the consumer, who raises it
            self._full.put(error)

    def _take_slot(self) -> _Slot | None:
        while not self._stop.is_set():
            try:
                return self._free.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
        return None

    def _load(self, visit: Visit, slot: _Slot) -> Loaded:
        chunk = self._store.read(visit.chunk, slot.buffers)
        if not self._retain:
            self._store.forget(visit.chunk)
        order = slot.order[: len(chunk.codes)]
        if visit.shuffled:
            permutation(order, visit.seed)
        else:
            order[:] = np.arange(len(order), dtype=np.int32)
        return Loaded(visit, chunk, order)
