"""What several threads make of items, in the order of the items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from streamsvm.compute.owned_threads import undisturbed
from streamsvm.compute.threading import CORES

T = TypeVar("T")
R = TypeVar("R")


def in_order(make: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R]]:
    """Yield every item with what ``make`` makes of it. Idle threads make some in advance, one each and one more.

    This thread, which takes the items, makes some too as long as the next one to be yielded is not ready. What ``make`` calls must
    give up the interpreter's lock for most of its time. What it raises is raised here, in the place of its item; where no thread is
    idle, all is made here.
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
                    with undisturbed():  # it may start a thread
                        waiting.append((item, pool.submit(make, item)))
                    if len(waiting) > borrowed + 1:
                        yield _first(waiting, make)
                while waiting:
                    yield _first(waiting, make)
            finally:
                with undisturbed():
                    pool.shutdown(cancel_futures=True)
    finally:
        CORES.give_back(borrowed)


def _first(waiting: deque[tuple[T, Future[R]]], make: Callable[[T], R]) -> tuple[T, R]:
    """Take the first item out; while another thread still makes it, make those that nobody has begun."""
    item, found = waiting.popleft()
    if found.cancel():
        return item, make(item)
    for k, (later, future) in enumerate(waiting):
        if found.done():
            break
        if future.cancel():
            waiting[k] = later, _made_of(later, make)
    return item, found.result()


def _made_of(item: T, make: Callable[[T], R]) -> Future[R]:
    """What ``make`` makes of an item, or what it raises, for when it is the item's turn."""
    made: Future[R] = Future()
    try:
        made.set_result(make(item))
    except Exception as error:  # noqa: BLE001  raised in its place
        made.set_exception(error)
    return made
