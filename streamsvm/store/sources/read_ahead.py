"""Reading ahead: what other threads make while the caller works on what came before.

``read_ahead`` has one thread that makes the items of an iterator, ``map_in_order`` has several that work on items that the
caller takes, and ``BackgroundDigest`` hashes a file that another library reads meanwhile.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self, TypeVar

from streamsvm.compute.threading import CORES, end_all, postpone_signals, start_all, submit, threads
from streamsvm.store.sources.byte_stream import digest_of

T = TypeVar("T")
R = TypeVar("R")
POLL_SECONDS = 0.2
"""How often a thread that waits for room in the queue checks whether its items are still wanted."""


class _End:
    """The last thing in the queue, with the error that ended the items."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def read_ahead(items: Generator[T], depth: int = 2) -> Generator[T]:
    """Yield ``items``, at most ``depth`` of them made in advance by a thread.

    What they raise is raised here. The thread closes the items and ends when they end, or when this iterator is closed:
    callers must close it.
    """
    made: queue.Queue[T | _End] = queue.Queue(depth)
    unwanted = Event()

    def make_all() -> None:
        end = _End(None)
        try:
            with closing(items):
                for item in items:
                    if not put(item):
                        break
        except BaseException as error:  # noqa: BLE001  raised again in the thread that asked
            end = _End(error)
        put(end)

    def put(item: T | _End) -> bool:
        while not unwanted.is_set():
            try:
                made.put(item, timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    thread = Thread(target=make_all, name="streamsvm-source", daemon=True)
    try:
        start_all([thread], unwanted.set)
        while not isinstance(item := made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        end_all([thread], unwanted.set)


def map_in_order(make: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R]]:
    """Yield every item with the result of ``make``, in the order of the items; idle threads compute some in advance,
    one each and one more.

    This thread takes the items, and computes some too as long as the next one to be yielded is not ready. ``make`` must
    release the interpreter's lock for most of its time. What it raises is raised here, in the place of its item.
    Without an idle thread all is computed here.
    """
    borrowed = CORES.borrow(CORES.count - 1)
    try:
        if not borrowed:
            yield from ((item, make(item)) for item in items)
            return
        with ThreadPoolExecutor(borrowed, thread_name_prefix="streamsvm-parse") as pool:
            waiting: deque[tuple[T, Future[R]]] = deque()
            try:
                for item in items:
                    with postpone_signals():  # it may start a thread
                        waiting.append((item, pool.submit(make, item)))
                    if len(waiting) > borrowed + 1:
                        yield _first(waiting, make)
                while waiting:
                    yield _first(waiting, make)
            finally:
                with postpone_signals():
                    pool.shutdown(cancel_futures=True)
    finally:
        CORES.give_back(borrowed)


def _first(waiting: deque[tuple[T, Future[R]]], make: Callable[[T], R]) -> tuple[T, R]:
    """Take the first item out; while another thread still works on it, compute those that nobody has begun."""
    item, found = waiting.popleft()
    if found.cancel():
        return item, make(item)
    for k, (later, future) in enumerate(waiting):
        if found.done():
            break
        if future.cancel():
            waiting[k] = later, _future_of(later, make)
    return item, found.result()


def _future_of(item: T, make: Callable[[T], R]) -> Future[R]:
    """Return a future that is done: the result of ``make``, or the error that it raised."""
    made: Future[R] = Future()
    try:
        made.set_result(make(item))
    except Exception as error:  # noqa: BLE001  raised in its place
        made.set_exception(error)
    return made


class BackgroundDigest:
    """The sha256 of a file, computed by another thread; a context manager, at whose end it is no longer wanted.

    Where there is one thread it is computed when it is asked for: at the end, as the rows come first.
    """

    def __init__(self, path: Path, make: Callable[[Path, Event], str] = digest_of) -> None:
        self._unwanted = Event()
        self._work = partial(make, path, self._unwanted)
        self._made: Future[str] | None = submit(self._work) if threads() > 1 else None

    def result(self) -> str:
        """Return the sha256 as hex digits. Raises MissingError, StorageError."""
        return self._work() if self._made is None else self._made.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._unwanted.set()
