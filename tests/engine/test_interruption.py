"""Who listens for signals ends the process when it is time: after a moment, at a second signal, and not while a checkpoint is written."""

from __future__ import annotations

import signal
import socket
import threading
import time
from typing import Any

import pytest

from streamsvm.engine import signals as interruption
from streamsvm.engine.signals import Interruption, watch_signals

SOON, LATER, WAIT = 0.05, 0.3, 120.0


class Listening:
    """A thread that listens; what it would have ended the process with, and after how many seconds, is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **state: Any) -> None:
        self.ended: list[int] = []
        self.state = Interruption()
        for name, value in state.items():
            setattr(self.state, name, value)
        self._heard, self.socket = socket.socketpair()
        monkeypatch.setattr(interruption, "interruption", self.state)
        monkeypatch.setattr(interruption, "exit_process", self.ended.append)
        monkeypatch.setattr(interruption, "POLL_SECONDS", 0.01)
        self._thread = threading.Thread(target=watch_signals, args=(self._heard,), daemon=True)
        self._thread.start()
        self._began = time.monotonic()

    def hear(self, number: int) -> None:
        self.socket.send(bytes([number]))

    def seconds(self) -> float:
        """From the beginning to the end of the thread."""
        self._thread.join(WAIT)
        assert not self._thread.is_alive()
        self.socket.close()
        return time.monotonic() - self._began


def test_interruption_job_that_does_not_end_is_ended_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "GRACE_SECONDS", LATER)
    there = Listening(monkeypatch, expiry_grace_seconds=WAIT)
    there.hear(signal.SIGTERM)
    assert LATER <= there.seconds() < WAIT
    assert (there.ended, there.state.name) == ([0], "SIGTERM")


@pytest.mark.parametrize("saving", [False, True])
def test_interruption_second_signal_ends_it_at_once(saving: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "GRACE_SECONDS", 0.0 if saving else WAIT)
    there = Listening(monkeypatch, is_saving=saving)
    there.hear(signal.SIGTERM)
    time.sleep(SOON)
    there.hear(signal.SIGINT)
    assert there.seconds() < WAIT
    assert (there.ended, there.state.name) == ([signal.SIGINT], "SIGTERM")


def test_interruption_checkpoint_that_is_being_written_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "GRACE_SECONDS", SOON)
    there = Listening(monkeypatch, is_saving=True)
    there.hear(signal.SIGTERM)
    time.sleep(LATER)
    assert there.ended == []
    there.state.is_saving = False
    assert there.seconds() < WAIT
    assert there.ended == [0]


@pytest.mark.parametrize("signals", [[], [signal.SIGTERM]])
def test_interruption_job_that_ends_is_left_alone(signals: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    there = Listening(monkeypatch)
    for number in signals:
        there.hear(number)
    time.sleep(SOON)
    there.socket.close()
    assert there.seconds() < WAIT
    assert there.ended == []
