"""Choose the order in which chunks are visited and the seeds of the visits, and read chunks ahead in this order with
threads.

The number of a pass over the data is called ``epoch`` here, counted from 0.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import numpy as np

from streamsvm.compute.random import permutation, visit_seed
from streamsvm.compute.threading import end_all, start_all
from streamsvm.errors import StorageError
from streamsvm.object_store import MAX_IN_FLIGHT
from streamsvm.rows import Int32
from streamsvm.types import Buffers, Chunk, Layout, Store, Visit

POLL_SECONDS = 0.5
"""Seconds between two checks, while no block arrives, whether the reader threads are working."""
RUNNABLE = "R"
"""State of a thread that runs or waits for a processor."""
MAX_READERS = 8
"""Largest number of reader threads of a store on a disk."""
CACHED_BYTES_PER_SECOND = 1.5e9
"""A chunk that is read faster than this was in the page cache. The hint about the next chunk is then left out: it costs
0.1 ms for 4 MiB and gains nothing."""


def epoch_order(layout: Layout, seed: int, epoch: int, shuffled: bool) -> list[int]:
    """Return the numbers of all chunks in the order in which pass ``epoch`` visits them."""
    chunks = len(layout.chunks)
    if not shuffled:
        return list(range(chunks))
    order: list[int] = np.random.default_rng((seed, epoch)).permutation(chunks).tolist()
    return order


def epoch_visits(layout: Layout, seed: int, epoch: int, shuffled: bool) -> Iterator[Visit]:
    """Yield the visits of pass ``epoch``."""
    order = epoch_order(layout, seed, epoch, shuffled)
    for position, chunk in enumerate(order):
        last = position == len(order) - 1
        yield Visit(epoch, chunk, visit_seed(seed, epoch, chunk), shuffled, last)


def iterate_visits(layout: Layout, seed: int, shuffled: bool, first: int = 0, skipped: int = 0) -> Iterator[Visit]:
    """Yield the visits of one pass after another without end, so that reading ahead continues across the end of a pass.

    ``first``: the number of the first pass. ``skipped``: the number of visits of this pass that were made already.
    """
    yield from islice(epoch_visits(layout, seed, first, shuffled), skipped, None)
    for epoch in count(first + 1):
        yield from epoch_visits(layout, seed, epoch, shuffled)


_Arrival = TypeVar("_Arrival")


class LoadedChunk(NamedTuple):
    """A visit with its chunk in memory; valid until the next visit is requested.

    ``order`` may be rearranged if the visit is shuffled; otherwise it is read-only.
    """

    visit: Visit
    chunk: Chunk
    """The rows, in the buffers of the stream."""
    order: Int32
    """(n,) the order in which to visit the rows."""


@dataclass(slots=True)
class _Slot:
    """Memory for one chunk. The reader that fills it puts the loaded chunk, or its error, into ``ready``."""

    buffers: Buffers
    order: Int32
    ready: queue.SimpleQueue[LoadedChunk | BaseException] = field(default_factory=queue.SimpleQueue)


class Stream:
    """Iterates over visits, with ``depth`` chunks read ahead (0: read in the caller's thread). A context manager.

    A reader takes a free slot and the next visit, fetches the chunk, verifies it and delivers the slot. The consumer
    returns the slot when it requests the next one. Slots are delivered in the order of the visits, whichever reader
    filled them.

    All readers of a store in an object store always work: the latency of a request is much longer than its transfer. Otherwise
    the first reader always works; the others work only while the consumer waits. A consumer that computes for longer
    than a chunk takes to read therefore never wakes them. For a consumer that only waits, the second reader gives a
    factor of two, because reading a cached chunk takes about as long as its checksum. Further readers help if reads
    have a high latency, as from a network disk.

    An error of a reader is raised in the consumer, at its place in the order. The visits alone determine what is read
    and in which order; ``depth`` changes only when it is read.

    ``retain`` False: ask the kernel to drop the pages that were read, for stores larger than the page cache. Raises
    what the store raises, and StorageError if nothing arrives for ``max_idle_seconds`` in which no reader works or
    waits for a processor.
    """

    def __init__(
        self,
        store: Store,
        visits: Iterator[Visit],
        *,
        depth: int = 2,
        retain: bool = True,
        max_idle_seconds: float = 60.0,
    ) -> None:
        self._store, self._visits = store, visits
        self._depth, self._retain, self._max_idle_seconds = depth, retain, max_idle_seconds
        self._free: queue.SimpleQueue[_Slot | None] = queue.SimpleQueue()
        self.filled: queue.SimpleQueue[_Slot | None] = queue.SimpleQueue()
        """Slots in the order of their visits; None after the last visit."""
        self._visits_lock = threading.Lock()
        self._upcoming: Visit | None = None
        self._from_disk = True
        chunk_bytes = store.layout.bytes_per_pass / max(1, len(store.layout.chunks))
        self._cached_seconds = chunk_bytes / CACHED_BYTES_PER_SECOND
        self._consumer_waits, self._stop = threading.Event(), threading.Event()
        self.readers: list[threading.Thread] = []
        """The threads that read ahead."""
        self._stored_order = np.arange(store.layout.largest_chunk, dtype=np.int32)
        self._stored_order.flags.writeable = False
        self.seconds_waited = 0.0
        """Seconds that the consumer has waited for readers."""

    def __enter__(self) -> Self:
        for _ in range(self._depth + 1):
            self._free.put(_Slot(self._store.buffers(), np.empty(self._store.layout.largest_chunk, np.int32)))
        if self._depth:
            self._upcoming = next(self._visits, None)
        remote = self._store.layout.remote
        for number in range(min(self._depth, MAX_IN_FLIGHT if remote else MAX_READERS)):  # each has a slot to fill
            may_read = self._consumer_waits.wait if number and not remote else _return_true
            reader = threading.Thread(target=self._read_ahead, args=(may_read,), name="streamsvm-reader", daemon=True)
            self.readers.append(reader)
        start_all(self.readers, self._end)
        return self

    def __exit__(self, *outcome: object) -> None:
        self._end()

    def _end(self) -> None:
        end_all(self.readers, self._wake, self._max_idle_seconds)

    def _wake(self) -> None:
        """Ask readers to end, and wake those that wait."""
        self._stop.set()
        self._consumer_waits.set()
        for _ in self.readers:
            self._free.put(None)

    def __iter__(self) -> Iterator[LoadedChunk]:
        while (slot := self._next()) is not None:
            try:
                loaded = self._wait(slot.ready)
                if isinstance(loaded, BaseException):
                    raise loaded
                yield loaded
            finally:  # also when the caller stops iterating here, as ``epoch`` does
                self._free.put(slot)

    def epoch(self) -> Iterator[LoadedChunk]:
        """Yield the visits up to the end of the current pass."""
        for loaded in self:
            yield loaded
            if loaded.visit.last:
                return

    def _next(self) -> _Slot | None:
        if self._depth == 0:
            slot, visit = self._free.get_nowait(), next(self._visits, None)  # the only slot is always free here
            if slot is None or visit is None:
                return None
            slot.ready.put(self._load(visit, slot))
            return slot
        return self._wait(self.filled)

    def _wait(self, arrivals: queue.SimpleQueue[_Arrival]) -> _Arrival:
        """Return the next item of a queue; while the queue is empty, let all readers work."""
        try:
            return arrivals.get_nowait()
        except queue.Empty:
            self._consumer_waits.set()
        began = time.perf_counter()
        try:
            return self._wait_for_reader(arrivals, began)
        finally:
            self._consumer_waits.clear()
            self.seconds_waited += time.perf_counter() - began

    def _wait_for_reader(self, arrivals: queue.SimpleQueue[_Arrival], began: float) -> _Arrival:
        activity, idle_seconds = ThreadActivity(self.readers), 0.0
        while idle_seconds < self._max_idle_seconds:
            alive = any(reader.is_alive() for reader in self.readers)
            try:  # when all readers have ended, look once more for what they have delivered
                return arrivals.get(timeout=POLL_SECONDS if alive else 0.0)
            except queue.Empty:
                if not alive:
                    break
                # Counted in polls and not by a clock, so that time in which the process was stopped does not count.
                idle_seconds = 0.0 if activity.has_run() else idle_seconds + POLL_SECONDS
        raise StorageError(
            f"the reader of '{self._store.name}' delivered nothing for {time.perf_counter() - began:.0f} s",
            hint="check the disk and the network it is on, then run the same command again",
        )

    def _read_ahead(self, may_read: Callable[[], object]) -> None:
        while may_read() and (slot := self._free.get()) is not None and not self._stop.is_set():
            try:
                visit = self._take_visit(slot)
                if visit is None:
                    return
                slot.ready.put(self._load(visit, slot))
            except BaseException as error:  # noqa: BLE001 (raised again in the consumer)
                slot.ready.put(error)
                return

    def _take_visit(self, slot: _Slot) -> Visit | None:
        """Return the next visit, to be loaded into ``slot``. If chunks are read from disk, give the store a hint about
        the next chunk.
        """
        with self._visits_lock:
            visit = self._upcoming
            self.filled.put(slot if visit is not None else None)
            if visit is not None:
                self._upcoming = next(self._visits, None)
                if self._upcoming is not None and self._from_disk:
                    self._store.expect(self._upcoming.chunk)
            return visit

    def _load(self, visit: Visit, slot: _Slot) -> LoadedChunk:
        began = time.perf_counter()
        self._store.fetch(visit.chunk, slot.buffers)
        self._from_disk = time.perf_counter() - began > self._cached_seconds
        if not self._retain:
            self._store.forget(visit.chunk)
        chunk = self._store.check(visit.chunk, slot.buffers)
        order = (slot.order if visit.shuffled else self._stored_order)[: len(chunk.codes)]
        if visit.shuffled:
            permutation(order, visit.seed)
        return LoadedChunk(visit, chunk, order)


def _return_true() -> bool:
    return True


class ThreadActivity:
    """Distinguishes threads that hang from threads that wait for a processor, by the kernel's scheduler statistics.

    A clock cannot distinguish them on a busy machine, or after the process was stopped for a while. A thread that hangs
    is asleep, and its processor time does not change. A thread that the kernel does not know counts as idle.
    """

    def __init__(self, threads: Iterable[threading.Thread]) -> None:
        self._threads = list(threads)
        self._last_statistics: dict[int, str] = {}

    def has_run(self) -> bool:
        """Return whether one of the threads has run, or is runnable, since the last call."""
        states = {
            thread.native_id: _read_thread_state(thread.native_id)
            for thread in self._threads
            if thread.native_id is not None
        }
        runnable = any(state == RUNNABLE for state, _ in states.values())
        statistics = {number: schedstat for number, (_, schedstat) in states.items()}
        before, self._last_statistics = self._last_statistics, statistics
        return runnable or before != statistics


def _read_thread_state(native_id: int) -> tuple[str, str]:
    """Return the state of a thread and its scheduler statistics; both empty if the kernel has none."""
    with suppress(OSError):
        folder = Path(f"/proc/self/task/{native_id}")
        return folder.joinpath("stat").read_text().rpartition(") ")[2][:1], folder.joinpath("schedstat").read_text()
    return "", ""
