"""Signals and time limits: a job that can save a checkpoint is asked to do so; any other job ends with an exception.

A compiled pass may take seconds, and Python runs signal handlers only between two instructions of the main thread. Therefore
signal numbers also go through a socket to a watcher thread (``watch_signals``). It ends the process if the job has not ended
within PATIENCE seconds of the first signal, and at once at a second signal. Nothing is lost, because the files on disk are
complete for an earlier checkpoint at every moment.
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
"""The signal that a time limit sends, and its name in messages."""
PATIENCE = 4.5
"""Seconds from the first signal to the end of the process."""
SAVING = 60.0
"""Seconds from the first signal to the end of the process while a checkpoint is being written."""
POLL = 0.05


class Interruption:
    """The signals that this process has received during a job."""

    def __init__(self) -> None:
        self.name = ""
        """Name of the first signal; empty before it."""
        self.since = 0.0
        """``time.monotonic()`` of the first signal."""
        self.saving = False
        """Whether a checkpoint is being written."""
        self.standing = "There is no earlier one"
        """Sentence on the last checkpoint, printed if there is no time for another one."""
        self.resume = ""
        """Command that continues from the files on disk, for jobs without checkpoints; empty if there is none."""
        self.wakeup_socket: socket.socket | None = None
        """Socket to which signal numbers are sent; None while no job of the command line runs."""
        self.expiry_patience = PATIENCE
        """Seconds from the time limit to the end of the process."""
        self.deferred = False
        """Whether the job checks ``name`` itself, between visits; otherwise a signal raises an exception at once."""
        self.raised: InterruptedRun | None = None
        """The last exception raised by a signal handler."""

    @property
    def seconds(self) -> float:
        """Seconds since the first signal."""
        return time.monotonic() - self.since

    def error(self, what: str) -> InterruptedRun:
        """Return the exception of a run that was asked to stop."""
        return InterruptedRun(f"{self.name}: {what}")


current = Interruption()
"""There is one per process, because signals go to its main thread."""


class JobClock:
    """The clock of time limits; inside ``without_compiler`` it does not count the seconds of numba's compiler."""

    def __init__(self) -> None:
        self._excluded = 0.0
        self._began: float | None = None

    def now(self) -> float:
        """Return the time of this clock in seconds."""
        began = self._began
        return time.monotonic() - self._excluded - (0.0 if began is None else CLOCK.seconds() - began)

    @contextmanager
    def without_compiler(self) -> Iterator[None]:
        """Stop the clock while numba compiles. Of two jobs that run in one process, the first one decides."""
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
    """The time limit of a job that cannot use an alarm: it runs outside the main thread, or the program uses the alarm."""

    def __init__(self) -> None:
        self.moment = float("inf")
        """The limit on ``job_clock``."""
        self.resume = ""
        """Command that continues from the files on disk; empty if there is none."""
        self.deferred = False
        """Whether the job checks its time itself."""


thread_limit = ThreadLimit()


def check_time() -> None:
    """Raise InterruptedRun if the time of this thread's job is over. Called where a job waits, or reads for a while."""
    if not thread_limit.deferred and job_clock.now() >= thread_limit.moment:
        raise InterruptedRun(f"{TIME_LIMIT}: {describe_leftovers(thread_limit.resume)}")


def describe_leftovers(resume: str) -> str:
    """Return the message on the files of a job that ends early; ``resume``: the command that continues it, if any."""
    if resume:
        return f"finished output is kept. Resume: {resume}"
    return "unfinished output was removed; completed files were kept"


def note_signal(number: int) -> None:
    """Record the first signal, by its number."""
    current.since = time.monotonic()
    current.name = TIME_LIMIT if number == EXPIRED else signal.Signals(number).name


def watch_signals(heard: socket.socket) -> None:
    """Watch for signals until the other end of ``heard`` is closed; runs in a thread of its own."""
    first = _next(heard, None, {*SIGNALS, EXPIRED})
    if first:
        if not current.name:
            note_signal(first)
        second = _next(heard, current.expiry_patience if first == EXPIRED else PATIENCE)
        while second == 0 and current.saving and current.seconds < SAVING:
            second = _next(heard, POLL)
        if second is not None:
            exit_process(second)
    heard.close()


def _next(heard: socket.socket, seconds: float | None, numbers: Collection[int] = SIGNALS) -> int | None:
    """Return the number of the next of these signals; 0 if none came in time, None if the job is over."""
    until = time.monotonic() + (seconds or 0.0)
    while select.select([heard], [], [], None if seconds is None else max(0.0, until - time.monotonic()))[0]:
        got = heard.recv(1)
        if not got or got[0] in numbers:
            return got[0] if got else None
    return 0


def exit_process(second: int) -> None:
    """End the process at once, without cleaning up: the files on disk are complete. ``second``: the second signal, or 0."""
    if second:
        os._exit(128 + second)
    standing = f"Finished output is kept. Resume: {current.resume}" if current.resume else current.standing
    sys.stderr.write(f"error[E-INTERRUPTED]: {current.name}: no time for a checkpoint. {standing}\n")
    sys.stderr.flush()
    os._exit(InterruptedRun.exit_code)


SHORTEST = 1e-6
"""The shortest time of an alarm in seconds: one of 0 would disable it."""
AGAIN = 0.1
"""Seconds between two alarms until the job has ended: an exception raised in a C callback or in ``__del__`` is lost."""
FINISHING, FINISHING_SHARE = 2.0, 0.4
"""Seconds, or share of the limit if that is more, that a job may overrun its limit to finish with a result."""
LEAST_PATIENCE, PATIENCE_SHARE = 1.0, 0.1
"""Further seconds, or share of the limit, until the process is ended, at most PATIENCE. A limit of 5 s ends within 10 s."""


@contextmanager
def listen() -> Iterator[None]:
    """Handle signals while a job of the command line runs; outside the main thread nothing changes."""
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
    """Let Ctrl-C stop a job called from Python without ending the program; outside the main thread nothing changes.

    A second Ctrl-C raises KeyboardInterrupt at once, without a checkpoint.
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
    """Return whether this is the thread that gets signals: jobs in other threads do not touch the handlers."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def expire_after(seconds: float, patience: float) -> Iterator[None]:
    """Send a command the signal of its time limit after ``seconds``; it then has ``patience`` seconds to save a checkpoint."""
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
    """Return the seconds by which a job may overrun a time limit of ``limit`` seconds to finish with a result."""
    return max(FINISHING, FINISHING_SHARE * limit)


def limit_time(limit: float, spent: float = 0.0, *, finish: bool = False) -> AbstractContextManager[None]:
    """Ask a job to stop once ``limit`` seconds, of which ``spent`` have passed, are over.

    ``finish``: the job goes on for a while after its limit to finish with a result (``finishing_seconds``). A command gets a
    signal from a timer thread. A job called from Python uses the process's alarm; if the program uses the alarm itself, or the
    job runs in another thread, the job checks the time itself (``check_time``).
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
    """Raise InterruptedRun in a job called from Python after ``seconds``. No alarm is left behind in any case."""
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
    """Let ``check_time`` raise in this thread after ``seconds``."""
    before, thread_limit.moment = thread_limit.moment, min(thread_limit.moment, job_clock.now() + seconds)
    try:
        yield
    finally:
        thread_limit.moment = before


@contextmanager
def set_resume_command(command: str) -> Iterator[None]:
    """Name the command that continues from the files on disk, for a job without checkpoints, such as an embedding."""
    interruptions = _interruptions()
    for one in interruptions:
        one.resume = command
    try:
        yield
    finally:
        for one in interruptions:
            one.resume = ""


@contextmanager
def defer_signals() -> Iterator[None]:
    """Let the job check for signals and for its time limit itself, between visits."""
    interruptions = _interruptions()
    for one in interruptions:
        one.deferred = True
    try:
        yield
    finally:
        for one in interruptions:
            one.deferred = False


def _interruptions() -> list[ThreadLimit | Interruption]:
    """Return the objects by which the job of this thread is asked to stop."""
    return [thread_limit, current] if _in_main_thread() else [thread_limit]


def _handle(number: int, _: Any) -> None:
    """Handle a signal in the main thread: raise InterruptedRun, unless the job checks for signals itself."""
    if current.deferred or _unwinding() or postpone(partial(_handle, number, None)):
        return
    if not current.name:
        note_signal(number)
    current.raised = current.error(describe_leftovers(current.resume))
    raise current.raised


def _unwinding() -> bool:
    """Return whether the exception of a handler is propagating through cleanup code, or a generator is being closed."""
    error = sys.exc_info()[1] if current.raised is not None else None
    while error is not None and error is not current.raised and not isinstance(error, GeneratorExit):
        error = error.__context__
    return error is not None


def _interrupt_from(moment: float, number: int, frame: Any) -> None:
    """Handle an alarm of a job called from Python; does nothing before ``moment`` on ``job_clock``."""
    if job_clock.now() >= moment:
        _interrupt(number, frame)


def _interrupt(number: int, frame: Any) -> None:
    """Handle Ctrl-C, or an alarm, of a job called from Python, whose process goes on."""
    if current.name and number != EXPIRED:
        raise KeyboardInterrupt
    if not current.name:
        note_signal(number)
    _handle(number, frame)


def _expire(moment: float, left: threading.Event) -> None:
    """Send the alarm at ``moment``, and again while its exception may have been lost; runs in the timer thread."""
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
