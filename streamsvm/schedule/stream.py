"""Which chunk is visited when and from what seed, and the threads that read chunks ahead in that order."""

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

from streamsvm.compute.random import permutation
from streamsvm.compute.threading import end_all, start_all
from streamsvm.errors import StorageError
from streamsvm.rows import Int32
from streamsvm.types import Buffers, Chunk, Layout, Store, Visit

POLL_SECONDS = 0.5
"""Seconds between two looks, while no block comes, at whether readers do anything."""
RUNNABLE = "R"
"""State of a thread that runs or waits for a processor."""
MOST_READERS = 8
"""Reader threads at most."""
CACHED_BYTES_PER_SECOND = 1.5e9
"""What is read faster than this came from memory, where a hint about the next chunk only costs: 0.1 ms for 4 MiB."""


def epoch_order(layout: Layout, seed: int, epoch: int, shuffled: bool) -> list[int]:
    """Return the chunks of one epoch in the order of their visits, each once."""
    chunks = len(layout.chunks)
    if not shuffled:
        return list(range(chunks))
    order: list[int] = np.random.default_rng((seed, epoch)).permutation(chunks).tolist()
    return order


def visit_seed(seed: int, epoch: int, chunk: int) -> int:
    """Return the seed of a visit: 32 bits from (seed, epoch, chunk)."""
    return int(np.random.SeedSequence((seed, epoch, chunk)).generate_state(1)[0])


def epoch_visits(layout: Layout, seed: int, epoch: int, shuffled: bool) -> Iterator[Visit]:
    """Yield the visits of one epoch."""
    order = epoch_order(layout, seed, epoch, shuffled)
    for position, chunk in enumerate(order):
        last = position == len(order) - 1
        yield Visit(epoch, chunk, visit_seed(seed, epoch, chunk), shuffled, last)


def visits(layout: Layout, seed: int, shuffled: bool, first: int = 0, skipped: int = 0) -> Iterator[Visit]:
    """Yield the visits of epoch after epoch without end, so that reading ahead does not stop between epochs.

    ``skipped``: the number of visits of epoch ``first`` that have been made already.
    """
    yield from islice(epoch_visits(layout, seed, first, shuffled), skipped, None)
    for epoch in count(first + 1):
        yield from epoch_visits(layout, seed, epoch, shuffled)


_Arrival = TypeVar("_Arrival")


class Loaded(NamedTuple):
    """A visit with its chunk in memory; valid until the next one is asked for.

    ``order`` may be rearranged where the visit is shuffled; it is read-only where it is not.
    """

    visit: Visit
    """Which chunk it is, and in which epoch."""
    chunk: Chunk
    """Its rows, in the buffers of a slot."""
    order: Int32
    """(n,) the order in which the rows are to be visited."""


@dataclass(slots=True)
class _Slot:
    """Memory for one block. ``ready`` gets the block made of it, or what went wrong."""

    buffers: Buffers
    order: Int32
    ready: queue.SimpleQueue[Loaded | BaseException] = field(default_factory=queue.SimpleQueue)


class Stream:
    """Iterates over visits with ``depth`` blocks read ahead (0: in the caller's thread). A context manager.

    A reader takes a free slot and the next visit, fetches the chunk, verifies it and hands the slot over; the consumer
    gives it back by asking for the next. Slots are handed over in the order of the visits, whoever filled them. A
    consumer that computes for longer than a block takes to read never wakes the other readers; for one that only waits
    the second is worth a factor of two, because reading a cached block and its checksum take about as long, and as many
    more as there are blocks to be read ahead are worth it where a block is long on its way, as from a disk on a
    network. Errors of a reader are raised on the consumer's side, in their place in the order. What is read, and in
    which order, is decided by the visits alone: ``depth`` changes when, never what.

    ``retain`` False tells the kernel to drop the pages of what was read: for stores larger than the page cache. Raises
    what the store raises; StorageError when nothing arrives and no reader does anything for ``deadline`` seconds: one
    that works, or waits for a processor, is waited for.
    """

    def __init__(
        self, store: Store, visits: Iterator[Visit], *, depth: int = 2, retain: bool = True, deadline: float = 60.0
    ) -> None:
        self._store, self._visits = store, visits
        self._depth, self._retain, self._deadline = depth, retain, deadline
        self._free: queue.SimpleQueue[_Slot | None] = queue.SimpleQueue()
        self.filled: queue.SimpleQueue[_Slot | None] = queue.SimpleQueue()
        """Slots in the order of their visits; None: there are no more visits."""
        self._turn = threading.Lock()
        self._upcoming: Visit | None = None
        self._from_disk = True
        chunk_bytes = store.layout.bytes_per_pass / max(1, len(store.layout.chunks))
        self._cached_seconds = chunk_bytes / CACHED_BYTES_PER_SECOND
        self._starving, self._stop = threading.Event(), threading.Event()
        self.readers: list[threading.Thread] = []
        """The threads that read ahead."""
        self._as_they_lie = np.arange(store.layout.largest_chunk, dtype=np.int32)
        self._as_they_lie.flags.writeable = False
        self.waited = 0.0
        """Seconds the consumer spent waiting for a reader."""

    def __enter__(self) -> Self:
        for _ in range(self._depth + 1):
            self._free.put(_Slot(self._store.buffers(), np.empty(self._store.layout.largest_chunk, np.int32)))
        if self._depth:
            self._upcoming = next(self._visits, None)
        for number in range(min(self._depth, MOST_READERS)):  # each has a slot to fill
            wanted = self._starving.wait if number else _return_true
            reader = threading.Thread(target=self._read_ahead, args=(wanted,), name="streamsvm-reader", daemon=True)
            self.readers.append(reader)
        start_all(self.readers, self._end)
        return self

    def __exit__(self, *outcome: object) -> None:
        self._end()

    def _end(self) -> None:
        end_all(self.readers, self._wake, self._deadline)

    def _wake(self) -> None:
        """Let readers see that it is over, whatever they wait for."""
        self._stop.set()
        self._starving.set()
        for _ in self.readers:
            self._free.put(None)

    def __iter__(self) -> Iterator[Loaded]:
        while (slot := self._next()) is not None:
            try:
                loaded = self._wait(slot.ready)
                if isinstance(loaded, BaseException):
                    raise loaded
                yield loaded
            finally:  # also when the caller stops iterating here, as ``epoch`` does
                self._free.put(slot)

    def epoch(self) -> Iterator[Loaded]:
        """The visits up to the end of the current epoch."""
        for loaded in self:
            yield loaded
            if loaded.visit.last:
                return

    def _next(self) -> _Slot | None:
        if self._depth == 0:
            slot, visit = self._free.get_nowait(), next(self._visits, None)  # free, or never to be
            if slot is None or visit is None:
                return None
            slot.ready.put(self._load(visit, slot))
            return slot
        return self._wait(self.filled)

    def _wait(self, arrivals: queue.SimpleQueue[_Arrival]) -> _Arrival:
        """The next of what arrives; while there is nothing, the other readers work too."""
        try:
            return arrivals.get_nowait()
        except queue.Empty:
            self._starving.set()
        began = time.perf_counter()
        try:
            return self._arrival(arrivals, began)
        finally:
            self._starving.clear()
            self.waited += time.perf_counter() - began

    def _arrival(self, arrivals: queue.SimpleQueue[_Arrival], began: float) -> _Arrival:
        activity, idle = ThreadActivity(self.readers), 0.0
        while idle < self._deadline:
            alive = any(reader.is_alive() for reader in self.readers)
            try:  # once more after their end: what they left is still to be delivered
                return arrivals.get(timeout=POLL_SECONDS if alive else 0.0)
            except queue.Empty:
                if not alive:
                    break
                idle = 0.0 if activity.has_run() else idle + POLL_SECONDS  # a process that was halted waits no longer
        raise StorageError(
            f"the reader of '{self._store.name}' delivered nothing for {time.perf_counter() - began:.0f} s",
            hint="check the disk and the network it is on, then run the same command again",
        )

    def _read_ahead(self, wanted: Callable[[], object]) -> None:
        while wanted() and (slot := self._free.get()) is not None and not self._stop.is_set():
            try:
                visit = self._take(slot)
                if visit is None:
                    return
                slot.ready.put(self._load(visit, slot))
            except BaseException as error:  # noqa: BLE001 (carried to the consumer, who raises it)
                slot.ready.put(error)
                return

    def _take(self, slot: _Slot) -> Visit | None:
        """The next visit, which is to be delivered in ``slot``; one after it on a disk is announced."""
        with self._turn:
            visit = self._upcoming
            self.filled.put(slot if visit is not None else None)
            if visit is not None:
                self._upcoming = next(self._visits, None)
                if self._upcoming is not None and self._from_disk:
                    self._store.expect(self._upcoming.chunk)
            return visit

    def _load(self, visit: Visit, slot: _Slot) -> Loaded:
        began = time.perf_counter()
        self._store.fetch(visit.chunk, slot.buffers)
        self._from_disk = time.perf_counter() - began > self._cached_seconds
        if not self._retain:
            self._store.forget(visit.chunk)
        chunk = self._store.check(visit.chunk, slot.buffers)
        order = (slot.order if visit.shuffled else self._as_they_lie)[: len(chunk.codes)]
        if visit.shuffled:
            permutation(order, visit.seed)
        return Loaded(visit, chunk, order)


def _return_true() -> bool:
    return True


class ThreadActivity:
    """Tells threads that hang from threads that wait for a processor, by the nanoseconds that the kernel counts.

    A clock cannot tell them apart on a busy machine, or after the process was stopped for a while. A thread that hangs sleeps, and
    its processor time does not change. A thread unknown to the kernel counts as one that does nothing.
    """

    def __init__(self, threads: Iterable[threading.Thread]) -> None:
        self._threads = list(threads)
        self._seen: dict[int, str] = {}

    def has_run(self) -> bool:
        """Return whether one of the threads has run, or is runnable, since the last call."""
        states = {
            thread.native_id: _state(thread.native_id) for thread in self._threads if thread.native_id is not None
        }
        runnable = any(state == RUNNABLE for state, _ in states.values())
        before, self._seen = self._seen, {number: spent for number, (_, spent) in states.items()}
        return runnable or before != self._seen


def _state(number: int) -> tuple[str, str]:
    """Return the state of a thread and its scheduler statistics; both empty if the kernel has none."""
    with suppress(OSError):
        place = Path(f"/proc/self/task/{number}")
        return place.joinpath("stat").read_text().rpartition(") ")[2][:1], place.joinpath("schedstat").read_text()
    return "", ""
