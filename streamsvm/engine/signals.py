"""Signals and time limits: a job that can save a checkpoint is asked to do so; any other job ends with an exception.

A compiled pass may take seconds, and Python runs signal handlers only between two instructions of the main thread.
Therefore signal numbers also go through a socket to a watcher thread (``watch_signals``). It ends the process if the
job has not ended within PATIENCE seconds of the first signal, and immediately at a second signal. Nothing is lost,
because at every moment the files of an earlier checkpoint are complete on disk.
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
        self.last_checkpoint = "There is no earlier one"
        """Sentence about the last checkpoint, printed if there is no time to save another."""
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
"""The only object of its class: there is one per process, because signals go to the main thread."""


class JobClock:
    """The clock by which time limits are measured; inside ``without_compiler`` it stops while numba compiles."""

    def __init__(self) -> None:
        self._excluded = 0.0
        self._began: float | None = None

    def now(self) -> float:
        """Return the time of this clock in seconds."""
        began = self._began
        return time.monotonic() - self._excluded - (0.0 if began is None else CLOCK.seconds() - began)

    @contextmanager
    def without_compiler(self) -> Iterator[None]:
        """Stop the clock while numba compiles. If two jobs of one process use this context, the first one decides."""
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
    """The time limit of a job that cannot use an alarm (outside the main thread, or the program uses it)."""

    def __init__(self) -> None:
        self.moment = float("inf")
        """The limit on ``job_clock``."""
        self.resume = ""
        """Command that continues from the files on disk; empty if there is none."""
        self.deferred = False
        """Whether the job checks its time itself."""


thread_limit = ThreadLimit()


def check_time() -> None:
    """Raise InterruptedRun if the time limit of this thread's job has expired. Called where a job waits or reads for a
    while.
    """
    if not thread_limit.deferred and job_clock.now() >= thread_limit.moment:
        raise InterruptedRun(f"{TIME_LIMIT}: {describe_leftovers(thread_limit.resume)}")


def describe_leftovers(resume: str) -> str:
    """Return the message on the files of a job that ends early; ``resume``: the command that continues it, if any."""
    if resume:
        return f"finished output is kept. Resume: {resume}"
    return "unfinished output was removed; completed files were kept"


def record_signal(number: int) -> None:
    """Record the name and the time of the first signal."""
    current.since = time.monotonic()
    current.name = TIME_LIMIT if number == EXPIRED else signal.Signals(number).name


def watch_signals(receiver: socket.socket) -> None:
    """Watch for signals until the other end of ``receiver`` is closed. Runs in a thread of its own."""
    first = _next(receiver, None, {*SIGNALS, EXPIRED})
    if first:
        if not current.name:
            record_signal(first)
        second = _next(receiver, current.expiry_patience if first == EXPIRED else PATIENCE)
        while second == 0 and current.saving and current.seconds < SAVING:
            second = _next(receiver, POLL)
        if second is not None:
            exit_process(second)
    receiver.close()


def _next(receiver: socket.socket, seconds: float | None, numbers: Collection[int] = SIGNALS) -> int | None:
    """Wait for one of the signals ``numbers`` and return its number; 0 if none arrives in time, None if the job has
    ended.
    """
    until = time.monotonic() + (seconds or 0.0)
    while select.select([receiver], [], [], None if seconds is None else max(0.0, until - time.monotonic()))[0]:
        received = receiver.recv(1)
        if not received or received[0] in numbers:
            return received[0] if received else None
    return 0


def exit_process(second: int) -> None:
    """End the process immediately, without cleaning up: the files on disk are complete. ``second``: the second signal,
    or 0.
    """
    if second:
        os._exit(128 + second)
    kept = f"Finished output is kept. Resume: {current.resume}" if current.resume else current.last_checkpoint
    sys.stderr.write(f"error[E-INTERRUPTED]: {current.name}: no time for a checkpoint. {kept}\n")
    sys.stderr.flush()
    os._exit(InterruptedRun.exit_code)


MIN_ALARM_SECONDS = 1e-6
"""The shortest time of an alarm in seconds; a time of 0 would disable the alarm."""
ALARM_REPEAT_SECONDS = 0.1
"""Seconds between two alarms. They repeat until the job has ended: an exception raised in a C callback or in
``__del__`` is lost."""
FINISHING, FINISHING_SHARE = 2.0, 0.4
"""Seconds, and share of the limit, by which a job may exceed its limit to finish with a result; the larger one
counts."""
LEAST_PATIENCE, PATIENCE_SHARE = 1.0, 0.1
"""Further seconds, and share of the limit, until the process is ended; the larger one counts, up to PATIENCE. With a
limit of 5 s the process therefore ends within 10 s."""


@contextmanager
def listen() -> Iterator[None]:
    """Handle signals while a job of the command line runs. Outside the main thread, do nothing."""
    if not _in_main_thread():
        yield
        return
    current.__init__()  # type: ignore[misc]
    receiver, current.wakeup_socket = socket.socketpair()
    current.wakeup_socket.setblocking(False)
    handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    former_handlers = {number: signal.signal(number, _handle) for number in handled}
    former_wakeup = signal.set_wakeup_fd(current.wakeup_socket.fileno(), warn_on_full_buffer=False)
    try:
        with postpone_signals():
            threading.Thread(target=watch_signals, args=(receiver,), name="streamsvm-signals", daemon=True).start()
        yield
    finally:
        with postpone_signals():
            signal.set_wakeup_fd(former_wakeup)
            for number, handler in former_handlers.items():
                signal.signal(number, handler)
            current.wakeup_socket.close()
            current.wakeup_socket = None


@contextmanager
def allow_interrupt() -> Iterator[None]:
    """Let Ctrl-C stop a job called from Python without ending the program. Outside the main thread, do nothing.

    A second Ctrl-C raises KeyboardInterrupt immediately, without a checkpoint.
    """
    former_handler = signal.getsignal(signal.SIGINT)
    if not _in_main_thread() or former_handler in (signal.SIG_IGN, None, _interrupt):
        yield
        return
    current.__init__()  # type: ignore[misc]
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former_handler)
        current.__init__()  # type: ignore[misc]


def _in_main_thread() -> bool:
    """Return whether this thread receives signals; jobs in other threads leave the signal handlers alone."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def expire_after(seconds: float, patience: float) -> Iterator[None]:
    """Signal to a command after ``seconds`` that its time limit has expired; it then has ``patience`` seconds to save a
    checkpoint.
    """
    former_handler, former_patience = signal.signal(EXPIRED, _handle), current.expiry_patience
    job_ended = threading.Event()
    timer = threading.Thread(
        target=_expire, args=(job_clock.now() + seconds, job_ended), name="streamsvm-limit", daemon=True
    )
    current.expiry_patience = patience
    try:
        with postpone_signals():
            timer.start()
        yield
    finally:
        with postpone_signals():
            job_ended.set()
            timer.join()  # before the handler is removed, so that every signal of the timer is handled
            signal.signal(EXPIRED, former_handler)
            current.expiry_patience, current.raised = former_patience, None


def finishing_seconds(limit: float) -> float:
    """Return the seconds by which a job may exceed a time limit of ``limit`` seconds to finish with a result."""
    return max(FINISHING, FINISHING_SHARE * limit)


def limit_time(limit: float, spent: float = 0.0, *, finish: bool = False) -> AbstractContextManager[None]:
    """Return a context that asks its job to stop after ``limit`` seconds, of which ``spent`` have passed already.

    ``finish``: allow some time after the limit to finish with a result (``finishing_seconds``). A command receives a
    signal from a timer thread. A job called from Python uses the process's alarm; if the program uses the alarm itself,
    or the job runs in another thread, the job checks the time itself (``check_time``).
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
    """Raise InterruptedRun in a job called from Python after ``seconds``; remove the alarm at the end."""
    try:
        with postpone_signals():
            signal.signal(EXPIRED, partial(_interrupt_from, job_clock.now() + seconds))
            signal.setitimer(signal.ITIMER_REAL, max(seconds, MIN_ALARM_SECONDS), ALARM_REPEAT_SECONDS)
        yield
    finally:
        with postpone_signals():
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(EXPIRED, signal.SIG_DFL)
        current.raised = None
        if current.name == TIME_LIMIT:  # the next job of the program has its own time limit
            current.name = ""


@contextmanager
def _check_time_in_thread(seconds: float) -> Iterator[None]:
    """Let ``check_time`` raise in this thread after ``seconds``."""
    former, thread_limit.moment = thread_limit.moment, min(thread_limit.moment, job_clock.now() + seconds)
    try:
        yield
    finally:
        thread_limit.moment = former


@contextmanager
def set_resume_command(command: str) -> Iterator[None]:
    """Set the command that continues a job without checkpoints, such as an embedding, from the files on disk."""
    interruptions = _interruptions()
    for interruption in interruptions:
        interruption.resume = command
    try:
        yield
    finally:
        for interruption in interruptions:
            interruption.resume = ""


@contextmanager
def defer_signals() -> Iterator[None]:
    """Let the job check for signals and for its time limit itself, between visits."""
    interruptions = _interruptions()
    for interruption in interruptions:
        interruption.deferred = True
    try:
        yield
    finally:
        for interruption in interruptions:
            interruption.deferred = False


def _interruptions() -> list[ThreadLimit | Interruption]:
    """Return the objects that can ask the job of this thread to stop."""
    return [thread_limit, current] if _in_main_thread() else [thread_limit]


def _handle(number: int, _: Any) -> None:
    """Handle a signal in the main thread: raise InterruptedRun, unless the job checks for signals itself."""
    if current.deferred or _is_unwinding() or postpone(partial(_handle, number, None)):
        return
    if not current.name:
        record_signal(number)
    current.raised = current.error(describe_leftovers(current.resume))
    raise current.raised


def _is_unwinding() -> bool:
    """Return whether a handler's exception is propagating through cleanup code, or a generator is being closed."""
    error = sys.exc_info()[1] if current.raised is not None else None
    while error is not None and error is not current.raised and not isinstance(error, GeneratorExit):
        error = error.__context__
    return error is not None


def _interrupt_from(moment: float, number: int, frame: Any) -> None:
    """Handle an alarm of a job called from Python; do nothing before ``moment`` on ``job_clock``."""
    if job_clock.now() >= moment:
        _interrupt(number, frame)


def _interrupt(number: int, frame: Any) -> None:
    """Handle Ctrl-C, or an alarm, of a job called from Python; the process continues after the job."""
    if current.name and number != EXPIRED:
        raise KeyboardInterrupt
    if not current.name:
        record_signal(number)
    _handle(number, frame)


def _expire(moment: float, job_ended: threading.Event) -> None:
    """Send the alarm at ``moment``, and repeat it while its exception may have been lost. Runs in the timer thread."""
    main = threading.main_thread().ident
    while (seconds := moment - job_clock.now()) > 0.0:
        if job_ended.wait(max(seconds, POLL)):
            return
    if main is None or job_ended.is_set() or current.name:
        return
    signal.pthread_kill(main, EXPIRED)  # its number goes to the socket too
    while not job_ended.wait(ALARM_REPEAT_SECONDS):
        if current.raised is not None:
            signal.pthread_kill(main, EXPIRED)
