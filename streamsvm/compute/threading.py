"""The threads of this process: how many may compute, sharing rows out among idle ones, and starting and ending them safely.

One number of cores holds for all: for a thread that works on a group of chunks (``engine.executor``) and for one that works on a
strip of rows here. A strip writes rows of its own, computed as they would be alone, so that results do not depend on
which thread was idle.

Whoever starts threads waits for all of them before it returns, even when a signal handler raises in between (``start_all``, ``end_all``):
a thread whose start was interrupted would use what its owner has closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import islice, pairwise
from typing import TypeVar

T = TypeVar("T")
TILES = 4
"""Tiles that a strip must have at least to be worth a thread."""
PATIENCE = 4
"""Strips that are worth a thread which one thread does alone before it looks again whether others have become idle."""
SIDE_BYTES = 64 << 20
"""Bytes that threads beside the first may hold together for one piece of work in memory."""
MOST_POOLED = 1024
"""Threads the pool of strips may come to have; no more are started than ever work at once."""


class _Postponed:
    """What a signal has to say to the main thread while that starts threads or waits for their end."""

    def __init__(self) -> None:
        self.depth = 0
        self.act: Callable[[], None] | None = None


_POSTPONED = _Postponed()


@contextmanager
def postpone_signals() -> Iterator[None]:
    """Let no signal raise anything as long as this lasts, in the main thread; what one has to raise is raised at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _POSTPONED.depth += 1
    try:
        yield
    finally:
        _POSTPONED.depth -= 1
        if _POSTPONED.depth == 0 and _POSTPONED.act is not None:
            act, _POSTPONED.act = _POSTPONED.act, None
            act()


def postpone(act: Callable[[], None]) -> bool:
    """Whether the main thread must not be disturbed now; then it calls ``act`` itself as soon as it may be."""
    if _POSTPONED.depth:
        _POSTPONED.act = act
    return _POSTPONED.depth > 0


def start_all(threads: Iterable[threading.Thread], end: Callable[[], None]) -> None:
    """Start threads as they are taken; where that fails, or a signal came meanwhile, ``end`` is called before it is raised."""
    try:
        with postpone_signals():
            for thread in threads:
                thread.start()
    except BaseException:
        end()
        raise


def end_all(threads: Iterable[threading.Thread], stop: Callable[[], None], seconds: float | None = None) -> None:
    """Tell threads to stop, and wait until those that were started have ended, for each as many seconds at most."""
    with postpone_signals():
        stop()
        for thread in threads:
            if thread.is_alive():
                thread.join(seconds)


class Cores:
    """Threads that may work at a time, and those that do. The one that calls is one of them."""

    def __init__(self, count: int) -> None:
        self.count = count
        """How many may work at a time."""
        self._busy = 1
        self._lock = threading.Lock()

    def borrow(self, wanted: int) -> int:
        """Return how many of ``wanted`` threads were idle; they are taken until they are given back."""
        with self._lock:
            found = max(0, min(wanted, self.count - self._busy))
            self._busy += found
            return found

    def begin_in_child(self) -> None:
        """Begin anew in a child of this process, which has one thread, and perhaps a lock that nobody will release."""
        self._busy, self._lock = 1, threading.Lock()

    def give_back(self, taken: int) -> None:
        """Say that so many threads that were borrowed are idle again."""
        with self._lock:
            self._busy -= taken


CORES = Cores(len(os.sched_getaffinity(0)))
"""Those of this process."""


def threads() -> int:
    """Return how many threads may work at a time."""
    return CORES.count


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let ``count`` threads work at a time, as long as this lasts."""
    before, CORES.count = CORES.count, count
    try:
        yield
    finally:
        CORES.count = before


def in_strips(work: Callable[[int, int], None], rows: int, tile: int, least: int = TILES) -> None:
    """Call ``work(start, stop)`` so that all of [0, rows) is covered; boundaries are multiples of ``tile``, ``least`` tiles are worth a thread.

    What ``work`` calls must give up the interpreter's lock for most of its time. An error in a strip is raised here.
    """
    start = 0
    while start < rows:
        tiles = -(-(rows - start) // tile)
        borrowed = CORES.borrow(tiles // least - 1)
        if borrowed:
            _side_by_side(work, start, rows, tile, borrowed)
            return
        alone = min(start + PATIENCE * least * tile, rows) if CORES.count > 1 else rows
        work(start, alone)
        start = alone


def _side_by_side(work: Callable[[int, int], None], start: int, stop: int, tile: int, borrowed: int) -> None:
    """Cover [start, stop) in as many strips as there are threads, ``borrowed`` ones and this one, and give those back."""
    tiles, strips = -(-(stop - start) // tile), borrowed + 1
    edges = [start + tile * (tiles * k // strips) for k in range(strips)] + [stop]
    try:
        mine, *theirs = pairwise(edges)
        with postpone_signals():
            others = [_pool().submit(work, *span) for span in theirs]
        try:
            work(*mine)
        finally:  # what others still do writes into arrays of the caller
            with postpone_signals():
                errors = [error for other in others if (error := other.exception()) is not None]
        for error in errors:
            raise error
    finally:
        CORES.give_back(borrowed)


def lanes(each: int) -> int:
    """Return how many pieces of work that hold ``each`` bytes may be under way at a time."""
    return max(1, min(CORES.count, 1 + SIDE_BYTES // max(1, each)))


def share_out(pieces: Iterator[T], work: Callable[[T], None], lanes: int) -> None:
    """Call ``work`` on each piece; up to ``lanes`` threads, this one and idle ones, take the next piece as they are free.

    An error is raised here, when the others are done with what there is.
    """
    turn = threading.Lock()

    def lane(_start: int, _stop: int) -> None:
        while True:
            with turn:
                found = list(islice(pieces, 1))
            if not found:
                return
            work(found.pop())

    in_strips(lane, lanes, 1, least=1)


def in_turn(make: Callable[[int, int], T], take: Callable[[T], object], count: int, lanes: int) -> None:
    """Call ``take(make(number, lane))`` for the numbers below ``count``: what is made side by side is taken in order, one at a time.

    ``make`` is called by this thread and by idle ones; those that are at work at a time have different lanes below ``lanes``. Who has the
    lowest number waits for nobody. An error is raised here.
    """
    left, changed, taken, failed = iter(range(count)), threading.Condition(), 0, False

    def one(number: int, lane: int) -> None:
        nonlocal taken
        found = make(number, lane)
        with changed:
            changed.wait_for(lambda: taken == number or failed)
        if not failed:
            take(found)
            with changed:
                taken += 1
                changed.notify_all()

    def work(lane: int, _stop: int) -> None:
        nonlocal failed
        try:
            while not failed and (number := next(left, None)) is not None:
                one(number, lane)
        except BaseException:
            with changed:
                failed = True
                changed.notify_all()
            raise

    in_strips(work, min(lanes, max(1, count)), 1, least=1)


def submit(work: Callable[[], T]) -> Future[T]:
    """Have a thread call ``work`` beside those that are counted: what waits for a disk most of its time."""
    with postpone_signals():  # it may start a thread
        return _pool().submit(work)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_POOLED, thread_name_prefix="strip")


def _begin_in_child() -> None:
    """The child of a process has none of its threads: a pool of them would be waited for without end."""
    CORES.begin_in_child()
    _pool.cache_clear()


os.register_at_fork(after_in_child=_begin_in_child)
