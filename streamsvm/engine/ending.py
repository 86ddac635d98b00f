"""What is told of a pass may ask the fit to end: it ends as at a time limit, with one more pass, which certifies.

The wish is one of the fit under way in this thread of control, whoever wraps what on the way to the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_WISHES: ContextVar[list[bool] | None] = ContextVar("wishes", default=None)


@contextmanager
def listening_for_end() -> Iterator[Callable[[], bool]]:
    """Give what says whether somebody has called ``end_fit`` since, for the fit that runs inside."""
    wishes: list[bool] = []
    token = _WISHES.set(wishes)
    try:
        yield lambda: bool(wishes)
    finally:
        _WISHES.reset(token)


def end_fit() -> None:
    """Ask the fit under way to end; without one nothing happens."""
    wishes = _WISHES.get()
    if wishes is not None:
        wishes.append(True)
