"""An iterator whose items are made by a thread while the caller works on the one before."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator
from contextlib import closing
from typing import TypeVar

from streamsvm.compute.owned_threads import end_all, start_all

T = TypeVar("T")
POLL_SECONDS = 0.2
"""How soon the thread notices that nobody wants its items any more, in seconds."""


class _End:
    """The last thing in the queue, with the error the items ended with."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Generator[T], depth: int = 2) -> Generator[T]:
    """Yield ``items``, at most ``depth`` of them made in advance by a thread.

    What they raise is raised here. The thread ends when the items do, or when this iterator is closed, which its user has
    to see to; it closes the items.
    """
    made: queue.Queue[T | _End] = queue.Queue(depth)
    unwanted = threading.Event()
    thread = threading.Thread(target=_make, args=(items, made, unwanted), name="streamsvm-source", daemon=True)
    try:
        start_all([thread], unwanted.set)
        while not isinstance(item := made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        end_all([thread], unwanted.set)


def _make(items: Generator[T], made: queue.Queue[T | _End], unwanted: threading.Event) -> None:
    end = _End(None)
    try:
        with closing(items):
            for item in items:
                if not _put(made, item, unwanted):
                    break
    except BaseException as error:  # noqa: BLE001  raised again in the thread that asked
        end = _End(error)
    _put(made, end, unwanted)


def _put(made: queue.Queue[T | _End], item: T | _End, unwanted: threading.Event) -> bool:
    while not unwanted.is_set():
        try:
            made.put(item, timeout=POLL_SECONDS)
        except queue.Full:
            continue
        return True
    return False
