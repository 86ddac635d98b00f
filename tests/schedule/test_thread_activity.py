"""Whether a thread does anything: one that computes does, one that waits does not, and neither does one that is gone."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from streamsvm.schedule import thread_activity
from streamsvm.schedule.thread_activity import ThreadActivity


def test_a_thread_that_waits_does_nothing_and_one_that_goes_on_does() -> None:
    goes_on, reached = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        goes_on.wait(60)
        reached.release()
        goes_on.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    activity = ThreadActivity([thread])
    while activity.seen():  # until it waits
        pass
    assert not activity.seen()
    goes_on.set()
    assert reached.acquire(timeout=60)
    assert activity.seen()
    thread.join()


@pytest.mark.parametrize(("states", "seen"), [("SSSS", [True, False, False]), ("SRRS", [True, True, True])])
def test_one_that_waits_for_a_processor_is_at_work(
    states: str, seen: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given none meanwhile: what it has spent is what it was."""
    told = iter(states)
    monkeypatch.setattr(thread_activity, "_state", lambda _: (next(told), "5 0 1"))
    activity = ThreadActivity([threading.main_thread()])
    assert [activity.seen() for _ in seen] == seen


def test_threads_that_are_gone_do_nothing() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    while Path(f"/proc/self/task/{thread.native_id}").exists():  # Python is through with it before the kernel is
        time.sleep(0.001)
    activity = ThreadActivity([thread, threading.Thread()])
    activity.seen()
    assert not activity.seen()
