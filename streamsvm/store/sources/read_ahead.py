"""Threads that read and parse in advance, while the caller works on earlier items.

``read_ahead`` runs an iterator in one thread, ``map_in_order`` applies a function to items in several threads, and
``BackgroundDigest`` computes the sha256 of a file while another library reads it.
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
"""The interval at which a thread that waits for room in the queue checks whether its items are still wanted."""


class _End:
    """The end marker of the queue, with the error that ended the iterator, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def read_ahead(items: Generator[T], depth: int = 2) -> Generator[T]:
    """Yield ``items``; a thread computes up to ``depth`` of them in advance.

    Errors of ``items`` are raised here. The thread closes ``items`` and ends when they end, or when this iterator is
    closed: callers must close it.
    """
    ready: queue.Queue[T | _End] = queue.Queue(depth)
    unwanted = Event()

    def compute_all() -> None:
        end = _End(None)
        try:
            with closing(items):
                for item in items:
                    if not put(item):
                        break
        except BaseException as error:  # noqa: BLE001  raised again in the caller's thread
            end = _End(error)
        put(end)

    def put(item: T | _End) -> bool:
        while not unwanted.is_set():
            try:
                ready.put(item, timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    thread = Thread(target=compute_all, name="streamsvm-source", daemon=True)
    try:
        start_all([thread], unwanted.set)
        while not isinstance(item := ready.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        end_all([thread], unwanted.set)


def map_in_order(function: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R]]:
    """Yield every item with the result of ``function``, in the order of the items. Idle threads compute results in
    advance: one more than there are such threads.

    The caller's thread iterates over ``items``, and also computes results while the next one to yield is not ready. If
    no thread is idle, it computes all of them. ``function`` must release the interpreter's lock most of the time; its
    errors are raised here, in the place of their item.
    """
    borrowed = CORES.borrow(CORES.count - 1)
    try:
        if not borrowed:
            yield from ((item, function(item)) for item in items)
            return
        with ThreadPoolExecutor(borrowed, thread_name_prefix="streamsvm-parse") as pool:
            pending: deque[tuple[T, Future[R]]] = deque()
            try:
                for item in items:
                    with postpone_signals():  # it may start a thread
                        pending.append((item, pool.submit(function, item)))
                    if len(pending) > borrowed + 1:
                        yield _pop_first(pending, function)
                while pending:
                    yield _pop_first(pending, function)
            finally:
                with postpone_signals():
                    pool.shutdown(cancel_futures=True)
    finally:
        CORES.give_back(borrowed)


def _pop_first(pending: deque[tuple[T, Future[R]]], function: Callable[[T], R]) -> tuple[T, R]:
    """Remove the first item and return it with its result; while another thread computes that, compute results of items
    that no thread has begun.
    """
    item, first = pending.popleft()
    if first.cancel():
        return item, function(item)
    for k, (later, future) in enumerate(pending):
        if first.done():
            break
        if future.cancel():
            pending[k] = later, _make_future(later, function)
    return item, first.result()


def _make_future(item: T, function: Callable[[T], R]) -> Future[R]:
    """Return a completed future with the result of ``function``, or with the error that it raised."""
    future: Future[R] = Future()
    try:
        future.set_result(function(item))
    except Exception as error:  # noqa: BLE001  raised in the place of its item
        future.set_exception(error)
    return future


class BackgroundDigest:
    """The sha256 of a file, computed by another thread; a context manager that stops the thread when the context ends.

    If the process may use one thread only, ``result`` computes it, after the rows were read.
    """

    def __init__(self, path: Path, compute: Callable[[Path, Event], str] = digest_of) -> None:
        self._unwanted = Event()
        self._work = partial(compute, path, self._unwanted)
        self._future: Future[str] | None = submit(self._work) if threads() > 1 else None

    def result(self) -> str:
        """Return the sha256 as hex digits. Raises MissingError, StorageError."""
        return self._work() if self._future is None else self._future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._unwanted.set()
