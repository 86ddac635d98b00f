"""Runs that are stopped after so many calls of a method, as a signal would stop them, and go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from streamsvm.engine.signals import interruption
from streamsvm.errors import InterruptedRun

SIGNAL = "SIGTEST"
"""The name of the signal that was never sent."""


class Calls:
    """How often a method was called, and at which call the run is asked to stop; 0: at none."""

    def __init__(self, at: int) -> None:
        self.at, self.made, self._lock = at, 0, Lock()

    def count(self) -> None:
        """One more; threads may make them at once."""
        with self._lock:
            self.made += 1
            if self.made == self.at:
                interruption.name = SIGNAL


@contextmanager
def stopping(kind: type, method: str, at: int) -> Iterator[Calls]:
    """Within it a run is asked to stop once ``kind.method`` was called ``at`` times; afterwards nothing has been asked."""
    original, calls = getattr(kind, method), Calls(at)

    def counted(*arguments: Any) -> Any:
        found = original(*arguments)
        calls.count()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, method, counted)
        try:
            yield calls
        finally:
            interruption.name = ""


def goes_on_to_the_same_bytes(fitted: Callable[..., Any], models: Path, kind: type, method: str, at: int) -> None:
    """Assert that a run, ``fitted(model, **more)``, which is stopped there and resumed writes the bytes of one that was not."""
    whole, cut = models / "whole", models / "cut"
    fitted(whole)
    with stopping(kind, method, at), pytest.raises(InterruptedRun, match=f"{SIGNAL}: checkpoint saved"):
        fitted(cut)
    fitted(cut, resume=True)
    assert cut.read_bytes() == whole.read_bytes()
