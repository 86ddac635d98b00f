"""The threads of this process: how many may compute, how work is distributed to idle ones, and how they are started and
ended safely.

There is one count of cores, shared by threads that work on a group of chunks (``engine.executor``) and by threads that
work on a strip of rows (``in_strips``). Each strip writes its own rows, computed as if it were alone, so that results
do not depend on which threads were idle.

Code that starts threads waits for all of them before it returns, even if a signal handler raises in between
(``start_all``, ``end_all``). Otherwise a thread whose start was interrupted would use objects that its owner has
already closed.
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
MIN_TILES = 4
"""Minimum number of tiles for which a strip is worth a thread."""
STRIPS_BEFORE_RETRY = 4
"""If no thread is idle, one thread works on this many minimal strips before it checks for idle threads again."""
EXTRA_THREAD_BYTES = 64 << 20
"""Bytes that all threads beside the first may use together for one piece of in-memory work."""
MAX_POOL_THREADS = 1024
"""Largest size of the thread pool; threads are started only when they are needed."""


class _Postponed:
    """The action of a signal handler that is postponed while the main thread starts threads or waits for their end."""

    def __init__(self) -> None:
        self.depth = 0
        self.act: Callable[[], None] | None = None


_POSTPONED = _Postponed()


@contextmanager
def postpone_signals() -> Iterator[None]:
    """Postpone, in the main thread, the exceptions of signal handlers to the end of the context."""
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
    """Return whether signals are postponed now; if they are, ``act`` is called at the end of the postponement."""
    if _POSTPONED.depth:
        _POSTPONED.act = act
    return _POSTPONED.depth > 0


def start_all(threads: Iterable[threading.Thread], end: Callable[[], None]) -> None:
    """Start threads. If that fails or a signal handler raises, call ``end`` before raising the exception again."""
    try:
        with postpone_signals():
            for thread in threads:
                thread.start()
    except BaseException:
        end()
        raise


def end_all(threads: Iterable[threading.Thread], stop: Callable[[], None], seconds: float | None = None) -> None:
    """Call ``stop``, and wait until the started threads have ended, at most ``seconds`` for each."""
    with postpone_signals():
        stop()
        for thread in threads:
            if thread.is_alive():
                thread.join(seconds)


class Cores:
    """Counts the threads that may compute at the same time, and those that do. The calling thread counts as one."""

    def __init__(self, count: int) -> None:
        self.count = count
        """Number of threads that may compute at the same time."""
        self._busy = 1
        self._lock = threading.Lock()

    def borrow(self, count_wanted: int) -> int:
        """Return how many cores, up to ``count_wanted``, were idle and now belong to the caller until ``give_back`` is
        called.
        """
        with self._lock:
            granted = max(0, min(count_wanted, self.count - self._busy))
            self._busy += granted
            return granted

    def begin_in_child(self) -> None:
        """Reset the counts and the lock in a child process, which has one thread. The parent's lock may be held for
        ever.
        """
        self._busy, self._lock = 1, threading.Lock()

    def give_back(self, count: int) -> None:
        """Return ``count`` borrowed cores."""
        with self._lock:
            self._busy -= count


CORES = Cores(len(os.sched_getaffinity(0)))
"""The cores of this process."""


def threads() -> int:
    """Return the number of threads that may compute at the same time."""
    return CORES.count


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let ``count`` threads compute at the same time inside the context."""
    former, CORES.count = CORES.count, count
    try:
        yield
    finally:
        CORES.count = former


def in_strips(work: Callable[[int, int], None], rows: int, tile: int, least: int = MIN_TILES) -> None:
    """Call ``work(start, stop)`` for strips that cover [0, rows), in this thread and in idle ones.

    Boundaries are multiples of ``tile``; a strip for another thread has at least ``least`` tiles. ``work`` must release
    the interpreter's lock for most of its time. Raises the error of a strip.
    """
    start = 0
    while start < rows:
        tiles = -(-(rows - start) // tile)
        borrowed = CORES.borrow(tiles // least - 1)
        if borrowed:
            _run_on_borrowed_threads(work, start, rows, tile, borrowed)
            return
        stop = min(start + STRIPS_BEFORE_RETRY * least * tile, rows) if CORES.count > 1 else rows
        work(start, stop)
        start = stop


def _run_on_borrowed_threads(work: Callable[[int, int], None], start: int, stop: int, tile: int, borrowed: int) -> None:
    """Cover [start, stop) with one strip for this thread and one for each borrowed core, and give the cores back."""
    tiles, strips = -(-(stop - start) // tile), borrowed + 1
    edges = [start + tile * (tiles * k // strips) for k in range(strips)] + [stop]
    try:
        first_strip, *other_strips = pairwise(edges)
        with postpone_signals():
            others = [_pool().submit(work, *strip) for strip in other_strips]
        try:
            work(*first_strip)
        finally:  # always wait: the other strips write into arrays of the caller
            with postpone_signals():
                errors = [error for other in others if (error := other.exception()) is not None]
        for error in errors:
            raise error
    finally:
        CORES.give_back(borrowed)


def threads_that_fit(each: int) -> int:
    """Return how many threads may work at the same time on pieces of work that need ``each`` bytes of memory."""
    return max(1, min(CORES.count, 1 + EXTRA_THREAD_BYTES // max(1, each)))


def share_out(pieces: Iterator[T], work: Callable[[T], None], lanes: int) -> None:
    """Call ``work`` for each piece, on up to ``lanes`` threads (this one and idle ones), each of which takes the next
    piece when it is free.

    Raises the error of a piece after the other threads have finished the remaining pieces.
    """
    pieces_lock = threading.Lock()

    def run_lane(_start: int, _stop: int) -> None:
        while True:
            with pieces_lock:
                piece = list(islice(pieces, 1))
            if not piece:
                return
            work(piece.pop())

    in_strips(run_lane, lanes, 1, least=1)


def in_turn(make: Callable[[int, int], T], consume: Callable[[T], object], count: int, lanes: int) -> None:
    """Call ``consume(make(number, lane))`` for all numbers below ``count``.

    ``make`` is called on several threads (this one and idle ones) at the same time, each with another ``lane`` below
    ``lanes``. ``consume`` is called in the order of the numbers, one call at a time; the thread with the lowest number
    never waits. Raises the first error.
    """
    numbers, changed, consumed, failed = iter(range(count)), threading.Condition(), 0, False

    def process(number: int, lane: int) -> None:
        nonlocal consumed
        result = make(number, lane)
        with changed:
            changed.wait_for(lambda: consumed == number or failed)
        if not failed:
            consume(result)
            with changed:
                consumed += 1
                changed.notify_all()

    def work(lane: int, _stop: int) -> None:
        nonlocal failed
        try:
            while not failed and (number := next(numbers, None)) is not None:
                process(number, lane)
        except BaseException:
            with changed:
                failed = True
                changed.notify_all()
            raise

    in_strips(work, min(lanes, max(1, count)), 1, least=1)


def submit(work: Callable[[], T]) -> Future[T]:
    """Call ``work`` on a thread that does not count as a busy core, because it mostly waits for a disk."""
    with postpone_signals():  # it may start a thread
        return _pool().submit(work)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_POOL_THREADS, thread_name_prefix="strip")


def _begin_in_child() -> None:
    """Forget the pool in a child process, which has none of its threads and would wait for them for ever."""
    CORES.begin_in_child()
    _pool.cache_clear()


os.register_at_fork(after_in_child=_begin_in_child)
