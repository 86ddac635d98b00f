"""A clock that jumps beyond every time limit at a given look: a fit is stopped wherever somebody asks what time it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

FAR = 1e7
"""Seconds: longer than any time limit."""


class Clock:
    """``time.perf_counter`` up to its look number ``at``, and FAR beyond from there on; 0: never."""

    def __init__(self, at: int) -> None:
        self.at, self.looks, self.original = at, 0, time.perf_counter

    def __call__(self) -> float:
        """The time of this look."""
        self.looks += 1
        return self.original() + (FAR if 0 < self.at <= self.looks else 0.0)


@contextmanager
def jumping(at: int) -> Iterator[Clock]:
    """Within it all who look at the clock look at such a one."""
    clock = Clock(at)
    setattr(time, "perf_counter", clock)  # noqa: B010  all modules look it up there
    try:
        yield clock
    finally:
        setattr(time, "perf_counter", clock.original)  # noqa: B010


def spread(looks: int, most: int) -> list[int]:
    """Return up to ``most`` looks: the first half of them one after the other, the rest evenly spread up to the last."""
    if looks <= most:
        return list(range(1, looks + 1))
    first = most // 2
    rest = range(1, most - first + 1)
    return [*range(1, first + 1), *(first + (looks - first) * k // (most - first) for k in rest)]
