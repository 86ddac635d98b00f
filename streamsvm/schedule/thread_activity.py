"""Whether threads of this process do anything, as the kernel counts it: nanoseconds on a processor, and who waits for one.

A clock cannot tell a thread that hangs from one that a busy machine leaves no processor, or whose process was halted for a
while. A thread that hangs is asleep, and the processor time it had does not change.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

RUNNABLE = "R"
"""The state of a thread that runs, or would if there were a processor for it."""


class ThreadActivity:
    """Watches threads; one that the kernel says nothing of seems to do nothing."""

    def __init__(self, threads: Iterable[threading.Thread]) -> None:
        self._threads = list(threads)
        self._seen: dict[int, str] = {}

    def seen(self) -> bool:
        """Whether one of them has run, or wants to run, since this was asked last."""
        states = {
            thread.native_id: _state(thread.native_id) for thread in self._threads if thread.native_id is not None
        }
        runnable = any(state == RUNNABLE for state, _ in states.values())
        before, self._seen = self._seen, {number: spent for number, (_, spent) in states.items()}
        return runnable or before != self._seen


def _state(number: int) -> tuple[str, str]:
    """The state of a thread, by its number in the kernel, and what it has spent; both empty where that is not told."""
    with suppress(OSError):
        place = Path(f"/proc/self/task/{number}")
        return place.joinpath("stat").read_text().rpartition(") ")[2][:1], place.joinpath("schedstat").read_text()
    return "", ""
