"""Threads that belong to somebody: who starts them waits for all of them before it goes, whatever a signal raises in between.

A thread whose start was interrupted is one that nobody waits for: it goes on with what its owner closes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class _Postponed:
    """What a signal has to say to the main thread while that starts threads or waits for their end."""

    def __init__(self) -> None:
        self.depth = 0
        self.act: Callable[[], None] | None = None


_POSTPONED = _Postponed()


@contextmanager
def undisturbed() -> Iterator[None]:
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


def postponed(act: Callable[[], None]) -> bool:
    """Whether the main thread must not be disturbed now; then it calls ``act`` itself as soon as it may be."""
    if _POSTPONED.depth:
        _POSTPONED.act = act
    return _POSTPONED.depth > 0


def start_all(threads: Iterable[threading.Thread], end: Callable[[], None]) -> None:
    """Start threads as they are taken; where that fails, or a signal came meanwhile, ``end`` is called before it is raised."""
    try:
        with undisturbed():
            for thread in threads:
                thread.start()
    except BaseException:
        end()
        raise


def end_all(threads: Iterable[threading.Thread], stop: Callable[[], None], seconds: float | None = None) -> None:
    """Tell threads to stop, and wait until those that were started have ended, for each as many seconds at most."""
    with undisturbed():
        stop()
        for thread in threads:
            if thread.is_alive():
                thread.join(seconds)
