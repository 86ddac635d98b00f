"""What idle threads make of items, in the order of the items."""

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

    What ``make`` calls must give up the interpreter's lock for most of its time. What it raises is raised here, in the place
    of its item; where no thread is idle, all is made here.
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
                        yield _first(waiting)
                while waiting:
                    yield _first(waiting)
            finally:
                with undisturbed():
                    pool.shutdown(cancel_futures=True)
    finally:
        CORES.give_back(borrowed)


def _first(waiting: deque[tuple[T, Future[R]]]) -> tuple[T, R]:
    item, found = waiting.popleft()
    return item, found.result()
