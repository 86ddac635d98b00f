"""Work that another thread does while the caller goes on: one piece at a time, in the order in which it was handed over."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from streamsvm.compute import threading


@dataclass(slots=True)
class Background:
    """Hands work to a thread. What went wrong there is raised where the next piece is handed over, or waited for."""

    _last: Future[None] | None = None

    def call(self, work: Callable[[], None]) -> None:
        """Have ``work`` called as soon as what was handed over before is done, which is waited for."""
        self.wait()
        self._last = threading.submit(work)

    def wait(self) -> None:
        """Wait until nothing is under way."""
        if self._last is not None:
            error = self._last.exception()  # where a signal ends this, the work is still waited for by the next one
            self._last = None
            if error is not None:
                raise error
