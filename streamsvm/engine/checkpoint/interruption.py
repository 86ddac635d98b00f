"""What has been asked of this process from outside, and the thread that hears of it while compiled code runs.

A compiled pass may take seconds, and Python runs signal handlers only between two instructions of the main thread. So
the numbers of signals go through a socket to a thread of its own, which sees them at once: it ends the process when the job does
not within PATIENCE, and at once when a second signal comes. That loses nothing, because what is on disk is at every
moment what an earlier checkpoint needs.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection

from streamsvm.errors import InterruptedRun

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
EXPIRED, TIME_LIMIT = int(signal.SIGALRM), "time limit"
"""What stands in the socket for the end of a job's time, and its name."""
PATIENCE = 4.5
"""Seconds from the first signal to the end of the process."""
SAVING = 60.0
"""As long as a checkpoint is being written, this many."""
POLL = 0.05


class Interruption:
    """What has been asked from outside so far."""

    def __init__(self) -> None:
        self.name = ""
        """Of the signal that asked the job to stop."""
        self.since = 0.0
        self.saving = False
        self.standing = "There is no earlier one"
        """What to tell about the last checkpoint if there is no time for another."""
        self.resume = ""
        """The command that goes on with what is on disk, where the job has no checkpoint yet; empty: there is none."""
        self.wakeup_socket: socket.socket | None = None
        """Where the numbers of signals are sent; None: nobody listens."""
        self.expiry_patience = PATIENCE
        """Seconds from the end of the job's time to the end of the process."""
        self.deferred = False
        """Whether the job looks at ``name`` between visits; else a signal is raised where the job happens to be."""
        self.raised: InterruptedRun | None = None
        """What a signal raised last in the main thread."""

    @property
    def seconds(self) -> float:
        """Since the signal."""
        return time.monotonic() - self.since

    def error(self, what: str) -> InterruptedRun:
        """The end of a run that was asked to stop."""
        return InterruptedRun(f"{self.name}: {what}")


current = Interruption()
"""Of this process: there is one main thread that signals go to."""


class ThreadLimit(threading.local):
    """The end of the time of a job that no alarm can reach: it runs in another thread, or the program has an alarm of its own."""

    def __init__(self) -> None:
        self.moment = float("inf")
        """By the clock of ``time.monotonic``."""
        self.resume = ""
        """The command that goes on with what is on disk; empty: there is none."""
        self.deferred = False
        """Whether the job looks at its time itself."""


of_thread = ThreadLimit()


def check_time() -> None:
    """Raise InterruptedRun where the time of this thread's job is over; called by what waits for others or reads a while."""
    if not of_thread.deferred and time.monotonic() >= of_thread.moment:
        raise InterruptedRun(f"{TIME_LIMIT}: {what_stays(of_thread.resume)}")


def what_stays(resume: str) -> str:
    """What is said of a job that is left where it is: ``resume`` is the command that goes on with it, if there is one."""
    if resume:
        return f"what was finished stays. Resume: {resume}"
    return "what was being written is removed, what was finished stays"


def note(number: int) -> None:
    """Take down the first signal there was, by its number."""
    current.since = time.monotonic()
    current.name = TIME_LIMIT if number == EXPIRED else signal.Signals(number).name


def watch(heard: socket.socket) -> None:
    """Listen until the other end of ``heard`` is closed; runs in a thread of its own."""
    first = _next(heard, None, {*SIGNALS, EXPIRED})
    if first:
        if not current.name:
            note(first)
        second = _next(heard, current.expiry_patience if first == EXPIRED else PATIENCE)
        while second == 0 and current.saving and current.seconds < SAVING:
            second = _next(heard, POLL)
        if second is not None:
            _leave(second)
    heard.close()


def _next(heard: socket.socket, seconds: float | None, numbers: Collection[int] = SIGNALS) -> int | None:
    """The number of the next of these signals; 0 when none came in time, None when the job is over."""
    until = time.monotonic() + (seconds or 0.0)
    while select.select([heard], [], [], None if seconds is None else max(0.0, until - time.monotonic()))[0]:
        got = heard.recv(1)
        if not got or got[0] in numbers:
            return got[0] if got else None
    return 0


def _leave(second: int) -> None:
    """End the process now: nothing is cleaned up, and nothing needs to be."""
    if second:
        os._exit(128 + second)
    standing = f"What was finished stays. Resume: {current.resume}" if current.resume else current.standing
    sys.stderr.write(f"error[E-INTERRUPTED]: {current.name}: no time for a checkpoint. {standing}\n")
    sys.stderr.flush()
    os._exit(InterruptedRun.exit_code)
