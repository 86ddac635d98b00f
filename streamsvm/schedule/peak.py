"""The most memory a process has in use while something is done, as who watches it from outside sees it.

Blocks that are unpacked come and go between any two moments at which the work itself could look: a thread of its own looks
instead. Linux keeps a peak of resident pages (VmHWM), but files that are mapped count in it.
"""

from __future__ import annotations

import threading
from typing import Self

from streamsvm.compute.threading import end_all, start_all
from streamsvm.schedule.budget import anonymous_bytes

LOOK_SECONDS = 0.02
"""Between two looks, each of which takes some ten microseconds."""


class PeakWatch:
    """Watches this process while it is entered; several may do so at once."""

    def __init__(self) -> None:
        self._most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="streamsvm-peak", daemon=True)

    @property
    def most(self) -> int:
        """The most bytes of anonymous memory that were in use so far, counting now."""
        self._most = max(self._most, anonymous_bytes())
        return self._most

    def __enter__(self) -> Self:
        start_all([self._thread], self._ended.set)
        return self

    def __exit__(self, *outcome: object) -> None:
        end_all([self._thread], self._ended.set)

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._most = self.most
