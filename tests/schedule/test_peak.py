"""The peak of a job is what a watcher from outside sees, whatever comes and goes between two looks of the work itself."""

from __future__ import annotations

import threading
import time
from typing import Self

import numpy as np
import pytest

from streamsvm import __version__
from streamsvm.cluster import dask_executor
from streamsvm.engine.group_tasks import PartialResult
from streamsvm.schedule.machine import PeakWatch, anonymous_bytes

SIZE = 48 << 20
PATIENCE = 120.0
"""Seconds for a thread to look once."""


class Watch(PeakWatch):
    """A watch that tells what its thread has seen."""

    last: Watch

    def __enter__(self) -> Self:
        Watch.last = self
        return super().__enter__()

    @property
    def seen(self) -> int:
        """The peak its thread has measured; ``peak`` would measure now."""
        return self._peak


def _come_and_gone(size: int) -> PartialResult:
    """Hold so many bytes until the last watch has seen them, and give them back."""
    held, until = np.ones(size, np.uint8), time.monotonic() + PATIENCE
    now = anonymous_bytes()
    while Watch.last.seen < now - (1 << 20) and time.monotonic() < until:
        time.sleep(0.005)
    del held
    assert anonymous_bytes() < now - size // 2
    return PartialResult(0, 1, [], peak=1)


def test_peak_memory_what_comes_and_goes_is_seen() -> None:
    before = anonymous_bytes()
    with Watch() as watch:
        _come_and_gone(SIZE)
    assert watch.peak >= before + SIZE // 2


def test_peak_memory_thread_ends_with_the_watch() -> None:
    with PeakWatch():
        assert [thread for thread in threading.enumerate() if thread.name == "streamsvm-peak"]
    assert not [thread for thread in threading.enumerate() if thread.name == "streamsvm-peak"]


def test_peak_memory_worker_tells_what_a_task_took_with_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = anonymous_bytes()
    monkeypatch.setattr(dask_executor, "PeakWatch", Watch)
    assert dask_executor.run_task(_come_and_gone, __version__, SIZE).peak >= before + SIZE // 2
    assert dask_executor.run_task(len, __version__, "abc") == 3
