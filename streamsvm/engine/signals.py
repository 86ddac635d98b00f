"""Signals and time limits: a job that can save its state is asked to do so, any other is unwound.

A compiled pass may take seconds, and Python runs signal handlers only between two instructions of the main thread. So signal
numbers also go through a socket to a thread of its own (``watch_signals``), which ends the process when the job does not end
within PATIENCE seconds, and at once when a second signal comes. Nothing is lost by that, because at every moment the files on disk
are complete for an earlier checkpoint.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from streamsvm.compute.compile_clock import CLOCK
from streamsvm.compute.threading import postpone, postpone_signals
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


class JobClock:
    """The clock of time limits: it stands still while the compiler works inside ``without_compiler``."""

    def __init__(self) -> None:
        self._excluded = 0.0
        self._began: float | None = None

    def now(self) -> float:
        """Return a moment, in seconds."""
        began = self._began
        return time.monotonic() - self._excluded - (0.0 if began is None else CLOCK.seconds() - began)

    @contextmanager
    def without_compiler(self) -> Iterator[None]:
        """Do not count the seconds of the compiler meanwhile. Of two jobs at once in this process the first decides."""
        if self._began is not None:
            yield
            return
        self._began = began = CLOCK.seconds()
        try:
            yield
        finally:
            self._excluded += CLOCK.seconds() - began
            self._began = None


job_clock = JobClock()


class ThreadLimit(threading.local):
    """The end of the time of a job that no alarm can reach: it runs in another thread, or the program has an alarm of its own."""

    def __init__(self) -> None:
        self.moment = float("inf")
        """By ``job_clock``."""
        self.resume = ""
        """The command that goes on with what is on disk; empty: there is none."""
        self.deferred = False
        """Whether the job looks at its time itself."""


of_thread = ThreadLimit()


def check_time() -> None:
    """Raise InterruptedRun where the time of this thread's job is over; called by what waits for others or reads a while."""
    if not of_thread.deferred and job_clock.now() >= of_thread.moment:
        raise InterruptedRun(f"{TIME_LIMIT}: {what_remains(of_thread.resume)}")


def what_remains(resume: str) -> str:
    """What is said of a job that is left where it is: ``resume`` is the command that goes on with it, if there is one."""
    if resume:
        return f"what was finished stays. Resume: {resume}"
    return "unfinished output was removed; completed files were kept"


def note_signal(number: int) -> None:
    """Take down the first signal there was, by its number."""
    current.since = time.monotonic()
    current.name = TIME_LIMIT if number == EXPIRED else signal.Signals(number).name


def watch_signals(heard: socket.socket) -> None:
    """Listen until the other end of ``heard`` is closed; runs in a thread of its own."""
    first = _next(heard, None, {*SIGNALS, EXPIRED})
    if first:
        if not current.name:
            note_signal(first)
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


SHORTEST = 1e-6
"""Seconds: a timer of none would never end."""
AGAIN = 0.1
"""Seconds from one alarm of a limit to the next, until the job is left: what is raised in a callback of C or in __del__ is lost."""
FINISHING, FINISHING_SHARE = 2.0, 0.4
"""Seconds, or this share of its limit, that a job may take beyond it to come to a result."""
LEAST_PATIENCE, PATIENCE_SHARE = 1.0, 0.1
"""Seconds from there to the end of the process, or this share of the limit, up to PATIENCE. A limit of 5 s ends within 10 s."""


@contextmanager
def listen() -> Iterator[None]:
    """Take signals while a job runs; outside the main thread nothing changes."""
    if not _in_main_thread():
        yield
        return
    current.__init__()  # type: ignore[misc]
    heard, current.wakeup_socket = socket.socketpair()
    current.wakeup_socket.setblocking(False)
    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # under nohup: not all
    before = {number: signal.signal(number, _handle) for number in heeded}
    wakeup = signal.set_wakeup_fd(current.wakeup_socket.fileno(), warn_on_full_buffer=False)
    try:
        with postpone_signals():
            threading.Thread(target=watch_signals, args=(heard,), name="streamsvm-signals", daemon=True).start()
        yield
    finally:
        with postpone_signals():
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            current.wakeup_socket.close()
            current.wakeup_socket = None


@contextmanager
def allow_interrupt() -> Iterator[None]:
    """Let Ctrl-C end a job that a program runs, and nothing end the program; outside the main thread nothing changes.

    A second one does not wait for the job to save its state: it is a KeyboardInterrupt as ever.
    """
    before = signal.getsignal(signal.SIGINT)
    if not _in_main_thread() or before in (signal.SIG_IGN, None, _interrupt):
        yield
        return
    current.__init__()  # type: ignore[misc]
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        current.__init__()  # type: ignore[misc]


def _in_main_thread() -> bool:
    """Whether signals go to this thread: jobs in others neither take them nor change what is done with them."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def expire_after(seconds: float, patience: float) -> Iterator[None]:
    """Ask a command to stop after so many seconds, as a signal would; it has ``patience`` seconds to save its state."""
    before, expiry_patience = signal.signal(EXPIRED, _handle), current.expiry_patience
    left = threading.Event()
    timer = threading.Thread(
        target=_expire, args=(job_clock.now() + seconds, left), name="streamsvm-limit", daemon=True
    )
    current.expiry_patience = patience
    try:
        with postpone_signals():
            timer.start()
        yield
    finally:
        with postpone_signals():
            left.set()
            timer.join()  # it sends no signal any more that nobody handles
            signal.signal(EXPIRED, before)
            current.expiry_patience, current.raised = expiry_patience, None


def finishing_seconds(limit: float) -> float:
    """Seconds beyond a time limit of so many that a job is left to come to a result."""
    return max(FINISHING, FINISHING_SHARE * limit)


def limit_time(limit: float, spent: float = 0.0, *, finish: bool = False) -> AbstractContextManager[None]:
    """Ask a job to stop once a time limit of so many seconds, of which some are spent, is over.

    ``finish``: one that goes on for a little to come to a result at its limit is left some time for that. A command is
    sent a signal by a thread of its own; a job of a program's has the program's alarm, and where that is not to be had -
    the program uses it, or the job runs in another thread - looks at the time itself: ``interruption.check_time``.
    """
    seconds = limit + (finishing_seconds(limit) if finish else 0.0) - spent
    if not math.isfinite(seconds):
        return nullcontext()
    if not _in_main_thread():
        return _check_time_in_thread(seconds)
    if current.wakeup_socket is not None:
        least = LEAST_PATIENCE if finish else FINISHING + LEAST_PATIENCE
        return expire_after(seconds, min(PATIENCE, max(least, PATIENCE_SHARE * limit)))
    return (
        _set_alarm(seconds) if signal.getsignal(EXPIRED) in (signal.SIG_DFL, None) else _check_time_in_thread(seconds)
    )


@contextmanager
def _set_alarm(seconds: float) -> Iterator[None]:
    """Unwind a job of a program's after so many seconds; where they are over before it began, too, no alarm is left behind."""
    try:
        with postpone_signals():
            signal.signal(EXPIRED, partial(_interrupt_from, job_clock.now() + seconds))
            signal.setitimer(signal.ITIMER_REAL, max(seconds, SHORTEST), AGAIN)
        yield
    finally:
        with postpone_signals():
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(EXPIRED, signal.SIG_DFL)
        current.raised = None
        if current.name == TIME_LIMIT:  # the next job of the program has its own time
            current.name = ""


@contextmanager
def _check_time_in_thread(seconds: float) -> Iterator[None]:
    """Have the job of this thread look at the time."""
    before, of_thread.moment = of_thread.moment, min(of_thread.moment, job_clock.now() + seconds)
    try:
        yield
    finally:
        of_thread.moment = before


@contextmanager
def set_resume_command(command: str) -> Iterator[None]:
    """While a job writes what the same job, asked for by ``command``, goes on with: an embedding."""
    told = _interruptions()
    for one in told:
        one.resume = command
    try:
        yield
    finally:
        for one in told:
            one.resume = ""


@contextmanager
def defer_signals() -> Iterator[None]:
    """While a job looks for signals, and at its time, itself."""
    told = _interruptions()
    for one in told:
        one.deferred = True
    try:
        yield
    finally:
        for one in told:
            one.deferred = False


def _interruptions() -> list[ThreadLimit | Interruption]:
    """What knows how the job of this thread is asked to stop."""
    return [of_thread, current] if _in_main_thread() else [of_thread]


def _handle(number: int, _: Any) -> None:
    """Runs in the main thread, between two instructions: where nobody looks for signals they end what is being done."""
    if current.deferred or _unwinding() or postpone(partial(_handle, number, None)):
        return
    if not current.name:
        note_signal(number)
    current.raised = current.error(what_remains(current.resume))
    raise current.raised


def _unwinding() -> bool:
    """Whether what was raised is on its way, through blocks that tidy up, or a generator is closed: nothing disturbs that."""
    error = sys.exc_info()[1] if current.raised is not None else None
    while error is not None and error is not current.raised and not isinstance(error, GeneratorExit):
        error = error.__context__
    return error is not None


def _interrupt_from(moment: float, number: int, frame: Any) -> None:
    """Runs in the main thread at every alarm of a program's job; before ``moment`` of the clock of jobs it does nothing."""
    if job_clock.now() >= moment:
        _interrupt(number, frame)


def _interrupt(number: int, frame: Any) -> None:
    """Runs in the main thread, where a program's job is asked to stop; nobody ends its process."""
    if current.name and number != EXPIRED:
        raise KeyboardInterrupt
    if not current.name:
        note_signal(number)
    _handle(number, frame)


def _expire(moment: float, left: threading.Event) -> None:
    """Runs in the thread of the timer: an alarm, and again where what it raised may have been lost."""
    main = threading.main_thread().ident
    while (seconds := moment - job_clock.now()) > 0.0:
        if left.wait(max(seconds, POLL)):
            return
    if main is None or left.is_set() or current.name:
        return
    signal.pthread_kill(main, EXPIRED)  # its number goes to the socket too
    while not left.wait(AGAIN):
        if current.raised is not None:
            signal.pthread_kill(main, EXPIRED)
